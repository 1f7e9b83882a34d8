# SPDX-License-Identifier: Apache-2.0
"""Steps over NumPy arrays for ebb.run, and a plain loop that keeps everything to hold them against."""

import numpy as np

import ebb

WIDTH = 5
RNG = np.random.default_rng(7)
WEIGHTS = RNG.normal(0, 0.5, (WIDTH, WIDTH))


class Function:
    """h' = tanh(W h + i/100), with the gradient of W."""

    def __init__(self, steps, weights=WEIGHTS):
        self.steps = steps
        self.weights = weights
        self.gradient = np.zeros_like(weights)
        self.firsts = []

    def begin(self):
        self.gradient[:] = 0
        self.firsts.clear()

    def forward(self, i, state):
        return np.tanh(self.weights @ state + i / 100)

    def backward(self, i, before, after, adjoint):
        inner = adjoint * (1 - after**2)
        self.gradient += np.outer(inner, before)
        return self.weights.T @ inner

    def first(self, i, state):
        self.firsts.append((i, state.copy()))


class Range:
    """The same, in place; a tape holds the state before."""

    tape = np.zeros(WIDTH)

    def __init__(self, steps):
        self.steps = steps
        self.inner = Function(steps)
        self.firsts = []

    def begin(self):
        self.inner.begin()
        self.firsts.clear()

    def advance(self, start, end, state, first):
        for i in range(start, end):
            state[:] = self.inner.forward(i, state)
            if first:
                self.firsts.append((i, state.copy()))

    def record(self, start, end, state, tapes, after, first):
        for k in range(end - start):
            tapes[k] = state
            self.advance(start + k, start + k + 1, state, first)
            after[k] = state

    def reverse(self, start, end, tapes, after, adjoint):
        for k in range(end - start - 1, -1, -1):
            adjoint[:] = self.inner.backward(start + k, tapes[k], after[k], adjoint)


def plain(steps, initial, seed):
    """Everything kept, no ebb."""
    step = Function(steps)
    states = [initial]
    for i in range(steps):
        states.append(step.forward(i, states[-1]))
    adjoint = seed(states[-1]) if callable(seed) else seed
    for i in range(steps - 1, -1, -1):
        adjoint = step.backward(i, states[i], states[i + 1], adjoint)
    return states, adjoint, step.gradient


def same_bits(one, other):
    return one.dtype == other.dtype and one.tobytes() == other.tobytes()


def check(step, initial, **words):
    seed = np.cos
    states, adjoint, gradient = plain(step.steps, initial, seed)
    found = ebb.run(step, initial, adjoint=seed, **words)
    inner = getattr(step, "inner", step)
    assert same_bits(found.final, states[-1])
    assert same_bits(found.gradient, adjoint)
    assert same_bits(inner.gradient, gradient)
    assert found.steps == step.steps
    assert [i for i, _ in step.firsts] == list(range(step.steps))
    assert all(same_bits(state, states[i + 1]) for i, state in step.firsts)
    return found

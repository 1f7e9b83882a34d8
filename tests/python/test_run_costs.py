# SPDX-License-Identifier: Apache-2.0
"""ebb.run: tapes that have the state after in them, and what steps cost, measured or given."""

import time

import numpy as np
import pytest
from numpy_steps import WIDTH, Function, plain, same_bits

import ebb


class Window:
    """Blocks of the same steps: a tape is a row of states, whose last is the state after the block."""

    BLOCK = 4
    tape = np.zeros((BLOCK + 1, WIDTH))

    def __init__(self, blocks):
        self.steps = blocks
        self.inner = Function(blocks * self.BLOCK)

    def begin(self):
        self.inner.begin()

    def after(self, tape):
        return tape[-1]

    def advance(self, start, end, state, first):
        for i in range(start * self.BLOCK, end * self.BLOCK):
            state[:] = self.inner.forward(i, state)

    def record(self, start, end, state, tapes, after, first):
        for block, tape in enumerate(tapes, start):
            tape[0] = state
            for k in range(self.BLOCK):
                tape[k + 1] = self.inner.forward(block * self.BLOCK + k, tape[k])
            state[:] = tape[-1]
        assert same_bits(after, tapes[:, -1])

    def reverse(self, start, end, tapes, after, adjoint):
        for block in range(end - 1, start - 1, -1):
            tape = tapes[block - start]
            for k in range(self.BLOCK - 1, -1, -1):
                adjoint[:] = self.inner.backward(block * self.BLOCK + k, tape[k], tape[k + 1], adjoint)


@pytest.mark.parametrize("budget", [None, 1400])
@pytest.mark.parametrize("blocks", [1, 2, 15])
def test_a_tape_may_have_the_state_after_in_it(budget, blocks):
    step = Window(blocks)
    found = ebb.run(step, np.ones(WIDTH), adjoint=np.cos, budget=budget)
    states, adjoint, gradient = plain(blocks * Window.BLOCK, np.ones(WIDTH), np.cos)
    assert same_bits(found.final, states[-1]) and same_bits(found.gradient, adjoint)
    assert same_bits(step.inner.gradient, gradient)


def test_a_state_in_the_tape_is_not_kept_twice():
    class Beside(Window):
        after = property()

        def record(self, start, end, state, tapes, after, first):
            for k in range(end - start):
                super().record(start + k, start + k + 1, state, tapes[k : k + 1], tapes[k : k + 1, -1], first)
                after[k] = state

    assert not hasattr(Beside(20), "after")
    within, beside = (
        ebb.run(step, np.ones(WIDTH), adjoint=np.cos, strategy="store_all").report.booked
        for step in (Window(20), Beside(20))
    )
    assert beside - within == 20 * 64  # a state, rounded up, of each step


@pytest.mark.parametrize(
    "after, words",
    [
        (lambda tape: np.zeros(WIDTH), "must be a view of the tape"),
        (lambda tape: tape[-1].copy(), "must be a view of the tape"),
        (lambda tape: tape[:, 0], "must be a view of the tape"),
        (lambda tape: tape[-2:], "must be a view of the tape"),
        (lambda tape: 1.5, "must be a view of the tape"),
    ],
)
def test_a_state_in_the_tape_must_be_a_view_of_it(after, words):
    step = Window(3)
    step.after = after
    with pytest.raises(ebb.Error, match=words):
        ebb.run(step, np.ones(WIDTH), adjoint=np.cos)


class Slow(Function):
    """Going back takes longest."""

    def __init__(self, steps):
        super().__init__(steps)
        self.calls = 0

    def forward(self, i, state):
        self.calls += 1
        time.sleep(1e-3)
        return super().forward(i, state)

    def backward(self, i, before, after, adjoint):
        time.sleep(8e-3)
        return super().backward(i, before, after, adjoint)


def test_a_first_call_that_takes_long_says_nothing_about_the_others(monkeypatch):
    clock = [0.0]
    monkeypatch.setattr("time.perf_counter", lambda: clock[0])

    class Compiled(Function):
        def forward(self, i, state):
            clock[0] += 100 if clock[0] == 0 else 1
            return super().forward(i, state)

    found = ebb.run(Compiled(5), np.ones(WIDTH), adjoint=np.cos, strategy="store_all")
    assert found.report.predicted.seconds == pytest.approx(5 * (1 + 2))


def test_costs_of_an_earlier_run_are_what_the_next_one_plans_with():
    words = {"adjoint": np.cos, "strategy": "store_all"}
    first = ebb.run(Slow(20), np.ones(WIDTH), **words)
    assert first.costs.forward > 0 and first.costs.record >= 1e-3 and first.costs.backward >= 8e-3
    step = Slow(20)
    again = ebb.run(step, np.ones(WIDTH), costs=first.costs, **words)
    assert step.calls == 20  # none of them for measuring
    expected = 20 * (first.costs.record + first.costs.backward)
    assert again.report.predicted.seconds == pytest.approx(expected)
    assert same_bits(first.gradient, again.gradient)


def test_costs_may_be_given():
    costs = ebb.Costs(forward=2.0, record=3.0, backward=10.0)
    found = ebb.run(Function(10), np.ones(WIDTH), adjoint=np.cos, strategy="store_all", costs=costs)
    assert found.report.predicted.seconds == pytest.approx(130)
    assert found.costs.forward == 2.0  # no forward without a tape ran
    assert found.costs.backward != 10.0
    less = ebb.run(Function(10), np.ones(WIDTH), adjoint=np.cos, strategy="store_all", costs=ebb.Costs(forward=2.0))
    assert less.report.predicted.seconds == pytest.approx(60)


def test_costs_have_the_speeds_of_the_same_tiers_alone():
    words = {"adjoint": np.cos, "budget": 1000, "strategy": "disk_revolve"}
    near, far = ebb.memory_tier("1MiB"), ebb.file_tier("/tmp", "1MiB")
    found = ebb.run(Function(60), np.ones(WIDTH), tiers=near, **words)
    again = ebb.run(Function(60), np.ones(WIDTH), tiers=near, costs=found.costs, **words)
    assert again.costs.platform.to_json() == found.costs.platform.to_json()
    other = ebb.run(Function(60), np.ones(WIDTH), tiers=far, costs=found.costs, **words)
    assert [tier.name for tier in other.costs.platform.tiers] == ["disk"]
    assert same_bits(other.gradient, found.gradient)


@pytest.mark.parametrize(
    "costs, words",
    [
        ({"forward": -1.0}, "forward"),
        ({"forward": float("nan")}, "forward"),
        ({"forward": 1.0, "backward": "slow"}, "backward"),
    ],
)
def test_costs_that_cannot_be(costs, words):
    with pytest.raises(ebb.Error, match=words):
        ebb.Costs(**costs)


def test_costs_of_another_type_are_refused():
    with pytest.raises(TypeError, match="run: costs is 3; give ebb.Costs"):
        ebb.run(Function(3), np.ones(WIDTH), adjoint=np.cos, costs=3)

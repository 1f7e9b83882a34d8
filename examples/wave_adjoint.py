# SPDX-License-Identifier: Apache-2.0
"""The gradient of a seismogram's misfit with respect to the wave speed, in a small budget and a file.

A pulse runs through a square of unknown stiffness; receivers along one side record it. The adjoint of 600 time steps of
the wave equation needs every wave field on the way back: 16 MiB here, terabytes in three dimensions. ebb keeps 1 MiB in
memory and 4 MiB in a file, and gives the same bits as keeping everything.
"""

import tempfile

import numpy as np

import ebb

POINTS, STEPS = 60, 600
RATIO = 0.25  # (time step / grid spacing)^2
SOURCE, RECEIVERS = (10, 30), (50, slice(5, 55, 5))


def laplacian(field):
    """Five points, zero beyond the border; it is its own transpose."""
    found = -4 * field
    found[1:] += field[:-1]
    found[:-1] += field[1:]
    found[:, 1:] += field[:, :-1]
    found[:, :-1] += field[:, 1:]
    return found


class Wave:
    """A state is two fields: the one before, and the one now. The loss is over what receivers see after each step."""

    steps = STEPS

    def __init__(self, stiffness, observed=None):
        self.stiffness = stiffness
        self.observed = observed
        self.seen = np.zeros((STEPS, 10))
        self.gradient = np.zeros_like(stiffness)

    def begin(self):
        self.gradient[:] = 0

    def forward(self, i, state):
        before, now = state
        after = 2 * now - before + RATIO * self.stiffness * laplacian(now)
        after[SOURCE] += np.exp(-(((i - 30) / 10) ** 2))
        return now, after

    def first(self, i, state):
        self.seen[i] = state[1][RECEIVERS]

    def backward(self, i, before, after, adjoint):
        of_now, of_after = adjoint
        of_after[RECEIVERS] += after[1][RECEIVERS] - self.observed[i]
        self.gradient += RATIO * of_after * laplacian(before[1])
        return -of_after, of_now + 2 * of_after + RATIO * laplacian(self.stiffness * of_after)

    def misfit(self):
        return 0.5 * np.sum((self.seen - self.observed) ** 2)


def start():
    return np.zeros((POINTS, POINTS)), np.zeros((POINTS, POINTS))


def misfit_of(stiffness, observed):
    """By a plain loop."""
    wave, state = Wave(stiffness, observed), start()
    for i in range(STEPS):
        state = wave.forward(i, state)
        wave.first(i, state)
    return wave


def main():
    rng = np.random.default_rng(1)
    truth = np.ones((POINTS, POINTS))
    truth[25:35, 20:40] = 0.6
    observed = misfit_of(truth, np.zeros((STEPS, 10))).seen
    guess = np.ones((POINTS, POINTS))

    wave = Wave(guess, observed)
    with tempfile.TemporaryDirectory() as scratch:
        disk = ebb.file_tier(scratch, "4MiB")
        found = ebb.run(wave, start(), adjoint=None, budget="1MiB", tiers=disk)
    print(found.report)
    gradient = wave.gradient.copy()

    ebb.run(wave, start(), adjoint=None, strategy="store_all")
    assert np.array_equal(gradient, wave.gradient), "other bits than keeping everything"
    print(f"misfit {wave.misfit():.6f}; the gradient is bit-identical to keeping everything")

    direction = rng.normal(size=guess.shape)
    little = 1e-5
    above, below = (misfit_of(guess + sign * little * direction, observed).misfit() for sign in (1, -1))
    expected, got = (above - below) / (2 * little), np.sum(gradient * direction)
    print(f"along a direction: {got:.8f}, by finite differences {expected:.8f}")
    assert abs(got - expected) <= 1e-6 * abs(expected)


if __name__ == "__main__":
    main()

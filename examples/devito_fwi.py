# SPDX-License-Identifier: Apache-2.0
"""A gradient of full-waveform inversion by Devito, in the memory you have: ebb beside pyrevolve and storing everything.

Receivers along the surface record a pulse that runs through unknown ground. The gradient of the misfit with respect to the
ground's squared slowness needs every wave field again, last first. Devito's users keep all of them (`save=nt`), or let
pyrevolve restart from some; here `ebb.run` calls the same operators, with the same memory as pyrevolve, and with a file.

    pip install devito pyrevolve
    python examples/devito_fwi.py [--small] [--repeat 3] [--scratch DIRECTORY]
"""

import argparse
import inspect
import tempfile
import time

import numpy as np
from devito import (
    CheckpointOperator,
    DevitoCheckpoint,
    Eq,
    Function,
    Grid,
    Inc,
    Operator,
    SparseTimeFunction,
    TimeFunction,
    configuration,
    solve,
)
from pyrevolve import MemoryRevolver

import ebb

configuration["log-level"] = "ERROR"
SPACING, STEP, BORDER, ORDER = 10.0, 1.5, 30, 8  # metres, milliseconds, points of the damping layer, order in space


class Survey:
    """One shot over a square: Devito's functions and operators. Wave fields go from time 0 to `times` - 1."""

    def __init__(self, points, times, receivers=100):
        self.times = times
        self.grid = Grid((points, points), extent=(SPACING * (points - 1),) * 2, dtype=np.float32)
        self.m = Function(name="m", grid=self.grid, space_order=ORDER)
        self.damp = Function(name="damp", grid=self.grid)
        layer = np.maximum(0, 1 - np.minimum(np.arange(points), np.arange(points)[::-1]) / BORDER)
        self.damp.data[:] = 0.05 * (layer[:, None] ** 2 + layer[None, :] ** 2)
        self.gradient = Function(name="gradient", grid=self.grid)

        width, depth = SPACING * (points - 1), SPACING * (BORDER + 2)
        along = np.linspace(depth, width - depth, receivers)
        self.source = self._sparse("source", [[width / 2, depth]])
        self.seen = self._sparse("seen", np.stack([along, np.full(receivers, depth)], 1))
        self.residual = self._sparse("residual", self.seen.coordinates.data)
        self.observed = np.zeros_like(self.seen.data)
        phase = np.pi * 0.008 * (STEP * np.arange(times) - 150)
        self.source.data[:, 0] = (1 - 2 * phase**2) * np.exp(-(phase**2))

        self.v = TimeFunction(name="v", grid=self.grid, time_order=2, space_order=ORDER)
        self.u = self.field()
        # Of fields whose times are all kept, and of those that have three in turn.
        self.operators = {
            save: (self._forward(u), self._backward(u)) for save, u in ((False, self.u), (True, self.field(3)))
        }

    def field(self, save=None):
        """A wave field of three times in turn, or of as many as said."""
        return TimeFunction(name="u", grid=self.grid, time_order=2, space_order=ORDER, save=save)

    def _sparse(self, name, places):
        return SparseTimeFunction(
            name=name, grid=self.grid, npoint=len(places), nt=self.times, coordinates=np.asarray(places, np.float32)
        )

    def _forward(self, u):
        wave = solve(self.m * u.dt2 - u.laplace + self.damp * u.dt, u.forward)
        square = self.grid.time_dim.spacing**2
        pulse = self.source.inject(u.forward, expr=self.source * square / self.m)
        return Operator([Eq(u.forward, wave), pulse, self.seen.interpolate(u)], name="Forward")

    def _backward(self, u):
        v, square = self.v, self.grid.time_dim.spacing**2
        wave = solve(self.m * v.dt2 - v.laplace + self.damp * v.dt.T, v.backward)
        misfit = self.residual.inject(v.backward, expr=self.residual * square / self.m)
        return Operator([Eq(v.backward, wave), misfit, Inc(self.gradient, -u * v.dt2)], name="Backward")

    def clear(self):
        self.v.data_with_halo[:] = 0
        self.u.data_with_halo[:] = 0
        self.gradient.data[:] = 0

    def compare(self):
        """After the last step forward: what the way back starts from."""
        self.residual.data[:] = self.seen.data - self.observed

    def misfit(self, m):
        """Forward alone."""
        self.m.data_with_halo[:] = m
        self.clear()
        self.operators[False][0].apply(u=self.u, dt=STEP, time_m=1, time_M=self.times - 2)
        return 0.5 * np.sum((self.seen.data - self.observed).astype(np.float64) ** 2)


def by_storing_everything(survey):
    forward, backward = survey.operators[True]
    survey.clear()
    u = survey.field(survey.times)
    forward.apply(u=u, dt=STEP, time_m=1, time_M=survey.times - 2)
    survey.compare()
    backward.apply(u=u, dt=STEP, time_m=1, time_M=survey.times - 2)


def by_pyrevolve(survey, slots):
    forward, backward = survey.operators[False]
    survey.clear()
    revolver = MemoryRevolver(
        DevitoCheckpoint([survey.u]),
        CheckpointOperator(forward, u=survey.u, dt=STEP, time_m=1),
        CheckpointOperator(backward, u=survey.u, dt=STEP, time_m=1),
        slots,
        survey.times - 2,
    )
    revolver.apply_forward()
    survey.compare()
    revolver.apply_reverse()


class Blocks:
    """For ebb.run: a step is a block of time steps, a state two wave fields, a tape all fields of a block in one array."""

    def __init__(self, survey, block):
        self.survey, self.block = survey, block
        self.steps = -(-(survey.times - 2) // block)
        field = survey.u.data_with_halo.shape[1:]
        self.initial = np.zeros((2, *field), np.float32)
        self.tape = np.zeros((block + 2, *field), np.float32)
        self.run = CheckpointOperator(survey.operators[False][0], u=survey.u, dt=STEP, time_m=1)

    def begin(self):
        self.survey.clear()

    def after(self, tape):
        return tape[-2:]

    def times(self, start, end):
        """The first and the last time that these blocks compute from."""
        return 1 + start * self.block, min(1 + end * self.block, self.survey.times - 1) - 1

    def advance(self, start, end, state, first):
        u, (low, high) = self.survey.u, self.times(start, end)
        u.data_with_halo[(low - 1) % 3], u.data_with_halo[low % 3] = state
        self.run.apply(low - 1, high)
        state[:] = u.data_with_halo[high % 3], u.data_with_halo[(high + 1) % 3]

    def record(self, start, end, state, tapes, after, first):
        for i, tape in enumerate(tapes, start):
            window, count = self.window(i, tape, "source", "seen")
            window["u"][:2] = state
            self.survey.operators[True][0].apply(dt=STEP, time_m=1, time_M=count, **window)
            state[:] = tape[-2:]

    def reverse(self, start, end, tapes, after, adjoint):
        v = self.survey.v.data_with_halo
        for i in range(end - 1, start - 1, -1):
            window, count = self.window(i, tapes[i - start], "residual")
            v[count % 3], v[(count + 1) % 3] = adjoint
            self.survey.operators[True][1].apply(dt=STEP, time_m=1, time_M=count, **window)
            adjoint[:] = v[0], v[1]

    def window(self, i, tape, *sparse):
        """Arrays of the block's times alone, and how many steps it has; the last block may have fewer."""
        low, high = self.times(i, i + 1)
        rows = slice(low - 1, high + 2)
        arrays = {name: np.asarray(getattr(self.survey, name).data)[rows] for name in sparse}
        return {"u": tape[low - high - 3 :], **arrays}, high - low + 1


def by_ebb(blocks, **words):
    return ebb.run(blocks, blocks.initial, adjoint=lambda final: blocks.survey.compare(), **words)


def ground(survey, deviation):
    """Squared slowness: faster with depth, and a slower body, in the share that is said, where waves come back from in time."""
    places = SPACING * np.arange(survey.grid.shape[0])
    depth = SPACING * (BORDER + 2) + 0.6 * (STEP * survey.times - 150)
    body = np.exp(-(((places[:, None] - places[-1] / 2) / 150) ** 2) - ((places[None, :] - depth) / 60) ** 2)
    found = 1 / (1.8 + 1.2e-4 * places[None, :]) ** 2 + 0.06 * deviation * body
    return np.pad(found.astype(np.float32), ORDER, mode="edge")


def order_of_remainder(survey, gradient, at, along):
    """Of the misfit's Taylor series up to the gradient: 2 where the gradient is right."""
    slope = np.sum(gradient.astype(np.float64) * along[ORDER:-ORDER, ORDER:-ORDER])
    middle, sizes = survey.misfit(at), np.array([0.2, 0.1, 0.05])
    remainders = [abs(survey.misfit(at + size * along) - middle - size * slope) for size in sizes]
    survey.misfit(at)
    return np.polyfit(np.log(sizes), np.log(remainders), 1)[0]


def lines_of(*parts):
    """Code, without blank lines and what the first string says."""
    count = 0
    for part in parts:
        text = inspect.getsource(part)
        if part.__doc__:
            text = text.replace(f'"""{part.__doc__}"""', "")
        count += sum(bool(line.strip()) for line in text.splitlines())
    return count


class Race:
    """Each way to the same gradient in turn, as often as said; the fastest time counts."""

    def __init__(self, survey):
        self.survey = survey
        self.best, self.found, self.gradients = {}, {}, {}

    def run(self, name, way, *arguments, **words):
        start = time.perf_counter()
        found = way(*arguments, **words)
        seconds = time.perf_counter() - start
        if seconds < self.best.get(name, np.inf):
            self.best[name], self.found[name] = seconds, found
        self.gradients[name] = np.array(self.survey.gradient.data)
        return found


ALL, REVOLVE, EBB, FILE = "Devito, all stored", "pyrevolve", "ebb", "ebb and a file"


def raced(survey, blocks, slots, repeat, scratch):
    race, costs, costs_with_file = Race(survey), None, None
    field = blocks.initial[0].nbytes
    budget = 2 * slots * field
    disk = ebb.file_tier(scratch, blocks.steps * (blocks.tape.nbytes + 4096))
    for again in range(repeat + 1):
        race.run(ALL, by_storing_everything, survey)
        race.run(REVOLVE, by_pyrevolve, survey, slots)
        costs = race.run(EBB, by_ebb, blocks, budget=budget, costs=costs).costs
        costs_with_file = race.run(FILE, by_ebb, blocks, budget=budget, tiers=disk, costs=costs_with_file).costs
        if again == 0:  # it compiled, and said what steps cost
            race.best.clear()
    return race


def show(race, survey, blocks, slots):
    field = blocks.initial[0].nbytes
    kept = {ALL: survey.times * field, REVOLVE: 2 * slots * field}
    lines = {ALL: lines_of(by_storing_everything), REVOLVE: lines_of(by_pyrevolve)}
    print(
        "| way                | memory (MiB) | file (MiB) | predicted (s) | measured (s) | whole call (s) | of all stored | lines |"
    )
    print(
        "|--------------------|-------------:|-----------:|--------------:|-------------:|---------------:|--------------:|------:|"
    )
    for name, seconds in race.best.items():
        cells = [kept.get(name, 0) / 2**20, 0.0, "-", "-"]
        if name not in kept:
            report = race.found[name].report
            file = sum(tier.written.stored for tier in report.measured.tiers)
            cells = [report.booked / 2**20, file / 2**20, report.predicted.seconds, report.measured.seconds]
        predicted, measured = (f"{cell:.2f}" if cell != "-" else cell for cell in cells[2:])
        print(
            f"| {name:18} | {cells[0]:12.1f} | {cells[1]:10.1f} | {predicted:>13} | {measured:>12} | {seconds:14.2f} "
            f"| {seconds / race.best[ALL]:13.2f} | {lines.get(name, lines_of(Blocks, by_ebb)):5} |"
        )


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--small", action="store_true", help="seconds in place of a minute")
    parser.add_argument("--repeat", type=int, default=3, help="how often each way runs; the fastest counts")
    parser.add_argument("--scratch", help="a directory for ebb's file")
    words = parser.parse_args()
    points, times, block, slots = (150, 200, 8, 16) if words.small else (700, 500, 16, 40)

    survey = Survey(points, times)
    survey.misfit(ground(survey, 1))
    survey.observed[:] = survey.seen.data
    at = ground(survey, 0)
    misfit = survey.misfit(at)
    blocks = Blocks(survey, block)
    with tempfile.TemporaryDirectory(dir=words.scratch) as scratch:
        race = raced(survey, blocks, slots, words.repeat, scratch)

    print(f"{points} x {points} points, {times} times, blocks of {block} time steps, {slots} states for pyrevolve\n")
    show(race, survey, blocks, slots)
    same = all(np.array_equal(found, race.gradients[ALL]) for found in race.gradients.values())
    print(f"\nmisfit {misfit:.6g}; gradients: {'the same bits' if same else 'DIFFERENT'}")
    order = order_of_remainder(survey, race.gradients[EBB], at, ground(survey, 1) - at)
    print(f"Taylor test: the remainder falls with order {order:.2f}")


if __name__ == "__main__":
    main()

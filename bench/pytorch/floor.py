# SPDX-License-Identifier: Apache-2.0
"""What `ebb.scan` takes beside its floor: the blocks that it ran, as often as it ran them, in a bare loop.

The floor runs as many blocks without a graph as the plan advanced over, and as many with a graph and then back as it
recorded, without any of ebb's care: nothing is weighed, checked, kept or put back. All ways run in turns; seconds are the
least of some rounds.
"""

from __future__ import annotations

import argparse
import time

import torch
from loop import Loop, Setting
from torch import Tensor
from workloads import LIFLoop, LSTMCellLoop

import ebb


class StackedLoop(Loop):
    """A GRUCell of as many inputs as units, whose states are all handed out."""

    def __init__(self, setting: Setting, xs: Tensor):
        super().__init__(setting, xs)
        self.name = f"GRUCell, {setting.batch} x {setting.hidden}"
        self.module = cell = setting.moved(torch.nn.GRUCell(setting.inputs, setting.hidden))

        def f(carry: tuple, x: Tensor) -> tuple:
            h = cell(x, carry[0])
            return (h,), h

        self.f = f

    def start(self) -> tuple:
        return (self.zeros(),)

    def loss(self, xs: Tensor | None = None) -> Tensor:
        carry, hs = self.start(), []
        for x in self.xs.unbind(0):
            carry, h = self.f(carry, x)
            hs.append(h)
        return torch.stack(hs).sum()


class Bare:
    """The blocks of a workload, as often as a plan ran them, and nothing else."""

    def __init__(self, load: Loop, report: ebb.Report):
        self._load, self._count = load, report.steps
        chunk = -(-load.steps // report.steps)
        self._parts = load.xs.split(chunk)
        self._advances, self._records = report.measured["advances"], report.measured["records"]
        self._params = load.parameters()
        self._stacked = isinstance(load, StackedLoop)

    def _run(self, block: int, carry: tuple) -> tuple[tuple, list[Tensor]]:
        ys: list[Tensor] = []
        for x in self._parts[block].unbind(0):
            carry, y = self._load.f(carry, x)
            if self._stacked or not ys:
                ys.append(y)
            else:
                ys[0] = ys[0] + y
        return carry, ys

    def __call__(self) -> None:
        states = [self._load.start()] * self._count
        with torch.no_grad():
            for k in range(self._advances):
                block = k % self._count
                carry, _ = self._run(block, states[block])
                if block + 1 < self._count:
                    states[block + 1] = carry
        adjoint: list[Tensor] = []
        sums: list[Tensor] = []
        for k in reversed(range(self._records)):
            carry = tuple(leaf.detach().requires_grad_() for leaf in states[k % self._count])
            out, ys = self._run(k % self._count, carry)
            # What later blocks gave goes in first, which gives the bits of plain autograd.
            starts = [*ys, *out[: len(adjoint)], *self._params[: len(sums)]]
            given = [*(torch.ones_like(y) for y in ys), *adjoint, *sums]
            found = torch.autograd.grad(starts, [*carry, *self._params], given)
            adjoint, sums = list(found[: len(carry)]), list(found[len(carry) :])


def row(load: Loop, options: argparse.Namespace) -> str:
    ours = load.ebb(options.budget)
    for _ in range(3):  # measured and planned, weighed once, then as always
        ours()
    report = ebb.last_report()
    ways = {"plain": lambda: load.loss().backward(), "floor": Bare(load, report), "ebb": ours}
    least = dict.fromkeys(ways, float("inf"))
    for _ in range(options.rounds):
        for name, run in ways.items():
            load.module.zero_grad()
            start = time.perf_counter()
            run()
            least[name] = min(least[name], time.perf_counter() - start)
    plain, floor, seconds = least.values()
    found = report.measured
    return (
        f"| {load.name} | {report.steps} | {found['advances']} | {found['records']} | {plain:.3f} | {floor:.3f} | {seconds:.3f} | "
        f"{seconds / floor:.2f} | {floor / plain:.2f} | {seconds / plain:.2f} |"
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--budget", default="5%")
    parser.add_argument("--steps", type=int, default=1000)
    parser.add_argument("--rounds", type=int, default=9)
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--only", default="", help="a part of a workload's name")
    options = parser.parse_args()
    torch.set_num_threads(options.threads)
    torch.manual_seed(0)
    kinds = [
        (LSTMCellLoop, 32, 64, 128),
        (StackedLoop, 16, 64, 64),
        (StackedLoop, 64, 256, 256),
        (LIFLoop, 32, 64, 128),
    ]
    loads = []
    for kind, batch, inputs, hidden in kinds:
        setting = Setting(options.steps, batch, inputs, inputs, hidden, torch.device("cpu"), torch.float32)
        loads.append(kind(setting, kind.data(setting)))
    print(f"PyTorch {torch.__version__}, {options.threads} threads, T={options.steps}, budget {options.budget}\n")
    print(
        "| workload | blocks | advances | records | plain, s | floor, s | ebb, s | ebb / floor | floor / plain | ebb / plain |"
    )
    print("|---|---|---|---|---|---|---|---|---|---|")
    for load in loads:
        if options.only in load.name:
            print(row(load, options), flush=True)


if __name__ == "__main__":
    main()

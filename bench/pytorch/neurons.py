# SPDX-License-Identifier: Apache-2.0
"""Recurrent spiking layers in a budget on a GPU beside a loop in plain torch that keeps everything: forward and backward in
milliseconds, and the most memory beyond what the caller has, its outputs and its gradients.

neurons.py                                      the rows that docs/results names
neurons.py --cell ALIF --dtype bf16             one of them
neurons.py --beside loop compiled               the loop, and the same with a compiled time step
"""

from __future__ import annotations

import argparse
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from layers import NUMBERS, Found, whole
from torch import Tensor

import ebb.nn

FIRING = 0.02  # of the inputs
UNITS = {"LIF": {"threshold": 0.037, "tau_mem": 20.0}, "ALIF": {"threshold": 0.018, "tau_mem": 20.0, "tau_adp": 100.0}}


@dataclass(frozen=True)
class Row:
    cell: str
    steps: int
    batch: int
    inputs: int
    hidden: int
    numbers: str
    budget: str | None

    def words(self) -> str:
        return f"{self.cell} T={self.steps} B={self.batch} I={self.inputs} H={self.hidden} {self.numbers}"


ROWS = [
    *(Row(cell, 1000, 64, 700, 1024, "bf16", "24MiB") for cell in UNITS),
    *(Row("LIF", 1000, 64, 700, 1024, numbers, "24MiB") for numbers in ("tf32", "fp32")),
    Row("LIF", 1000, 64, 700, 1024, "bf16", None),
    Row("LIF", 1000, 64, 700, 256, "bf16", "10MiB"),
    Row("LIF", 8000, 64, 700, 1024, "bf16", "32MiB"),
]


class Loop(torch.nn.Module):
    def __init__(self, cell: torch.nn.Module, step: Callable[..., Any]):
        super().__init__()
        self.cell, self._step = cell, step

    def forward(self, x: Tensor) -> tuple[Tensor, Any]:
        carry, found = self.cell.zero_state(x.shape[1]), []
        for one in x:
            carry, spikes = self._step(carry, one)
            found.append(spikes)
        return torch.stack(found), carry


def run(row: Row, beside: list[str], rounds: int) -> None:
    torch.manual_seed(0)
    torch.backends.cuda.matmul.allow_tf32 = row.numbers == "tf32"
    how: dict[str, Any] = {"device": "cuda", "dtype": NUMBERS[row.numbers], **UNITS[row.cell]}
    x = (torch.rand(row.steps, row.batch, row.inputs, device="cuda") < FIRING).to(how["dtype"])
    given = torch.randn(row.steps, row.batch, row.hidden, device="cuda").to(how["dtype"])
    layer = getattr(ebb.nn, row.cell)(row.inputs, row.hidden, budget=row.budget, **how)
    rate = float(layer(x)[0].float().mean())
    print(f"{row.words()}, {100 * rate:.1f} % firing", flush=True)
    found = Found(layer, whole(layer, x, given), given, rounds)
    print(f"  ebb in {row.budget or 'any memory'}: {found.words}", flush=True)
    print(f"    {layer.report.brief() if layer.report else ''}", flush=True)
    for way in beside:
        cell = getattr(ebb.nn, row.cell + "Cell")(row.inputs, row.hidden, **how)
        loop = Loop(cell, torch.compile(cell) if way == "compiled" else cell)
        print(f"  {way}: {Found(loop, whole(loop, x, given), given, 1).words}", flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--cell", choices=UNITS, help="instead of the rows that are named")
    parser.add_argument("--dtype", choices=NUMBERS, default="bf16")
    parser.add_argument("--budget", default="10MiB")
    parser.add_argument("--size", type=int, nargs=4, metavar=("T", "B", "I", "H"), default=(1000, 64, 700, 1024))
    parser.add_argument("--beside", nargs="*", choices=("loop", "compiled"), default=[])
    parser.add_argument("--rounds", type=int, default=9)
    options = parser.parse_args()
    rows = ROWS
    if options.cell:
        rows = [Row(options.cell, *options.size, options.dtype, options.budget)]
    print(f"{torch.cuda.get_device_name()}, PyTorch {torch.__version__}")
    for row in rows:
        run(row, options.beside, options.rounds)


if __name__ == "__main__":
    main()

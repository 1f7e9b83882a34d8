# SPDX-License-Identifier: Apache-2.0
"""Layers in a budget on a GPU beside torch.nn's that keep everything: forward and backward in milliseconds, and the most memory beyond
what the caller has, its outputs and its gradients.

layers.py                                          the rows that docs/results names
layers.py --cell GRU --dtype bf16 --budget 80MiB   one of them
"""

from __future__ import annotations

import argparse
from dataclasses import dataclass

import torch
from measure import milliseconds
from torch import Tensor

import ebb.nn

NUMBERS = {"bf16": torch.bfloat16, "fp16": torch.float16, "fp32": torch.float32}


@dataclass(frozen=True)
class Row:
    cell: str
    steps: int
    batch: int
    inputs: int
    hidden: int
    numbers: str
    budget: str

    def words(self) -> str:
        return f"{self.cell} T={self.steps} B={self.batch} I={self.inputs} H={self.hidden} {self.numbers}"


ROWS = [
    *(Row("LSTM", 1000, 64, 256, 1024, numbers, "100MiB") for numbers in NUMBERS),
    Row("LSTM", 1000, 64, 256, 1024, "fp16", "8GiB"),
    Row("GRU", 1000, 64, 256, 1024, "bf16", "80MiB"),
    Row("GRU", 1000, 64, 256, 1024, "fp16", "80MiB"),
    Row("LSTM", 1024, 16, 768, 768, "bf16", "60MiB"),
    Row("LSTM", 1000, 64, 256, 512, "fp16", "60MiB"),
    Row("LSTM", 1000, 64, 256, 256, "fp16", "10%"),
    Row("LSTM", 8000, 64, 256, 1024, "bf16", "5%"),
]


def measure(net: torch.nn.Module, x: Tensor, given: Tensor, rounds: int) -> str:
    def step() -> None:
        net.zero_grad()
        net(x)[0].backward(given)

    try:
        for _ in range(4):  # measures, plans and remembers
            step()
        net.zero_grad()
        torch.cuda.synchronize()
        callers = torch.cuda.memory_allocated() + given.nbytes + sum(p.nbytes for p in net.parameters())
        torch.cuda.reset_peak_memory_stats()
        found = milliseconds(step, rounds)
        peak = max(0, torch.cuda.max_memory_allocated() - callers)
        return f"{found:.2f} ms, {peak / 2**20:.0f} MiB"
    except (ebb.Error, RuntimeError) as error:
        return " ".join(str(error).split())[:160]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--cell", choices=("LSTM", "GRU", "RNN"), help="instead of the rows that are named")
    parser.add_argument("--dtype", choices=NUMBERS, default="bf16")
    parser.add_argument("--budget", default="100MiB")
    parser.add_argument("--size", type=int, nargs=4, metavar=("T", "B", "I", "H"), default=(1000, 64, 256, 1024))
    parser.add_argument("--rounds", type=int, default=9)
    options = parser.parse_args()
    rows = [Row(options.cell, *options.size, options.dtype, options.budget)] if options.cell else ROWS
    torch.backends.cudnn.allow_tf32 = True
    print(f"{torch.cuda.get_device_name()}, PyTorch {torch.__version__}")
    for row in rows:
        torch.manual_seed(0)
        how = {"device": "cuda", "dtype": NUMBERS[row.numbers]}
        ours = getattr(ebb.nn, row.cell)(row.inputs, row.hidden, budget=row.budget, **how)
        theirs = getattr(torch.nn, row.cell)(row.inputs, row.hidden, **how)
        x = torch.randn(row.steps, row.batch, row.inputs, **how)
        given = torch.randn(row.steps, row.batch, row.hidden, **how)
        plain, own = (measure(net, x, given, options.rounds) for net in (theirs, ours))
        print(f"{row.words()}: torch.nn {plain}; in {row.budget} {own}", flush=True)
        print(f"  {ours.report.brief() if ours.report else ''}", flush=True)


if __name__ == "__main__":
    main()

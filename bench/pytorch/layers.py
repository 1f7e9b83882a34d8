# SPDX-License-Identifier: Apache-2.0
"""Layers in a budget on a GPU beside torch.nn's that keep everything: forward and backward in milliseconds, as in a training loop that
does not wait for the GPU, and the most memory beyond what the caller has, its outputs and its gradients.

layers.py                                          the rows that docs/results names
layers.py --cell GRU --dtype bf16 --budget 80MiB   one of them
layers.py --grid --dtype fp16 --budget torch:10%   units by samples, in a tenth of the memory that torch.nn takes
layers.py --cell LSTM --packed                     sequences of different lengths
layers.py --beside checkpoint cudnn                torch.utils.checkpoint in chunks of sqrt(T), and cuDNN in the same budget
"""

from __future__ import annotations

import argparse
import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from measure import milliseconds
from torch import Tensor
from torch.nn.utils.rnn import PackedSequence, pack_padded_sequence
from torch.utils.checkpoint import checkpoint

import ebb.nn

IN_A_ROW = 5  # steps

NUMBERS = {"bf16": torch.bfloat16, "fp16": torch.float16, "tf32": torch.float32, "fp32": torch.float32}


@dataclass(frozen=True)
class Row:
    cell: str
    steps: int
    batch: int
    inputs: int
    hidden: int
    numbers: str
    budget: str  # as of a layer, or "torch:10%" of what torch.nn's takes
    packed: bool = False

    def words(self) -> str:
        kind = " packed" if self.packed else ""
        return f"{self.cell} T={self.steps} B={self.batch} I={self.inputs} H={self.hidden} {self.numbers}{kind}"


ROWS = [
    *(Row("LSTM", 1000, 64, 256, 1024, numbers, "100MiB") for numbers in NUMBERS),
    Row("LSTM", 1000, 64, 256, 1024, "fp16", "8GiB"),
    Row("GRU", 1000, 64, 256, 1024, "bf16", "80MiB"),
    Row("GRU", 1000, 64, 256, 1024, "fp16", "80MiB"),
    Row("LSTM", 1024, 16, 768, 768, "bf16", "60MiB"),
    Row("LSTM", 1000, 64, 256, 512, "fp16", "60MiB"),
    Row("LSTM", 1000, 64, 256, 256, "fp16", "10%"),
    Row("LSTM", 1000, 64, 256, 650, "bf16", "60MiB"),
    Row("LSTM", 8000, 64, 256, 1024, "bf16", "5%"),
]


class Found:
    """One way: its time and memory, or why it does not run."""

    def __init__(self, net: torch.nn.Module, step: Callable[[], None], given: Tensor, rounds: int, x: Any = None):
        """`x`: the inputs, where they get a gradient."""
        self.peak = 0
        try:
            for _ in range(4):  # measures, plans and remembers
                step()
            net.zero_grad()
            if x is not None:
                x.grad = None
            torch.cuda.synchronize()
            gradients = sum(p.nbytes for p in net.parameters()) + (0 if x is None else x.nbytes)
            callers = torch.cuda.memory_allocated() + given.nbytes + gradients
            torch.cuda.reset_peak_memory_stats()
            found = milliseconds(step, rounds, IN_A_ROW)
            self.peak = max(0, torch.cuda.max_memory_allocated() - callers)
            self.words = f"{found:.2f} ms, {self.peak / 2**20:.0f} MiB"
        except (ebb.Error, RuntimeError) as error:
            self.words = " ".join(str(error).split())[:160]


def whole(net: torch.nn.Module, x: Any, given: Tensor) -> Callable[[], None]:
    def step() -> None:
        net.zero_grad()
        if isinstance(x, Tensor):
            x.grad = None
        y = net(x)[0]
        (y.data if isinstance(y, PackedSequence) else y).backward(given)

    return step


def checkpointed(net: torch.nn.Module, x: Tensor, given: Tensor) -> Callable[[], None]:
    """In chunks of about the square root of the time steps."""
    parts = x.split(math.isqrt(len(x)))

    def step() -> None:
        net.zero_grad()
        state, ys = None, []
        for part in parts:
            y, state = checkpoint(net, part, state, use_reentrant=False)
            ys.append(y)
        torch.cat(ys).backward(given)

    return step


def run(row: Row, beside: list[str], rounds: int) -> None:
    torch.manual_seed(0)
    torch.backends.cudnn.allow_tf32 = row.numbers == "tf32"
    how: dict[str, Any] = {"device": "cuda", "dtype": NUMBERS[row.numbers]}
    x: Any = torch.randn(row.steps, row.batch, row.inputs, **how)
    if row.packed:  # evenly from a quarter of the time steps to all of them
        x = pack_padded_sequence(x, torch.linspace(row.steps, row.steps // 4, row.batch).long())
    shape = x.data.shape[:-1] if row.packed else x.shape[:-1]
    given = torch.randn(*shape, row.hidden, **how)
    plain = getattr(torch.nn, row.cell)(row.inputs, row.hidden, **how)
    found = Found(plain, whole(plain, x, given), given, rounds)
    print(f"{row.words()}: torch.nn {found.words}", flush=True)
    budget: str | int = row.budget
    if row.budget.startswith("torch:"):
        budget = int(found.peak * float(row.budget.removeprefix("torch:").removesuffix("%")) / 100)
    if "checkpoint" in beside and not row.packed:
        print(f"  checkpoint, sqrt(T): {Found(plain, checkpointed(plain, x, given), given, rounds).words}", flush=True)
    for name, native in (("ebb", True), ("ebb, native=False", False)):
        if not native and "cudnn" not in beside:
            continue
        ours = getattr(ebb.nn, row.cell)(row.inputs, row.hidden, budget=budget, native=native, **how)
        print(f"  {name} in {row.budget}: {Found(ours, whole(ours, x, given), given, rounds).words}", flush=True)
        print(f"    {ours.report.brief() if ours.report else ''}", flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--cell", choices=("LSTM", "GRU", "RNN"), help="instead of the rows that are named")
    parser.add_argument("--dtype", choices=NUMBERS, default="bf16")
    parser.add_argument("--budget", default="100MiB")
    parser.add_argument("--size", type=int, nargs=4, metavar=("T", "B", "I", "H"), default=(1000, 64, 256, 1024))
    parser.add_argument("--grid", action="store_true", help="256, 512 and 1024 units, 16, 64 and 128 samples")
    parser.add_argument("--packed", action="store_true")
    parser.add_argument("--beside", nargs="*", choices=("checkpoint", "cudnn"), default=[])
    parser.add_argument("--rounds", type=int, default=9)
    options = parser.parse_args()
    cell, (steps, batch, inputs, hidden) = options.cell or "LSTM", options.size
    rows = ROWS
    if options.grid:
        sizes = [(b, h) for h in (256, 512, 1024) for b in (16, 64, 128)]
        rows = [Row(cell, steps, b, inputs, h, options.dtype, options.budget, options.packed) for b, h in sizes]
    elif options.cell or options.packed:
        rows = [Row(cell, steps, batch, inputs, hidden, options.dtype, options.budget, options.packed)]
    print(f"{torch.cuda.get_device_name()}, PyTorch {torch.__version__}")
    for row in rows:
        run(row, options.beside, options.rounds)


if __name__ == "__main__":
    main()

# SPDX-License-Identifier: Apache-2.0
"""Spiking layers in a budget on a GPU beside a loop in plain torch that keeps everything: forward and backward in milliseconds, and
the most memory beyond what the caller has, its outputs and its gradients.

neurons.py                                      the rows that docs/results names
neurons.py --cell ALIF --dtype bf16             one of them
neurons.py --apart --size 32 64 0 65536         neurons alone, without weights
neurons.py --beside loop compiled               the loop, and the same with a compiled time step
neurons.py --apart --beside spikingjelly        SpikingJelly's own kernels, where it is installed
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
UNITS = {
    "LIF": {"threshold": 0.037, "tau_mem": 20.0},
    "ALIF": {"threshold": 0.018, "tau_mem": 20.0, "tau_adp": 100.0},
    "AdLIF": {"threshold": 0.037, "tau_mem": 20.0, "tau_adp": 100.0, "a": 0.1, "b": 0.01},
}


@dataclass(frozen=True)
class Row:
    cell: str
    steps: int
    batch: int
    inputs: int
    hidden: int
    numbers: str
    budget: str | None
    apart: bool = False  # no weights: inputs are currents

    def words(self) -> str:
        inputs = "no weights" if self.apart else f"I={self.inputs}"
        return f"{self.cell} T={self.steps} B={self.batch} {inputs} H={self.hidden} {self.numbers}"


ROWS = [
    *(Row(cell, 1000, 64, 700, 1024, "bf16", "24MiB") for cell in UNITS),
    *(Row("LIF", 1000, 64, 700, 1024, numbers, "24MiB") for numbers in ("tf32", "fp32")),
    Row("LIF", 1000, 64, 700, 1024, "bf16", None),
    Row("LIF", 1000, 64, 700, 256, "bf16", "10MiB"),
    Row("LIF", 8000, 64, 700, 1024, "bf16", "32MiB"),
    *(Row(cell, 32, 64, 0, 65_536, "fp16", None, True) for cell in UNITS),
]


class SpikingJelly(torch.nn.Module):
    """The same neurons: a hard reset to 0, which gradients pass, and the slope of an arctan."""

    def __init__(self, row: Row, backend: str):
        super().__init__()
        from spikingjelly.activation_based import neuron, surrogate

        self._nodes = neuron.LIFNode(
            tau=UNITS["LIF"]["tau_mem"],
            v_threshold=UNITS["LIF"]["threshold"],
            surrogate_function=surrogate.ATan(),
            step_mode="m",
            backend=backend,
        )

    def forward(self, x: Tensor) -> tuple[Tensor, None]:
        self._nodes.reset()
        return self._nodes(x), None


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
    if row.apart:
        how |= {"recurrent": False, "reset": "hard", "attached_reset": True, "surrogate": "arctan"}
        x = torch.rand(row.steps, row.batch, row.hidden, device="cuda").mul_(0.2).to(how["dtype"]).requires_grad_()
    else:
        x = (torch.rand(row.steps, row.batch, row.inputs, device="cuda") < FIRING).to(how["dtype"])
    inputs = None if row.apart else row.inputs
    given = torch.randn(row.steps, row.batch, row.hidden, device="cuda").to(how["dtype"])
    layer = getattr(ebb.nn, row.cell)(inputs, row.hidden, budget=row.budget, **how)
    rate = float(layer(x)[0].detach().float().mean())
    print(f"{row.words()}, {100 * rate:.1f} % firing", flush=True)
    learns = x if x.requires_grad else None
    found = Found(layer, whole(layer, x, given), given, rounds, learns)
    print(f"  ebb in {row.budget or 'any memory'}: {found.words}", flush=True)
    print(f"    {layer.report.brief() if layer.report else ''}", flush=True)
    for way in beside:
        if way == "spikingjelly":
            for backend in ("triton", "cupy", "torch") if row.apart and row.cell == "LIF" else ():
                net = SpikingJelly(row, backend)
                print(
                    f"  SpikingJelly, {backend}: {Found(net, whole(net, x, given), given, rounds, learns).words}",
                    flush=True,
                )
            continue
        cell = getattr(ebb.nn, row.cell + "Cell")(inputs, row.hidden, **how)
        loop = Loop(cell, torch.compile(cell) if way == "compiled" else cell)
        print(f"  {way}: {Found(loop, whole(loop, x, given), given, 1, learns).words}", flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--cell", choices=UNITS, help="instead of the rows that are named")
    parser.add_argument("--dtype", choices=NUMBERS, default="bf16")
    parser.add_argument("--budget", help="as of a layer; none if left out")
    parser.add_argument("--size", type=int, nargs=4, metavar=("T", "B", "I", "H"))
    parser.add_argument("--beside", nargs="*", choices=("loop", "compiled", "spikingjelly"), default=[])
    parser.add_argument("--apart", action="store_true", help="neurons alone: inputs are their currents")
    parser.add_argument("--rounds", type=int, default=9)
    options = parser.parse_args()
    rows = ROWS
    if options.cell or options.apart:
        steps, batch, inputs, hidden = options.size or ((32, 64, 0, 65_536) if options.apart else (1000, 64, 700, 1024))
        rows = [Row(options.cell or "LIF", steps, batch, inputs, hidden, options.dtype, options.budget, options.apart)]
    print(f"{torch.cuda.get_device_name()}, PyTorch {torch.__version__}")
    for row in rows:
        run(row, options.beside, options.rounds)


if __name__ == "__main__":
    main()

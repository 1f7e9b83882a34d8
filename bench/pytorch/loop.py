# SPDX-License-Identifier: Apache-2.0
"""A recurrent net as somebody would write it: a step, a start and inputs, and the sum of a loss over time."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, ClassVar

import torch
from torch import Tensor

import ebb


@dataclass(frozen=True)
class Setting:
    """What a workload is built for. `cell`: the mode of torch.compile for its cell, None for one that is not compiled."""

    steps: int
    batch: int
    inputs: int
    spiking_inputs: int
    hidden: int
    device: torch.device
    dtype: torch.dtype
    cell: str | None = None

    def moved(self, module: torch.nn.Module) -> torch.nn.Module:
        return module.to(device=self.device, dtype=self.dtype)

    def compiled(self, module: Callable) -> Callable:
        return module if self.cell is None else torch.compile(module, dynamic=False, mode=self.cell)


class Loop:
    """`f(carry, x)` gives the next carry and a loss; `start()` gives the first carry; parameters are those of `module`.

    Every workload made from the same seed has the same weights; `xs` are made once, by `data`, and given to each of them."""

    name: ClassVar[str]
    ways: ClassVar[tuple[str, ...]]  # those that it has, by their keys

    def __init__(self, setting: Setting, xs: Tensor):
        self.setting, self.steps, self.xs = setting, xs.size(0), xs
        self.module: torch.nn.Module
        self.f: Callable[[Any, Any], tuple[Any, Tensor]]

    @classmethod
    def data(cls, setting: Setting) -> Tensor:
        xs = torch.randn(setting.steps, setting.batch, setting.inputs)
        return xs.to(device=setting.device, dtype=setting.dtype)

    def zeros(self) -> Tensor:
        s = self.setting
        return torch.zeros(s.batch, s.hidden, device=s.device, dtype=s.dtype)

    def start(self) -> Any:
        return self.zeros(), self.zeros()

    def parameters(self) -> list[Tensor]:
        return [p for p in self.module.parameters() if p.requires_grad]

    def loss(self, xs: Tensor | None = None) -> Tensor:
        return self.chunk_loss(self.start(), self.xs if xs is None else xs)[1]

    def chunk_loss(self, carry: Any, xs: Tensor) -> tuple[Any, Tensor]:
        """Some steps by hand: the carry after them, and the sum of their losses."""
        loss: Any = 0
        for x in xs.unbind(0):
            carry, y = self.f(carry, x)
            loss = loss + y
        return carry, loss

    def ebb(self, budget: int | str, tiers: list | None = None, graph: bool | None = None) -> Callable[[], None]:
        def run() -> None:
            _, losses = ebb.scan(self.f, self.start(), self.xs, budget=budget, tiers=tiers, graph=graph)
            losses.sum().backward()

        return run

    def native_bytes(self) -> int:
        """Memory of ebb's that PyTorch does not see."""
        return 0

    def output_bytes(self) -> int:
        """Of all outputs and their gradients, which the caller holds."""
        return 0

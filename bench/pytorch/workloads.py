# SPDX-License-Identifier: Apache-2.0
"""Three ways to run a recurrent net in PyTorch, each by every means of saving memory."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor
from torch.utils.checkpoint import checkpoint, checkpoint_sequential

import ebb
import ebb.nn


@dataclass
class Size:
    batch: int
    inputs: int
    hidden: int


class Workload:
    """`way(name)` is a function that runs forward and backward once and leaves gradients in .grad."""

    def __init__(self, steps: int, size: Size, device: torch.device, dtype: torch.dtype):
        self.steps, self.size, self.device = steps, size, device
        self.xs = torch.randn(steps, size.batch, size.inputs, device=device, dtype=dtype)
        self.zero = torch.zeros(size.batch, size.hidden, device=device, dtype=dtype)
        self.module: torch.nn.Module

    def finish(self, loss: Tensor) -> None:
        loss.backward()

    def ebb(self, budget: int | str | None, tiers: list | None = None) -> Callable[[], None]:
        def run() -> None:
            _, loss = ebb.scan(self.f, self.init(), self.xs, budget=budget, tiers=tiers, reduce="sum")
            self.finish(loss)

        return run

    def native_bytes(self) -> int:
        """Memory that PyTorch does not see."""
        return 0

    def output_bytes(self) -> int:
        """Of all outputs and their gradients, which the caller holds."""
        return 0

    def init(self) -> object:
        return self.zero, self.zero

    def plain(self) -> None:
        carry, loss = self.init(), 0
        for x in self.xs.unbind(0):
            carry, y = self.f(carry, x)
            loss = loss + y
        self.finish(loss)

    def checkpointed(self) -> None:
        """torch.utils.checkpoint over chunks of about the square root."""
        chunk = math.isqrt(self.steps)

        def part(carry: object, xs: Tensor) -> tuple:
            loss = 0
            for x in xs.unbind(0):
                carry, y = self.f(carry, x)
                loss = loss + y
            return carry, loss

        carry, total = self.init(), 0
        for start in range(0, self.steps, chunk):
            carry, loss = checkpoint(part, carry, self.xs[start : start + chunk], use_reentrant=False)
            total = total + loss
        self.finish(total)

    def sequential(self) -> None:
        """torch.utils.checkpoint_sequential with about as many segments as the square root; the loss travels along."""

        def at(t: int) -> Callable:
            def step(state: tuple) -> tuple:
                carry, y = self.f(state[:-1], self.xs[t])
                return (*carry, state[-1] + y)

            return step

        start = (*self.init(), torch.zeros((), device=self.device, dtype=self.xs.dtype))
        out = checkpoint_sequential(
            [at(t) for t in range(self.steps)], math.isqrt(self.steps), start, use_reentrant=False
        )
        self.finish(out[-1])

    def saved_on_cpu(self) -> None:
        with torch.autograd.graph.save_on_cpu(pin_memory=self.device.type == "cuda"):
            carry, loss = self.init(), 0
            for x in self.xs.unbind(0):
                carry, y = self.f(carry, x)
                loss = loss + y
        self.finish(loss)


class CellLoop(Workload):
    name = "LSTMCell loop"

    def __init__(self, steps: int, size: Size, device: torch.device, dtype: torch.dtype):
        super().__init__(steps, size, device, dtype)
        self.module = torch.nn.LSTMCell(size.inputs, size.hidden, device=device, dtype=dtype)

    def f(self, carry: tuple, x: Tensor) -> tuple:
        h, c = self.module(x, carry)
        return (h, c), h.float().pow(2).mean()


class SpikingLoop(Workload):
    name = "LIF loop"

    def __init__(self, steps: int, size: Size, device: torch.device, dtype: torch.dtype):
        super().__init__(steps, size, device, dtype)
        self.module = ebb.nn.LIFCell(size.inputs, size.hidden).to(device=device, dtype=dtype)

    def f(self, carry: tuple, x: Tensor) -> tuple:
        carry, spikes = self.module(carry, x)
        return carry, spikes.float().mean()


class Layer(Workload):
    name = "nn.LSTM"

    def __init__(self, steps: int, size: Size, device: torch.device, dtype: torch.dtype):
        super().__init__(steps, size, device, dtype)
        self.module = torch.nn.LSTM(size.inputs, size.hidden, device=device, dtype=dtype)
        self._ours = None

    def output_bytes(self) -> int:
        return 2 * self.steps * self.zero.numel() * self.zero.element_size()

    def native_bytes(self) -> int:
        return self._ours.report.peak if self.device.type == "cpu" else 0

    def plain(self) -> None:
        y, _ = self.module(self.xs)
        self.finish(y.mean())

    def checkpointed(self) -> None:
        chunk = math.isqrt(self.steps)
        state, loss = (self.zero[None], self.zero[None]), 0
        for start in range(0, self.steps, chunk):
            y, state = checkpoint(self.module, self.xs[start : start + chunk], state, use_reentrant=False)
            loss = loss + y.sum()
        self.finish(loss / (self.steps * self.zero.numel()))

    def saved_on_cpu(self) -> None:
        with torch.autograd.graph.save_on_cpu(pin_memory=self.device.type == "cuda"):
            y, _ = self.module(self.xs)
        self.finish(y.mean())

    def ebb(self, budget: int | str | None, tiers: list | None = None) -> Callable[[], None]:
        ours = ebb.nn.LSTM(
            self.size.inputs, self.size.hidden, budget=budget, tiers=tiers, device=self.device, dtype=self.xs.dtype
        )
        ours.load_state_dict(self.module.state_dict())
        self._ours = ours

        def run() -> None:
            ours.zero_grad()
            y, _ = ours(self.xs)
            self.finish(y.mean())

        return run


ALL = (Layer, CellLoop, SpikingLoop)

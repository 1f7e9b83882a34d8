# SPDX-License-Identifier: Apache-2.0
"""Cells of torch, a spiking one of ebb's, a convolutional one as users write it, and torch's own layer."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import torch
from loop import Loop, Setting
from spiking import NorseLoop, SnnTorchLoop, SpikingJellyLoop
from torch import Tensor

import ebb
import ebb.nn

_OURS = ("fits", "5", "15", "5-eager", "2-host")
_OTHERS = ("captured", "checkpoint", "sequential", "save_on_cpu", "scan", "scan-compiled")
_COMPILED = ("compiled", "compiled-overhead", "5-compiled")


class LSTMCellLoop(Loop):
    name = "LSTMCell loop"
    ways = ("plain", *_OURS, *_OTHERS, *_COMPILED)

    def __init__(self, setting: Setting, xs: Tensor):
        super().__init__(setting, xs)
        self.module = setting.moved(torch.nn.LSTMCell(setting.inputs, setting.hidden))
        cell = setting.compiled(self.module)

        def f(carry: tuple, x: Tensor) -> tuple:
            h, c = cell(x, carry)
            return (h, c), h.float().pow(2).mean()

        self.f = f


class GRUCellLoop(Loop):
    name = "GRUCell loop"
    ways = ("plain", *_OURS[1:3], "captured", *_COMPILED)

    def __init__(self, setting: Setting, xs: Tensor):
        super().__init__(setting, xs)
        self.module = setting.moved(torch.nn.GRUCell(setting.inputs, setting.hidden))
        cell = setting.compiled(self.module)

        def f(h: Tensor, x: Tensor) -> tuple:
            h = cell(x, h)
            return h, h.float().pow(2).mean()

        self.f = f

    def start(self) -> Tensor:
        return self.zeros()


class LIFLoop(Loop):
    """Spiking units that see each other's spikes."""

    name = "LIF loop"
    ways = ("plain", *_OURS[1:3], "captured", "checkpoint", "save_on_cpu", *_COMPILED)

    def __init__(self, setting: Setting, xs: Tensor):
        super().__init__(setting, xs)
        self.module = setting.moved(ebb.nn.LIFCell(setting.spiking_inputs, setting.hidden))
        cell = setting.compiled(self.module)

        def f(carry: tuple, x: Tensor) -> tuple:
            carry, spikes = cell(carry, x)
            return carry, spikes.float().mean()

        self.f = f

    @classmethod
    def data(cls, setting: Setting) -> Tensor:
        return super().data(replace(setting, inputs=setting.spiking_inputs))


class ConvLSTMCell(torch.nn.Module):
    """One convolution for all four gates."""

    def __init__(self, inputs: int, channels: int):
        super().__init__()
        self.gates = torch.nn.Conv2d(inputs + channels, 4 * channels, 3, padding=1)

    def forward(self, x: Tensor, state: tuple[Tensor, Tensor]) -> tuple[Tensor, Tensor]:
        h, c = state
        i, f, g, o = self.gates(torch.cat([x, h], dim=1)).chunk(4, dim=1)
        c = torch.sigmoid(f) * c + torch.sigmoid(i) * torch.tanh(g)
        return torch.sigmoid(o) * torch.tanh(c), c


class ConvLSTMLoop(Loop):
    """Frames of one channel and a tenth of the steps: a step keeps tens of MiB."""

    name = "ConvLSTM loop"
    ways = ("plain", *_OURS[1:3], "captured")

    def __init__(self, setting: Setting, xs: Tensor):
        super().__init__(setting, xs)
        self.module = setting.moved(ConvLSTMCell(1, self._shape(setting)[1]))
        cell = setting.compiled(self.module)

        def f(state: tuple, x: Tensor) -> tuple:
            h, c = cell(x, state)
            return (h, c), h.float().pow(2).mean()

        self.f = f

    @staticmethod
    def _shape(setting: Setting) -> tuple[int, int, int, int]:
        return (16, 64, 32, 32) if setting.device.type == "cuda" else (2, 8, 8, 8)

    @classmethod
    def data(cls, setting: Setting) -> Tensor:
        batch, _, height, width = cls._shape(setting)
        xs = torch.randn(max(1, setting.steps // 10), batch, 1, height, width)
        return xs.to(device=setting.device, dtype=setting.dtype)

    def zeros(self) -> Tensor:
        return torch.zeros(self._shape(self.setting), device=self.setting.device, dtype=self.setting.dtype)


class Layer(Loop):
    """torch.nn.LSTM, whose steps are not looked at: ebb has a layer for it."""

    name = "nn.LSTM"
    ways = ("plain", "fits", "5", "2-host", "captured", "checkpoint", "save_on_cpu")

    def __init__(self, setting: Setting, xs: Tensor):
        super().__init__(setting, xs)
        self.module = setting.moved(torch.nn.LSTM(setting.inputs, setting.hidden))
        self._ours: Any = None

    def output_bytes(self) -> int:
        zero = self.zeros()
        return 2 * self.steps * zero.numel() * zero.element_size()

    def native_bytes(self) -> int:
        return self._ours.report.peak if self._ours is not None and self.setting.device.type == "cpu" else 0

    def start(self) -> tuple[Tensor, Tensor]:
        return self.zeros()[None], self.zeros()[None]

    def chunk_loss(self, state: tuple, xs: Tensor) -> tuple:
        y, state = self.module(xs, state)
        return state, y.float().sum() / (self.steps * self.zeros().numel())

    def ebb(self, budget: int | str, tiers: list | None = None, graph: bool | None = None) -> Callable[[], None]:
        setting = self.setting
        ours = ebb.nn.LSTM(setting.inputs, setting.hidden, budget=budget, tiers=tiers)
        ours = setting.moved(ours)
        ours.load_state_dict(self.module.state_dict())
        self.module = self._ours = ours
        for parameter in ours.parameters():
            parameter.grad = torch.zeros_like(parameter)

        def run() -> None:
            y, _ = ours(self.xs)
            y.float().mean().backward()

        return run


ALL: tuple[type[Loop], ...] = (
    LSTMCellLoop,
    GRUCellLoop,
    LIFLoop,
    SnnTorchLoop,
    NorseLoop,
    SpikingJellyLoop,
    ConvLSTMLoop,
    Layer,
)

# SPDX-License-Identifier: Apache-2.0
"""Activations: a ReLU needs a bit of each element, or nothing where its input can be computed again; gates leave a recipe."""

from __future__ import annotations

from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.autograd.function import once_differentiable

from ebb._compressed.arithmetic import Order, masked, range_bits, sign_bits
from ebb._compressed.settings import at_work, settings_of
from ebb._source import Leaf, Recipe, Source, keeping


class _Bits(torch.autograd.Function):
    """An activation that passes a gradient on where a bit is set, and `slope` times it elsewhere."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, layer: Any, slope: float, limits: tuple[float, float] | None) -> Tensor:
        ctx.order, ctx.slope = Order(x), slope
        flat = ctx.order.flat(x)
        ctx.save_for_backward(sign_bits(flat) if limits is None else range_bits(flat, *limits))
        out = layer.stock.forward(layer, x)
        if layer.inplace:
            ctx.mark_dirty(x)
        return out

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, gy: Tensor) -> tuple[Tensor | None, ...]:
        (bits,) = ctx.saved_tensors
        return ctx.order.back(masked(bits, ctx.order.flat(gy), ctx.slope)), None, None, None


class _ReluAgain(torch.autograd.Function):
    """A ReLU that saves its output as torch's does; what is kept for it is a recipe."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, inplace: bool) -> Tensor:
        out = F.relu(x, inplace)
        if inplace:
            ctx.mark_dirty(x)
        ctx.save_for_backward(out)
        return out

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, gy: Tensor) -> tuple[Tensor | None, ...]:
        (out,) = ctx.saved_tensors
        return torch.ops.aten.threshold_backward(gy, out, 0), None


def _relu(x: Tensor, mine: bool) -> Tensor:
    return F.relu(x, inplace=mine)


class ReLU(nn.ReLU):
    stock = nn.ReLU

    def forward(self, x: Tensor) -> Tensor:
        if not at_work(x):
            return super().forward(x)
        before = Source.of(x).recipe
        if before is None:
            return _Bits.apply(x, self, 0.0, None)
        recipe = Recipe(_relu, before)
        if settings_of(self).way == "compress":
            out = _Bits.apply(x, self, 0.0, None)
        else:
            with keeping(recipe):
                out = _ReluAgain.apply(x, self.inplace)
        Source.of(out).recipe = recipe
        return out


class ReLU6(nn.ReLU6):
    stock = nn.ReLU6

    def forward(self, x: Tensor) -> Tensor:
        return _Bits.apply(x, self, 0.0, (0.0, 6.0)) if at_work(x) else super().forward(x)


class Hardtanh(nn.Hardtanh):
    stock = nn.Hardtanh

    def forward(self, x: Tensor) -> Tensor:
        return _Bits.apply(x, self, 0.0, (self.min_val, self.max_val)) if at_work(x) else super().forward(x)


class LeakyReLU(nn.LeakyReLU):
    stock = nn.LeakyReLU

    def forward(self, x: Tensor) -> Tensor:
        return _Bits.apply(x, self, self.negative_slope, None) if at_work(x) else super().forward(x)


class _Gate:
    """A mixin in front of activations whose backward pass needs their input: nobody else need keep their output."""

    def forward(self: Any, x: Tensor) -> Tensor:
        if not at_work(x) or getattr(self, "inplace", False):
            return super().forward(x)  # type: ignore[misc]
        before = Source.of(x).recipe
        if before is None:
            out = super().forward(x)  # type: ignore[misc]
        else:
            with keeping(before, x):
                out = super().forward(x)  # type: ignore[misc]
        Source.of(out).recipe = Recipe(self._again(), before or Leaf(x))
        return out


class _GateAgain:
    def __init__(self, function: Any, **options: Any):
        self._function, self._options = function, options

    def __call__(self, x: Tensor, mine: bool) -> Tensor:
        return self._function(x, **self._options)


class SiLU(_Gate, nn.SiLU):
    stock = nn.SiLU

    def _again(self) -> _GateAgain:
        return _GateAgain(F.silu)


class GELU(_Gate, nn.GELU):
    stock = nn.GELU

    def _again(self) -> _GateAgain:
        return _GateAgain(F.gelu, approximate=self.approximate)


class Hardswish(_Gate, nn.Hardswish):
    stock = nn.Hardswish

    def _again(self) -> _GateAgain:
        return _GateAgain(F.hardswish)


class Mish(_Gate, nn.Mish):
    stock = nn.Mish

    def _again(self) -> _GateAgain:
        return _GateAgain(F.mish)

# SPDX-License-Identifier: Apache-2.0
"""Activations: a ReLU needs a bit of each element, or nothing where its input can be computed again; gates leave a recipe."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from ebb._compress.arithmetic.dispatch import masked, positive_bits, range_bits, sign_bits
from ebb._compress.arithmetic.shapes import Order
from ebb._compress.compiled import NotScripted, never_compiled
from ebb._compress.derivatives import along
from ebb._compress.offloading import held
from ebb._compress.recipes import Recipe
from ebb._compress.saving import COPY, OWN, RESULT, run_keeping
from ebb._compress.settings import at_work, settings_of
from ebb._compress.sources import Source, recipe_of


class _Bits(torch.autograd.Function):
    """An activation that passes a gradient on where a bit is set, and `slope` times it, or nothing, elsewhere."""

    @staticmethod
    def forward(
        ctx: Any,
        x: Tensor,
        layer: Any,
        bits: Callable[[Tensor], Tensor],
        slope: float | None,
        leaves: Recipe | None = None,
    ) -> Tensor:
        ctx.order, ctx.slope, ctx.hard = Order(x), slope, isinstance(layer, nn.Hardtanh)
        ctx.leaves = leaves  # somebody must own it until another layer does
        ctx.save_for_backward(bits(ctx.order.flat(x)))
        out = layer.stock.forward(layer, x)
        if layer.inplace:
            ctx.mark_dirty(x)
        return out

    @staticmethod
    def backward(ctx: Any, gy: Tensor) -> tuple[Tensor | None, ...]:
        (bits,) = ctx.saved_tensors
        ctx.leaves = None
        passed = partial(_passed, ctx.order, ctx.slope, ctx.hard)
        return along(gy, bits, passed, passed), None, None, None, None


def _passed(order: Order, slope: float | None, hard: bool, bits: Tensor, gy: Tensor) -> Tensor:
    return order.result(order.back(masked(bits, order.flat(gy), slope)), gy, hard)


def _relu(x: Tensor, mine: bool) -> Tensor:
    return F.relu(x, inplace=mine)


class ReLU(NotScripted, nn.ReLU):
    stock = nn.ReLU

    @never_compiled
    def forward(self, x: Tensor) -> Tensor:
        if not at_work(x):
            return super().forward(x)
        before = recipe_of(x)
        recipe = None if before is None else Recipe(_relu, before)
        if recipe is None:
            return _Bits.apply(x, self, sign_bits, None)
        if recipe.exact and self.ebb_settings.way != "bits":  # from an inexact one signs are not known
            out = run_keeping(lambda: F.relu(x, self.inplace), x, RESULT, recipe, None)
        else:
            out = _Bits.apply(x, self, sign_bits, None, recipe)
        Source.of(out).recipe = recipe
        return out


class ReLU6(NotScripted, nn.ReLU6):
    stock = nn.ReLU6

    @never_compiled
    def forward(self, x: Tensor) -> Tensor:
        return _Bits.apply(x, self, partial(range_bits, low=0.0, high=6.0), None) if at_work(x) else super().forward(x)


class Hardtanh(NotScripted, nn.Hardtanh):
    stock = nn.Hardtanh

    @never_compiled
    def forward(self, x: Tensor) -> Tensor:
        if not at_work(x):
            return super().forward(x)
        return _Bits.apply(x, self, partial(range_bits, low=self.min_val, high=self.max_val), None)


class LeakyReLU(NotScripted, nn.LeakyReLU):
    stock = nn.LeakyReLU

    @never_compiled
    def forward(self, x: Tensor) -> Tensor:
        if not at_work(x) or self.negative_slope == 0:  # 0 times a gradient is not always 0, and is what torch gives
            return super().forward(x)
        return _Bits.apply(x, self, positive_bits, self.negative_slope)


class _Gate(NotScripted):
    """A mixin in front of activations whose backward pass needs their input: nothing else need keep their output."""

    @never_compiled
    def forward(self: Any, x: Tensor) -> Tensor:
        inplace = getattr(self, "inplace", False)
        if not at_work(x) or (inplace and recipe_of(x) is None):
            return super().forward(x)  # type: ignore[misc]
        before = held(x, settings_of(self))
        recipe = Recipe(self._again(), before)
        run = super().forward  # type: ignore[misc]
        out: Tensor = run_keeping(lambda: run(x), x, COPY if inplace else OWN, before, recipe)
        if out.dtype == x.dtype:  # else autocast had its own input
            Source.of(out).recipe = recipe
        return out


class _GateAgain:
    def __init__(self, function: Any, **options: Any):
        self._function, self._options = function, options

    def __call__(self, x: Tensor, mine: bool) -> Tensor:
        return self._function(x, **self._options)


class _Squash(NotScripted):
    """A mixin in front of activations that need their output, and save nothing else."""

    @never_compiled
    def forward(self: Any, x: Tensor) -> Tensor:
        before = recipe_of(x) if at_work(x) else None
        if before is None or not before.exact:
            return super().forward(x)  # type: ignore[misc]
        recipe = Recipe(_GateAgain(self.function), before)
        run = super().forward  # type: ignore[misc]
        out: Tensor = run_keeping(lambda: run(x), x, RESULT, recipe, None)
        Source.of(out).recipe = recipe
        return out


class Sigmoid(_Squash, nn.Sigmoid):
    stock = nn.Sigmoid
    function = staticmethod(torch.sigmoid)


class Tanh(_Squash, nn.Tanh):
    stock = nn.Tanh
    function = staticmethod(torch.tanh)


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

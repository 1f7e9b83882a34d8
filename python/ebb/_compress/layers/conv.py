# SPDX-License-Identifier: Apache-2.0
"""Convolutions that keep their input pooled for the weight gradient (Barley & Froening 2024), or the recipe of it."""

from __future__ import annotations

from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from ebb._compress.arithmetic.dispatch import pool, pooled_weight_gradient
from ebb._compress.arithmetic.shapes import Convolution, Order
from ebb._compress.compiled import NotScripted, never_compiled
from ebb._compress.derivatives import only_once
from ebb._compress.offloading import held
from ebb._compress.packed import outer_hooks
from ebb._compress.recipes import Fixed, Leaf, Recipe
from ebb._compress.saving import INPUT, keeping, run_bare, run_keeping
from ebb._compress.settings import affine_of, at_work, autocast_dtype, without_autocast
from ebb._compress.sources import Source, recipe_of


class _Pooled(torch.autograd.Function):
    """Input and bias gradients are exact; the weight's is that of the pooled input."""

    @staticmethod
    def forward(
        ctx: Any,
        x: Tensor,
        weight: Tensor,
        bias: Tensor | None,
        small: Tensor,
        layer: Any,
        conv: Convolution,
        block: tuple[int, ...],
    ) -> Tensor:
        ctx.save_for_backward(small, weight)
        ctx.size, ctx.conv, ctx.block = x.shape, conv, block
        return layer.stock._conv_forward(layer, x, weight, bias)

    @staticmethod
    def backward(ctx: Any, gy: Tensor) -> tuple[Tensor | None, ...]:
        small, weight = ctx.saved_tensors
        need_x, need_weight, need_bias = ctx.needs_input_grad[:3]
        with torch.no_grad(), without_autocast(gy):
            gx = _input_gradient(gy, weight, ctx.size, ctx.conv) if need_x else None
            gw = (
                pooled_weight_gradient(small, gy, ctx.size[2:], weight.shape[2:], ctx.block, ctx.conv)
                if need_weight
                else None
            )
            gb = gy.sum([0, *range(2, gy.dim())]) if need_bias else None
        return only_once("a convolution that pools its input", (gx, gw, gb), gy, weight) + (None,) * 4


def _input_gradient(gy: Tensor, weight: Tensor, size: torch.Size, conv: Convolution) -> Tensor:
    """Only the size and the order of the input matter here."""
    dims = len(conv.stride)
    extra = [after - before for before, after in zip(conv.before, conv.after)]  # on the far side only
    padded = [*size[:2], *[n + more for n, more in zip(size[2:], extra)]]
    order = Order(gy).format
    # A memory order is expressed by a tensor; nothing is written to it.
    like = (
        gy.new_empty(1).expand(padded)
        if order == torch.contiguous_format
        else torch.empty(padded, dtype=gy.dtype, device=gy.device, memory_format=order)
    )
    gx = torch.ops.aten.convolution_backward(
        gy,
        like,
        weight,
        None,
        conv.stride,
        conv.before,
        conv.dilation,
        False,
        [0] * dims,
        conv.groups,
        (True, False, False),
    )[0]
    for axis, n in enumerate(size[2:]):
        gx = gx.narrow(2 + axis, 0, n)
    return gx


def _geometry(layer: Any) -> Convolution:
    if layer.padding == "same":
        total = [d * (k - 1) for d, k in zip(layer.dilation, layer.kernel_size)]
        before = tuple(t // 2 for t in total)
        after = tuple(t - t // 2 for t in total)
    else:
        before = after = (0,) * len(layer.stride) if layer.padding == "valid" else tuple(layer.padding)
    return Convolution(layer.stride, before, after, layer.dilation, layer.groups)


class _CompressedConv(NotScripted):
    """A mixin in front of nn.ConvNd."""

    @never_compiled
    def forward(self: Any, x: Tensor) -> Tensor:
        settings = self.ebb_settings
        weight, bias = affine_of(self)
        if x.dim() != 2 + len(self.stride) or not at_work(x, weight, bias):
            return self._conv_forward(x, weight, bias)
        if (dtype := autocast_dtype(x)) is not None and x.dtype != dtype:
            x = x.to(dtype)
        # Nothing is saved by a copy of what can be computed again, or of data that the caller has.
        settings.pooled = (
            settings.way == "compress"
            and max(settings.block) > 1
            and weight.requires_grad
            and (settings.always or (x.requires_grad and recipe_of(x) is None))
        )
        if settings.pooled:
            return self._pooled(x, weight, bias, settings)
        before = held(x, settings)

        def run() -> Tensor:
            return self._conv_forward(x, weight, bias)

        if not settings.offers:
            return run_bare(run) if isinstance(before, Leaf) else run_keeping(run, x, INPUT, before, None)
        offer = Recipe(_Again(self, Fixed(weight, bias)), before)
        out = run_keeping(run, x, INPUT, before, offer)
        Source.of(out).offer = offer
        return out

    def _pooled(self: Any, x: Tensor, weight: Tensor, bias: Tensor | None, settings: Any) -> Tensor:
        source, name, outer = Source.of(x), (settings.block, settings.pooling), outer_hooks()
        leaf = source.copy(name)
        if leaf is None or not leaf.held_by(outer):  # two layers that read one tensor share it
            with torch.no_grad(), without_autocast(x):  # which would keep the means of some types in float32
                leaf = Leaf(pool(x.detach(), settings.block, settings.pooling))
            source.keep_copy(name, leaf)
        # What has been moved away need not be here to be saved: something else stands for it.
        small = x.new_empty(1) if leaf.tensor is None else leaf.tensor
        weight, bias = weight.to(x.dtype), None if bias is None else bias.to(x.dtype)
        with without_autocast(x), keeping(leaf, small):
            return _Pooled.apply(x, weight, bias, small, self, _geometry(self), settings.block)


class _Again:
    """The convolution itself, for a recipe."""

    def __init__(self, layer: Any, fixed: Fixed):
        self._function = _FUNCTIONS[len(layer.stride) - 1]
        self._fixed = fixed
        self._rest = (layer.stride, layer.padding, layer.dilation, layer.groups)

    def __call__(self, x: Tensor, mine: bool) -> Tensor:
        given = [None if one is None else one.to(x.dtype) for one in self._fixed.values()]  # as autocast did
        found: Tensor = self._function(x, *given, *self._rest)
        return found


_FUNCTIONS: tuple[Any, ...] = (F.conv1d, F.conv2d, F.conv3d)


class Conv1d(_CompressedConv, nn.Conv1d):
    stock = nn.Conv1d


class Conv2d(_CompressedConv, nn.Conv2d):
    stock = nn.Conv2d


class Conv3d(_CompressedConv, nn.Conv3d):
    stock = nn.Conv3d

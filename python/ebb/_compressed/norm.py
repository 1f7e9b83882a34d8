# SPDX-License-Identifier: Apache-2.0
"""Norms: their output can be computed from their input, which they keep, so nobody else keeps it; or they keep 8 bits of it."""

from __future__ import annotations

from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.autograd.function import once_differentiable

from ebb._compressed.arithmetic import from_int8_blocks, from_int8_channels, int8_blocks, int8_channels
from ebb._compressed.compiled import never_compiled
from ebb._compressed.offloading import held
from ebb._compressed.settings import at_work, parametrised, settings_of
from ebb._compressed.shapes import Order
from ebb._source import Leaf, Recipe, Source, keeping, outer_hooks


class _BatchAgain:
    def __init__(self, eps: float, batch_statistics: bool, weight: bool):
        self._eps, self._batch_statistics, self._weight = eps, batch_statistics, weight
        self._found: tuple[Tensor, Tensor] | None = None

    def learn(self, out: Tensor) -> None:
        """The statistics that the forward pass found, where torch's kernel for the second half has the bits of the whole."""
        node = out.grad_fn
        if self._batch_statistics and out.is_cuda and node is not None and node.name().startswith("NativeBatchNormBackward") \
                and outer_hooks() is None:
            self._found = node._saved_result1, node._saved_result2  # type: ignore[attr-defined]

    def __call__(self, x: Tensor, mine: bool, *others: Tensor) -> Tensor:
        rest = list(others)
        weight, bias = (rest.pop(0), rest.pop(0)) if self._weight else (None, None)
        if self._found is not None:
            return torch.batch_norm_elemt(x, weight, bias, *self._found, self._eps)
        mean, var = (None, None) if self._batch_statistics else rest
        return F.batch_norm(x, mean, var, weight, bias, self._batch_statistics, 0.0, self._eps)


class _BatchInt8(torch.autograd.Function):
    """Batch norm by the same operations as torch's, on an input rounded to 8 bits in the backward pass."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, weight: Tensor | None, bias: Tensor | None, mean: Tensor | None, var: Tensor | None,
                batch_statistics: bool, momentum: float, eps: float) -> Tensor:
        out, save1, save2, reserve, ctx.kind = torch.ops.aten._batch_norm_impl_index(
            x, weight, bias, mean, var, batch_statistics, momentum, eps, torch.backends.cudnn.enabled)
        ctx.batch_statistics, ctx.eps, ctx.dtype = batch_statistics, eps, x.dtype
        if batch_statistics:
            mean = var = None
        else:  # they may change before the backward pass
            mean, var = mean.clone(), var.clone()
        centre = save1 if save1.numel() else mean
        codes, scale = int8_channels(x, centre.float())
        ctx.save_for_backward(codes, scale, centre, weight, mean, var, save1, save2, reserve)
        return out

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, gy: Tensor) -> tuple[Tensor | None, ...]:
        codes, scale, centre, weight, mean, var, save1, save2, reserve = ctx.saved_tensors
        x = from_int8_channels(codes, scale, centre.float(), ctx.dtype)
        found = torch.ops.aten._batch_norm_impl_index_backward(
            ctx.kind, x, gy, weight, mean, var, save1, save2, ctx.batch_statistics, ctx.eps, ctx.needs_input_grad[:3], reserve)
        return *found, None, None, None, None, None


def _copies(x: Tensor, *them: Tensor | None) -> list[Leaf]:
    """Of parameters and statistics: by the backward pass they may have changed, or their memory may be freed (FSDP)."""
    there = [one.detach() for one in them if one is not None]
    # Changes of parameters that own their memory are found, but FSDP may take it; others may weigh as much as what is saved.
    if not _distributed() and all(isinstance(one, nn.Parameter) and one.untyped_storage().nbytes() == one.nbytes
                                  for one in them if one is not None) or any(8 * one.numel() > x.numel() for one in there):
        return [Leaf(one) for one in there]
    if len(there) == 2 and there[0].dtype == there[1].dtype:
        return [Leaf(one) for one in torch.stack(there).unbind()]
    return [Leaf(one.clone()) for one in there]


def _distributed() -> bool:
    return torch.distributed.is_available() and torch.distributed.is_initialized()


class _Batch:
    """A mixin in front of nn.BatchNormNd."""

    @never_compiled
    def forward(self: Any, x: Tensor) -> Tensor:
        if parametrised(self) or not at_work(x, self.weight, self.bias):
            return super().forward(x)  # type: ignore[misc]
        settings = settings_of(self)
        way = settings.way
        if way == "compress" and x.numel() > 0:
            self._check_input_dim(x)
            if self._statistics_of_batch():
                F._verify_batch_size(x.size())  # as F.batch_norm does
            return _BatchInt8.apply(x, self.weight, self.bias, *self._statistics(), self.eps)
        source = Source.of(x)
        before = source.recipe or (source.offer if way == "recompute" else None) or held(x, settings)
        affine = _copies(x, self.weight, self.bias)
        statistics = [] if self.training or self.running_mean is None else _copies(x, self.running_mean, self.running_var)
        again = _BatchAgain(self.eps, not statistics, bool(affine))
        recipe = Recipe(again, before, affine + statistics)
        with keeping(before, x, recipe):
            out = super().forward(x)  # type: ignore[misc]
        if out.dtype == x.dtype:
            again.learn(out)
            Source.of(out).recipe = recipe
        return out

    def _statistics(self: Any) -> tuple[Any, ...]:
        """As nn.BatchNorm has it: what to update, whether the batch's own are used, and how much they count."""
        momentum = 0.0 if self.momentum is None else self.momentum
        if self.training and self.track_running_stats and self.num_batches_tracked is not None:
            self.num_batches_tracked.add_(1)
            if self.momentum is None:
                momentum = 1.0 / float(self.num_batches_tracked)
        batch = self._statistics_of_batch()
        update = not self.training or self.track_running_stats
        mean, var = (self.running_mean, self.running_var) if update else (None, None)
        return mean, var, batch, momentum


    def _statistics_of_batch(self: Any) -> bool:
        return self.training or (self.running_mean is None and self.running_var is None)


class BatchNorm1d(_Batch, nn.BatchNorm1d):
    stock = nn.BatchNorm1d


class BatchNorm2d(_Batch, nn.BatchNorm2d):
    stock = nn.BatchNorm2d


class BatchNorm3d(_Batch, nn.BatchNorm3d):
    stock = nn.BatchNorm3d


class _LayerInt8(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor, weight: Tensor | None, bias: Tensor | None, shape: list[int], eps: float) -> Tensor:
        out, mean, rstd = torch.native_layer_norm(x, shape, weight, bias, eps)
        ctx.order, ctx.shape, ctx.dtype = Order(x), shape, x.dtype
        ctx.save_for_backward(*int8_blocks(ctx.order.flat(x)), mean, rstd, weight, bias)
        return out

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, gy: Tensor) -> tuple[Tensor | None, ...]:
        codes, scale, mean, rstd, weight, bias = ctx.saved_tensors
        x = ctx.order.back(from_int8_blocks(codes, scale, ctx.dtype))
        found = torch.ops.aten.native_layer_norm_backward(gy, x, ctx.shape, mean, rstd, weight, bias, ctx.needs_input_grad[:3])
        return *found, None, None


class _GroupInt8(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor, weight: Tensor | None, bias: Tensor | None, groups: int, eps: float) -> Tensor:
        ctx.sizes = (x.shape[0], x.shape[1], x.numel() // max(1, x.shape[0] * x.shape[1]), groups)
        out, mean, rstd = torch.native_group_norm(x, weight, bias, *ctx.sizes, eps)
        ctx.order, ctx.dtype = Order(x), x.dtype
        ctx.save_for_backward(*int8_blocks(ctx.order.flat(x)), mean, rstd, weight)
        return out

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, gy: Tensor) -> tuple[Tensor | None, ...]:
        codes, scale, mean, rstd, weight = ctx.saved_tensors
        x = ctx.order.back(from_int8_blocks(codes, scale, ctx.dtype))
        found = torch.ops.aten.native_group_norm_backward(gy, x, mean, rstd, weight, *ctx.sizes, ctx.needs_input_grad[:3])
        return *found, None, None


class _SampleNorm:
    """A mixin in front of norms that know no batch."""

    @never_compiled
    def forward(self: Any, x: Tensor) -> Tensor:
        if parametrised(self) or not at_work(x, self.weight, self.bias):
            return super().forward(x)  # type: ignore[misc]
        settings = settings_of(self)
        way = settings.way
        if way == "compress" and x.numel() > 0:
            return self._int8(x)
        source = Source.of(x)
        before = source.recipe or (source.offer if way == "recompute" else None) or held(x, settings)
        again = self._again([one is not None for one in (self.weight, self.bias)])
        recipe = Recipe(again, before, _copies(x, self.weight, self.bias))
        with keeping(before, x, recipe):
            out = super().forward(x)  # type: ignore[misc]
        if out.dtype == x.dtype:  # else autocast had its own input
            Source.of(out).recipe = recipe
        return out


class _SampleAgain:
    def __init__(self, function: Any, what: Any, eps: float, there: list[bool]):
        self._function, self._what, self._eps, self._there = function, what, eps, there

    def __call__(self, x: Tensor, mine: bool, *affine: Tensor) -> Tensor:
        given = list(affine)
        weight, bias = (given.pop(0) if there else None for there in self._there)
        return self._function(x, self._what, weight, bias, self._eps)


class LayerNorm(_SampleNorm, nn.LayerNorm):
    stock = nn.LayerNorm

    def _int8(self, x: Tensor) -> Tensor:
        return _LayerInt8.apply(x, self.weight, self.bias, list(self.normalized_shape), self.eps)

    def _again(self, there: list[bool]) -> _SampleAgain:
        return _SampleAgain(F.layer_norm, self.normalized_shape, self.eps, there)


class GroupNorm(_SampleNorm, nn.GroupNorm):
    stock = nn.GroupNorm

    def _int8(self, x: Tensor) -> Tensor:
        F._verify_batch_size([x.size(0) * x.size(1) // self.num_groups, self.num_groups, *x.shape[2:]])  # as F.group_norm does
        return _GroupInt8.apply(x, self.weight, self.bias, self.num_groups, self.eps)

    def _again(self, there: list[bool]) -> _SampleAgain:
        return _SampleAgain(F.group_norm, self.num_groups, self.eps, there)

# SPDX-License-Identifier: Apache-2.0
"""Norms: their output can be computed from their input, which they keep, so nothing else keeps it; or they keep 8 bits of it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from ebb._compress.arithmetic.dispatch import from_int8_blocks, from_int8_channels, int8_blocks, int8_channels
from ebb._compress.arithmetic.shapes import Order
from ebb._compress.compiled import NotScripted, never_compiled
from ebb._compress.offloading import held
from ebb._compress.packed import outer_hooks
from ebb._compress.recipes import Fixed, Leaf, Recipe
from ebb._compress.saving import INPUT, run_keeping
from ebb._compress.settings import Settings, affine_of, at_work, parametrised
from ebb._compress.sources import Source


class _BatchAgain:
    """`fixed`: weight, bias, and the statistics that it does not find in its input."""

    def __init__(self, eps: float, fixed: Fixed, batch_statistics: bool):
        self._eps, self._fixed, self._batch_statistics = eps, fixed, batch_statistics
        self._found: tuple[Tensor, Tensor] | None = None

    def learn(self, out: Tensor) -> None:
        """The statistics that the forward pass found, where torch's kernel for the second half gives the same bits as the whole."""
        node = out.grad_fn
        if (
            self._batch_statistics
            and out.is_cuda
            and node is not None
            and node.name().startswith("NativeBatchNormBackward")
            and outer_hooks() is None
        ):
            self._found = node._saved_result1, node._saved_result2  # type: ignore[attr-defined]

    def __call__(self, x: Tensor, mine: bool) -> Tensor:
        weight, bias, mean, var = self._fixed.values()
        if self._found is not None:
            return torch.batch_norm_elemt(x, weight, bias, *self._found, self._eps)
        return F.batch_norm(x, mean, var, weight, bias, self._batch_statistics, 0.0, self._eps)


class _SampleAgain:
    """Of norms that know no batch."""

    def __init__(self, function: Any, what: Any, eps: float, fixed: Fixed):
        self._function, self._what, self._eps, self._fixed = function, what, eps, fixed

    def learn(self, out: Tensor) -> None:
        """Nothing: one kernel does it all."""

    def __call__(self, x: Tensor, mine: bool) -> Tensor:
        return self._function(x, self._what, *self._fixed.values(), self._eps)


class _Decode:
    """What was kept in 8 bits as it was: with a scale for each channel of a batch norm, for each 64 numbers of others."""

    def __init__(self, x: Tensor):
        self._order, self._dtype = Order(x), x.dtype

    def __call__(self, codes: Tensor, mine: bool, scale: Tensor, centre: Tensor | None = None) -> Tensor:
        if centre is not None:
            return from_int8_channels(codes, scale, centre, self._dtype)
        return self._order.back(from_int8_blocks(codes, scale, self._dtype))


def _coded(x: Tensor, by_channel: bool) -> Recipe:
    with torch.no_grad():
        x = x.detach()
        if by_channel:
            centre = x.mean([0, *range(2, x.dim())], dtype=torch.float32)
            parts: tuple[Tensor, ...] = (*int8_channels(x, centre), centre)
        else:
            parts = int8_blocks(Order(x).flat(x))
    first, *others = [_held(part) for part in parts]
    return Recipe(_Decode(x), first, others, exact=False)


def _held(tensor: Tensor) -> Leaf:
    leaf = Leaf(tensor)
    leaf.hold(tensor, outer_hooks())
    return leaf


def _fixed(x: Tensor, one: Tensor | None, other: Tensor | None) -> tuple[Tensor | None, ...]:
    """Of parameters or statistics, what can be kept of them: by the backward pass they may have changed, or their memory may be freed
    (FSDP)."""
    there = [each for each in (one, other) if each is not None]
    # Changes of parameters that own their memory are found, but FSDP may take it; others may weigh as much as what is saved.
    if _own_memory(there) or any(8 * each.numel() > x.numel() for each in there):
        return one, other
    with torch.no_grad():
        if len(there) == 2 and there[0].dtype == there[1].dtype:
            return torch.stack(there).unbind()
        return tuple(None if each is None else each.clone() for each in (one, other))


def _own_memory(tensors: list[Tensor]) -> bool:
    for one in tensors:
        if not isinstance(one, nn.Parameter) or one.untyped_storage().nbytes() != one.nbytes:
            return False
    return not (torch.distributed.is_available() and torch.distributed.is_initialized())


def _before(x: Tensor, settings: Settings, by_channel: bool) -> Recipe | Leaf:
    """What a norm keeps of its input."""
    if settings.way == "compress" and x.numel() > 0:
        return _coded(x, by_channel)
    if settings.way == "recompute" and (source := Source.known(x)) is not None:
        recipe, offer = source.recipe, source.offer
        if (recipe is None or not recipe.exact) and offer is not None and offer.exact:
            return offer
    found = held(x, settings)
    return found if found.exact else Leaf(x)


def normed(
    x: Tensor, settings: Settings, run: Callable[[], Tensor], again: _BatchAgain | _SampleAgain, by_channel: bool
) -> Tensor:
    """What `run` gives; kept is its input, and left on it a recipe that computes it `again`. In 8 bits there is a scale for each channel,
    or for each 64 numbers."""
    before = _before(x, settings, by_channel)
    recipe = Recipe(again, before)
    out = run_keeping(run, x, INPUT, before, recipe)
    if out.dtype == x.dtype:  # else autocast had its own input
        again.learn(out)
        Source.of(out).recipe = recipe
    return out


class _Norm(NotScripted):
    """A mixin in front of nn's norms."""

    by_channel = False

    @never_compiled
    def forward(self: Any, x: Tensor) -> Tensor:
        run = super().forward  # type: ignore[misc]
        if parametrised(self):
            return run(x)
        weight, bias = affine_of(self)
        if not at_work(x, weight, bias):
            return run(x)
        return normed(x, self.ebb_settings, lambda: run(x), self._again(x, weight, bias), self.by_channel)


class _Batch(_Norm):
    by_channel = True

    def _again(self: Any, x: Tensor, weight: Tensor | None, bias: Tensor | None) -> _BatchAgain:
        found = self._buffers
        statistics = (None, None) if self.training else (found["running_mean"], found["running_var"])
        return _batch_again(x, weight, bias, statistics, self.eps)


class BatchNorm1d(_Batch, nn.BatchNorm1d):
    stock = nn.BatchNorm1d


class BatchNorm2d(_Batch, nn.BatchNorm2d):
    stock = nn.BatchNorm2d


class BatchNorm3d(_Batch, nn.BatchNorm3d):
    stock = nn.BatchNorm3d


class LayerNorm(_Norm, nn.LayerNorm):
    stock = nn.LayerNorm

    def _again(self, x: Tensor, weight: Tensor | None, bias: Tensor | None) -> _SampleAgain:
        return _SampleAgain(F.layer_norm, self.normalized_shape, self.eps, Fixed(*_fixed(x, weight, bias)))


class GroupNorm(_Norm, nn.GroupNorm):
    stock = nn.GroupNorm

    def _again(self, x: Tensor, weight: Tensor | None, bias: Tensor | None) -> _SampleAgain:
        return _SampleAgain(F.group_norm, self.num_groups, self.eps, Fixed(*_fixed(x, weight, bias)))


def batch_normed(
    x: Tensor,
    running: tuple[Tensor | None, Tensor | None],
    affine: tuple[Tensor | None, Tensor | None],
    training: bool,
    eps: float,
    settings: Settings,
    run: Callable[[], Tensor],
) -> Tensor:
    """F.batch_norm, which is what `run` calls, as a compressed layer does it."""
    if not at_work(x, *affine):
        return run()
    again = _batch_again(x, *affine, (None, None) if training else running, eps)
    return normed(x, settings, run, again, by_channel=True)


def _batch_again(
    x: Tensor, weight: Tensor | None, bias: Tensor | None, statistics: tuple[Tensor | None, Tensor | None], eps: float
) -> _BatchAgain:
    """`statistics`: (None, None) where it finds them in its input."""
    found = statistics if statistics[0] is None else _fixed(x, *statistics)
    return _BatchAgain(eps, Fixed(*_fixed(x, weight, bias), *found), statistics[0] is None)


def sample_normed(
    function: Any, x: Tensor, what: Any, affine: tuple[Tensor | None, Tensor | None], eps: float, settings: Settings
) -> Tensor:
    """F.layer_norm and F.group_norm, likewise; `what` is their second argument."""

    def run() -> Tensor:
        return function(x, what, *affine, eps)

    if not at_work(x, *affine):
        return run()
    return normed(x, settings, run, _SampleAgain(function, what, eps, Fixed(*_fixed(x, *affine))), by_channel=False)

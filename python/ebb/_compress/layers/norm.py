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
from ebb._compress.recipes import Leaf, Recipe, Source, keeping, outer_hooks
from ebb._compress.settings import Settings, at_work, parametrised, settings_of


class _BatchAgain:
    def __init__(self, eps: float, batch_statistics: bool, there: list[bool]):
        self._eps, self._batch_statistics, self._there = eps, batch_statistics, there
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

    def __call__(self, x: Tensor, mine: bool, *others: Tensor) -> Tensor:
        rest = list(others)
        weight, bias = (rest.pop(0) if there else None for there in self._there)
        if self._found is not None:
            return torch.batch_norm_elemt(x, weight, bias, *self._found, self._eps)
        mean, var = (None, None) if self._batch_statistics else rest
        return F.batch_norm(x, mean, var, weight, bias, self._batch_statistics, 0.0, self._eps)


class _SampleAgain:
    """Of norms that know no batch."""

    def __init__(self, function: Any, what: Any, eps: float, there: list[bool]):
        self._function, self._what, self._eps, self._there = function, what, eps, there

    def learn(self, out: Tensor) -> None:
        """Nothing: one kernel does it all."""

    def __call__(self, x: Tensor, mine: bool, *affine: Tensor) -> Tensor:
        given = list(affine)
        weight, bias = (given.pop(0) if there else None for there in self._there)
        return self._function(x, self._what, weight, bias, self._eps)


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


def _copies(x: Tensor, *them: Tensor | None) -> list[Leaf]:
    """Of parameters and statistics: by the backward pass they may have changed, or their memory may be freed (FSDP)."""
    there = [one.detach() for one in them if one is not None]
    # Changes of parameters that own their memory are found, but FSDP may take it; others may weigh as much as what is saved.
    if (
        not _distributed()
        and all(
            isinstance(one, nn.Parameter) and one.untyped_storage().nbytes() == one.nbytes
            for one in them
            if one is not None
        )
    ) or any(8 * one.numel() > x.numel() for one in there):
        return [Leaf(one) for one in there]
    if len(there) == 2 and there[0].dtype == there[1].dtype:
        return [Leaf(one) for one in torch.stack(there).unbind()]
    return [Leaf(one.clone()) for one in there]


def _distributed() -> bool:
    return torch.distributed.is_available() and torch.distributed.is_initialized()


def _before(x: Tensor, settings: Settings, by_channel: bool) -> Recipe | Leaf:
    """What a norm keeps of its input."""
    if settings.way == "compress" and x.numel() > 0:
        return _coded(x, by_channel)
    source = Source.of(x)
    found = [source.recipe, source.offer if settings.way == "recompute" else None]
    recipe = next((each for each in found if each is not None and each.exact), None)
    return recipe or (held(x, settings) if source.recipe is None else Leaf(x))


def normed(
    x: Tensor,
    affine: tuple[Tensor | None, Tensor | None],
    settings: Settings,
    run: Callable[[], Tensor],
    again: _BatchAgain | _SampleAgain,
    statistics: tuple[Tensor, ...] = (),
) -> Tensor:
    """What `run` gives; kept is its input, and left on it a recipe that computes it `again`. Batch norms have a scale for each channel in 8
    bits. `statistics` are those that a batch norm does not find in its input."""
    before = _before(x, settings, isinstance(again, _BatchAgain))
    recipe = Recipe(again, before, _copies(x, *affine) + (_copies(x, *statistics) if statistics else []))
    with keeping(before, x, recipe):
        out = run()
    if out.dtype == x.dtype:  # else autocast had its own input
        again.learn(out)
        Source.of(out).recipe = recipe
    return out


class _Norm(NotScripted):
    """A mixin in front of nn's norms."""

    @never_compiled
    def forward(self: Any, x: Tensor) -> Tensor:
        run = super().forward  # type: ignore[misc]
        if parametrised(self) or not at_work(x, self.weight, self.bias):
            return run(x)
        again, statistics = self._again([one is not None for one in (self.weight, self.bias)])
        return normed(x, (self.weight, self.bias), settings_of(self), lambda: run(x), again, statistics)


class _Batch(_Norm):
    def _again(self: Any, there: list[bool]) -> tuple[_BatchAgain, tuple[Tensor, ...]]:
        found = () if self.training or self.running_mean is None else (self.running_mean, self.running_var)
        return _BatchAgain(self.eps, not found, there), found


class BatchNorm1d(_Batch, nn.BatchNorm1d):
    stock = nn.BatchNorm1d


class BatchNorm2d(_Batch, nn.BatchNorm2d):
    stock = nn.BatchNorm2d


class BatchNorm3d(_Batch, nn.BatchNorm3d):
    stock = nn.BatchNorm3d


class LayerNorm(_Norm, nn.LayerNorm):
    stock = nn.LayerNorm

    def _again(self, there: list[bool]) -> tuple[_SampleAgain, tuple[Tensor, ...]]:
        return _SampleAgain(F.layer_norm, self.normalized_shape, self.eps, there), ()


class GroupNorm(_Norm, nn.GroupNorm):
    stock = nn.GroupNorm

    def _again(self, there: list[bool]) -> tuple[_SampleAgain, tuple[Tensor, ...]]:
        return _SampleAgain(F.group_norm, self.num_groups, self.eps, there), ()


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
    again = _BatchAgain(eps, training, [one is not None for one in affine])
    mean, var = running
    return normed(x, affine, settings, run, again, () if training or mean is None or var is None else (mean, var))


def sample_normed(
    function: Any, x: Tensor, what: Any, affine: tuple[Tensor | None, Tensor | None], eps: float, settings: Settings
) -> Tensor:
    """F.layer_norm and F.group_norm, likewise; `what` is their second argument."""

    def run() -> Tensor:
        return function(x, what, *affine, eps)

    if not at_work(x, *affine):
        return run()
    return normed(x, affine, settings, run, _SampleAgain(function, what, eps, [one is not None for one in affine]))

# SPDX-License-Identifier: Apache-2.0
"""Dropout that keeps the state of the generator, from which the same noise comes again."""

from __future__ import annotations

from contextlib import contextmanager
from collections.abc import Iterator
from typing import Any

import torch
from torch import Tensor, nn
from torch.autograd.function import once_differentiable

from ebb._compressed.arithmetic import Order
from ebb._compressed.settings import at_work
from ebb._source import Recipe, Source


def _state(device: torch.device) -> Tensor:
    return torch.cuda.get_rng_state(device) if device.type == "cuda" else torch.get_rng_state()


def _set_state(state: Tensor, device: torch.device) -> None:
    if device.type == "cuda":
        torch.cuda.set_rng_state(state, device)
    else:
        torch.set_rng_state(state)


@contextmanager
def _generator_at(state: Tensor, device: torch.device) -> Iterator[None]:
    now = _state(device)
    _set_state(state, device)
    try:
        yield
    finally:
        _set_state(now, device)


class _Again:
    """The same noise on another value of the same shape and order."""

    def __init__(self, layer: Any, state: Tensor, order: Order):
        self._layer, self._state, self._order, self._p = layer.stock(layer.p), state, order, layer.p

    def __call__(self, x: Tensor, mine: bool = False) -> Tensor:
        x = self._order.back(self._order.flat(x))
        with _generator_at(self._state, x.device):
            return self._layer(x)


class _Dropout(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor, layer: Any, again: _Again) -> Tensor:
        ctx.again = again
        if layer.inplace:
            ctx.mark_dirty(x)
        return layer.stock.forward(layer, x)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, gy: Tensor) -> tuple[Tensor | None, ...]:
        return ctx.again(gy), None, None


class _Compressed:
    """A mixin in front of nn.DropoutNd. The noise depends on the order in memory, so that must be a known one."""

    def forward(self: Any, x: Tensor) -> Tensor:
        order = Order(x)
        if not at_work(x) or not self.training or not order.known(x):
            return super().forward(x)  # type: ignore[misc]
        again = _Again(self, _state(x.device), order)
        before = Source.of(x).recipe
        out = _Dropout.apply(x, self, again)
        if before is not None:
            Source.of(out).recipe = Recipe(again, before)
        return out


class Dropout(_Compressed, nn.Dropout):
    stock = nn.Dropout


class Dropout1d(_Compressed, nn.Dropout1d):
    stock = nn.Dropout1d


class Dropout2d(_Compressed, nn.Dropout2d):
    stock = nn.Dropout2d


class Dropout3d(_Compressed, nn.Dropout3d):
    stock = nn.Dropout3d

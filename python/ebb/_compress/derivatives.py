# SPDX-License-Identifier: Apache-2.0
"""Backward passes that are differentiated themselves (`create_graph=True`): exact ones can be, lossy ones say that they cannot."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from ebb._base.errors import Error

Map = Callable[[Tensor, Tensor], Tensor]  # of what was kept and a gradient, linear in the gradient


class _Along(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, gradient: Tensor, kept: Tensor, there: Map, back: Map) -> Tensor:
        ctx.maps = there, back
        ctx.save_for_backward(kept)
        return there(kept, gradient)

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor | None, ...]:
        (kept,) = ctx.saved_tensors
        there, back = ctx.maps
        return along(gradient, kept, back, there), None, None, None


def along(gradient: Tensor, kept: Tensor, there: Map, back: Map) -> Tensor:
    """there(kept, gradient); `back` is its transpose, by which a gradient of it goes back."""
    if not torch.is_grad_enabled():
        return there(kept, gradient)
    if gradient.requires_grad:
        found: Tensor = _Along.apply(gradient, kept, there, back)
        return found
    with torch.no_grad():
        return there(kept, gradient)


class _Once(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, what: str, found: Tensor, *read: Tensor) -> Tensor:
        ctx.what = what
        return found.view_as(found)

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor | None, ...]:
        raise Error(
            f"a second derivative (create_graph=True) goes through {ctx.what}, whose gradients are approximate and have none; "
            "call ebb.decompress(model) first, or leave the layer as it is with skip= of ebb.compress",
            "unavailable",
        )


def only_once(what: str, found: tuple[Tensor | None, ...], *read: Tensor) -> tuple[Tensor | None, ...]:
    """Gradients that `what` has found from what it read, which depend on all of that: they must not be taken for constants."""
    if not torch.is_grad_enabled() or not any(one.requires_grad for one in read):
        return found
    return tuple(None if one is None else _Once.apply(what, one, *read) for one in found)

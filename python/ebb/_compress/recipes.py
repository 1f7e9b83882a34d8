# SPDX-License-Identifier: Apache-2.0
"""Recipes: how a tensor can be recomputed in the backward pass, so that it need not be kept.

A layer that keeps its input leaves a recipe on its output: relu(norm(x)) can be computed from x. The next layer then keeps the
recipe where it would have kept the tensor. Recipes compute with the operations of the forward pass: the same bits.

The autograd graph alone owns what is kept: a recipe lives in what the layer that left it saved, and tensors know it weakly. So
what torch frees when a node of the graph has run is freed here too, whoever still holds the tensors.
"""

from __future__ import annotations

import weakref
from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor

from ebb._base.errors import Error
from ebb._compress.settings import autocast_dtype, without_autocast

Hooks = tuple[Callable[[Tensor], Any], Callable[[Any], Tensor]]

CHANGED = (
    "a tensor of shape {} that a compressed layer needs for its backward pass was changed in place after the forward pass; "
    "call backward() before changing it, or change a clone"
)


def unchanged(tensor: Tensor, version: int) -> Tensor:
    """The tensor, which had that version when it was kept."""
    if tensor._version != version:
        raise Error(CHANGED.format(tuple(tensor.shape)))
    if tensor.untyped_storage().nbytes() == 0 and tensor.numel() > 0:
        raise Error(
            f"the memory of a tensor of shape {tuple(tensor.shape)} that a compressed layer needs for its backward "
            "pass has been freed, as FSDP does with parameters; put this layer and the one after it into one "
            'unit, or use norm="exact"'
        )
    return tensor


class Fixed:
    """Small tensors, such as parameters, that a computation reads beside its input. None stays None."""

    __slots__ = ("_kept",)

    def __init__(self, *tensors: Tensor | None):
        self._kept = [None if one is None else (one.detach(), one._version) for one in tensors]

    def values(self) -> list[Tensor | None]:
        return [None if kept is None else unchanged(*kept) for kept in self._kept]


class Value:
    """A value that the backward pass can recompute. Each reader reads it once in a pass; it is remembered from the first to the last."""

    __slots__ = ("__weakref__", "_done", "_turn", "_value", "readers")

    def __init__(self) -> None:
        self.readers = 0  # saved tensors of the graph that are not freed
        self._done = 0  # of those, in this turn
        self._turn = 0
        self._value: Tensor | None = None

    def dismiss(self, turn: int) -> None:
        self.readers -= 1
        if turn == self._turn:
            self._done -= 1
        if self._value is not None and self._done >= self.readers:
            self._forget()

    def read(self, turn: int) -> tuple[Tensor, int]:
        """For a reader whose last turn is given; also says which turn this was."""
        value, _ = self._get()
        now = self._turn
        if turn != now:
            self._done += 1
        if self._done >= self.readers:
            self._forget()
        else:
            self._remember(value)
        return value, now

    def pass_on(self) -> tuple[Tensor, bool]:
        """For a recipe that goes on from here, and whether it may overwrite it. Readers come later in the same backward pass."""
        value, mine = self._get()
        if self.readers > 0:
            self._remember(value)
        return value, mine and self._value is None

    def _get(self) -> tuple[Tensor, bool]:
        value = self._value
        return self._make() if value is None else (value, False)

    def _make(self) -> tuple[Tensor, bool]:
        """The value, and whether nothing else holds it."""
        raise NotImplementedError

    def _remember(self, value: Tensor) -> None:
        if self._value is None:
            me = weakref.ref(self)  # the engine must not keep alive until the end what is freed on the way

            def forget() -> None:
                if (found := me()) is not None:
                    found._forget()

            try:
                # A backward pass that leaves out some readers must not leave the value behind.
                torch.autograd.Variable._execution_engine.queue_callback(forget)
            except RuntimeError:
                return  # read outside of a backward pass
            self._value = value

    def _forget(self) -> None:
        self._value = None
        self._done = 0
        self._turn += 1


class Leaf(Value):
    """A tensor that is kept as it is."""

    __slots__ = ("_packed", "_tensor", "_version", "hooks")

    exact = True

    def __init__(self, tensor: Tensor):
        super().__init__()
        self._tensor: Tensor | None = tensor.detach()
        self._version = tensor._version
        self._packed: Any = None
        self.hooks: Hooks | None = None

    def hold(self, saved: Tensor, outer: Hooks | None) -> None:
        """What surrounds us (an ebb.offload, torch's save_on_cpu) moves it as it moves what others save."""
        if outer is None or self._tensor is None:
            return
        self._packed, self.hooks = outer[0](saved), outer
        self._tensor = None

    def held_by(self, outer: Hooks | None) -> bool:
        return self.hooks == outer

    @property
    def tensor(self) -> Tensor | None:
        return self._tensor

    def _make(self) -> tuple[Tensor, bool]:
        if self.hooks is not None:
            return self.hooks[1](self._packed), False
        assert self._tensor is not None
        return unchanged(self._tensor, self._version), False

    def _remember(self, value: Tensor) -> None:
        if self.hooks is not None:  # some allow only one look in a backward pass
            super()._remember(value)


class Recipe(Value):
    """A value and how to compute it again: `compute(value of the first part, may it be overwritten, other values)`. `exact`:
    with the bits it had; else about."""

    __slots__ = ("_compute", "_first", "_others", "exact")

    def __init__(
        self, compute: Callable[..., Tensor], first: Recipe | Leaf, others: Sequence[Leaf] = (), exact: bool = True
    ):
        super().__init__()
        self._compute, self._first, self._others = compute, first, others
        self.exact: bool = exact and first.exact

    def _make(self) -> tuple[Tensor, bool]:
        first, mine = self._first.pass_on()
        if torch.is_grad_enabled() or autocast_dtype(first) is not None:
            # In a backward() that is differentiated itself, or inside of autocast; types are what they were in the forward pass.
            with torch.no_grad(), without_autocast(first):
                value = self._computed(first, mine)
        else:
            value = self._computed(first, mine)
        return value, mine or value.data_ptr() != first.data_ptr()

    def _computed(self, first: Tensor, mine: bool) -> Tensor:
        return self._compute(first, mine, *[other.pass_on()[0] for other in self._others])

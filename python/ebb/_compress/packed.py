# SPDX-License-Identifier: Apache-2.0
"""What the graph saves in the place of a tensor, and whose saved-tensor hooks are around."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from ebb._base.errors import Error
from ebb._compress.recipes import CHANGED, Hooks, Recipe, Value


class Packed:
    """A value to read, and the recipe that rests on it."""

    __slots__ = ("_leaves", "_turn", "_value")

    def __init__(self, value: Value, leaves: Recipe | None):
        self._value, self._leaves, self._turn = value, leaves, -1
        value.readers += 1

    def instead(self, saved: Tensor) -> Packed:
        """A hook that saves this, whatever comes."""
        return self

    def read(self) -> Tensor:
        value, self._turn = self._value.read(self._turn)
        return value

    def __del__(self) -> None:
        self._value.dismiss(self._turn)


def unpack(packed: Any) -> Tensor:
    """Our side of every pair of hooks: of a `Packed`, or of (what was saved, its version, or who unpacks it)."""
    if type(packed) is Packed:
        return packed.read()
    saved, version, unpack_outer = packed
    if unpack_outer is not None:
        found: Tensor = unpack_outer(saved)
        return found
    if saved._version != version:
        raise Error(CHANGED.format(tuple(saved.shape)))
    return saved


_top = getattr(torch._C._autograd, "_top_saved_tensors_default_hooks", None)


def can_be_watched() -> bool:
    """An older torch, 2.6 for one, does not say whose hooks are around."""
    return _top is not None


def top_hooks() -> Hooks | None:
    """Those that what is saved here goes through first."""
    found: Hooks | None = _top(True) if _top is not None else None
    return found


def foreign(top: Hooks | None) -> bool:
    """Whether hooks of somebody else see what is saved; so says an older torch, which does not tell."""
    if top is None:
        return _top is None
    return top[1] is not unpack or top[0].__self__.outer is not None  # type: ignore[attr-defined]


def outer_hooks() -> Hooks | None:
    """The saved-tensor hooks of somebody else around us; an older torch does not say."""
    top = top_hooks()
    if top is not None and top[1] is unpack:
        return top[0].__self__.outer  # type: ignore[attr-defined]
    return top


def is_watched() -> bool:
    """Whether what operations save here goes through our hooks first. Who only looks on (record.py) says so."""
    top = top_hooks()
    return top is not None and (top[1] is unpack or getattr(top[0], "looks_on", False))

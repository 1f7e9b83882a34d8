# SPDX-License-Identifier: Apache-2.0
"""What autograd saves while something is recorded, counted as it comes."""

from __future__ import annotations

import weakref
from collections.abc import Iterable
from typing import Any

import torch
from torch import Tensor

from ebb._tensor.saved import modified
from ebb._tensor.trees import rounded

_PARTS = {
    torch.sparse_coo: ("_indices", "_values"),
    torch.sparse_csr: ("crow_indices", "col_indices", "values"),
    torch.sparse_bsr: ("crow_indices", "col_indices", "values"),
    torch.sparse_csc: ("ccol_indices", "row_indices", "values"),
    torch.sparse_bsc: ("ccol_indices", "row_indices", "values"),
}


class _Saved:
    """A tensor, and its version, which autograd does not compare where there are hooks."""

    __slots__ = ("tensor", "version", "__weakref__")

    def __init__(self, tensor: Tensor):
        # A graph that holds a tensor which holds the graph would never die.
        self.tensor = tensor.detach()
        self.version = tensor._version


class Scale:
    """Use `hooks()` while it is recorded. What is on it is on a scale around it, too. `callers`: addresses of memories that are
    theirs."""

    def __init__(self, callers: Iterable[int] = ()) -> None:
        self._callers = callers
        self._outer: Scale | None = None
        self.forget()

    def forget(self) -> None:
        # Weak: what is recorded to be measured, by a call inside of what is on the scale, is gone when it is.
        self._saved: list[weakref.ref[_Saved]] = []
        self._ends: list[int] = []
        self._more: list[Tensor] = []
        self._seen = set(self._callers)
        self._counted = 0
        self.total = 0

    def hooks(self) -> Any:
        around = hooks_around()
        owner = None if around is None else getattr(around[0], "__self__", None)
        self._outer = owner if isinstance(owner, Scale) else None
        return torch.autograd.graph.saved_tensors_hooks(self._pack, _unpack)

    def _pack(self, tensor: Tensor) -> _Saved:
        saved = _Saved(tensor) if self._outer is None else self._outer._pack(tensor)
        self._saved.append(weakref.ref(saved))
        return saved

    def add(self, tensors: list[Tensor]) -> None:
        """What is held beside what autograd saves."""
        self._more += tensors

    def tensors(self) -> list[Tensor]:
        return strided(_alive(self._saved)) + strided(self._more)

    def count(self) -> int:
        """Bytes of the memories that were saved since it was asked last; `total` has all of them."""
        found = 0
        for tensor in strided(_alive(self._saved[self._counted :])):
            memory = tensor.untyped_storage()
            address = memory.data_ptr()
            if address not in self._seen:
                self._seen.add(address)
                found += rounded(memory.nbytes(), tensor.device)
        self._counted = len(self._saved)
        self.total += found
        return found

    def end_step(self) -> None:
        self._ends.append(len(self._saved))

    def steps(self, callers: Iterable[int]) -> list[int]:
        """What was counted in each step, if these are the callers'."""
        again, start, found = Scale(callers), 0, []
        for end in [*self._ends, len(self._saved)]:
            again._saved += self._saved[start:end]
            found.append(again.count())
            start = end
        return found


def hooks_around() -> tuple[Any, Any] | None:
    """Of whoever has some for what autograd saves now."""
    top = getattr(torch._C._autograd, "_top_saved_tensors_default_hooks", None)
    return None if top is None else top(False)


def strided(tensors: list[Tensor]) -> list[Tensor]:
    """The tensors, and of sparse ones what they are made of."""
    found = []
    for tensor in tensors:
        if tensor.layout is torch.strided:
            found.append(tensor)
        else:
            found += [getattr(tensor, part)() for part in _PARTS.get(tensor.layout, ())]
    return found


def _alive(saved: list[weakref.ref[_Saved]]) -> list[Tensor]:
    return [one.tensor for one in [ref() for ref in saved] if one is not None]


def _unpack(saved: _Saved) -> Tensor:
    if saved.tensor._version != saved.version:
        raise modified(f"{saved.tensor.dtype} {tuple(saved.tensor.shape)}", saved.tensor._version, saved.version)
    return saved.tensor

# SPDX-License-Identifier: Apache-2.0
"""What autograd saves while something is recorded, counted as it comes."""

from __future__ import annotations

import weakref
from typing import Any

import torch
from torch import Tensor

_PARTS = {
    torch.sparse_coo: ("_indices", "_values"),
    torch.sparse_csr: ("crow_indices", "col_indices", "values"),
    torch.sparse_bsr: ("crow_indices", "col_indices", "values"),
    torch.sparse_csc: ("ccol_indices", "row_indices", "values"),
    torch.sparse_bsc: ("ccol_indices", "row_indices", "values"),
}


class Scale:
    """Use `hooks()` while it is recorded. `count` is quick and counts a tensor as often as it is saved; which memories `tensors`
    lie in takes longer to tell."""

    def __init__(self) -> None:
        # Weak: what is recorded to be measured, by a call inside of what is on the scale, is gone when it is.
        self._saved: list[weakref.ref[Tensor]] = []
        self._more: list[Tensor] = []
        self._counted = 0

    def hooks(self) -> Any:
        return torch.autograd.graph.saved_tensors_hooks(self._pack, _same)

    def _pack(self, tensor: Tensor) -> Tensor:
        # A graph that holds a tensor which holds the graph would never die.
        kept = tensor.detach()
        self._saved.append(weakref.ref(kept))
        return kept

    def add(self, tensors: list[Tensor]) -> None:
        """What is held beside what autograd saves."""
        self._more += tensors

    def tensors(self) -> list[Tensor]:
        return _alive(self._saved) + self._more

    def count(self) -> int:
        """Bytes saved since it was asked last."""
        found = sum([tensor.nbytes for tensor in strided(_alive(self._saved[self._counted :]))])
        self._counted = len(self._saved)
        return found

    def forget(self) -> None:
        self._saved.clear()
        self._more.clear()
        self._counted = 0


def _alive(saved: list[weakref.ref[Tensor]]) -> list[Tensor]:
    return [tensor for tensor in [ref() for ref in saved] if tensor is not None]


def strided(tensors: list[Tensor]) -> list[Tensor]:
    """The tensors, and of sparse ones what they are made of."""
    found = []
    for tensor in tensors:
        if tensor.layout is torch.strided:
            found.append(tensor)
        else:
            found += [getattr(tensor, part)() for part in _PARTS.get(tensor.layout, ())]
    return found


def _same(tensor: Tensor) -> Tensor:
    return tensor

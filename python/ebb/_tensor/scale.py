# SPDX-License-Identifier: Apache-2.0
"""What autograd saves while something is recorded, counted as it comes."""

from __future__ import annotations

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
    """Use `hooks()` while it is recorded. `count` is quick and counts a tensor as often as it is saved; which memories `saved`
    lie in takes longer to tell."""

    def __init__(self) -> None:
        self.saved: list[Tensor] = []
        self._counted = 0

    def hooks(self) -> Any:
        return torch.autograd.graph.saved_tensors_hooks(self._pack, _same)

    def _pack(self, tensor: Tensor) -> Tensor:
        # A graph that holds a tensor which holds the graph would never die.
        kept = tensor.detach()
        self.saved.append(kept)
        return kept

    def count(self) -> int:
        """Bytes saved since it was asked last."""
        found = sum([tensor.nbytes for tensor in strided(self.saved[self._counted :])])
        self._counted = len(self.saved)
        return found

    def forget(self) -> None:
        self.saved.clear()
        self._counted = 0


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

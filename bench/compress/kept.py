# SPDX-License-Identifier: Apache-2.0
"""Bytes that autograd keeps for the backward pass, counted by what it saves."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

import torch
from torch import Tensor


class Kept:
    """What `forward` saves for its backward pass, each storage once and whole. `result` is what it returned."""

    def __init__(self, forward: Callable[[], Any]):
        # Storages are held until all are counted: the address of one that has gone may come again.
        self._storages: dict[int, torch.UntypedStorage] = {}
        with torch.autograd.graph.saved_tensors_hooks(self._pack, lambda tensor: tensor):
            self.result = forward()

    def _pack(self, tensor: Tensor) -> Tensor:
        storage = tensor.untyped_storage()
        self._storages[storage._cdata] = storage
        return tensor

    def bytes(self, apart: Iterable[Tensor]) -> int:
        """Without the storages of `apart`: weights, or inputs, which are held in any case."""
        others = {tensor.untyped_storage()._cdata for tensor in apart}
        return sum(storage.nbytes() for key, storage in self._storages.items() if key not in others)

# SPDX-License-Identifier: Apache-2.0
"""What autograd saved: a tensor that stays, or a view of memory that may leave."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

from ebb._base.errors import Error

_use_count: Callable[[int], int] | None = getattr(torch._C, "_storage_Use_Count", None)


def _measured_alone() -> int:
    """What the count of a storage says while only its Python object is left."""
    if _use_count is None:
        return -1
    probe = torch.empty(1)
    storage = probe.untyped_storage()
    both = _use_count(storage._cdata)
    del probe
    alone = _use_count(storage._cdata)
    return alone if both == alone + 1 else -1


_alone = _measured_alone()
# Otherwise everything is moved, whoever holds it.
KNOWS_HOLDERS = _alone >= 0


def held_by_others(storage: torch.UntypedStorage) -> bool:
    """Whether anything but the caller of this function holds the storage.

    Builds of torch without CUDA may lack the count: then False, and at worst more is copied than need be.
    """
    return _use_count is not None and _alone >= 0 and _use_count(storage._cdata) > _alone


def modified(kind: str, now: int, then: int) -> Error:
    """What autograd says of a tensor that was changed after it was saved."""
    return Error(
        f"one of the variables needed for gradient computation has been modified by an inplace operation: "
        f"[{kind}] is at version {now}; expected version {then} instead"
    )


class Watch:
    """Sees that a tensor, or anything that shares its memory by autograd's rules, was changed in place."""

    __slots__ = ("_counter", "_version")
    _empty: dict[tuple[torch.device, torch.dtype], torch.Tensor] = {}

    def __init__(self, tensor: torch.Tensor, keep: bool = False):
        self._version = tensor._version
        self._counter = tensor.detach()  # shares the version counter, which stays when the data are taken away
        if not keep:
            kind = (tensor.device, tensor.dtype)
            if kind not in self._empty:
                self._empty[kind] = torch.empty(0, dtype=tensor.dtype, device=tensor.device)
            self._counter.data = self._empty[kind]

    def check(self, kind: str) -> None:
        now = self._counter._version
        if now != self._version:
            raise modified(kind, now, self._version)


class KeptTensor(Watch):
    """A saved tensor that stays where it is."""

    __slots__ = ()

    def __init__(self, tensor: torch.Tensor):
        super().__init__(tensor, keep=True)

    def tensor(self) -> torch.Tensor:
        self.check(f"{self._counter.dtype} {tuple(self._counter.shape)}")
        return self._counter


class SavedView(Watch):
    """A saved tensor as a view of an item, which may leave its place."""

    __slots__ = ("item", "index", "turn", "_dtype", "_offset", "_size", "_stride", "_conj")

    def __init__(self, tensor: torch.Tensor, item: Any):
        super().__init__(tensor)
        self.item = item
        self.turn = -1  # of the backward pass that asked last
        self._dtype = tensor.dtype
        self._offset = tensor.storage_offset() * tensor.element_size()
        self._size = tensor.size()
        self._stride = tensor.stride()
        self._conj = tensor.is_conj()
        self.index = item.cover(self._offset, self._offset + _extent(tensor))

    def check_version(self) -> None:
        self.check(f"{self._dtype} {tuple(self._size)}")

    def view(self, storage: torch.UntypedStorage, start: int) -> torch.Tensor:
        """The tensor, over a storage that begins at byte ``start`` of the one it was saved from."""
        whole = torch.empty(0, dtype=self._dtype, device=storage.device)
        whole.set_(storage, (self._offset - start) // self._dtype.itemsize, self._size, self._stride)
        return whole.conj() if self._conj else whole


def _extent(tensor: torch.Tensor) -> int:
    """Bytes from its first to its last element."""
    if tensor.numel() == 0:
        return 0
    last = sum((size - 1) * stride for size, stride in zip(tensor.size(), tensor.stride(), strict=True))
    return (last + 1) * tensor.element_size()

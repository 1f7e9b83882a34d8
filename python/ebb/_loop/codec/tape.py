# SPDX-License-Identifier: Apache-2.0
"""What autograd saves while a block is recorded, kept encoded.

A storage is encoded once, when the block has run, for all of its views; what somebody else holds anyway stays as it is,
since encoding it would only cost: parameters, inputs, what f captures, the states at both ends of the block.
"""

from __future__ import annotations

import weakref
from collections.abc import Set
from typing import Any

import torch
from torch import Tensor

from ebb._loop.codec.codec import Codec
from ebb._tensor.captures import LEAF
from ebb._tensor.saved import KeptTensor, SavedView, held_by_others
from ebb._tensor.trees import rounded


class _Memory:
    """The part of a storage that views of it were saved of: as it is, or encoded."""

    __slots__ = ("storage", "encoded", "dtype", "low", "high", "several", "_codec", "_decoded")

    def __init__(self, tensor: Tensor, codec: Codec):
        self.storage: torch.UntypedStorage | None = tensor.untyped_storage()
        self.encoded: Tensor | None = None
        self.dtype = tensor.dtype
        self.low = self.high = -1  # bytes
        self.several = False  # dtypes
        self._codec = codec
        self._decoded: weakref.ref[torch.UntypedStorage] | None = None

    def cover(self, low: int, high: int) -> int:
        """One more view, of these bytes."""
        self.low = low if self.low < 0 else min(self.low, low)
        self.high = max(self.high, high)
        return 0

    @property
    def count(self) -> int:
        return (self.high - self.low) // self.dtype.itemsize

    def flat(self) -> Tensor:
        assert self.storage is not None
        start = self.low // self.dtype.itemsize
        empty = torch.empty(0, dtype=self.dtype, device=self.storage.device)
        return empty.set_(self.storage, start, (self.count,), (1,))

    def become(self, encoded: Tensor) -> None:
        self.encoded, self.storage = encoded, None

    def storage_from(self) -> tuple[torch.UntypedStorage, int]:
        """Its numbers, and from which byte of the storage on. Views that live at one time share one decoding."""
        if self.storage is not None:
            return self.storage, 0
        found = None if self._decoded is None else self._decoded()
        if found is None:
            assert self.encoded is not None
            found = self._codec.decode(self.encoded, self.dtype, self.count).untyped_storage()
            self._decoded = weakref.ref(found)
        return found, self.low


class Recording:
    """Of one block. Use `hooks()` while it runs, `seal` when it has."""

    def __init__(self, codec: Codec, outside: Set[int]):
        """`outside`: addresses of what is the caller's."""
        self._codec = codec
        self._outside = outside
        self._memories: dict[int, _Memory] = {}  # by address, which are not reused while they are held
        self._kept: list[Tensor] = []
        self.encoded_bytes = 0
        self.encoded_from = 0  # bytes that these were

    def hooks(self) -> Any:
        return torch.autograd.graph.saved_tensors_hooks(self._pack, _unpack)

    def _pack(self, tensor: Tensor) -> KeptTensor | SavedView:
        if not _can_be_encoded(tensor):
            kept = KeptTensor(tensor)
            if tensor.layout == torch.strided:
                self._kept.append(kept.tensor())
            return kept
        address = tensor.untyped_storage().data_ptr()
        if address in self._outside:
            self._kept.append(tensor.detach())
            return KeptTensor(tensor)
        memory = self._memories.get(address)
        if memory is None:
            memory = self._memories[address] = _Memory(tensor, self._codec)
        memory.several = memory.several or memory.dtype != tensor.dtype
        return SavedView(tensor, memory)

    def seal(self, held: Set[int], cautious: bool = False) -> None:
        """Encodes what is at none of the addresses `held` and has no other owner. `cautious`: nor what a codec
        takes only because it is all zeros as yet."""
        tried = []
        for address, memory in self._memories.items():
            if address in held or memory.several or not self._codec.suits(memory.dtype, memory.count):
                continue
            if memory.storage is None or held_by_others(memory.storage):
                continue
            flat = memory.flat()
            encoded, taken = self._codec.encode(flat)
            if cautious and self._codec.varies:
                taken = bool(taken) and bool(flat.any())
            tried.append((memory, encoded, taken, memory.storage.nbytes()))
        for (memory, encoded, _, before), yes in zip(tried, _known([taken for _, _, taken, _ in tried])):
            if yes:
                self.encoded_from += rounded(before, encoded.device)
                self.encoded_bytes += rounded(encoded.numel(), encoded.device)
                memory.become(encoded)

    def raw(self) -> list[Tensor]:
        """What stays as it is."""
        return self._kept + [memory.flat() for memory in self._memories.values() if memory.storage is not None]


def _unpack(packed: KeptTensor | SavedView) -> Tensor:
    if isinstance(packed, KeptTensor):
        return packed.tensor()
    packed.check_version()
    return packed.view(*packed.item.storage_from())


def _known(taken: list[Tensor | bool]) -> list[bool]:
    """Waits for a device once."""
    waiting = [flag for flag in taken if isinstance(flag, Tensor)]
    told = iter(torch.stack(waiting).tolist() if waiting else [])
    return [next(told) if isinstance(flag, Tensor) else flag for flag in taken]


def _can_be_encoded(tensor: Tensor) -> bool:
    if type(tensor) is not Tensor or tensor.layout != torch.strided:
        return False
    if tensor.is_neg() or not tensor.is_floating_point():
        return False
    if tensor.numel() == 0 or tensor.device.type not in ("cpu", "cuda"):
        return False
    return not _is_cast_of_leaf(tensor if tensor._base is None else tensor._base)


def _is_cast_of_leaf(tensor: Tensor) -> bool:
    """A weight as autocast has it."""
    node = tensor.grad_fn
    return node is not None and node.name() == "ToCopyBackward0" and type(node.next_functions[0][0]) is LEAF


class Root(torch.autograd.Function):
    """An output without its numbers: where its gradient enters the graph."""

    @staticmethod
    def forward(ctx: Any, y: Tensor) -> Tensor:
        return y.new_empty(()).expand(y.shape)

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> Tensor:
        return gradient


def roots(ys: list[Tensor]) -> list[Tensor]:
    """Of outputs that the caller has already; the last is made first, so that gradients enter in the outputs' order."""
    found = list(ys)
    with torch.enable_grad():
        for k in reversed(range(len(ys))):
            y = ys[k]
            # A leaf is a state or an input, which the tape holds anyway.
            if y.layout == torch.strided and (y.grad_fn is not None or not y.requires_grad):
                found[k] = Root.apply(y)
    return found

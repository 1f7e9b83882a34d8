# SPDX-License-Identifier: Apache-2.0
"""Host memory that is taken once and handed out in blocks: pinned where the system allows it."""

from __future__ import annotations

import bisect
import os
from typing import Any

import torch

PAGE = 4096
_SMALLEST_SLAB = 1 << 20
_FIRST_GROWN_SLAB = 1 << 26


class HostBlock:
    """A part of a slab, or memory of its own (``slab`` is None). ``events`` are transfers that may still use it."""

    __slots__ = ("bytes", "pinned", "slab", "offset", "size", "events")

    def __init__(
        self, memory: torch.Tensor, pinned: bool, slab: _Slab | None, offset: int, size: int, events: list[Any]
    ):
        self.bytes = memory
        self.pinned = pinned
        self.slab = slab
        self.offset = offset
        self.size = size
        self.events = events


def pageable_block(size: int) -> HostBlock:
    """Memory of its own, aligned for direct I/O."""
    return HostBlock(_aligned(size), False, None, 0, size, [])


def host_memory(size: int, pin: bool) -> tuple[torch.Tensor, bool]:
    """Pinned where that is asked for and allowed, else pageable and aligned: slower, but right. Says which."""
    if pin:
        try:
            return torch.empty(size, dtype=torch.uint8, pin_memory=True), True
        except RuntimeError:  # no driver, or no more pages may be locked
            pass
    return _aligned(size), False


def _aligned(size: int) -> torch.Tensor:
    memory = torch.empty(size + PAGE, dtype=torch.uint8)
    return memory.narrow(0, -memory.data_ptr() % PAGE, size)


class _Slab:
    """One allocation; free ranges sorted by offset, neighbours merged."""

    def __init__(self, size: int, pin: bool):
        self.memory, self.pinned = host_memory(size, pin)
        self.free: list[tuple[int, int, list[Any]]] = [(0, size, [])]

    def take(self, size: int) -> HostBlock | None:
        for at, (offset, length, events) in enumerate(self.free):
            if length >= size:
                if length == size:
                    del self.free[at]
                else:
                    self.free[at] = (offset + size, length - size, events)
                return HostBlock(self.memory.narrow(0, offset, size), self.pinned, self, offset, size, _running(events))
        return None

    def give(self, block: HostBlock) -> None:
        offset, length, events = block.offset, block.size, _running(block.events)
        at = bisect.bisect_left(self.free, offset, key=lambda entry: entry[0])
        if at < len(self.free) and offset + length == self.free[at][0]:
            _, more, others = self.free.pop(at)
            length, events = length + more, events + _running(others)
        if at > 0 and self.free[at - 1][0] + self.free[at - 1][1] == offset:
            at -= 1
            offset, less, others = self.free.pop(at)
            length, events = length + less, events + _running(others)
        self.free.insert(at, (offset, length, events))


def _running(events: list[Any]) -> list[Any]:
    return [event for event in events if not event.query()]


class HostPool:
    """Blocks out of a fixed number of bytes, or of as many as were ever needed at once.

    ``capacity``: that many bytes, taken at the first use and kept; 0 for none. None: grows, by slabs that are kept, up
    to half of this machine's memory. Slabs are powers of two, since torch's allocator rounds pinned memory up to
    these. ``pin``: locked pages where the system allows them, else ordinary ones.
    """

    def __init__(self, capacity: int | None, pin: bool, granule: int = 512):
        self.capacity = capacity
        self.pin = pin
        self.granule = granule
        self.used = 0
        self.peak = 0
        self._slabs: list[_Slab] | None = None
        self.limit = capacity if capacity is not None else _memory_of_machine() // 2

    @property
    def largest(self) -> int:
        """The most bytes that a block can ever have."""
        return max(_powers(self.limit), default=0)

    @property
    def bytes(self) -> int:
        """Taken from the system so far."""
        return sum(slab.memory.numel() for slab in self._slabs or [])

    @property
    def pinned_bytes(self) -> int:
        return sum(slab.memory.numel() for slab in self._slabs or [] if slab.pinned)

    def take(self, size: int) -> HostBlock | None:
        """A block of at least that many bytes, or None where there is no room for it."""
        size = -(-max(size, 1) // self.granule) * self.granule
        if self._slabs is None:
            self._slabs = [] if self.capacity is None else [_Slab(part, self.pin) for part in _powers(self.capacity)]
        block = next((found for slab in self._slabs if (found := slab.take(size))), None)
        if block is None and self.capacity is None:
            block = self._grow(self._slabs, size)
        if block is not None:
            self.used += block.size
            self.peak = max(self.peak, self.used)
        return block

    def give(self, block: HostBlock) -> None:
        """Back into the pool. Who takes it next waits for ``block.events``."""
        if block.slab is not None:
            self.used -= block.size
            block.slab.give(block)

    def _grow(self, slabs: list[_Slab], size: int) -> HostBlock | None:
        slab = max(_FIRST_GROWN_SLAB, 1 << (size - 1).bit_length())
        if self.bytes + slab > self.limit:
            return None
        slabs.append(_Slab(slab, self.pin))
        return slabs[-1].take(size)


def _powers(capacity: int) -> list[int]:
    """Its binary digits, the largest first; what is below the smallest slab is left out, unless it is all there is."""
    digits = [1 << bit for bit in reversed(range(capacity.bit_length())) if capacity >> bit & 1]
    large = [digit for digit in digits if digit >= _SMALLEST_SLAB]
    return large or ([capacity] if capacity else [])


def _memory_of_machine() -> int:
    return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")

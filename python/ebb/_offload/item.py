# SPDX-License-Identifier: Apache-2.0
"""The storages behind saved tensors, on their device or elsewhere."""

from __future__ import annotations

import weakref
from typing import TYPE_CHECKING, Any

import torch

if TYPE_CHECKING:
    import collections
# A part of a storage is moved from such a boundary on: what comes back is aligned as it was.
_ALIGNMENT = 512


class Link:
    """A place in the order of saving: a ring, closed by a link without an item."""

    __slots__ = ("older", "newer", "item")

    def __init__(self, end: Link | None = None, item: Item | None = None):
        self.item = None if item is None else weakref.ref(item)
        self.newer: Link = self if end is None else end
        self.older: Link = self if end is None else end.older
        self.newer.older = self
        self.older.newer = self

    def unlink(self) -> None:
        self.older.newer = self.newer
        self.newer.older = self.older
        del self.older, self.newer


class Item:
    """A storage, or the part of it that was saved: on its device, elsewhere, or both for a while."""

    __slots__ = (
        "storage", "device", "key", "age", "producers", "low", "high", "views", "link",
        "queued", "reason", "block", "place", "spill", "tickets", "arriving", "ahead", "seen", "turn",
        "_returned", "__weakref__",
    )  # fmt: skip

    def __init__(self, storage: torch.UntypedStorage, age: int, end: Link, returned: collections.deque[Remains]):
        self.storage: torch.UntypedStorage | None = storage
        self.device = storage.device
        self.key = storage._cdata
        self.producers: set[Any] = set()  # streams
        self.low = self.high = -1
        self.views = 0
        self.link = Link(end, self)
        self.age = age
        self.queued = 0  # bytes that count as resident
        self.reason: str | None = None  # why it was reported as kept
        self.block: Any = None  # in host memory
        self.place: Any = None  # on disk
        self.spill: Any = None  # under way from host memory to disk
        self.tickets: list[Any] = []  # of its transfers to and from disk
        self.arriving: Any = None  # under way back, or back
        self.ahead = 0  # bytes that are being read before they are asked for
        self.seen: set[int] = set()  # views taken from what came back
        self.turn = -1  # of the backward pass that needs it no more
        self._returned = returned

    @property
    def size(self) -> int:
        return self.high - self.low

    def cover(self, low: int, high: int) -> int:
        """One more view, of these bytes of the storage. Returns its number."""
        low -= low % _ALIGNMENT
        self.low = low if self.views == 0 else min(self.low, low)
        self.high = max(self.high, high)
        self.views += 1
        return self.views - 1

    def source(self) -> torch.Tensor:
        """Its bytes where it was saved."""
        assert self.storage is not None
        return torch.empty(0, dtype=torch.uint8, device=self.device).set_(self.storage, self.low, (self.size,), (1,))

    def __del__(self) -> None:
        # May run at any moment in any thread: what it held is handed back when somebody looks.
        self._returned.append(Remains(self))


class Remains:
    """What an item leaves behind."""

    __slots__ = ("key", "link", "queued", "block", "place", "spill", "tickets", "arriving", "ahead")

    def __init__(self, item: Item):
        self.key, self.link, self.queued, self.ahead = item.key, item.link, item.queued, item.ahead
        self.block, self.place, self.spill = item.block, item.place, item.spill
        self.tickets, self.arriving = item.tickets, item.arriving

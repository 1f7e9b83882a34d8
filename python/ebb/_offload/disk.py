# SPDX-License-Identifier: Apache-2.0
"""Bytes of tensors in files without a name, written and read behind the computation."""

from __future__ import annotations

import collections

import torch

from ebb._base.errors import Error
from ebb._core import Store
from ebb._tensor.saved import KNOWS_HOLDERS
from ebb.tiers import FileTier

_FIRST_SEGMENT = 1 << 28
_ITEMS = 1024


class Ticket:
    """A transfer under way; wait as often as you like."""

    __slots__ = ("_store", "_number", "_error")

    def __init__(self, store: Store, number: int):
        self._store: Store | None = store
        self._number = number
        self._error: Error | None = None

    def done(self) -> bool:
        return self._store is None or self._store.done(self._number)

    def wait(self) -> None:
        """Raises the transfer's error, every time."""
        if self._store is not None:
            store, self._store = self._store, None
            try:
                store.wait(self._number)
            except Error as error:
                self._error = error
        if self._error is not None:
            raise self._error

    def failed(self) -> bool:
        """Waits."""
        try:
            self.wait()
        except Error:
            return True
        return False


class Disk:
    """A tier of the library in segments: one of the tier's capacity, or more of them as they are needed."""

    def __init__(self, tier: FileTier, grows: bool):
        self._tier = tier
        self._grows = grows
        self._segments: list[Store] = []
        self._next = _FIRST_SEGMENT if grows else tier.capacity
        self._under_way: collections.deque[Ticket] = collections.deque()

    def add(self, size: int) -> tuple[Store, int] | None:
        """A place for that many bytes; None where there is no room."""
        for store in self._segments:
            try:
                return store, store.add(0, size)
            except Error as error:
                if error.code != "out_of_budget":
                    raise
        if self._segments and not self._grows:
            return None
        capacity = max(self._next, 1 << (size - 1).bit_length()) if self._grows else self._next
        if size > capacity:
            return None
        try:
            store = Store([self._tier.slow_tier()], [(capacity, capacity, _ITEMS)])
        except Error as error:
            if error.code in ("io", "out_of_budget") and self._segments:
                return None
            raise
        self._next *= 2
        self._segments.append(store)
        return store, store.add(0, size)

    def put(self, place: tuple[Store, int], item: torch.Tensor) -> Ticket:
        store, slot = place
        self._make_way(store)
        if not KNOWS_HOLDERS:
            item = item.clone()  # somebody may change it while it is written
        return self._started(store, store.put(0, slot, item.data_ptr(), item.numel(), item))

    def get(self, place: tuple[Store, int], item: torch.Tensor) -> Ticket:
        store, slot = place
        self._make_way(store)
        return self._started(store, store.get(0, slot, item.data_ptr(), item.numel(), item))

    def drop(self, place: tuple[Store, int]) -> None:
        """No transfer of it may be under way."""
        place[0].drop(0, place[1])

    def _started(self, store: Store, number: int) -> Ticket:
        ticket = Ticket(store, number)
        self._under_way.append(ticket)
        return ticket

    def _make_way(self, store: Store) -> None:
        while self._under_way and (store.full or self._under_way[0].done()):
            self._under_way.popleft().failed()

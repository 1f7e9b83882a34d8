# SPDX-License-Identifier: Apache-2.0
"""What was measured or planned before: one bounded cache for the whole package, in which every use has its section."""

from __future__ import annotations

import itertools
import threading
import weakref
from collections import OrderedDict
from collections.abc import Callable, Hashable
from typing import Any, Generic, TypeVar

_BOUND = 1024
_BYTES = 4 << 30

Value = TypeVar("Value")


class Cache:
    """At most `bound` entries in all sections together, and such that hold memory at most `nbytes`, but for the newest one; the one
    that was not asked for the longest goes first.

    Values lie in their section, and the cache knows sections by weak references: what a section's holder keeps alive goes
    with the holder. Keys must hold nothing that is large or meant to die."""

    def __init__(self, bound: int, nbytes: int = _BYTES):
        self._bound, self._bytes = bound, nbytes
        self._weights: dict[tuple[int, Hashable], int] = {}  # of entries that hold memory
        self._lock = threading.RLock()  # a section may be collected, which calls back, in the middle of any of this
        self._numbers = itertools.count()
        self._order: OrderedDict[tuple[int, Hashable], weakref.ref[Section[Any]]] = OrderedDict()
        self._sections: weakref.WeakKeyDictionary[Any, Section[Any]] = weakref.WeakKeyDictionary()

    def __len__(self) -> int:
        with self._lock:
            return sum(ref() is not None for ref in self._order.values())

    def section(self) -> Section[Any]:
        """A new one, for whoever holds it."""
        return Section(self, next(self._numbers))

    def section_of(self, holder: object) -> Section[Any]:
        """The one that lives as long as `holder`, whom its values must not reach."""
        with self._lock:
            if holder not in self._sections:
                self._sections[holder] = self.section()
            return self._sections[holder]

    def _get(self, section: Section[Any], key: Hashable) -> Any:
        with self._lock:
            if key in section._entries:
                self._order.move_to_end((section._number, key))
            return section._entries.get(key)

    def _put(self, section: Section[Any], key: Hashable, value: Any, nbytes: int) -> None:
        with self._lock:
            entry = section._number, key
            section._entries[key] = value
            self._order[entry] = weakref.ref(section)
            self._order.move_to_end(entry)
            self._weights.pop(entry, None)
            if nbytes > 0:
                self._weights[entry] = nbytes
            if len(self._order) > self._bound or sum(self._weights.values()) > self._bytes:
                self._forget_dead()
            while len(self._order) > self._bound:
                self._drop(next(iter(self._order)))
            for old in [old for old in self._order if old in self._weights and old != entry]:
                if sum(self._weights.values()) > self._bytes:
                    self._drop(old)

    def _drop(self, entry: tuple[int, Hashable]) -> None:
        with self._lock:
            ref = self._order.pop(entry, None)
            self._weights.pop(entry, None)
            holder = None if ref is None else ref()
            if holder is not None:
                holder._entries.pop(entry[1], None)

    def clear(self) -> None:
        """Nothing is known any more."""
        with self._lock:
            for entry in list(self._order):
                self._drop(entry)

    def _forget_dead(self) -> None:
        for entry in [entry for entry, ref in self._order.items() if ref() is None]:
            self._drop(entry)


class Section(Generic[Value]):
    """The entries of one use of the cache. A copy begins empty."""

    def __init__(self, cache: Cache, number: int):
        self._cache, self._number = cache, number
        self._entries: dict[Hashable, Value] = {}

    def get(self, key: Hashable) -> Value | None:
        found: Value | None = self._cache._get(self, key)
        return found

    def put(self, key: Hashable, value: Value, nbytes: int = 0) -> None:
        """`nbytes`: the memory that it holds, if that is worth a word."""
        self._cache._put(self, key, value, nbytes)

    def drop(self, key: Hashable) -> None:
        """If it is there."""
        self._cache._drop((self._number, key))

    def get_or(self, key: Hashable, make: Callable[[], Value]) -> Value:
        """The entry, which is made where there is none. Two threads may both make it; the last one stays."""
        found = self.get(key)
        if found is None:
            found = make()
            self.put(key, found)
        return found

    def __deepcopy__(self, memo: dict[int, Any]) -> Section[Value]:
        return self._cache.section()

    def __reduce__(self) -> tuple[Callable[[], Section[Value]], tuple[()]]:
        return _new_section, ()


cache = Cache(_BOUND)


def clear_cache() -> None:
    """Forgets all measurements, plans and captured graphs, and frees the memory that CUDA graphs hold between calls.

    >>> import ebb
    >>> ebb.clear_cache()

    Later calls measure and capture again. PyTorch's allocator keeps the freed memory; ``torch.cuda.empty_cache()`` returns it to
    the system."""
    cache.clear()


def _new_section() -> Section[Any]:
    return cache.section()

# SPDX-License-Identifier: Apache-2.0
"""Who holds tensors for a backward that no graph shows: calls inside of a block keep states beside what autograd saves."""

from __future__ import annotations

import contextlib
import threading
import weakref
from collections.abc import Iterator
from typing import Protocol

from torch import Tensor


class Holder(Protocol):
    def held(self) -> list[Tensor]: ...


class Holders:
    """Those that have come while a block was recorded."""

    def __init__(self) -> None:
        self._found: list[weakref.ref[Holder]] = []

    def add(self, holder: Holder) -> None:
        self._found.append(weakref.ref(holder))

    def tensors(self) -> list[Tensor]:
        """Of those that are still there."""
        alive = [holder() for holder in self._found]
        return [tensor for holder in alive if holder is not None for tensor in holder.held()]


class _Open(threading.local):
    def __init__(self) -> None:
        self.all: list[Holders] = []


_open = _Open()


@contextlib.contextmanager
def collected() -> Iterator[Holders]:
    found = Holders()
    _open.all.append(found)
    try:
        yield found
    finally:
        _open.all.remove(found)


def holds(holder: Holder) -> None:
    """From now on, for whoever records it."""
    for found in _open.all:
        found.add(holder)

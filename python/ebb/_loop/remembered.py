# SPDX-License-Identifier: Apache-2.0
"""What was measured about blocks before."""

from __future__ import annotations

import threading
from collections import OrderedDict
from dataclasses import dataclass
from typing import Any

from ebb._loop.costs import Costs

_KEPT = 256  # blocks whose costs are remembered


@dataclass
class Remembered:
    """What was found about blocks before."""

    costs: Costs
    fits: set[int]  # budgets that hold everything
    raw: tuple[int, int]  # bytes of a tape and of a state, without codecs
    coded: list[bool] | None = None  # leaves of the carry that are kept encoded


class _Memory:
    """The last blocks measured, by key."""

    def __init__(self) -> None:
        self._entries: OrderedDict[Any, Remembered] = OrderedDict()
        self._lock = threading.Lock()

    def get(self, key: Any) -> Remembered | None:
        with self._lock:
            if key in self._entries:
                self._entries.move_to_end(key)
            return self._entries.get(key)

    def put(self, key: Any, known: Remembered) -> None:
        with self._lock:
            self._entries[key] = known
            while len(self._entries) > _KEPT:
                self._entries.popitem(last=False)


remembered = _Memory()

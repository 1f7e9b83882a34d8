# SPDX-License-Identifier: Apache-2.0
"""The vocabulary of schedules where the package checkpoint-schedules is not installed: same names, same meaning."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from enum import Enum
from typing import Any


class StorageType(Enum):
    """Where data lies: in memory, on disk, at hand for the forward or the adjoint, or nowhere (it is deleted)."""

    RAM = 0
    DISK = 1
    WORK = -1
    NONE = None

    def __repr__(self) -> str:
        return f"StorageType.{self.name}"


class CheckpointAction:
    """One action of a schedule. ``args`` are what it was made with."""

    def __init__(self, *args: Any):
        self.args = args

    def __repr__(self) -> str:
        shown = ("sys.maxsize" if arg == sys.maxsize else repr(arg) for arg in self.args)
        return f"{type(self).__name__}({', '.join(shown)})"

    def __eq__(self, other: object) -> bool:
        return type(self) is type(other) and isinstance(other, CheckpointAction) and self.args == other.args

    def __hash__(self) -> int:
        return hash((type(self), self.args))


class _Stretch(CheckpointAction):
    """Covers the steps ``n0`` to ``n1 - 1``."""

    n0: int
    n1: int

    def __len__(self) -> int:
        return self.n1 - self.n0

    def __contains__(self, step: int) -> bool:
        return self.n0 <= step < self.n1


class Forward(_Stretch):
    """Run steps ``n0`` to ``n1 - 1``; keep what restarts the forward at ``n0``, what the adjoint needs, both or neither.

    >>> action = Forward(10, 25, True, False, StorageType.RAM)
    >>> action, len(action), 24 in action
    (Forward(10, 25, True, False, StorageType.RAM), 15, True)
    """

    def __init__(self, n0: int, n1: int, write_ics: bool, write_adj_deps: bool, storage: StorageType):
        super().__init__(n0, n1, write_ics, write_adj_deps, storage)
        self.n0, self.n1 = n0, n1
        self.write_ics, self.write_adj_deps = write_ics, write_adj_deps
        self.storage = storage

    def __iter__(self) -> Iterator[int]:
        return iter(range(self.n0, self.n1))


class Reverse(_Stretch):
    """Run the adjoint back over steps ``n1 - 1`` to ``n0``, and drop the data it used if ``clear_adj_deps``.

    >>> list(Reverse(3, 1, True))
    [2, 1]
    """

    def __init__(self, n1: int, n0: int, clear_adj_deps: bool):
        super().__init__(n1, n0, clear_adj_deps)
        self.n1, self.n0 = n1, n0
        self.clear_adj_deps = clear_adj_deps

    def __iter__(self) -> Iterator[int]:
        return iter(range(self.n1 - 1, self.n0 - 1, -1))


class _Transfer(CheckpointAction):
    def __init__(self, n: int, from_storage: StorageType, to_storage: StorageType):
        super().__init__(n, from_storage, to_storage)
        self.n = n
        self.from_storage, self.to_storage = from_storage, to_storage


class Copy(_Transfer):
    """Copy the data that was stored at step ``n``; it stays where it was, too."""


class Move(_Transfer):
    """Move the data that was stored at step ``n``; to ``StorageType.NONE``: delete it."""


class EndForward(CheckpointAction):
    """The forward calculation has ended."""

    def __init__(self) -> None:
        super().__init__()


class EndReverse(CheckpointAction):
    """An adjoint calculation has ended."""

    def __init__(self) -> None:
        super().__init__()

# SPDX-License-Identifier: Apache-2.0
"""Schedules that never compute a step again, for any number of steps."""

from __future__ import annotations

import sys
from collections.abc import Iterator

from ebb.schedules._live import OwnSchedule
from ebb.schedules.schedule import CheckpointAction, Copy, EndForward, EndReverse, Forward, Move, Reverse, StorageType

__all__ = ["NoneCheckpointSchedule", "SingleDiskStorageSchedule", "SingleMemoryStorageSchedule"]


class NoneCheckpointSchedule(OwnSchedule):
    """The forward alone: no adjoint calculation follows, and nothing is kept."""

    def __init__(self) -> None:
        super().__init__()

    def _iterator(self) -> Iterator[CheckpointAction]:
        self._n = sys.maxsize
        yield Forward(0, sys.maxsize, False, False, StorageType.NONE)
        self._length()
        self._exhausted = True
        yield EndForward()


class SingleMemoryStorageSchedule(OwnSchedule):
    """Everything that the adjoint needs stays in ``WORK``, for any number of adjoint calculations."""

    def __init__(self) -> None:
        super().__init__()
        self._used = frozenset({StorageType.WORK})

    def _iterator(self) -> Iterator[CheckpointAction]:
        self._n = sys.maxsize
        yield Forward(0, sys.maxsize, False, True, StorageType.WORK)
        steps = self._length()
        yield EndForward()
        while True:
            self._r = steps
            # Not cleared: the next adjoint calculation needs the same data.
            yield Reverse(steps, 0, False)
            self._r = 0
            yield EndReverse()


class SingleDiskStorageSchedule(OwnSchedule):
    """Everything that the adjoint needs goes to ``DISK``, step by step.

    It is copied back for any number of adjoint calculations or, with ``move_data``, moved back for the only one.
    """

    def __init__(self, move_data: bool = False):
        super().__init__()
        self._move_data = bool(move_data)
        self._used = frozenset({StorageType.DISK, StorageType.WORK})

    def _iterator(self) -> Iterator[CheckpointAction]:
        while self._max_n is None:
            self._n += 1
            yield Forward(self._n - 1, self._n, False, True, StorageType.DISK)
        steps = self._length()
        yield EndForward()
        fetch = Move if self._move_data else Copy
        while not self._exhausted:
            for step in range(steps - 1, -1, -1):
                yield fetch(step, StorageType.DISK, StorageType.WORK)
                self._r = steps - step
                yield Reverse(step + 1, step, True)
            self._exhausted = self._move_data
            self._r = steps if self._exhausted else 0
            yield EndReverse()

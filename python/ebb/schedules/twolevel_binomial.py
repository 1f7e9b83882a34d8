# SPDX-License-Identifier: Apache-2.0
"""A state on disk every period while the length is unknown, binomial checkpointing in between."""

from __future__ import annotations

from collections.abc import Iterator

from ebb._base.errors import Error
from ebb._base.request import as_count
from ebb.schedules._live import OwnSchedule
from ebb.schedules.hrevolve import Revolve
from ebb.schedules.multistage import check_trajectory
from ebb.schedules.schedule import (
    CheckpointAction,
    Copy,
    EndForward,
    EndReverse,
    Forward,
    Move,
    Reverse,
    StorageType,
)

__all__ = ["TwoLevelCheckpointSchedule"]


class TwoLevelCheckpointSchedule(OwnSchedule):
    """A state on disk every ``period`` steps, and ``binomial_snapshots`` further states at a time in between.

    For any number of steps and of adjoint calculations. Pringle, Jones, Goswami, Narayanan and Goldberg, 2016.
    ``binomial_trajectory`` is accepted so that calls need not change: both take the same number of forward steps.
    """

    def __init__(
        self,
        period: int,
        binomial_snapshots: int,
        *,
        binomial_storage: StorageType = StorageType.DISK,
        binomial_trajectory: str = "maximum",
    ):
        super().__init__()
        self._period = as_count(period, "period", least=1)
        self._snapshots = as_count(binomial_snapshots, "binomial_snapshots")
        if binomial_storage not in (StorageType.RAM, StorageType.DISK):
            raise Error(f"TwoLevelCheckpointSchedule: binomial_storage is {binomial_storage!r}; it must be RAM or DISK")
        check_trajectory(binomial_trajectory, "binomial_trajectory")
        self._storage = binomial_storage
        further = {binomial_storage} if self._snapshots > 0 and self._period > 1 else set()
        self._used = frozenset({StorageType.DISK, StorageType.WORK, *further})

    def _iterator(self) -> Iterator[CheckpointAction]:
        while self._max_n is None:
            start, self._n = self._n, self._n + self._period
            yield Forward(start, self._n, True, False, StorageType.DISK)
        steps = self._length()
        yield EndForward()
        while True:
            for start in reversed(range(0, steps, self._period)):
                yield from self._reversed(start, min(start + self._period, steps))
            self._r = 0
            yield EndReverse()

    def _reversed(self, start: int, end: int) -> Iterator[CheckpointAction]:
        """Revolve's actions between two states on disk: its initial state is the first of them, which stays there."""
        self._n = start
        yield Copy(start, StorageType.DISK, StorageType.WORK)
        for action in Revolve(end - start, 1 + self._snapshots):
            if isinstance(action, Forward):
                kept = action.write_ics and action.n0 > 0
                storage = self._storage if kept else StorageType.WORK
                self._n = start + action.n1
                yield Forward(start + action.n0, self._n, kept, action.write_adj_deps, storage)
            elif isinstance(action, Reverse):
                self._r = (self._max_n or 0) - start - action.n0
                yield Reverse(start + action.n1, start + action.n0, True)
            elif isinstance(action, (Copy, Move)):
                self._n = start + action.n
                yield self._fetched(action, start)

    def _fetched(self, action: Copy | Move, start: int) -> CheckpointAction:
        if action.n == 0:
            return Copy(start, StorageType.DISK, StorageType.WORK)
        return type(action)(start + action.n, self._storage, StorageType.WORK)

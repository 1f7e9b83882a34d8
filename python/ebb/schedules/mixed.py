# SPDX-License-Identifier: Apache-2.0
"""Slots that hold a state or a tape."""

from __future__ import annotations

from ebb._base.errors import Error
from ebb.schedules._planned import Schedule
from ebb.schedules.schedule import StorageType

__all__ = ["MixedCheckpointSchedule"]


class MixedCheckpointSchedule(Schedule):
    """The fewest forward steps where a slot holds a state or a tape of the same size. Maddison, 2024."""

    def __init__(self, max_n: int, snapshots: int, *, storage: StorageType = StorageType.DISK):
        if storage not in (StorageType.RAM, StorageType.DISK):
            raise Error(f"MixedCheckpointSchedule: storage is {storage!r}; it must be RAM or DISK")
        super().__init__("mixed", max_n, budget=snapshots, working=0, tapes_in_work=1)
        # The plan knows one memory, whatever it is called.
        self._storages = (StorageType.NONE, StorageType.WORK, storage, StorageType.NONE)
        self._used = frozenset(storage if used is StorageType.RAM else used for used in self._used)

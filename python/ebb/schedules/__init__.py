# SPDX-License-Identifier: Apache-2.0
"""ebb's plans as schedules of the PyPI package checkpoint-schedules.

Whoever drives an adjoint by that package (pyadjoint, tlm_adjoint) can take these instead: same names, same arguments,
same actions. :class:`Schedule` does it for any strategy that keeps states in fast memory and in one slow tier.

The package need not be installed. Where it is, the actions are its own classes, and ``isinstance`` takes each schedule
for the one of the same name.

>>> import ebb.schedules
>>> schedule = ebb.schedules.Revolve(3, 1)
>>> [type(action).__name__ for action in schedule][:4]
['Forward', 'Forward', 'EndForward', 'Reverse']
"""

from __future__ import annotations

from typing import Any

from ebb._base.errors import Error
from ebb.schedules._planned import Schedule
from ebb.schedules.basic_schedules import (
    NoneCheckpointSchedule,
    SingleDiskStorageSchedule,
    SingleMemoryStorageSchedule,
)
from ebb.schedules.hrevolve import DiskRevolve, HRevolve, PeriodicDiskRevolve, Revolve
from ebb.schedules.mixed import MixedCheckpointSchedule
from ebb.schedules.multistage import MultistageCheckpointSchedule, optimal_steps_binomial
from ebb.schedules.schedule import (
    CheckpointAction,
    CheckpointSchedule,
    Copy,
    EndForward,
    EndReverse,
    Forward,
    Move,
    Reverse,
    StorageType,
    taken_for_theirs,
)
from ebb.schedules.twolevel_binomial import TwoLevelCheckpointSchedule

__all__ = [
    "CheckpointAction",
    "CheckpointSchedule",
    "Copy",
    "DiskRevolve",
    "EndForward",
    "EndReverse",
    "Forward",
    "HRevolve",
    "MixedCheckpointSchedule",
    "Move",
    "MultistageCheckpointSchedule",
    "NoneCheckpointSchedule",
    "PeriodicDiskRevolve",
    "Reverse",
    "Revolve",
    "Schedule",
    "SingleDiskStorageSchedule",
    "SingleMemoryStorageSchedule",
    "StorageType",
    "TwoLevelCheckpointSchedule",
    "optimal_steps_binomial",
]

taken_for_theirs(
    DiskRevolve,
    HRevolve,
    MixedCheckpointSchedule,
    MultistageCheckpointSchedule,
    NoneCheckpointSchedule,
    PeriodicDiskRevolve,
    Revolve,
    SingleDiskStorageSchedule,
    SingleMemoryStorageSchedule,
    TwoLevelCheckpointSchedule,
)

# What that package's functions and modules for the sequences behind its schedules are for.
_SEQUENCES = {
    "basic_functions": "HRevolve",
    "disk_revolve": "DiskRevolve",
    "hrevolve": "HRevolve",
    "hrevolve_sequences": "HRevolve",
    "periodic_disk_revolve": "PeriodicDiskRevolve",
    "revolve": "Revolve",
    "revolve_1d": "DiskRevolve",
    "utils": "HRevolve",
}
# A function there: the module of this name is imported by its path only.
del globals()["hrevolve"]


def __getattr__(name: str) -> Any:
    if name in _SEQUENCES:
        raise Error(
            f"ebb.schedules has no {name}: it is about the sequences from which checkpoint-schedules makes its schedules; "
            f"take the schedule {_SEQUENCES[name]}, or import {name} from checkpoint_schedules"
        )
    raise AttributeError(f"module 'ebb.schedules' has no attribute {name!r}")

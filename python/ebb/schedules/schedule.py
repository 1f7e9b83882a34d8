# SPDX-License-Identifier: Apache-2.0
"""The vocabulary: checkpoint-schedules' own classes where that package is installed, else classes like them.

Programs that dispatch on the type of an action (pyadjoint, tlm_adjoint) know that package's classes only.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ebb.schedules import _live
from ebb.schedules._live import CheckpointSchedule
from ebb.schedules._words import CheckpointAction, Copy, EndForward, EndReverse, Forward, Move, Reverse, StorageType

__all__ = [
    "CheckpointAction",
    "CheckpointSchedule",
    "Copy",
    "EndForward",
    "EndReverse",
    "Forward",
    "Move",
    "Reverse",
    "StorageType",
]

_theirs: Any = None

if not TYPE_CHECKING:
    try:
        import checkpoint_schedules as _theirs
    except ImportError:
        pass
    else:
        globals().update({name: getattr(_theirs.schedule, name) for name in __all__})
        CheckpointSchedule.register(_live.CheckpointSchedule)


def taken_for_theirs(*schedules: type) -> None:
    """Lets ``isinstance`` take them for the schedules of the same names in checkpoint-schedules, where it is installed."""
    if _theirs is not None:
        for schedule in schedules:
            getattr(_theirs, schedule.__name__).register(schedule)

# SPDX-License-Identifier: Apache-2.0
"""ebb's plans as schedules of the PyPI package checkpoint-schedules.

Whoever drives an adjoint by that package (pyadjoint, tlm_adjoint) can take these instead: same names, same arguments,
same actions. :class:`Schedule` does it for any strategy that keeps states in fast memory and in one slow tier.

>>> import ebb.schedules
>>> schedule = ebb.schedules.Revolve(3, 1)
>>> [type(action).__name__ for action in schedule][:4]
['Forward', 'Forward', 'EndForward', 'Reverse']
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from ebb import _core, planning
from ebb._base.errors import Error
from ebb._base.request import as_count
from ebb._base.sizes import UNLIMITED

try:
    import checkpoint_schedules as cs
except ImportError as error:
    raise Error(
        "ebb.schedules needs the package checkpoint-schedules; pip install checkpoint-schedules", "unavailable"
    ) from error

__all__ = [
    "DiskRevolve",
    "HRevolve",
    "MixedCheckpointSchedule",
    "MultistageCheckpointSchedule",
    "PeriodicDiskRevolve",
    "Revolve",
    "Schedule",
]

_STORAGES = (cs.StorageType.NONE, cs.StorageType.WORK, cs.StorageType.RAM, cs.StorageType.DISK)
# So little that no forward step is ever saved by it, and that the plan with the least traffic is taken.
_NEXT_TO_NOTHING = 1e-9


class Schedule(cs.CheckpointSchedule):
    """Any strategy as a schedule for one adjoint calculation of ``max_n`` steps.

    The keywords are those of :func:`ebb.plan`. fast memory is ``RAM``, the slow tier is ``DISK``. What cannot be said
    in that package's words (tapes in slow tiers, a second slow tier) raises :class:`ebb.Error` at once. ``plan`` is the
    plan with its prediction. Tapes that are reversed right after they were recorded lie in ``WORK``, up to
    ``tapes_in_work``; all others in ``RAM``.

    >>> schedule = Schedule("double_local", 100, budget=40)
    >>> schedule.plan.forwards
    168
    >>> schedule.uses_storage_type(cs.StorageType.DISK)
    False
    """

    def __init__(self, strategy: str, max_n: int, *, tapes_in_work: int | None = None, **words: Any):
        super().__init__(as_count(max_n, "max_n", least=1))
        self.plan = planning.plan(max_n, strategy=strategy, **words)
        most = UNLIMITED if tapes_in_work is None else as_count(tapes_in_work, "tapes_in_work", least=1)
        self._said = (self.plan.core, self.plan.steps, most)
        used = _core.schedule_storages(*self._said)
        self._used = frozenset(_STORAGES[number] for number in used)
        self._storages = _STORAGES
        self._exhausted = False

    def _iterator(self) -> Iterator[cs.CheckpointAction]:
        storages = self._storages
        rows: Any = _core.ScheduleCursor(*self._said)
        for kind, *parts in rows:
            if kind == 0:
                n0, n1, write_ics, write_adj_deps, storage = parts
                self._n = n1
                yield cs.Forward(n0, n1, write_ics, write_adj_deps, storages[storage])
            elif kind == 1:
                n1, n0 = parts
                self._r = self.max_n - n0
                yield cs.Reverse(n1, n0, True)
            elif kind in (2, 3):
                n, start, end = parts
                if storages[end] is cs.StorageType.WORK:
                    self._n = n
                yield (cs.Copy if kind == 2 else cs.Move)(n, storages[start], storages[end])
            elif kind == 4:
                yield cs.EndForward()
            else:
                self._exhausted = True
                yield cs.EndReverse()

    @property
    def is_exhausted(self) -> bool:
        return self._exhausted

    def uses_storage_type(self, storage_type: cs.StorageType) -> bool:
        """Whether the schedule ever uses that storage."""
        return storage_type in self._used


def _disk(slots: int | None, wd: float, rd: float) -> list[dict[str, Any]]:
    capacity = {} if slots is None else {"slots": slots}
    return [{"name": "disk", "write_time": wd, "read_time": rd, **capacity}]


class Revolve(Schedule):
    """Binomial checkpointing in RAM: the fewest forward steps. Griewank and Walther, 2000."""

    def __init__(self, max_n: int, snapshots_in_ram: int, uf: float = 1, ub: float = 1, wd: float = 2, rd: float = 2):
        super().__init__("revolve", max_n, slots=snapshots_in_ram, forward=uf, backward=ub)


class HRevolve(Schedule):
    """The least time with slots in RAM and on disk. Herrmann and Pallez, 2020.

    >>> HRevolve(25, 2, 3, uf=1, ub=3, wd=20, rd=20).plan.seconds - 25
    169.0
    """

    def __init__(
        self,
        max_n: int,
        snapshots_in_ram: int,
        snapshots_on_disk: int,
        uf: float = 1,
        ub: float = 1,
        wd: float = 2,
        rd: float = 2,
    ):
        tiers = _disk(snapshots_on_disk, wd, rd)
        super().__init__("h_revolve", max_n, slots=snapshots_in_ram, forward=uf, backward=ub, tiers=tiers, sync=True)


class DiskRevolve(Schedule):
    """The least time with slots in RAM and a disk without limit. Aupy, Herrmann, Hovland and Robert, 2016."""

    def __init__(self, max_n: int, snapshots_in_ram: int, uf: float = 1, ub: float = 1, wd: float = 2, rd: float = 2):
        tiers = _disk(None, wd, rd)
        super().__init__("disk_revolve", max_n, slots=snapshots_in_ram, forward=uf, backward=ub, tiers=tiers, sync=True)


class PeriodicDiskRevolve(Schedule):
    """A state on disk every so many steps, Revolve in RAM in between. Aupy and Herrmann, 2017."""

    def __init__(self, max_n: int, snapshots_in_ram: int, uf: float = 1, ub: float = 1, wd: float = 2, rd: float = 2):
        tiers = _disk(None, wd, rd)
        super().__init__(
            "periodic_disk", max_n, slots=snapshots_in_ram, forward=uf, backward=ub, tiers=tiers, sync=True
        )


class MultistageCheckpointSchedule(Schedule):
    """The fewest forward steps with slots in RAM and on disk together and, of these, the least traffic with the disk.

    ``trajectory`` is accepted so that calls need not change: both of them take the same number of forward steps.
    """

    def __init__(self, max_n: int, snapshots_in_ram: int, snapshots_on_disk: int, *, trajectory: str = "maximum"):
        if trajectory not in ("maximum", "revolve"):
            raise Error(f"trajectory is {trajectory!r}; it must be 'maximum' or 'revolve'")
        tiers = _disk(snapshots_on_disk, _NEXT_TO_NOTHING, _NEXT_TO_NOTHING)
        super().__init__("h_revolve", max_n, slots=snapshots_in_ram, tiers=tiers, sync=True)


class MixedCheckpointSchedule(Schedule):
    """The fewest forward steps where a slot holds a state or a tape of the same size. Maddison, 2024."""

    def __init__(self, max_n: int, snapshots: int, *, storage: cs.StorageType = cs.StorageType.DISK):
        if storage not in (cs.StorageType.RAM, cs.StorageType.DISK):
            raise Error(f"MixedCheckpointSchedule: storage is {storage!r}; it must be RAM or DISK")
        super().__init__("mixed", max_n, budget=snapshots, working=0, tapes_in_work=1)
        # The plan knows one memory, whatever it is called.
        self._storages = (cs.StorageType.NONE, cs.StorageType.WORK, storage, cs.StorageType.NONE)
        self._used = frozenset(storage if used is cs.StorageType.RAM else used for used in self._used)

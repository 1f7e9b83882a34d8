# SPDX-License-Identifier: Apache-2.0
"""Any plan of ebb's as a schedule."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from ebb import _core, planning
from ebb._base.errors import Error
from ebb._base.request import as_count
from ebb._base.sizes import UNLIMITED
from ebb.schedules._live import OwnSchedule
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

# By the number that the library gives each.
_STORAGES = (StorageType.NONE, StorageType.WORK, StorageType.RAM, StorageType.DISK)
# These restart the forward from tapes, for which there are no words.
_NEVER_SAID = ("auto", "ism", "msm")


class Schedule(OwnSchedule):
    """Any strategy as a schedule for one adjoint calculation of ``max_n`` steps.

    The keywords are those of :func:`ebb.plan`. Fast memory is ``RAM``, the slow tier is ``DISK``. ``"auto"`` takes the
    fastest plan that can be said in checkpoint-schedules' words; another strategy whose plan cannot (tapes in slow
    tiers, a second slow tier) raises :class:`ebb.Error` at once. ``plan`` is the plan with its prediction. Tapes that
    are reversed right after they were recorded lie in ``WORK``, up to ``tapes_in_work``; all others in ``RAM``.

    >>> from ebb.schedules import Schedule, StorageType
    >>> schedule = Schedule("double_local", 100, budget=40)
    >>> schedule.plan.forwards
    168
    >>> schedule.uses_storage_type(StorageType.DISK)
    False
    >>> ebb.plan(100, budget=20).strategy, Schedule("auto", 100, budget=20).plan.strategy
    ('ism', 'mixed')
    """

    def __init__(self, strategy: str, max_n: int, *, tapes_in_work: int | None = None, **words: Any):
        super().__init__(as_count(max_n, "max_n", least=1))
        most = UNLIMITED if tapes_in_work is None else as_count(tapes_in_work, "tapes_in_work", least=1)
        self.plan, used = _said(planning.plan(max_n, strategy=strategy, **words), strategy, words, most)
        self._rows = (self.plan.core, self.plan.steps, most)
        self._storages = _STORAGES
        self._used = frozenset(_STORAGES[number] for number in used)

    def _iterator(self) -> Iterator[CheckpointAction]:
        storages = self._storages
        rows: Any = _core.ScheduleCursor(*self._rows)
        for kind, *parts in rows:
            if kind == 0:
                n0, n1, write_ics, write_adj_deps, storage = parts
                self._n = n1
                yield Forward(n0, n1, write_ics, write_adj_deps, storages[storage])
            elif kind == 1:
                n1, n0 = parts
                self._r = self.plan.steps - n0
                yield Reverse(n1, n0, True)
            elif kind in (2, 3):
                n, start, end = parts
                if storages[end] is StorageType.WORK:
                    self._n = n
                yield (Copy if kind == 2 else Move)(n, storages[start], storages[end])
            elif kind == 4:
                yield EndForward()
            else:
                self._exhausted = True
                yield EndReverse()


def _said(
    plan: planning.Plan, strategy: str, words: dict[str, Any], tapes_in_work: int
) -> tuple[planning.Plan, list[int]]:
    """The plan and the storages it uses; for ``"auto"`` the fastest plan that can be said, where this one cannot."""
    try:
        return plan, _core.schedule_storages(plan.core, plan.steps, tapes_in_work)
    except Error:
        if strategy != "auto":
            raise
        for other in sorted(_others(plan.steps, words), key=lambda found: found.seconds):
            try:
                return other, _core.schedule_storages(other.core, other.steps, tapes_in_work)
            except Error:
                continue
        raise


def _others(steps: int, words: dict[str, Any]) -> Iterator[planning.Plan]:
    """Of every strategy that may be said and fits."""
    for row in planning.strategies():
        if row.name not in _NEVER_SAID:
            try:
                yield planning.plan(steps, strategy=row.name, **words)
            except Error:
                continue

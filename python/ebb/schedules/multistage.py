# SPDX-License-Identifier: Apache-2.0
"""Binomial checkpointing with slots in memory and on disk."""

from __future__ import annotations

import math

from ebb._base.errors import Error
from ebb._base.request import as_count
from ebb.schedules._planned import Schedule

__all__ = ["MultistageCheckpointSchedule", "optimal_steps_binomial"]

# So little that no forward step is ever saved by it, and that the plan with the least traffic is taken.
_NEXT_TO_NOTHING = 1e-9


class MultistageCheckpointSchedule(Schedule):
    """The fewest forward steps with slots in RAM and on disk together and, of these, the least traffic with the disk.

    ``trajectory`` is accepted so that calls need not change: both of them take the same number of forward steps.
    """

    def __init__(self, max_n: int, snapshots_in_ram: int, snapshots_on_disk: int, *, trajectory: str = "maximum"):
        check_trajectory(trajectory, "trajectory")
        disk = {
            "name": "disk",
            "write_time": _NEXT_TO_NOTHING,
            "read_time": _NEXT_TO_NOTHING,
            "slots": snapshots_on_disk,
        }
        super().__init__("h_revolve", max_n, slots=snapshots_in_ram, tiers=[disk], sync=True)


def check_trajectory(trajectory: str, what: str) -> None:
    """Refuses what is neither of the two."""
    if trajectory not in ("maximum", "revolve"):
        raise Error(f"{what} is {trajectory!r}; it must be 'maximum' or 'revolve'")


def optimal_steps_binomial(n: int, s: int) -> int:
    """The fewest forward steps in which ``n`` steps are reversed with ``s`` states kept. Griewank and Walther, 2000.

    >>> optimal_steps_binomial(100, 9)
    334
    """
    n = as_count(n, "optimal_steps_binomial: n", least=1)
    s = as_count(s, "optimal_steps_binomial: s", least=min(1, n - 1))
    # No step runs more than 1 + repeated times.
    repeated = 0
    while math.comb(s + repeated, repeated) < n:
        repeated += 1
    return n if repeated == 0 else n + repeated * n - math.comb(s + repeated, repeated - 1)

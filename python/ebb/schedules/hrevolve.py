# SPDX-License-Identifier: Apache-2.0
"""Revolve and its successors, for memory and disk."""

from __future__ import annotations

from typing import Any

from ebb.schedules._planned import Schedule

__all__ = ["DiskRevolve", "HRevolve", "PeriodicDiskRevolve", "Revolve"]


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
        super().__init__("h_revolve", max_n, **_costs(snapshots_in_ram, uf, ub, wd, rd, slots=snapshots_on_disk))


class DiskRevolve(Schedule):
    """The least time with slots in RAM and a disk without limit. Aupy, Herrmann, Hovland and Robert, 2016."""

    def __init__(self, max_n: int, snapshots_in_ram: int, uf: float = 1, ub: float = 1, wd: float = 2, rd: float = 2):
        super().__init__("disk_revolve", max_n, **_costs(snapshots_in_ram, uf, ub, wd, rd))


class PeriodicDiskRevolve(Schedule):
    """States on disk at regular intervals, Revolve in RAM in between. Aupy and Herrmann, 2017."""

    def __init__(self, max_n: int, snapshots_in_ram: int, uf: float = 1, ub: float = 1, wd: float = 2, rd: float = 2):
        super().__init__("periodic_disk", max_n, **_costs(snapshots_in_ram, uf, ub, wd, rd))


def _costs(in_ram: int, uf: float, ub: float, wd: float, rd: float, **capacity: int) -> dict[str, Any]:
    disk = {"name": "disk", "write_time": wd, "read_time": rd, **capacity}
    return {"slots": in_ram, "forward": uf, "backward": ub, "tiers": [disk], "sync": True}

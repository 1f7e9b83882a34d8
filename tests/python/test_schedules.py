# SPDX-License-Identifier: Apache-2.0
"""ebb.schedules: valid by an interpreter of the package's rules, within their slots, and as cheap as can be."""

import itertools
import math
import subprocess
import sys

import pytest

cs = pytest.importorskip("checkpoint_schedules", reason="the package checkpoint_schedules is not installed")
from schedule_on_paper import Paper  # noqa: E402

import ebb  # noqa: E402
from ebb import schedules  # noqa: E402

RAM, DISK = cs.StorageType.RAM, cs.StorageType.DISK
SIZES = [(1, 1), (2, 1), (3, 2), (5, 2), (10, 3), (10, 9), (50, 7), (100, 1), (100, 5), (250, 25)]


class Watched(Paper):
    """Also holds the schedule to what it says of itself while it goes."""

    def __init__(self, schedule):
        super().__init__(schedule.max_n)
        self.schedule = schedule
        self.tapes_in_work = 0

    def run(self, actions=None):
        assert (self.schedule.n, self.schedule.r, self.schedule.is_exhausted) == (0, 0, False)
        super().run(self.watched())
        assert self.schedule.is_exhausted
        with pytest.raises(StopIteration):
            next(self.schedule)
        for storage, most in self.most.items():
            assert self.schedule.uses_storage_type(storage) == (most > 0)

    def watched(self):
        for action in self.schedule:
            yield action
            assert self.at is None or self.schedule.n == self.at
            assert self.schedule.r == self.steps - self.left
            if isinstance(action, cs.Forward) and action.n1 == self.steps:
                self.schedule.finalize(self.steps)
            if self.work is not None:
                self.tapes_in_work = max(self.tapes_in_work, len(self.work[1]))


def watched(schedule):
    paper = Watched(schedule)
    paper.run()
    return paper


def seconds_of(schedule, uf, ub, wd, rd):
    """What a schedule costs by H-Revolve's model: forwards, backwards, and transfers to and from the disk."""
    seconds = 0.0
    for action in schedule:
        if isinstance(action, cs.Forward):
            seconds += uf * len(action) + (wd if action.storage is DISK else 0)
        elif isinstance(action, cs.Reverse):
            seconds += ub * len(action)
        elif isinstance(action, (cs.Copy, cs.Move)):
            seconds += (rd if action.from_storage is DISK else 0) + (wd if action.to_storage is DISK else 0)
    return seconds


def binomial_forwards(n, s):
    r = next(r for r in itertools.count() if math.comb(s + r, s) >= n)
    return n + (r * n - math.comb(s + r, r - 1) if r > 0 else 0)


@pytest.mark.parametrize("n, s", SIZES)
def test_revolve(n, s):
    paper = watched(schedules.Revolve(n, s))
    assert paper.forwards == binomial_forwards(n, s)
    assert paper.most[RAM] <= s and paper.most[DISK] == 0 and paper.tapes_in_work == 1


@pytest.mark.parametrize("n, s", [*SIZES, (1, 0)])
@pytest.mark.parametrize("in_ram", [0, 0.5, 1])
@pytest.mark.parametrize("trajectory", ["maximum", "revolve"])
@pytest.mark.sweep(11)
def test_multistage(n, s, in_ram, trajectory):
    ram = int(in_ram * s)
    paper = watched(schedules.MultistageCheckpointSchedule(n, ram, s - ram, trajectory=trajectory))
    assert paper.forwards == (binomial_forwards(n, s) if s else 1)
    assert paper.most[RAM] <= ram and paper.most[DISK] <= s - ram
    theirs = Paper(n)
    theirs.run(cs.MultistageCheckpointSchedule(n, ram, s - ram, trajectory=trajectory))
    assert paper.forwards == theirs.forwards


@pytest.mark.parametrize("n, s", [(1, 0), (2, 1), (5, 2), (10, 3), (40, 5), (100, 10)])
@pytest.mark.parametrize("storage", [RAM, DISK])
def test_mixed(n, s, storage):
    paper = watched(schedules.MixedCheckpointSchedule(n, s, storage=storage))
    theirs = Paper(n)
    theirs.run(cs.MixedCheckpointSchedule(n, s, storage=storage))
    assert paper.forwards == theirs.forwards
    assert paper.most[storage] <= s and paper.tapes_in_work == 1
    assert sum(paper.most.values()) == paper.most[storage]


@pytest.mark.parametrize(
    "n, ram, disk, uf, ub, transfer, cost",
    [
        (10, 1, 2, 1, 1, 2, 36),
        (10, 2, 2, 1, 1, 2, 30),
        (25, 2, 3, 1, 1, 2, 90),
        (25, 2, 3, 1, 2, 2, 115),
        (25, 2, 3, 1, 3, 20, 169),
        (25, 2, 3, 2, 1, 2, 143),
        (100, 5, 5, 1, 1, 2, 357),
        (100, 5, 5, 1, 2, 2, 457),
        (100, 5, 5, 1, 3, 20, 616),
        (100, 5, 5, 2, 1, 2, 594),
    ],
)
def test_h_revolve_costs_what_was_published(n, ram, disk, uf, ub, transfer, cost):
    words = {"uf": uf, "ub": ub, "wd": transfer, "rd": transfer}
    schedule = schedules.HRevolve(n, ram, disk, **words)
    assert schedule.plan.seconds == pytest.approx(cost + n * uf)
    paper = watched(schedule)
    assert paper.most[RAM] <= ram and paper.most[DISK] <= disk
    # Counted from the schedule itself, not from the plan.
    said = seconds_of(schedules.HRevolve(n, ram, disk, **words), uf, ub, transfer, transfer)
    assert said == pytest.approx(cost + n * uf)


@pytest.mark.parametrize("kind", ["DiskRevolve", "PeriodicDiskRevolve"])
@pytest.mark.parametrize("n, s", [(1, 1), (5, 1), (25, 2), (60, 3), (100, 5)])
def test_a_disk_without_limit(kind, n, s):
    paper = watched(getattr(schedules, kind)(n, s))
    assert paper.most[RAM] <= s
    ours = seconds_of(getattr(schedules, kind)(n, s), 1, 1, 2, 2)
    theirs = seconds_of(getattr(cs, kind)(n, s), 1, 1, 2, 2)
    assert ours <= theirs + 1e-9


@pytest.mark.parametrize("strategy", ["store_all", "sqrt", "levels", "double_local", "constant", "online"])
@pytest.mark.parametrize("n", [1, 2, 30])
def test_any_strategy(strategy, n):
    schedule = schedules.Schedule(strategy, n, budget=100)
    assert watched(schedule).forwards == schedule.plan.forwards


def test_mistakes_are_named():
    with pytest.raises(ebb.Error, match="cannot be said in checkpoint_schedules"):
        schedules.Schedule("ism", 10, budget=5)
    with pytest.raises(ebb.Error, match="max_n is 0"):
        schedules.Revolve(0, 1)
    with pytest.raises(ebb.Error) as found:
        schedules.Revolve(10, 0)
    assert found.value.code == "infeasible_budget"
    with pytest.raises(ebb.Error, match="trajectory"):
        schedules.MultistageCheckpointSchedule(3, 1, 1, trajectory="parabola")
    with pytest.raises(ebb.Error, match="storage"):
        schedules.MixedCheckpointSchedule(3, 1, storage=cs.StorageType.WORK)
    with pytest.raises(RuntimeError, match="Invalid checkpointing state"):
        schedules.Revolve(3, 1).finalize(5)


def test_without_the_package_it_says_what_to_install():
    code = (
        "import sys; sys.modules['checkpoint_schedules'] = None\n"
        "import ebb\n"
        "try:\n    ebb.schedules\nexcept ebb.Error as error:\n    print(error.code, error)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.startswith("unavailable ") and "pip install checkpoint-schedules" in done.stdout

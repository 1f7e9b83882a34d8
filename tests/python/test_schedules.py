# SPDX-License-Identifier: Apache-2.0
"""ebb.schedules: valid by an interpreter of the package's rules, within their slots, and as cheap as can be."""

import importlib
import inspect
import itertools
import json
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


@pytest.mark.parametrize("n", [10, 30])
@pytest.mark.parametrize(
    "words",
    [
        {"budget": 5},
        {"budget": 20, "tape": 4},
        {"budget": 5, "tiers": ["a:capacity=20,write=1,read=2", "b:write=1,read=0.5"]},
    ],
)
def test_auto_takes_the_fastest_plan_that_can_be_said(n, words):
    with pytest.raises(ebb.Error, match="cannot be said"):
        schedules.Schedule(ebb.plan(n, **words).strategy, n, **words)
    schedule = schedules.Schedule("auto", n, **words)
    assert watched(schedule).forwards == schedule.plan.forwards
    for row in ebb.strategies():
        try:
            other = schedules.Schedule(row.name, n, **words)
        except ebb.Error:
            continue  # does not fit, or cannot be said
        assert schedule.plan.seconds <= other.plan.seconds


def test_auto_says_which_budget_would_work():
    with pytest.raises(ebb.Error) as found:
        schedules.Schedule("auto", 10, budget=1)
    assert found.value.code == "infeasible_budget"
    schedules.Schedule("auto", 10, budget=found.value.least_budget)


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
    with pytest.raises(ebb.Error, match="n is 5, but the forward stands at step 0 of 3"):
        schedules.Revolve(3, 1).finalize(5)
    with pytest.raises(ebb.Error, match="period is 0"):
        schedules.TwoLevelCheckpointSchedule(0, 1)
    with pytest.raises(ebb.Error, match="binomial_storage"):
        schedules.TwoLevelCheckpointSchedule(3, 1, binomial_storage=cs.StorageType.WORK)
    with pytest.raises(ebb.Error, match="binomial_trajectory"):
        schedules.TwoLevelCheckpointSchedule(3, 1, binomial_trajectory="parabola")
    with pytest.raises(ebb.Error, match="s is 0"):
        schedules.optimal_steps_binomial(3, 0)
    unknown = schedules.SingleMemoryStorageSchedule()
    next(unknown)
    with pytest.raises(ebb.Error, match="call finalize"):
        next(unknown)


# Names of modules and functions for the sequences behind the schedules, which we refuse.
SEQUENCES = [
    "basic_functions",
    "disk_revolve",
    "hrevolve",
    "hrevolve_sequences",
    "periodic_disk_revolve",
    "revolve",
    "revolve_1d",
    "utils",
]
MODULES = ["basic_schedules", "hrevolve", "mixed", "multistage", "schedule", "twolevel_binomial"]


def test_every_public_name_is_there():
    public = {name for name in dir(cs) if not name.startswith("_")}
    assert public - set(MODULES) - set(SEQUENCES) == set(schedules.__all__) - {"Schedule"}
    for module in MODULES:
        ours, theirs = (
            importlib.import_module(f"{home}.{module}") for home in ("ebb.schedules", "checkpoint_schedules")
        )
        assert set(ours.__all__) == set(theirs.__all__)
        assert all(getattr(ours, name) is getattr(schedules, name) for name in theirs.__all__)


@pytest.mark.parametrize("name", SEQUENCES)
def test_sequences_are_refused_by_name(name):
    with pytest.raises(ebb.Error, match=f"has no {name}: .* take the schedule .*Revolve"):
        getattr(schedules, name)


def called(value):
    return [(one.name, one.kind, one.default) for one in inspect.signature(value).parameters.values()]


@pytest.mark.parametrize("name", sorted(set(schedules.__all__) - {"Schedule", "StorageType"}))
def test_signatures_are_theirs(name):
    assert called(getattr(schedules, name)) == called(getattr(cs, name))


def test_it_is_taken_for_theirs():
    kinds = [
        schedules.Revolve(3, 1),
        schedules.HRevolve(3, 1, 1),
        schedules.DiskRevolve(3, 1),
        schedules.PeriodicDiskRevolve(3, 1),
        schedules.MultistageCheckpointSchedule(3, 1, 1),
        schedules.MixedCheckpointSchedule(3, 1),
        schedules.TwoLevelCheckpointSchedule(2, 1),
        schedules.SingleMemoryStorageSchedule(),
        schedules.SingleDiskStorageSchedule(),
        schedules.NoneCheckpointSchedule(),
    ]
    for schedule in kinds:
        assert isinstance(schedule, getattr(cs, type(schedule).__name__))
        assert not schedule.is_running and isinstance(next(schedule), cs.Forward) and schedule.is_running
    assert isinstance(schedules.Schedule("sqrt", 9), cs.CheckpointSchedule)
    assert not isinstance(schedules.Revolve(3, 1), cs.HRevolve)


@pytest.mark.parametrize("n", [1, 2, 5, 10, 25])
@pytest.mark.parametrize("s", [1, 2, 5, 12])
@pytest.mark.parametrize("uf, ub, wd, rd", [(1, 1, 2, 2), (1, 2, 5, 5), (2, 1, 3, 1), (1, 1, 0.5, 0.5)])
@pytest.mark.sweep(11)
def test_never_costlier_than_theirs(n, s, uf, ub, wd, rd, capfd):
    costs = (uf, ub, wd, rd)
    kinds = [("Revolve", ()), ("DiskRevolve", ()), ("PeriodicDiskRevolve", ()), ("HRevolve", (1,)), ("HRevolve", (4,))]
    for name, disk in kinds:
        ours = list(getattr(schedules, name)(n, s, *disk, *costs))
        paper = Paper(n)
        paper.run(ours)
        assert paper.most[RAM] <= s and paper.most[DISK] <= (disk[0] if disk else n)
        if name == "HRevolve" and n == 1:
            continue  # theirs ends in an IndexError
        theirs = list(getattr(cs, name)(n, s, *disk, *costs))
        assert seconds_of(ours, *costs) <= seconds_of(theirs, *costs) + 1e-9


@pytest.mark.parametrize("n", [1, 2, 3, 7, 40])
@pytest.mark.parametrize("s", [1, 2, 5, 50])
def test_optimal_steps_binomial(n, s):
    assert schedules.optimal_steps_binomial(n, s) == cs.optimal_steps_binomial(n, s)
    assert schedules.optimal_steps_binomial(1, 0) == cs.optimal_steps_binomial(1, 0)


class Online(Paper):
    """Runs a schedule that learns the number of steps when they have been run, for some adjoint calculations."""

    def __init__(self, steps, schedule, calculations):
        super().__init__(steps)
        self.schedule = schedule
        self.calculations = calculations

    def run(self, actions=None):
        assert (self.schedule.max_n, self.schedule.n, self.schedule.r) == (None, 0, 0)
        for action in self.schedule:
            getattr(self, type(action).__name__)(action)
            for storage, held in self.stores.items():
                self.most[storage] = max(self.most[storage], len(held))
            if self.calculations == 0:
                break
        for storage, most in self.most.items():
            assert self.schedule.uses_storage_type(storage) or most == 0

    def Forward(self, a):
        if self.forward_ended:
            return super().Forward(a)
        super().Forward(cs.Forward(a.n0, min(a.n1, self.steps), *a.args[2:]))
        assert self.schedule.n == a.n1
        if a.n1 >= self.steps:
            self.schedule.finalize(self.steps)
            assert self.schedule.n == self.schedule.max_n == self.steps

    def Reverse(self, a):
        work = self.work
        super().Reverse(cs.Reverse(a.n1, a.n0, True))
        self.work = None if a.clear_adj_deps else work
        assert self.schedule.r == self.steps - self.left

    def EndReverse(self, a):
        assert self.left == 0
        self.left = self.steps
        self.calculations -= 1


def online(kind, n, *args, calculations=3, **words):
    """Ours on paper, and what theirs costs in one adjoint calculation."""
    ours = Online(n, getattr(schedules, kind)(*args, **words), calculations)
    ours.run()
    theirs, forwards = getattr(cs, kind)(*args, **words), []
    for action in theirs:
        if isinstance(action, cs.Forward):
            forwards.append(min(action.n1, n) - action.n0)
            if theirs.max_n is None and action.n1 >= n:
                theirs.finalize(n)
        if isinstance(action, cs.EndReverse):
            break
    return ours, sum(forwards)


@pytest.mark.parametrize("n", [1, 2, 7, 9, 20])
@pytest.mark.parametrize("period, snapshots", [(1, 0), (3, 0), (3, 1), (4, 9), (10, 2), (30, 3)])
@pytest.mark.parametrize("storage", [RAM, DISK])
@pytest.mark.parametrize("trajectory", ["maximum", "revolve"])
def test_two_level(n, period, snapshots, storage, trajectory):
    words = {"binomial_storage": storage, "binomial_trajectory": trajectory}
    once, theirs = online("TwoLevelCheckpointSchedule", n, period, snapshots, calculations=1, **words)
    assert once.forwards == theirs
    thrice, _ = online("TwoLevelCheckpointSchedule", n, period, snapshots, **words)
    assert thrice.forwards - n == 3 * (theirs - n)
    on_disk = math.ceil(n / period)
    assert thrice.most[DISK] <= on_disk + (snapshots if storage is DISK else 0)
    assert thrice.most[RAM] <= (snapshots if storage is RAM else 0)
    assert sorted(thrice.stores[DISK]) == list(range(0, n, period)) and not thrice.stores[RAM]
    assert not thrice.schedule.is_exhausted


@pytest.mark.parametrize("n", [1, 2, 7])
def test_schedules_that_keep_everything(n):
    in_memory, theirs = online("SingleMemoryStorageSchedule", n)
    assert in_memory.forwards == theirs == n and sum(in_memory.most.values()) == 0
    on_disk, theirs = online("SingleDiskStorageSchedule", n)
    assert on_disk.forwards == theirs == n and on_disk.most == {RAM: 0, DISK: n}
    assert not in_memory.schedule.is_exhausted and not on_disk.schedule.is_exhausted
    moved, theirs = online("SingleDiskStorageSchedule", n, True, calculations=1)
    assert moved.forwards == theirs == n and not moved.stores[DISK]
    assert moved.schedule.is_exhausted and list(moved.schedule) == []


def test_no_adjoint_calculation():
    schedule = schedules.NoneCheckpointSchedule()
    assert repr(next(schedule)) == "Forward(0, sys.maxsize, False, False, StorageType.NONE)"
    schedule.finalize(4)
    assert [repr(action) for action in schedule] == ["EndForward()"]
    assert schedule.is_exhausted and schedule.max_n == 4
    assert not any(schedule.uses_storage_type(storage) for storage in cs.StorageType)


SHOWN = """
import itertools, json, sys
from ebb.schedules import *
def shown(schedule):
    for action in itertools.islice(schedule, 60):
        if isinstance(action, Forward) and schedule.max_n is None and action.n1 >= 7:
            schedule.finalize(7)
        yield [repr(action), schedule.n, schedule.r, schedule.is_exhausted]
made = [Revolve(7, 2), HRevolve(9, 1, 2, wd=0.1, rd=0.1), DiskRevolve(9, 1), PeriodicDiskRevolve(9, 1), Schedule("sqrt", 9),
        MultistageCheckpointSchedule(9, 1, 1), MixedCheckpointSchedule(6, 2), TwoLevelCheckpointSchedule(3, 1),
        SingleMemoryStorageSchedule(), SingleDiskStorageSchedule(), SingleDiskStorageSchedule(True), NoneCheckpointSchedule()]
used = [[made.uses_storage_type(storage) for storage in StorageType] for made in made]
stretch = Forward(2, 5, True, False, StorageType.RAM), Reverse(5, 2, True)
words = [[list(one), len(one), 4 in one, 5 in one, one.n0, one.n1] for one in stretch]
print(json.dumps([[list(shown(schedule)) for schedule in made], used, words, [one.value for one in StorageType]]))
print("checkpoint_schedules" in sys.modules and sys.modules["checkpoint_schedules"] is not None, file=sys.stderr)
"""


def test_the_package_need_not_be_installed():
    """And with it or without it the schedules are the same."""
    without = "import sys; sys.modules['checkpoint_schedules'] = None\n" + SHOWN
    (ours, there), (plain, missing) = (
        (json.loads(done.stdout), done.stderr.strip())
        for done in (
            subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
            for code in (SHOWN, without)
        )
    )
    assert (there, missing) == ("True", "False")
    assert ours == plain


def test_words_of_our_own():
    from ebb.schedules import _words

    one = _words.Forward(0, 3, True, False, _words.StorageType.RAM)
    assert one == _words.Forward(0, 3, True, False, _words.StorageType.RAM) and one != _words.EndForward()
    assert len({one, _words.Forward(0, 3, True, False, _words.StorageType.RAM)}) == 1
    assert _words.Copy(1, *(_words.StorageType.RAM,) * 2) != _words.Move(1, *(_words.StorageType.RAM,) * 2)
    for name in ("Forward", "Reverse", "Copy", "Move", "EndForward", "EndReverse", "CheckpointAction"):
        assert called(getattr(_words, name)) == called(getattr(cs, name))
    assert [(one.name, one.value) for one in _words.StorageType] == [(one.name, one.value) for one in cs.StorageType]

# SPDX-License-Identifier: Apache-2.0
"""`ebb plan --format checkpoint_schedules` read back into the package's own classes and run on paper.

The interpreter below follows the package's documentation of its actions: WORK holds one thing at a time, a checkpoint
holds what the Forward that wrote it stored, and it restarts no further than that Forward went.
"""

import json
import os
import subprocess

import pytest

cs = pytest.importorskip("checkpoint_schedules", reason="the package checkpoint_schedules is not installed")
EBB = os.environ.get("EBB_BINARY")
pytestmark = pytest.mark.skipif(not EBB, reason="EBB_BINARY does not name the program ebb")

STORAGES = ("storage", "from_storage", "to_storage")


def ebb(*words):
    done = subprocess.run([EBB, "plan", *map(str, words)], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return [json.loads(line) for line in done.stdout.splitlines()]


def exported(*words):
    """The plan as actions of the package, and ebb's own summary of it."""
    summary, *lines = ebb(*words, "--json", "--format", "checkpoint_schedules")
    actions = []
    for line in lines:
        kind = getattr(cs, line.pop("action"))
        actions.append(kind(**{k: cs.StorageType[v] if k in STORAGES else v for k, v in line.items()}))
    return actions, summary


class Paper:
    """Runs a schedule on paper and remembers what it cost."""

    def __init__(self, steps):
        self.steps = steps
        self.at = 0  # where the forward stands; None when it cannot go on
        self.left = steps  # steps not yet reversed
        self.work = None  # what WORK holds: (restart steps, adjoint data steps)
        self.stores = {cs.StorageType.RAM: {}, cs.StorageType.DISK: {}}
        self.most = {storage: 0 for storage in self.stores}
        self.forwards = 0
        self.forward_ended = False
        self.reverse_ended = False

    def run(self, actions):
        for action in actions:
            assert not self.reverse_ended, "an action after the end"
            getattr(self, type(action).__name__)(action)
            for storage, held in self.stores.items():
                self.most[storage] = max(self.most[storage], len(held))
        assert self.reverse_ended

    def Forward(self, a):
        assert a.n0 == self.at and a.n0 < a.n1 <= self.left
        steps = set(range(a.n0, a.n1))
        kept = (steps if a.write_ics else set(), steps if a.write_adj_deps else set())
        self.work = None
        if a.storage in self.stores:
            assert a.write_ics or a.write_adj_deps
            assert a.n0 not in self.stores[a.storage], "a checkpoint overwritten"
            self.stores[a.storage][a.n0] = kept
        else:
            assert a.storage == cs.StorageType.WORK
            self.work = kept if any(kept) else None
        self.at = a.n1
        self.forwards += len(steps)

    def Reverse(self, a):
        assert a.n1 == self.left and a.n0 < a.n1 and a.clear_adj_deps
        assert self.forward_ended and self.work is not None
        assert self.work[1] >= set(range(a.n0, a.n1)), "adjoint data missing"
        self.work = None
        self.left = a.n0

    def transfer(self, a, kept):
        assert self.work is None, "WORK is taken"
        if a.to_storage in self.stores:
            assert a.n not in self.stores[a.to_storage]
            self.stores[a.to_storage][a.n] = kept
        elif a.to_storage == cs.StorageType.WORK:
            assert a.n < self.left
            if kept[0]:
                assert kept[0] >= set(range(a.n, self.left)), "the checkpoint does not reach that far"
            self.at = a.n if kept[0] else None
            self.work = kept
        else:
            assert a.to_storage == cs.StorageType.NONE and isinstance(a, cs.Move)

    def Copy(self, a):
        self.transfer(a, self.stores[a.from_storage][a.n])

    def Move(self, a):
        self.transfer(a, self.stores[a.from_storage].pop(a.n))

    def EndForward(self, a):
        assert self.at == self.steps and not self.forward_ended
        self.forward_ended = True

    def EndReverse(self, a):
        assert self.left == 0
        assert not any(self.stores.values()), "checkpoints left behind"
        self.reverse_ended = True


def check(steps, *words):
    fits = subprocess.run([EBB, "plan", "--steps", str(steps), *map(str, words)], capture_output=True)
    if fits.returncode == 3:
        pytest.skip("does not fit")
    actions, summary = exported("--steps", steps, *words)
    paper = Paper(steps)
    paper.run(actions)
    assert paper.forwards == summary["forwards"]
    return paper, summary


@pytest.mark.parametrize("strategy", ["revolve", "hsm"])
@pytest.mark.parametrize("steps, slots", [(1, 1), (2, 1), (3, 2), (5, 2), (10, 3), (50, 7), (100, 1), (250, 25)])
def test_states_in_ram(strategy, steps, slots):
    paper, summary = check(steps, "--strategy", strategy, "--slots", slots)
    assert paper.most[cs.StorageType.RAM] <= slots
    assert paper.most[cs.StorageType.DISK] == 0


@pytest.mark.parametrize("steps, slots", [(10, 3), (50, 7), (100, 5), (250, 25)])
def test_as_few_forwards_as_the_package(steps, slots):
    theirs = Paper(steps)
    theirs.run(cs.MultistageCheckpointSchedule(steps, slots, 0))
    ours, _ = check(steps, "--strategy", "revolve", "--slots", slots)
    assert ours.forwards == theirs.forwards


@pytest.mark.parametrize("strategy", ["h_revolve", "disk_revolve", "periodic_disk"])
@pytest.mark.parametrize("steps, slots, disk", [(5, 1, 4), (10, 1, 2), (25, 2, 3), (60, 3, 50), (100, 5, 90)])
def test_states_in_ram_and_on_disk(strategy, steps, slots, disk):
    tier = f"disk:slots={disk},write_time=2,read_time=2"
    paper, _ = check(steps, "--strategy", strategy, "--slots", slots, "--sync", "--tier", tier)
    assert paper.most[cs.StorageType.RAM] <= slots
    assert paper.most[cs.StorageType.DISK] <= disk


@pytest.mark.parametrize("steps", [1, 2, 7, 30, 100])
@pytest.mark.parametrize("budget", [3, 4, 6, 12, 60])
@pytest.mark.parametrize("strategy", ["constant", "revolve", "store_all", "sqrt", "single_local", "double_local", "levels"])
def test_a_budget_in_bytes(strategy, steps, budget):
    check(steps, "--strategy", strategy, "--budget", budget)


@pytest.mark.parametrize("steps", [1, 2, 10, 33, 100])
@pytest.mark.parametrize(
    "words", [("async", "--slots", 5), ("single_remote", "--budget", 20), ("double", "--budget", 20)], ids=lambda w: w[0]
)
def test_transfers_ahead(words, steps):
    check(steps, "--strategy", *words, "--tier", "disk:write_time=3,read_time=2")


@pytest.mark.parametrize("steps, units", [(2, 1), (5, 2), (10, 3), (40, 5)])
def test_states_and_tapes_in_ram(steps, units):
    theirs = Paper(steps)
    theirs.run(cs.MixedCheckpointSchedule(steps, units, storage=cs.StorageType.RAM))
    ours, _ = check(steps, "--strategy", "mixed", "--budget", units, "--working", 0)
    assert ours.forwards == theirs.forwards
    assert ours.most[cs.StorageType.RAM] <= units


def test_what_cannot_be_said_is_refused():
    words = ["plan", "--steps", "10", "--strategy", "ism", "--budget", "5", "--format", "checkpoint_schedules"]
    done = subprocess.run([EBB, *words], capture_output=True, text=True)
    assert done.returncode == 2
    assert done.stdout == ""
    assert "cannot be said in checkpoint_schedules" in done.stderr

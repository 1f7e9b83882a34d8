# SPDX-License-Identifier: Apache-2.0
"""`ebb plan --format checkpoint_schedules` read back into the package's own classes and run on paper."""

import json
import os
import subprocess

import pytest

cs = pytest.importorskip("checkpoint_schedules", reason="the package checkpoint_schedules is not installed")
from schedule_on_paper import Paper  # noqa: E402

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
@pytest.mark.sweep(8)
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
@pytest.mark.sweep(8)
def test_states_in_ram_and_on_disk(strategy, steps, slots, disk):
    tier = f"disk:slots={disk},write_time=2,read_time=2"
    paper, _ = check(steps, "--strategy", strategy, "--slots", slots, "--sync", "--tier", tier)
    assert paper.most[cs.StorageType.RAM] <= slots
    assert paper.most[cs.StorageType.DISK] <= disk


@pytest.mark.parametrize("steps", [1, 2, 7, 30, 100])
@pytest.mark.parametrize("budget", [3, 4, 6, 12, 60])
@pytest.mark.parametrize(
    "strategy", ["constant", "revolve", "store_all", "sqrt", "single_local", "double_local", "levels"]
)
@pytest.mark.sweep(9)
def test_a_budget_in_bytes(strategy, steps, budget):
    check(steps, "--strategy", strategy, "--budget", budget)


@pytest.mark.parametrize("steps", [1, 2, 10, 33, 100])
@pytest.mark.parametrize(
    "words",
    [("async", "--slots", 5), ("single_remote", "--budget", 20), ("double", "--budget", 20)],
    ids=lambda w: w[0],
)
@pytest.mark.sweep(8)
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

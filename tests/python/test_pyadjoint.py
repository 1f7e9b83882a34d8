# SPDX-License-Identifier: Apache-2.0
"""Tapes of pyadjoint with ebb's schedules: the gradients of a tape that keeps everything, bit for bit."""

import pytest

pyadjoint = pytest.importorskip("pyadjoint", reason="the package pyadjoint-ad is not installed")
from ebb import schedules  # noqa: E402

STEPS = 20
RAM = schedules.StorageType.RAM


def values_and_gradients(schedule=None):
    """Of a misfit as a function of the first value: where it was taped, elsewhere, and there again."""
    tape = pyadjoint.Tape()
    pyadjoint.set_working_tape(tape)
    pyadjoint.continue_annotation()
    if schedule is not None:
        tape.enable_checkpointing(schedule)
    first = u = pyadjoint.AdjFloat(0.1)
    loss = pyadjoint.AdjFloat(0.0)
    for _ in tape.timestepper(iter(range(STEPS))):
        u = u + 0.125 * u * (1.0 - u)
        loss = loss + (u - 0.5) * (u - 0.5)
    pyadjoint.pause_annotation()
    misfit = pyadjoint.ReducedFunctional(loss, pyadjoint.Control(first))
    found = [float(loss), float(misfit.derivative())]
    for elsewhere in (0.2, 0.1):
        found += [float(misfit(pyadjoint.AdjFloat(elsewhere))), float(misfit.derivative())]
    return found


@pytest.mark.parametrize(
    "schedule",
    [
        lambda: schedules.Revolve(STEPS, 3),
        lambda: schedules.Revolve(STEPS, 1),
        lambda: schedules.MultistageCheckpointSchedule(STEPS, 3, 0),
        lambda: schedules.HRevolve(STEPS, 3, 0),
        lambda: schedules.MixedCheckpointSchedule(STEPS, 4, storage=RAM),
        lambda: schedules.SingleMemoryStorageSchedule(),
        lambda: schedules.Schedule("auto", STEPS, budget=5),
        lambda: schedules.Schedule("auto", STEPS, budget=10),
        lambda: schedules.Schedule("store_all", STEPS),
        lambda: schedules.Schedule("levels", STEPS, budget=8),
    ],
)
def test_gradients_are_those_without_a_schedule(schedule):
    found = values_and_gradients(schedule())
    assert found == values_and_gradients()
    assert found[:2] == found[4:] and found[1] != found[3]


@pytest.mark.parametrize(
    "schedule",
    [lambda: schedules.TwoLevelCheckpointSchedule(5, 1, binomial_storage=RAM), lambda: schedules.HRevolve(STEPS, 1, 2)],
)
def test_a_disk_that_is_not_there_is_refused(schedule):
    with pytest.raises(pyadjoint.checkpointing.CheckpointError, match="disk checkpointing but it is not configured"):
        pyadjoint.Tape().enable_checkpointing(schedule())

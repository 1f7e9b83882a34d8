# SPDX-License-Identifier: Apache-2.0
"""Which populations of hares and lynxes, 100 steps ago, explain what is counted today? By pyadjoint, with ebb's schedule.

pyadjoint (`pip install pyadjoint-ad`) records the steps on a tape and derives the gradient with respect to the first
populations. Its tape would keep all 100 states; with one line, `enable_checkpointing`, it keeps six and computes the rest
again.
"""

import contextlib
import io

from pyadjoint import (
    AdjFloat,
    Control,
    ReducedFunctional,
    Tape,
    continue_annotation,
    pause_annotation,
    set_working_tape,
    taylor_test,
)

from ebb.schedules import Revolve  # in place of: from checkpoint_schedules import Revolve

STEPS, SLOTS = 100, 6
COUNTED = 0.9, 1.3


def misfit(schedule=None):
    """How far the last populations are from the counted ones, as a function of the first."""
    tape = Tape()
    set_working_tape(tape)
    continue_annotation()
    if schedule is not None:
        tape.enable_checkpointing(schedule)
    first = hares, lynxes = AdjFloat(1.4), AdjFloat(0.7)
    for _ in tape.timestepper(iter(range(STEPS))):
        eaten = 0.05 * hares * lynxes
        hares, lynxes = hares + 0.05 * hares - eaten, lynxes + eaten - 0.05 * lynxes
    loss = (hares - COUNTED[0]) ** 2 + (lynxes - COUNTED[1]) ** 2
    pause_annotation()
    return ReducedFunctional(loss, [Control(population) for population in first])


def main():
    schedule = Revolve(STEPS, SLOTS)
    plain, kept = misfit(), misfit(schedule)
    gradient = [float(part) for part in kept.derivative()]
    same = gradient == [float(part) for part in plain.derivative()]
    with contextlib.redirect_stdout(io.StringIO()):
        rate = taylor_test(kept, [AdjFloat(1.4), AdjFloat(0.7)], [AdjFloat(1.0), AdjFloat(-0.5)])
    print(f"{schedule.plan.forwards} steps forward with {SLOTS} of {STEPS} states kept")
    print(f"gradient {gradient[0]:.6f} {gradient[1]:.6f}; without the schedule: {'the same' if same else 'another'}")
    print(f"Taylor test: the remainder falls with order {rate:.2f}")


if __name__ == "__main__":
    main()

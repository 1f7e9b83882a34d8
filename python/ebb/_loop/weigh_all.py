# SPDX-License-Identifier: Apache-2.0
"""The heaviest block of a loop, where the first is not."""

from __future__ import annotations

import sys
from dataclasses import replace

import torch

from ebb._base.errors import Error
from ebb._loop.arguments import Options, remedy_of
from ebb._loop.blocks import Leaves
from ebb._loop.costs import measure
from ebb._loop.recorder import Recorder
from ebb._loop.remembered import Remembered
from ebb._loop.surprises import TooHeavy
from ebb._loop.tape import State, Tape, Weight


def weigh_all(recorder: Recorder, start: Leaves, known: Remembered, options: Options, device: torch.device) -> None:
    """Records every block once, each tape dropped before the next, measures the heaviest and remembers it. The surroundings are
    as where the loop begins, and afterwards as they happen to be."""
    blocks, around = recorder.blocks, recorder.around
    live, heaviest, weight = start, None, known.weight
    block = 0
    while block < blocks.count or options.unknown:
        if block > 0 and options.until is not None and options.until(live):
            break
        around.fresh_casts()
        before = State(live, around.snapshot())
        tape, more = _weighed(recorder, block, live, weight, options)
        if more is not None:
            heaviest, weight = (block, before), more
        live = tape.after.leaves
        del tape, before
        block += 1
    known.outweighed = False
    known.weight = weight
    if heaviest is None:
        return
    block, state = heaviest
    around.restore(state.snapshot)
    costs = measure(recorder, state.leaves, weight.bytes, known.costs.state, device, block, forms=around.outside.forms)
    known.costs = replace(costs, live=known.costs.live, scratch=max(costs.scratch, known.costs.scratch))


def _weighed(
    recorder: Recorder, block: int, live: Leaves, most: Weight, options: Options
) -> tuple[Tape, Weight | None]:
    if recorder.facts.tape_codec is not None:
        tape, found = recorder.recorded(block, live)
        return tape, None if found <= most.bytes else Weight(found)
    # A time step alone is weighed whatever it weighs, so that it can be said how much it needs.
    cap = options.budget.total if recorder.blocks.divisible and options.budget.settled else sys.maxsize
    try:
        tape, _, more = recorder.weighed(block, live, most, cap)
    except TooHeavy:
        raise Error(
            f"{recorder.blocks.name}: what block {block} keeps for its backward is more than the budget of {options.budget!r}",
            "infeasible_budget",
            remedy=remedy_of(options.strategy),
        ) from None
    return tape, more

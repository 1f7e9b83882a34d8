# SPDX-License-Identifier: Apache-2.0
"""How many time steps the blocks have that run as CUDA graphs: their pool grows with them, their tapes do not."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import Any

from ebb import _core
from ebb._base.cache import Section, cache
from ebb._loop.capturing import Captured
from ebb._loop.costs import Costs
from ebb._loop.cut import Terms, ranked

# Seconds beside the kernels of a block, to copy what goes in and to launch it: measured on an H200 with blocks of 8 to 50 steps.
_FORWARD, _BACKWARD = 4e-5, 1e-4
_MOST = 3  # lengths that are tried


@dataclass
class _Choice:
    length: int | None  # None: none fits
    tried: set[int] = field(default_factory=set)


_choices: Section[_Choice] = cache.section()


def chosen_before(key: Any) -> int | None:
    found = _choices.get(key)
    return None if found is None else found.length


def choose(key: Any, steps: int, length: int, captured: Captured, tape: float, limit: int, strategy: str) -> None:
    """For the next call: the length that is the fastest by what graphs of `length` time steps have shown. `tape`: bytes that a time
    step keeps for its backward, by which a pool grows."""
    if captured.costs is None:
        return
    choice = _choices.get_or(key, lambda: _Choice(length))
    if length in choice.tried or len(choice.tried) >= _MOST:
        return
    choice.tried.add(length)
    costs = captured.costs
    terms = Terms(lambda other: _at(costs, length, other, tape).step_cost(), _core.Platform(fast=limit))
    best = ranked(steps, [terms], strategy, length)[0]
    how = _core.PlanOptions()
    how.strategy, how.tapes_stay = "revolve", True
    least = _core.least_budget(terms.chain(steps, best), terms.platform, how)
    choice.length = best if least is not None and least <= limit else None


def _at(costs: Costs, length: int, other: int, tape: float) -> Costs:
    def grown(seconds: float, fixed: float) -> float:
        fixed = min(fixed, seconds / 2)
        return fixed + (seconds - fixed) * other / length

    return replace(
        costs,
        scratch=max(0, costs.scratch + int((other - length) * tape)),
        forward=grown(costs.forward, _FORWARD),
        record=grown(costs.record, _FORWARD),
        backward=grown(costs.backward, _BACKWARD),
    )

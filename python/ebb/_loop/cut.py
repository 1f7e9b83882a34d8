# SPDX-License-Identifier: Apache-2.0
"""How many time steps a block has: as many as make the fastest plan that fits, by what blocks cost by their length."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

from ebb import _core
from ebb._base.errors import Error

# Planned in a millisecond, where "auto" takes up to seconds. "revolve" needs no more bytes than "auto" does, and a length that is the
# fastest by these is it by "auto" too, or nearly.
_QUICK = ("store_all", "revolve", "ism", "sqrt")
_QUICK_OVER_TIERS = ("single_remote", "disk_revolve")
_CLOSER, _CLOSER_BLOCKS = "levels", 2048  # some 50 ms, for the first few, where those leave it open
_FEW, _OPEN = 3, 1.2
_BLOCKS = 256  # for a strategy that the caller names, whose tables may take seconds for more
_WORTH = 1.1  # how much faster another length must be than the usual one, which has been examined
_NEVER = float("inf")


@dataclass(frozen=True)
class Terms:
    """What blocks cost by how many time steps they have, on a platform. Longer ones take more bytes."""

    cost: Callable[[int], _core.StepCost]
    platform: _core.Platform

    def chain(self, steps: int, length: int) -> _core.Chain:
        return _core.Chain.uniform(-(-steps // length), self.cost(length))


def lengths(steps: int) -> list[int]:
    """Among which is chosen, the longest first: as even as can be in 2, 3, 4, 6, 9 blocks, and so on, each time half as many more."""
    found, blocks = {1}, 2
    while blocks < steps:
        found.add(-(-steps // blocks))
        blocks += max(1, blocks // 2)
    return sorted(found, reverse=True)


def ranked(steps: int, terms: Sequence[Terms], strategy: str, usual: int | None = None) -> list[int]:
    """The lengths that fit, the fastest first, and last, where it is not the first, the one that needs least, fit or not. The terms
    are alternatives: a plan keeps to one of them. `usual`: a length that is taken unless another is clearly faster."""
    auto = strategy == "auto"
    seconds: dict[int, float] = {}
    for length in sorted({*lengths(steps), usual or 1}, reverse=True):
        if not auto and seconds and -(-steps // length) > _BLOCKS:
            break
        found = min(_seconds(steps, length, each, strategy) for each in terms)
        if found < _NEVER:
            seconds[length] = found
    best = sorted(seconds, key=lambda length: seconds[length])
    first = [length for length in best if auto and seconds[length] <= _OPEN * seconds[best[0]]][:_FEW]
    for length in first if len(first) > 1 else []:
        if -(-steps // length) <= _CLOSER_BLOCKS:
            seconds[length] = min(seconds[length], *(_planned(steps, length, each, _CLOSER) for each in terms))
    if usual is not None:
        # To examine a block takes as long as about ten of them, which is to pay in ten calls.
        for length in best:
            if length != usual:
                seconds[length] = _WORTH * seconds[length] + _once(terms[0].cost(length))
    best.sort(key=lambda length: seconds[length])
    last = needs_least(steps, terms, strategy)[0]
    return [last] if best[:1] == [last] else [length for length in best if length != last] + [last]


def needs_least(steps: int, terms: Sequence[Terms], strategy: str) -> tuple[int, int]:
    """The length that needs least, and its bytes."""
    auto = strategy == "auto"
    found = []
    for length in [1] if auto else lengths(steps):
        for each in terms:
            how = _options("revolve" if auto else strategy)
            needed = _core.least_budget(each.chain(steps, length), each.platform, how)
            if needed is not None:
                found.append((needed, length))
    needed, length = min(found, default=(0, 1))
    return length, needed


def _once(cost: _core.StepCost) -> float:
    return cost.forward + cost.record + cost.backward


def _seconds(steps: int, length: int, terms: Terms, strategy: str) -> float:
    names: Iterable[str] = [strategy]
    if strategy == "auto":
        names = _QUICK + (_QUICK_OVER_TIERS if terms.platform.tiers else ())
    return min(_planned(steps, length, terms, name) for name in names)


def _planned(steps: int, length: int, terms: Terms, strategy: str) -> float:
    try:
        return _core.make_plan(terms.chain(steps, length), terms.platform, _options(strategy)).prediction.seconds
    except Error as error:
        if error.code != "infeasible_budget":
            raise
        return _NEVER


def _options(strategy: str) -> _core.PlanOptions:
    how = _core.PlanOptions()
    how.strategy, how.tapes_stay = strategy, True
    return how

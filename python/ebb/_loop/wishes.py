# SPDX-License-Identifier: Apache-2.0
"""Bytes for calls whose budget is a share or a word: from the costs of the call."""

from __future__ import annotations

from collections.abc import Callable, Hashable

from ebb import _core
from ebb._base.sizes import UNLIMITED
from ebb._base.wish import POINTS, Costs
from ebb._loop.arguments import Options

Settled = dict[Hashable, tuple[int, int]]  # by what was asked for: bytes, and those of keeping everything


def ways(options: Options, tiers: bool = False) -> _core.PlanOptions:
    """How a call is planned, over tiers or without them."""
    how = _core.PlanOptions()
    how.strategy = options.strategy
    if options.unknown and how.strategy == "auto":
        how.strategy = "async" if tiers else "online"
    how.tapes_stay = True
    how.length_unknown = options.unknown
    return how


def whole_bytes(chain: _core.Chain, speeds: list[_core.TierSpeed]) -> int:
    """What keeping everything takes."""
    how = _core.PlanOptions()
    how.strategy = "store_all"
    found = _core.least_budget(chain, _core.Platform(tiers=speeds), how)
    return UNLIMITED if found is None else found


def settle(
    options: Options,
    least: Callable[[], int],
    chain: _core.Chain,
    raw: _core.Chain,
    speeds: list[_core.TierSpeed],
    known: Settled,
) -> None:
    """What the wish of a budget is in bytes, if it has one and that has not been said before. `least`: bytes without which it does not
    work. `raw`: the chain without codecs, of which a share is."""
    wish = options.budget.wish
    if wish is None or settle_as_before(options, known):
        return

    def points() -> list[tuple[int, float]]:
        how = ways(options, bool(speeds))
        if options.unknown:  # planned as if as long as expected
            how.strategy, how.length_unknown = options.strategy, False
        swept = _core.sweep(chain, _core.Platform(tiers=speeds), how, POINTS)
        return [(max(budget, least() if options.unknown else 0), plan.prediction.seconds) for budget, plan in swept]

    whole = whole_bytes(raw, speeds)
    options.budget.settle(wish.bytes(Costs(whole, lambda: whole, least, points)), whole)
    known[asked(options)] = options.budget.total, whole


def settle_as_before(options: Options, known: Settled) -> bool:
    """If it was settled before, for the same costs."""
    found = known.get(asked(options))
    if found is not None and not options.budget.settled:
        options.budget.settle(*found)
    return options.budget.settled


def fits_as_before(options: Options, known: Settled, fits: set[int]) -> bool:
    """It is one of the budgets that hold everything, as far as was seen; only then it is settled."""
    found = known.get(asked(options))
    if not options.budget.settled and (found is None or found[0] not in fits):
        return False
    return settle_as_before(options, known) and options.budget.total in fits


def asked(options: Options) -> Hashable:
    """What bytes depend on beside costs."""
    return options.budget.wish, options.strategy, options.tiers, options.expected

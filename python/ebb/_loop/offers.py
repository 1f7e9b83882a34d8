# SPDX-License-Identifier: Apache-2.0
"""What a loop may be planned as: over its slow tiers, and without them. Tiers are used only where that is faster."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

import torch

from ebb import _core
from ebb._base.errors import Error
from ebb._loop.arguments import Options, remedy_of
from ebb._loop.costs import Costs
from ebb._loop.tiers import buffer_bytes
from ebb._loop.wishes import ways, whole_bytes
from ebb._tensor.tier_speed import speed_of

# PyTorch's allocator hands out blocks with up to 1 MiB that is not used, more or less of it from call to call. So what was
# measured once may be more the next time, by 4 % where most was seen: a least budget that is named has a 16th beside it.
_ROUNDED_UP, _ROUNDED_UP_OF = 1 << 20, 16
_WORTH = 0.99  # of the seconds without tiers: less is not worth waiting for transfers that were predicted to be hidden


@dataclass(frozen=True)
class Offer:
    """A chain, and the tiers that its states may go to."""

    chain: _core.Chain
    device: torch.device
    speeds: list[_core.TierSpeed] = field(default_factory=list)

    def platform(self, limit: int) -> _core.Platform:
        return _core.Platform(fast=limit, tiers=self.speeds)

    def least(self, options: Options) -> int | None:
        return _core.least_budget(self.chain, _core.Platform(tiers=self.speeds), ways(options, bool(self.speeds)))


def speeds_of(options: Options, state: int, device: torch.device) -> list[_core.TierSpeed]:
    return [speed_of(tier, max(1, state), device) for tier in options.tiers]


def offers_of(count: int, costs: Costs, options: Options, device: torch.device) -> list[Offer]:
    """Of that many blocks. With the caller's tiers, where there are any; without them, unless a strategy is named, which may need
    them, or the length of the loop is unknown. Buffers for transfers are paid for only where there are transfers."""
    bare = Offer(_core.Chain.uniform(count, costs.step_cost()), device)
    if not options.tiers:
        return [bare]
    buffers = buffer_bytes(options.tiers, costs.state, device)
    chain = _core.Chain.uniform(count, costs.step_cost(buffers))
    over = Offer(chain, device, speeds_of(options, max(1, costs.state), device))
    return [over, bare] if options.strategy == "auto" and not options.unknown else [over]


def least_of(offers: Sequence[Offer], options: Options) -> int:
    """Bytes without which none of them fits."""
    needs = [offer.least(options) for offer in offers]
    return min((needed for needed in needs if needed is not None), default=0)


def plan_for(name: str, offers: Sequence[Offer], options: Options) -> tuple[Offer, _core.Plan]:
    """The fastest plan; of a shared budget this call's part is taken."""
    budget = options.budget
    if not isinstance(options.strategy, str):
        raise Error(f"{name}: strategy is {options.strategy!r}; it is a word, see ebb.strategies()")

    def needs() -> tuple[int, int]:
        return least_of(offers, options), whole_bytes(offers[-1].chain, offers[-1].speeds)

    limit = budget.take(options.needs or needs)
    try:
        return plan_in(name, offers, limit, options)
    except Error as error:
        budget.cancel()
        if error.code == "infeasible_budget":
            budget.refuse(error)
        raise


def plan_in(name: str, offers: Sequence[Offer], limit: int, options: Options) -> tuple[Offer, _core.Plan]:
    """The fastest plan within that many bytes."""
    found: list[tuple[Offer, _core.Plan]] = []
    refused: list[Error] = []
    for offer in offers:
        if found and offer.chain[0].scratch == found[0][0].chain[0].scratch and not _moves(found[0][1]):
            break  # it has left the tiers alone
        try:
            how = ways(options, bool(offer.speeds))
            found.append((offer, _core.make_plan(offer.chain, offer.platform(limit), how)))
        except Error as error:
            if error.code != "infeasible_budget":
                raise
            refused.append(error)
    if found:
        return min(found, key=lambda pair: pair[1].prediction.seconds / (_WORTH if pair[0].speeds else 1))
    least = min(refused, key=lambda error: error.least_budget or 0)
    remedy, needed, told = least.remedy, least.least_budget, list(options.budget.told)
    if needed is not None:
        remedy = remedy_of(options.strategy, "split its largest stage" if name == "Chain" else "take a smaller chunk")
        if offers[0].device.type == "cuda":
            needed += max(_ROUNDED_UP, needed // _ROUNDED_UP_OF)
            told.append(f"with {_core.format_bytes(needed)} it works, whatever the allocator of the GPU rounds up")
    raise Error(f"{name}: {'; '.join([least.problem, *told])}", least.code, needed, remedy) from None


def _moves(plan: _core.Plan) -> bool:
    return any(map(any, plan.prediction.moved))

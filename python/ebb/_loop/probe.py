# SPDX-License-Identifier: Apache-2.0
"""`probe`: what a loop costs in which budget."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import torch

from ebb import _core
from ebb._base.budget import Allowance, allowance_of
from ebb._base.errors import Error
from ebb._base.wish import WORDS, Wish
from ebb._base.wish import Costs as WishCosts
from ebb._loop.arguments import Options, checked_chunk, chunks, device_of, explained, is_too_often, named
from ebb._loop.codec.codec import codecs_of
from ebb._loop.costs import Costs
from ebb._loop.engine import plan_for
from ebb._loop.examine import Loop, examine, settled
from ebb._loop.given import Given
from ebb._loop.stateful import Stateful
from ebb._loop.wishes import whole_bytes
from ebb._tensor.context import Surroundings
from ebb._tensor.tier_speed import speed_of
from ebb.tiers import Tier, listed

_POINTS = 12


@dataclass(frozen=True)
class Point:
    """A budget and what it costs."""

    budget: int
    seconds: float
    slowdown: float  # against a plain loop, which keeps everything
    forwards: int
    strategy: str


@dataclass(frozen=True)
class _Cut:
    """The loop cut into steps of so many time steps."""

    chunk: int
    length: int
    costs: Costs
    chain: _core.Chain
    speeds: list[Any]

    def point(self, plan: Any, budget: int) -> Point:
        plain = len(self.chain) * self.costs.plain
        found = plan.prediction
        forwards = round(found.forwards * self.length / len(self.chain))  # the last may be shorter
        if found.advances == 0:  # then that is what runs
            return Point(budget, plain, 1.0, forwards, plan.strategy)
        slowdown = max(1.0, found.seconds / plain) if plain > 0 else 1.0
        return Point(budget, found.seconds, slowdown, forwards, plan.strategy)


class Probe:
    """What `probe` measured. `points` are budgets from the least to the one that keeps everything, with what they cost; forwards are
    counted in time steps. `str(probe)` is a table."""

    def __init__(self, cuts: list[_Cut], options: Options):
        self._cuts, self._options = cuts, options
        how = _core.PlanOptions()
        how.strategy, how.tapes_stay = options.strategy, True
        self.points: list[Point] = []
        # Shorter steps where longer ones do not fit or run too often, as scan does it.
        for cut in cuts:
            swept = _core.sweep(cut.chain, _core.Platform(tiers=cut.speeds), how, _POINTS)
            asked = replace(options, divisible=cut is not cuts[-1])
            more = [cut.point(plan, budget) for budget, plan in swept if not is_too_often(plan, len(cut.chain), asked)]
            self.points = [
                point for point in more if not self.points or point.budget < self.points[0].budget
            ] + self.points
        self.least = self.points[0].budget
        self.store_all = whole_bytes(cuts[0].chain, cuts[0].speeds)

    @property
    def costs(self) -> Costs:
        """Of `chunk` time steps."""
        return self._cuts[0].costs

    @property
    def chunk(self) -> int:
        return self._cuts[0].chunk

    def at(self, budget: float | str) -> Point:
        """What this budget costs, in any of the words that `scan` takes. Raises `ebb.Error` where it is too small."""
        allowed = allowance_of(budget)
        if allowed.wish is not None:
            allowed.settle(self._bytes(allowed.wish), self.store_all)
        for cut in self._cuts:
            options = replace(self._options, budget=allowed, divisible=cut is not self._cuts[-1])
            try:
                plan = plan_for("probe", cut.chain, cut.speeds, options)
                if not is_too_often(plan, len(cut.chain), options):
                    return cut.point(plan, options.budget.total)
            except Error as error:
                if error.code != "infeasible_budget" or cut is self._cuts[-1]:
                    raise
        raise AssertionError

    def budget(self, prefer: str = "balanced") -> int:
        """Bytes to ask for: "speed" keeps everything, "memory" takes the least that works, "balanced" where time x memory
        is least."""
        if prefer not in WORDS:
            raise Error(f'prefer is {prefer!r}; it is "speed", "balanced" or "memory"')
        return self._bytes(Wish(prefer))

    def _bytes(self, wish: Wish) -> int:
        points = [(point.budget, point.seconds) for point in self.points]
        return wish.bytes(WishCosts(self.store_all, lambda: self.store_all, lambda: self.least, lambda: points))

    def __str__(self) -> str:
        size = _core.format_bytes
        lines = [
            f"steps of {self.chunk} time steps: forward {self.costs.forward:.3g} s, backward {self.costs.backward:.3g} s, state "
            f"{size(self.costs.state)}, tape {size(self.costs.tape)}",
            "",
            f"  {'budget':>12}  {'time':>8}  {'slowdown':>8}  forwards  strategy",
        ]
        for point in self.points:
            lines.append(
                f"  {size(point.budget):>12}  {point.seconds:>7.3g}s  {point.slowdown:>7.2f}x  {point.forwards:>8}  "
                f"{point.strategy}"
            )
        return "\n".join(lines)


def probe(
    f: Callable[[Any, Any], tuple[Any, Any]],
    init: Any,
    xs: Any,
    *,
    tiers: Tier | Sequence[Tier] | None = None,
    chunk: int | None = None,
    strategy: str = "auto",
    length: int | None = None,
    lengths: Any = None,
    dim: int = 0,
    reverse: bool = False,
    reduce: str | None = None,
    params: Any = None,
    codec: Any = None,
) -> Probe:
    """Does it fit, and how slow is it? Measures the first steps of a `scan` and plans for every budget; runs nothing more.

    >>> import torch, ebb
    >>> cell = torch.nn.GRUCell(3, 5)
    >>> found = ebb.probe(lambda h, x: (cell(x, h), None), torch.zeros(2, 5), torch.randn(50, 2, 3))
    >>> found.least < found.budget("balanced") <= found.store_all
    True
    >>> found.at(found.store_all).forwards
    50
    """
    loop = Given(f, init, xs, length=length, dim=dim, lengths=lengths, reverse=reverse, reduce=reduce)
    if loop.inputs.length == 0:
        raise Error("probe: there are no time steps to measure")
    chunk = checked_chunk("probe", chunk)
    given, modules = named(params)
    options = Options(
        Allowance(0), listed(tiers), strategy, params=given, modules=modules, codecs=codecs_of(codec, "probe")
    )
    cuts = []
    with explained("probe", xs):
        for best in [chunk] if chunk is not None else chunks(loop.inputs.length):
            cuts.append(_cut(loop, min(best, loop.inputs.length), options))
    return Probe(cuts, options)


def _cut(given: Given, chunk: int, options: Options) -> _Cut:
    initial, inputs = given.start.leaves, given.inputs.leaves
    device = device_of(given.f, initial, inputs)
    around = Surroundings(given.f, device, True, options.modules)
    key = given.key(chunk, device, options.codecs), around.fingerprint(), options.budget.nesting
    before = around.look()
    try:
        with torch.enable_grad():
            blocks = Stateful(given.blocks(chunk, device), around.outside)
            loop = Loop(blocks, given.f, initial, inputs, device, options, key, around, before, len(initial))
            seen = settled(loop, examine)
    finally:
        around.put_back(before)
    chain = seen.chain(options, device)
    speeds = [speed_of(tier, chain[0].state, device) for tier in options.tiers]
    return _Cut(chunk, given.inputs.length, seen.known.costs, chain, speeds)

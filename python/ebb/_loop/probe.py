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
from ebb._base.sizes import UNLIMITED
from ebb._base.wish import WORDS, Wish
from ebb._base.wish import Costs as WishCosts
from ebb._loop.arguments import Options, checked_chunk, device_of, explained, named
from ebb._loop.chunking import SHORTEST, Chunking
from ebb._loop.codec.codec import codecs_of
from ebb._loop.costs import Costs
from ebb._loop.given import Given
from ebb._loop.law import Law
from ebb._loop.offers import Offer, least_of, offers_of, plan_in
from ebb._loop.scan_blocks import ScanBlocks
from ebb._loop.wishes import whole_bytes
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


class Probe:
    """What `probe` measured. `points` are budgets from the least to the one that keeps everything, with what they cost; forwards are
    counted in time steps. `str(probe)` is a table."""

    def __init__(self, chunking: Chunking[ScanBlocks], law: Law, chunk: int | None):
        self._chunking, self._law, self._given = chunking, law, chunk
        self._options = chunking.options
        self._whole = whole_bytes(law.raw, [])
        whole = self._offers(self.chunk)[-1]
        self.least = chunking.needs(law)[0] if chunk is None else least_of(self._offers(chunk), self._options)
        self.store_all = max(self.least, whole_bytes(whole.chain, whole.speeds))
        step = (self.store_all / max(1, self.least)) ** (1 / (_POINTS - 1))
        budgets = sorted(
            {min(self.store_all, int(self.least * step**k)) for k in range(_POINTS - 1)} | {self.store_all}
        )
        self.points = [self._point(budget) for budget in budgets]

    @property
    def costs(self) -> Costs:
        """Of `chunk` time steps."""
        return self._law.long[1]

    @property
    def chunk(self) -> int:
        """The longest that was measured; which is taken depends on the budget."""
        return self._law.long[0]

    def _offers(self, length: int) -> list[Offer]:
        count = -(-self._chunking.steps // length)
        return offers_of(count, self._law.costs(length), self._options, self._chunking.device)

    def _point(self, budget: int, options: Options | None = None) -> Point:
        """In the chunk that scan takes there."""
        length = self._given or self._chunking.best(self._law, budget)[0]
        plan = plan_in("probe", self._offers(length), budget, options or self._options)[1]
        steps = self._chunking.steps
        plain = steps / self.chunk * self.costs.plain
        found = plan.prediction
        forwards = round(found.forwards * steps / -(-steps // length))  # the last may be shorter
        if found.advances == 0:  # then that is what runs
            return Point(budget, plain, 1.0, forwards, plan.strategy)
        slowdown = max(1.0, found.seconds / plain) if plain > 0 else 1.0
        return Point(budget, found.seconds, slowdown, forwards, plan.strategy)

    def at(self, budget: float | str) -> Point:
        """What this budget costs, in any of the words that `scan` takes. Raises `ebb.Error` where it is too small."""
        allowed = allowance_of(budget)
        if allowed.wish is not None:
            allowed.settle(self._bytes(allowed.wish), self.store_all)
        return self._point(allowed.total, replace(self._options, budget=allowed))

    def budget(self, prefer: str = "balanced") -> int:
        """Bytes to ask for: "speed" keeps everything, "memory" takes the least that works, "balanced" where time x memory
        is least."""
        if prefer not in WORDS:
            raise Error(f'prefer is {prefer!r}; it is "speed", "balanced" or "memory"')
        return self._bytes(Wish(prefer))

    def _bytes(self, wish: Wish) -> int:
        points = [(point.budget, point.seconds) for point in self.points]
        return wish.bytes(WishCosts(self._whole, lambda: self.store_all, lambda: self.least, lambda: points))

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
    """Does it fit, and how slow is it? Measures the first steps of a `scan` and plans for every budget; it runs nothing else.

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
        Allowance(UNLIMITED), listed(tiers), strategy, params=given, modules=modules, codecs=codecs_of(codec, "probe")
    )
    device = device_of(loop.f, loop.start.leaves, loop.inputs.leaves)
    chunking = loop.chunking(device, options)
    if chunk is None and loop.inputs.length < SHORTEST:
        chunk = 1
    with explained("probe", xs), torch.enable_grad():
        law = chunking.law() if chunk is None else chunking.law_at(min(chunk, loop.inputs.length))
    return Probe(chunking, law, chunk and law.long[0])

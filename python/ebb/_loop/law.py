# SPDX-License-Identifier: Apache-2.0
"""What blocks cost by their length."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, field, replace

from ebb import _core
from ebb._loop.costs import Costs, Trial
from ebb._loop.examine import Examined, Loop, examine, settled
from ebb._loop.wishes import Settled
from ebb._tensor.trees import storage_bytes

_ROUNDS = 4


@dataclass
class Law:
    """Each figure is affine in the length, through what was measured of a short block and of a long one, and never below the short
    one's. The part that does not grow is what calls of a block, of autograd's engine and of small kernels take: `knee` is the length
    at which the rest is as much. Shorter blocks take about as long as that one and hold less, so there they become dear; much
    longer ones gain nothing."""

    short: tuple[int, Costs]
    long: tuple[int, Costs]
    raw: _core.Chain  # of long blocks, without codecs
    heavier: float = 1.0  # tapes, than those measured, as later blocks have shown
    settled: Settled = field(default_factory=dict)
    final: bool = False  # a longer block would tell no more
    added: int = 0  # bytes of gradients that blocks of several time steps add up, and blocks of one do not

    def of(self, steps: int, longest: int) -> Law:
        """For a loop of that many time steps, as if blocks of `longest` were the longer ones that were measured."""
        length, raw = min(longest, self.long[0]), self.raw[0]
        costs = self._measured(length)
        tape = math.ceil(raw.tape * length / self.long[0]) if length < self.long[0] else raw.tape
        cost = replace(costs, tape=max(tape, costs.tape), state=raw.state, live=0).step_cost()
        chain = _core.Chain.uniform(-(-steps // length), cost)
        return replace(self, long=(length, costs), raw=chain, settled={})

    @property
    def lengths(self) -> tuple[int, int]:
        """That were measured."""
        return self.short[0], self.long[0]

    @property
    def knee(self) -> float:
        """In time steps."""
        short, long = (costs.forward + costs.record + costs.backward for _, costs in (self.short, self.long))
        first, last = self.lengths
        slope = (long - short) / max(1, last - first)
        return max(0.0, short / slope - first) if slope > 0 else 0.0

    def costs(self, length: int) -> Costs:
        found = self._measured(length)
        return replace(found, tape=int(found.tape * self.heavier))

    def _measured(self, length: int) -> Costs:
        (first, short), (last, long) = self.short, self.long
        if length == first:
            return short
        if length == last:
            return long

        def at(a: float, b: float) -> float:
            if first == last:
                return a * length / first
            return a + max(0.0, b - a) * (length - first) / (last - first)

        return Costs(
            state=max(short.state, long.state),
            tape=math.ceil(at(short.tape, long.tape)),
            scratch=math.ceil(at(short.scratch, long.scratch)),
            forward=at(short.forward, long.forward),
            record=at(short.record, long.record),
            backward=at(short.backward, long.backward),
            plain=at(short.plain, long.plain),
            live=max(short.live, long.live),
        )


def measured(loop: Callable[[int], Loop], longest: Callable[[Costs, int], int], knee: float | None = None) -> Law:
    """By blocks of one time step and of as many as `longest` says when it knows what those cost, and what adding gradients up
    takes. `loop`: cut into blocks of a
    length. `knee`: supposed in place of seconds by the clock, so that the law is the same on each machine of a kind. The
    surroundings are as they were."""
    first = loop(1)
    try:
        short = settled(first, examine)
        # Blocks whose chunk changes bits are single calls.
        added = storage_bytes(short.recorder.facts.params) if knee is None and short.differentiable else 0
        length = longest(short.known.costs, added) if short.differentiable else 1
        if length <= 1:
            one = 1, _supposed(short.known.costs, 1, knee)
            chain = short.raw_chain(first.options)
            return Law(one, one, chain, final=not short.differentiable, added=added)

        def attempt(whole: Loop) -> Law:
            long = examine(whole)
            whole.around.put_back(whole.before)
            brief, lasting = _in_turns([short, long], whole) if knee is None else (short.known.costs, long.known.costs)
            return Law(
                (1, _supposed(brief, 1, knee)),
                (length, _supposed(lasting, length, knee)),
                long.raw_chain(whole.options),
                added=added,
            )

        first.around.put_back(first.before)
        return settled(loop(length), attempt)
    finally:
        first.around.put_back(first.before)


def _supposed(costs: Costs, length: int, knee: float | None) -> Costs:
    if knee is None:
        return costs
    # In any unit: going back takes about twice as long as going forward.
    return replace(costs, forward=length + knee, record=length + knee, backward=2 * (length + knee))


def _in_turns(seen: list[Examined], loop: Loop) -> list[Costs]:
    """With the seconds of blocks that take turns, since a machine's speed changes from one moment to the next."""
    orders = [[id(p) for p in each.recorder.facts.params] for each in seen]
    shared = seen[0].recorder.no_gradients([]) if orders[0] == orders[1] else None
    trials = [Trial(each.recorder, loop.start, gradients=shared) for each in seen]
    rounds = [[trial.seconds(loop.device) for trial in trials] for _ in range(_ROUNDS)]
    least = [[min(column) for column in zip(*own)] for own in zip(*rounds)]
    return [
        replace(each.known.costs, forward=ahead, record=recorded, backward=back)
        for each, (ahead, recorded, back) in zip(seen, least)
    ]

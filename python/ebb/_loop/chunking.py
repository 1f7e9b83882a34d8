# SPDX-License-Identifier: Apache-2.0
"""The chunk of a loop as a part of its plan: chosen by what blocks cost by their length, and remembered."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, Generic, NamedTuple, TypeVar

import torch
from torch import Tensor

from ebb import _core
from ebb._base.budget import Allowance
from ebb._base.cache import Section, cache
from ebb._base.errors import Error
from ebb._base.wish import Wish
from ebb._loop.arguments import Options
from ebb._loop.blocks import Blocks, Leaves
from ebb._loop.capturing import drop, known_of
from ebb._loop.costs import Costs
from ebb._loop.cut import Terms, lengths, needs_least, ranked
from ebb._loop.engine import InBudget, in_budget
from ebb._loop.examine import Loop, examine, settled
from ebb._loop.graph_length import choose, chosen_before
from ebb._loop.law import Law, measured
from ebb._loop.offers import offers_of, speeds_of
from ebb._loop.remembered import Remembered, remembered
from ebb._loop.stateful import Stateful
from ebb._loop.tiers import buffer_bytes
from ebb._loop.wishes import asked, settle, whole_bytes
from ebb._tensor.context import Surroundings

SHORTEST = 16  # loops, in time steps: in shorter ones there is nothing to gain
_SHARES = 8  # parts of a shared budget that are told apart, for each doubling
_SURPRISE = 1.1  # times what the law says of a tape


@dataclass(frozen=True)
class _Choice:
    lengths: list[int]  # the fastest first
    settled: tuple[int, int] | None  # what a wish is in bytes, and those of keeping everything
    heavier: float  # as the law was


class _Usual(NamedTuple):
    """The longest loop of a kind: short ones have short blocks, which are dear in long ones."""

    steps: int
    length: int  # of its blocks, in time steps


Cut = TypeVar("Cut", bound=Blocks)

_laws: Section[Law] = cache.section()
_choices: Section[_Choice] = cache.section()
_usual: Section[_Usual] = cache.section()


@dataclass(frozen=True)
class Chunking(Generic[Cut]):
    """A loop whose blocks may have any number of time steps. `key`: what their costs depend on beside that. `longest`: time steps of
    the longer block that is measured. `knee`: as of a law; not None where results depend on the chunk, which the clock must not choose
    then, nor what some blocks happen to weigh, nor loops that came before. `kin`: what loops of other lengths with the same blocks have
    in common; None: nothing."""

    blocks: Callable[[int], Cut]
    steps: int
    function: Callable
    initial: Leaves
    inputs: list[Tensor]
    device: torch.device
    options: Options
    key: Any
    longest: int
    knee: float | None = None
    kin: Any = None

    @cached_property
    def around(self) -> Surroundings:
        return Surroundings(self.function, self.device, self.options.preserve_rng_state, self.options.modules)

    @cached_property
    def _fingerprint(self) -> tuple[Any, ...]:
        return self.around.fingerprint()

    def run(self) -> tuple[Cut, InBudget]:
        """In blocks of the length that is chosen, or, where those turn out not to fit, of the next best that are shorter."""
        tried, options = self._lengths()
        graphs = self._with_graphs()
        if graphs is not None:
            tried.insert(0, graphs)
        while True:
            length = tried.pop(0)
            blocks = self.blocks(length)
            try:
                found = in_budget(
                    blocks,
                    self.function,
                    self.initial,
                    self.inputs,
                    self.device,
                    options,
                    (self.key, length),
                    self.around,
                    self._of_blocks(length),
                )
                self._note_graphs(length)
                self._note_usual(length)
                return blocks, found
            except Error as error:
                if error.code != "infeasible_budget" or not tried:
                    raise
            tried = [other for other in tried[:-1] if other < length] + tried[-1:]

    def _note_usual(self, length: int) -> None:
        before = _usual.get(self._usual_key())
        if self._follows and (before is None or before.steps <= self.steps):
            _usual.put(self._usual_key(), _Usual(self.steps, length))

    def _with_graphs(self) -> int | None:
        """The length of blocks that are CUDA graphs, where an earlier call has found one that is better for them."""
        if self.device.type != "cuda" or self.options.graph is False or not self.options.budget.settled:
            return None
        found = chosen_before(self._graph_key())
        return found if found is not None and found <= self.steps else None

    def _note_graphs(self, length: int) -> None:
        budget, captured = self.options.budget, known_of(self.around, self._whole_kin(length))
        known = remembered.get(self._whole_key(length))
        if captured is None or known is None or not budget.settled or self.steps < SHORTEST:
            return
        strategy = self.options.strategy
        choose(self._graph_key(), self.steps, length, captured, known.costs.tape / length, budget.total, strategy)
        if chosen_before(self._graph_key()) not in (None, length):
            drop(self.around, self._whole_kin(length))  # whose memory the next ones are to have

    def _graph_key(self) -> Any:
        """Of loops with the same blocks the first one chooses: others then have its graphs."""
        budget = self.options.budget
        total = budget.total if budget.wish is None or not self._follows else None
        return self._kin_key(), asked(self.options), total

    def _usual_key(self) -> Any:
        return self._kin_key(), asked(self.options)

    def _lengths(self) -> tuple[list[int], Options]:
        """The best first, and with which options to run."""
        options, budget = self.options, self.options.budget
        if self.steps < SHORTEST or (budget.wish == Wish("memory") and options.strategy == "auto"):
            return [1], options
        law = self.law()
        limit = None
        if budget.shared:
            needs = self.needs(law)
            limit = max(needs[0], _rounded(_part(budget, needs)))
            options = replace(options, needs=lambda: needs)
        key = self._key(), asked(options), budget.total if budget.settled else None, limit
        choice = _choices.get(key)
        known = None if choice is None else self._known(choice)
        if choice is not None and known is not None and self.knee is None:
            weight = law.costs(choice.lengths[0]).tape
            if known.costs.tape > _SURPRISE * weight:
                law.heavier *= known.costs.tape / weight
        if choice is None or choice.heavier != law.heavier:
            choice = self._chosen(law, known, limit)
            _choices.put(key, choice)
            known = self._known(choice)
        # What a wish is where blocks differ follows from the heaviest of them.
        if choice.settled is not None and not budget.settled and not (known is not None and known.varies):
            budget.settle(*choice.settled)
        return list(choice.lengths), options

    def _known(self, choice: _Choice) -> Remembered | None:
        return remembered.get(self._whole_key(choice.lengths[0]))

    def _chosen(self, law: Law, known: Remembered | None, limit: int | None) -> _Choice:
        options, budget = self.options, self.options.budget
        found = None
        if limit is None and not budget.settled:
            found = None if known is None else known.settled.get(asked(options))
            found = found or self.wished(law)
        total = found[0] if found is not None else budget.total if limit is None else limit
        return _Choice(self.best(law, total), found, law.heavier)

    def wished(self, law: Law) -> tuple[int, int]:
        """What the wish of the budget is in bytes, and those of keeping everything."""
        own = replace(self.options, budget=self.options.budget.part(1))
        costs = law.costs(law.long[0])
        first = offers_of(len(law.raw), costs, own, self.device)[0]
        settle(own, lambda: self.needs(law)[0], first.chain, law.raw, first.speeds, law.settled)
        return own.budget.total, own.budget.whole

    def best(self, law: Law, limit: int) -> list[int]:
        """Lengths of blocks, the fastest first, the last the one that needs least."""
        terms, strategy = self._terms(law, limit), self.options.strategy
        # Blocks as other loops had them are known, and may be graphs.
        before = _usual.get(self._usual_key()) if self._follows else None
        usual = before.length if before is not None and before.length <= self.steps else law.long[0]
        if whole_bytes(law.raw, []) <= limit:  # plain autograd runs, unless later blocks turn out to be heavier
            return list(dict.fromkeys([usual, needs_least(self.steps, terms, strategy)[0]]))
        return ranked(self.steps, terms, strategy, usual)

    def needs(self, law: Law) -> tuple[int, int]:
        """Bytes without which it does not work, and those of keeping everything."""
        terms = self._terms(law, 0)
        return needs_least(self.steps, terms, self.options.strategy)[1], whole_bytes(law.raw, [])

    def law(self) -> Law:
        """Measured, or as it was before."""

        def call() -> Law:
            key, kin = self._key(), self._kin_key()
            law = _laws.get(key)
            other = _laws.get(kin) if law is None and self._follows else None
            if other is not None:
                law = other.of(self.steps, self.longest)
                _laws.put(key, law)
            if law is None or (law.long[0] < self._affordable(law.short[1], law.added) and not law.final):
                law = measured(lambda length: self._loop(length), self._affordable, self.knee)
                _laws.put(key, law)
                if self._follows:
                    _laws.put(kin, law)
            return law

        return self.options.budget.fitted(call)

    def law_at(self, length: int) -> Law:
        """For blocks of this length alone."""
        loop = self._loop(length)
        try:
            seen = settled(loop, examine)
        finally:
            self.around.put_back(loop.before)
        only = length, seen.known.costs
        return Law(only, only, seen.raw_chain(self.options))

    def _affordable(self, costs: Costs, added: int) -> int:
        """The length of the longer block that is measured: its tape, and the gradients that it adds up, must not take more than
        there is."""
        budget = self.options.budget
        if not budget.settled:
            return self.longest
        room = max(0, budget.total - costs.state - costs.scratch - added) // max(1, costs.tape + costs.grows)
        return next((length for length in lengths(self.steps) if length <= min(self.longest, room)), 1)

    def _terms(self, law: Law, limit: int) -> list[Terms]:
        options, state = self.options, law.short[1].state
        bare = Terms(lambda length: law.costs(length).step_cost(), _core.Platform(fast=limit))
        if not options.tiers:
            return [bare]
        buffers = buffer_bytes(options.tiers, state, self.device)
        platform = _core.Platform(fast=limit, tiers=speeds_of(options, state, self.device))
        over = Terms(lambda length: law.costs(length).step_cost(buffers), platform)
        return [over, bare] if options.strategy == "auto" else [over]

    def _loop(self, length: int) -> Loop:
        return Loop(
            Stateful(self.blocks(length), self.around.outside),
            self.function,
            self.initial,
            self.inputs,
            self.device,
            self.options,
            self._whole_key(length),
            self._whole_kin(length),
            self.around,
            self.around.look(),
            len(self.initial),
        )

    def _key(self) -> Any:
        return self.key, self._fingerprint, self.options.budget.nesting

    @property
    def _follows(self) -> bool:
        """What it does may depend on loops that came before."""
        return self.kin is not None and self.knee is None

    def _kin_key(self) -> Any:
        return self.kin if self._follows else self.key, self._fingerprint, self.options.budget.nesting

    def _of_blocks(self, length: int) -> Any:
        return self.key if self.kin is None else self.kin, length

    def _whole_key(self, length: int) -> Any:
        return (self.key, length), self._fingerprint, self.options.budget.nesting

    def _whole_kin(self, length: int) -> Any:
        return self._of_blocks(length), self._fingerprint, self.options.budget.nesting


def longest_of(steps: int, most: int, share: int) -> int:
    """The length of the longer block that is measured: at most `most`, and so short that measuring takes few of the steps, but for some
    steps that tell more than one."""
    wanted = min(most, max(-(-steps // share), min(4, steps // 8)))
    return next(length for length in lengths(steps) if length <= max(1, wanted))


def _part(budget: Allowance, needs: tuple[int, int]) -> int:
    """Of a shared budget, that a call which needs so much will get; 0: it will not."""
    try:
        found = budget.take(lambda: needs)
    except Error as error:
        if error.code != "infeasible_budget":
            raise
        return 0
    budget.cancel()
    return found


def _rounded(limit: int) -> int:
    """Down, so that parts of a shared budget that are nearly the same are the same."""
    return limit if limit < 1 else int(2 ** (math.floor(_SHARES * math.log2(limit)) / _SHARES))

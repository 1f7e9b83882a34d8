# SPDX-License-Identifier: Apache-2.0
"""Does it fit, and how slow? The planner, without running anything.

The keywords are the words of ``ebb plan``. The chain:

- ``steps``: how many; ``forward``, ``record``, ``backward``: seconds of a step, of a step that leaves its tape and of
  its reversal (1, as forward, 2); ``state``, ``tape``, ``adjoint``, ``scratch``: bytes (1, 1, as state, 0); ``call``:
  seconds of every call, however many steps it covers (0).
- ``chain`` instead: a JSON file, the same as a mapping, or a mapping for each step.

The memory:

- ``budget``: bytes allowed in fast memory, as a number or ``"2GiB"``; or ``slots``: the literature's accounting, fast
  memory holds that many states, the initial one counted. ``working`` replaces the computed working set.
- ``platform``: a preset, a JSON file, a mapping or an object; ``tiers``: slow memories after the platform's, nearest
  first, as words (``"disk:capacity=4GiB,write=1GB/s,read=2GB/s,latency=1e-4"``) or mappings with these keys.
- ``sync``: transfers and compute take turns.

The strategy: ``strategy`` (default ``"auto"``, the fastest exact one that fits), ``intervals``, ``period``.
"""

from __future__ import annotations

import functools
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from ebb import _core, actions
from ebb._base.errors import Error
from ebb._base.page import HasPage
from ebb._base.request import (
    ChainLike,
    PlatformLike,
    Request,
    TierLike,
    read_chain,
    read_options,
    read_platform,
)
from ebb._base.sizes import UNLIMITED


@dataclass(frozen=True)
class Strategy:
    """A row of the table of strategies."""

    name: str
    algorithm: str
    summary: str
    paper: str
    optimal: str
    keeps_tapes: bool
    needs_tier: bool


@dataclass(frozen=True)
class Traffic:
    """Bytes moved to and from a slow tier."""

    written: int
    read: int


class Prediction:
    """What a list of actions costs: counts, seconds, and bytes per place."""

    def __init__(self, found: _core.Prediction, tiers: Sequence[str]):
        self._found = found
        self._tiers = tuple(tiers)

    @property
    def forwards(self) -> int:
        """Every execution of a forward step: advances and records."""
        return self._found.forwards

    @property
    def advances(self) -> int:
        return self._found.advances

    @property
    def records(self) -> int:
        return self._found.records

    @property
    def action_count(self) -> int:
        return self._found.actions

    @property
    def seconds(self) -> float:
        return self._found.seconds

    @property
    def stall_seconds(self) -> float:
        """Seconds in which compute waits for transfers; part of `seconds`."""
        return self._found.stall_seconds

    @property
    def peak(self) -> dict[str, int]:
        """The most bytes held at once, by place; the working set is part of ``"fast"``."""
        return dict(zip(("fast", *self._tiers), self._found.peak))

    @property
    def moved(self) -> dict[str, Traffic]:
        """Bytes written to and read from each slow tier."""
        return {name: Traffic(*moved) for name, moved in zip(self._tiers, self._found.moved)}


class Plan(Prediction, HasPage):
    """What :func:`plan` found: a source of actions with a prediction. ``print`` it for a summary; a notebook shows its page,
    which ``to_html`` writes."""

    def __init__(self, request: Request, found: _core.Plan, plan_seconds: float):
        super().__init__(found.prediction, [tier.name for tier in found.platform.tiers])
        self._request = request
        self._plan = found
        self.plan_seconds = plan_seconds

    @property
    def core(self) -> _core.Plan:
        """The library's own plan."""
        return self._plan

    @property
    def steps(self) -> int:
        return len(self._request.chain)

    @property
    def strategy(self) -> str:
        """Which one made it; for ``"auto"`` the one it chose."""
        return self._plan.strategy

    @property
    def parameters(self) -> list[tuple[str, int]]:
        """What the strategy was given or found, outermost first."""
        return self._plan.parameters

    @property
    def optimal(self) -> bool:
        """Whether the plan is provably optimal in the strategy's own model."""
        return self._plan.optimal

    @property
    def bound_seconds(self) -> float:
        """No exact plan on this machine takes less."""
        return self._plan.bound_seconds

    @property
    def gap(self) -> float:
        """How far from the bound: 0.01 is 1 %."""
        return self._plan.gap

    @property
    def budget(self) -> int:
        """Bytes allowed in fast memory."""
        return self._plan.platform.fast

    @functools.cached_property
    def least_budget(self) -> int | None:
        """The smallest budget in which the strategy that was asked for works; None: none does."""
        return _core.least_budget(*self._request)

    def actions(self) -> Iterator[actions.Action]:
        """The actions, one at a time, in memory that does not grow with the steps."""
        rows: Any = _core.cursor(self._plan)
        return actions.from_rows(rows, self._tiers)

    def to_json(self) -> str:
        """The object that ``ebb plan --json`` writes."""
        return _core.plan_json(self._plan, *self._request, self.plan_seconds, self.least_budget)

    def _page(self, quick: bool) -> str:
        curve_seconds, most_actions = (0.0, 1_000_000) if quick else (3.0, 50_000_000)
        return _core.plan_page(
            self._plan, *self._request, self.least_budget, curve_seconds, most_actions, explorer=not quick
        )

    def __str__(self) -> str:
        return "\n".join(f"{label:<14}{text}" for label, text in self._lines())

    def __repr__(self) -> str:
        return f"<ebb.Plan {self.strategy}: {self.steps} steps in {self.seconds:.4g} s>"

    def _lines(self) -> Iterator[tuple[str, str]]:
        budget = "unlimited memory" if self.budget == UNLIMITED else _core.format_bytes(self.budget)
        yield "fits in", budget
        chosen = "" if self._request.options.strategy == self.strategy else " (chosen by auto)"
        row = next(row for row in strategies() if row.name == self.strategy)
        yield "strategy", f"{self.strategy}{chosen}: {row.summary}"
        if self.parameters:
            yield "parameters", ", ".join(f"{name} {value}" for name, value in self.parameters)
        plain = _core.plain_seconds(self._request.chain)
        slower = f", {self.seconds / plain:.4g} x keeping every tape" if plain > 0 else ""
        yield "time", f"{self.seconds:.4g} s{slower}"
        yield "bound", f"no exact plan takes less than {self.bound_seconds:.4g} s: gap at most {100 * self.gap:.3g} %"
        yield "waiting", f"{self.stall_seconds:.4g} s for transfers"
        yield "forwards", f"{self.forwards} ({self.advances} advances, {self.records} records)"
        capacities = [self.budget, *(tier.capacity for tier in self._plan.platform.tiers)]
        for (place, peak), capacity in zip(self.peak.items(), capacities):
            limit = "no limit" if capacity == UNLIMITED else f"of {_core.format_bytes(capacity)}"
            yield "peak", f"{place}: {_core.format_bytes(peak)}, {limit}"
        for name, traffic in self.moved.items():
            written, read = _core.format_bytes(traffic.written), _core.format_bytes(traffic.read)
            yield "moved", f"{name}: {written} written, {read} read"
        least = self.least_budget
        yield "least budget", "none works with these tiers" if least is None else _core.format_bytes(least)


def _request(
    steps: int | None = None,
    *,
    forward: float | None = None,
    record: float | None = None,
    backward: float | None = None,
    call: float | None = None,
    state: int | str | None = None,
    tape: int | str | None = None,
    adjoint: int | str | None = None,
    scratch: int | str | None = None,
    chain: ChainLike | None = None,
    budget: int | str | None = None,
    slots: int | None = None,
    working: int | str | None = None,
    platform: PlatformLike | None = None,
    tiers: Iterable[TierLike] = (),
    strategy: str = "auto",
    intervals: int | Sequence[int] = (),
    period: int | None = None,
    sync: bool = False,
) -> Request:
    costs: Mapping[str, Any] = {
        "forward": forward,
        "record": record,
        "backward": backward,
        "call": call,
        "state": state,
        "tape": tape,
        "adjoint": adjoint,
        "scratch": scratch,
    }
    read = read_chain(chain, steps, costs)
    options = read_options(
        read,
        strategy=strategy,
        budget=budget,
        slots=slots,
        working=working,
        intervals=intervals,
        period=period,
        sync=sync,
    )
    return Request(read, read_platform(platform, tiers, read), options)


def plan(steps: int | None = None, **words: Any) -> Plan:
    """The fastest plan that fits; :mod:`ebb.planning` lists the keywords.

    A budget that cannot work raises :class:`ebb.Error` with ``code="infeasible_budget"`` and ``least_budget``.

    >>> found = ebb.plan(10_000, state="256KiB", tape="1MiB", forward=3e-3, backward=6e-3, budget="256MiB",
    ...                  tiers=["ssd:capacity=4GiB,write=1GB/s,read=2GB/s,latency=0.0001"])
    >>> found.strategy, round(found.seconds)
    ('pofo', 107)
    >>> found.peak["fast"] <= 256 * 2**20
    True
    >>> list(ebb.plan(2, strategy="revolve", slots=1).actions())[:2]
    [Copy(item='state', step=0, from_='work', to='fast'), Advance(from_=0, to=1)]
    """
    request = _request(steps, **words)
    start = time.perf_counter()
    found = _core.make_plan(*request)
    return Plan(request, found, time.perf_counter() - start)


def least_budget(steps: int | None = None, **words: Any) -> int | None:
    """The smallest budget, in bytes, in which a strategy works; None: none does. ``budget`` itself is ignored.

    >>> ebb.least_budget(1000, state="1MiB", tape="4MiB", strategy="revolve")
    6291456
    """
    return _core.least_budget(*_request(steps, **words))


def largest(**words: Any) -> int | None:
    """The longest chain of one step that fits in a budget; None: any length does.

    >>> ebb.largest(state="1MiB", tape="4MiB", budget="100MiB", strategy="store_all")
    24
    """
    if "steps" in words:
        raise Error("largest finds the steps; leave out steps=")
    request = _request(**words) if "chain" in words else _request(1, **words)
    if not _core.is_uniform(request.chain):
        raise Error("largest repeats one step, but the steps of the chain differ; give 'repeat' and 'step'")
    step = _core.typical(request.chain)
    found = _core.largest_steps(step, _core.call_seconds(request.chain), request.platform, request.options)
    return None if found == UNLIMITED else found


def sweep(steps: int | None = None, *, points: int = 12, **words: Any) -> list[Plan]:
    """Plans at about ``points`` budgets from the least to the one that stores all: how time falls with memory.

    >>> [found.forwards for found in ebb.sweep(10, strategy="revolve", points=3)]
    [55, 24, 19]
    """
    if "budget" in words:
        raise Error("sweep tries all budgets; leave out budget=")
    request = _request(steps, **words)
    start = time.perf_counter()
    found = _core.sweep(*request, points)
    if not found:
        raise Error(
            f"{request.options.strategy} fits in no budget; add a slow tier or take another strategy",
            "infeasible_budget",
        )
    seconds = (time.perf_counter() - start) / len(found)
    return [Plan(request, one, seconds) for _, one in found]


def replay(
    plan_actions: Iterable[actions.Action],
    steps: int | None = None,
    *,
    start_charged: bool | None = None,
    **words: Any,
) -> Prediction:
    """Runs actions on paper: checks every rule and every budget, and counts what they cost.

    The keywords are those of :func:`plan`, without strategies. ``start_charged``: the initial state takes room wherever
    it is kept, instead of being the caller's own; with ``slots`` it always does. A broken rule raises
    :class:`ebb.Error` that names the action.

    >>> from ebb.actions import Record, Reverse
    >>> ebb.replay([Record(0, 3), Reverse(0, 3)], 3, budget=10).seconds
    9.0
    """
    request = _request(steps, **words)
    options, platform = request.options, request.platform
    fast = platform.fast if options.budget is None else options.budget
    if options.slots is not None:
        fast = options.slots * _core.state_of_all("slots", request.chain)
    names = [tier.name for tier in platform.tiers]
    found = _core.replay(
        request.chain,
        _core.Platform(fast=fast, tiers=platform.tiers, copy_rate=platform.copy_rate),
        actions.to_rows(plan_actions, names),
        0 if options.slots is not None else options.working,
        options.slots is not None if start_charged is None else start_charged,
        options.slots is not None,
        options.sync,
    )
    return Prediction(found, names)


def strategies() -> list[Strategy]:
    """The table of strategies.

    >>> [row.name for row in ebb.strategies() if row.needs_tier][:2]
    ['single_remote', 'disk_revolve']
    """
    fields = Strategy.__dataclass_fields__
    return [Strategy(*(getattr(row, name) for name in fields)) for row in _core.strategies()]

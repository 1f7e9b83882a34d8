# SPDX-License-Identifier: Apache-2.0
"""Gradients of any computation over time, by NumPy, in the memory you have.

A *step* is any object of one of two kinds. States are arrays or tuples of arrays, like the initial state; a number is an
array without axes. The simple kind (:class:`FunctionStep`) has two functions:

- ``steps``: how many there are
- ``forward(i, state)`` returns the state after step i
- ``backward(i, before, after, adjoint)`` returns the gradient with respect to the state before step i, given the one
  with respect to the state after it, and adds to gradients of parameters of its own

The full kind (:class:`RangeStep`) works on ranges, in place, on ebb's memory:

- ``steps``, and ``tape``: an array or a tuple of arrays, whose types and shapes say what a tape holds beside the state
  after its step
- ``advance(start, end, state, first)`` runs steps start to end-1 in place
- ``record(start, end, state, tapes, after, first)`` does the same and leaves what the way back needs: ``tapes`` and
  ``after`` have one row for each step; ``after`` takes the states after each
- ``reverse(start, end, tapes, after, adjoint)`` goes back through the steps, last first, in place
- ``after(tape)``, if a tape already contains the state after its step: a view of that part. It is then kept only once, and
  ``record`` need not write it to ``after``, which shares its memory

A step may be a block of many time steps: a tape is then all their states in one array, that one call works on in place.

Both may have ``begin()``, called when a run begins, ``first(i, state)`` (the simple kind) for outputs and losses,
called once for each step with the state after it, and, where the length is unknown (``steps = None``),
``ended(i, state)``: whether the sequence ends before step i.

Forward steps run any number of times and must give the same bits each time. Arrays passed to a call are ebb's
memory and valid only during the call; copy what you keep.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

import numpy as np

from ebb import _core
from ebb._base.arrays import ArrayLayout, Arrays
from ebb._base.errors import Error
from ebb._base.request import as_count
from ebb._base.sizes import UNLIMITED, as_bytes
from ebb.tiers import Tier, slow_tiers

# One measurement should be this long at least, or clocks and chance weigh in.
_LONG_ENOUGH = 2e-3
_TIER_SECONDS = 0.1


class FunctionStep(Protocol):
    """A time step in two functions; :mod:`ebb.running` has the contract."""

    steps: int | None

    def forward(self, i: int, state: Arrays, /) -> Arrays: ...

    def backward(self, i: int, before: Arrays, after: Arrays, adjoint: Arrays, /) -> Arrays: ...


class RangeStep(Protocol):
    """Time steps in ranges, on ebb's memory; :mod:`ebb.running` has the contract."""

    steps: int | None
    tape: Arrays

    def advance(self, start: int, end: int, state: Arrays, first: bool, /) -> int | None: ...

    def record(self, start: int, end: int, state: Arrays, tapes: Arrays, after: Arrays, first: bool, /) -> None: ...

    def reverse(self, start: int, end: int, tapes: Arrays, after: Arrays, adjoint: Arrays, /) -> None: ...


@dataclass(frozen=True)
class Costs:
    """What plans are made from: how long a step takes, in seconds. :attr:`RunResult.costs` has what a run really took.

    >>> ebb.Costs(forward=1e-3, backward=2.5e-3)
    Costs(forward=0.001, record=None, backward=0.0025)
    """

    forward: float
    """Running it."""
    record: float | None = None
    """Running it, and leaving its tape; None: as ``forward``."""
    backward: float | None = None
    """Going back through it; None: twice ``forward``."""
    platform: _core.Platform | None = field(default=None, repr=False)
    """How fast the tiers are; None, or where a run has other tiers: they are measured."""

    def __post_init__(self) -> None:
        for name in ("forward", "record", "backward"):
            value = getattr(self, name)
            if value is None and name != "forward":
                continue
            if not isinstance(value, (int, float)) or not 0 <= value < math.inf:
                raise Error(f"Costs: {name} is {value!r}; it must be seconds, 0 or more")


@dataclass(frozen=True)
class RunResult:
    """What :func:`run` gives."""

    final: Arrays
    """The state after the last step."""
    gradient: Arrays
    """With respect to the initial state."""
    steps: int
    """How many ran forward; of interest where the length was unknown."""
    report: _core.Report
    """What was predicted and what really happened; ``print`` it."""
    costs: Costs
    """How long steps took and how fast tiers were: for ``costs`` of the next run, which then measures nothing."""


def run(
    step: FunctionStep | RangeStep,
    initial: Arrays,
    *,
    adjoint: Arrays | Callable[[Arrays], Arrays | None] | None,
    budget: int | str | None = None,
    tiers: Tier | Iterable[Tier] | None = None,
    strategy: str = "auto",
    slots: int | None = None,
    intervals: Sequence[int] = (),
    period: int | None = None,
    sync: bool = False,
    expected_steps: int = 1000,
    costs: Costs | None = None,
) -> RunResult:
    """Runs all steps forward and back, within ``budget`` bytes of memory and the tiers.

    ``adjoint`` is the gradient with respect to the final state: arrays of the same shapes, or a function of that state, called
    between the forward and the backward pass. None, given or returned, means zeros, for losses that the steps add up
    themselves. Gradients are bit-identical in every budget. Exceptions raised by the steps are passed through unchanged.

    Only forward steps are timed beforehand, so that measuring does not add to gradients; a backward step is assumed to take
    twice as long. If the same steps run often, pass ``costs`` of an earlier result: then nothing is measured again, and the
    plan uses the measured backward time.

    The budget covers states, tapes and adjoints, but not what the functions themselves allocate while they run.

    >>> import numpy as np
    >>> class Cubic:
    ...     steps = 1000
    ...     def forward(self, i, u):
    ...         return u - 0.1 * u**3
    ...     def backward(self, i, before, after, adjoint):
    ...         return adjoint * (1 - 0.3 * before**2)
    >>> found = ebb.run(Cubic(), np.ones(100), adjoint=np.ones_like, budget="64KiB")
    >>> found.report.booked <= 65536
    True
    >>> bool(np.all(found.gradient == ebb.run(Cubic(), np.ones(100), adjoint=np.ones_like).gradient))
    True
    """
    state = ArrayLayout(initial, "run: the initial state")
    if state.is_whole:
        raise Error(
            "run: the initial state has whole numbers only, which have no gradient",
            remedy="begin with floating-point numbers, such as 1.0 in place of 1",
        )
    calls = _calls_for(step, state)
    start, views = state.empty()
    state.write(views, initial, "run: the caller")
    options = _core.RunOptions()
    options.budget = UNLIMITED if budget is None else as_bytes(budget, "run: budget")
    options.tiers = slow_tiers(tiers)
    options.strategy = strategy
    options.slots = None if slots is None else as_count(slots, "run: slots")
    options.intervals = [as_count(value, "run: intervals", least=1) for value in intervals]
    options.period = None if period is None else as_count(period, "run: period", least=1)
    options.sync = bool(sync)
    options.tier_seconds = _TIER_SECONDS
    options.expected_steps = as_count(expected_steps, "run: expected_steps", least=1)
    if not isinstance(costs, Costs | None):
        raise TypeError(f"run: costs is {costs!r}; give ebb.Costs, or the costs of an earlier result")
    if costs is None:
        costs = Costs(_timed(calls, start, options.expected_steps))
    elif costs.platform is not None and _tier_names(costs.platform) == [tier.name for tier in options.tiers]:
        options.platform = costs.platform
    cost = _core.StepCost(
        forward=costs.forward,
        record=costs.record,
        backward=costs.backward,
        state=state.bytes,
        tape=calls.tape_bytes,
    )
    options.chain = _core.Chain.uniform(options.expected_steps if calls.steps is None else calls.steps, cost)
    steps = _core.UNKNOWN if calls.steps is None else calls.steps
    made = _core.StepRun(calls, steps, state.bytes, calls.tape_bytes, calls.after, calls.scratch_bytes, options)

    end, final = state.empty()
    made.forward(start.ctypes.data, end.ctypes.data)
    seed, seeds = state.empty()
    given = adjoint(final) if callable(adjoint) else adjoint
    if given is not None:
        state.write(seeds, given, "run: adjoint")
    back, gradient = state.empty()
    made.backward(seed.ctypes.data, back.ctypes.data)
    report = made.report()
    return RunResult(final, gradient, report.measured.steps, report, _found(costs, made))


class _Calls:
    """What both kinds of steps share: the library's calls, by address."""

    def __init__(self, step: Any, state: ArrayLayout):
        self.step = step
        self.state = state
        steps = getattr(step, "steps", None)
        self.steps = None if steps is None else as_count(steps, "run: the step's steps")
        self._ended = getattr(step, "ended", None)
        if self.steps is None and self._ended is None:
            raise Error("run: the step has neither steps nor ended; say how many there are or where they end")
        self.begin = getattr(step, "begin", _nothing)

    def ended(self, i: int, state: int) -> bool:
        return self._ended is not None and bool(self._ended(i, self.state.at(state, read_only=True)))


class _FunctionCalls(_Calls):
    """A tape is the states before and after its step."""

    def __init__(self, step: FunctionStep, state: ArrayLayout):
        super().__init__(step, state)
        self._forward = step.forward
        self._backward = step.backward
        self._first = getattr(step, "first", None)
        self.after = state.follows(state.bytes)
        self.tape_bytes = self.after + state.bytes
        self.scratch_bytes = state.bytes

    def advance(self, start: int, end: int, first: bool, state: int, scratch: int) -> int:
        # What forward gives may be made of views of what it got: there are two places in turn.
        given, wanted = state, scratch
        i = start
        while i < end:
            self._run(i, given, wanted, first)
            given, wanted = wanted, given
            i += 1
            if first and self.steps is None and self.ended(i, given):
                break
        if given != state:
            self._move(given, state)
        return i

    def record(self, start: int, end: int, first: bool, state: int, tapes: int, stride: int) -> None:
        given = state
        for i in range(start, end):
            tape = tapes + (i - start) * stride
            self._move(given, tape)
            given = tape + self.after
            self._run(i, tape, given, first)
        self._move(given, state)

    def reverse(self, start: int, end: int, tapes: int, stride: int, adjoint: int, scratch: int) -> None:
        given, wanted = adjoint, scratch
        for i in range(end - 1, start - 1, -1):
            tape = tapes + (i - start) * stride
            before = self.state.at(tape, read_only=True)
            after = self.state.at(tape + self.after, read_only=True)
            found = self._backward(i, before, after, self.state.at(given))
            self.state.write(self.state.at(wanted), found, f"run: backward of step {i}")
            given, wanted = wanted, given
        if given != adjoint:
            self._move(given, adjoint)

    def _run(self, i: int, given: int, wanted: int, first: bool) -> None:
        after = self.state.at(wanted)
        found = self._forward(i, self.state.at(given, read_only=True))
        self.state.write(after, found, f"run: forward of step {i}")
        if first and self._first is not None:
            self._first(i, self.state.at(wanted, read_only=True))

    def _move(self, given: int, wanted: int) -> None:
        self.state.move(given, wanted)


class _RangeCalls(_Calls):
    """A tape is what the step says, and behind it the state after."""

    def __init__(self, step: RangeStep, state: ArrayLayout):
        super().__init__(step, state)
        self._advance = step.advance
        self._record = step.record
        self._reverse = step.reverse
        if not hasattr(step, "tape"):
            raise Error("run: the step has no tape; give an array or a tuple of arrays that look like one")
        self._tape = ArrayLayout(step.tape, "run: the step's tape")
        if hasattr(step, "after"):
            self.after = _offset_in(self._tape, step.after, state)
            self.tape_bytes = self._tape.bytes
        else:
            self.after = state.follows(self._tape.bytes)
            self.tape_bytes = self.after + state.bytes
        self.scratch_bytes = 0

    def advance(self, start: int, end: int, first: bool, state: int, scratch: int) -> int:
        found = self._advance(start, end, self.state.at(state), first)
        if found is None or self.steps is not None:
            return end
        return as_count(found, f"run: what advance of steps {start} to {end} returned")

    def record(self, start: int, end: int, first: bool, state: int, tapes: int, stride: int) -> None:
        count = end - start
        rows = self.state.rows(tapes + self.after, count, stride)
        self._record(start, end, self.state.at(state), self._tape.rows(tapes, count, stride), rows, first)
        if not self.state.same(state, tapes + (count - 1) * stride + self.after):
            raise Error(
                f"run: record of steps {start} to {end} left another state in its last row of `after` than in `state`; "
                "both must be the state after the last step"
            )

    def reverse(self, start: int, end: int, tapes: int, stride: int, adjoint: int, scratch: int) -> None:
        count = end - start
        rows = self.state.rows(tapes + self.after, count, stride)
        self._reverse(start, end, self._tape.rows(tapes, count, stride), rows, self.state.at(adjoint))


def _offset_in(tape: ArrayLayout, after: Callable[[Arrays], Arrays], state: ArrayLayout) -> int:
    """Where in a tape the state after its step lies, as the step's ``after`` shows it."""
    memory, views = tape.empty()
    offset = state.offset_of(after(views), memory)
    if offset is None:
        raise Error(
            f"run: after gave something else than the state's place in the tape; it must be a view of the tape, "
            f"contiguous and like the state: {state.described()}"
        )
    return offset


def _calls_for(step: Any, state: ArrayLayout) -> _FunctionCalls | _RangeCalls:
    if all(hasattr(step, name) for name in ("advance", "record", "reverse")):
        return _RangeCalls(step, state)
    if all(hasattr(step, name) for name in ("forward", "backward")):
        return _FunctionCalls(step, state)
    raise Error(
        f"run: {step!r} is no step; it must have forward and backward, or advance, record and reverse "
        "(help(ebb.running) says what they do)"
    )


def _timed(calls: _FunctionCalls | _RangeCalls, initial: np.ndarray[Any, Any], expected: int) -> float:
    """How long a forward step takes, by running the first few."""
    steps = expected if calls.steps is None else calls.steps
    state, _ = calls.state.empty()
    scratch, _ = calls.state.empty()
    # Where the length is unknown there may be no second step.
    most = steps if calls.steps is not None else int(not calls.ended(0, initial.ctypes.data))
    seconds, count = 0.0, min(1, most)
    is_first = True
    while count > 0:
        state[:] = initial
        start = time.perf_counter()
        calls.advance(0, count, False, state.ctypes.data, scratch.ctypes.data)
        seconds = (time.perf_counter() - start) / count
        if is_first:  # it may compile what it runs
            is_first = False
            continue
        if count == most or seconds * count >= _LONG_ENOUGH:
            break
        count = min(2 * count, most)
    return seconds


def _found(costs: Costs, made: _core.StepRun) -> Costs:
    """What the run took, and what was assumed of calls that did not happen."""
    forward, record, backward = made.seconds()
    return Costs(
        costs.forward if forward is None else forward,
        costs.record if record is None else record,
        costs.backward if backward is None else backward,
        made.platform(),
    )


def _tier_names(platform: _core.Platform) -> list[str]:
    return [tier.name for tier in platform.tiers]


def _nothing() -> None:
    """Of a step without begin."""

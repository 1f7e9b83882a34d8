# SPDX-License-Identifier: Apache-2.0
"""Whether the blocks of a loop run as CUDA graphs, and why not. From its second call on, since one alone would not pay for it."""

from __future__ import annotations

import math
import time
from dataclasses import dataclass, field, replace
from typing import Any

import torch
from torch import Tensor

from ebb import _core
from ebb._base.cache import Section, cache
from ebb._base.errors import Error
from ebb._loop.costs import Costs
from ebb._loop.examine import Examined, Loop
from ebb._loop.graphs import Graphs
from ebb._loop.guards import Guard, guard_of, reason_against
from ebb._loop.offers import Offer, offers_of
from ebb._loop.recorder import Back, Facts, Gradients, Recorder
from ebb._loop.remembered import Remembered
from ebb._loop.tape import State
from ebb._loop.wishes import whole_bytes
from ebb._tensor.capture import CannotCapture, least_workspace, workspace_bytes
from ebb._tensor.context import Changing, Surroundings
from ebb._tensor.memory import seconds_of
from ebb._tensor.outside import Form, filled, forms_key
from ebb._tensor.trees import rounded

_MOST = 3  # captures of one loop after the first one, since something had changed that a replay does not see; or since there is room
_ROUNDS, _TOGETHER = 3, 4  # of measuring: this many times, this many one after the other
_GAIN = 0.95  # of the time without graphs that they may take
PATTERNS = 8  # of gradients, of which there are graphs
_SMALL_WORKSPACE = 24 << 20  # bytes: what is above PyTorch's smaller default, in segments of its allocator
COMPARED = 100  # calls, of which one compares a block with what f does itself


@dataclass
class Captured:
    """What is known of a loop's graphs. It holds none of the caller's objects."""

    key: Any  # of the loop that they were captured for; others with the same blocks use them
    guard: Guard
    changing: Changing
    own_forms: list[Form]  # of what f keeps outside, after the first block
    times: int  # that something had changed
    given_back: int  # times, for calls in budgets without room for them
    started: int  # tensors with a history that lie outside where the loop begins, and that f reads
    reason: str | None = None  # why there are none, or none any more
    graphs: Graphs | None = None  # None without a reason: there was no room for them in a budget
    costs: Costs | None = None
    facts: Facts = field(default_factory=Facts)  # without parameters
    params: list[int] = field(default_factory=list)  # their ids
    outputs: Any = None
    seconds: float = 0.0  # that capturing took
    apart: int = 0  # bytes of a block that runs as without graphs
    uses: int = 0
    _fitting: dict[Any, bool] = field(default_factory=dict)

    def recorder(self, loop: Loop) -> Recorder:
        found = {id(t): t for t in [*loop.around.tensors(), *(loop.options.params or [])]}
        params = [found[p] for p in self.params]
        return Recorder(loop.blocks, loop.around, replace(self.facts, params=params, callers=loop.inputs))

    def offers(self, loop: Loop, beside: int = 0) -> list[Offer]:
        """What the loop may be planned as, with graphs and that many bytes for other things."""
        assert self.costs is not None
        costs = replace(self.costs, scratch=self.costs.scratch + self._apart(loop) + beside)
        return offers_of(loop.count, costs, loop.options, loop.device)

    def serves(self, loop: Loop) -> bool:
        """Some of its blocks are like those that were captured."""
        return self.graphs is not None and self.graphs.has_alike(loop.blocks, min(1, loop.blocks.count - 1))

    def _apart(self, loop: Loop) -> int:
        """Bytes for the last block, where none like it was captured: loops of other lengths have others."""
        there = self.graphs is None or self.graphs.has_alike(loop.blocks, loop.blocks.count - 1)
        return 0 if there else self.apart

    def fits(self, loop: Loop, beside: int = 0) -> bool:
        """They take no more than the budget, with states for a plan and that many bytes for other things."""
        limit, options = loop.options.budget.total, loop.options
        key = limit, options.tiers, options.strategy, loop.count, self._apart(loop) + beside
        if key not in self._fitting:
            needs = [offer.least(options) for offer in self.offers(loop, beside)]
            self._fitting[key] = any(needed is not None and needed <= limit for needed in needs)
        return self._fitting[key]

    def room_to_compare(self, loop: Loop, eager: Costs, params: list[Tensor]) -> tuple[int, str | None]:
        """Bytes that a plan leaves for a block that f itself runs too, for comparison; where there is no room for it, none and a
        remark."""
        taken = eager.scratch + eager.tape + sum(rounded(p.nbytes, loop.device) for p in params)
        if self.fits(loop, taken):
            return taken, None
        more = _core.format_bytes(taken)
        return 0, f"every {COMPARED}th call compares a block with f, for which it takes up to {more} beyond the budget"

    def like(self, loop: Loop) -> State:
        """A state as it is kept."""
        assert self.graphs is not None
        outside = loop.around.outside
        leaves = self.graphs.carry_like()
        return State(filled(leaves, self.own_forms) if outside.moving else leaves, loop.around.snapshot())

    @property
    def forms(self) -> Any:
        """By which those of a call are known to be the same; None where f keeps nothing outside."""
        return forms_key(self.own_forms) if self.changing.moving else None

    @property
    def memory(self) -> str:
        """What they hold, or did."""
        found = self.costs.scratch if self.graphs is None and self.costs is not None else 0
        return _core.format_bytes(found if self.graphs is None else self.graphs.bytes)


_of_no_module: Section[Captured] = cache.section()


def _entries(around: Surroundings) -> Section[Captured]:
    """Which go with the model."""
    modules = around.modules
    return cache.section_of(modules[0]) if modules else _of_no_module


def known_of(around: Surroundings, key: Any) -> Captured | None:
    """What was captured of a loop before, whether it fits or not."""
    return _entries(around).get(key)


def drop(around: Surroundings, key: Any) -> None:
    """A call that is under way still has them."""
    _entries(around).drop(key)


def forget(loop: Loop) -> None:
    drop(loop.around, loop.kin)


def captured_before(loop: Loop, known: Remembered | None) -> Captured | None:
    """Graphs of an earlier call, if all that f sees is as it was then."""
    if known is None or _asked(loop) is False or loop.device.type != "cuda" or _not_this_time(loop) is not None:
        return None
    found = _entries(loop.around).get(loop.kin)
    if found is None or not found.serves(loop) or reason_against(loop.around) is not None:
        return None
    return found if guard_of(loop.around, found.changing, loop.device) == found.guard else None


def capture(loop: Loop, seen: Examined, chain: _core.Chain) -> tuple[Captured | None, str | None]:
    """Graphs, or a remark why there are none. Raises where graph=True and it cannot be."""
    asked = _asked(loop)
    if asked is False:
        return None, None
    if loop.device.type != "cuda":
        if asked:
            raise Error(
                f"{loop.blocks.name}: graph=True asks for CUDA graphs, and the loop is on the {loop.device.type}"
            )
        return None, None
    if not asked and whole_bytes(chain, []) <= loop.options.budget.total:
        return None, None
    reason = _not_this_time(loop) or _against(loop, seen) or reason_against(loop.around)
    if reason is None:
        if not seen.known.patterns:
            return None, None  # the first call
        least = 0 if known_of(loop.around, loop.kin) is not None else _least(loop, seen)
        if least > loop.options.budget.total:
            reason = f"they need more than {_core.format_bytes(least)}{_of_cublas(loop)}"
    if reason is None:
        found = _captured(loop, seen)
        if found.graphs is not None and found.fits(loop):
            return found, None
        reason = found.reason or _too_large(loop, found)
    if asked:
        raise Error(
            f"{loop.blocks.name}: graph=True, but blocks cannot run as CUDA graphs: {reason}",
            remedy="change that, or leave graph= out",
        )
    return None, f"no CUDA graphs: {reason}"


def held_in_vain(loop: Loop) -> int:
    """Bytes that libraries hold for graphs of this loop, which was tried and has none."""
    found = known_of(loop.around, loop.kin)
    return workspace_bytes(loop.device) if found is not None and found.graphs is None else 0


def remark(captured: Captured, blocks: int, eager: Costs, predicted: float) -> str:
    """How they came about, and whether that pays."""
    assert captured.graphs is not None
    # Without graphs every step runs forward twice at least, where not all fits.
    gained = blocks * (eager.forward + eager.record + eager.backward) - predicted
    paid = f"pays off after {max(1, math.ceil(captured.seconds / gained))} calls" if gained > 0 else "does not pay off"
    text = f"blocks run as CUDA graphs: capturing took {captured.seconds:.2g} s and {paid}; they hold {captured.memory} between calls"
    return text if captured.graphs.remark is None else f"{text}; {captured.graphs.remark}"


def _least(loop: Loop, seen: Examined) -> int:
    """Bytes that graphs take in any case: of one time step, with the sums of gradients."""
    costs, params = seen.known.costs, seen.recorder.facts.params
    sums = sum(p.nbytes for p in params)
    return least_workspace(loop.device) + costs.tape // loop.blocks.steps(0) + costs.state + sums


def _too_large(loop: Loop, found: Captured) -> str:
    """Why they are not used. What they hold is given back: it would be beyond the budget. But not for a loop of another length, which
    may have less of a share: to that they are another loop's."""
    reason = f"their memory, {found.memory}, does not fit beside the states of a plan{_of_cublas(loop)}"
    if found.graphs is None and found.fits(loop):
        return f"their memory, {found.memory}, was given back {found.given_back} times for calls in smaller budgets"
    if found.graphs is not None and found.key == loop.key:  # which another thread may be using
        left = replace(found, graphs=None, given_back=found.given_back + 1)
        _entries(loop.around).put(loop.kin, left)
    return reason


def _of_cublas(loop: Loop) -> str:
    """What a user can do where most of the memory is the workspace of cuBLAS."""
    workspaces = least_workspace(loop.device)
    if workspaces < max(_SMALL_WORKSPACE, loop.options.budget.total / 4):
        return ""
    size = _core.format_bytes(workspaces)
    return f"; cuBLAS has {size} of it, 22 MiB where CUBLAS_WORKSPACE_CONFIG=:4096:2:16:8 is set before Python starts"


def _asked(loop: Loop) -> bool | None:
    return loop.options.graph


def _not_this_time(loop: Loop) -> str | None:
    options = loop.options
    if options.codecs is not None:
        return "a codec packs what autograd keeps, in Python"
    if options.verify:
        return "verify=True compares steps in Python"
    if not options.preserve_rng_state:
        return "with preserve_rng_state=False it is not watched where f draws random numbers"
    if options.budget.shared:
        return "the budget is shared with other calls, which would not know of what graphs hold between calls"
    return None


def _against(loop: Loop, seen: Examined) -> str | None:
    params = seen.recorder.facts.params
    found = {id(t) for t in loop.around.tensors()}
    if not loop.blocks.listed:
        return "xs is a function"
    if seen.known.varies:
        return "steps do not all keep the same for their backward"
    if loop.options.unknown and loop.around.outside.moving:
        return "the condition of a loop may read what f keeps outside, which a graph does not put there"
    if seen.known.copies:
        return "f copies from the host"
    leaves = [*loop.start, *seen.head.leaves, *seen.head.ys, *loop.around.changed]
    if any(t is not None and t.device != loop.device for t in leaves):
        return f"a carry, a y or a tensor that f changes is not on {loop.device}"
    if any(id(p) not in found for p in params):
        return "f uses a tensor with a gradient that cannot be found from it"
    return None


def _captured(loop: Loop, seen: Examined) -> Captured:
    """Captured before, with everything that f sees as it was, or now."""
    entries = _entries(loop.around)
    changing = loop.around.changing()
    guard = guard_of(loop.around, changing, loop.device)
    known = entries.get(loop.kin)
    forms = loop.around.outside.forms
    same = known is not None and known.guard == guard and forms_key(known.own_forms) == forms_key(forms)
    if known is not None and not same and known.times >= _MOST:
        changed = guard.difference(known.guard)
        known.graphs = None
        known.reason = f"what f sees has changed after each of {_MOST + 1} captures: {changed}"
        return known
    if known is not None and same:
        left = known.graphs is None and known.reason is None and known.given_back < _MOST
        if not left or not known.fits(loop):
            return known
    times = 0 if known is None else known.times + (not same)
    given_back = 0 if known is None else known.given_back
    if known is not None:
        entries.drop(loop.kin)  # before others take memory
    facts = replace(seen.recorder.facts, params=[], callers=[], weight=None)
    found = Captured(loop.key, guard, changing, forms, times, given_back, len(loop.initial) - loop.own, facts=facts)
    found.params = [id(p) for p in seen.recorder.facts.params]
    found.outputs = loop.blocks.known_outputs()
    after = loop.around.look()
    began = time.perf_counter()
    try:
        graphs = Graphs(loop.device)
        found.costs = _measured(graphs, loop, seen, found)
        whole = seen.known.costs
        found.apart = whole.tape + whole.scratch
        slow = found.costs.forward + found.costs.backward > _GAIN * (whole.forward + whole.record + whole.backward)
        if slow and _asked(loop) is None:
            found.reason = "they would not be faster: the GPU itself needs that long"
        else:
            found.graphs = graphs
    except CannotCapture as error:
        found.reason = str(error)
    except torch.cuda.OutOfMemoryError:
        found.reason = "the GPU has no memory for them"
    finally:
        loop.around.put_back(after)
        loop.around.outside.forms = forms
        loop.around.fresh_casts()
    found.seconds = time.perf_counter() - began
    entries.put(loop.kin, found, 0 if found.graphs is None else found.graphs.bytes)
    return found


def _measured(graphs: Graphs, loop: Loop, seen: Examined, found: Captured) -> Costs:
    """Captures what a call needs, and measures it. A tape is the state before its block, which is recorded when it is reversed."""
    blocks, around, recorder, last = loop.blocks, loop.around, found.recorder(loop), loop.blocks.count - 1
    head, forms = seen.head, around.outside.forms
    if blocks.reduces:
        graphs.sum_up(head.ys)
    alone = bool(found.changing.moving)  # the first block is
    # By whether it is the first and how many steps it has.
    begins = {(k == 0, blocks.steps(k)): k for k in (last, min(1, last), 0) if k > 0 or not alone}
    if not begins:
        raise CannotCapture("the loop is one block")
    live: list[Any] = head.leaves
    with graphs.running():
        if not alone:
            around.put_back(loop.before)
            out = graphs.capture_advance(recorder, 0, loop.start).out
            live = [None if leaf is None else leaf.clone() for leaf in out]
        kept = around.snapshot()

        def begin() -> None:
            around.restore(kept)
            around.outside.forms = forms

        work: list[Back] = []
        for block in begins.values():
            before = loop.start if block == 0 else live
            begin()
            graphs.capture_advance(recorder, block, before)
        for pattern, _ in seen.known.patterns.most_common(PATTERNS):
            at = begins.get((pattern.head, pattern.steps))
            if at is None:
                continue
            before = loop.start if at == 0 else live
            ys = graphs.outputs_like(blocks, at, before)
            gradients = Gradients(_ones(live, pattern.carry), [])
            work.append(Back(at, before, gradients, _ones(ys, pattern.given), _ones(before, pattern.seeds)))
            begin()
            graphs.begin_backward(recorder.facts.params)
            graphs.capture_reverse(recorder, work[-1])
        if not work:
            raise CannotCapture("no block like the others was reversed yet")
        usual = work[0]

        def advance() -> None:
            begin()
            graphs.advance(recorder, usual.block, usual.live, [])

        def reverse() -> None:
            begin()
            graphs.reverse(recorder, replace(usual, gradients=Gradients(list(usual.gradients.carry), [])))

        forward, back = (_seconds(one_of, loop.device) for one_of in (advance, reverse))
    eager = seen.known.costs
    extra = eager.tape + eager.scratch if alone else 0
    return replace(
        eager,
        tape=eager.state,
        scratch=graphs.bytes + extra,
        forward=forward,
        record=forward,
        backward=back,
        live=0,
    )


def _ones(tensors: list[Any], flags: tuple[bool, ...]) -> list[Tensor | None]:
    return [torch.ones_like(t) if yes and t is not None else None for t, yes in zip(tensors, flags)]


def _seconds(work: Any, device: torch.device) -> float:
    """Of one, when several follow each other."""

    def several() -> None:
        for _ in range(_TOGETHER):
            work()

    return min(seconds_of(several, device) for _ in range(_ROUNDS)) / _TOGETHER

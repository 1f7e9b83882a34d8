# SPDX-License-Identifier: Apache-2.0
"""Blocks of PyTorch code in a budget: measured, planned, run by the C++ executor, as one node of the caller's graph."""

from __future__ import annotations

import enum
import weakref
from collections.abc import Callable
from dataclasses import replace
from typing import Any, Final

import torch
from torch import Tensor

from ebb import _core
from ebb._base.budget import Allowance
from ebb._base.errors import Error
from ebb._loop.arguments import Options
from ebb._loop.blocks import Blocks, Leaves
from ebb._loop.capturing import (
    COMPARED,
    PATTERNS,
    Captured,
    capture,
    captured_before,
    forget,
    held_in_vain,
    remark,
)
from ebb._loop.examine import Examined, Loop, examine, settled
from ebb._loop.explicit_step import ExplicitStep
from ebb._loop.fits import Fits
from ebb._loop.graph_step import GraphStep, spared_forwards
from ebb._loop.last_report import set_report, untold
from ebb._loop.offers import Offer, least_of, offers_of, plan_for, plan_in
from ebb._loop.recorder import Recorder
from ebb._loop.remembered import Remembered, remembered_of
from ebb._loop.report import Coding, Extent, Report
from ebb._loop.stateful import Stateful
from ebb._loop.step import TorchStep
from ebb._loop.surprises import TooHeavy
from ebb._loop.tape import Pattern, State
from ebb._loop.tiers import TorchTiers
from ebb._loop.weigh_all import weigh_all
from ebb._loop.wishes import fits_as_before, settle, whole_bytes
from ebb._tensor.clock import Clock
from ebb._tensor.context import Surroundings
from ebb._tensor.outside import filled


class _Nothing(enum.Enum):
    NOTHING = "nothing to differentiate"


NOTHING: Final = _Nothing.NOTHING
_SLOWER = 1.1  # times as long may take what leaves room for memory that libraries keep
# The final carry and the outputs, attached to the caller's graph. Fits: plain autograd does it best. NOTHING: the first block
# differentiates through nothing.
InBudget = tuple[Leaves, list[Tensor]] | Fits | _Nothing


class Call:
    """One forward and its backward."""

    def __init__(
        self,
        step: TorchStep,
        chain: _core.Chain,
        plan: _core.Plan,
        budget: Allowance,
        report: Report,
        known: Remembered | None = None,
        again: Callable[[int], tuple[_core.Chain, _core.Plan]] | None = None,
    ):
        """`again`: after a block was too heavy for the plan, one for as many bytes that knows."""
        self.step = step
        self.report = report
        self._done = False
        self._budget = budget
        self._known, self._again = known, again
        self._plan = plan
        self._clock = Clock(step.around.device)
        self._run = _core.HandleRun(step, chain, plan, budget.own_ledger())
        self._give_back = weakref.finalize(self, budget.give_back)

    def attached(self, initial: Leaves, inputs: list[Tensor]) -> tuple[Leaves, list[Tensor]]:
        """Runs forward: the final carry and the outputs as parts of the caller's graph."""
        carried = [leaf for leaf in initial if leaf is not None]
        found = iter(_Node.apply(self, *carried, *inputs, *self.step.facts.params))
        set_report(self.report)
        own = self.step.initial.leaves[: self.step.around.outside.own]
        leaves = [next(found) if leaf is not None else None for leaf in own]
        return leaves, list(self.step.around.place(leaves, found))

    def forward(self) -> tuple[Leaves, list[Tensor]]:
        step = self.step
        with torch.no_grad(), step.running(), self._clock.running():
            try:
                step.begin()
                step.blocks.begin()
                self._run.forward()
                step.end_forward()
            except BaseException:
                self._run.abandon()
                step.clear()
                if self._give_back.detach():
                    self._budget.cancel()
                raise
        return step.hand_out()

    def backward(
        self, adjoint: list[Tensor | None], of_outputs: list[Tensor | None], ys: list[Tensor]
    ) -> tuple[Any, Any, Any]:
        """`ys`: the outputs, where the step recalls them."""
        step = self.step
        try:
            with step.around.replaying(), self._budget.running(), untold(), step.running():
                with self._clock.running():
                    self._go_back(adjoint, of_outputs, ys)
                self.report.finish(self._run.report(), self._clock)
                self._clock = Clock(step.around.device)  # another backward begins anew
                if self._known is not None:
                    self._known.calls += 1
                return step.end_backward()
        finally:
            step.begin_backward([])
            step.clear()
            self._give_back()  # once

    def _go_back(self, adjoint: list[Tensor | None], of_outputs: list[Tensor | None], ys: list[Tensor]) -> None:
        step = self.step
        while True:
            try:
                if self._done:
                    # The graph was retained, or the plan is another: what was kept is gone, so the forward runs again.
                    with torch.no_grad():
                        step.begin()
                        step.recall(ys)
                        self._run.forward()
                self._done = True
                step.recall(ys)
                step.begin_backward(adjoint)
                step.blocks.begin_backward(of_outputs)
                self._run.backward()
                return
            except TooHeavy:
                self._plan_again()

    def _plan_again(self) -> None:
        assert self._again is not None
        self._run.abandon()
        self.step.begin()
        chain, self._plan = self._again(self._plan.platform.fast)
        self._run = _core.HandleRun(self.step, chain, self._plan, self._budget.own_ledger())


class _Node(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, call: Call, *tensors: Tensor) -> Any:
        ctx.call = call
        ctx.set_materialize_grads(False)
        leaves, ys = call.forward()
        ctx.recalled = len(ys) if call.step.recalls else 0
        given = [tensor for tensor in tensors if not tensor.is_inference()]
        ctx.save_for_backward(*given, *ys[: ctx.recalled])
        ctx.present = [leaf is not None for leaf in leaves]
        facts, own = call.step.facts, call.step.around.outside.own
        flags = list(facts.differentiable)
        if call.step.left is not None:
            flags[own:] = [yes and left for yes, left in zip(flags[own:], call.step.left[own:])]
        fixed = [leaf for leaf, yes in zip(leaves, flags) if leaf is not None and not yes]
        ctx.mark_non_differentiable(*fixed, *(y for y, yes in zip(ys, facts.outputs) if not yes))
        return (*(leaf for leaf in leaves if leaf is not None), *ys)

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor | None) -> Any:
        saved = ctx.saved_tensors  # raises where the caller has changed one, or the graph is freed
        if torch.is_grad_enabled():
            raise Error(
                f"{ctx.call.step.blocks.name}: create_graph=True asks for second derivatives, which only plain "
                "autograd has; leave budget= out for them, and pass native=False to a layer that has it"
            )
        rest = iter(gradients)
        adjoint = [next(rest) if there else None for there in ctx.present]
        ys = list(saved[len(saved) - ctx.recalled :])
        found, of_inputs, of_params = ctx.call.backward(adjoint, list(rest), ys)
        first = ctx.call.step.initial.leaves
        of_carries = [gradient for gradient, leaf in zip(found, first) if leaf is not None]
        return (None, *of_carries, *of_inputs, *of_params)


def in_budget(
    blocks: Blocks,
    f: Callable,
    initial: Leaves,
    inputs: list[Tensor],
    device: torch.device,
    options: Options,
    key: Any,
    around: Surroundings | None = None,
    kin: Any = None,
) -> InBudget:
    """Measures and plans where nothing is remembered, and runs forward. `around`: where the caller has found what f sees. `kin`: what
    the costs of a block depend on, where those of the loop depend on more."""
    found = around

    def call() -> InBudget:
        around = found or Surroundings(f, device, options.preserve_rng_state, options.modules)
        whole_key, whole_kin = (
            (each, around.fingerprint(), options.budget.nesting) for each in (key, key if kin is None else kin)
        )
        known = remembered_of(whole_key, whole_kin)
        before = around.look()
        alone = not (options.budget.shared or options.verify)
        if known is not None and alone and not options.graph and fits_as_before(options, known.settled, known.fits):
            limit = options.budget.total
            set_report(_plain_report(known, extent_of(blocks, device), limit, options))
            return Fits(known, blocks.count, limit, around, before)
        stateful = Stateful(blocks, around.outside)
        loop = Loop(stateful, f, initial, inputs, device, options, whole_key, whole_kin, around, before, len(initial))
        captured = captured_before(loop, known)
        if captured is not None:
            around.expect(captured.changing)
        return settled(loop, _attempts(captured, known))

    return options.budget.fitted(call)


def extent_of(blocks: Blocks, device: torch.device) -> Extent:
    return Extent(blocks.count, blocks.length, blocks.steps(0), str(device))


def _plain_report(known: Remembered, extent: Extent, limit: int, options: Options) -> Report:
    tape, state = known.kept
    report = Report.plain(replace(known.costs, tape=tape, state=state, live=0), extent, limit)
    report.remarks += options.budget.told
    if options.codecs is not None:
        report.remarks.append("all fits as it is: no codec was used, and gradients are exact")
    return report


def _attempts(captured: Captured | None, known: Remembered | None) -> Callable[[Loop], InBudget]:
    """With graphs that were captured before, or as if there were none where that ends early."""
    tried = [captured]

    def attempt(loop: Loop) -> InBudget:
        found = tried.pop() if tried else None
        if found is None or known is None:
            return _attempt(loop)
        started = len(loop.initial) - loop.own
        if found.started not in (0, started):
            return _attempt(loop)
        if found.started == 0:  # no step reads them, and their graphs may be gone
            loop.around.outside.leave_out(list(range(started)))
            loop = replace(loop, initial=loop.initial[: loop.own])
        offers = offers_of(loop.count, known.costs, loop.options, loop.device)
        _settle(known, loop.count, offers, loop.options)
        return _with_graphs(loop, found, known) if found.fits(loop) else _attempt(loop)

    return attempt


def _with_graphs(loop: Loop, captured: Captured, known: Remembered) -> InBudget:
    """From the first block on."""
    blocks, around, options = loop.blocks, loop.around, loop.options
    assert captured.graphs is not None and captured.costs is not None
    recorder = captured.recorder(loop)
    blocks.expect(captured.outputs)
    turn, left = divmod(captured.uses + 1, COMPARED)
    beside, said = captured.room_to_compare(loop, known.costs, recorder.facts.params)
    offer, plan = plan_for(blocks.name, captured.offers(loop, beside if left == 0 else 0), options)
    report = Report.of(plan, extent_of(blocks, loop.device), options.budget.total, captured.costs)
    report.graphs = True
    if around.snapshot() is None:
        report.spare(spared_forwards(plan, blocks.count))
    report.remarks += options.budget.told
    report.remarks.append(remark(captured, blocks.count, known.costs, report.predicted["seconds"]))
    report.remarks += [said] if said else []
    captured.uses += 1
    first = 1 if captured.forms is not None else 0  # that is a graph
    compared = first + turn % max(1, blocks.count - first) if left == 0 else None
    initial = State(loop.start, around.part(loop.before))

    def missing(pattern: Pattern) -> None:
        """It runs without a graph this time, and is captured with the others at the next call."""
        known.patterns[pattern] += 1
        if len(known.patterns) <= PATTERNS:
            forget(loop)

    step = GraphStep(
        captured.graphs,
        recorder,
        initial,
        forms=captured.forms,
        compared=compared,
        missing=missing,
        wrong=lambda: forget(loop),
        tiers=_tiers(loop, recorder, plan, offer.chain, captured.like(loop)),
        until=options.until,
    )
    try:
        return Call(step, offer.chain, plan, options.budget, report, known).attached(loop.initial, loop.inputs)
    except Error:
        forget(loop)
        raise


def _beside_what_is_held(loop: Loop, seen: Examined, offers: list[Offer]) -> tuple[list[Offer], str | None]:
    """Where a loop was tried as graphs and has none, what libraries took for them stays: it counts where that costs little time. Or
    else a remark."""
    held, costs, options = held_in_vain(loop), seen.known.costs, loop.options
    if held == 0 or options.budget.shared:
        return offers, None
    heavier = offers_of(loop.count, replace(costs, scratch=costs.scratch + held), options, loop.device)
    said = f"cuBLAS keeps {_core.format_bytes(held)} from trying CUDA graphs"
    if 0 < least_of(heavier, options) <= options.budget.total:
        least, most = (plan_in(loop.blocks.name, each, options.budget.total, options)[1] for each in (offers, heavier))
        if most.prediction.seconds <= _SLOWER * least.prediction.seconds:
            return heavier, f"{said}, which the budget has room for"
    return offers, f"{said}, beyond the budget; graph=False in the first call prevents it"


def _attempt(loop: Loop) -> InBudget:
    blocks, around, options, device = loop.blocks, loop.around, loop.options, loop.device
    seen = examine(loop)
    if not seen.differentiable:
        around.put_back(loop.before)
        return NOTHING
    offers = seen.offers(options, device)
    _settle(seen.known, loop.count, offers, options)
    limit = options.budget.total
    captured, why_not = capture(loop, seen, offers[0].chain)
    if captured is not None:
        around.put_back(loop.before)
        return _with_graphs(loop, captured, seen.known)
    offers, held = _beside_what_is_held(loop, seen, offers)
    offer, plan = plan_for(blocks.name, offers, options)
    fits = seen.fits_raw(limit, offers[0].speeds) if options.codecs is not None else plan.prediction.advances == 0
    # To plain autograd all is one block, whose scratch is that of all; those that run by themselves keep to theirs.
    if (
        fits
        and blocks.explicit is None
        and not (options.budget.shared or options.unknown or options.verify or options.graph)
    ):
        if around.reaches(seen.recorder.facts.params):
            seen.known.fits.add(limit)  # what it depends on can be seen to be the same
        around.put_back(loop.before)
        set_report(_plain_report(seen.known, extent_of(blocks, device), limit, options))
        return Fits(seen.known, blocks.count, limit, around, loop.before, seen.recorder.facts.params)
    report = Report.of(plan, extent_of(blocks, device), limit, seen.known.costs)
    report.remarks += options.budget.told + [said for said in (why_not, held) if said]
    if seen.known.calls == 0 and blocks.advice:
        report.remarks.append(f"the first call of this function in a budget: before a long run, {blocks.advice}")
    if options.codecs is not None:
        report.coding = Coding(
            options.codecs.words(),
            not options.codecs.exact,
            *seen.known.raw,
            seen.known.costs.tape,
            seen.known.costs.state,
        )
    step = _step(loop, seen, offer.chain, plan)

    def again(limit: int) -> tuple[_core.Chain, _core.Plan]:
        seen.known.note_too_heavy()
        weigh_all(step.recorder, step.initial.leaves, seen.known, options, device)
        heavier = [other for other in seen.offers(options, device) if bool(other.speeds) == bool(offer.speeds)]
        if options.budget.wish is not None:
            options.budget.unsettle()
            _settle(seen.known, loop.count, heavier, options)
            limit = options.budget.total
        of, plan = plan_in(blocks.name, heavier, limit, options)
        step.plan_for(seen.known.weight)
        report.plan_for(plan, seen.known.costs)
        return of.chain, plan

    try:
        return Call(step, offer.chain, plan, options.budget, report, seen.known, again).attached(
            loop.initial, loop.inputs
        )
    except TooHeavy:
        seen.known.note_too_heavy()
        options.budget.unsettle()
        raise


def _settle(known: Remembered, count: int, offers: list[Offer], options: Options) -> None:
    first = offers[0]
    raw = Examined.raw_of(known, count)

    def least() -> int:
        # What takes nothing is kept, though a plan counts a byte for it.
        return least_of(offers, options) if known.costs.tape > 0 else whole_bytes(first.chain, first.speeds)

    settle(options, least, first.chain, raw, first.speeds, known.settled)


def _tiers(loop: Loop, recorder: Recorder, plan: _core.Plan, chain: _core.Chain, like: State) -> TorchTiers | None:
    """For states like this one, where the plan has tiers."""
    options = loop.options
    if not plan.platform.tiers:
        return None
    peaks = [tier.capacity for tier in options.tiers] if options.unknown else plan.prediction.peak[1:]
    counts = [peak // chain[0].state for peak in peaks]
    return TorchTiers(options.tiers, counts, recorder.facts.kept(like, loop.blocks.name), loop.device)


def _step(loop: Loop, seen: Examined, chain: _core.Chain, plan: _core.Plan) -> TorchStep:
    """Which begins after the first block, where that has run."""
    options, recorder, known = loop.options, seen.recorder, seen.known
    if loop.blocks.explicit is not None:
        first = State(loop.start, None)
        like = State(loop.blocks.explicit.kept(loop.start), None)
        return ExplicitStep(loop.blocks.explicit, recorder, first, tiers=_tiers(loop, recorder, plan, chain, like))
    like = State(filled(seen.head.leaves, loop.around.outside.forms), loop.around.snapshot())
    return TorchStep(
        recorder,
        State(loop.start, loop.around.part(seen.head.before)),
        head=seen.head,
        tiers=_tiers(loop, recorder, plan, chain, like),
        until=options.until,
        verify=options.verify,
        ahead=options.codecs is None and (known.varies or known.calls == 0),
        patterns=None if known.patterns or loop.device.type != "cuda" else known.patterns,
    )

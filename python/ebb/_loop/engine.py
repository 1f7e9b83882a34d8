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
from ebb._loop.arguments import Options, is_too_often, remedy_of
from ebb._loop.blocks import Blocks, Leaves
from ebb._loop.examine import Examined, Loop, examine, settled
from ebb._loop.fits import Fits
from ebb._loop.last_report import set_report, untold
from ebb._loop.remembered import Remembered, remembered
from ebb._loop.report import Coding, Extent, Report
from ebb._loop.stateful import Stateful
from ebb._loop.step import TorchStep
from ebb._loop.surprises import ChangesLater, TooHeavy, TooOften
from ebb._loop.tape import State
from ebb._loop.tiers import TorchTiers
from ebb._loop.weigh_all import weigh_all
from ebb._loop.wishes import fits_as_before, settle, ways, whole_bytes
from ebb._tensor.context import Surroundings
from ebb._tensor.outside import filled
from ebb._tensor.tier_speed import speed_of


class _Nothing(enum.Enum):
    NOTHING = "nothing to differentiate"


NOTHING: Final = _Nothing.NOTHING
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
        with torch.no_grad():
            try:
                step.begin()
                step.blocks.begin()
                self._run.forward()
                if step.around.learn():
                    raise ChangesLater
            except BaseException:
                self._run.abandon()
                step.clear()
                if self._give_back.detach():
                    self._budget.cancel()
                raise
        return step.hand_out()

    def backward(self, adjoint: list[Tensor | None], of_outputs: list[Tensor | None]) -> tuple[Any, Any, Any]:
        step = self.step
        try:
            with step.around.replaying(), self._budget.running(), untold():
                while True:
                    try:
                        if self._done:
                            # The graph was retained, or the plan is another: what was kept is gone, so the forward runs again.
                            with torch.no_grad():
                                step.begin()
                                self._run.forward()
                        self._done = True
                        step.begin_backward(adjoint)
                        step.blocks.begin_backward(of_outputs)
                        self._run.backward()
                        break
                    except TooHeavy:
                        self._plan_again()
                self.report.finish(self._run.report())
                if self._known is not None:
                    self._known.calls += 1
            return step.end_backward()
        finally:
            step.begin_backward([])
            step.clear()
            self._give_back()  # once

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
        ctx.save_for_backward(*(tensor for tensor in tensors if not tensor.is_inference()))
        ctx.set_materialize_grads(False)
        leaves, ys = call.forward()
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
        _ = ctx.saved_tensors  # raises where the caller has changed one, or the graph is freed
        if torch.is_grad_enabled():
            raise Error(
                f"{ctx.call.step.blocks.name}: create_graph=True asks for second derivatives, which only plain "
                "autograd has; leave budget= out for them"
            )
        rest = iter(gradients)
        adjoint = [next(rest) if there else None for there in ctx.present]
        found, of_inputs, of_params = ctx.call.backward(adjoint, list(rest))
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
) -> InBudget:
    """Measures and plans where nothing is remembered, and runs forward."""

    def call() -> InBudget:
        around = Surroundings(f, device, options.preserve_rng_state, options.modules)
        whole_key = (key, around.fingerprint(), options.budget.nesting)
        known = remembered.get(whole_key)
        before = around.look()
        alone = not (options.budget.shared or options.verify)
        if known is not None and alone and fits_as_before(options, known.settled, known.fits):
            limit = options.budget.total
            set_report(_plain_report(known, extent_of(blocks, device), limit, options))
            return Fits(known, blocks.count, limit, around, before)
        stateful = Stateful(blocks, around.outside)
        return settled(
            Loop(stateful, f, initial, inputs, device, options, whole_key, around, before, len(initial)), _attempt
        )

    return options.budget.fitted(call)


def plan_for(name: str, chain: _core.Chain, speeds: list[_core.TierSpeed], options: Options) -> _core.Plan:
    """The fastest plan; of a shared budget this call's part is taken."""
    budget = options.budget
    if not isinstance(options.strategy, str):
        raise Error(f"{name}: strategy is {options.strategy!r}; it is a word, see ebb.strategies()")
    how = ways(options)

    def needs() -> tuple[int, int]:
        platform = _core.Platform(fast=budget.total, tiers=speeds)
        return _core.least_budget(chain, platform, how) or 0, whole_bytes(chain, speeds)

    limit = budget.take(needs)
    try:
        return _plan(name, chain, _core.Platform(fast=limit, tiers=speeds), options)
    except Error as error:
        budget.cancel()
        if error.code == "infeasible_budget":
            budget.refuse(error)
        raise


def _plan(name: str, chain: _core.Chain, platform: _core.Platform, options: Options) -> _core.Plan:
    try:
        return _core.make_plan(chain, platform, ways(options))
    except Error as error:
        if error.code != "infeasible_budget":
            raise
        remedy = error.remedy
        if error.least_budget is not None:
            remedy = remedy_of(
                options.strategy, "split its largest stage" if name == "Chain" else "take a smaller chunk"
            )
        problem = "; ".join([error.problem, *options.budget.told])
        raise Error(f"{name}: {problem}", error.code, error.least_budget, remedy) from None


def extent_of(blocks: Blocks, device: torch.device) -> Extent:
    return Extent(blocks.count, blocks.length, str(device))


def _plain_report(known: Remembered, extent: Extent, limit: int, options: Options) -> Report:
    tape, state = known.kept
    report = Report.plain(replace(known.costs, tape=tape, state=state, live=0), extent, limit)
    report.remarks += options.budget.told
    if options.codecs is not None:
        report.remarks.append("all fits as it is: no codec was used, and gradients are exact")
    return report


def _attempt(loop: Loop) -> InBudget:
    blocks, around, options, device = loop.blocks, loop.around, loop.options, loop.device
    seen = examine(loop)
    if not seen.differentiable:
        around.put_back(loop.before)
        return NOTHING
    chain = seen.chain(options, device)
    speeds = [speed_of(tier, chain[0].state, device) for tier in options.tiers]
    settle(options, chain, seen.raw_chain(options), speeds, seen.known.settled)
    limit = options.budget.total
    plan = plan_for(blocks.name, chain, speeds, options)
    if is_too_often(plan, blocks.count, options):
        options.budget.cancel()
        raise TooOften
    fits = seen.fits_raw(limit, speeds) if options.codecs is not None else plan.prediction.advances == 0
    if fits and not (options.budget.shared or options.unknown or options.verify):
        if around.reaches(seen.recorder.facts.params):
            seen.known.fits.add(limit)  # what it depends on can be seen to be the same
        around.put_back(loop.before)
        set_report(_plain_report(seen.known, extent_of(blocks, device), limit, options))
        return Fits(seen.known, blocks.count, limit, around, loop.before)
    report = Report.of(plan, extent_of(blocks, device), limit, seen.known.costs)
    report.remarks += options.budget.told
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
    step = _step(loop, seen, chain, plan)

    def again(limit: int) -> tuple[_core.Chain, _core.Plan]:
        seen.known.note_too_heavy()
        weigh_all(step.recorder, step.initial.leaves, seen.known, options, device)
        heavier = seen.chain(options, device)
        if options.budget.wish is not None:
            options.budget.unsettle()
            settle(options, heavier, seen.raw_chain(options), speeds, seen.known.settled)
            limit = options.budget.total
        plan = _plan(blocks.name, heavier, _core.Platform(fast=limit, tiers=speeds), options)
        step.plan_for(seen.known.weight)
        report.plan_for(plan, seen.known.costs)
        return heavier, plan

    try:
        return Call(step, chain, plan, options.budget, report, seen.known, again).attached(loop.initial, loop.inputs)
    except TooHeavy:
        seen.known.note_too_heavy()
        options.budget.unsettle()
        raise


def _step(loop: Loop, seen: Examined, chain: _core.Chain, plan: _core.Plan) -> TorchStep:
    """Which begins after the first block, since that has run."""
    options, recorder = loop.options, seen.recorder
    initial = State(loop.start, loop.around.part(seen.head.before))
    tiers = None
    if options.tiers:
        peaks = [tier.capacity for tier in options.tiers] if options.unknown else plan.prediction.peak[1:]
        counts = [peak // chain[0].state for peak in peaks]
        like = State(filled(seen.head.leaves, loop.around.outside.forms), loop.around.snapshot())
        tiers = TorchTiers(options.tiers, counts, recorder.facts.kept(like, loop.blocks.name), loop.device)
    known = seen.known
    return TorchStep(
        recorder,
        initial,
        head=seen.head,
        tiers=tiers,
        until=options.until,
        verify=options.verify,
        ahead=options.codecs is None and (known.varies or known.calls == 0),
    )

# SPDX-License-Identifier: Apache-2.0
"""Blocks of PyTorch code in a budget: measured, planned, run by the C++ executor, as one node of the caller's graph."""

from __future__ import annotations

import sys
import threading
import weakref
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor

from ebb import _core
from ebb._base.budget import Budget
from ebb._base.errors import Error
from ebb._base.sizes import as_bytes
from ebb._loop.blocks import Leaves
from ebb._loop.codec.codec import Codecs
from ebb._loop.codec.state import StateCodec
from ebb._loop.costs import measure
from ebb._loop.remembered import Remembered, remembered
from ebb._loop.report import Coding, Report
from ebb._loop.step import TorchStep
from ebb._loop.tape import Head, State
from ebb._loop.tiers import Layout, TorchTiers, buffer_bytes
from ebb._tensor.captures import find_captures
from ebb._tensor.context import Surroundings
from ebb._tensor.tier_speed import speed_of
from ebb._tensor.trees import close, storage_bytes
from ebb._tensor.written import Written

NOTHING = "nothing to differentiate"
_LOOKED_AT = 8  # blocks, where what a codec takes depends on the values


@dataclass
class Options:
    """How to run, as the caller said."""

    budget: int | str | Budget
    tiers: tuple[Any, ...] = ()
    strategy: str = "auto"
    preserve_rng_state: bool = True
    verify: bool = False
    params: list[Tensor] | None = None
    modules: tuple[torch.nn.Module, ...] = ()  # that f uses, as the caller named them
    until: Callable[[Leaves], bool] | None = None  # where the length is unknown
    expected: int = 1000
    codecs: Codecs | None = None

    @property
    def unknown(self) -> bool:
        return self.until is not None


_last = threading.local()


def last_report() -> Report | None:
    """The report of the last call of `scan`, `while_loop`, a layer or a Chain in this thread; None before the first.
    It is filled in when its backward has run."""
    return getattr(_last, "report", None)


def set_last_report(report: Report) -> None:
    _last.report = report


class Call:
    """One forward and its backward."""

    def __init__(
        self,
        step: TorchStep,
        chain: _core.Chain,
        plan: _core.Plan,
        budget: Budget | int,
        report: Report,
        differentiable: list[bool],
    ):
        self.step = step
        self.report = report
        step.differentiable = differentiable
        self._done = False
        self._share: tuple[Budget, Any] | None = None
        if isinstance(budget, Budget):
            self._run = _core.HandleRun(step, chain, plan, budget._ledger)
            self._share = budget, weakref.finalize(self, budget._give_back)
        else:
            self._run = _core.HandleRun(step, chain, plan, _core.Ledger(budget))

    def attached(self, initial: Leaves, inputs: list[Tensor]) -> tuple[Leaves, list[Tensor]]:
        """Runs forward: the final carry and the outputs as parts of the caller's graph."""
        carried = [leaf for leaf in initial if leaf is not None]
        found = iter(_Node.apply(self, *carried, *inputs, *self.step.params))
        set_last_report(self.report)
        leaves = [next(found) if leaf is not None else None for leaf in self.step.initial.leaves]
        return leaves, list(found)

    def forward(self) -> tuple[Leaves, list[Tensor]]:
        step = self.step
        with torch.no_grad():
            try:
                step.begin()
                step.blocks.begin()
                self._run.forward()
                if step.around.learn_late():
                    raise ChangesLater
            except BaseException:
                self._run.abandon()
                step.clear()
                if self._share is not None and self._share[1].detach():
                    self._share[0]._cancel()
                raise
        step.mute = True
        return step.final(), step.blocks.results()

    def backward(self, adjoint: list[Tensor | None], of_outputs: list[Tensor | None]) -> tuple[Any, Any, Any]:
        step = self.step
        try:
            with step.around.replaying():
                if self._done:
                    # The graph was retained: what was kept is gone, so the forward runs again.
                    with torch.no_grad():
                        step.begin()
                        self._run.forward()
                self._done = True
                step.begin_backward(adjoint)
                step.blocks.begin_backward(of_outputs)
                self._run.backward()
                self.report.finish(self._run.report())
            return step.adjoint, step.blocks.end_backward(), step.running
        finally:
            step.begin_backward([])
            step.clear()
            if self._share is not None:
                self._share[1]()  # once


class ChangesLater(Exception):
    """f drew random numbers or changed a buffer, but not in its first block."""


class _Node(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, call: Call, *tensors: Tensor) -> Any:
        ctx.call = call
        ctx.save_for_backward(*tensors)
        ctx.set_materialize_grads(False)
        leaves, ys = call.forward()
        ctx.present = [leaf is not None for leaf in leaves]
        results = [leaf for leaf in leaves if leaf is not None] + ys
        ctx.mark_non_differentiable(*[r for r, yes in zip(results, call.step.differentiable) if not yes])
        return tuple(results)

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
        of_carries = [gradient for gradient, there in zip(found, ctx.present) if there]
        return (None, *of_carries, *of_inputs, *of_params)


def refuse_transforms(name: str, tensors: list[Tensor]) -> None:
    """vmap, grad transforms and forward-mode derivatives."""
    peek = getattr(torch._C._functorch, "peek_interpreter_stack", None)
    if peek is not None and peek() is not None:
        raise Error(f"{name}: torch.func transforms (vmap, grad, jvp) do not go through a budget; leave budget= out")
    forward_ad = torch.autograd.forward_ad
    if getattr(forward_ad, "_current_level", -1) >= 0:
        for tensor in tensors:
            if forward_ad.unpack_dual(tensor).tangent is not None:
                raise Error(f"{name}: forward-mode derivatives do not go through a budget; leave budget= out")


def in_budget(
    blocks: Any, f: Callable, initial: Leaves, inputs: list[Tensor], device: torch.device, options: Options, key: Any
) -> tuple[Leaves, list[Tensor]] | str | None:
    """The final carry and the outputs, attached to the caller's graph. None: all fits, so that plain autograd does it best.
    NOTHING: the first block differentiates through nothing."""
    around = Surroundings(f, device, options.preserve_rng_state, options.modules)
    key = (key, around.fingerprint())
    known = remembered.get(key)
    if known is not None and not isinstance(options.budget, Budget) and not options.verify:
        limit = as_bytes(options.budget, "budget")
        if limit in known.fits:
            set_last_report(_plain_report(known, blocks.count, limit, options))
            return None
    before = around.look()
    try:
        return _attempt(blocks, f, initial, inputs, device, options, key, around, before)
    except ChangesLater:
        around.put_back(before)
    except BaseException:
        around.put_back(before)
        raise
    return _attempt(blocks, f, initial, inputs, device, options, key, around, before)


def plan_for(
    name: str, chain: _core.Chain, budget: Budget | int, speeds: list[_core.TierSpeed], options: Options
) -> _core.Plan:
    """The fastest plan; of a shared budget this call's part is taken."""
    if not isinstance(options.strategy, str):
        raise Error(f"{name}: strategy is {options.strategy!r}; it is a word, see ebb.strategies()")
    how = _core.PlanOptions()
    how.strategy = options.strategy
    if options.unknown and how.strategy == "auto":
        how.strategy = "async" if options.tiers else "online"
    how.tapes_stay = True
    how.length_unknown = options.unknown
    if isinstance(budget, Budget):
        platform = _core.Platform(fast=budget.total, tiers=speeds)
        least = _core.least_budget(chain, platform, how)
        whole = _core.PlanOptions()
        whole.strategy = "store_all"
        limit = budget._take(least or 0, _core.least_budget(chain, platform, whole) or 0)
    else:
        limit = budget
    try:
        return _core.make_plan(chain, _core.Platform(fast=limit, tiers=speeds), how)
    except Error as error:
        if isinstance(budget, Budget):
            budget._cancel()
        if error.code == "infeasible_budget":
            remedy = error.remedy if error.least_budget is None else _remedy(name, options)
            raise Error(f"{name}: {error.problem}", error.code, error.least_budget, remedy) from None
        raise


def _remedy(name: str, options: Options) -> str:
    """What a caller of this loop can do about a budget that is too small."""
    smaller = "split its largest stage" if name == "Chain" else "take a smaller chunk"
    if options.strategy == "auto":
        return f"raise the budget, or {smaller}"
    return f"raise the budget, take strategy auto, or {smaller}"


def _plain_report(known: Remembered, steps: int, limit: int, options: Options) -> Report:
    tape, state = known.raw
    report = Report.plain(replace(known.costs, tape=tape, state=state, live=0), steps, limit)
    if options.codecs is not None:
        report.remarks.append("all fits as it is: no codec was used, and gradients are exact")
    return report


def _check_repeats(step: TorchStep, start: Leaves, head: Head) -> None:
    """Runs the first block once more. Kernels may differ by roundings where there is no graph."""
    given = [None if leaf is None else leaf.clone() for leaf in start]
    inputs = step.blocks.inputs(0, False)
    with torch.no_grad(), Written() as written:
        leaves, ys = step.blocks.run(0, given, inputs)
    for tensor in written.found:
        if not step.around.knows(tensor) and not any(tensor is own for own in given + inputs):
            raise Error(
                f"{step.blocks.name}: f changes a tensor of shape {list(tensor.shape)} in place that is no part of its arguments "
                "and no buffer of a module that can be found from f; name the module in params=, or make the tensor a part "
                "of the carry"
            )
    for old, new in zip(head.leaves + head.ys, leaves + ys):
        if old is not None and not close(old, new):
            raise Error(
                f"{step.blocks.name}: f gives another result when its first step runs again: it depends on something that "
                "changes from call to call, like a counter, an attribute, a captured tensor that is changed in place "
                "or a generator of random numbers; make that a part of the carry or of the input"
            )


class Examined:
    """The first block was run to see what it uses, changes and weighs."""

    def __init__(
        self,
        blocks: Any,
        f: Callable,
        initial: Leaves,
        inputs: list[Tensor],
        device: torch.device,
        options: Options,
        key: Any,
        around: Surroundings,
        before: Any,
    ):
        start = [None if leaf is None else leaf.detach() for leaf in initial]
        self.step = step = TorchStep(blocks, around, [], start, verify=options.verify)
        step.until = options.until
        tape, saved, changes = step.first_look(0, start)
        own = [leaf for leaf in tape.carry + tape.inputs if leaf is not None]
        step.params = find_captures(f, tape.out + tape.ys, own, tape.since, options.params or [])
        refuse_transforms(blocks.name, [t for t in [*tape.out, *tape.ys] if t is not None])
        if changes:
            step.mutates = range(sys.maxsize)
        around.learn(before)
        after = around.look()
        self.differentiable = any(t is not None and t.requires_grad for t in [*initial, *inputs, *step.params])
        self.flags = [leaf.requires_grad for leaf in tape.out if leaf is not None] + blocks.output_flags(tape.ys)
        self.head = Head(
            before,
            [None if t is None else t.detach() for t in tape.out],
            [y.detach() for y in tape.ys],
            step.first_origins,
        )
        state = State(start, around.snapshot())
        tape.after.snapshot = state.snapshot  # which was not known when it ran
        step.callers = inputs
        # Leaves of the first carry may share memory (one tensor of zeros for all); later ones do not.
        shared = max(0, Layout(state).bytes - storage_bytes(state.tensors()))
        weight = tape.weight(saved, step.params + inputs) + shared, storage_bytes(state.tensors()) + shared
        del tape, saved
        self._name_codecs(options.codecs)
        known = remembered.get(key)
        if known is None or known.raw != weight:
            if options.preserve_rng_state:
                around.put_back(before)
                _check_repeats(step, start, self.head)
            if options.codecs is None:
                known = Remembered(measure(step, start, *weight, device), set(), weight)
            else:
                around.put_back(before)
                known = self._measure_coded(start, weight, shared, device)
            remembered.put(key, known)
            around.put_back(after)
        elif known.coded is not None:
            step.state_codec.limit_to(known.coded)
        step.weight = known.costs.tape
        self.known = known

    def _name_codecs(self, codecs: Codecs | None) -> None:
        if codecs is not None:
            self.step.tape_codec = codecs.tape
            if codecs.state is not None:
                self.step.state_codec = StateCodec(codecs.state, self.step.initial.leaves)

    def _measure_coded(self, start: Leaves, raw: tuple[int, int], shared: int, device: torch.device) -> Remembered:
        """What blocks cost whose tapes or states are kept encoded. Where it depends on the values how small they become,
        the first of them, which may be all zeros, say little: later ones are looked at too."""
        step = self.step
        tape_bytes, live = raw[0], start
        varies = any(
            codec is not None and codec.varies
            for codec in (step.tape_codec, step.state_codec and step.state_codec.codec)
        )
        # Not at the last one, which may be shorter.
        for block in range(max(1, min(step.blocks.count - 1, _LOOKED_AT if varies else 1))):
            if block > 0 and step.until is not None and step.until(live):
                break
            tape, found = step.recorded(block, live, cautious=True)
            if step.tape_codec is not None:
                tape_bytes = min(tape_bytes, found + shared)
            live = tape.after.leaves
            if step.state_codec is not None:
                step.state_codec.look(live)
            del tape
        state_bytes, coded = raw[1], None
        if step.state_codec is not None:
            coded = step.state_codec.coded
            kept = State(step.state_codec.encode(start, step.blocks.name), step.around.snapshot(), True)
            state_bytes = max(Layout(kept).bytes, storage_bytes(kept.tensors()))
        costs = measure(step, start, tape_bytes, state_bytes, device)
        return Remembered(replace(costs, live=raw[1]) if coded else costs, set(), raw, coded)

    def fits_raw(self, limit: int, speeds: list[_core.TierSpeed]) -> bool:
        """All of it, without codecs."""
        tape, state = self.known.raw
        costs = replace(self.known.costs, tape=tape, state=state, live=0)
        whole = _core.PlanOptions()
        whole.strategy = "store_all"
        chain = _core.Chain.uniform(self.step.blocks.count, costs.step_cost())
        least = _core.least_budget(chain, _core.Platform(fast=limit, tiers=speeds), whole)
        return least is not None and least <= limit

    def chain(self, options: Options, device: torch.device) -> _core.Chain:
        count = options.expected if options.unknown else self.step.blocks.count
        costs = self.known.costs
        return _core.Chain.uniform(count, costs.step_cost(buffer_bytes(options.tiers, costs.state, device)))


def _attempt(
    blocks: Any,
    f: Callable,
    initial: Leaves,
    inputs: list[Tensor],
    device: torch.device,
    options: Options,
    key: Any,
    around: Surroundings,
    before: Any,
) -> tuple[Leaves, list[Tensor]] | None:
    budget = options.budget if isinstance(options.budget, Budget) else as_bytes(options.budget, "budget")
    shared = isinstance(budget, Budget)
    limit = budget.total if shared else budget
    seen = Examined(blocks, f, initial, inputs, device, options, key, around, before)
    if not seen.differentiable:
        around.put_back(before)
        return NOTHING
    step, chain = seen.step, seen.chain(options, device)
    speeds = [speed_of(tier, chain[0].state, device) for tier in options.tiers]
    plan = plan_for(blocks.name, chain, budget, speeds, options)
    fits = seen.fits_raw(limit, speeds) if options.codecs is not None else plan.prediction.advances == 0
    if fits and not (shared or options.unknown or options.verify):
        if around.reaches(step.params):
            seen.known.fits.add(limit)  # what it depends on can be seen to be the same
        around.put_back(before)
        set_last_report(_plain_report(seen.known, blocks.count, limit, options))
        return None
    step.start_with(seen.head)
    if options.tiers:
        peaks = [tier.capacity for tier in options.tiers] if options.unknown else plan.prediction.peak[1:]
        step.tiers = TorchTiers(options.tiers, [peak // chain[0].state for peak in peaks], step.kept_initial(), device)
    report = Report.of(plan, blocks.count, limit, seen.known.costs)
    if options.codecs is not None:
        report.coding = Coding(
            options.codecs.words(),
            not options.codecs.exact,
            *seen.known.raw,
            seen.known.costs.tape,
            seen.known.costs.state,
        )
    return Call(step, chain, plan, budget, report, seen.flags).attached(initial, inputs)

# SPDX-License-Identifier: Apache-2.0
"""`Chain`: a torch.nn.Sequential in a budget, its stages measured one by one."""

from __future__ import annotations

from collections import Counter
from typing import Any

import torch
from torch import Tensor

from ebb import _core
from ebb._base.budget import Budget, BudgetLike, allowance_of
from ebb._base.cache import Section, cache
from ebb._base.errors import Error
from ebb._loop.arguments import Options, refuse_transforms
from ebb._loop.blocks import CarryOnly, Leaves
from ebb._loop.costs import Costs, measure
from ebb._loop.engine import Call
from ebb._loop.last_report import reported, set_report
from ebb._loop.offers import Offer, least_of, plan_for
from ebb._loop.recorder import Facts, Recorder, first_look
from ebb._loop.report import Extent, Report
from ebb._loop.step import TorchStep
from ebb._loop.surprises import ChangesLater
from ebb._loop.tape import State
from ebb._loop.wishes import Settled, settle
from ebb._tensor.cached import refuse_cached
from ebb._tensor.captures import find_captures
from ebb._tensor.context import Surroundings
from ebb._tensor.eager import eager
from ebb._tensor.trees import Structure, storage_bytes


class _Stages(CarryOnly):
    """Each module is a block; what passes between them is the state."""

    name = "Chain"
    advice = ""

    def __init__(self, stages: torch.nn.Sequential, structures: list[Structure]):
        self._stages = stages
        self.structures = structures  # of what goes into each stage, and of what comes out at last
        self.count = self.length = len(stages)

    def run(self, block: int, carry: Leaves, inputs: list[Tensor]) -> tuple[Leaves, list[Tensor]]:
        out = self._stages[block](self.structures[block].tree(carry))
        if block + 1 == len(self.structures):
            self.structures.append(Structure(out, f"the output of stage {block}"))
        return self.structures[block + 1].leaves(out), []


class _Measured:
    """What a kind of input costs, stage by stage."""

    def __init__(
        self,
        costs: list[Costs],
        structures: list[Structure],
        facts: Facts,
        around: Surroundings,
        final: int,
    ):
        self.costs, self.structures, self.facts, self.around = costs, structures, facts, around
        after = [cost.state for cost in costs[1:]] + [final]
        self.chain = _core.Chain.of(
            [cost.step_cost(adjoint=max(cost.state, following)) for cost, following in zip(costs, after)]
        )
        self._settled: Settled = {}

    def plan(self, options: Options) -> _core.Plan:
        offers = [Offer(self.chain, self.around.device)]
        settle(options, lambda: least_of(offers, options), self.chain, self.chain, [], self._settled)
        return plan_for("Chain", offers, options)[1]


class Chain(torch.nn.Module):
    """Runs a torch.nn.Sequential within a budget. It measures the time and bytes of each stage, and plans which activations to
    keep and which to recompute. Outputs and gradients are bit-identical to the module's own.

    >>> import torch, ebb
    >>> net = torch.nn.Sequential(*[torch.nn.Sequential(torch.nn.Linear(64, 64), torch.nn.Tanh()) for _ in range(16)])
    >>> chain = ebb.Chain(net, torch.randn(32, 64), budget="128KiB")
    >>> chain(torch.randn(32, 64)).sum().backward()
    >>> chain.report.strategy != "store_all", net[0][0].weight.grad.shape
    (True, torch.Size([64, 64]))

    sequential: the stages; the module itself is not changed and trains as before.
    sample: a typical input. Inputs of another shape or dtype are measured when they first occur.
    budget: bytes for what backward needs beside parameters, input, output and their gradients; or "20%" of what
        keeping everything takes, or "speed", "balanced" or "memory", as for `scan`. None: no limit. A shared `ebb.Budget` may serve
        several calls.

    `chain.stages` are the measured costs, `chain.report` what was planned and what happened. Raises `ebb.Error`, with
    `least_budget`, where the budget is too small.
    """

    def __init__(
        self,
        sequential: torch.nn.Sequential,
        sample: Any,
        budget: float | str | Budget | None = None,
        *,
        strategy: str = "auto",
        preserve_rng_state: bool = True,
    ):
        super().__init__()
        if not isinstance(sequential, torch.nn.Sequential) or len(sequential) == 0:
            raise Error(
                f"Chain: it takes a torch.nn.Sequential of one stage or more, not a {type(sequential).__name__}"
            )
        self.sequential = sequential
        self.budget = budget
        self.report: Report | None = None
        self._strategy, self._preserve_rng_state = strategy, preserve_rng_state
        self._known: Section[_Measured] = cache.section()
        self._stages: list[Costs] = []
        if budget is not None:
            options = self._options(budget)
            with options.budget.running():
                measured = self._measured(sample, options)
            if not options.budget.shared:
                if options.budget.wish is None:
                    self.budget = options.budget.total
                measured.plan(options)  # says now what cannot be

    def _options(self, budget: BudgetLike) -> Options:
        return Options(allowance_of(budget), strategy=self._strategy, preserve_rng_state=self._preserve_rng_state)

    @property
    def stages(self) -> list[Costs]:
        """The costs of each stage, for the last kind of input measured."""
        return self._stages

    def extra_repr(self) -> str:
        return f"budget={self.budget!r}"

    @eager
    @reported
    def forward(self, input: Any) -> Any:
        if self.budget is None or not torch.is_grad_enabled():
            return self.sequential(input)
        refuse_cached("Chain", self.sequential)
        leaves = Structure(input, "the input").leaves(input)
        refuse_transforms("Chain", [leaf for leaf in leaves if leaf is not None])
        options = self._options(self.budget)
        return options.budget.fitted(lambda: self._in_budget(input, leaves, options))

    def _in_budget(self, input: Any, leaves: Leaves, options: Options) -> Any:
        known = self._measured(input, options)
        if not any(t is not None and t.requires_grad for t in [*leaves, *known.facts.params]):
            return self.sequential(input)
        plan = known.plan(options)
        stages = len(known.costs)
        extent = Extent(stages, stages, 1, str(_device_of(leaves)), "stages")
        self.report = report = Report.of(plan, extent, options.budget.total, _total(known.costs))
        report.remarks += options.budget.told
        set_report(report)
        if plan.prediction.advances == 0 and not options.budget.shared:
            return self.sequential(input)
        try:
            return self._run(leaves, known, plan, options, report)
        except ChangesLater:
            # What is drawn or changed is known now.
            return self._run(leaves, known, known.plan(options), options, report)

    def _run(self, leaves: Leaves, known: _Measured, plan: _core.Plan, options: Options, report: Report) -> Any:
        around = self._surroundings(leaves)
        around.take_over(known.around)
        before = around.look()
        around.begin(before, len(leaves))
        step = TorchStep(
            Recorder(_Stages(self.sequential, known.structures), around, known.facts),
            State([None if leaf is None else leaf.detach() for leaf in leaves], around.snapshot()),
        )
        call = Call(step, known.chain, plan, options.budget, report)
        try:
            return known.structures[-1].tree(call.attached(leaves, [])[0])
        except BaseException:
            around.put_back(before)
            known.around.draws, known.around.changed = around.draws, around.changed
            around.refuse_outside("Chain")
            raise

    def _surroundings(self, leaves: Leaves) -> Surroundings:
        return Surroundings(self.sequential, _device_of(leaves), self._preserve_rng_state)

    def _measured(self, sample: Any, options: Options) -> _Measured:
        structure = Structure(sample, "the sample")
        leaves = structure.leaves(sample)
        key = (
            options.budget.nesting,
            torch.is_autocast_enabled("cpu"),
            torch.is_autocast_enabled("cuda"),
            tuple(module.training for module in self.sequential.modules()),
            tuple((id(p), p.requires_grad) for p in self.sequential.parameters()),
            tuple(None if t is None else (t.shape, t.dtype, t.device, t.requires_grad) for t in leaves),
        )
        known = self._known.get(key)
        if known is None:
            around = self._surroundings(leaves)
            before = around.look()
            try:
                known = self._measure(structure, leaves, around)
            finally:
                around.put_back(before)
            self._known.put(key, known)
            self._stages = known.costs
        return known

    def __getstate__(self) -> dict[str, Any]:
        # Copies measure anew.
        return {**self.__dict__, "_stages": [], "report": None}

    def _measure(self, structure: Structure, leaves: Leaves, around: Surroundings) -> _Measured:
        blocks = _Stages(self.sequential, [structure])
        params: list[Tensor] = [p for p in self.sequential.parameters() if p.requires_grad]
        live = [None if leaf is None else leaf.detach() for leaf in leaves]
        device = _device_of(live)
        own = _used_once(self.sequential)
        costs: list[Costs] = []
        mutates: frozenset[int] = frozenset()
        for stage in range(blocks.count):
            around.begin(around.look(), len(live))
            look = first_look(blocks, around, stage, live)
            around.learn()
            around.refuse_outside("Chain")
            tape = look.tape
            given = [leaf for leaf in tape.carry if leaf is not None]
            params = find_captures(around.tensors(), tape.out, given, tape.since, params)
            if look.mutates:
                mutates |= {stage}
            after = around.look()
            weight = tape.weight(look.saved, params), max(1, storage_bytes(live))
            flags = [leaf is None or leaf.requires_grad for leaf in tape.out]
            following = [None if leaf is None else leaf.detach() for leaf in tape.out]
            del look, tape, given
            facts = Facts(params, mutates, differentiable=flags)
            costs.append(measure(Recorder(blocks, around, facts), live, *weight, device, stage, own, loops=False))
            around.put_back(after)
            live = following
        moving = around.snapshot()
        more = 0 if moving is None else storage_bytes(moving.tensors())
        costs = [cost.with_state(more) for cost in costs]
        return _Measured(costs, blocks.structures, facts, around, storage_bytes(live))


def _device_of(leaves: Leaves) -> torch.device:
    return next((leaf.device for leaf in leaves if leaf is not None), torch.device("cpu"))


def _used_once(stages: torch.nn.Sequential) -> set[int]:
    """Ids of the parameters of one stage alone."""
    uses = Counter(id(param) for stage in stages for param in stage.parameters())
    return {param for param, count in uses.items() if count == 1}


def _total(costs: list[Costs]) -> Costs:
    """A stage on average, for reports."""
    n = len(costs)
    return Costs(
        max(c.state for c in costs),
        sum(c.tape for c in costs) // n,
        max(c.scratch for c in costs),
        sum(c.forward for c in costs) / n,
        sum(c.record for c in costs) / n,
        sum(c.backward for c in costs) / n,
        sum(c.plain for c in costs) / n,
    )

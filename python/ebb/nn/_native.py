# SPDX-License-Identifier: Apache-2.0
"""Native layers as functions of torch tensors: one autograd function for each stack of layers."""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import torch

from ebb import _core
from ebb._base.budget import Allowance, BudgetLike, allowance_of
from ebb._base.errors import Error
from ebb._base.sizes import UNLIMITED
from ebb._base.wish import POINTS, Costs
from ebb._loop.arguments import remedy_of
from ebb.nn._report import LayerReport
from ebb.tiers import Tier, slow_tiers

_DTYPES = {torch.float32: "float32", torch.float64: "float64"}
_MOST_BATCH = 65_535
_NONE = (0, 0, 0)  # no array


def allowed(budget: BudgetLike | None) -> Allowance:
    """What a layer may hold; None is no limit."""
    return allowance_of(UNLIMITED if budget is None else budget)


def refuse_codec(layer: object, options: dict[str, Any]) -> None:
    if "codec" in options:
        raise Error(
            f"{type(layer).__name__}: a layer takes no codec, its cells keep tapes of their own; "
            "ebb.scan(f, init, xs, budget=..., codec=...) over a cell does"
        )


def why_not(*tensors: torch.Tensor) -> str | None:
    """What keeps native cells from running on these tensors; None: nothing does."""
    first = tensors[0]
    for tensor in tensors:
        if type(tensor) not in (torch.Tensor, torch.nn.Parameter):
            return f"a tensor is a {type(tensor).__name__}"
        if tensor.device.type != "cpu":
            return f"a tensor is on {tensor.device}"
        if tensor.layout != torch.strided or tensor.is_neg():
            return "a tensor is not laid out as plain numbers"
        if tensor.dtype not in _DTYPES or tensor.dtype != first.dtype:
            return f"a tensor has dtype {tensor.dtype}" + ("" if tensor is first else f", another {first.dtype}")
    if torch.is_autocast_enabled("cpu"):
        return "autocast is on"
    return None


@dataclass(frozen=True)
class Pass:
    """One network over the sequence: layers on top of each other, in one direction."""

    layers: tuple[dict[str, Any], ...]  # LayerOptions by name
    reverse: bool = False


@dataclass(frozen=True)
class Setting:
    """All that a set of runs is made for."""

    groups: tuple[tuple[Pass, ...], ...]
    dtype: torch.dtype
    time_steps: int
    batch: int
    batch_sizes: tuple[int, ...]  # of a packed sequence
    keeps: bool  # there will be a backward
    input_gradient: bool
    budget: Allowance
    tiers: tuple[Tier, ...]
    strategy: str
    chunk: int  # time steps; 0: the library chooses
    threads: int

    def make(self) -> list[list[Any]]:
        runs = [
            [self._make_one(one, self.input_gradient or index > 0) for one in group]
            for index, group in enumerate(self.groups)
        ]
        if self.keeps:
            every = [run for group in runs for run in group]
            self._settle_budget(every)
            self._share_budget(every)
        return runs

    def _make_one(self, one: Pass, input_gradient: bool) -> Any:
        layers = []
        for given in one.layers:
            layer = _core.LayerOptions()
            for name, value in given.items():
                setattr(layer, name, value)
            layers.append(layer)
        return _core.network_run(
            dtype=_DTYPES[self.dtype],
            layers=layers,
            time_steps=self.time_steps,
            batch=self.batch,
            budget=self.budget.total if self.budget.settled else UNLIMITED,
            strategy=self.strategy,
            tiers=slow_tiers(self._parted_tiers()),
            ledger=self.budget.ledger,
            chunk=self.chunk,
            threads=self.threads,
            input_gradient=input_gradient,
            batch_sizes=list(self.batch_sizes),
            reverse=one.reverse,
        )

    def _parted_tiers(self) -> list[Tier]:
        """Each run reserves what it may use, so every run gets an equal part."""
        runs = sum(len(group) for group in self.groups)
        return [replace(tier, capacity=tier.capacity // runs) for tier in self.tiers]

    def _settle_budget(self, runs: list[Any]) -> None:
        """In bytes, where it is a share or a word."""
        wish = self.budget.wish
        if wish is None or self.budget.settled:
            return

        def sum_of(strategy: str) -> int:
            return sum(run.least_budget(strategy) for run in runs)

        def points() -> list[tuple[int, float]]:
            how = _core.PlanOptions()
            how.strategy = "auto" if self.tiers else self.strategy  # as if memory were all there is
            swept = [_core.sweep(run.chain(), _core.Platform(), how, POINTS) for run in runs]
            return [
                (sum(own for own, _ in row), sum(plan.prediction.seconds for _, plan in row)) for row in zip(*swept)
            ]

        whole = sum(run.plain_bytes for run in runs)
        self.budget.settle(
            wish.bytes(Costs(whole, lambda: sum_of("store_all"), lambda: sum_of(self.strategy), points)), whole
        )
        if len(runs) == 1:
            runs[0].budget = self.budget.total

    def _share_budget(self, runs: list[Any]) -> None:
        """All forwards precede their backwards, so what the runs hold adds up: each gets what it needs at least and
        an equal part of the rest."""
        if not self.budget.shared and (self.budget.unlimited or len(runs) == 1):
            return
        least = [run.least_budget(self.strategy) for run in runs]

        def needs() -> tuple[int, int]:
            wanted = sum(run.least_budget("store_all") for run in runs)
            return sum(least), max(wanted, sum(least))

        total = self.budget.take(needs)
        rest = total - sum(least)
        if rest < 0:
            raise Error(
                f"the budget is {_core.format_bytes(total)}; {len(runs)} runs, one for each layer and direction, "
                f"need {_core.format_bytes(sum(least))} ({sum(least)} bytes) at least",
                "infeasible_budget",
                sum(least),
            )
        for run, own in zip(runs, least):
            run.budget = own + rest // len(runs)


class Lease:
    """A set of runs while somebody needs it; the last who forgets it ends it."""

    def __init__(self, groups: list[list[Any]], end: Callable[[list[list[Any]]], None]):
        self.groups, self._end = groups, end

    def __del__(self) -> None:
        self._end(self.groups)


class Shelf:
    """Runs that are not at work. They hold their budget as long as they live, so only those of the last setting stay,
    as many as were at work at a time."""

    def __init__(self) -> None:
        self._lock = threading.RLock()
        self._key: str | None = None
        self.idle: list[list[list[Any]]] = []

    def lease(self, setting: Setting) -> Lease:
        key = repr(setting)
        with self._lock:
            if key != self._key:
                self.idle.clear()
                self._key = key
            groups = self.idle.pop() if self.idle else None
        return Lease(setting.make() if groups is None else groups, partial(self.give_back, key))

    def give_back(self, key: str, groups: list[list[Any]]) -> None:
        with self._lock:
            if key == self._key:
                self.idle.append(groups)

    def clear(self) -> None:
        with self._lock:
            self.idle.clear()


class Told:
    """By the runs of one call, as their backwards end."""

    def __init__(self, kept: int):
        self.kept = kept
        self.reports: dict[tuple[int, int], Any] = {}

    def report(self) -> LayerReport | None:
        if not self.reports:
            return None
        runs = tuple(self.reports[key] for key in sorted(self.reports))
        budget = min(UNLIMITED, sum(run.budget for run in runs))
        return LayerReport(budget, sum(run.booked for run in runs), self.kept, runs)


class Runs:
    """The runs of a module, with and without a backward, and what they reported. Copies begin without any."""

    def __init__(self) -> None:
        self.keeping, self.passing = Shelf(), Shelf()
        self.told = Told(0)

    def __deepcopy__(self, memo: dict[int, Any]) -> Runs:
        return Runs()

    def __reduce__(self) -> tuple[type[Runs], tuple[()]]:
        return Runs, ()

    def lease(self, setting: Setting) -> Lease:
        if setting.keeps and setting.budget.ledger is not None:
            return Lease(setting.make(), lambda _: setting.budget.give_back())
        return (self.keeping if setting.keeps else self.passing).lease(setting)

    def clear(self) -> None:
        self.keeping.clear()
        self.passing.clear()

    def begin(self, kept: int) -> None:
        """A forward ends whose backward will be reported."""
        self.told = Told(kept)

    def report(self) -> LayerReport | None:
        return self.told.report()


def _array(tensor: torch.Tensor | None) -> tuple[int, int, int]:
    """Address and the distances of time steps and rows: of [T,B,W], or of packed rows [N,W]."""
    if tensor is None:
        return _NONE
    if tensor.dim() == 2:
        return tensor.data_ptr(), 0, tensor.stride(0)
    return tensor.data_ptr(), tensor.stride(0), tensor.stride(1)


def _rows_contiguous(tensor: torch.Tensor) -> torch.Tensor:
    return tensor if tensor.size(-1) == 1 or tensor.stride(-1) == 1 else tensor.contiguous()


def _addresses(tensors: Sequence[torch.Tensor | None]) -> list[int]:
    return [0 if tensor is None else tensor.data_ptr() for tensor in tensors]


class Group:
    """Networks that read the same input side by side, on tensors."""

    def __init__(self, runs: Runs, setting: Setting, index: int, batch_first: bool):
        self.runs, self.setting, self.index = runs, setting, index
        self.passes = setting.groups[index]
        self.depth = len(self.passes[0].layers)
        self.hidden = self.passes[0].layers[-1]["hidden"]
        self.batch_first = batch_first

    def _parts(self, tensors: Sequence[torch.Tensor | None], one: int) -> list[torch.Tensor | None]:
        """A state [D*L,B,H] of the pass alone."""
        rows = slice(one * self.depth, (one + 1) * self.depth)
        return [None if tensor is None else tensor[rows] for tensor in tensors]

    def _columns(self, tensor: torch.Tensor, one: int) -> torch.Tensor:
        return tensor[..., one * self.hidden : (one + 1) * self.hidden]

    def _new_output(self, x: torch.Tensor) -> torch.Tensor:
        width = self.hidden * len(self.passes)
        if x.dim() == 2:
            return x.new_empty(x.size(0), width)
        if self.batch_first:
            return x.new_empty(x.size(1), x.size(0), width).transpose(0, 1)
        return x.new_empty(x.size(0), x.size(1), width)

    def forward(
        self,
        lease: Lease,
        x: torch.Tensor,
        states: Sequence[torch.Tensor],
        parameters: Sequence[torch.Tensor],
    ) -> tuple[torch.Tensor, list[torch.Tensor]]:
        output = self._new_output(x)
        states = [state.contiguous() for state in states]
        finals = [torch.empty_like(state) for state in states]
        parameters = [parameter.contiguous() for parameter in parameters]
        each = len(parameters) // len(self.passes)
        for one, run in enumerate(lease.groups[self.index]):
            call = run.forward if self.setting.keeps else run.advance
            try:
                call(
                    _array(x),
                    _array(self._columns(output, one)),
                    _addresses(self._parts(states, one)),
                    _addresses(self._parts(finals, one)),
                    _addresses(parameters[one * each : (one + 1) * each]),
                )
            except Error as error:
                if error.code != "infeasible_budget":
                    raise
                raise Error(error.problem, error.code, error.least_budget, remedy_of(self.setting.strategy)) from None
        return output, finals

    def backward(
        self,
        lease: Lease,
        x: torch.Tensor,
        of_output: torch.Tensor | None,
        of_finals: Sequence[torch.Tensor | None],
        of_x: torch.Tensor | None,
        of_states: Sequence[torch.Tensor | None],
        of_parameters: Sequence[torch.Tensor | None],
    ) -> None:
        of_output = None if of_output is None else _rows_contiguous(of_output)
        of_finals = [None if one is None else one.contiguous() for one in of_finals]
        each = len(of_parameters) // len(self.passes)
        for one, run in enumerate(lease.groups[self.index]):
            own_of_x = of_x if one == 0 or of_x is None else torch.empty_like(of_x)
            run.backward(
                _array(x),
                _NONE if of_output is None else _array(self._columns(of_output, one)),
                _addresses(self._parts(of_finals, one)),
                _array(own_of_x),
                _addresses(self._parts(of_states, one)),
                _addresses(of_parameters[one * each : (one + 1) * each]),
            )
            if one > 0 and of_x is not None and own_of_x is not None:
                of_x.add_(own_of_x)
            self.runs.told.reports[self.index, one] = run.report()


class _Layers(torch.autograd.Function):
    """(group, lease, how many states, x, states and parameters) -> (output, final states). Spikes at the end of a
    state have no gradient here: the output has them."""

    @staticmethod
    def forward(ctx: Any, group: Group, lease: Lease, count: int, x: torch.Tensor, *rest: torch.Tensor) -> Any:
        ctx.group, ctx.lease, ctx.count = group, lease, count
        ctx.set_materialize_grads(False)
        ctx.save_for_backward(x, *rest)
        output, finals = group.forward(lease, x, rest[:count], rest[count:])
        return (output, *finals)

    @staticmethod
    def backward(ctx: Any, of_output: torch.Tensor | None, *of_finals: torch.Tensor | None) -> Any:
        if torch.is_grad_enabled():
            raise Error(
                "gradients of gradients (create_graph=True) do not go through native layers; pass native=False to a layer that has it without a budget, leave budget= out of others",
                "unavailable",
            )
        x, *rest = ctx.saved_tensors
        group, lease, ctx.lease = ctx.group, ctx.lease, None
        if lease is None:  # backward once more over a graph that was retained
            lease = group.runs.lease(group.setting)
            group.forward(lease, x, rest[: ctx.count], rest[ctx.count :])
        wanted = ctx.needs_input_grad[3:]
        gradients = [
            _rows_contiguous(torch.empty_like(x)) if wanted[0] else None,
            *(
                torch.empty_like(tensor, memory_format=torch.contiguous_format) if wants else None
                for tensor, wants in zip(rest, wanted[1:])
            ),
        ]
        states, parameters = gradients[1 : 1 + ctx.count], gradients[1 + ctx.count :]
        group.backward(lease, x, of_output, of_finals, gradients[0], states, parameters)
        return (None, None, None, *gradients)


def run_group(
    group: Group,
    lease: Lease,
    x: torch.Tensor,
    states: Sequence[torch.Tensor],
    parameters: Sequence[torch.Tensor],
) -> tuple[torch.Tensor, list[torch.Tensor]]:
    """x is [T,B,I] in any order of its first two dimensions, or packed [N,I]; states are [D*L,B,H]."""
    x = _rows_contiguous(x)
    if not group.setting.keeps:
        return group.forward(lease, x, states, parameters)
    output, *finals = _Layers.apply(group, lease, len(states), x, *states, *parameters)
    return output, finals


def needs_gradient(*tensors: torch.Tensor | None) -> bool:
    return torch.is_grad_enabled() and any(tensor is not None and tensor.requires_grad for tensor in tensors)


def fits(batch: int) -> str | None:
    return None if batch <= _MOST_BATCH else f"the batch is {batch}; it may be up to {_MOST_BATCH}"

# SPDX-License-Identifier: Apache-2.0
"""What was predicted and what really happened."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any

from ebb import _core
from ebb._base.page import HasPage, as_json
from ebb._tensor.clock import Clock


@dataclass(frozen=True)
class Coding:
    """What a codec made of what is kept: bytes of one step, as they were and as they are kept."""

    codec: dict[str, str]  # by "tape" and "state"
    approximate: bool  # gradients are not those of plain autograd; `ebb.verify` says how far they are from them
    raw_tape: int
    raw_state: int
    tape: int
    state: int

    def __str__(self) -> str:
        size = _core.format_bytes
        names = ", ".join(f"{what} {words}" for what, words in self.codec.items())
        kept = f"tape {size(self.raw_tape)} kept in {size(self.tape)}, "
        kept += f"state {size(self.raw_state)} in {size(self.state)}"
        return f"{names}: {kept}; gradients are {'approximate' if self.approximate else 'exact'}"


@dataclass(frozen=True)
class Extent:
    """What a report is about."""

    blocks: int  # the steps of the plan
    length: int  # what they are made of
    chunk: int  # of which each but the last is made
    device: str
    unit: str = "time steps"


class Report(HasPage):
    """Of one forward and backward in a budget. `str(report)` is a page, `report.brief()` a line, `report.as_dict()` all
    of it. Figures of what happened are there once backward has run (`report.done`); where plain autograd runs, since all fits,
    there are none. `steps` are blocks of `chunk` time steps, and so are forwards."""

    def __init__(self, strategy: str, extent: Extent, budget: int, costs: Any, prediction: dict[str, Any]):
        self.strategy = strategy  # "store_all": everything fits, and plain autograd ran
        self.extent = extent
        self.steps = extent.blocks
        self.budget = budget
        self.costs = costs
        self.predicted = prediction
        self._measured: dict[str, Any] = {}
        self._clock: Clock | None = None  # that has not been asked yet
        self.remarks: list[str] = []
        self.coding: Coding | None = None  # where `codec` was named, and used
        self.graphs = False  # blocks run as CUDA graphs

    @classmethod
    def plain(cls, costs: Any, extent: Extent, budget: int) -> Report:
        """All fits: nothing is planned, and autograd does as it always does."""
        steps = extent.blocks
        peak = steps * costs.tape + costs.state + costs.scratch
        predicted = {"forwards": steps, "seconds": steps * costs.plain, "peak": {"fast": peak}, "moved": {}}
        return cls("store_all", extent, budget, costs, {**predicted, "stall_seconds": 0.0})

    @classmethod
    def of(cls, plan: Any, extent: Extent, budget: int, costs: Any) -> Report:
        return cls(plan.strategy, extent, budget, costs, _prediction(plan))

    def plan_for(self, plan: Any, costs: Any) -> None:
        """Another plan than the one that it began with."""
        self.strategy, self.costs, self.predicted = plan.strategy, costs, _prediction(plan)

    def spare(self, forwards: int) -> None:
        """That many forwards of the plan take no time."""
        self.predicted["seconds"] -= forwards * self.costs.forward

    @property
    def measured(self) -> dict[str, Any]:
        """What happened. A GPU is waited for."""
        if self._clock is not None:
            self._measured["seconds"], self._clock = self._clock.seconds(), None
        return self._measured

    @property
    def done(self) -> bool:
        return bool(self._measured)

    @property
    def slowdown(self) -> float:
        """Predicted seconds over those of a plain loop, which keeps everything."""
        plain = self.steps * self.costs.plain
        if plain <= 0 or (self.strategy == "store_all" and not self.graphs):
            return 1.0
        return float(max(0.0 if self.graphs else 1.0, self.predicted["seconds"] / plain))

    def finish(self, report: _core.Report, clock: Clock) -> None:
        """`clock` ran with it."""
        self._clock = clock
        found = report.measured
        places = ["fast", *report.tiers]
        self.steps = found.steps
        self._measured = {
            "forwards": found.forwards,
            "advances": found.advances,
            "records": found.records,
            "actions": found.actions,
            "seconds": 0.0,
            "states_kept": found.states_kept,
            "tapes_kept": found.tapes_kept,
            "first_states": dict(zip(places, found.first_states)),
            "moved": {tier: (way.written.bytes, way.read.bytes) for tier, way in zip(report.tiers, found.tiers)},
            "charged": dict(zip(places, found.peak)),
        }

    @property
    def _foreseen(self) -> bool:
        """It has the length that was expected."""
        return self.steps == self.extent.blocks

    @property
    def length(self) -> int:
        """Time steps, or stages of a Chain."""
        return self.extent.length if self._foreseen else self.steps

    @property
    def chunk(self) -> int:
        """Time steps of a block; the last one may have fewer."""
        return self.extent.chunk if self._foreseen else 1

    def brief(self) -> str:
        """A line."""
        memory = f"{_core.format_bytes(self.predicted['peak']['fast'])} of {_core.format_bytes(self.budget)}"
        text = f"{self.length} {self.extent.unit} in {memory} of memory ({self.extent.device})"
        if self.strategy == "store_all" and not self.graphs:
            text += ", everything kept"
        elif self.graphs:
            text += ", as CUDA graphs"
        else:
            forwards = self.measured["forwards"] if self.done else self.predicted["forwards"]
            again = round((forwards - self.steps) * self.length / self.steps)
            text += f", {again} of them recomputed" if again <= self.length else f", {again} recomputed"
        if self._foreseen:
            text += f", {self.slowdown:.2f} x the time of {'the module itself' if self.extent.unit == 'stages' else 'a plain loop'}"
        if self.coding is not None and self.coding.approximate:
            text += ", gradients approximate"
        return text if not self.done else text + f", ran in {self.measured['seconds']:.3g} s"

    def as_dict(self) -> dict[str, Any]:
        return {
            "strategy": self.strategy,
            "steps": self.steps,
            "chunk": self.chunk,
            "time_steps": self.length,
            "device": self.extent.device,
            "budget": self.budget,
            "predicted": self.predicted,
            "measured": self.measured,
            "step": vars(self.costs),
            "graphs": self.graphs,
            "remarks": self.remarks,
            "coding": None if self.coding is None else asdict(self.coding),
        }

    def _page(self, quick: bool) -> str:
        return _core.document_page(as_json(self.as_dict()), "")

    def __repr__(self) -> str:
        return f"<ebb report, {self.brief()}>"

    def __str__(self) -> str:
        size = _core.format_bytes
        costs = self.costs
        each = "stage" if self.extent.unit == "stages" else f"{self.chunk} step{'s' if self.chunk > 1 else ''}"
        lines = [
            self.brief(),
            "",
            f"  strategy      {_in_words(self.strategy)}",
            f"  each {each:<8} forward {costs.forward:.3g} s, recorded {costs.record:.3g} s, backward {costs.backward:.3g} s, "
            f"plain autograd {costs.plain:.3g} s",
            f"                state {size(costs.state)}, kept for backward {size(costs.tape)}, scratch {size(costs.scratch)}",
            f"  predicted     {self.predicted['seconds']:.3g} s, of which waiting {self.predicted['stall_seconds']:.3g} s",
        ]
        if self.coding is not None:
            lines.append(f"  codec         {self.coding}")
        if self.done:
            lines.append(f"  measured      {self.measured['seconds']:.3g} s")
        for name, peak in self.predicted["peak"].items():
            moved = self.predicted["moved"].get(name)
            traffic = f", written {size(moved[0])}, read {size(moved[1])}" if moved else ""
            lines.append(f"  {'memory' if name == 'fast' else name:<13} {size(peak)}{traffic}")
        return "\n".join(lines + [f"  note          {remark}" for remark in self.remarks])


def _in_words(strategy: str) -> str:
    for row in _core.strategies():
        if row.name == strategy:
            return f"{strategy}: {row.summary}" + (f" ({row.paper})" if row.paper else "")
    return strategy


def _prediction(plan: Any) -> dict[str, Any]:
    found = plan.prediction
    names = [tier.name for tier in plan.platform.tiers]
    return {
        "forwards": found.forwards,
        "seconds": found.seconds,
        "stall_seconds": found.stall_seconds,
        "peak": dict(zip(["fast", *names], found.peak)),
        "moved": dict(zip(names, found.moved)),
        "bound_seconds": plan.bound_seconds,
        "optimal": plan.optimal,
    }

# SPDX-License-Identifier: Apache-2.0
"""`probe` and `verify`: what a loop costs in which budget, and whether its gradients are those of plain autograd."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from ebb import _core
from ebb._budget import Budget
from ebb._engine import Examined, Options, plan_for
from ebb._errors import Error
from ebb._function_key import function_key
from ebb._measure import Costs
from ebb._reach import reach
from ebb._scan import _device, as_tiers, default_chunk, scan, surroundings_key
from ebb._scan_blocks import Inputs, ScanBlocks
from ebb._sizes import as_bytes
from ebb._surroundings import Surroundings
from ebb._torch_tiers import speed_of
from ebb._trees import Structure

_POINTS = 12


@dataclass(frozen=True)
class Point:
    """A budget and what it costs."""

    budget: int
    seconds: float
    slowdown: float  # against keeping everything
    forwards: int
    strategy: str


class Probe:
    """What `probe` measured. `str(probe)` is a table."""

    def __init__(self, costs: Costs, chunk: int, chain: _core.Chain, speeds: list[Any], options: Options):
        self.costs = costs  # of `chunk` time steps
        self.chunk = chunk
        self._chain, self._speeds, self._options = chain, speeds, options
        how = _core.PlanOptions()
        how.strategy, how.tapes_stay = options.strategy, True
        self.points = [self._point(plan, budget) for budget, plan in
                       _core.sweep(chain, _core.Platform(tiers=speeds), how, _POINTS)]
        self.least = self.points[0].budget
        self.store_all = self.points[-1].budget

    def _point(self, plan: Any, budget: int) -> Point:
        whole = len(self._chain) * (self.costs.record + self.costs.backward)
        found = plan.prediction
        return Point(budget, found.seconds, found.seconds / whole if whole > 0 else 1.0, found.forwards, plan.strategy)

    def at(self, budget: int | str) -> Point:
        """What this budget costs. Raises `ebb.Error` where it is too small."""
        limit = as_bytes(budget, "budget")
        return self._point(plan_for("probe", self._chain, limit, self._speeds, self._options), limit)

    def budget(self, prefer: str = "balanced") -> int:
        """Bytes to ask for: "speed" keeps everything, "memory" takes the least that works, "balanced" where time x memory
        is least."""
        if prefer == "speed":
            return self.store_all
        if prefer == "memory":
            return self.least
        if prefer == "balanced":
            return min(self.points, key=lambda point: point.budget * point.seconds).budget
        raise Error(f"prefer is {prefer!r}; it is \"speed\", \"balanced\" or \"memory\"")

    def __str__(self) -> str:
        size = _core.format_bytes
        lines = [f"{len(self._chain)} steps of {self.chunk} time steps: forward {self.costs.forward:.3g} s, backward "
                 f"{self.costs.backward:.3g} s, state {size(self.costs.state)}, tape {size(self.costs.tape)}", "",
                 f"  {'budget':>12}  {'time':>8}  {'slowdown':>8}  forwards  strategy"]
        for point in self.points:
            lines.append(f"  {size(point.budget):>12}  {point.seconds:>7.3g}s  {point.slowdown:>7.2f}x  {point.forwards:>8}  "
                         f"{point.strategy}")
        return "\n".join(lines)


def probe(f: Callable[[Any, Any], tuple[Any, Any]], init: Any, xs: Any, *, tiers: Sequence[Any] | None = None,
          chunk: int | None = None, strategy: str = "auto", length: int | None = None, reverse: bool = False,
          params: Any = None) -> Probe:
    """Does it fit, and how slow is it? Measures the first steps of a `scan` and plans for every budget; runs nothing more.

    >>> import torch, ebb
    >>> cell = torch.nn.GRUCell(3, 5)
    >>> found = ebb.probe(lambda h, x: (cell(x, h), None), torch.zeros(2, 5), torch.randn(500, 2, 3))
    >>> found.least < found.budget("balanced") <= found.store_all
    True
    >>> found.at(found.store_all).forwards * found.chunk
    500
    """
    carry, inputs = Structure(init, "init"), Inputs(xs, length)
    initial = carry.leaves(init)
    if inputs.length == 0:
        raise Error("probe: there are no time steps to measure")
    device = _device(f, initial, inputs.leaves)
    best = min(default_chunk(inputs.length) if chunk is None else chunk, inputs.length)
    options = Options(0, as_tiers(tiers), strategy, params=list(params or []))
    blocks = ScanBlocks(f, carry, inputs, best, device, reverse, None)
    key = ("scan", function_key(f), best, reverse, None, inputs.length, *surroundings_key(initial, inputs.leaves, device))
    around = Surroundings(f, device, True)
    before = around.look()
    try:
        with torch.enable_grad():
            seen = Examined(blocks, f, initial, inputs.leaves, device, options, key, around, before)
    finally:
        around.put_back(before)
    chain = seen.chain(options, device)
    speeds = [speed_of(tier, chain[0].state, device) for tier in options.tiers]
    return Probe(seen.known.costs, best, chain, speeds, options)


@dataclass(frozen=True)
class Verification:
    """Gradients in a budget against those of plain autograd. `same`: every bit; `worst`: the largest difference, relative to
    the largest number of its tensor."""

    same: bool
    worst: float
    compared: int  # numbers
    report: Any

    def __bool__(self) -> bool:
        return self.same

    def __str__(self) -> str:
        what = "the same bits as" if self.same else f"differences of up to {self.worst:.3g} from"
        return f"{self.compared} numbers, {what} plain autograd"


def verify(f: Callable[[Any, Any], tuple[Any, Any]], init: Any, xs: Any, *, budget: int | str | Budget,
           **options: Any) -> Verification:
    """Runs a `scan` both in the budget and by plain autograd, which needs the memory for it, with random gradients of all
    outputs, and compares outputs and gradients of init, xs and everything f uses. Arguments as for `scan`.

    >>> import torch, ebb
    >>> cell = torch.nn.GRUCell(3, 5)
    >>> bool(ebb.verify(lambda h, x: (cell(x, h), None), torch.zeros(2, 5), torch.randn(100, 2, 3), budget="32KiB"))
    True
    """
    from ebb._engine import last_report

    around = Surroundings(f, _device(f, Structure(init, "init").leaves(init), []), True)
    before = around.look()
    found = []
    for limit in (None, budget):
        around.put_back(before)
        found.append(_gradients(f, init, xs, limit, options))
    around.put_back(before)
    worst, compared = 0.0, 0
    same = len(found[0]) == len(found[1])
    for plain, mine in zip(*found):
        if plain is None or mine is None:
            # Autograd says None where it can, and zeros where it must.
            other = mine if plain is None else plain
            same = same and (other is None or not bool(other.any()))
            continue
        compared += plain.numel()
        if not torch.equal(plain, mine):
            same = False
            largest = max(float(plain.abs().max()), 1e-300)
            worst = max(worst, float((plain - mine).abs().max()) / largest)
    return Verification(same, worst, compared, last_report())


def _gradients(f: Callable, init: Any, xs: Any, budget: Any, options: dict[str, Any]) -> list[Tensor | None]:
    from torch.utils._pytree import tree_leaves, tree_map

    def leaf(value: Any) -> Any:
        if isinstance(value, Tensor) and (value.is_floating_point() or value.is_complex()):
            return value.detach().requires_grad_()
        return value

    with torch.enable_grad():
        init, xs = tree_map(leaf, init), xs if callable(xs) else tree_map(leaf, xs)
        results = tree_leaves(scan(f, init, xs, budget=budget, **options))
        outputs = [r for r in results if isinstance(r, Tensor)]
        roots = [r for r in outputs if r.requires_grad]
        generator = torch.Generator().manual_seed(1)
        seeds = [torch.randn(r.shape, generator=generator, dtype=torch.float64).to(r.device, r.dtype) for r in roots]
        modules, tensors = reach(f)
        given = [*tree_leaves(init), *([] if callable(xs) else tree_leaves(xs)), *list(options.get("params") or ())]
        wanted = given + [p for module in modules for p in module.parameters()] + tensors
        wanted = [t for t in wanted if isinstance(t, Tensor) and t.requires_grad]
        gradients = torch.autograd.grad(roots, wanted, seeds, allow_unused=True) if roots else []
    return [r.detach() for r in outputs] + list(gradients)

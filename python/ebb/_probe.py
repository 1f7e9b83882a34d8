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
from ebb._codec import codecs_of
from ebb._engine import Examined, Options, plan_for
from ebb._errors import Error
from ebb._function_key import function_key
from ebb._measure import Costs
from ebb._reach import reach
from ebb._scan import checked_chunk, chunks, device_of, named, scan, surroundings_key
from ebb._scan_blocks import Inputs, ScanBlocks
from ebb._sizes import as_bytes
from ebb._surroundings import Surroundings
from ebb._torch_tiers import speed_of
from ebb._trees import Structure
from ebb.tiers import listed

_POINTS = 12


@dataclass(frozen=True)
class Point:
    """A budget and what it costs."""

    budget: int
    seconds: float
    slowdown: float  # against keeping everything
    forwards: int
    strategy: str


@dataclass(frozen=True)
class _Grain:
    """The loop cut into steps of so many time steps."""

    chunk: int
    costs: Costs
    chain: _core.Chain
    speeds: list[Any]

    def point(self, plan: Any, budget: int) -> Point:
        whole = len(self.chain) * (self.costs.record + self.costs.backward)
        found = plan.prediction
        return Point(budget, found.seconds, found.seconds / whole if whole > 0 else 1.0, found.forwards * self.chunk,
                     plan.strategy)


class Probe:
    """What `probe` measured. `points` are budgets from the least to the one that keeps everything, with what they cost; forwards are
    counted in time steps. `str(probe)` is a table."""

    def __init__(self, grains: list[_Grain], options: Options):
        self._grains, self._options = grains, options
        how = _core.PlanOptions()
        how.strategy, how.tapes_stay = options.strategy, True
        self.points: list[Point] = []
        # Shorter steps where longer ones do not fit, as scan does it.
        for grain in grains:
            swept = _core.sweep(grain.chain, _core.Platform(tiers=grain.speeds), how, _POINTS)
            more = [grain.point(plan, budget) for budget, plan in swept]
            self.points = [point for point in more if not self.points or point.budget < self.points[0].budget] + self.points
        self.least = self.points[0].budget
        self.store_all = self.points[-1].budget

    @property
    def costs(self) -> Costs:
        """Of `chunk` time steps."""
        return self._grains[0].costs

    @property
    def chunk(self) -> int:
        return self._grains[0].chunk

    def at(self, budget: int | str) -> Point:
        """What this budget costs. Raises `ebb.Error` where it is too small."""
        limit = as_bytes(budget, "budget")
        for grain in self._grains:
            try:
                return grain.point(plan_for("probe", grain.chain, limit, grain.speeds, self._options), limit)
            except Error as error:
                if error.code != "infeasible_budget" or grain is self._grains[-1]:
                    raise
        raise AssertionError

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
        lines = [f"steps of {self.chunk} time steps: forward {self.costs.forward:.3g} s, backward {self.costs.backward:.3g} s, state "
                 f"{size(self.costs.state)}, tape {size(self.costs.tape)}", "",
                 f"  {'budget':>12}  {'time':>8}  {'slowdown':>8}  forwards  strategy"]
        for point in self.points:
            lines.append(f"  {size(point.budget):>12}  {point.seconds:>7.3g}s  {point.slowdown:>7.2f}x  {point.forwards:>8}  "
                         f"{point.strategy}")
        return "\n".join(lines)


def probe(f: Callable[[Any, Any], tuple[Any, Any]], init: Any, xs: Any, *, tiers: Sequence[Any] | None = None,
          chunk: int | None = None, strategy: str = "auto", length: int | None = None, reverse: bool = False,
          reduce: str | None = None, params: Any = None, codec: Any = None) -> Probe:
    """Does it fit, and how slow is it? Measures the first steps of a `scan` and plans for every budget; runs nothing more.

    >>> import torch, ebb
    >>> cell = torch.nn.GRUCell(3, 5)
    >>> found = ebb.probe(lambda h, x: (cell(x, h), None), torch.zeros(2, 5), torch.randn(500, 2, 3))
    >>> found.least < found.budget("balanced") <= found.store_all
    True
    >>> found.at(found.store_all).forwards
    500
    """
    carry, inputs = Structure(init, "init"), Inputs(xs, length)
    if inputs.length == 0:
        raise Error("probe: there are no time steps to measure")
    chunk = checked_chunk("probe", chunk)
    given, modules = named(params)
    options = Options(0, listed(tiers), strategy, params=given, modules=modules, codecs=codecs_of(codec, "probe"))
    grains = []
    for best in [chunk] if chunk is not None else chunks(inputs.length):
        grains.append(_grain(f, carry, carry.leaves(init), inputs, min(best, inputs.length), options, reverse, reduce))
    return Probe(grains, options)


def _grain(f: Callable, carry: Structure, initial: list[Any], inputs: Inputs, chunk: int, options: Options, reverse: bool,
           reduce: str | None) -> _Grain:
    device = device_of(f, initial, inputs.leaves)
    blocks = ScanBlocks(f, carry, inputs, chunk, device, reverse, reduce)
    around = Surroundings(f, device, True, options.modules)
    key = (("scan", function_key(f), chunk, reverse, reduce, inputs.length, options.codecs and options.codecs.key,
            *surroundings_key(initial, inputs.leaves, device)), around.fingerprint())
    before = around.look()
    try:
        with torch.enable_grad():
            seen = Examined(blocks, f, initial, inputs.leaves, device, options, key, around, before)
    finally:
        around.put_back(before)
    chain = seen.chain(options, device)
    return _Grain(chunk, seen.known.costs, chain, [speed_of(tier, chain[0].state, device) for tier in options.tiers])


@dataclass(frozen=True)
class Difference:
    """A gradient in a budget beside the same of plain autograd."""

    name: str  # of a parameter, or "init 0", "xs 0", "captured 0"
    relative: float  # the norm of the difference over that of the exact one
    cosine: float


@dataclass(frozen=True)
class Verification:
    """Gradients in a budget against those of plain autograd. `same`: every bit; `worst`: the largest difference, relative to
    the largest number of its tensor; `gradients`: each of them, which differ where a lossy `codec` is named."""

    same: bool
    worst: float
    compared: int  # numbers
    report: Any
    gradients: tuple[Difference, ...] = ()

    def __bool__(self) -> bool:
        return self.same

    def __str__(self) -> str:
        what = "the same bits as" if self.same else f"differences of up to {self.worst:.3g} from"
        lines = [f"{self.compared} numbers, {what} plain autograd"]
        if not self.same:
            lines += [f"  {one.name:<24} relative {one.relative:.3g}, cosine {one.cosine:.6g}"
                      for one in self.gradients]
        return "\n".join(lines)


def verify(f: Callable[[Any, Any], tuple[Any, Any]], init: Any, xs: Any, *, budget: int | str | Budget,
           **options: Any) -> Verification:
    """Runs a `scan` both in the budget and by plain autograd, which needs the memory for it, with random gradients of all
    outputs, and compares outputs and gradients of init, xs and everything f uses. Arguments as for `scan`; with a
    lossy `codec` it says how far each gradient is from the exact one.

    >>> import torch, ebb
    >>> cell = torch.nn.GRUCell(3, 5)
    >>> bool(ebb.verify(lambda h, x: (cell(x, h), None), torch.zeros(2, 5), torch.randn(100, 2, 3), budget="32KiB"))
    True
    """
    from ebb._engine import last_report

    plainly = {name: value for name, value in options.items() if name != "codec"}
    around = Surroundings(f, device_of(f, Structure(init, "init").leaves(init), []), True)
    before = around.look()
    found = []
    for limit, how in ((None, plainly), (budget, options)):
        around.put_back(before)
        found.append(_gradients(f, init, xs, limit, how))
    around.put_back(before)
    worst, compared = 0.0, 0
    same = len(found[0]) == len(found[1])
    gradients = []
    for (name, plain), (_, mine) in zip(*found):
        if name and plain is not None and mine is not None:
            gradients.append(_difference(name, plain, mine))
        if plain is None or mine is None:
            # Autograd says None where it can, and zeros where it must.
            other = mine if plain is None else plain
            same = same and (other is None or not bool(other.any()))
            continue
        compared += plain.numel()
        if not torch.equal(plain.nan_to_num(), mine.nan_to_num()) or not torch.equal(plain.isnan(), mine.isnan()):
            same = False
            largest = max(float(plain.abs().max()), 1e-300)
            worst = max(worst, float((plain - mine).abs().max()) / largest)
    return Verification(same, worst, compared, last_report(), tuple(gradients))


def _difference(name: str, exact: Tensor, mine: Tensor) -> Difference:
    kind = torch.complex128 if exact.is_complex() else torch.float64
    a, b = exact.to(kind).flatten(), mine.to(kind).flatten()
    sizes = float(a.norm()), float(b.norm())
    if 0.0 in sizes:
        return Difference(name, 0.0 if sizes == (0.0, 0.0) else float("inf") if sizes[0] == 0 else 1.0,
                          1.0 if sizes == (0.0, 0.0) else 0.0)
    return Difference(name, float((a - b).norm()) / sizes[0], float(torch.vdot(a, b).real) / (sizes[0] * sizes[1]))


def _named_parameters(modules: list[torch.nn.Module]) -> list[tuple[str, Tensor]]:
    found = []
    for place, module in enumerate(modules):
        prefix = "" if len(modules) == 1 else f"{type(module).__name__} {place} "
        found += [(prefix + name, parameter) for name, parameter in module.named_parameters()]
    return found


def _gradients(f: Callable, init: Any, xs: Any, budget: Any,
               options: dict[str, Any]) -> list[tuple[str, Tensor | None]]:
    """The outputs, without names, and the gradients with them."""
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
        given = {"init": tree_leaves(init), "xs": [] if callable(xs) else tree_leaves(xs),
                 "params": named(options.get("params"))[0]}
        wanted = [(f"{name} {k}", t) for name, leaves in given.items() for k, t in enumerate(leaves)]
        wanted += _named_parameters(modules) + [(f"captured {k}", t) for k, t in enumerate(tensors)]
        wanted = [(name, t) for name, t in wanted if isinstance(t, Tensor) and t.requires_grad]
        gradients = torch.autograd.grad(roots, [t for _, t in wanted], seeds, allow_unused=True) if roots else []
    return [("", r.detach()) for r in outputs] + [(name, g) for (name, _), g in zip(wanted, gradients)]

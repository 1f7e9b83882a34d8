# SPDX-License-Identifier: Apache-2.0
"""`verify`: whether the gradients of a loop in a budget are those of plain autograd."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from ebb._base.budget import Budget
from ebb._loop.arguments import device_of, named
from ebb._loop.last_report import last_report
from ebb._loop.scan import scan
from ebb._tensor.context import Surroundings
from ebb._tensor.reach import reach
from ebb._tensor.trees import Structure, leaves_of, mapped


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
            lines += [
                f"  {one.name:<24} relative {one.relative:.3g}, cosine {one.cosine:.6g}" for one in self.gradients
            ]
        return "\n".join(lines)


def verify(
    f: Callable[[Any, Any], tuple[Any, Any]], init: Any, xs: Any, *, budget: float | str | Budget, **options: Any
) -> Verification:
    """Runs a `scan` both in the budget and by plain autograd (which needs its full memory), with random gradients of all
    outputs, and compares outputs and gradients of init, xs and everything f uses. Arguments as for `scan`; with a
    lossy `codec` it says how far each gradient is from the exact one.

    >>> import torch, ebb
    >>> cell = torch.nn.GRUCell(3, 5)
    >>> bool(ebb.verify(lambda h, x: (cell(x, h), None), torch.zeros(2, 5), torch.randn(100, 2, 3), budget="32KiB"))
    True
    """
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
        return Difference(
            name,
            0.0 if sizes == (0.0, 0.0) else float("inf") if sizes[0] == 0 else 1.0,
            1.0 if sizes == (0.0, 0.0) else 0.0,
        )
    return Difference(name, float((a - b).norm()) / sizes[0], float(torch.vdot(a, b).real) / (sizes[0] * sizes[1]))


def _named_parameters(modules: list[torch.nn.Module]) -> list[tuple[str, Tensor]]:
    found: list[tuple[str, Tensor]] = []
    for place, module in enumerate(modules):
        prefix = "" if len(modules) == 1 else f"{type(module).__name__} {place} "
        found += [(prefix + name, parameter) for name, parameter in module.named_parameters()]
    return found


def _gradients(
    f: Callable, init: Any, xs: Any, budget: Any, options: dict[str, Any]
) -> list[tuple[str, Tensor | None]]:
    """The outputs, without names, and the gradients with them."""

    def leaf(value: Any) -> Any:
        if isinstance(value, Tensor) and (value.is_floating_point() or value.is_complex()):
            return value.detach().requires_grad_()
        return value

    with torch.enable_grad():
        init, xs = mapped(leaf, init), xs if callable(xs) else mapped(leaf, xs)
        modules, tensors = reach(f)  # before f leaves something behind
        results = leaves_of(scan(f, init, xs, budget=budget, **options))
        outputs = [r for r in results if isinstance(r, Tensor)]
        roots = [r for r in outputs if r.requires_grad]
        generator = torch.Generator().manual_seed(1)
        seeds = [torch.randn(r.shape, generator=generator, dtype=torch.float64).to(r.device, r.dtype) for r in roots]
        given = {
            "init": leaves_of(init),
            "xs": [] if callable(xs) else leaves_of(xs),
            "params": named(options.get("params"))[0],
        }
        wanted = [(f"{name} {k}", t) for name, leaves in given.items() for k, t in enumerate(leaves)]
        wanted += _named_parameters(modules) + [(f"captured {k}", t) for k, t in enumerate(tensors)]
        wanted = [(name, t) for name, t in wanted if isinstance(t, Tensor) and t.requires_grad]
        gradients = torch.autograd.grad(roots, [t for _, t in wanted], seeds, allow_unused=True) if roots else []
    found: list[tuple[str, Tensor | None]] = [("", r.detach()) for r in outputs]
    return found + [(name, g) for (name, _), g in zip(wanted, gradients)]

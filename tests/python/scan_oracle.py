# SPDX-License-Identifier: Apache-2.0
"""The loop that `ebb.scan` stands for, written by hand over plain autograd, and the comparison with it."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch.utils._pytree import tree_leaves, tree_map

import ebb


def loop(
    f: Callable, init: Any, xs: Any, *, length: int | None = None, reverse: bool = False, reduce: str | None = None
) -> tuple[Any, Any]:
    """As a user would write it."""
    columns = [] if xs is None or callable(xs) else [leaf for leaf in tree_leaves(xs) if leaf is not None]
    steps = length if length is not None else len(columns[0])
    carry, ys, total = init, [], None
    for t in reversed(range(steps)) if reverse else range(steps):
        if callable(xs):
            x = xs(t)
        elif xs is None:
            x = None
        else:
            x = tree_map(
                lambda leaf: (
                    None
                    if leaf is None
                    else torch.as_tensor(np.ascontiguousarray(leaf) if isinstance(leaf, np.ndarray) else leaf)[t]
                ),
                xs,
            )
        carry, y = f(carry, x)
        if reduce is None:
            ys.append(y)
        else:
            total = y if total is None else tree_map(lambda a, b: None if a is None else a + b, total, y)
    if reduce is not None:
        return carry, tree_map(lambda leaf: leaf / steps, total) if reduce == "mean" else total
    if reverse:
        ys.reverse()
    return carry, tree_map(lambda *parts: None if parts[0] is None else torch.stack(parts), ys[0], *ys[1:])


def clones(tree: Any) -> Any:
    """The same values as leaves of their own."""

    def fresh(leaf: Any) -> Any:
        return leaf.detach().clone().requires_grad_(leaf.requires_grad) if isinstance(leaf, Tensor) else leaf

    return tree_map(fresh, tree)


def weighted(*trees: Any) -> Tensor:
    """A loss that gives every element of every output another gradient."""
    total = torch.zeros((), dtype=torch.float64)
    for leaf in tree_leaves(trees):
        if isinstance(leaf, Tensor) and leaf.requires_grad:
            weights = torch.linspace(0.5, 1.5, leaf.numel(), dtype=torch.float64).reshape(leaf.shape)
            real = torch.view_as_real(leaf).sum(-1) if leaf.is_complex() else leaf
            total = total + (real.to(torch.float64) * weights).sum()
    return total


def gradients(loss: Tensor, leaves: Iterable[Tensor]) -> list[Tensor | None]:
    """As .grad has them after a backward."""
    leaves = list(leaves)
    for leaf in leaves:
        leaf.grad = None
    loss.backward()
    found = [None if leaf.grad is None else leaf.grad.clone() for leaf in leaves]
    for leaf in leaves:
        leaf.grad = None
    return found


def wanting(*trees: Any) -> list[Tensor]:
    return [leaf for leaf in tree_leaves(trees) if isinstance(leaf, Tensor) and leaf.requires_grad]


def same(ours: Any, theirs: Any) -> None:
    """Bit for bit, leaf by leaf."""
    ours, theirs = tree_leaves(ours), tree_leaves(theirs)
    assert len(ours) == len(theirs)
    for k, (a, b) in enumerate(zip(ours, theirs)):
        if a is None or b is None:
            empty = b if a is None else a
            # What nothing depends on has no gradient or one of zeros.
            assert empty is None or not empty.any(), f"leaf {k} is {a} and should be {b}"
            continue
        assert a.dtype == b.dtype and a.shape == b.shape, (
            f"leaf {k}: {a.dtype}{list(a.shape)}, {b.dtype}{list(b.shape)}"
        )
        assert torch.equal(a, b), f"leaf {k} differs by {(a - b).abs().max()}"


def least(f: Callable, init: Any, xs: Any, **options: Any) -> int:
    """The least budget that scan names."""
    try:
        ebb.scan(f, clones(init), xs if callable(xs) else clones(xs), budget=0, **options)
    except ebb.Error as error:
        assert error.code == "infeasible_budget" and error.least_budget > 0, error
        return error.least_budget
    raise AssertionError("a budget of nothing was accepted")


def compare(
    f: Callable,
    init: Any,
    xs: Any,
    params: Iterable[Tensor] = (),
    *,
    budget: Any = "least",
    loss: Callable[[Any, Any], Tensor] = weighted,
    **options: Any,
) -> Any:
    """Outputs and gradients of scan against the loop's, bit for bit. Returns scan's report."""
    params = [p for p in params if p.requires_grad]
    if "given" in options:
        options["params"] = options.pop("given")
    kinds = {name: options[name] for name in ("length", "reverse", "reduce") if name in options}
    own = [clones(init), xs if callable(xs) else clones(xs)]
    carry, ys = loop(f, *own, **kinds)
    wanted = gradients(loss(carry, ys), wanting(own) + params)
    if budget == "least":
        budget = least(f, init, xs, **options)
    theirs = [clones(init), xs if callable(xs) else clones(xs)]
    found_carry, found_ys = ebb.scan(f, *theirs, budget=budget, **options)
    same((found_carry, found_ys), (carry, ys))
    found = gradients(loss(found_carry, found_ys), wanting(theirs) + params)
    same(found, wanted)
    return ebb.last_report()

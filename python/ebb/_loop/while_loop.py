# SPDX-License-Identifier: Apache-2.0
"""`while_loop`: a loop of unknown length, with gradients in a budget."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any

import torch
from torch import Tensor

from ebb._base.budget import Budget, allowance_of
from ebb._base.errors import Error
from ebb._loop.arguments import (
    Options,
    check_nothing,
    checked_codecs,
    checked_graph,
    device_of,
    explained,
    named,
    refuse_captures,
    refuse_transforms,
    surroundings_key,
)
from ebb._loop.blocks import Leaves
from ebb._loop.engine import NOTHING, in_budget
from ebb._loop.fits import Fits
from ebb._loop.last_report import reported
from ebb._loop.scan_blocks import WhileBlocks
from ebb._loop.start import Start
from ebb._tensor.eager import eager
from ebb._tensor.function_key import function_key
from ebb._tensor.trees import Structure, check_alike
from ebb.tiers import Tier, listed


@eager
@reported
def while_loop(
    cond: Callable[[Any], Any],
    f: Callable[[Any], Any],
    init: Any,
    *,
    budget: float | str | Budget | None = None,
    tiers: Tier | Sequence[Tier] | None = None,
    strategy: str = "auto",
    expected: int = 1000,
    preserve_rng_state: bool = True,
    verify: bool = False,
    params: Iterable[Tensor] | torch.nn.Module | None = None,
    codec: Any = None,
    graph: bool | None = None,
) -> Any:
    """Runs ``carry = f(carry)`` while ``cond(carry)`` is true, and returns the last carry. The number of steps need not be known.

    >>> import torch, ebb
    >>> rate = torch.tensor(0.9, requires_grad=True)
    >>> x = ebb.while_loop(lambda x: x > 0.01, lambda x: rate * x, torch.tensor(1.0), budget="1KiB")
    >>> x.backward()
    >>> bool((rate.grad - 44 * rate.detach() ** 43).abs() < 1e-4)
    True

    Without `tiers`, an online strategy keeps states within the budget. With them, states stream to the first suitable tier,
    and each tier needs a capacity. `expected`: about how many steps; the prediction assumes it, and
    so do budgets that are shares or words. `cond` runs between steps, also where those are replayed as CUDA graphs. The carry,
    other arguments and errors as for `scan`.
    """
    if isinstance(expected, bool) or not isinstance(expected, int) or expected < 1:
        raise Error(f"while_loop: expected is {expected!r}; it is a number of steps, 1 or more")
    codecs = checked_codecs("while_loop", codec, budget, verify)
    start = Start(init, "while_loop")
    carry, initial, step = start.structure, start.leaves, start.taking(f)

    def until(leaves: list[Any]) -> bool:
        return not bool(cond(start.tree(leaves)))

    with torch.no_grad():
        if until(initial):
            return init
    alone = False
    if budget is not None and torch.is_grad_enabled():
        given, modules = named(params)
        refuse_captures("while_loop")
        refuse_transforms("while_loop", [leaf for leaf in initial if leaf is not None] + given)
        device = device_of(step, initial, [])
        options = Options(
            allowance_of(budget),
            listed(tiers),
            strategy,
            preserve_rng_state,
            verify,
            given,
            modules,
            until,
            expected,
            codecs,
            graph=checked_graph("while_loop", graph),
        )
        blocks = WhileBlocks(step, carry, expected)
        key = ("while_loop", function_key(f), codecs and codecs.key, *surroundings_key(start.known, [], device))
        with explained("while_loop"):
            results = in_budget(blocks, step, initial, [], device, options, key)
        if not isinstance(results, Fits) and results is not NOTHING:
            return start.finished(carry.tree(results[0]))
        alone = results is NOTHING
    return start.finished(_plain(step, carry, initial, until, alone))


def _plain(
    f: Callable[[Any], Any], carry: Structure, initial: Leaves, until: Callable[[Leaves], bool], alone: bool
) -> Any:
    """As one would write it by hand. `alone`: nothing has a gradient."""
    tree = carry.tree(initial)
    while True:
        tree = f(tree)
        leaves = carry.leaves(tree)
        check_alike("while_loop: the carry", initial, leaves)
        if alone:
            check_nothing("while_loop", leaves)
        if until([None if leaf is None else leaf.detach() for leaf in leaves]):
            return tree

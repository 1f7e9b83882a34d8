# SPDX-License-Identifier: Apache-2.0
"""`scan`: a loop over time, with gradients in a budget."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from functools import partial
from typing import Any

import torch
from torch import Tensor

from ebb._base.budget import Budget, allowance_of
from ebb._base.errors import Error
from ebb._base.wish import Wish
from ebb._loop.arguments import (
    Options,
    check_nothing,
    checked_chunk,
    checked_codecs,
    chunks,
    device_of,
    named,
    refuse_transforms,
    surroundings_key,
)
from ebb._loop.engine import NOTHING, InBudget, in_budget
from ebb._loop.fits import Fits
from ebb._loop.last_report import reported
from ebb._loop.scan_blocks import Inputs, ScanBlocks
from ebb._loop.surprises import TooHeavy
from ebb._tensor.eager import eager
from ebb._tensor.function_key import function_key
from ebb._tensor.trees import Structure, check_alike, check_outputs, kind_of
from ebb.tiers import Tier, listed


@eager
@reported
def scan(
    f: Callable[[Any, Any], tuple[Any, Any]],
    init: Any,
    xs: Any,
    *,
    budget: float | str | Budget | None = None,
    tiers: Tier | Sequence[Tier] | None = None,
    chunk: int | None = None,
    strategy: str = "auto",
    length: int | None = None,
    reverse: bool = False,
    reduce: str | None = None,
    preserve_rng_state: bool = True,
    verify: bool = False,
    params: Iterable[Tensor] | torch.nn.Module | None = None,
    codec: Any = None,
) -> tuple[Any, Any]:
    """Runs ``carry, y = f(carry, x)`` over time and returns the last carry and all ys, stacked.

    >>> import torch, ebb
    >>> cell = torch.nn.GRUCell(3, 5)
    >>> def f(h, x):
    ...     h = cell(x, h)
    ...     return h, h
    >>> h, hs = ebb.scan(f, torch.zeros(2, 5), torch.randn(100, 2, 3), budget="64KiB")
    >>> hs.sum().backward()
    >>> hs.shape, cell.weight_hh.grad.shape
    (torch.Size([100, 2, 5]), torch.Size([15, 5]))

    f is called again for the same step when what its backward needs was not kept, so it must do the same whenever it gets the
    same carry and x. Random numbers, buffers and most attributes that it changes are put back for that.

    Without a single time step ys is None: nobody knows what they would be.

    Gradients reach `init`, `xs` and every tensor that f captures, with the bits of plain autograd.

    init, carry: tensors in any structure of tuples, lists, dicts, named tuples and None; shapes and dtypes stay.
    xs: the same, the first dimension is time; or arrays; or a function of t; or None, with `length`. Tensors in host memory
        are brought to the device of `init` block by block.
    budget: bytes of memory for what backward needs, as a number, as "512MiB", or a shared `ebb.Budget`; or "20%" of what
        keeping everything takes; or "memory", the least that works, "speed", enough to keep everything, or "balanced", where
        bytes x time are least by what the first call measures. `ebb.last_report().budget` says which bytes it became. None: no
        limit, plain autograd.
    tiers: slower memories for states, e.g. [ebb.memory_tier("8GiB")], [ebb.file_tier("/scratch", "100GiB")].
    chunk: time steps that are kept or run again together. None: chosen by the length.
    reverse: from the last time step to the first; ys stay in their places.
    reduce: "sum" or "mean" of the ys instead of all of them: no memory that grows with time.
    preserve_rng_state: random numbers (dropout) are drawn again alike.
    verify: every step that runs again is checked to give the same bits.
    params: tensors, or a module, that f uses beside its arguments. They are found in its first block; name them only
        where later steps use others.
    codec: what graphs keep, made smaller: "bits" (exact: a bit for each 0 or 1, spikes), "bf16", "fp16", "int8" or
        "pool:N" (lossy: gradients are approximate, results are not; `ebb.verify` measures it). A pair, or
        {"tape": ..., "state": ...}, names one for states too; from a lossy state steps are run again approximately.

    Raises `ebb.Error`, with `least_budget` where the budget is too small. What f raises comes through unchanged.
    """
    if reduce not in (None, "sum", "mean"):
        raise Error(f'scan: reduce is {reduce!r}; it is None, "sum" or "mean"')
    chunk = checked_chunk("scan", chunk)
    codecs = checked_codecs("scan", codec, budget, verify)
    carry = Structure(init, "init")
    initial = carry.leaves(init)
    inputs = Inputs(xs, length)
    if inputs.length == 0:
        return init, None
    device = device_of(f, initial, inputs.leaves)
    if budget is None or not torch.is_grad_enabled():
        return _plain(f, carry, initial, inputs, device, reverse, reduce)
    given, modules = named(params)
    refuse_transforms("scan", [leaf for leaf in initial if leaf is not None] + inputs.leaves + given)
    options = Options(
        allowance_of(budget), listed(tiers), strategy, preserve_rng_state, verify, given, modules, codecs=codecs
    )
    while True:
        blocks, results = _planned(f, carry, initial, inputs, chunk, device, options, reverse, reduce)
        if results is NOTHING:
            return _plain(f, carry, initial, inputs, device, reverse, reduce, alone=True)
        if not isinstance(results, Fits):
            leaves, ys = results
            return carry.tree(leaves), blocks.tree(ys)
        plain = partial(_plain, f, carry, initial, inputs, device, reverse, reduce, False)
        try:
            return results.run(plain, inputs.length, inputs.leaves)
        except TooHeavy:
            options.budget.unsettle()


def _planned(
    f: Callable[..., Any],
    carry: Structure,
    initial: list[Any],
    inputs: Inputs,
    chunk: int | None,
    device: torch.device,
    options: Options,
    reverse: bool,
    reduce: str | None,
) -> tuple[ScanBlocks, InBudget]:
    """In chunks as long as the caller says, or in the longest that fit."""
    tried = chunks(inputs.length) if chunk is None else [chunk]
    if options.budget.wish == Wish("memory"):
        tried = tried[-1:]  # shorter ones take less
    for best in tried:
        blocks = ScanBlocks(f, carry, inputs, min(best, inputs.length), device, reverse, reduce)
        key = (
            "scan",
            function_key(f),
            best,
            reverse,
            reduce,
            inputs.length,
            options.codecs and options.codecs.key,
            *surroundings_key(initial, inputs.leaves, device),
        )
        try:
            return blocks, in_budget(blocks, f, initial, inputs.leaves, device, options, key)
        except Error as error:
            if best == tried[-1] or error.code != "infeasible_budget":
                raise
    raise AssertionError


def _plain(
    f: Callable,
    carry: Structure,
    initial: list[Any],
    inputs: Inputs,
    device: torch.device,
    backwards: bool,
    reduce: str | None,
    alone: bool = False,
    look: Callable[[], None] | None = None,
) -> tuple[Any, Any]:
    """As one would write it by hand. `alone`: nothing has a gradient. `look` is called after each time step."""
    tree = carry.tree(initial)
    parts = [leaf[: inputs.length] for leaf in inputs.leaves]
    columns = [part.to(device, non_blocking=True).unbind(0) for part in parts]
    structure: Structure | None = None
    kept: list[list[Tensor]] = []
    sums: list[Tensor] = []
    steps = range(inputs.length)
    for t in reversed(steps) if backwards else steps:
        result = f(tree, inputs.at(t, columns, t))
        if type(result) is not tuple or len(result) != 2:
            raise Error(f"scan: f returned a {type(result).__name__}; it must return (carry, y), y may be None")
        tree, y = result
        if look is not None:
            look()
        if structure is None:
            structure = Structure(y, "y")
            check_alike("scan: the carry", initial, carry.leaves(tree))
        leaves = structure.present(y)
        if alone:
            check_nothing("scan", carry.leaves(tree) + leaves)
        if reduce is None:
            kept.append(leaves)
        else:
            sums = leaves if not sums else [total + leaf for total, leaf in zip(sums, leaves)]
    check_alike("scan: the carry", initial, carry.leaves(tree))
    if reduce is None:
        for leaf, column in enumerate(zip(*kept)):
            check_outputs(leaf, kind_of(column[0]), column)
        columns_of = zip(*(reversed(kept) if backwards else kept))
        found = [torch.stack(column) for column in columns_of]
    else:
        found = [total / inputs.length for total in sums] if reduce == "mean" else sums
    assert structure is not None
    return tree, structure.fill(found)

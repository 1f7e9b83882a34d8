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
from ebb._loop.arguments import (
    Options,
    check_nothing,
    checked_chunk,
    checked_codecs,
    checked_graph,
    device_of,
    explained,
    named,
    refuse_captures,
    refuse_transforms,
)
from ebb._loop.engine import NOTHING, InBudget, in_budget
from ebb._loop.fits import Fits
from ebb._loop.given import Given
from ebb._loop.last_report import reported
from ebb._loop.scan_blocks import ScanBlocks, pair_of, stacked_shape
from ebb._loop.surprises import ATTEMPTS, TooHeavy
from ebb._tensor.eager import eager
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
    lengths: Tensor | Sequence[int] | None = None,
    dim: int = 0,
    reverse: bool = False,
    reduce: str | None = None,
    preserve_rng_state: bool = True,
    verify: bool = False,
    params: Iterable[Tensor] | torch.nn.Module | None = None,
    codec: Any = None,
    graph: bool | None = None,
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

    If what the backward pass needs of a step was not kept, f is called again. So f must give the same result whenever it gets
    the same carry and x. Random numbers, buffers and most attributes that it changes are restored first.

    If there are no time steps, ys is None, since its shape is unknown.

    Gradients reach `init`, `xs` and every tensor that f captures, bit-identical to plain autograd.

    init, carry: tensors in any structure of tuples, lists, dicts, named tuples, dataclasses, types registered with
        torch.utils._pytree, and None; shapes and dtypes stay. Where init is None f may put anything at its first step.
    xs: the same, the first dimension is time; or arrays; or a function of t; or None, with `length`; or a PackedSequence.
        Tensors in host memory are brought to the device of `init` block by block.
    budget: bytes of memory for what backward needs, as a number, as "512MiB", or a shared `ebb.Budget`; or "20%" of what
        keeping everything takes; or "memory", the least that works, "speed", enough to keep everything, or "balanced", where
        bytes x time are least by what the first call measures. `ebb.last_report().budget` says which bytes it became. None: no
        limit, plain autograd.
    tiers: slower memories for states, e.g. [ebb.memory_tier("8GiB")], [ebb.file_tier("/scratch", "100GiB")].
    chunk: time steps that are kept or recomputed together. None: chosen with the plan, for the least time within the budget.
    length: how many time steps to run, if xs has more or does not say.
    lengths: one for each sample, a list or a tensor, where xs is padded: after its own last step a sample's carry stays as it
        is and its ys are zeros without a gradient. What is in the padding does not matter. Samples are the first dimension
        of every x, carry and y. A PackedSequence brings its own, and ys are packed as it is.
    dim: the dimension of time in all tensors of xs, and in the ys. 1 is what other packages call batch_first.
    reverse: from the last time step to the first; ys stay in their places.
    reduce: "sum" or "mean" of the ys instead of all of them: no memory that grows with time.
    preserve_rng_state: recomputed steps draw the same random numbers (dropout).
    verify: every recomputed step is checked to give the same bits.
    params: tensors, or a module, that f uses beside its arguments. They are found in its first block; name them only
        where later steps use others.
    codec: what graphs keep, made smaller: "bits" (exact: a bit for each 0 or 1, spikes), "bf16", "fp16", "int8" or
        "pool:N" (lossy: gradients are approximate, results are not; `ebb.verify` measures it). A pair, or
        {"tape": ..., "state": ...}, names one for states too; steps recomputed from a lossy state are approximate.
    graph: on a GPU, from the second call on, blocks are replayed as CUDA graphs, which takes a fraction of the time: None,
        where everything that f sees can be listed and captured (the report says why not); True, or else an error; False, never.

    Raises `ebb.Error`, with `least_budget` where the budget is too small. Exceptions raised by f are passed through unchanged.
    """
    chunk = checked_chunk("scan", chunk)
    codecs = checked_codecs("scan", codec, budget, verify)
    given = Given(f, init, xs, length=length, dim=dim, lengths=lengths, reverse=reverse, reduce=reduce)
    if given.inputs.length == 0:
        return init, None
    device = device_of(given.f, given.start.leaves, given.inputs.leaves)
    if budget is None or not torch.is_grad_enabled():
        with explained("scan", xs, planned=False):
            return given.results(*_plain(given, device))
    tensors, modules = named(params)
    refuse_captures("scan")
    refuse_transforms("scan", given.start.leaves + given.inputs.leaves + tensors)
    options = Options(
        allowance_of(budget),
        listed(tiers),
        strategy,
        preserve_rng_state,
        verify,
        tensors,
        modules,
        codecs=codecs,
        graph=checked_graph("scan", graph),
    )
    with explained("scan", xs):
        for _ in range(ATTEMPTS):
            blocks, results = _planned(given, chunk, device, options)
            if results is NOTHING:
                return given.results(*_plain(given, device, alone=True))
            if not isinstance(results, Fits):
                leaves, ys = results
                return given.results(given.start.structure.tree(leaves), blocks.tree(ys))
            plain = partial(_plain, given, device, False)
            try:
                return given.results(*results.run(plain, given.inputs.length, given.inputs.leaves))
            except TooHeavy:
                options.budget.unsettle()
    raise Error(
        "scan: what a step keeps for its backward is more each time that the loop begins again",
        remedy="give a budget that holds the largest steps, or let f do the same for the same carry and x",
    )


def _planned(given: Given, chunk: int | None, device: torch.device, options: Options) -> tuple[ScanBlocks, InBudget]:
    """In chunks as long as the caller says, or as make the fastest plan."""
    if chunk is None:
        return given.chunking(device, options).run()
    blocks = given.blocks(chunk, device)
    # In a loop that is shorter than the chunk a block has fewer time steps.
    key, kin = ((each, min(chunk, given.inputs.length)) for each in given.keys(device, options.codecs))
    return blocks, in_budget(blocks, given.f, given.start.leaves, given.inputs.leaves, device, options, key, kin=kin)


def _plain(
    given: Given, device: torch.device, alone: bool = False, look: Callable[[], None] | None = None
) -> tuple[Any, Any]:
    """As one would write it by hand. `alone`: nothing has a gradient. `look` is called after each time step."""
    inputs, carry, initial, reduce = given.inputs, given.start.structure, given.start.leaves, given.reduce
    tree = carry.tree(initial)
    parts = [leaf[: inputs.length] for leaf in inputs.leaves]
    columns = [part.to(device, non_blocking=True).unbind(0) for part in parts]
    structure: Structure | None = None
    kept: list[list[Tensor]] = []
    sums: list[Tensor] = []
    steps = range(inputs.length)
    for x in inputs.each(steps[::-1] if given.reverse else steps, columns):
        tree, y = pair_of(given.f(tree, x))
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
    assert structure is not None
    if reduce is not None:
        return tree, structure.fill([total / inputs.length for total in sums] if reduce == "mean" else sums)
    found = []
    for leaf, column in enumerate(zip(*(reversed(kept) if given.reverse else kept))):
        check_outputs(leaf, kind_of(column[0]), column)
        stacked_shape(leaf, column[0], inputs.length, given.dim)
        found.append(torch.stack(column, given.dim))
    return tree, structure.fill(found)

# SPDX-License-Identifier: Apache-2.0
"""`scan` and `while_loop`: loops over time with gradients in a budget."""

from __future__ import annotations

import operator
from collections.abc import Callable, Iterable, Sequence
from typing import Any

import torch
from torch import Tensor

from ebb._budget import Budget
from ebb._codec import Codecs, codecs_of
from ebb._engine import NOTHING, Options, in_budget, refuse_transforms
from ebb._errors import Error
from ebb._function_key import function_key
from ebb._reach import reach
from ebb._scan_blocks import Inputs, ScanBlocks, WhileBlocks
from ebb._trees import Structure, check_alike, check_outputs, kind_of
from ebb.tiers import listed

_STEPS_WANTED = 200
_LONGEST_CHUNK = 32


@torch.compiler.disable
def scan(f: Callable[[Any, Any], tuple[Any, Any]], init: Any, xs: Any, *, budget: int | str | Budget | None = None,
         tiers: Sequence[Any] | None = None, chunk: int | None = None, strategy: str = "auto", length: int | None = None,
         reverse: bool = False, reduce: str | None = None, preserve_rng_state: bool = True, verify: bool = False,
         params: Iterable[Tensor] | torch.nn.Module | None = None, codec: Any = None) -> tuple[Any, Any]:
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

    Without a single time step ys is None: nobody knows what they would be.

    Gradients reach `init`, `xs` and every tensor that f captures, with the bits of plain autograd.

    init, carry: tensors in any structure of tuples, lists, dicts, named tuples and None; shapes and dtypes stay.
    xs: the same, the first dimension is time; or arrays; or a function of t; or None, with `length`. Tensors in host memory
        are brought to the device of `init` block by block.
    budget: bytes of memory for what backward needs, as a number, as "512MiB", or a shared `ebb.Budget`. None: no limit, plain
        autograd.
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
        raise Error(f"scan: reduce is {reduce!r}; it is None, \"sum\" or \"mean\"")
    chunk = checked_chunk("scan", chunk)
    codecs = _checked_codecs("scan", codec, budget, verify)
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
    options = Options(budget, listed(tiers), strategy, preserve_rng_state, verify, given, modules, codecs=codecs)
    tried = chunks(inputs.length) if chunk is None else [chunk]
    for best in tried:
        blocks = ScanBlocks(f, carry, inputs, min(best, inputs.length), device, reverse, reduce)
        key = ("scan", function_key(f), best, reverse, reduce, inputs.length, codecs and codecs.key,
               *surroundings_key(initial, inputs.leaves, device))
        try:
            results = in_budget(blocks, f, initial, inputs.leaves, device, options, key)
            break
        except Error as error:
            if best == tried[-1] or error.code != "infeasible_budget":
                raise
    if results is None or results is NOTHING:
        return _plain(f, carry, initial, inputs, device, reverse, reduce, results is NOTHING)
    leaves, ys = results
    return carry.tree(leaves), blocks.tree(ys)


@torch.compiler.disable
def while_loop(cond: Callable[[Any], Any], f: Callable[[Any], Any], init: Any, *, budget: int | str | Budget | None = None,
               tiers: Sequence[Any] | None = None, strategy: str = "auto", expected: int = 1000,
               preserve_rng_state: bool = True, verify: bool = False,
               params: Iterable[Tensor] | torch.nn.Module | None = None, codec: Any = None) -> Any:
    """Runs ``carry = f(carry)`` while ``cond(carry)`` is true, and returns the last carry. How often is not known before.

    >>> import torch, ebb
    >>> rate = torch.tensor(0.9, requires_grad=True)
    >>> x = ebb.while_loop(lambda x: x > 0.01, lambda x: rate * x, torch.tensor(1.0), budget="1KiB")
    >>> x.backward()
    >>> bool((rate.grad - 44 * rate.detach() ** 43).abs() < 1e-4)
    True

    Without `tiers` states are kept by an online strategy in the budget alone; with them they stream to the first tier that
    suits, and each tier needs a capacity. `expected`: about how many steps; the prediction assumes it. Other arguments and
    errors as for `scan`.
    """
    if isinstance(expected, bool) or not isinstance(expected, int) or expected < 1:
        raise Error(f"while_loop: expected is {expected!r}; it is a number of steps, 1 or more")
    codecs = _checked_codecs("while_loop", codec, budget, verify)
    carry = Structure(init, "init")
    initial = carry.leaves(init)

    def until(leaves: list[Any]) -> bool:
        return not bool(cond(carry.tree(leaves)))

    with torch.no_grad():
        if until(initial):
            return init
    alone = False
    if budget is not None and torch.is_grad_enabled():
        given, modules = named(params)
        refuse_transforms("while_loop", [leaf for leaf in initial if leaf is not None] + given)
        device = device_of(f, initial, [])
        options = Options(budget, listed(tiers), strategy, preserve_rng_state, verify, given, modules, until, expected,
                          codecs)
        blocks = WhileBlocks(f, carry, expected)
        key = ("while_loop", function_key(f), codecs and codecs.key, *surroundings_key(initial, [], device))
        results = in_budget(blocks, f, initial, [], device, options, key)
        if results is not None and results is not NOTHING:
            return carry.tree(results[0])
        alone = results is NOTHING
    tree = init
    while True:
        tree = f(tree)
        leaves = carry.leaves(tree)
        check_alike("while_loop: the carry", initial, leaves)
        if alone:
            _check_nothing("while_loop", leaves)
        if until([None if leaf is None else leaf.detach() for leaf in leaves]):
            return tree


def _check_nothing(name: str, leaves: list[Any]) -> None:
    """The first block had no gradient, so no budget was planned."""
    if any(leaf is not None and leaf.requires_grad for leaf in leaves):
        raise Error(f"{name}: the first steps differentiate through nothing and a later one does, so that no budget could be planned; "
                    "name what f uses in params=")


def _checked_codecs(name: str, codec: Any, budget: Any, verify: bool) -> Codecs | None:
    codecs = codecs_of(codec, name)
    if codecs is None:
        return None
    if budget is None:
        raise Error(f"{name}: codec is {codec!r} and budget is None: without a limit plain autograd keeps everything as it "
                    "is; give a budget, or leave codec out")
    if verify and codecs.state is not None and not codecs.state.exact:
        raise Error(f"{name}: verify=True asks that steps which run again give the same bits, and from states kept in "
                    f"{codecs.state.words} they do not; leave one of them out")
    return codecs


def checked_chunk(name: str, chunk: Any) -> int | None:
    if chunk is None:
        return None
    try:
        if isinstance(chunk, bool) or operator.index(chunk) < 1:
            raise TypeError
    except TypeError:
        raise Error(f"{name}: chunk is {chunk!r}; it is a number of time steps, 1 or more") from None
    return operator.index(chunk)


def named(params: Iterable[Tensor] | torch.nn.Module | None) -> tuple[list[Tensor], tuple[torch.nn.Module, ...]]:
    """What the caller says that f uses, as tensors and as modules."""
    if params is None:
        return [], ()
    return _tensors(params), (params,) if isinstance(params, torch.nn.Module) else ()


def _tensors(params: Iterable[Tensor] | torch.nn.Module) -> list[Tensor]:
    if not isinstance(params, (torch.nn.Module, Iterable)):
        raise Error(f"params is a {type(params).__name__}; it is a module, or a list of tensors")
    found = list(params.parameters()) if isinstance(params, torch.nn.Module) else list(params)
    for tensor in found:
        if not isinstance(tensor, Tensor):
            raise Error(f"params holds a {type(tensor).__name__}; it is a module, or a list of tensors")
    return found


def chunks(length: int) -> list[int]:
    """To be tried in this order: long enough that calls weigh little, short enough that a plan has something to choose; shorter ones
    where memory is short."""
    found = [min(max(length // _STEPS_WANTED, 1), _LONGEST_CHUNK)]
    while found[-1] > 1:
        found.append(max(1, found[-1] // 4))
    return found


def surroundings_key(initial: list[Any], inputs: list[Tensor], device: torch.device) -> tuple[Any, ...]:
    """What costs depend on beside f."""
    autocast = tuple((torch.is_autocast_enabled(kind), torch.get_autocast_dtype(kind)) for kind in {"cpu", device.type})
    return _kinds(initial), _kinds(inputs), autocast, torch.get_num_threads()


def _kinds(leaves: list[Any]) -> tuple[Any, ...]:
    return tuple(None if t is None else (t.shape, t.dtype, t.device, t.requires_grad) for t in leaves)


def device_of(f: Callable, initial: list[Any], inputs: list[Tensor]) -> torch.device:
    for leaf in initial:
        if leaf is not None:
            return leaf.device
    modules, tensors = reach(f)
    for tensor in [p for module in modules for p in module.parameters()] + tensors + inputs:
        return tensor.device
    return torch.device("cpu")


def _plain(f: Callable, carry: Structure, initial: list[Any], inputs: Inputs, device: torch.device, backwards: bool,
           reduce: str | None, alone: bool = False) -> tuple[Any, Any]:
    """As one would write it by hand. `alone`: nothing has a gradient."""
    tree = carry.tree(initial)
    parts = [leaf[:inputs.length] for leaf in inputs.leaves]
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
        if structure is None:
            structure = Structure(y, "y")
            check_alike("scan: the carry", initial, carry.leaves(tree))
        leaves = structure.present(y)
        if alone:
            _check_nothing("scan", carry.leaves(tree) + leaves)
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
    return tree, structure.fill(found)

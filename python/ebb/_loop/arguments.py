# SPDX-License-Identifier: Apache-2.0
"""What `scan`, `while_loop` and `probe` are given: checked, and as the loop takes it."""

from __future__ import annotations

import contextlib
import operator
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from ebb._base.budget import Allowance
from ebb._base.errors import Error
from ebb._loop.blocks import Leaves
from ebb._loop.codec.codec import Codecs, codecs_of
from ebb._tensor.capture import is_captured
from ebb._tensor.reach import reach
from ebb.tiers import Tier


@dataclass
class Options:
    """How to run, as the caller said."""

    budget: Allowance
    tiers: tuple[Tier, ...] = ()
    strategy: str = "auto"
    preserve_rng_state: bool = True
    verify: bool = False
    params: list[Tensor] | None = None
    modules: tuple[torch.nn.Module, ...] = ()  # that f uses, as the caller named them
    until: Callable[[Leaves], bool] | None = None  # where the length is unknown
    expected: int = 1000
    codecs: Codecs | None = None
    needs: Callable[[], tuple[int, int]] | None = (
        None  # the least bytes and those of all, where they are not those of the blocks
    )
    graph: bool | None = None  # blocks as CUDA graphs; None: where it can be

    @property
    def unknown(self) -> bool:
        return self.until is not None


def check_nothing(name: str, leaves: list[Any]) -> None:
    """The first block had no gradient, so no budget was planned."""
    if any(leaf is not None and leaf.requires_grad for leaf in leaves):
        raise Error(
            f"{name}: the first steps differentiate through nothing and a later one does, so that no budget could be planned; "
            "name what f uses in params="
        )


def checked_codecs(name: str, codec: Any, budget: Any, verify: bool) -> Codecs | None:
    codecs = codecs_of(codec, name)
    if codecs is None:
        return None
    if budget is None:
        raise Error(
            f"{name}: codec is {codec!r} and budget is None: without a limit plain autograd keeps everything as it "
            "is; give a budget, or leave codec out"
        )
    if verify and codecs.state is not None and not codecs.state.exact:
        raise Error(
            f"{name}: verify=True asks that recomputed steps give the same bits, and from states kept in "
            f"{codecs.state.words} they do not; leave one of them out"
        )
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


def checked_graph(name: str, graph: Any) -> bool | None:
    if graph is not None and not isinstance(graph, bool):
        raise Error(f"{name}: graph is {graph!r}; it is True, False, or None for where it can be")
    return graph


def refuse_captures(name: str) -> None:
    """A loop plans, measures and captures graphs of its own, none of which can be a part of another one."""
    if is_captured():
        raise Error(
            f"{name}: a CUDA graph is being captured around it, which cannot hold a loop in a budget",
            remedy="leave budget= out there, or do not capture: its blocks run as CUDA graphs by themselves",
        )


def transform_of(tensors: list[Tensor]) -> str | None:
    """What torch does around a call that only autograd can follow; None: nothing."""
    peek = getattr(torch._C._functorch, "peek_interpreter_stack", None)
    if peek is not None and peek() is not None:
        return "torch.func transforms (vmap, grad, jvp)"
    forward_ad = torch.autograd.forward_ad
    if getattr(forward_ad, "_current_level", -1) >= 0:
        if any(forward_ad.unpack_dual(tensor).tangent is not None for tensor in tensors):
            return "forward-mode derivatives"
    return None


def refuse_transforms(name: str, tensors: list[Tensor]) -> None:
    if (found := transform_of(tensors)) is not None:
        raise Error(f"{name}: {found} do not go through a budget; leave budget= out")


@contextlib.contextmanager
def explained(name: str, xs: Any = None, planned: bool = True) -> Iterator[None]:
    """What f raises about what a loop does with it, in words of ours. `planned`: in a budget."""
    try:
        yield
    except (TypeError, AttributeError) as error:
        kind = type(xs).__name__
        if type(xs) in (list, tuple) and kind in str(error) and all(isinstance(x, Tensor) for x in xs):
            raise Error(
                f"{name}: xs is a {kind} of {len(xs)} tensors, so that f gets {len(xs)} inputs at every time step, and it "
                f"raised {type(error).__name__}: {error}",
                remedy="if they are the time steps of one input, did you mean torch.stack(xs)?",
            ) from error
        raise
    except RuntimeError as error:
        if planned and "register a hook on a tensor that doesn't require grad" in str(error):
            raise Error(
                f"{name}: f registers a hook on a tensor, and where steps run without a graph tensors have no gradient to hook",
                remedy="write `if h.requires_grad: h.register_hook(...)`: steps are recomputed with a graph before their backward",
            ) from error
        raise


def named(params: Iterable[Tensor] | torch.nn.Module | None) -> tuple[list[Tensor], tuple[torch.nn.Module, ...]]:
    """What the caller says that f uses, as tensors and as modules."""
    if params is None:
        return [], ()
    return _tensors(params), (params,) if isinstance(params, torch.nn.Module) else ()


def _tensors(params: Iterable[Tensor] | torch.nn.Module) -> list[Tensor]:
    if not isinstance(params, (torch.nn.Module, Iterable)):
        raise Error(f"params is a {type(params).__name__}; it is a module, or a list of tensors")
    found: list[Tensor] = list(params.parameters() if isinstance(params, torch.nn.Module) else params)
    for tensor in found:
        if not isinstance(tensor, Tensor):
            raise Error(f"params holds a {type(tensor).__name__}; it is a module, or a list of tensors")
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


def remedy_of(strategy: str, smaller: str = "take a smaller chunk") -> str:
    """What a caller can do about a budget that is too small."""
    return f"raise the budget, {'' if strategy == 'auto' else 'take strategy auto, '}or {smaller}"

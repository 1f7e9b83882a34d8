# SPDX-License-Identifier: Apache-2.0
"""A mode of torch that sees which functions a compressed model calls, so that they do what layers of their kind do (functions.py), and
that a change of shape hands on what is known of a tensor.

A mode sees every call while the forward pass runs, which takes a microsecond or two each. So it is there only for models whose code
names such a function, and acts only for modules that were marked: their attribute `ebb_functions` has the ways in which functions keep.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Collection, Iterable, Iterator
from functools import partial
from types import CodeType, FunctionType
from typing import Any

import torch
from torch import Tensor, nn
from torch.overrides import TorchFunctionMode

from ebb._compress.compiled import running
from ebb._compress.functions import KIND_NAMED, KIND_OF, done, plain
from ebb._compress.kinds import NORMS, original_class, plain_base
from ebb._compress.packed import can_be_watched, is_watched
from ebb._compress.sources import Source, recipe_of

# Calls of modules pass here. Only its frames are asked what `self` is: asking keeps what a frame has alive.
CALL = nn.Module._call_impl.__code__
_FAR = 64  # this many calls away at most

# Of the whole of a tensor, in another shape.
_VIEWS = {
    getattr(where, name)
    for name in ("flatten", "reshape", "permute", "transpose", "squeeze", "unsqueeze", "unflatten", "movedim")
    for where in (torch, Tensor)
} | {Tensor.view}


class Seen(TorchFunctionMode):
    def __torch_function__(self, function: Any, _types: Any, args: Any = (), kwargs: Any = None) -> Any:
        named = kwargs or {}
        if torch.compiler.is_compiling():
            return function(*args, **named)
        kind = KIND_OF.get(function)
        if kind is not None and is_watched() and (way := _way_of(kind)) is not None:
            found = done(function, way, args, named)
            if found is not NotImplemented:
                return found
        out = function(*args, **named)
        if function in _VIEWS and args and is_watched():
            _hand_on(function, args, named, out)
        return out


def may_be_around() -> bool:
    """Other modes change what functions do, or count them; only that of torch.set_default_device does neither."""
    count = torch._C._len_torch_function_stack()
    around = [torch._C._get_function_stack_at(k) for k in range(count)]
    return running.seen is None and all(type(one).__module__ == "torch.utils._device" for one in around)


def _way_of(kind: type[nn.Module]) -> str | None:
    """In which way a function of this kind keeps for the module that calls it; None: it is torch's own there. Layers of torch's, modules
    that were left out, and what is no part of the model have no mark."""
    frame: Any = sys._getframe(2)
    for _ in range(_FAR):
        if frame is None:
            return None
        if frame.f_code is CALL:
            return vars(frame.f_locals["self"]).get("ebb_functions", {}).get(kind.__name__)
        frame = frame.f_back
    return None


class _View:
    def __init__(self, function: Callable[..., Tensor], args: tuple[Any, ...], named: dict[str, Any]):
        self._function, self._args, self._named = function, args, named

    def __call__(self, x: Tensor, mine: bool) -> Tensor:
        return self._function(x, *self._args, **self._named)


def _hand_on(function: Any, args: tuple[Any, ...], named: dict[str, Any], out: Any) -> None:
    x, rest, words = args[0], tuple(map(plain, args[1:])), {name: plain(one) for name, one in named.items()}
    if type(x) is not Tensor or type(out) is not Tensor or out is x or not out.requires_grad:
        return
    if any(one is NotImplemented or isinstance(one, Tensor) for one in (*rest, *words.values())):
        return
    if (before := recipe_of(x)) is not None:
        Source.of(out).seen_as(before, _View(function, rest, words))


# They save a tensor in the shape of a matrix: what is known of it must come through.
_PRODUCTS = {"addmm", "mm", "bmm", "matmul", "baddbmm"}

# While a mode is around, torch computes these in another way, with other bits.
_APART = (nn.MultiheadAttention, nn.TransformerEncoder, nn.TransformerEncoderLayer)


def ways_called(model: nn.Module, left: tuple[type, ...], norm: str) -> dict[str, str]:
    """Kinds of layers whose functions the model calls, without those that are to stay as they are, and the way in which each keeps."""
    if not can_be_watched() or any(isinstance(part, _APART) for part in model.modules()):
        return {}
    kinds = {name: getattr(nn, name) for name in sorted(_kinds_called(model))}
    return {name: norm if kind in NORMS else "keep" for name, kind in kinds.items() if not issubclass(kind, left)}


def mark(model: nn.Module, ways: dict[str, str], left: Collection[nn.Module]) -> None:
    """Functions that these modules call do what layers do."""
    for part in model.modules():
        if part is model or (part not in left and _is_own(original_class(part)) and not _is_scripted(part)):
            vars(part)["ebb_functions"] = ways


def _kinds_called(model: nn.Module) -> set[str]:
    """Names of kinds, as far as a model's code shows: functions that a module has as attributes, names in the code of its class, unless
    that is a layer of the module, and forward passes of torch's layers in classes derived from them. `Flatten` is for models that change
    shapes before products."""
    found: set[str] = set()
    layers: dict[type, set[str]] = {}
    for part in model.modules():
        if _is_scripted(part):
            continue
        layers.setdefault(original_class(part), set(part._modules)).intersection_update(part._modules)
        held = [one.func if isinstance(one, partial) else one for one in vars(part).values() if callable(one)]
        found.update(kind.__name__ for one in held for function, kind in KIND_OF.items() if one is function)
    for owner, own in layers.items():
        for base in owner.__mro__ if _is_own(owner) else ():
            if _is_torchs(base):
                name = "BatchNorm2d" if base.__name__.startswith("BatchNorm") else base.__name__
                found.update({name} & {kind.__name__ for kind in KIND_OF.values()})
                continue
            named = set(_names_in(vars(base).values(), set())) - own
            found.update(KIND_NAMED[name].__name__ for name in named & KIND_NAMED.keys())
            if named & _PRODUCTS:
                found.add("Flatten")
    return found


def _names_in(things: Iterable[Any], seen: set[Any]) -> Iterator[str]:
    """Names in the code of functions, and of functions of the same file that those call."""
    for thing in things:
        function = thing.__func__ if type(thing) in (staticmethod, classmethod) else thing
        if type(function) is not FunctionType or function in seen or _is_torchs(function):
            continue
        seen.add(function)
        codes = [function.__code__]
        while codes:
            code = codes.pop()
            codes += [one for one in code.co_consts if isinstance(one, CodeType)]
            yield from code.co_names
            yield from _names_in([function.__globals__.get(name) for name in code.co_names], seen)


def _is_scripted(part: nn.Module) -> bool:
    return isinstance(part, torch.jit.ScriptModule)


def _is_own(kind: Any) -> bool:
    """A class of somebody's own, but not one that computes what a layer of torch's computes."""
    return not _is_torchs(kind) and plain_base(kind) is None


def _is_torchs(thing: Any) -> bool:
    return (getattr(thing, "__module__", "") or "").partition(".")[0] in ("torch", "ebb")

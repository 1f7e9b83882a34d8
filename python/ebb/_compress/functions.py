# SPDX-License-Identifier: Apache-2.0
"""Functions of torch that a compressed model calls: activations, max-pooling and dropout keep what the layers of their kind keep, and
a change of shape hands on what is known of a tensor.

A mode of torch sees every call while the forward pass runs, which takes a microsecond or two each. So it is there only for models whose
code names such a function.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable, Iterator, Mapping
from functools import lru_cache, partial
from types import CodeType, FunctionType
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.overrides import TorchFunctionMode

from ebb._compress.compiled import running
from ebb._compress.kinds import NORMS, plain_base
from ebb._compress.layers import activation, dropout, maxpool, norm
from ebb._compress.recipes import Source, is_watched, recipe_of
from ebb._compress.settings import Settings

Call = Callable[..., Tensor]


@lru_cache(maxsize=256)
def _layer(kind: Any, *options: Any) -> Any:
    layer = kind(*options)
    layer.ebb_settings = Settings()
    return layer


def _relu(input: Tensor, inplace: bool = False) -> Tensor:
    return _layer(activation.ReLU, inplace).forward(input)


def _relu_in_place(input: Tensor) -> Tensor:
    return _layer(activation.ReLU, True).forward(input)


def _relu6(input: Tensor, inplace: bool = False) -> Tensor:
    return _layer(activation.ReLU6, inplace).forward(input)


def _hardtanh(input: Tensor, min_val: float = -1.0, max_val: float = 1.0, inplace: bool = False) -> Tensor:
    return _layer(activation.Hardtanh, min_val, max_val, inplace).forward(input)


def _leaky_relu(input: Tensor, negative_slope: float = 0.01, inplace: bool = False) -> Tensor:
    return _layer(activation.LeakyReLU, negative_slope, inplace).forward(input)


def _silu(input: Tensor, inplace: bool = False) -> Tensor:
    return _layer(activation.SiLU, inplace).forward(input)


def _hardswish(input: Tensor, inplace: bool = False) -> Tensor:
    return _layer(activation.Hardswish, inplace).forward(input)


def _mish(input: Tensor, inplace: bool = False) -> Tensor:
    return _layer(activation.Mish, inplace).forward(input)


def _gelu(input: Tensor, *, approximate: str = "none") -> Tensor:
    return _layer(activation.GELU, approximate).forward(input)


def _sigmoid(input: Tensor) -> Tensor:
    return _layer(activation.Sigmoid).forward(input)


def _tanh(input: Tensor) -> Tensor:
    return _layer(activation.Tanh).forward(input)


def _dropout(input: Tensor, p: float = 0.5, training: bool = True, inplace: bool = False) -> Tensor:
    layer = _layer(dropout.Dropout, p, inplace)
    return layer.forward(input) if training else input


def _max_pool(kind: Any) -> Call:
    def call(
        input: Tensor,
        kernel_size: Any,
        stride: Any = None,
        padding: Any = 0,
        dilation: Any = 1,
        ceil_mode: bool = False,
        return_indices: bool = False,
    ) -> Tensor:
        options = [tuple(one) if isinstance(one, list) else one for one in (kernel_size, stride or None)]
        options += [tuple(one) if isinstance(one, list) else one for one in (padding, dilation)]
        return _layer(kind, *options, return_indices, ceil_mode).forward(input)

    return call


# A layer of torch's, what does the same, and the functions that a model may call in its place.
_ROWS: list[tuple[type[nn.Module], Call, list[Any]]] = [
    (nn.ReLU, _relu, [F.relu, torch.relu, Tensor.relu]),
    (nn.ReLU, _relu_in_place, [F.relu_, torch.relu_, Tensor.relu_]),
    (nn.ReLU6, _relu6, [F.relu6]),
    (nn.Hardtanh, _hardtanh, [F.hardtanh]),
    (nn.LeakyReLU, _leaky_relu, [F.leaky_relu]),
    (nn.SiLU, _silu, [F.silu]),
    (nn.Hardswish, _hardswish, [F.hardswish]),
    (nn.Mish, _mish, [F.mish]),
    (nn.GELU, _gelu, [F.gelu]),
    (nn.Sigmoid, _sigmoid, [F.sigmoid, torch.sigmoid, Tensor.sigmoid]),
    (nn.Tanh, _tanh, [F.tanh, torch.tanh, Tensor.tanh]),
    (nn.Dropout, _dropout, [F.dropout]),
    (nn.MaxPool1d, _max_pool(maxpool.MaxPool1d), [F.max_pool1d, torch.max_pool1d]),
    (nn.MaxPool2d, _max_pool(maxpool.MaxPool2d), [F.max_pool2d, torch.max_pool2d]),
    (nn.MaxPool3d, _max_pool(maxpool.MaxPool3d), [F.max_pool3d, torch.max_pool3d]),
]
_CALLS = {function: (kind, call) for kind, call, functions in _ROWS for function in functions}
# Norms do what they were told: their settings come with each call.
_NORMS: dict[Any, tuple[type[nn.Module], Any]] = {
    F.batch_norm: (nn.BatchNorm2d, norm.batch_norm_called),
    F.layer_norm: (nn.LayerNorm, norm.sample_norm_called),
    F.group_norm: (nn.GroupNorm, norm.sample_norm_called),
}
_KINDS = {function: kind for function, (kind, _) in (*_CALLS.items(), *_NORMS.items())}
_NAMES = {function.__name__: kind for function, kind in _KINDS.items()}

# Of the whole of a tensor, in another shape.
_VIEWS = {
    getattr(where, name)
    for name in ("flatten", "reshape", "permute", "transpose", "squeeze", "unsqueeze", "unflatten", "movedim")
    for where in (torch, Tensor)
} | {Tensor.view}


class _View:
    def __init__(self, function: Call, args: tuple[Any, ...], named: dict[str, Any]):
        self._function, self._args, self._named = function, args, named

    def __call__(self, x: Tensor, mine: bool) -> Tensor:
        return self._function(x, *self._args, **self._named)


class Seen(TorchFunctionMode):
    """Inside, functions do what layers of these kinds do, each in its way."""

    def __init__(self, ways: Mapping[str, str]):
        super().__init__()
        self._settings = {name: Settings(way=way) for name, way in ways.items()}

    def __enter__(self) -> Any:
        running.functions_seen += 1
        return super().__enter__()

    def __exit__(self, *error: Any) -> None:
        running.functions_seen -= 1
        super().__exit__(*error)

    def __torch_function__(self, function: Any, _types: Any, args: Any = (), kwargs: Any = None) -> Any:
        named = kwargs or {}
        kind = _KINDS.get(function)
        if kind is not None and (settings := self._settings.get(kind.__name__)) is not None and _may_act():
            with torch._C.DisableTorchFunction():
                if function in _NORMS:
                    return _NORMS[function][1](settings, function)(*args, **named)
                return _CALLS[function][1](*args, **named)
        out = function(*args, **named)
        if function in _VIEWS and isinstance(args[0], Tensor):
            _hand_on(function, args, named, out)
        return out


def _may_act() -> bool:
    """Not for layers of torch's that were to stay as they are, nor where hooks of somebody else's, as torch.utils.checkpoint's, want the
    same to be saved when a part of the model runs again."""
    frame: Any = sys._getframe(2)
    while frame is not None and frame.f_globals.get("__name__") in _BETWEEN:
        frame = frame.f_back
    if frame is not None and frame.f_globals.get("__name__", "").startswith("torch.nn."):
        caller = frame.f_locals.get("self")
        if caller is None or is_torchs(type(caller)):
            return False  # else a class of somebody's own calls its base
    return is_watched()


_BETWEEN = ("torch.nn.functional", "torch.overrides", "torch._jit_internal")


def _hand_on(function: Call, args: tuple[Any, ...], named: dict[str, Any], out: Any) -> None:
    x = args[0]
    if out is x or not out.requires_grad:
        return
    before = recipe_of(x)
    if before is not None and is_watched():
        Source.of(out).seen_as(before, _View(function, args[1:], named))


# They save a tensor in the shape of a matrix: what is known of it must come through.
_PRODUCTS = {"addmm", "mm", "bmm", "matmul", "baddbmm"}


def ways_called(model: nn.Module, left: tuple[type, ...], norm: str) -> dict[str, str]:
    """Kinds of layers whose functions the model calls, without those that are to stay as they are, and the way in which each keeps."""
    kinds = {name: getattr(nn, name) for name in sorted(_kinds_called(model))}
    return {name: norm if kind in NORMS else "keep" for name, kind in kinds.items() if not issubclass(kind, left)}


def _kinds_called(model: nn.Module) -> frozenset[str]:
    """Names of the kinds of layers whose functions the model calls, as far as its code shows: functions that a module has as attributes,
    names in the code of its class, unless that is a layer of the module, and forward passes of torch's layers in classes derived from
    them. `Flatten` is for models that change shapes before products."""
    found: set[str] = set()
    layers: dict[type, set[str]] = {}
    for part in model.modules():
        layers.setdefault(type(part), set(part._modules)).intersection_update(part._modules)
        held = [one.func if isinstance(one, partial) else one for one in vars(part).values() if callable(one)]
        found.update(kind.__name__ for one in held for function, kind in _KINDS.items() if one is function)
    for owner, own in layers.items():
        if is_torchs(owner):
            continue
        for base in owner.__mro__:
            if is_torchs(base) and plain_base(owner) is None:
                name = "BatchNorm2d" if base.__name__.startswith("BatchNorm") else base.__name__
                found.update({name} & {kind.__name__ for kind in _KINDS.values()})
            if is_torchs(base):
                continue
            named = set(_names_in(vars(base).values(), set())) - own
            found.update(_NAMES[name].__name__ for name in named & _NAMES.keys())
            if named & _PRODUCTS:
                found.add("Flatten")
    return frozenset(found)


def _names_in(things: Iterable[Any], seen: set[Any]) -> Iterator[str]:
    """Names in the code of functions, and of functions of the same file that those call."""
    for thing in things:
        function = getattr(thing, "__func__", thing)
        if not isinstance(function, FunctionType) or function in seen:
            continue
        seen.add(function)
        codes = [function.__code__]
        while codes:
            code = codes.pop()
            codes += [one for one in code.co_consts if isinstance(one, CodeType)]
            yield from code.co_names
            known = [function.__globals__.get(name) for name in code.co_names]
            yield from _names_in([one for one in known if not is_torchs(one)], seen)


def is_torchs(thing: Any) -> bool:
    return (getattr(thing, "__module__", "") or "").partition(".")[0] in ("torch", "ebb")

# SPDX-License-Identifier: Apache-2.0
"""Kinds of layers: torch's own classes and their compressed ones."""

from __future__ import annotations

from typing import Any

from torch import nn
from torch.nn.modules.lazy import LazyModuleMixin

from ebb._compress.layers import activation, conv, dropout, linear, maxpool, norm


def _by_stock(*layers: Any) -> dict[type[nn.Module], type[nn.Module]]:
    return {layer.stock: layer for layer in layers}


CONVS = _by_stock(conv.Conv1d, conv.Conv2d, conv.Conv3d)
NORMS = _by_stock(norm.BatchNorm1d, norm.BatchNorm2d, norm.BatchNorm3d, norm.LayerNorm, norm.GroupNorm)
RELUS = _by_stock(activation.ReLU, activation.ReLU6, activation.Hardtanh, activation.LeakyReLU)
GATES = _by_stock(activation.SiLU, activation.GELU, activation.Hardswish, activation.Mish)
SQUASHES = _by_stock(activation.Sigmoid, activation.Tanh)
POOLS = _by_stock(maxpool.MaxPool1d, maxpool.MaxPool2d, maxpool.MaxPool3d)
DROPOUTS = _by_stock(dropout.Dropout, dropout.Dropout1d, dropout.Dropout2d, dropout.Dropout3d)
LINEARS = _by_stock(linear.Linear)
COMPRESSED = {**CONVS, **NORMS, **RELUS, **GATES, **SQUASHES, **POOLS, **DROPOUTS, **LINEARS}


def is_compressed(layer: nn.Module) -> bool:
    return is_compressed_class(type(layer))


def is_compressed_class(kind: type) -> bool:
    return kind in COMPRESSED.values() or "ebb_original" in vars(kind)


def stock_of(layer: Any) -> type[nn.Module]:
    """Torch's class of a compressed layer, also of one that was parametrised since."""
    found: type[nn.Module] = type(layer).stock
    return found


def original_of(kind: Any) -> type[nn.Module]:
    """The class that a layer of a compressed class had before."""
    found: type[nn.Module] = vars(kind).get("ebb_original", kind.stock)
    return found


def original_class(layer: nn.Module) -> type[nn.Module]:
    """The class that a layer has when it is not compressed."""
    return original_of(type(layer)) if is_compressed(layer) else type(layer)


def stock(layer: Any) -> type[nn.Module]:
    """Torch's class whose forward pass a layer has; for what is no layer of torch's, its own."""
    if is_compressed(layer):
        return stock_of(layer)
    kind: Any = type(layer)
    base = plain_base(kind)
    return kind if base is None or vars(layer).keys() & _names_of(base) else base


def compressed_class(layer: Any) -> type[nn.Module]:
    """For a layer that is not compressed and whose stock is in the table."""
    kind: Any = type(layer)
    return COMPRESSED.get(kind) or _derived(kind)


# What the forward passes of torch's layers read and a subclass may compute, and what making and copying classes and objects runs.
_READ = {
    *("forward", "__call__", "_conv_forward", "weight", "bias", "running_mean", "running_var", "eps", "p", "inplace"),
    *("__getattr__", "__getattribute__", "__new__", "__init_subclass__", "__slots__"),
    *("__reduce__", "__reduce_ex__", "__getnewargs__", "__getnewargs_ex__", "__torch_function__"),
}


def _names_of(base: type[nn.Module]) -> set[str]:
    """Names that compressed layers use for themselves."""
    ours = COMPRESSED[base].__mro__[: COMPRESSED[base].__mro__.index(base)]
    return {name for one in ours for name in vars(one) if not name.startswith("__")} - {"forward"}


def plain_base(kind: Any) -> type[nn.Module] | None:
    """Of a class of somebody's own that computes what torch's layer does, that one. Torch's own subclasses are something else."""
    if kind in COMPRESSED or kind.__module__.partition(".")[0] in ("torch", "ebb") or type(kind) is not type:
        return None
    base = next((one for one in COMPRESSED if issubclass(kind, one)), None)
    if base is None or issubclass(kind, LazyModuleMixin):
        return None
    added = {name for one in kind.__mro__ if not _is_foreign(one) for name in vars(one)}
    return None if added & (_READ | _names_of(base)) else base


def _is_foreign(kind: type) -> bool:
    return kind.__module__.partition(".")[0] in ("torch", "builtins", "typing", "abc")


def _derived(kind: Any) -> type[nn.Module]:
    """Classes know those derived from them as long as somebody uses them: that is the only record."""
    base = plain_base(kind)
    assert base is not None
    for one in kind.__subclasses__():
        if vars(one).get("ebb_original") is kind:
            return one
    words = {
        "ebb_original": kind,
        "__module__": kind.__module__,
        "__qualname__": kind.__qualname__,
        "__reduce_ex__": _reduced,
    }
    return type(kind.__name__, (COMPRESSED[base], kind), words)


def _reduced(self: Any, protocol: Any) -> tuple[Any, ...]:
    """Copies and files name the class that is there without us."""
    state: Any = nn.Module.__reduce_ex__(self, protocol)
    return (_made, (original_of(type(self)),), *state[2:])


def _made(kind: Any) -> nn.Module:
    derived = _derived(kind)
    return derived.__new__(derived)

# SPDX-License-Identifier: Apache-2.0
"""Kinds of layers: torch's own classes and their compressed ones."""

from __future__ import annotations

from functools import cache
from typing import Any

from torch import nn

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
    found: type[nn.Module] = layer.stock
    return found


def original_of(kind: Any) -> type[nn.Module]:
    """The class that a layer of a compressed class had before."""
    found: type[nn.Module] = vars(kind).get("ebb_original", kind.stock)
    return found


def stock(layer: Any) -> type[nn.Module]:
    """Torch's class whose forward pass a layer has; for what is no layer of torch's, its own."""
    kind: Any = type(layer)
    return stock_of(layer) if is_compressed(layer) else plain_base(kind) or kind


def compressed_class(layer: Any) -> type[nn.Module]:
    """For a layer that is not compressed and whose stock is in the table."""
    kind: Any = type(layer)
    return COMPRESSED.get(kind) or _derived(kind)


# What the forward passes of torch's layers read and a subclass may compute, and how it is copied.
_READ = (
    "forward",
    "__call__",
    "_conv_forward",
    "weight",
    "bias",
    "running_mean",
    "running_var",
    "eps",
    "p",
    "inplace",
    "__getattr__",
    "__reduce__",
    "__reduce_ex__",
)


@cache
def plain_base(kind: Any) -> type[nn.Module] | None:
    """Of a class of somebody's own that computes what torch's layer does, that one. Torch's own subclasses are something else."""
    if kind in COMPRESSED or kind.__module__.partition(".")[0] == "torch":
        return None
    base = next((one for one in COMPRESSED if issubclass(kind, one)), None)
    if base is None:
        return None
    added = kind.__mro__[: kind.__mro__.index(base)]
    return None if any(name in vars(one) for one in added for name in _READ) else base


@cache
def _derived(kind: Any) -> type[nn.Module]:
    base = plain_base(kind)
    assert base is not None
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

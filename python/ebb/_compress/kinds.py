# SPDX-License-Identifier: Apache-2.0
"""Kinds of layers: torch's own classes and their compressed ones."""

from __future__ import annotations

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
    return type(layer) in COMPRESSED.values()


def stock_of(layer: Any) -> type[nn.Module]:
    """Of a compressed layer, also one that was parametrised since."""
    found: type[nn.Module] = layer.stock
    return found


def stock(layer: nn.Module) -> type[nn.Module]:
    """The class that a layer has when it is not compressed."""
    return stock_of(layer) if is_compressed(layer) else type(layer)

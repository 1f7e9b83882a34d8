# SPDX-License-Identifier: Apache-2.0
"""Bytes of what a graph of torch's computes, and estimates of how long that takes."""

from __future__ import annotations

import math
from typing import Any

import torch
from torch import fx


class Unseen(Exception):
    """The graph has something that is not understood; it says what."""


def size_of(node: fx.Node) -> int:
    """Bytes of a tensor; 0 for what is none."""
    value = node.meta.get("val")
    return numbers_of(value) * value.element_size() if isinstance(value, torch.Tensor) else 0


def numbers_of(value: torch.Tensor) -> int:
    return math.prod(known(size) for size in value.shape)


def known(size: Any) -> int:
    """A size; of one that may change, what it is in this call."""
    if isinstance(size, int):
        return size
    hint = size.node.hint
    if hint is None:
        raise Unseen("a size that depends on data")
    return int(hint)


# Rates of a large GPU, which say what is worth more; nothing is promised by them.
_FLOPS, _BYTES = 1e14, 3e12


def passes(node: fx.Node) -> float:
    """Of what is computed within operations that read it: they read what it is made of instead."""
    return size_of(node) / _BYTES / 2


def _flops(node: fx.Node, sizes: list[Any], numbers: int) -> int:
    name = str(node.target)
    if "convolution" in name:
        return 2 * numbers * math.prod(map(known, sizes[1].shape[1:]))
    if "attention" in name:
        return 4 * numbers * known(sizes[1].shape[-2])
    if "mm" in name and len(sizes) > 1:
        return 2 * numbers * known(sizes[-2].shape[-1])
    return 0


def seconds_of(node: fx.Node) -> float:
    """Of an operation that is not cheap."""
    sizes = [one.meta["val"] for one in node.all_input_nodes if isinstance(one.meta.get("val"), torch.Tensor)]
    out = node.meta["val"]
    outs = [one for one in out if isinstance(one, torch.Tensor)] if isinstance(out, (tuple, list)) else [out]
    moved = sum(math.prod(map(known, one.shape)) * one.element_size() for one in [*sizes, *outs])
    return _flops(node, sizes, math.prod(map(known, outs[0].shape))) / _FLOPS + moved / _BYTES

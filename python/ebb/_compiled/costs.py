# SPDX-License-Identifier: Apache-2.0
"""Estimates of how long an operation takes."""

from __future__ import annotations

import math
from typing import Any

import torch
from torch import fx

from ebb._compiled.nodes import known, numbers_of, size_of

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
    moved = sum(numbers_of(one) * one.element_size() for one in [*sizes, *outs])
    return _flops(node, sizes, numbers_of(outs[0])) / _FLOPS + moved / _BYTES

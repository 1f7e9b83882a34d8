# SPDX-License-Identifier: Apache-2.0
"""What a node of a graph of torch's is: its kind, its bytes, what it reads and what reads it."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable
from dataclasses import dataclass
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


@dataclass
class Kinds:
    """What operations are. `cheap` ones are computed again within a kernel that reads the result; others take time, and some are never
    computed again: they draw random numbers, or what they do is unknown."""

    is_cheap: Callable[[fx.Node], bool]
    is_fixed: Callable[[fx.Node], bool]
    is_view: Callable[[fx.Node], bool]


def is_tuple(node: fx.Node) -> bool:
    return isinstance(node.meta.get("val"), (tuple, list))


def origin_of(node: fx.Node) -> fx.Node:
    """The operation that computes a node: of a part of several results, what gives them all."""
    source = node.args[0] if node.args else None
    if isinstance(source, fx.Node) and is_tuple(source):
        return source
    return node


def readers_of(node: fx.Node) -> Iterable[fx.Node]:
    for user in node.users:
        if origin_of(user) is user:
            yield user
        else:
            yield from user.users


def reached_from_tangents(graph: fx.Graph) -> set[fx.Node]:
    found: set[fx.Node] = set()
    for node in graph.nodes:
        if node.op == "placeholder":
            if "tangents" in str(node.target):
                found.add(node)
        elif node.op != "output" and any(one in found for one in node.all_input_nodes):
            found.add(node)
    return found


def read_by(ends: Iterable[fx.Node]) -> set[fx.Node]:
    """Nodes, and all that they are computed from."""
    stack, found = list(ends), set()
    while stack:
        node = stack.pop()
        if node not in found:
            found.add(node)
            stack.extend(node.all_input_nodes)
    return found

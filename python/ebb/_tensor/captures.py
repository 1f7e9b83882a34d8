# SPDX-License-Identifier: Apache-2.0
"""The tensors that a function differentiates through beside its arguments, found in the graph that it makes.

A gradient that was not asked for is silently dropped by autograd; so every graph is walked, and whatever it reaches is
known or refused.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from operator import methodcaller
from typing import Any

import torch
from torch import Tensor
from torch.autograd.graph import get_gradient_edge

from ebb._base.errors import Error

# The kind of node that stands for a leaf.
_PROBE = torch.zeros((), requires_grad=True)


def _fresh_node() -> Any:
    return _PROBE.view(()).grad_fn


LEAF = type(_fresh_node().next_functions[0][0])
_number = methodcaller("_sequence_nr")


def sequence_number() -> int:
    """Nodes that this thread makes from now on have this number or a larger one. Gradients are enabled."""
    number: int = _fresh_node()._sequence_nr()
    return number


class Known:
    """The tensors whose gradients are asked for."""

    def __init__(self, params: list[Tensor]):
        self._ids = {id(tensor) for tensor in params}
        self._edges = _edges(params)
        self._nodes = {None, *_leaf_nodes(params)}

    def check(self, outputs: list[Tensor | None], own: list[Tensor | None], since: int, step: str) -> None:
        """Raises where the graph of the outputs, whose nodes have numbers from `since` on, reaches what is neither known
        nor one of `own`."""
        if not self._edges and _reaches_only(self._nodes.union(_leaf_nodes(own)), outputs, since):
            return
        leaves, crossings = _reached(outputs, self._ids | {id(tensor) for tensor in own}, self._edges, since)
        for leaf in leaves:
            raise Error(
                f"{step} differentiates through a tensor of shape {list(leaf.shape)} that the first step did not "
                "use; name everything that f uses in params=, so that its gradient is not lost, and detach what f makes itself"
            )
        for node, _ in crossings:
            raise Error(
                f"{step} differentiates through a tensor computed outside of f ({node.name()}) that the first step "
                "did not use; name everything that f uses in params=, so that its gradient is not lost"
            )


def _leaf_nodes(tensors: Iterable[Tensor | None]) -> list[Any]:
    """Where the gradients of leaves arrive."""
    return [get_gradient_edge(t).node for t in tensors if t is not None and t.requires_grad and t.grad_fn is None]


def _reaches_only(seen: set[Any], outputs: Sequence[Tensor | None], since: int) -> bool:
    """Whether the graph of the outputs ends at the nodes in `seen`, which gets all others, and has no older ones. In doubt no: a
    walk for the usual case alone, since each step of it counts."""
    if any(output is not None and output.requires_grad and output.grad_fn is None for output in outputs):
        return False
    found: list[Any] = list({output.grad_fn for output in outputs if output is not None and output.grad_fn is not None})
    seen.update(found)
    see, find = seen.add, found.append
    ends: list[Any] = []  # leaves are among them, and where older nodes end, which lead to older ones alone
    for each in found:
        new = False
        for node, _ in each.next_functions:
            if node not in seen:
                see(node)
                find(node)
                new = True
        if not new:
            ends.append(each)
    try:
        return LEAF not in set(map(type, ends)) and min(map(_number, ends), default=since) >= since
    except AttributeError:
        return False


def _edges(tensors: Iterable[Tensor]) -> set[tuple[Any, int]]:
    return {(tensor.grad_fn, tensor.output_nr) for tensor in tensors if tensor.grad_fn is not None}


def _reached(
    outputs: Sequence[Tensor | None], own: set[int], edges: set[tuple[Any, int]], since: int
) -> tuple[list[Tensor], list[tuple[Any, int]]]:
    """The leaves, other than those of `own`, that the graph of the outputs reaches, and where it crosses into nodes older
    than `since`, other than at `edges`."""
    leaves: dict[int, Tensor] = {}
    crossings: dict[tuple[Any, int], None] = {}
    stack: list[Any] = []
    seen = set()
    # An output may be a captured tensor itself.
    for output in outputs:
        if output is None or not output.requires_grad or id(output) in own:
            continue
        node: Any = output.grad_fn
        if node is None:
            leaves[id(output)] = output
        elif (node, output.output_nr) in edges:
            continue
        elif _is_older(node, since):
            crossings[(node, output.output_nr)] = None
        elif node not in seen:
            seen.add(node)
            stack.append(node)
    while stack:
        for node, index in stack.pop().next_functions:
            if node is None or node in seen or (node, index) in edges:
                continue
            if type(node) is LEAF:
                seen.add(node)
                if id(node.variable) not in own:
                    leaves[id(node.variable)] = node.variable
            elif _is_older(node, since):
                crossings[(node, index)] = None
            else:
                seen.add(node)
                stack.append(node)
    return list(leaves.values()), list(crossings)


def reached_leaves(outputs: Sequence[Tensor | None], since: int) -> set[int]:
    """By id, of the graph of the outputs."""
    return {id(leaf) for leaf in _reached(outputs, set(), set(), since)[0]}


def find_captures(
    reached: list[Tensor], outputs: list[Tensor], own: list[Tensor], since: int, given: list[Tensor]
) -> list[Tensor]:
    """The tensors outside of `own` that the outputs' graph reaches, in the order of `given`, then as found. Nodes with
    a number below `since` were there before; where the graph crosses into them a tensor that is no leaf was captured:
    one of `reached`, which are found from the function, or of `given`."""
    leaves, crossings = _reached(outputs, {id(tensor) for tensor in own}, _edges(own), since)
    found = leaves + _tensors_at(crossings, reached + given)
    _check_independent(found, own)
    inside = _sources(found + given)
    ordered = [tensor for tensor in given if tensor.requires_grad and id(tensor) not in inside]
    known = {id(tensor) for tensor in ordered}
    return ordered + [tensor for tensor in found if id(tensor) not in known]


def _is_older(node: Any, since: int) -> bool:
    number = getattr(node, "_sequence_nr", None)
    return number is not None and number() < since


def _tensors_at(crossings: list[tuple[Any, int]], candidates: list[Tensor]) -> list[Tensor]:
    if not crossings:
        return []
    at = {(tensor.grad_fn, tensor.output_nr): tensor for tensor in candidates if tensor.grad_fn is not None}
    missing = [node for node, index in crossings if (node, index) not in at]
    if missing:
        raise Error(
            f"f captures a tensor that was computed outside of it ({missing[0].name()}) and cannot be found from "
            "f; name it in params=, or hand it in through init or xs, so that its gradient is not lost"
        )
    return [at[crossing] for crossing in crossings]


def _sources(tensors: list[Tensor]) -> set[int]:
    """By id, the leaves that some of them were computed from: their gradients come by those."""
    derived = [tensor for tensor in tensors if tensor.grad_fn is not None]
    return {id(leaf) for leaf in _reached(derived, set(), set(), 0)[0]}


def _check_independent(captures: list[Tensor], own: list[Tensor]) -> None:
    """Autograd gives total derivatives: of two captured tensors none may be computed from the other."""
    derived = [tensor for tensor in captures if tensor.grad_fn is not None]
    if not derived:
        return
    all_of_them = captures + [tensor for tensor in own if tensor.requires_grad]
    nodes = {tensor.grad_fn for tensor in all_of_them if tensor.grad_fn is not None}
    leaf_ids = {id(tensor) for tensor in all_of_them if tensor.grad_fn is None}
    for tensor in derived:
        own_node: Any = tensor.grad_fn
        stack = [node for node, _ in own_node.next_functions if node is not None]
        seen = set(stack)
        while stack:
            node = stack.pop()
            if node in nodes or (type(node) is LEAF and id(node.variable) in leaf_ids):
                raise Error(
                    f"f captures a tensor of shape {list(tensor.shape)} that was computed from another tensor "
                    "that f uses too; hand it in through init or xs, or compute it inside f"
                )
            fresh = [inner for inner, _ in node.next_functions if inner is not None and inner not in seen]
            seen.update(fresh)
            stack.extend(fresh)

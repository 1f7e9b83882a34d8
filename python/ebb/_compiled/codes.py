# SPDX-License-Identifier: Apache-2.0
"""How a compiled graph keeps a tensor in fewer bytes: numbers in 8 bits, truth values in one.

A code is operations of torch's in both graphs of a step, which torch's compiler fuses with what makes the tensor and with what reads it.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import fx

from ebb._compiled.nodes import known, numbers_of, read_by

aten, prims = torch.ops.aten, torch.ops.prims

_LEVELS = 255
_TINY = 1e-30
_WORTH = 0.6  # of the bytes that the tensor itself has

# Appends an operation to a graph, where the graph is being written.
Add = Callable[..., fx.Node]


@dataclass(frozen=True)
class Code:
    """`write` makes what is kept of a tensor; `read` makes the tensor, or what is near it, from that. `size` is how many
    bytes are kept."""

    write: Callable[[Add, fx.Node], list[fx.Node]]
    read: Callable[[Add, Sequence[fx.Node], torch.Tensor], fx.Node]
    size: Callable[[torch.Tensor], int]


def code_of(value: Any) -> Code | None:
    """None: it is kept as it is."""
    if not isinstance(value, torch.Tensor):
        return None
    if value.dtype == torch.bool:
        return None if _packed_dim(value) is None else BITS
    if not value.is_floating_point() or value.dim() < 2:
        return None
    return EIGHT_BITS if _size_of_eight_bits(value) < _WORTH * numbers_of(value) * value.element_size() else None


def _range_dims(value: torch.Tensor) -> list[int]:
    """Dimensions over which numbers share a range: images' channels have one each, others each row."""
    return [k for k in range(value.dim()) if k != 1] if value.dim() > 3 else [value.dim() - 1]


def _exact(value: torch.Tensor) -> torch.dtype:
    return torch.float64 if value.dtype == torch.float64 else torch.float32


def _write_eight_bits(add: Add, node: fx.Node) -> list[fx.Node]:
    value = node.meta["val"]
    dims = _range_dims(value)
    number = add(prims.convert_element_type.default, node, _exact(value))
    low = add(aten.amin.default, number, dims, True)
    width = add(aten.sub.Tensor, add(aten.amax.default, number, dims, True), low)
    step = add(aten.clamp_min.default, add(aten.mul.Tensor, width, 1 / _LEVELS), _TINY)
    levels = add(aten.round.default, add(aten.div.Tensor, add(aten.sub.Tensor, number, low), step))
    return [add(prims.convert_element_type.default, levels, torch.uint8), low, step]


def _read_eight_bits(add: Add, kept: Sequence[fx.Node], value: torch.Tensor) -> fx.Node:
    levels, low, step = kept
    number = add(prims.convert_element_type.default, levels, _exact(value))
    number = add(aten.add.Tensor, add(aten.mul.Tensor, number, step), low)
    return add(prims.convert_element_type.default, number, value.dtype)


def _size_of_eight_bits(value: torch.Tensor) -> int:
    """With two numbers for each range."""
    numbers = numbers_of(value)
    ranges = numbers // max(1, math.prod(known(value.shape[k]) for k in _range_dims(value)))
    return numbers + 2 * ranges * (8 if value.dtype == torch.float64 else 4)


def _packed_dim(value: torch.Tensor) -> int | None:
    """The dimension of which eight parts lie in the bits of one byte: the outermost that can be cut so, for neighbours in memory then
    stay neighbours."""
    if not all(isinstance(size, int) for size in value.shape):
        return None
    return next((k for k, size in enumerate(value.shape) if size % 8 == 0 and size > 0), None)


def _write_bits(add: Add, node: fx.Node) -> list[fx.Node]:
    value = node.meta["val"]
    dim = _packed_dim(value)
    assert dim is not None
    part = value.shape[dim] // 8
    bytes_ = None
    for bit in range(8):
        mask = add(aten.slice.Tensor, node, dim, bit * part, (bit + 1) * part)
        shifted = add(aten.mul.Tensor, add(prims.convert_element_type.default, mask, torch.uint8), 1 << bit)
        bytes_ = shifted if bytes_ is None else add(aten.bitwise_or.Tensor, bytes_, shifted)
    assert bytes_ is not None
    return [bytes_]


def _read_bits(add: Add, kept: Sequence[fx.Node], value: torch.Tensor) -> fx.Node:
    (bytes_,) = kept
    dim = _packed_dim(value)
    assert dim is not None
    shape = bytes_.meta["val"].shape
    bits = add(prims.iota.default, 8, start=0, step=1, dtype=torch.int32, device=value.device, requires_grad=False)
    bits = add(aten.reshape.default, bits, [8, *[1] * (len(shape) - dim)])
    found = add(aten.bitwise_right_shift.Tensor, add(aten.unsqueeze.default, bytes_, dim), bits)
    found = add(aten.ne.Scalar, add(aten.bitwise_and.Scalar, found, 1), 0)
    return add(aten.reshape.default, found, list(value.shape))


EIGHT_BITS = Code(_write_eight_bits, _read_eight_bits, _size_of_eight_bits)
BITS = Code(_write_bits, _read_bits, lambda value: math.ceil(numbers_of(value) / 8))


def _adder(graph: fx.Graph, mode: Any) -> Add:
    """`mode` knows shapes without numbers."""

    def add(target: Any, *given: Any, **named: Any) -> fx.Node:
        node = graph.call_function(target, given, named)
        with mode:
            node.meta["val"] = target(*map(_value_of, given), **named)
        return node

    return add


def _value_of(given: Any) -> Any:
    return given.meta["val"] if isinstance(given, fx.Node) else given


def write_codes(forward: fx.GraphModule, backward: fx.GraphModule, fixed: int, coded: Sequence[str]) -> None:
    """Of what the forward graph gives out after `fixed` results, what has a name in `coded` is kept in its code."""
    names = set(coded)
    output = next(iter(reversed(forward.graph.nodes)))
    descriptions = output.meta.get("desc")
    results: list[Any] = []
    described: list[Any] = []
    places = {node.name: node for node in backward.graph.nodes if node.op == "placeholder"}
    for k, node in enumerate(output.args[0]):
        kept = [node]
        if k >= fixed and isinstance(node, fx.Node) and node.name in names:
            kept = _coded(forward.graph, backward.graph, node, places[node.name])
        results += kept
        if descriptions is not None:
            described += [descriptions[k]] * len(kept)
    output.args = (tuple(results),)
    if descriptions is not None:
        output.meta["desc"] = described
    _move_up(forward.graph, fixed)
    forward.recompile()
    backward.recompile()


def _coded(forward: fx.Graph, backward: fx.Graph, node: fx.Node, place: fx.Node) -> list[fx.Node]:
    value = node.meta["val"]
    code = code_of(value)
    assert code is not None
    with forward.inserting_before(next(iter(reversed(forward.nodes)))):
        kept = code.write(_adder(forward, value.fake_mode), node)
    inputs = []
    with backward.inserting_before(place):
        for k, one in enumerate(kept):
            made = backward.placeholder(f"{node.name}_code{k}")
            made.meta["val"] = one.meta["val"]
            inputs.append(made)
    with backward.inserting_before(next(one for one in backward.nodes if one.op != "placeholder")):
        again = code.read(_adder(backward, value.fake_mode), inputs, value)
    place.replace_all_uses_with(again)
    backward.erase_node(place)
    return kept


def _move_up(forward: fx.Graph, fixed: int) -> None:
    """What only the backward pass needs is computed as soon as it can be: until then its tensor would stay in memory."""
    output = next(iter(reversed(forward.nodes)))
    ends = [one for one in output.args[0][:fixed] if isinstance(one, fx.Node)]
    ends += [node for node in forward.nodes if node.op != "output" and (node.op != "call_function" or node.is_impure())]
    needed = {output, *read_by(ends)}
    order = list(forward.nodes)
    places = {node: k for k, node in enumerate(order)}
    behind = dict(enumerate(order))  # the last of what stands behind a node since
    for node in order:
        inputs = node.all_input_nodes
        place = max((places[one] for one in inputs), default=0)
        if node not in needed and inputs and order[place].op != "placeholder":
            behind[place].append(node)
            behind[place], places[node] = node, place

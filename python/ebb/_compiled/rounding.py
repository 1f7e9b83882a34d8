# SPDX-License-Identifier: Apache-2.0
"""Which tensors may be kept rounded: those whose readers turn a small error of what they read into a small error of what they give."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from torch import fx

from ebb._compiled.nodes import Kinds

# Products and their derivatives, and comparisons: the forward pass compares, and the result is kept. What is not named in this file does
# not bear rounding: attention, for one, whose backward pass divides by sums that the forward pass has made of exact numbers.
_ENDS = {
    *("convolution", "convolution_backward", "mm", "addmm", "bmm", "baddbmm"),
    *("le", "lt", "ge", "gt", "eq", "ne"),
}

# Smooth functions of one number, sums, choices, and statistics that norms need.
_SMOOTH = {
    *[
        "add",
        "sub",
        "rsub",
        "mul",
        "neg",
        "relu",
        "maximum",
        "minimum",
        "clamp",
        "clamp_min",
        "clamp_max",
        "hardtanh",
        "where",
    ],
    *["erf", "tanh", "sigmoid", "silu", "gelu", "softplus", "sum", "mean", "var_mean", "var", "convert_element_type"],
    *[
        "clone",
        "cat",
        "stack",
        "constant_pad_nd",
        "_to_copy",
        "getitem",
        "avg_pool2d",
        "_adaptive_avg_pool2d",
        "max_pool2d_with_indices",
    ],
    *["_low_memory_max_pool2d_with_offsets", "_low_memory_max_pool_with_offsets"],
    # Of what is pooled they read the shape.
    *["max_pool2d_with_indices_backward", "avg_pool2d_backward", "_adaptive_avg_pool2d_backward"],
}

_MOST = 1e4  # a number that fills a part of a tensor


@dataclass(frozen=True)
class Places:
    """Where a node lies: whether it reads gradients, whether it is so large that it may be computed again, and whether it is a value."""

    is_backward: Callable[[fx.Node], bool]
    is_big: Callable[[fx.Node], bool]
    is_value: Callable[[fx.Node], bool]


def bears_rounding(node: fx.Node, kinds: Kinds, places: Places) -> bool:
    return _is_even(node, kinds, places) and _readers_bear(node, kinds, places)


def _is_even(node: fx.Node, kinds: Kinds, places: Places) -> bool:
    """Whether 255 levels do a tensor justice: what is made of values by mild functions. A mask of minus infinity, or numbers of many
    magnitudes, would leave few levels for the rest."""
    stack, seen = list(node.all_input_nodes) if kinds.is_cheap(node) else [], {node}
    if stack and not _is_mild(node, kinds):
        return False
    while stack:
        one = stack.pop()
        if one in seen or places.is_value(one):
            continue
        seen.add(one)
        value = one.meta.get("val")
        if one.op == "placeholder":
            if isinstance(value, torch.Tensor) and sum(size != 1 for size in value.shape) > 1:
                return False
        elif isinstance(value, torch.Tensor) and (
            value.dtype == torch.bool or (not places.is_big(one) and one.all_input_nodes)
        ):
            continue
        elif not _is_mild(one, kinds):
            return False
        else:
            stack.extend(one.all_input_nodes)
    return True


def _is_mild(node: fx.Node, kinds: Kinds) -> bool:
    name = _name(node)
    if name in ("full", "scalar_tensor", "full_like"):
        number = node.args[0 if name == "scalar_tensor" else 1]
        return isinstance(number, (int, float)) and abs(number) <= _MOST
    if name == "div":
        return not isinstance(node.args[1], fx.Node) or _is_above_one(node.args[1])
    if name == "exp":
        return bool(node.users) and all(_is_above_one(user) for user in node.users)
    if name == "pow":
        return node.args[1] in (1, 2, 3)
    return kinds.is_view(node) or name in _SMOOTH or name == "rsqrt"


def _readers_bear(node: fx.Node, kinds: Kinds, places: Places) -> bool:
    """Readers that are fused hand the error on to theirs. What reads gradients hands it on to gradients."""
    stack, seen = [node], {node}
    while stack:
        one = stack.pop()
        for user in one.users:
            if user.op == "output" or _name(user) in _ENDS:
                continue
            if not (kinds.is_view(user) or _name(user) in _SMOOTH or _is_smooth(user, one)) or _is_truncated(user):
                return False
            if user not in seen and not places.is_backward(user) and _is_rounded_too(user, places):
                seen.add(user)
                stack.append(user)
    return True


def _is_truncated(user: fx.Node) -> bool:
    value = user.meta.get("val")
    is_whole = isinstance(value, torch.Tensor) and not value.is_floating_point()
    return is_whole and _name(user) in ("convert_element_type", "_to_copy")


def _name(node: fx.Node) -> str:
    target: Any = node.target
    if isinstance(target, torch._ops.OpOverload):
        return target.overloadpacket.__name__
    return getattr(target, "__name__", str(target))


def _is_smooth(user: fx.Node, one: fx.Node) -> bool:
    """A power that is a product, a division by something else, exp of a square, as in the derivative of a GELU, the logistic function,
    and the root in a norm: of other numbers these make a large error of a small one."""
    name = _name(user)
    if name == "pow":
        return user.args[1] in (1, 2, 3)
    if name == "div":
        return user.args[1] is not one or _is_above_one(one)
    if name == "reciprocal":
        return _is_above_one(one)
    if name == "rsqrt":
        return _is_norm_root(one)
    return name == "exp" and (_is_square(one) or all(_is_above_one(further) for further in user.users))


def _is_above_one(node: fx.Node) -> bool:
    """1 + exp(x), by which the logistic function divides."""
    if _name(node) != "add" or node.args[1] != 1 or not isinstance(node.args[0], fx.Node):
        return False
    return _name(node.args[0]) == "exp"


def _is_square(node: fx.Node) -> bool:
    """Times a number."""
    if _name(node) != "mul":
        return False
    left, right = node.args
    if left is right:
        return True
    return isinstance(left, fx.Node) and not isinstance(right, fx.Node) and _is_square(left)


def _is_rounded_too(user: fx.Node, places: Places) -> bool:
    """Decisions and small tensors, such as statistics, are kept as they are."""
    value = user.meta.get("val")
    return not isinstance(value, torch.Tensor) or (value.is_floating_point() and places.is_big(user))


def _is_norm_root(one: fx.Node) -> bool:
    """A variance or a mean of squares, and a number that keeps it from 0."""
    if _name(one) != "add" or isinstance(one.args[1], fx.Node) or not isinstance(one.args[0], fx.Node):
        return False
    source = one.args[0]
    if _name(source) == "getitem" and isinstance(source.args[0], fx.Node):
        source = source.args[0]
    if _name(source) == "mean" and isinstance(source.args[0], fx.Node):
        return _name(source.args[0]) == "pow" or _is_square(source.args[0])
    return _name(source) in ("var_mean", "var")

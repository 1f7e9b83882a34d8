# SPDX-License-Identifier: Apache-2.0
"""Which tensors may be kept rounded: those whose readers turn a small error of what they read into a small error of what they give."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import torch
from torch import fx

if TYPE_CHECKING:
    from ebb._compiled.joint import Kinds

# Products and their derivatives, and comparisons: the forward pass compares, and the result is kept. What is not named in this file does
# not bear rounding: attention, for one, whose backward pass divides by sums that the forward pass has made of exact numbers.
_ENDS = {
    *("convolution", "convolution_backward", "mm", "addmm", "bmm", "baddbmm"),
    *("le", "lt", "ge", "gt", "eq", "ne"),
}

# Smooth functions of one number, sums, choices, and statistics that norms need.
_SMOOTH = {
    *("add", "sub", "rsub", "mul", "neg", "relu", "maximum", "minimum", "clamp", "clamp_min", "clamp_max", "hardtanh"),
    *(
        "erf",
        "tanh",
        "sigmoid",
        "silu",
        "gelu",
        "softplus",
        "where",
        "sum",
        "mean",
        "var_mean",
        "var",
        "convert_element_type",
    ),
    *(
        "avg_pool2d",
        "max_pool2d_with_indices",
        "_low_memory_max_pool2d_with_offsets",
        "_low_memory_max_pool_with_offsets",
    ),
    # Of what is pooled they read the shape.
    *(
        "max_pool2d_with_indices_backward",
        "avg_pool2d_backward",
        "_adaptive_avg_pool2d_backward",
        "_adaptive_avg_pool2d",
    ),
    *("clone", "cat", "stack", "constant_pad_nd", "_to_copy", "getitem"),
}


def bears_rounding(node: fx.Node, kinds: Kinds, is_backward: Callable[[fx.Node], bool]) -> bool:
    """Readers that are fused hand the error on to theirs. What reads gradients hands it on to gradients."""
    stack, seen = [node], {node}
    while stack:
        one = stack.pop()
        for user in one.users:
            if user.op == "output" or _name(user) in _ENDS:
                continue
            if not (kinds.is_view(user) or _name(user) in _SMOOTH or _is_smooth(user, one)):
                return False
            if user not in seen and not is_backward(user) and _is_rounded_too(user, node):
                seen.add(user)
                stack.append(user)
    return True


def _name(node: fx.Node) -> str:
    target: Any = node.target
    if isinstance(target, torch._ops.OpOverload):
        return target.overloadpacket.__name__
    return getattr(target, "__name__", str(target))


def _is_smooth(user: fx.Node, one: fx.Node) -> bool:
    """A power that is a product, a division by something else, exp of a square, as in the derivative of a GELU, and the logistic function:
    of other numbers these make a large error of a small one."""
    name = _name(user)
    if name == "pow":
        return user.args[1] in (1, 2, 3)
    if name == "div":
        return user.args[1] is not one or _is_above_one(one)
    if name == "reciprocal":
        return _is_above_one(one)
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


def _is_rounded_too(user: fx.Node, node: fx.Node) -> bool:
    """Decisions are kept, and so are statistics, or they are computed from all numbers, of which the errors average out."""
    mine, its = user.meta.get("val"), node.meta["val"]
    if not isinstance(mine, torch.Tensor):
        return True
    return mine.is_floating_point() and mine.numel() * 8 >= its.numel()

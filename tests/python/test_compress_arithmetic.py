# SPDX-License-Identifier: Apache-2.0
"""The arithmetic of compressed copies against its definition."""

import hypothesis.strategies as st
import pytest
import torch
from hypothesis import given, settings

from ebb._compress.arithmetic import formulas, native
from ebb._compress.arithmetic.shapes import Convolution


def spread(pooled: torch.Tensor, block: tuple[int, ...], size: tuple[int, ...]) -> torch.Tensor:
    for axis, (p, n) in enumerate(zip(block, size)):
        pooled = pooled.repeat_interleave(p, 2 + axis).narrow(2 + axis, 0, n)
    return pooled


@st.composite
def convolutions(draw):
    dims = draw(st.integers(1, 3))

    def each(low, high):
        return tuple(draw(st.integers(low, high)) for _ in range(dims))

    kernel, dilation = each(1, 4), each(1, 2)
    stride, before = each(1, 3), each(0, 3)
    after = before
    if draw(st.booleans()):  # padding="same"
        stride = (1,) * dims
        total = [d * (k - 1) for d, k in zip(dilation, kernel)]
        before, after = tuple(t // 2 for t in total), tuple(t - t // 2 for t in total)
    reach = [d * (k - 1) + 1 for d, k in zip(dilation, kernel)]
    size = tuple(max(1, r - b - a) + draw(st.integers(0, 9)) for r, b, a in zip(reach, before, after))
    groups = draw(st.integers(1, 3))
    return dict(
        size=size,
        kernel=kernel,
        block=each(1, 5),
        groups=groups,
        ins=groups * draw(st.integers(1, 2)),
        outs=groups * draw(st.integers(1, 2)),
        conv=Convolution(stride, before, after, dilation, groups),
    )


@pytest.mark.parametrize("by", [native, formulas])
@settings(max_examples=300, deadline=None)
@given(case=convolutions())
def test_the_weight_gradient_is_that_of_the_spread_input(by, case):
    conv, size, dims = case["conv"], case["size"], len(case["size"])
    generator = torch.Generator().manual_seed(1)
    x = torch.randn(2, case["ins"], *size, dtype=torch.float64, generator=generator)
    block = tuple(min(p, n) for p, n in zip(case["block"], size))
    small = by.pool(x, block, "average")
    whole = spread(small, block, size)
    padding = [n for pair in reversed(list(zip(conv.before, conv.after))) for n in pair]
    weight = torch.zeros(
        case["outs"], case["ins"] // conv.groups, *case["kernel"], dtype=torch.float64, requires_grad=True
    )
    function = (torch.conv1d, torch.conv2d, torch.conv3d)[dims - 1]
    out = function(torch.nn.functional.pad(whole, padding), weight, None, conv.stride, 0, conv.dilation, conv.groups)
    gy = torch.randn(out.shape, dtype=torch.float64, generator=generator)
    (expected,) = torch.autograd.grad(out, weight, gy)
    found = by.pooled_weight_gradient(small, gy, size, case["kernel"], block, conv)
    torch.testing.assert_close(found, expected, rtol=1e-11, atol=1e-11)


@pytest.mark.parametrize("size", [(7,), (5, 8), (3, 4, 5)])
@pytest.mark.parametrize("kind", ["average", "max"])
@pytest.mark.parametrize("by", [native, formulas])
def test_blocks_at_the_border_have_their_true_counts(by, size, kind):
    x = torch.randn(2, 3, *size, dtype=torch.float64)
    block = (3,) * len(size)
    found = by.pool(x, block, kind)
    assert found.shape[2:] == tuple(-(-n // 3) for n in size)
    for at in torch.cartesian_prod(*[torch.arange(n) for n in found.shape[2:]]).reshape(-1, len(size)).tolist():
        part = x[(..., *[slice(3 * i, 3 * i + 3) for i in at])].flatten(2)
        expected = part.mean(2) if kind == "average" else part.amax(2)
        torch.testing.assert_close(found[(..., *at)], expected)

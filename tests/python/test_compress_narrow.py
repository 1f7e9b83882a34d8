# SPDX-License-Identifier: Apache-2.0
"""Pooled convolutions of narrow types on a CPU, where torch lacks some of its operations for them."""

import copy
import itertools

import pytest

torch = pytest.importorskip("torch", reason="PyTorch is not installed")

from torch import nn  # noqa: E402

import ebb  # noqa: E402

CONVS = (nn.Conv1d, nn.Conv2d, nn.Conv3d)
BY_WEIGHT = (nn.grad.conv1d_weight, nn.grad.conv2d_weight, nn.grad.conv3d_weight)
SIZE = (7, 6, 5)


def has(layer, dtype):
    """Whether this torch has such a convolution at all."""
    layer = copy.deepcopy(layer).to(dtype)
    try:
        layer(torch.randn(2, 4, *SIZE[: len(layer.stride)]).to(dtype)).sum().backward()
    except RuntimeError:
        return False
    return True


def spread(x, block, kind):
    """Every number replaced by the mean, or the largest, of its block; block by block, in float64."""
    found = x.double().clone()
    for start in itertools.product(*(range(0, n, block) for n in x.shape[2:])):
        place = (slice(None), slice(None), *(slice(begin, begin + block) for begin in start))
        axes = tuple(range(2, x.dim()))
        part = found[place]
        found[place] = (
            part.mean(axes, keepdim=True) if kind == "average" else part.amax(axes, keepdim=True)
        ).expand_as(part)
    return found


@pytest.mark.parametrize("dims", [1, 2, 3])
@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
@pytest.mark.parametrize("kind", ["average", "max"])
@pytest.mark.parametrize("autocast", [False, True])
@pytest.mark.parametrize("taps, stride", [(3, 1), (3, 2), (1, 1), (2, 2)])
@pytest.mark.sweep(12)
def test_weight_gradients(dims, dtype, kind, autocast, taps, stride):
    torch.manual_seed(0)
    layer = CONVS[dims - 1](4, 6, taps, stride, taps // 2)
    x = torch.randn(2, 4, *SIZE[:dims]).to(dtype)
    if not has(layer, dtype):
        pytest.skip("torch has no such convolution")
    if not autocast:
        layer.to(dtype)
    x.requires_grad_()
    with torch.autocast("cpu", dtype, enabled=autocast):
        wanted = layer(x)
        ebb.compress(layer, 2, pooling=kind)
        out = layer(x)
    assert torch.equal(out, wanted) and out.dtype == dtype
    gy = torch.randn(out.shape).to(dtype)
    (gx,) = torch.autograd.grad(wanted, x, gy)
    found, gw = torch.autograd.grad(out, (x, layer.weight), gy)
    assert (found - gx).norm() <= 0.02 * gx.norm()
    small = spread(x.detach(), 2, kind)
    exact = BY_WEIGHT[dims - 1](small, layer.weight.shape, gy.double(), stride, taps // 2)
    assert gw.dtype == layer.weight.dtype
    assert (gw.double() - exact).norm() <= 0.02 * exact.norm()


@pytest.mark.parametrize("dims", [1, 2, 3])
@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_copies_are_as_narrow_as_the_input(dims, dtype):
    model = nn.Sequential(CONVS[dims - 1](4, 4, 1), ebb.compress(CONVS[dims - 1](4, 6, 3, padding=1), 2))
    if not has(ebb.decompress(copy.deepcopy(model[1])), dtype):
        pytest.skip("torch has no such convolution")
    with torch.autocast("cpu", dtype):
        report = ebb.compression_report(model, torch.randn(2, 4, *SIZE[:dims]))
    kept = 2 * 4 * 2
    for n in SIZE[:dims]:
        kept *= -(-n // 2)
    weight = model[1].weight.numel() * 2  # a narrow copy of it, as torch keeps too
    assert next(row.kept for row in report.rows if row.layer == "1") == kept + weight

# SPDX-License-Identifier: Apache-2.0
"""Layers with lossy options one by one: the gradient is that of the kept copy."""

from __future__ import annotations

import copy

import pytest

torch = pytest.importorskip("torch", reason="PyTorch is not installed")
import torch.nn.functional as F  # noqa: E402
from compress_cases import CONVS, NORMS, Live, check_exact, check_same, given, kept_bytes, ran, same_bits  # noqa: E402
from torch import nn  # noqa: E402

import ebb  # noqa: E402

pytestmark = pytest.mark.usefixtures("one_thread")


def pooled_input(x, block, kind):
    """Blocks one by one."""
    out = x.detach().clone()
    for at in (
        torch.cartesian_prod(*[torch.arange(0, n, p) for n, p in zip(x.shape[2:], block)])
        .reshape(-1, len(block))
        .tolist()
    ):
        place = (..., *[slice(i, i + p) for i, p in zip(at, block)])
        dims = list(range(2, x.dim()))
        out[place] = (
            x[place].detach().mean(dims, keepdim=True)
            if kind == "average"
            else x[place].detach().amax(dims, keepdim=True)
        )
    return out


@pytest.mark.parametrize("case", [name for name in CONVS if name not in ("none", "unbatched")])
@pytest.mark.parametrize("pool, pooling", [(2, "average"), (3, "max"), (4, "average")])
@pytest.mark.sweep(12)
def test_pooled_convolutions(case, pool, pooling):
    make, shape = CONVS[case]
    model, x = nn.Sequential(make().double()), given(*shape, dtype=torch.float64)
    ours = ran(ebb.compress(copy.deepcopy(model), pool, pooling=pooling), x)
    stock = ran(model, x)
    assert same_bits(ours["out"], stock["out"])
    for name in ("x", "parameter 0.bias"):
        if name in stock:
            torch.testing.assert_close(ours[name], stock[name], rtol=1e-12, atol=1e-12)
    expected = ran(model, pooled_input(x, (pool,) * (x.dim() - 2), pooling))["parameter 0.weight"]
    torch.testing.assert_close(ours["parameter 0.weight"], expected, rtol=1e-11, atol=1e-11)
    assert not torch.allclose(expected, stock["parameter 0.weight"], rtol=1e-3)


def test_a_pooled_convolution_of_no_samples_or_of_one_without_a_batch():
    for shape in ((0, 4, 9, 8), (4, 9, 8)):
        check_exact(nn.Sequential(nn.Conv2d(4, 6, 3)), given(*shape), pool=2)


def test_two_consumers_share_one_pooled_copy():
    one, two = nn.Conv2d(8, 8, 3, padding=1), nn.Conv2d(8, 8, 1)
    x = given(4, 8, 16, 16)
    for layer in (one, two):
        ebb.compress(layer, 2)
    with Live() as live:
        first = one(x)
        middle = live.bytes()
        second = two(x)
        assert middle == first.numel() * 4 + x.numel() * 4 // 4
        assert live.bytes() == middle + second.numel() * 4
        (first.sum() + second.sum()).backward()
        del first, second
        grads = [p.grad for layer in (one, two) for p in layer.parameters()] + [x.grad]
        assert live.bytes() == sum(g.numel() * 4 for g in grads)  # though x is still there


def test_a_pooled_copy_is_not_used_for_a_changed_tensor():
    layer = ebb.compress(nn.Conv2d(3, 3, 3).double(), {"": 2})
    x = torch.randn(2, 3, 8, 8, dtype=torch.float64)
    first = layer(x)
    x.mul_(-3)
    second = layer(x)
    (gone,) = torch.autograd.grad(first.sum(), layer.weight)
    (found,) = torch.autograd.grad(second.sum(), layer.weight)
    torch.testing.assert_close(found, -3 * gone)


def test_data_is_pooled_only_where_its_layer_is_named():
    for pool, exact in ((2, True), ({"0": 2}, False)):
        model, x = nn.Sequential(nn.Conv2d(3, 3, 3)), torch.randn(2, 3, 9, 9)
        ours, stock = (ran(each, x) for each in (ebb.compress(copy.deepcopy(model), pool), model))
        assert torch.equal(ours["parameter 0.weight"], stock["parameter 0.weight"]) == exact


@pytest.mark.parametrize("shape", [(6, 10), (2, 3, 10), (0, 10), (10,)])
def test_int8_linear(shape):
    model, x = nn.Sequential(nn.Linear(10, 7).double()), given(*shape, dtype=torch.float64)
    ours, stock = ran(ebb.compress(copy.deepcopy(model), linear="int8"), x), ran(model, x)
    check_same(ours, stock, but=lambda name: name == "parameter 0.weight")
    flat = F.pad(x.detach().flatten().float(), (0, -x.numel() % 64)).view(-1, 64)
    scale = flat.abs().amax(1, keepdim=True) / 127
    near = ((flat / scale).round() * scale).flatten()[: x.numel()].view(x.shape).double() if x.dim() > 1 else x.detach()
    expected = ran(model, near)["parameter 0.weight"]
    torch.testing.assert_close(ours["parameter 0.weight"], expected, rtol=1e-5, atol=1e-6)


def test_projected_linear_is_right_in_the_mean():
    model, x = nn.Linear(10, 7).double(), given(40, 10, dtype=torch.float64)
    stock = ran(model, x)
    other = ebb.compress(copy.deepcopy(model), linear="project")
    found = [ran(other, x) for _ in range(300)]
    for one in found[:3]:
        check_same(one, stock, but=lambda name: name == "parameter weight")
    every = torch.stack([one["parameter weight"] for one in found])
    error = (every.mean(0) - stock["parameter weight"]).norm() / stock["parameter weight"].norm()
    spread_out = (every[0] - stock["parameter weight"]).norm() / stock["parameter weight"].norm()
    assert error < 0.15 * spread_out  # the mean of 300 is expected at 0.06
    assert kept_bytes(other, x) == 10 * 10 * 8


@pytest.mark.parametrize("case", NORMS)
@pytest.mark.parametrize("training", [True, False])
@pytest.mark.sweep(12)
def test_int8_norms(case, training):
    make, shape = NORMS[case]
    model, x = nn.Sequential(make()).train(training), given(*shape)
    ours, stock = ran(ebb.compress(copy.deepcopy(model), norm="int8"), x), ran(model, x)
    exact = ("out", "random", "parameter 0.bias")
    check_same(ours, stock, but=lambda name: name not in exact and not name.startswith("buffer"))
    for name in ours:
        if not name.startswith("buffer"):
            error = (ours[name].float() - stock[name].float()).norm()
            assert error <= 0.03 * stock[name].float().norm(), (name, error)


def test_an_int8_batch_norm_refuses_what_torch_refuses():
    model = ebb.compress(nn.BatchNorm1d(4), norm="int8")
    with pytest.raises(ValueError, match="more than 1 value"):
        model(given(1, 4))
    with pytest.raises(ValueError, match="expected 2D or 3D"):
        model(given(1, 4, 2, 2))


def test_an_int8_batch_norm_of_no_samples():
    for training in (True, False):
        model = nn.BatchNorm2d(4).train(training)
        x = given(0, 4, 3, 3)
        try:
            expected = ran(copy.deepcopy(model), x)
        except ValueError:
            with pytest.raises(ValueError):
                ran(ebb.compress(model, norm="int8"), x)
        else:
            check_same(ran(ebb.compress(model, norm="int8"), x), expected)

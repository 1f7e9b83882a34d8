# SPDX-License-Identifier: Apache-2.0
"""Compressed layers on a GPU. `./dev cuda` runs it where one is."""

from __future__ import annotations

import copy

import pytest
import torch
from torch import nn

import ebb
from ebb._compress.arithmetic import formulas, native
from ebb._compress.arithmetic.dispatch import pooled_weight_gradient
from ebb._compress.arithmetic.shapes import Convolution

pytestmark = pytest.mark.skipif(not torch.cuda.is_available(), reason="no GPU here")


@pytest.fixture(autouse=True)
def same_bits_in_every_run():
    before = torch.backends.cudnn.deterministic, torch.backends.cudnn.allow_tf32
    torch.backends.cudnn.deterministic, torch.backends.cudnn.allow_tf32 = True, False
    yield
    torch.backends.cudnn.deterministic, torch.backends.cudnn.allow_tf32 = before


class Block(nn.Module):
    def __init__(self, ins: int, outs: int, stride: int):
        super().__init__()
        self.way = nn.Sequential(
            nn.Conv2d(ins, outs, 3, stride, 1, bias=False),
            nn.BatchNorm2d(outs),
            nn.ReLU(inplace=True),
            nn.Conv2d(outs, outs, 3, 1, 1, bias=False),
            nn.BatchNorm2d(outs),
        )
        self.around = nn.Sequential(nn.Conv2d(ins, outs, 1, stride, bias=False), nn.BatchNorm2d(outs))
        self.relu = nn.ReLU(inplace=True)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        out = self.way(x)
        out += self.around(x)
        return self.relu(out)


def residual() -> nn.Module:
    torch.manual_seed(4)
    return nn.Sequential(
        nn.Conv2d(3, 16, 7, 2, 3, bias=False),
        nn.BatchNorm2d(16),
        nn.ReLU(True),
        nn.MaxPool2d(3, 2, 1),
        Block(16, 32, 1),
        Block(32, 32, 2),
        nn.AdaptiveAvgPool2d(1),
        nn.Flatten(),
        nn.Dropout(0.2),
        nn.Linear(32, 10),
    ).cuda()


def mobile() -> nn.Module:
    torch.manual_seed(4)
    return nn.Sequential(
        nn.Conv2d(3, 16, 3, 2, 1),
        nn.BatchNorm2d(16),
        nn.SiLU(),
        nn.Conv2d(16, 16, 5, 1, 2, groups=16),
        nn.GroupNorm(4, 16),
        nn.GELU(),
        nn.Conv2d(16, 24, 1),
        nn.BatchNorm2d(24),
        nn.ReLU6(),
        nn.Flatten(2),
        nn.LayerNorm(14 * 14),
        nn.Linear(14 * 14, 10),
        nn.LeakyReLU(0.1),
    ).cuda()


def ran(model: nn.Module, x: torch.Tensor, amp: torch.dtype | None) -> dict[str, torch.Tensor]:
    torch.manual_seed(5)
    x = x.detach().requires_grad_()
    with torch.autocast("cuda", amp, enabled=amp is not None):
        out = model(x)
    out.float().square().sum().backward()
    return {"out": out.detach(), "x": x.grad, **{name: p.grad for name, p in model.named_parameters()}}


@pytest.mark.parametrize("net", [residual, mobile])
@pytest.mark.parametrize("options", [{}, {"norm": "recompute"}])
@pytest.mark.parametrize("amp", [None, torch.bfloat16, torch.float16])
@pytest.mark.parametrize("last", [False, True])
def test_exact_ways_have_torchs_bits(net, options, amp, last):
    model = net()
    x = torch.randn(4, 3, 28 if net is mobile else 50, 28 if net is mobile else 50, device="cuda")
    if last:
        model, x = model.to(memory_format=torch.channels_last), x.contiguous(memory_format=torch.channels_last)
    stock = ran(copy.deepcopy(model), x, amp)
    ours = ran(ebb.compress(copy.deepcopy(model), **options), x, amp)
    assert [name for name in stock if not torch.equal(stock[name], ours[name])] == []


@pytest.mark.parametrize("options", [{"pool": 2}, {"pool": 4}, {"pool": 2, "norm": "int8", "linear": "int8"}])
@pytest.mark.parametrize("amp", [None, torch.bfloat16])
@pytest.mark.parametrize("last", [False, True])
def test_lossy_ways_are_those_of_the_cpu(options, amp, last):
    model, x = residual(), torch.randn(4, 3, 50, 50, device="cuda")
    model[8] = nn.Identity()  # generators differ
    if last:
        model, x = model.to(memory_format=torch.channels_last), x.contiguous(memory_format=torch.channels_last)
    ours = ran(ebb.compress(copy.deepcopy(model), **options), x, amp)
    there = ran(ebb.compress(copy.deepcopy(model), **options).cpu().double(), x.cpu().double(), None)
    assert torch.equal(ours["out"], ran(copy.deepcopy(model), x, amp)["out"])
    for name in there:
        a, b = ours[name].double().cpu().flatten(), there[name].flatten()
        assert torch.cosine_similarity(a, b, dim=0) > (0.999 if amp is None else 0.97), name


@pytest.mark.parametrize(
    "size, taps, stride, padding, dilation, groups",
    [
        ((56, 56), (3, 3), 1, 1, 1, 1),
        ((57, 41), (3, 3), 2, 1, 1, 1),
        ((14, 14), (1, 1), 1, 0, 1, 2),
        ((14, 14), (1, 1), 2, 0, 1, 1),
        ((30, 30), (5, 5), 1, 4, 2, 8),
        ((23, 7), (7, 7), 3, 3, 1, 1),
    ],
)
@pytest.mark.parametrize("block", [2, 4, 5])
def test_weight_gradient_of_a_pooled_input(size, taps, stride, padding, dilation, groups, block):
    conv = Convolution((stride,) * 2, (padding,) * 2, (padding,) * 2, (dilation,) * 2, groups)
    block = tuple(min(block, n) for n in size)
    x = torch.randn(3, 8, *size)
    out = tuple((n + 2 * padding - dilation * (k - 1) - 1) // stride + 1 for n, k in zip(size, taps))
    gy, pooled = torch.randn(3, 16, *out), formulas.pool(x, block, "average")
    for order in (torch.contiguous_format, torch.channels_last):
        found = pooled_weight_gradient(
            pooled.cuda().contiguous(memory_format=order),
            gy.cuda().contiguous(memory_format=order),
            size,
            taps,
            block,
            conv,
        )
        torch.testing.assert_close(
            found.cpu(), native.pooled_weight_gradient(pooled, gy, size, taps, block, conv), rtol=1e-3, atol=1e-3
        )


@pytest.mark.parametrize("options", [{}, {"pool": 2}, {"pool": 2, "norm": "int8"}, {"norm": "recompute"}])
def test_a_step_can_be_captured_in_a_graph(options):
    model, x = ebb.compress(residual()[:8].eval(), **options), torch.randn(4, 3, 50, 50, device="cuda")
    for part in model.modules():
        if isinstance(part, nn.BatchNorm2d):
            part.train()

    def step() -> None:
        model.zero_grad(set_to_none=True)
        model(x).square().sum().backward()

    side = torch.cuda.Stream()
    side.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(side):
        for _ in range(3):
            step()
    torch.cuda.current_stream().wait_stream(side)
    expected = [p.grad.clone() for p in model.parameters()]
    model.zero_grad(set_to_none=True)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        model(x).square().sum().backward()
    graph.replay()
    for found, wanted in zip((p.grad for p in model.parameters()), expected):
        torch.testing.assert_close(found, wanted)


def test_memory_is_what_is_said():
    """What is held after the forward pass, by the allocator: a map less for each norm with its ReLU."""

    def held(model: nn.Module) -> int:
        x = torch.randn(16, 3, 100, 100, device="cuda")
        model(x).sum().backward()
        torch.cuda.synchronize()
        before = torch.cuda.memory_allocated()
        out = model(x)
        after = torch.cuda.memory_allocated()
        del out
        return after - before

    stock, exact, pooled = (held(each) for each in (residual(), ebb.compress(residual()), ebb.compress(residual(), 2)))
    assert exact < 0.75 * stock and pooled < 0.9 * exact

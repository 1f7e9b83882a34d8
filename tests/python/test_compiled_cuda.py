# SPDX-License-Identifier: Apache-2.0
"""`ebb.compiled` on a GPU: gradients beside those of torch's own backend, and memory that is really held."""

from __future__ import annotations

import copy
from typing import Any

import pytest

torch = pytest.importorskip("torch")
from compiled_cases import Bottleneck  # noqa: E402
from torch import nn  # noqa: E402

import ebb  # noqa: E402

pytestmark = pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU")


def net(dropout: float = 0.0) -> tuple[nn.Module, Any]:
    torch.manual_seed(0)
    layers = [nn.Conv2d(3, 128, 3, padding=1), *[Bottleneck(128, 32) for _ in range(4)], nn.Dropout(dropout)]
    model = nn.Sequential(*layers, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(128, 10)).cuda()
    return model, torch.randn(64, 3, 64, 64, device="cuda")


def step(model: nn.Module, run: Any, x: Any) -> list[Any]:
    model.zero_grad(set_to_none=True)
    torch.manual_seed(5)
    run(x).square().mean().backward()
    return [one.grad for one in model.parameters()]


def off(found: list[Any], wanted: list[Any]) -> float:
    return max(float((one - two).norm() / two.norm().clamp_min(1e-6)) for one, two in zip(found, wanted, strict=True))


def peak_of(work: Any) -> int:
    torch.cuda.synchronize()
    before = torch.cuda.memory_allocated()
    torch.cuda.reset_peak_memory_stats()
    work()
    torch.cuda.synchronize()
    return torch.cuda.max_memory_allocated() - before


@pytest.fixture(autouse=True)
def _exact_and_fresh(monkeypatch: pytest.MonkeyPatch) -> Any:
    monkeypatch.setattr(torch.backends.cudnn, "allow_tf32", False)
    torch._dynamo.reset()
    yield
    torch._dynamo.reset()


def beside_eager(layout: Any) -> tuple[nn.Module, Any, list[Any], int]:
    """The model and its input, and the gradients and the peak of an eager step."""
    model, x = net()
    model, x = model.to(memory_format=layout), x.contiguous(memory_format=layout)
    eager = copy.deepcopy(model)
    return model, x, step(eager, eager, x), peak_of(lambda: step(eager, eager, x))


@pytest.mark.parametrize("layout", [torch.contiguous_format, torch.channels_last])
def test_gradients_and_peaks(layout: Any) -> None:
    model, x, wanted, whole = beside_eager(layout)
    stock = copy.deepcopy(model)
    rounding = off(step(stock, torch.compile(stock), x), wanted)  # torch's own kernels beside eager ones
    peaks = []
    for budget in (None, "50%", "42%"):
        torch._dynamo.reset()
        backend = ebb.compiled(budget=budget)
        own = copy.deepcopy(model)
        run = torch.compile(own, backend=backend)
        assert off(step(own, run, x), wanted) < 2 * rounding + 1e-4
        peaks.append(peak_of(lambda own=own, run=run: step(own, run, x)))
        report = backend.reports[0]
        assert 0.9 * report.peak < peaks[-1] < 1.35 * report.peak, report  # workspaces weigh more in a small net
    assert whole > peaks[0] > peaks[1] > peaks[2]


@pytest.mark.parametrize("layout", [torch.contiguous_format, torch.channels_last])
def test_eight_bits(layout: Any) -> None:
    model, x, wanted, whole = beside_eager(layout)
    backend = ebb.compiled(keep="int8")
    run = torch.compile(model, backend=backend)
    assert 1e-5 < off(step(model, run, x), wanted) < 0.06
    peak, report = peak_of(lambda: step(model, run, x)), backend.reports[0]
    assert report.kept < 0.25 * report.stock_kept
    assert peak < 0.6 * whole


def test_a_dropout_is_the_same_in_both_passes() -> None:
    x = torch.randn(64, 65536, device="cuda", requires_grad=True)
    backend = ebb.compiled()
    out = torch.compile(lambda x: nn.functional.dropout((2 * x).sin(), 0.5), backend=backend)(x)
    out.sum().backward()
    torch.testing.assert_close(x.grad, torch.where(out == 0, 0.0, 4 * (2 * x).cos()))
    assert backend.reports[0].kept == x.numel() // 8  # a bit for each number


def test_reduce_overhead_and_autocast() -> None:
    model, x = net()
    eager = copy.deepcopy(model)
    run = torch.compile(model, backend=ebb.compiled(budget="50%"), mode="reduce-overhead")
    for _ in range(4):
        torch.compiler.cudagraph_mark_step_begin()
        with torch.autocast("cuda", torch.bfloat16):
            wanted = step(eager, eager, x)
            found = step(model, run, x)
        assert off(found, wanted) < 0.2


def test_stock_after_ebb_and_ebb_after_stock() -> None:
    """In one process, with torch's caches where they are."""
    model, x = net()

    def peak(backend: Any) -> int:
        torch._dynamo.reset()
        own = copy.deepcopy(model)
        run = torch.compile(own, backend=backend)
        step(own, run, x)
        return peak_of(lambda: step(own, run, x))

    stock, tight, again = peak("inductor"), peak(ebb.compiled(budget="40%")), peak("inductor")
    assert tight < 0.7 * stock
    assert again == pytest.approx(stock, rel=0.02)
    assert peak(ebb.compiled(budget="40%")) == pytest.approx(tight, rel=0.02)

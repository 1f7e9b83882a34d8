# SPDX-License-Identifier: Apache-2.0
"""`ebb.compiled` through torch's compiler to its end: gradients, memory that is really held, caches."""

from __future__ import annotations

import os
import pathlib
import subprocess
import sys
from typing import Any

import pytest

torch = pytest.importorskip("torch")
from torch import nn  # noqa: E402

import ebb  # noqa: E402

pytestmark = pytest.mark.slow


def model() -> tuple[nn.Module, Any]:
    torch.manual_seed(0)
    layers: list[nn.Module] = []
    for _ in range(4):
        layers += [nn.Conv2d(32, 32, 3, padding=1, bias=False), nn.BatchNorm2d(32), nn.ReLU()]
    return nn.Sequential(nn.Conv2d(3, 32, 3, padding=1), *layers), torch.randn(4, 3, 64, 64)


def step(net: nn.Module, loss: Any, x: Any) -> list[Any]:
    net.zero_grad()
    loss(x).backward()
    return [one.grad.clone() for one in net.parameters()]


def peak_of(work: Any) -> int:
    """Bytes of tensors at the worst moment, beyond what was there before."""
    with torch.profiler.profile(profile_memory=True) as profile:
        work()
    now = peak = 0
    for event in sorted(profile.profiler.kineto_results.events(), key=lambda event: event.start_ns()):
        if event.name() == "[memory]":
            now += event.nbytes()
            peak = max(peak, now)
    return peak


def beside_eager() -> tuple[nn.Module, Any, Any, list[Any], int]:
    """The model, its input and loss, and the gradients and the peak of an eager step."""
    net, x = model()

    def loss(x: Any) -> Any:
        return net(x).square().mean()

    return net, x, loss, step(net, loss, x), peak_of(lambda: step(net, loss, x))


def test_the_same_gradients_in_less_memory() -> None:
    net, x, loss, wanted, eager = beside_eager()
    backend = ebb.compiled(budget="55%")
    run = torch.compile(loss, backend=backend)
    for one, two in zip(step(net, run, x), wanted, strict=True):
        torch.testing.assert_close(one, two, rtol=1e-3, atol=1e-5)
    peak, report = peak_of(lambda: step(net, run, x)), backend.reports[0]
    assert peak < 0.65 * eager
    assert report.peak <= peak  # in so small a net what convolutions take for themselves weighs much


def test_eight_bits_hold_less() -> None:
    net, x, loss, wanted, eager = beside_eager()
    backend = ebb.compiled(keep="int8")
    run = torch.compile(loss, backend=backend)
    off = [float((one - two).norm()) for one, two in zip(step(net, run, x), wanted, strict=True)]
    norms = [float(one.norm()) for one in wanted]
    assert sum(off) < 0.05 * sum(norms)
    assert peak_of(lambda: step(net, run, x)) < 0.45 * eager
    assert backend.reports[0].kept < 0.3 * backend.reports[0].stock_kept


PROGRAM = """
import sys, torch, ebb
torch.manual_seed(0)
net = torch.nn.Sequential(torch.nn.Linear(64, 256), torch.nn.GELU(), torch.nn.Linear(256, 256), torch.nn.GELU(), torch.nn.Linear(256, 8))
x = torch.randn(512, 64)
known = {one.untyped_storage().data_ptr() for one in (*net.parameters(), x)}
kept = 0
def pack(tensor):
    global kept
    if tensor.untyped_storage().data_ptr() not in known:
        kept += tensor.nbytes
    return tensor
backend = None if sys.argv[1] == "stock" else ebb.compiled(budget=sys.argv[1])
run = torch.compile(net, backend=backend) if backend else torch.compile(net)
with torch.autograd.graph.saved_tensors_hooks(pack, lambda tensor: tensor):
    run(x).sum().backward()
print(kept)
"""


def test_caches_on_disk_do_not_mix_stock_and_budgets(tmp_path: pathlib.Path) -> None:
    """New processes with one folder of caches."""
    environment = os.environ | {"TORCHINDUCTOR_CACHE_DIR": str(tmp_path), "TORCHINDUCTOR_FX_GRAPH_CACHE": "1"}

    def kept(what: str) -> int:
        words = [sys.executable, "-c", PROGRAM, what]
        return int(
            subprocess.run(words, env=environment, capture_output=True, text=True, check=True).stdout.split()[-1]
        )

    whole, tight, stock = kept("100%"), kept("60%"), kept("stock")
    assert tight < stock
    assert tight < whole
    assert kept("100%") == whole

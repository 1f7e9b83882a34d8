# SPDX-License-Identifier: Apache-2.0
"""Layers over sequences of other lengths: nothing is measured again, and what came before does not choose the chunk."""

from __future__ import annotations

import pytest

torch = pytest.importorskip("torch", reason="PyTorch is not installed")
from gated_cases import NAMES, on_a_gpu, same  # noqa: E402, F401

import ebb  # noqa: E402
import ebb.nn  # noqa: E402
from ebb._loop import examine  # noqa: E402

pytestmark = pytest.mark.usefixtures("one_thread")
LENGTHS = [300, 150, 100, 301, 150, 220]


def run(net, steps, batch=3):
    torch.manual_seed(steps)
    net.zero_grad()
    y, _ = net(torch.randn(steps, batch, 5))
    y.sin().sum().backward()
    chunks = [run.chunk for run in net.report.runs]
    return chunks, [y.detach(), *[p.grad for p in net.parameters()]]


@pytest.fixture
def measured(monkeypatch):
    ebb.clear_cache()
    found = []
    for name in ("explicit_costs", "measure"):
        own = getattr(examine, name)
        monkeypatch.setattr(examine, name, lambda *given, _own=own, **words: found.append(1) or _own(*given, **words))
    return found


@pytest.mark.parametrize("native", [True, False], ids=["kernels for GPUs", "torch's"])
@pytest.mark.parametrize("how", [{}, {"num_layers": 2}, {"bidirectional": True}], ids=str)
@pytest.mark.parametrize("name", NAMES)
@pytest.mark.sweep(5)
def test_a_sequence_of_another_length_is_not_measured_again(name, how, native, measured):
    net = getattr(ebb.nn, name)(5, 8, budget=300_000, chunk=20, native=native, **how)
    run(net, 300)
    count = len(measured)
    for steps in LENGTHS:
        run(net, steps)
        assert len(measured) == count


@pytest.mark.parametrize("native", [True, False], ids=["kernels for GPUs", "torch's"])
@pytest.mark.parametrize("name", NAMES)
@pytest.mark.sweep(2)
def test_what_came_before_does_not_choose_the_chunk(name, native):
    torch.manual_seed(0)
    for budget in ("60%", 100_000):
        net = getattr(ebb.nn, name)(5, 8, budget=budget, native=native)
        alone = {}
        for steps in LENGTHS:
            ebb.clear_cache()
            alone[steps] = run(net, steps)
        ebb.clear_cache()
        for steps in LENGTHS:
            chunks, found = run(net, steps)
            assert chunks == alone[steps][0] and same(found, alone[steps][1])

# SPDX-License-Identifier: Apache-2.0
"""Loops inside of torch.nn.utils.parametrize.cached()."""

from __future__ import annotations

import copy

import pytest

torch = pytest.importorskip("torch", reason="PyTorch is not installed")
from scan_cases import BATCH, WIDTH, numbers  # noqa: E402
from scan_oracle import gradients, loop, same, weighted  # noqa: E402
from torch.nn.utils import parametrizations, parametrize  # noqa: E402

import ebb  # noqa: E402

torch.set_num_threads(1)


@pytest.fixture(autouse=True)
def seed() -> None:
    torch.manual_seed(1)


class Skew(torch.nn.Module):
    def forward(self, weight):
        return weight.triu() - weight.triu().transpose(-1, -2)


class Noisy(torch.nn.Module):
    def forward(self, weight):
        return weight + 0.1 * torch.randn_like(weight)


class Net(torch.nn.Module):
    """Two cells, one of which later steps alone use, and one that no step uses."""

    def __init__(self, register):
        super().__init__()
        self.cell, self.late, self.unused = (torch.nn.RNNCell(WIDTH, WIDTH) for _ in range(3))
        for cell in (self.cell, self.late, self.unused):
            register(cell)

    def forward(self, h, t):
        h = self.cell(torch.full_like(h, 0.1) * float(t), h)
        return (h if int(t) < 5 else self.late(h, h)), h


KINDS = {
    "skew": lambda cell: parametrize.register_parametrization(cell, "weight_hh", Skew()),
    "noisy": lambda cell: parametrize.register_parametrization(cell, "weight_hh", Noisy()),
    "weight norm": lambda cell: parametrizations.weight_norm(cell, "weight_hh"),
    "spectral norm": lambda cell: parametrizations.spectral_norm(cell, "weight_hh"),
    "both weights": lambda cell: [parametrizations.weight_norm(cell, name) for name in ("weight_hh", "weight_ih")],
}


@pytest.mark.parametrize("budget", ["2KiB", 10**9, None], ids=["small", "ample", "none"])
@pytest.mark.parametrize("where", ["inside", "outside", "used before"])
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.sweep(15)
def test_bits_are_those_of_the_loop(kind, where, budget):
    net = Net(KINDS[kind])
    init = numbers(BATCH, WIDTH)

    def run(scan, model, **options):
        torch.manual_seed(3)
        given = [p for name, p in model.named_parameters() if "late" not in name and "unused" not in name]
        wanted = [init, *given, *model.late.parameters()]
        with parametrize.cached():
            before = model.cell.weight_hh.sum() if where == "used before" else 0
            found = scan(model, init, torch.arange(40), **options)
            loss = weighted(*found) + before
            inside = gradients(loss, wanted) if where == "inside" else None
        assert not parametrize._cache_enabled
        buffers = [buffer.clone() for buffer in model.buffers()]
        result = *found, *(inside or gradients(loss, wanted)), *buffers, torch.randn(1)
        assert not parametrize._cache and not parametrize._cache_enabled
        return result

    theirs = run(loop, copy.deepcopy(net))
    ours = run(ebb.scan, net, **({} if budget is None else {"budget": budget, "chunk": 1, "params": net}))
    same(ours, theirs)
    if budget == "2KiB":
        assert ebb.last_report().strategy != "store_all"


def test_it_is_computed_once():
    calls = []

    class Counted(Skew):
        def forward(self, weight):
            calls.append(torch.is_grad_enabled())
            return super().forward(weight)

    cell = torch.nn.RNNCell(WIDTH, WIDTH)
    parametrize.register_parametrization(cell, "weight_hh", Counted())

    def f(h, x):
        h = cell(x, h)
        return h, h

    calls.clear()
    with parametrize.cached():
        found = ebb.scan(f, numbers(BATCH, WIDTH), numbers(40, BATCH, WIDTH), budget="2KiB", chunk=1)
    weighted(*found).backward()
    assert calls == [True]  # what the first look left there is undone


def test_a_chain_refuses_it():
    net = torch.nn.Sequential(*(torch.nn.Sequential(torch.nn.Linear(8, 8), torch.nn.Tanh()) for _ in range(12)))
    for stage in net:
        parametrize.register_parametrization(stage[0], "weight", Skew())
    x = numbers(4, 8)
    chain = ebb.Chain(net, x.detach(), budget="3KiB")

    def run(model):
        y = model(x)
        return y.detach(), *gradients(weighted(y), [x, *net.parameters()])

    same(run(chain), run(net))
    assert chain.report.strategy != "store_all"
    with parametrize.cached(), pytest.raises(ebb.Error, match="leave cached"):
        chain(x)

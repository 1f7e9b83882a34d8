# SPDX-License-Identifier: Apache-2.0
"""Layers in a budget by chunks of torch's own kernels: the path of GPUs, autocast and half precision, here on a CPU."""

from __future__ import annotations

import copy
import itertools
import pickle

import pytest

torch = pytest.importorskip("torch")

from torch.nn.utils.rnn import pack_padded_sequence  # noqa: E402

import ebb  # noqa: E402
import ebb.nn  # noqa: E402
from ebb.nn import _native  # noqa: E402

HOW = [{}, {"num_layers": 2}, {"bidirectional": True, "num_layers": 2}, {"batch_first": True}, {"bias": False}]


@pytest.fixture(autouse=True)
def not_native(monkeypatch):
    torch.set_num_threads(1)
    torch.manual_seed(0)
    monkeypatch.setattr(_native, "why_not", lambda *tensors: "another device")


def results(layer, x, lengths, batch_first):
    own = x.clone().requires_grad_()
    given = own if lengths is None else pack_padded_sequence(own, lengths, batch_first, enforce_sorted=False)
    y, state = layer(given)
    y = y if lengths is None else y.data
    states = state if isinstance(state, tuple) else (state,)
    (y.pow(2).sum() + sum(s.sin().sum() for s in states)).backward()
    return [y.detach(), *(s.detach() for s in states), own.grad, *(p.grad for p in layer.parameters())]


@pytest.mark.parametrize("lengths", [None, [40, 100, 3]])
@pytest.mark.parametrize("how", HOW, ids=str)
@pytest.mark.parametrize("name", ["LSTM", "GRU", "RNN"])
@pytest.mark.sweep(9)
def test_as_torch(name, how, lengths):
    plain = getattr(torch.nn, name)(5, 7, **how).double()
    x = torch.randn(*((3, 100, 5) if "batch_first" in how else (100, 3, 5)), dtype=torch.float64)
    budget = 80_000 if not how.get("bidirectional") else 300_000
    ours = getattr(ebb.nn, name)(5, 7, budget=budget, chunk=7, **how).double()
    ours.load_state_dict(plain.state_dict())
    for a, b in zip(results(plain, x, lengths, "batch_first" in how), results(ours, x, lengths, "batch_first" in how)):
        # Sums over time steps are added in another order: some units in the last place of their largest number.
        assert float((a - b).abs().max()) <= 1e-12 * max(1.0, float(a.abs().max()))
    assert ours.report.peak <= budget
    assert all(run.measured["forwards"] > run.steps for run in ours.report.runs if run.strategy != "store_all")


def test_budgets_change_no_bit():
    plain = torch.nn.GRU(5, 7, 2)
    x = torch.randn(200, 3, 5)
    found = []
    for budget in (20_000, 40_000, "1GiB"):
        ours = ebb.nn.GRU(5, 7, 2, budget=budget, chunk=4, strategy="auto")
        ours.load_state_dict(plain.state_dict())
        found.append((results(ours, x, None, False), ours.report.runs[0].strategy))
    assert found[0][1] != "store_all"
    assert all(torch.equal(a, b) for a, b in zip(found[0][0], found[1][0]))
    # Where all fits, one call does the whole sequence, as in torch.
    assert all(torch.equal(a, b) for a, b in zip(found[2][0], results(plain, x, None, False)))


def test_dropout_between_layers_is_drawn_again_alike():
    torch.manual_seed(0)
    ours = ebb.nn.LSTM(5, 7, 3, dropout=0.5, chunk=5)
    x = torch.randn(100, 3, 5)
    found = []
    ours.budget = 1
    with pytest.raises(ebb.Error, match="3 runs") as error:
        ours(x)
    least = error.value.least_budget
    for budget in (int(1.1 * least), int(1.3 * least), 2 * least):
        ours.budget = budget
        ours.zero_grad()
        torch.manual_seed(3)
        found.append([t.clone() for t in results(ours, x, None, False)])
        assert all(run.strategy != "store_all" for run in ours.report.runs)
    assert all(torch.equal(a, b) for other in found[1:] for a, b in zip(found[0], other))
    assert not torch.equal(found[0][0], results(ours.eval(), x, None, False)[0])


def test_half_precision_and_autocast():
    x = torch.randn(300, 3, 5, dtype=torch.bfloat16)
    try:
        torch.nn.LSTM(5, 7, dtype=torch.bfloat16)(x)[0].sum().backward()
    except RuntimeError as error:
        pytest.skip(f"torch cannot: {error}")
    layer = ebb.nn.LSTM(5, 7, budget="64KiB", dtype=torch.bfloat16)
    y, _ = layer(x)
    y.float().mean().backward()
    assert layer.report.runs and bool(torch.isfinite(layer.weight_hh_l0.grad).all())


def test_a_shared_budget_over_two_layers():
    budget = ebb.Budget("160KiB")
    first, second = ebb.nn.LSTM(5, 7, budget=budget, chunk=10), ebb.nn.GRU(7, 6, budget=budget, chunk=10)
    x = torch.randn(300, 3, 5)
    for _ in range(3):
        out, _ = second(first(x)[0])
        out.sum().backward()
        assert budget.held == 0
    assert 0 < budget.peak <= budget.total
    assert first.weight_hh_l0.grad is not None


@pytest.mark.parametrize("bidirectional", [False, True])
def test_shares_and_words(bidirectional):
    x = torch.randn(100, 3, 5)
    budgets = {}
    for said in ("speed", "50%", "balanced", "memory"):
        layer = ebb.nn.LSTM(5, 7, bidirectional=bidirectional, budget=said, chunk=10)
        layer(x)[0].sum().backward()
        budgets[said] = layer.report.budget
        assert layer.report.peak <= budgets[said]
    assert budgets["memory"] <= budgets["balanced"] <= budgets["speed"]
    assert abs(budgets["50%"] - budgets["speed"] / 2) <= 2


def test_without_gradients_and_too_little():
    layer = ebb.nn.LSTM(5, 7, budget=100)
    x = torch.randn(300, 3, 5)
    with torch.no_grad():
        assert layer(x)[0].shape == (300, 3, 7)
    with pytest.raises(ebb.Error) as error:
        layer(x)
    assert error.value.least_budget > 100
    layer.budget = 2 * error.value.least_budget
    layer(x)[0].sum().backward()


def test_budgets_go_with_copies_of_a_module():
    layer = ebb.nn.LSTM(5, 7, budget=ebb.Budget("1MiB"))
    assert copy.deepcopy(layer).budget is layer.budget
    assert pickle.loads(pickle.dumps(layer)).budget.total == 1 << 20


def test_native_cells_can_be_declined(monkeypatch):
    monkeypatch.undo()
    x = torch.randn(300, 3, 5)
    for native in (True, False):
        layer = ebb.nn.LSTM(5, 7, budget="64KiB", native=native)
        layer(x)[0].sum().backward()
        assert (layer.chunk_report is None) == native


def test_no_clock_chooses_the_chunk(monkeypatch):
    x, found = torch.randn(300, 3, 5), []
    for fastest in (0, 1, 2):
        ticks = itertools.count()
        monkeypatch.setattr(
            "ebb._loop.costs.seconds_of", lambda work, device: (work(), 1e-3 if next(ticks) % 3 == fastest else 1.0)[1]
        )
        ebb.clear_cache()
        layer = ebb.nn.GRU(5, 7, budget="24KiB")
        layer(x)[0].sum().backward()
        found.append(layer.report.runs[0].steps)
    assert len(set(found)) == 1 and 1 < found[0] < 300


@pytest.mark.parametrize("tiers", [None, [ebb.memory_tier("1MiB")]])
def test_a_chunk_that_fits_barely_is_not_taken(tiers):
    """It would run its steps again most often."""
    x = torch.randn(300, 3, 5)
    layer = ebb.nn.GRU(5, 7, budget=1, tiers=tiers, chunk=32)
    with pytest.raises(ebb.Error) as error:
        layer(x)
    layer.budget = error.value.least_budget
    layer(x)[0].sum().backward()
    barely = layer.report.runs[0]
    layer.chunk = None
    layer(x)[0].sum().backward()
    chosen = layer.report.runs[0]
    assert chosen.steps > barely.steps
    assert chosen.measured["forwards"] / chosen.steps < 0.75 * barely.measured["forwards"] / barely.steps

# SPDX-License-Identifier: Apache-2.0
"""Layers with numbers of units that the library's own GPU kernels do not take: zeros stand in for those that are missing. With a
stand-in for the kernels on the CPU, beside torch's own layers in float64."""

from __future__ import annotations

import pytest

torch = pytest.importorskip("torch", reason="PyTorch is not installed")
import gated_calls  # noqa: E402
from gated_cases import NAMES, Case, on_a_gpu, same  # noqa: E402, F401
from test_nn_gated_packed import LENGTHS, Packs  # noqa: E402

import ebb  # noqa: E402
from ebb._tensor.memory import LiveBytes  # noqa: E402
from ebb.nn import _gated  # noqa: E402

pytestmark = pytest.mark.usefixtures("one_thread")
UNITS = _gated.units_of
HOW = [{}, {"num_layers": 3}, {"bidirectional": True}, {"bias": False}, {"num_layers": 2, "dropout": 0.0}]


@pytest.fixture(autouse=True)
def as_on_a_gpu(on_a_gpu, monkeypatch):  # noqa: F811
    monkeypatch.setattr(_gated, "units_of", UNITS)


def test_as_many_as_kernels_take():
    assert [UNITS(n, torch.float32) for n in (1, 16, 17, 650)] == [16, 16, 32, 656]
    assert [UNITS(n, torch.bfloat16) for n in (1, 32, 33, 650)] == [32, 32, 64, 672]


@pytest.mark.parametrize("how", HOW, ids=str)
@pytest.mark.parametrize("hidden", [1, 13, 16, 20])
@pytest.mark.parametrize("name", NAMES)
@pytest.mark.sweep(12)
def test_gradients_are_those_of_torch(name, hidden, how):
    Case(name, hidden=hidden, **how).check()


@pytest.mark.parametrize("how", [{}, {"num_layers": 2}, {"bidirectional": True}], ids=str)
@pytest.mark.parametrize("name", NAMES)
def test_packed_sequences(name, how):
    Packs(name, LENGTHS["not sorted"], chunk=7, **how).check()  # of 8 units
    Packs(name, LENGTHS["apart"], dtype=torch.bfloat16, chunk=7, **how).check(tolerance=5e-2)


@pytest.mark.parametrize("how", [{}, {"num_layers": 2}], ids=str)
@pytest.mark.parametrize("name", NAMES)
def test_every_budget_has_the_same_bits(name, how):
    with pytest.raises(ebb.Error) as refused:
        Case(name, hidden=13, budget=1, **how).results()
    budgets = [refused.value.least_budget, "50%", "speed"]
    found = [Case(name, hidden=13, budget=budget, **how).results() for budget in budgets]
    assert all(same(found[0], other) for other in found)


@pytest.mark.parametrize("of_x, of_states, uses", [(False, True, "y"), (True, False, "s"), (False, False, "ys")])
@pytest.mark.parametrize("name", NAMES)
def test_gradients_that_nobody_wants(name, of_x, of_states, uses):
    Case(name, hidden=13).check(of_x=of_x, of_states=of_states, uses=uses)


@pytest.mark.parametrize("name", NAMES)
def test_weights_without_gradients(name):
    case = Case(name, hidden=13)
    case.freeze(["weight_hh", "bias_ih"])
    case.check()


@pytest.mark.parametrize("name", NAMES)
def test_results_lie_as_torchs(name):
    case = Case(name, hidden=13)
    for net in (case.net, case.exact):
        with torch.no_grad():
            y, last = net(case.x.to(next(net.parameters()).dtype))
        assert y.is_contiguous() and y.shape == (60, 3, 13)
        for state in last if isinstance(last, tuple) else (last,):
            assert state.is_contiguous() and state.shape == (1, 3, 13)
    y, last = case.net(case.x)
    assert y.is_contiguous()
    assert all(state.is_contiguous() for state in (last if isinstance(last, tuple) else (last,)))


@pytest.mark.parametrize("name", NAMES)
def test_a_weight_that_changes_afterwards_does_not_change_gradients(name):
    case = Case(name, hidden=13)
    wanted = case.results()
    x = case.x.clone().requires_grad_()
    states = [state.detach().requires_grad_() for state in case.states]
    y, last = case.net(x, tuple(states) if len(states) == 2 else states[0])
    with torch.no_grad():
        case.net.weight_hh_l0.add_(1)
    last = last if isinstance(last, tuple) else (last,)
    (y.double().pow(2).mean() + sum(state.double().sin().mean() for state in last)).backward()
    found = [y, *last, x.grad, *[state.grad for state in states], *[p.grad for p in case.net.parameters()]]
    assert same(wanted, [tensor.detach() for tensor in found])


@pytest.mark.parametrize("how", [{}, {"num_layers": 2}, {"bidirectional": True}], ids=str)
@pytest.mark.parametrize("name", NAMES)
def test_infinite_inputs(name, how):
    """Gates saturate, so that outputs are finite."""
    case = Case(name, hidden=13, **how)
    case.x[20, 1, 2] = float("-inf")
    for grad in (True, False):
        with torch.set_grad_enabled(grad):
            y, wanted = case.net(case.x)[0], case.exact(case.x.double())[0]
        assert wanted.isfinite().all()
        assert float((y - wanted).detach().abs().max()) < 1e-5


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize("how", [{}, {"num_layers": 2}, {"bidirectional": True}], ids=str)
@pytest.mark.parametrize("name", NAMES)
@pytest.mark.sweep(9)
def test_the_budget_is_a_cap(name, how, dtype):
    """Outputs and their gradients, and the gradients of parameters and inputs, are the caller's."""
    case = Case(
        name, dtype, steps=200, batch=4, inputs=7, hidden=40 if dtype == torch.float32 else 72, budget="40%", **how
    )
    for _ in range(2):
        case.results()
    x = case.x.requires_grad_()
    with LiveBytes() as live:
        y, _ = case.net(x)
        y.backward(torch.ones_like(y))
    parameters = sum(p.nbytes for p in case.net.parameters())
    callers = 2 * y.nbytes + x.nbytes + parameters + 4 * sum(state.nbytes for state in case.states)
    budget = sum(run.budget for run in case.net.report.runs)
    assert live.peak <= budget * 1.02 + callers


@pytest.mark.slow
@pytest.mark.parametrize("seed", [3, 5, 11])
def test_random_calls(seed):
    gated_calls.check_calls(seed, "cpu", lambda layer, x: None)

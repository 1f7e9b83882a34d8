# SPDX-License-Identifier: Apache-2.0
"""Spiking layers that the library's own GPU kernels run: with a stand-in for the kernels on the CPU, beside a loop of plain torch in
float64 that fires where the layer does."""

from __future__ import annotations

import copy
import gc
import weakref

import pytest

torch = pytest.importorskip("torch", reason="PyTorch is not installed")
import neurons_stand_in  # noqa: E402
from gated_cases import same  # noqa: E402
from spiking_reference import SURROGATES  # noqa: E402

import ebb  # noqa: E402
import ebb.nn  # noqa: E402
from ebb.nn import _gated, _neurons  # noqa: E402

pytestmark = pytest.mark.usefixtures("one_thread")
KINDS = ["LIF", "ALIF", "AdLIF"]
OWN = {"LIF": {}, "ALIF": {"tau_adp": 12.0, "beta": 0.6}, "AdLIF": {"tau_adp": 12.0, "a": 0.2, "b": 0.3}}
UNITS = _gated.units_of


@pytest.fixture(autouse=True)
def on_a_gpu(monkeypatch):
    neurons_stand_in.use(monkeypatch)


class Case:
    def __init__(self, kind, steps=60, batch=3, inputs=5, hidden=16, budget="60%", chunk=7, dtype=torch.float32, **how):
        torch.manual_seed(0)
        units = {"threshold": 0.4, "tau_mem": 6.0} | OWN[kind]
        learns = {"train_tau": True, "train_threshold": True}
        how = {**units, **learns, "surrogate": "fast_sigmoid", "sharpness": 5.0, **how}
        self.net = getattr(ebb.nn, kind)(inputs, hidden, budget=budget, chunk=chunk, dtype=dtype, **how)
        self.cell = getattr(ebb.nn, kind + "Cell")(inputs, hidden, dtype=torch.float64, **how)
        with torch.no_grad():
            for name, parameter in self.net.named_parameters():
                if name.startswith("weight"):
                    parameter.mul_(3)
                else:
                    parameter.mul_(0.5 + torch.rand_like(parameter))
        own = {name.removesuffix("_l0"): tensor for name, tensor in self.net.state_dict().items()}
        self.cell.load_state_dict(own)
        self.x = torch.randn(steps, batch, hidden if inputs is None else inputs).to(dtype)
        fields = [0.3 * torch.randn(batch, hidden).to(dtype) for _ in range(neurons_stand_in.FIELDS[kind.upper()])]
        self.states = [*fields, (torch.rand(batch, hidden) < 0.3).to(dtype)]

    def results(self, net=None, of_x=True):
        net = net or self.net
        dtype = next(net.parameters()).dtype
        x = self.x.to(dtype, copy=True).requires_grad_(of_x)
        states = [state.to(dtype, copy=True).requires_grad_() for state in self.states]
        if net is self.cell:
            last, ys = tuple(states), []
            for one in x:
                last, spikes = net(last, one)
                ys.append(spikes)
            y = torch.stack(ys)
        else:
            y, last = net(x, tuple(states))
        weights = torch.linspace(-1, 1, y.numel(), dtype=torch.float64).view(y.shape)
        loss = (y.double() * weights).mean() + sum((k + 1) * s.double().sin().mean() for k, s in enumerate(last))
        loss.backward()
        found = [y, *last, x.grad, *[state.grad for state in states], *[p.grad for p in net.parameters()]]
        net.zero_grad()
        return [None if tensor is None else tensor.detach() for tensor in found]

    def check(self, tolerance=1e-4, **how):
        right, found = self.results(self.cell, **how), self.results(**how)
        assert torch.equal(right[0], found[0].double()), "other spikes"
        assert 0.02 < float(right[0].mean()) < 0.9
        for k, (a, b) in enumerate(zip(right, found, strict=True)):
            if a is None:  # a lif reads the spikes before by recurrent weights alone
                assert b is None or not b.any()
            else:
                assert float((a - b.double()).abs().max()) <= tolerance * max(1e-4, float(a.abs().max())), k


@pytest.mark.parametrize("reset", ["soft", "hard"])
@pytest.mark.parametrize("attached_reset", [False, True])
@pytest.mark.parametrize("normalised", [False, True])
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.sweep(8)
def test_gradients_are_those_of_plain_torch(kind, reset, attached_reset, normalised):
    Case(kind, reset=reset, attached_reset=attached_reset, normalised=normalised).check()


@pytest.mark.parametrize("surrogate", SURROGATES)
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.sweep(4)
def test_surrogates(kind, surrogate):
    Case(kind, surrogate=surrogate, sharpness=None).check()


@pytest.mark.parametrize("bias", [False, True])
@pytest.mark.parametrize("kind", KINDS)
def test_other_sizes(kind, bias, monkeypatch):
    for module in (_gated, _neurons):
        monkeypatch.setattr(module, "units_of", UNITS)
    for hidden in (13, 16, 20):
        Case(kind, hidden=hidden, bias=bias).check()


@pytest.mark.parametrize("recurrent", [False, True])
@pytest.mark.parametrize("inputs", [None, 5])
@pytest.mark.parametrize("kind", KINDS)
def test_weights_that_are_not_there(kind, inputs, recurrent):
    for bias in (None, True, False):
        for chunk, budget in ((7, "memory"), (60, None)):
            Case(kind, inputs=inputs, recurrent=recurrent, bias=bias, chunk=chunk, budget=budget).check()
    case = Case(kind, inputs=inputs, recurrent=recurrent, train_tau=False, train_threshold=False, budget="memory")
    case.check(of_x=inputs is None and not recurrent)
    with pytest.raises(ebb.Error) as refused:
        Case(kind, inputs=inputs, recurrent=recurrent, budget=1).results()
    found = [
        Case(kind, inputs=inputs, recurrent=recurrent, budget=b).results() for b in (refused.value.least_budget, None)
    ]
    assert same(*found)


@pytest.mark.parametrize("kind", KINDS)
def test_neurons_alone(kind):
    """One kernel for all time steps, with the bits of chunks that have a budget."""
    case = Case(kind, inputs=None, recurrent=False, budget=None, chunk=None)
    case.check()
    assert ebb.last_report() is None
    wanted = case.results()
    for budget, chunk in ((None, 60), ("memory", 7)):
        other = Case(kind, inputs=None, recurrent=False, budget=budget, chunk=chunk)
        found = other.results()
        assert same(wanted[:4], found[:4])
        for a, b in zip(wanted, found):
            assert a is None or torch.allclose(a, b, rtol=1e-5, atol=1e-6)
    x = case.x.clone().requires_grad_()
    y, (*_, spikes) = case.net(x)
    assert torch.equal(y[-1], spikes)
    spikes.sum().backward()  # nothing else has a gradient
    assert x.grad[-1].abs().max() > 0
    with torch.no_grad():
        assert torch.equal(y, case.net(case.x)[0])


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
@pytest.mark.parametrize("kind", KINDS)
def test_16_bits(kind, dtype, monkeypatch):
    """Spikes may differ from those of float64; whatever the budget is, they and all gradients are the same."""
    for module in (_gated, _neurons):
        monkeypatch.setattr(module, "units_of", UNITS)
    for how in ({}, {"recurrent": False}, {"inputs": None, "recurrent": False}):
        found = [Case(kind, dtype=dtype, budget=budget, **how).results() for budget in ("memory", None)]
        assert same(*found) and all(tensor is None or tensor.isfinite().all() for tensor in found[0])
        case = Case(kind, dtype=dtype, **how)
        right = case.results(case.cell)
        assert float((right[0] != found[0][0].double()).double().mean()) < 0.1


@pytest.mark.parametrize("kind", KINDS)
def test_anomaly_mode_sees_nothing(kind, monkeypatch):
    """Not in units either that are there for the kernels alone."""
    for module in (_gated, _neurons):
        monkeypatch.setattr(module, "units_of", UNITS)
    with torch.autograd.detect_anomaly(check_nan=True):
        Case(kind, hidden=13).results()


def test_costs_are_not_those_of_other_layers():
    """Their weights look alike: those of inputs, and those among units."""

    def least(**how):
        with pytest.raises(ebb.Error) as refused:
            Case("ALIF", steps=200, batch=4, hidden=64, budget=1, chunk=20, bias=False, **how).results()
        return refused.value.least_budget

    first = least(inputs=None), least(inputs=64, recurrent=False)
    assert first[0] != first[1]
    Case("ALIF", steps=200, batch=4, hidden=64, budget=None, chunk=20, bias=False, inputs=64, recurrent=False).results()
    assert first == (least(inputs=None), least(inputs=64, recurrent=False))


@pytest.mark.parametrize("how", [{}, {"hidden": 13}, {"inputs": None, "recurrent": False, "chunk": None}], ids=str)
def test_nothing_stays(how, monkeypatch):
    """Without the collector of cycles."""
    for module in (_gated, _neurons):
        monkeypatch.setattr(module, "units_of", UNITS)
    case = Case("LIF", budget=None, **how)
    gone = weakref.ref(case.net.threshold_l0)
    gc.collect()
    gc.disable()
    try:
        y, last = case.net(case.x)
        y.sum().backward()
        del case, y, last
        assert gone() is None
    finally:
        gc.enable()


def test_saved_tensors_in_another_order():
    case = Case("ALIF", inputs=None, recurrent=False, budget=None, chunk=None)
    wanted = case.results()

    def turned(tensor):
        return tensor.transpose(0, -1).contiguous().transpose(0, -1)

    with torch.autograd.graph.saved_tensors_hooks(lambda tensor: tensor, turned):
        assert same(wanted, case.results())


@pytest.mark.parametrize("how", [{}, {"inputs": None, "recurrent": False, "chunk": None}], ids=str)
def test_what_only_autograd_can_do(how):
    case = Case("LIF", budget=None, **how)
    x = case.x.clone().requires_grad_()
    with pytest.raises(ebb.Error, match="native=False"):
        torch.autograd.grad(case.net(x)[0].sum(), x, create_graph=True)
    case.net.native = False
    torch.autograd.grad(case.net(x)[0].sum(), x, create_graph=True)
    case.net.native = True
    said = pytest.raises(RuntimeError, match="forward AD|jvp")  # by the loop in plain torch
    with torch.autograd.forward_ad.dual_level(), said:
        case.net(torch.autograd.forward_ad.make_dual(case.x, torch.ones_like(case.x)))


def test_reports_and_states():
    case = Case("LIF")
    case.results()
    assert case.net.report.peak <= case.net.report.budget and str(case.net.report) == str(ebb.last_report())
    alone = Case("LIF", inputs=None, recurrent=False, budget=None, chunk=None)
    alone.results()
    assert alone.net.report is None
    with torch.no_grad():
        y, (_, spikes) = alone.net(alone.x)
        before = y.clone()
        spikes.add_(1)
    assert torch.equal(y, before)
    again = copy.deepcopy(case.net)
    assert same(case.results(), case.results(again))
    for flags in ({"bias": 3}, {"recurrent": "no"}):
        with pytest.raises(ebb.Error, match="it must be True or False"):
            ebb.nn.LIF(4, 8, **flags)


def test_the_inputs_are_left_alone():
    """Gradients of sums take their place, but not where the sums are the inputs themselves."""
    for recurrent in (False, True):
        case = Case("LIF", inputs=None, recurrent=recurrent)
        x = case.x.clone().requires_grad_()
        y, _ = case.net(x)
        y.sum().backward()
        assert torch.equal(x.detach(), case.x) and x.grad.abs().max() > 0
        parameters = list(case.net.parameters())
        y, _ = case.net(case.x)
        y.sum().backward()
        assert all(p.grad is not None for p in parameters)
        again, _ = case.net(case.x)
        assert torch.equal(y, again)


@pytest.mark.parametrize("kind", KINDS)
def test_what_does_not_learn(kind):
    case = Case(kind, train_tau=False, train_threshold=False)
    case.check(of_x=False)


@pytest.mark.parametrize("kind", KINDS)
def test_every_budget_has_the_same_bits(kind):
    with pytest.raises(ebb.Error) as refused:
        Case(kind, budget=1).results()
    budgets = [refused.value.least_budget, "50%", None]
    found = [Case(kind, budget=budget).results() for budget in budgets]
    assert all(same(found[0], other) for other in found)


@pytest.mark.parametrize("kind", KINDS)
def test_without_gradients(kind):
    case = Case(kind)
    wanted = case.results()
    with torch.no_grad():
        y, last = case.net(case.x, tuple(case.states))
    assert same(wanted[: 1 + len(last)], [y, *last])
    assert y.is_contiguous() and all(state.is_contiguous() for state in last)


def test_batch_first_and_states_left_out():
    case = Case("LIF")
    y, _ = case.net(case.x)
    case.net.batch_first = True
    other, _ = case.net(case.x.transpose(0, 1))
    assert torch.equal(y, other.transpose(0, 1))
    assert ebb.last_report().budget > 0

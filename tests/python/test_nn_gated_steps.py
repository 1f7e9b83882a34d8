# SPDX-License-Identifier: Apache-2.0
"""Chunks of the library's own GPU kernels without autograd: whatever is differentiated, within the budget, and as a node of the
caller's graph. With a stand-in for the kernels on the CPU."""

from __future__ import annotations

import itertools

import pytest

torch = pytest.importorskip("torch", reason="PyTorch is not installed")
import gated_stand_in  # noqa: E402
from gated_cases import NAMES, Case, on_a_gpu, same  # noqa: E402, F401

import ebb.nn  # noqa: E402
from ebb._tensor.memory import LiveBytes  # noqa: E402
from ebb.nn import _chunks  # noqa: E402

pytestmark = pytest.mark.usefixtures("one_thread")


FROZEN = [(), ("weight",), ("bias",), ("weight_hh",), ("weight_ih",), ("bias_ih",), ("bias_hh", "weight"), ("l0",)]


@pytest.mark.parametrize("uses", ["ys", "y", "s"])
@pytest.mark.parametrize(("of_x", "of_states"), list(itertools.product((True, False), repeat=2)))
@pytest.mark.parametrize("frozen", FROZEN)
@pytest.mark.parametrize("name", NAMES)
@pytest.mark.sweep(12)
def test_whatever_is_differentiated(name, frozen, of_x, of_states, uses):
    layers = 2 if "l0" in frozen else 1
    case = Case(name, num_layers=layers, budget="memory")
    case.freeze(frozen)
    case.check(of_x=of_x, of_states=of_states, uses=uses)
    (run,) = case.net.report.runs
    again = name == "LSTM" or layers > 1  # outputs alone tell all that others need
    assert (run.measured["forwards"] > run.steps) == again


def test_frozen_weights_and_an_input_without_gradient_leave_the_states():
    case = Case("LSTM")
    case.freeze(["weight", "bias"])
    case.check(of_x=False)
    x = case.x.clone()
    y, _ = case.net(x)
    assert not y.requires_grad


@pytest.mark.parametrize("chunk", [1, 13, 60])
@pytest.mark.parametrize("how", [{"num_layers": 3}, {"bidirectional": True, "num_layers": 2}, {"bias": False}])
@pytest.mark.parametrize("name", NAMES)
@pytest.mark.sweep(5)
def test_stacks_and_directions_in_any_chunk(name, how, chunk):
    Case(name, chunk=chunk, budget="speed" if chunk == 60 else "90%", **how).check()


def test_autograd_is_not_asked_for_a_block(monkeypatch):
    case = Case("LSTM", num_layers=2)

    def refuse(*_):
        raise AssertionError

    monkeypatch.setattr(torch.autograd, "grad", refuse)
    case.check()


def grown(case, budget):
    """Bytes that a call takes beside what is the caller's."""
    case.net.budget = budget
    x = case.x.clone().requires_grad_()
    states = [state.clone().requires_grad_() for state in case.states]
    with LiveBytes() as counted:
        y, last = case.net(x, tuple(states) if len(states) == 2 else states[0])
        last = last if isinstance(last, tuple) else (last,)
        torch.autograd.backward([y, *last], [torch.ones((), dtype=y.dtype).expand(t.shape) for t in (y, *last)])
    callers = [y, *last, x.grad, *[state.grad for state in states], *[p.grad for p in case.net.parameters()]]
    case.net.zero_grad()
    return counted.peak - sum(tensor.nbytes for tensor in callers)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize("how", [{}, {"num_layers": 2}])
@pytest.mark.parametrize("name", NAMES)
@pytest.mark.sweep(4)
def test_the_budget_is_a_cap(name, how, dtype):
    case = Case(name, dtype, steps=64, batch=16, inputs=16, hidden=64, chunk=8, **how)
    with pytest.raises(ebb.Error) as small:
        grown(case, 4096)
    least = small.value.least_budget
    grown(case, "speed")
    (run,) = case.net.report.runs
    everything = run.budget
    for share in (0.0, 0.2, 0.5, 0.8, 1.0, 1.2, 1.5, 2.0):
        budget = int(least + share * (everything - least))
        taken = [grown(case, budget) for _ in range(2)]
        assert max(taken) <= budget, (share, taken, budget)


@pytest.mark.parametrize("name", NAMES)
def test_the_first_call_measures_within_the_budget(name):
    case = Case(name, torch.bfloat16, steps=300, batch=16, inputs=16, hidden=64, chunk=None)
    for budget in ("300KiB", "600KiB", "2MiB"):
        ebb.clear_cache()
        assert grown(case, budget) <= case.net.report.budget


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize(("batch", "hidden", "chunk"), [(256, 4, 16), (1, 128, 1)])
@pytest.mark.sweep(3)
def test_what_is_held_for_biases_is_counted(name, batch, hidden, chunk):
    case = Case(name, steps=33, batch=batch, inputs=2, hidden=hidden, chunk=chunk, num_layers=2)
    with pytest.raises(ebb.Error) as small:
        grown(case, 512)
    least = small.value.least_budget
    assert max(grown(case, least) for _ in range(2)) <= least


@pytest.mark.parametrize("name", NAMES)
def test_a_budget_that_holds_everything_gives_the_bits_of_others(name):
    case = Case(name, torch.bfloat16, num_layers=2)
    right = case.results()
    case.net.budget = "1GiB"
    assert same(right, case.results())
    (run,) = case.net.report.runs
    assert run.strategy == "store_all" and run.measured["forwards"] == run.steps


@pytest.mark.parametrize("how", [{"num_layers": 2}, {"bidirectional": True}])
@pytest.mark.parametrize("name", NAMES)
def test_what_is_handed_out_may_be_changed(name, how):
    case = Case(name, **how)
    y, _ = case.net(case.x.clone().requires_grad_())
    y.mul_(2)  # as a part of the graph
    found = []
    for change in (False, True):
        x = case.x.clone().requires_grad_()
        y, last = case.net(x)
        last = last if isinstance(last, tuple) else (last,)
        loss = y.sum() + sum(state.sum() for state in last)
        if change:
            with torch.no_grad():
                for tensor in (y, *last):
                    tensor.fill_(float("nan"))
        loss.backward()
        found.append([x.grad, *[p.grad for p in case.net.parameters()]])
        case.net.zero_grad()
    assert same(*found)


@pytest.mark.parametrize("name", NAMES)
def test_two_calls_before_their_backwards(name):
    case = Case(name)
    others = torch.randn_like(case.x)
    found = []
    for together in (False, True):
        losses = []
        for x in (case.x, others):
            losses.append(case.net(x)[0].pow(2).sum())
            if not together:
                losses.pop().backward()
        for loss in losses:
            loss.backward()
        found.append([p.grad for p in case.net.parameters()])
        case.net.zero_grad()
    assert same(*found)


def test_what_was_given_must_not_be_changed():
    case = Case("GRU")
    for change in (lambda: x.add_(1), lambda: case.net.weight_hh_l0.add_(1)):
        x = case.x.clone()
        y, _ = case.net(x)
        with torch.no_grad():
            change()
        with pytest.raises(RuntimeError, match="modified by an inplace operation"):
            y.sum().backward()


@pytest.mark.parametrize("bias", [True, False])
@pytest.mark.parametrize("name", NAMES)
def test_autocast_around_the_backward_alone(name, bias):
    case = Case(name, bias=bias)
    found = []
    for around in (False, True):
        x = case.x.clone().requires_grad_()
        loss = case.net(x)[0].pow(2).sum()
        with torch.autocast("cpu", dtype=torch.bfloat16, enabled=around):
            loss.backward()
            assert torch.is_autocast_enabled("cpu") == around
        found.append([x.grad, *[p.grad for p in case.net.parameters()]])
        case.net.zero_grad()
    assert same(*found)


@pytest.mark.parametrize("name", NAMES)
def test_a_graph_may_be_kept(name):
    case = Case(name)
    y, _ = case.net(case.x)
    wanted = list(case.net.parameters())
    found = [torch.autograd.grad(y.pow(2).sum(), wanted, retain_graph=True) for _ in range(2)]
    assert same(*found)
    y.sum().backward()
    with pytest.raises(RuntimeError, match="second time"):
        y.sum().backward()


@pytest.mark.parametrize("kernel", ["gated_forward", "gated_recall", "gated_backward"])
@pytest.mark.parametrize("calls", [0, 3])
def test_after_an_exception_all_is_as_it_was(monkeypatch, kernel, calls):
    budget = ebb.Budget("60%")
    case = Case("LSTM", budget=budget)
    right = case.results()
    left, own = [calls], getattr(gated_stand_in.Core, kernel)

    def fails(*arguments):
        left[0] -= 1
        if left[0] < 0:
            raise RuntimeError("the GPU is gone")
        own(*arguments)

    with monkeypatch.context() as patch:
        patch.setattr(gated_stand_in.Core, kernel, staticmethod(fails))
        with pytest.raises(RuntimeError, match="the GPU is gone"):
            case.results()
    case.net.zero_grad()
    assert budget.held == 0
    assert same(right, case.results())


def test_states_in_slower_memory(tmp_path):
    case = Case("GRU", num_layers=2)
    right = case.results()
    for tier in (ebb.memory_tier("1MiB"), ebb.file_tier(str(tmp_path), "1MiB")):
        case.net.tiers = tier
        assert same(right, case.results())


@pytest.mark.parametrize("name", NAMES)
def test_every_strategy_has_the_same_bits(name, tmp_path):
    """Of a layer that recalls its outputs, whose states are parts of the carry; over slower memory too."""
    case = Case(name, torch.bfloat16, budget="speed")
    right = case.results()
    used = 0
    for tiers in (None, ebb.memory_tier("1MiB"), ebb.file_tier(str(tmp_path), "1MiB")):
        case.net.tiers = tiers
        for strategy in ebb.strategies():
            case.net.strategy = strategy.name
            for budget in ("memory", "40%"):
                case.net.budget = budget
                try:
                    found = case.results()
                except ebb.Error:
                    continue  # it needs tiers, or more memory
                used += 1
                assert same(right, found), (strategy.name, budget, tiers)
    assert used > 40


def test_layers_share_a_budget():
    budget = ebb.Budget("200KiB")
    first, second = ebb.nn.LSTM(5, 8, budget=budget), ebb.nn.GRU(8, 8, budget=budget)
    for _ in range(3):
        y, _ = second(first(torch.randn(200, 3, 5))[0])
        y.sum().backward()
    assert budget.held == 0 and 0 < budget.peak <= budget.total


@pytest.mark.parametrize("name", NAMES)
def test_states_that_lie_anywhere(name):
    case = Case(name)
    right = case.results()
    states = case.states
    case.states = [torch.cat([state.new_zeros(1), state.flatten()])[1:].view_as(state) for state in states]
    assert same(right, case.results())
    case.states = [state.transpose(1, 2).contiguous().transpose(1, 2) for state in states]
    assert same(right, case.results())


def test_states_that_lie_anywhere_where_nothing_fits(monkeypatch):
    case = Case("LSTM", bidirectional=True, budget=512)
    case.states = [state[:, :1].expand(-1, 3, -1) for state in case.states]
    own, seen = _chunks._whole, []

    def whole(kernel, x, states, *rest):
        seen.extend(states)
        return own(kernel, x, states, *rest)

    monkeypatch.setattr(_chunks, "_whole", whole)
    with pytest.raises(ebb.Error, match="share the budget"):
        case.net(case.x, tuple(case.states))
    assert seen and all(state.is_contiguous() for state in seen)


@pytest.mark.parametrize("name", NAMES)
def test_the_first_call_has_the_bits_of_later_ones(name):
    ebb.clear_cache()
    case = Case(name, torch.bfloat16)
    assert same(case.results(), case.results())


@pytest.mark.parametrize("how", [{}, {"bidirectional": True}])
def test_long_sequences_without_gradients(how):
    case = Case("LSTM", steps=700, **how)
    for disabled in (torch.no_grad(), torch.inference_mode()):
        with disabled:
            y, _ = case.net(case.x, tuple(case.states))
            right, _ = case.exact(case.x.double(), tuple(state.double() for state in case.states))
            assert torch.allclose(y.double(), right, atol=1e-5)
    case.freeze(["weight", "bias"])
    y, _ = case.net(case.x, tuple(case.states))
    assert torch.allclose(y.double(), right, atol=1e-5) and not y.requires_grad


def test_biases_have_gradients_of_their_own():
    case = Case("LSTM")
    y, _ = case.net(case.x)
    of_ih, of_hh = torch.autograd.grad(y.sum(), [case.net.bias_ih_l0, case.net.bias_hh_l0])
    assert torch.equal(of_ih, of_hh) and of_ih.data_ptr() != of_hh.data_ptr()


@pytest.mark.parametrize("how", [{}, {"num_layers": 2}, {"bidirectional": True}])
@pytest.mark.parametrize("name", NAMES)
def test_autocast_casts_what_it_casts_for_torch(name, how):
    """As with everything cast beforehand, and gradients arrive in the dtypes of what was cast."""
    case, half = Case(name, **how), Case(name, torch.bfloat16, **how)
    half.net.load_state_dict(case.net.state_dict())
    expected = half.results()
    with torch.autocast("cpu", torch.bfloat16):
        found = case.results()
    states = 1 + len(case.states)
    assert all(tensor.dtype == torch.bfloat16 for tensor in found[:states])
    assert all(tensor.dtype == torch.float32 for tensor in found[states:])
    assert same(expected, [tensor.to(torch.bfloat16) for tensor in found])
    assert case.net.report is not None

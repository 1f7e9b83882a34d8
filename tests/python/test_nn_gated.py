# SPDX-License-Identifier: Apache-2.0
"""Layers in chunks of the library's own GPU kernels: everything around the kernels, with a stand-in for them on the CPU."""

from __future__ import annotations

import pytest

torch = pytest.importorskip("torch", reason="PyTorch is not installed")
import gated_calls  # noqa: E402
import gated_kernels_program  # noqa: E402
import gated_stand_in  # noqa: E402

import ebb.nn  # noqa: E402
from ebb.nn import _chunks, _products  # noqa: E402

pytestmark = pytest.mark.usefixtures("one_thread")
INPUTS, HIDDEN, BATCH, STEPS = 5, 8, 3, 120


@pytest.fixture(autouse=True)
def on_a_gpu(monkeypatch):
    gated_stand_in.use(monkeypatch)


def results(net, x, states):
    dtype = next(net.parameters()).dtype
    x = x.to(dtype).requires_grad_()
    states = [state.to(dtype).requires_grad_() for state in states]
    y, last = net(x, tuple(states) if len(states) == 2 else states[0])
    last = last if isinstance(last, tuple) else (last,)
    assert all(state.dtype == dtype for state in last)
    (y.double().pow(2).mean() + sum(state.double().sin().mean() for state in last)).backward()
    found = [y, *last, x.grad, *[state.grad for state in states], *[p.grad for p in net.parameters()]]
    net.zero_grad()
    return [tensor.detach() for tensor in found]


def pair(name, dtype, how):
    ours = getattr(ebb.nn, name)(INPUTS, HIDDEN, budget="30%", **how).to(dtype)
    exact = getattr(torch.nn, name)(INPUTS, HIDDEN, **how).to(torch.float64)
    exact.load_state_dict(ours.state_dict())
    return ours, exact


def given(ours, dtype):
    shape = (BATCH, STEPS, INPUTS) if ours.batch_first else (STEPS, BATCH, INPUTS)
    layers = ours.num_layers * (2 if ours.bidirectional else 1)
    states = [torch.randn(layers, BATCH, HIDDEN).to(dtype) for _ in range(2 if ours.mode == "LSTM" else 1)]
    return torch.randn(*shape).to(dtype), states


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize("name", ["LSTM", "GRU", "RNN"])
@pytest.mark.parametrize(
    "how",
    [
        {},
        {"num_layers": 2},
        {"bias": False},
        {"bidirectional": True},
        {"num_layers": 2, "bidirectional": True, "batch_first": True},
    ],
)
@pytest.mark.sweep(10)
def test_layers_agree_with_double(name, how, dtype):
    torch.manual_seed(0)
    ours, exact = pair(name, dtype, how)
    x, states = given(ours, dtype)
    tolerance = 1e-5 if dtype == torch.float32 else 5e-2
    for right, found in zip(results(exact, x, states), results(ours, x, states)):
        assert float((right - found.double()).abs().max()) <= tolerance * float(right.abs().max())
    again = how.get("num_layers", 1) > 1 or how.get("bidirectional", False)  # outputs of others tell what they need
    assert all((run.measured["forwards"] > run.steps) == again for run in ours.report.runs)


@pytest.mark.slow
@pytest.mark.parametrize("seed", [9, 19, 22])
def test_random_calls(seed):
    gated_calls.check_calls(seed, "cpu", lambda layer, x: None)


@pytest.mark.parametrize("cell", gated_kernels_program.GATES)
def test_kernels_by_themselves(cell):
    assert gated_kernels_program.error_of(gated_stand_in.Core, "cpu", cell, "float32", 5, 3, 8) < 1e-5


def test_relu():
    torch.manual_seed(0)
    ours, exact = pair("RNN", torch.float32, {"nonlinearity": "relu"})
    x, states = given(ours, torch.float32)
    for right, found in zip(results(exact, x, states), results(ours, x, states)):
        assert float((right - found.double()).abs().max()) <= 1e-5 * float(right.abs().max())


@pytest.mark.parametrize("name", ["LSTM", "GRU", "RNN"])
def test_gradients_have_the_same_bits_in_every_budget_at_one_chunk(name):
    torch.manual_seed(0)
    ours, _ = pair(name, torch.bfloat16, {})
    x, states = given(ours, torch.bfloat16)
    ours.chunk, found = 10, []
    for budget in ("memory", "30%", "50%", "90%"):
        ours.budget = budget
        found.append(results(ours, x, states))
        (run,) = ours.report.runs
        # Outputs do not tell an LSTM's c: where there is no room for it, steps run again.
        assert (run.measured["forwards"] > run.steps) == (name == "LSTM" and budget == "memory")
    for others in found[1:]:
        assert all(torch.equal(a, b) for a, b in zip(found[0], others))


def test_gradients_of_weights_are_added_up_in_float32():
    torch.manual_seed(0)
    ours, exact = pair("LSTM", torch.bfloat16, {})
    x, states = given(ours, torch.bfloat16)
    ours.chunk = 1  # as many parts as there are time steps
    right = results(exact, x, states)[-4:]
    found = results(ours, x, states)[-4:]
    for a, b in zip(right, found):
        assert float((a - b.double()).abs().max()) <= 1e-2 * float(a.abs().max())


@pytest.mark.parametrize(
    "error", [torch.cuda.OutOfMemoryError("CUDA out of memory"), RuntimeError("CUDA error: CUBLAS_STATUS_ALLOC_FAILED")]
)
def test_a_lack_of_memory_does_not_choose_how_gradients_are_added_up(error, monkeypatch):
    def fails(*_):
        raise error

    _products.adding.cache_clear()
    usual = _products.adding(torch.bfloat16, torch.device("cpu"))
    _products.adding.cache_clear()
    with monkeypatch.context() as patch:
        patch.setattr(_products, "_add_at_once", fails)
        with pytest.raises(type(error), match="CUDA"):
            _products.adding(torch.bfloat16, torch.device("cpu"))
    assert _products.adding(torch.bfloat16, torch.device("cpu")) is usual


@pytest.mark.parametrize(("how", "budget"), [({}, "60%"), ({"num_layers": 2}, "60%")])
def test_only_what_is_differentiated_is_recorded(how, budget, monkeypatch):
    torch.manual_seed(0)
    ours, _ = pair("LSTM", torch.float32, how)
    ours.budget, ours.chunk = budget, 10
    x, states = given(ours, torch.float32)
    results(ours, x, states)  # measures
    recorded, recalled = [], []
    forward, recall = gated_stand_in.Core.gated_forward, gated_stand_in.Core.gated_recall

    def noted_forward(*arguments):
        *_, fields, products, record, _ = arguments
        recorded.append(record)
        assert record == (fields != 0)
        forward(*arguments)

    def noted_recall(*arguments):
        recalled.append(arguments)
        recall(*arguments)

    monkeypatch.setattr(gated_stand_in.Core, "gated_forward", staticmethod(noted_forward))
    monkeypatch.setattr(gated_stand_in.Core, "gated_recall", staticmethod(noted_recall))
    results(ours, x, states)
    (run,) = ours.report.runs
    if how:
        assert len(recorded) == 2 * run.measured["forwards"] > 2 * run.steps
        assert recorded.count(True) == 2 * run.steps and not recalled
    else:
        assert recorded == [False] * run.steps and len(recalled) == run.steps
    recorded.clear()
    with torch.no_grad():
        ours(x, tuple(states))
    assert recorded == [False] * (2 if how else 1)


def test_weights_that_are_not_one_piece():
    torch.manual_seed(0)
    ours, exact = pair("GRU", torch.float32, {})
    x, states = given(ours, torch.float32)
    right = results(ours, x, states)
    w = ours.weight_hh_l0.detach()
    ours.weight_hh_l0 = torch.nn.Parameter(w.t().contiguous().t())
    for a, b in zip(right, results(ours, x, states)):
        assert torch.equal(a, b)
    ours.weight_hh_l0 = torch.nn.Parameter(torch.cat([w.new_zeros(1), w.flatten()])[1:].view_as(w))
    for a, b in zip(right, results(ours, x, states)):
        assert torch.equal(a, b)


@pytest.mark.parametrize("name", ["LSTM", "GRU", "RNN"])
def test_biases_that_are_not_one_piece(name):
    torch.manual_seed(0)
    ours, _ = pair(name, torch.float32, {})
    x, states = given(ours, torch.float32)
    right = results(ours, x, states)
    for bias in ("bias_ih_l0", "bias_hh_l0"):
        own = getattr(ours, bias).detach()
        apart = torch.stack([own, torch.full_like(own, 1e6)], 1)
        setattr(ours, bias, torch.nn.Parameter(apart[:, 0]))
        assert not getattr(ours, bias).is_contiguous()
    for a, b in zip(right, results(ours, x, states)):
        assert torch.equal(a, b)


def test_second_derivatives_are_refused():
    torch.manual_seed(0)
    ours, _ = pair("LSTM", torch.float32, {})
    x, states = given(ours, torch.float32)
    for budget in ("1GiB", "30%"):
        ours.budget = budget
        y, _ = ours(x.requires_grad_(), tuple(states))
        with pytest.raises(RuntimeError):
            (first,) = torch.autograd.grad(y.pow(2).sum(), x, create_graph=True)
            first.sum().backward()


def test_a_graph_can_be_kept_where_everything_fits():
    torch.manual_seed(0)
    ours, _ = pair("GRU", torch.float32, {})
    ours.budget = "1GiB"
    x, states = given(ours, torch.float32)
    y, _ = ours(x, states[0])
    found = [torch.autograd.grad(y.sum(), list(ours.parameters()), retain_graph=True) for _ in range(2)]
    assert all(torch.equal(a, b) for a, b in zip(*found))


def test_native_false_takes_torchs_kernels(monkeypatch):
    torch.manual_seed(0)
    ours, _ = pair("GRU", torch.float32, {})
    taken = []
    own = _chunks._Kernel.__call__
    monkeypatch.setattr(_chunks._Kernel, "__call__", lambda *args: taken.append(1) or own(*args))
    x, states = given(ours, torch.float32)
    packed = torch.nn.utils.rnn.pack_padded_sequence(x, [STEPS, 50, 7])
    for sequence in (x, packed):
        ours.native = True
        ours(sequence, states[0])
        assert not taken
        ours.native = False
        ours(sequence, states[0])
        assert taken
        taken.clear()

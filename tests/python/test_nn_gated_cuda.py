# SPDX-License-Identifier: Apache-2.0
"""The library's own kernels for gated cells on a GPU: against float64, in every budget, for many shapes."""

from __future__ import annotations

import random

import pytest

torch = pytest.importorskip("torch")
if not torch.cuda.is_available():
    pytest.skip("no GPU here", allow_module_level=True)

from gated_calls import DTYPES, farthest, results  # noqa: E402

import ebb.nn  # noqa: E402
from ebb import _core  # noqa: E402
from ebb.nn import _gated  # noqa: E402

if _core.gated_unfit(_core.GatedShape("LSTM", "bfloat16", 1, 1, 64, False)):
    pytest.skip("built without CUDA kernels", allow_module_level=True)


@pytest.fixture(autouse=True)
def tf32(monkeypatch):
    monkeypatch.setattr(torch.backends.cudnn, "allow_tf32", True)


def compare(name, steps, batch, inputs, hidden, dtype, budget="60%", chunk=None, tolerance=None, **how):
    ours = getattr(ebb.nn, name)(inputs, hidden, budget=budget, chunk=chunk, device="cuda", dtype=dtype, **how)
    exact = getattr(torch.nn, name)(inputs, hidden, device="cuda", dtype=torch.float64, **how)
    exact.load_state_dict(ours.state_dict())
    layers = how.get("num_layers", 1) * (2 if how.get("bidirectional") else 1)
    x = torch.randn(steps, batch, inputs, device="cuda", dtype=dtype)
    assert _gated.why_not(ours, x, list(ours.parameters()), None) is None
    states = [torch.randn(layers, batch, hidden, device="cuda", dtype=dtype) for _ in range(2 if name == "LSTM" else 1)]
    width = hidden * (2 if how.get("bidirectional") else 1)
    weights = torch.randn(steps, batch, width, device="cuda") / (steps * batch)
    right, found = results(exact, x, states, weights), results(ours, x, states, weights)
    assert farthest(right, found) <= (tolerance or DTYPES[dtype])
    return ours, x, states, weights, found


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("name", ["LSTM", "GRU", "RNN"])
@pytest.mark.parametrize("how", [{}, {"num_layers": 2}, {"bidirectional": True}, {"bias": False}])
def test_layers(name, how, dtype):
    torch.manual_seed(0)
    compare(name, 100, 20, 24, 96, dtype, **how)


def gradients_of(net, x):
    net.zero_grad()
    y, last = net(x)
    (y.pow(2).sum() + sum(state.sum() for state in (last if isinstance(last, tuple) else (last,)))).backward()
    return [y.detach(), *(parameter.grad for parameter in net.parameters())]


@pytest.mark.parametrize("name", ["LSTM", "GRU", "RNN"])
@pytest.mark.parametrize("how", [{}, {"num_layers": 2}, {"bidirectional": True}, {"bias": False}])
def test_float32(name, how, monkeypatch):
    """As precise as it says, whatever torch's setting for other products."""
    monkeypatch.setattr(torch.backends.cudnn, "allow_tf32", False)
    torch.manual_seed(3)
    compare(name, 50, 24, 40, 96, torch.float32, tolerance=2e-5, **how)
    net = getattr(ebb.nn, name)(40, 96, budget="60%", device="cuda", **how)
    x, before = torch.randn(50, 24, 40, device="cuda"), torch.get_float32_matmul_precision()
    found = []
    for precision in ("highest", "high"):
        torch.set_float32_matmul_precision(precision)
        try:
            found.append(gradients_of(net, x))
        finally:
            torch.set_float32_matmul_precision(before)
    assert all(torch.equal(a, b) for a, b in zip(*found))


def test_float32_lets_infinity_through(monkeypatch):
    monkeypatch.setattr(torch.backends.cudnn, "allow_tf32", False)
    ours = ebb.nn.RNN(3, 32, nonlinearity="relu", budget="60%", device="cuda")
    plain = torch.nn.RNN(3, 32, nonlinearity="relu", device="cuda")
    plain.load_state_dict(ours.state_dict())
    x, h = torch.randn(4, 2, 3, device="cuda"), torch.randn(1, 2, 32, device="cuda")
    h[0, 1, 5] = float("inf")
    with torch.no_grad():
        for net in (ours, plain):
            net.weight_hh_l0[:7, 5] = 0.5  # exact in TF32
    y, wanted = ours(x, h)[0], plain(x, h)[0]
    assert torch.equal(y.isnan(), wanted.isnan()) and torch.equal(y.isinf(), wanted.isinf())
    assert y[0, 1].isinf().any() and not y[0, 0].isinf().any()


@pytest.mark.parametrize("seed", range(40))
def test_random_shapes(seed):
    rng = random.Random(seed)
    torch.manual_seed(seed)
    name, dtype = rng.choice(["LSTM", "GRU", "RNN"]), rng.choice(list(DTYPES))
    compare(name, rng.randint(20, 90), rng.randint(1, 140), rng.randint(1, 64), 32 * rng.randint(1, 32), dtype)


@pytest.fixture
def products_in_tf32():
    """Where float32 is multiplied so, outputs are recalled in float32 too."""
    before = torch.get_float32_matmul_precision()
    torch.set_float32_matmul_precision("high")
    yield
    torch.set_float32_matmul_precision(before)


@pytest.mark.usefixtures("products_in_tf32")
@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("name", ["LSTM", "GRU", "RNN"])
@pytest.mark.parametrize(
    ("steps", "batch", "hidden", "chunk"), [(100, 20, 96, 7), (33, 1, 1024, 1), (40, 130, 256, 40)]
)
def test_what_is_recalled(name, dtype, steps, batch, hidden, chunk):
    """An odd chunk, a chunk of one step, one chunk alone."""
    torch.manual_seed(0)
    ours, *_ = compare(name, steps, batch, 24, hidden, dtype, "speed", chunk)
    (run,) = ours.report.runs
    assert run.measured["forwards"] == run.steps == -(-steps // chunk)


@pytest.mark.usefixtures("products_in_tf32")
@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float32])
@pytest.mark.parametrize("name", ["LSTM", "GRU", "RNN"])
def test_the_same_bits_in_every_budget_and_every_time(name, dtype):
    torch.manual_seed(0)
    ours, x, states, weights, _ = compare(name, 200, 64, 32, 256, dtype, chunk=20)
    found = []
    for budget in ("memory", "60%", "90%", "speed", "memory"):
        ours.budget = budget
        found.append(results(ours, x, states, weights))
        (run,) = ours.report.runs
        assert run.measured["forwards"] > run.steps or name != "LSTM" or budget != "memory"
    same = [[torch.equal(a, b) for a, b in zip(found[0], others)] for others in found[1:]]
    assert same == [[True] * len(found[0])] * 4


@pytest.mark.parametrize("name", ["LSTM", "GRU", "RNN"])
def test_outputs_that_are_recalled_must_not_be_changed(name):
    """As with cuDNN."""
    for kind in (torch.nn, ebb.nn):
        layer = getattr(kind, name)(8, 64, device="cuda", dtype=torch.bfloat16)
        layer.budget = "speed"
        y, _ = layer(torch.randn(50, 4, 8, device="cuda", dtype=torch.bfloat16))
        loss = y.sum()
        with torch.no_grad():
            y.add_(1)
        with pytest.raises(RuntimeError, match="modified by an inplace operation"):
            loss.backward()


def test_a_graph_is_kept_and_outputs_are_dropped():
    torch.manual_seed(0)
    layer = ebb.nn.LSTM(8, 64, budget="memory", chunk=7, device="cuda", dtype=torch.bfloat16)
    x = torch.randn(50, 4, 8, device="cuda", dtype=torch.bfloat16)
    last = layer(x)[1][0]  # nobody has the outputs but the graph
    wanted = list(layer.parameters())
    found = [torch.autograd.grad(last.float().sum(), wanted, retain_graph=True) for _ in range(2)]
    assert all(torch.equal(a, b) for a, b in zip(*found))


@pytest.mark.parametrize("layers", [1, 2])
@pytest.mark.parametrize("name", ["LSTM", "GRU", "RNN"])
def test_the_budget_is_a_cap(name, layers):
    layer = getattr(ebb.nn, name)(128, 512, num_layers=layers, device="cuda", dtype=torch.bfloat16)
    x = torch.randn(80, 64, 128, device="cuda", dtype=torch.bfloat16, requires_grad=True)

    def run(budget):
        layer.budget = budget
        y, _ = layer(x)
        y.backward(torch.ones((), device="cuda", dtype=torch.bfloat16).expand(y.shape))
        found = [y, x.grad, *[p.grad for p in layer.parameters()]]
        x.grad = None
        layer.zero_grad()
        return sum(tensor.nbytes for tensor in found)

    with pytest.raises(ebb.Error) as small:
        run(4096)
    for budget in (small.value.least_budget, "30%", "60%", "speed"):
        run(budget)  # measures, and libraries take what they keep
        torch.cuda.synchronize()
        before = torch.cuda.memory_allocated()
        torch.cuda.reset_peak_memory_stats()
        callers = run(budget)
        taken = torch.cuda.max_memory_allocated() - before - callers
        assert taken <= layer.report.budget + (1 << 20), (budget, taken, layer.report.budget)


def test_nan_and_infinity_go_through():
    layer = ebb.nn.LSTM(8, 64, budget="30%", device="cuda", dtype=torch.bfloat16)
    x = torch.randn(50, 4, 8, device="cuda", dtype=torch.bfloat16)
    x[10, 1, 0], x[10, 2, 0] = float("nan"), float("inf")
    y, _ = layer(x)
    plain = torch.nn.LSTM(8, 64, device="cuda", dtype=torch.bfloat16)
    plain.load_state_dict(layer.state_dict())
    assert torch.equal(y.isnan(), plain(x)[0].isnan())
    y.sum().backward()
    assert layer.weight_hh_l0.grad.isnan().any()


def test_a_whole_training_step_is_captured():
    torch.manual_seed(0)
    layer = ebb.nn.LSTM(32, 128, budget="40%", chunk=20, device="cuda", dtype=torch.bfloat16)
    x = torch.randn(100, 16, 32, device="cuda", dtype=torch.bfloat16)

    def step():
        for p in layer.parameters():
            p.grad = None
        layer(x)[0].float().pow(2).mean().backward()

    side = torch.cuda.Stream()
    with torch.cuda.stream(side):
        for _ in range(3):
            step()
    torch.cuda.synchronize()
    plain = [p.grad.clone() for p in layer.parameters()]
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph, stream=side):
        step()
    graph.replay()
    torch.cuda.synchronize()
    assert all(torch.equal(a, p.grad) for a, p in zip(plain, layer.parameters()))


@pytest.mark.parametrize("name", ["LSTM", "GRU", "RNN"])
def test_autocast_casts_what_it_casts_for_torch(name):
    torch.manual_seed(0)
    ours = getattr(ebb.nn, name)(24, 96, budget="60%", chunk=20, device="cuda")
    half = getattr(ebb.nn, name)(24, 96, budget="60%", chunk=20, device="cuda", dtype=torch.bfloat16)
    half.load_state_dict(ours.state_dict())
    x = torch.randn(100, 20, 24, device="cuda", requires_grad=True)
    with torch.autocast("cuda", torch.bfloat16):
        assert _gated.why_not(ours, x, list(ours.parameters()), None) is None
        y, _ = ours(x)
    y.float().pow(2).mean().backward()
    expected, _ = half(x.detach().bfloat16())
    expected.float().pow(2).mean().backward()
    assert y.dtype == torch.bfloat16 and torch.equal(y, expected)
    for own, other in zip(ours.parameters(), half.parameters()):
        assert own.grad.dtype == torch.float32 and torch.equal(own.grad, other.grad.float())


def test_what_is_not_known_cannot_be_captured():
    layer = ebb.nn.LSTM(32, 128, budget="40%", device="cuda", dtype=torch.bfloat16)
    x = torch.randn(70, 16, 32, device="cuda", dtype=torch.bfloat16)
    layer.weight_hh_l0.sum().backward()  # cuBLAS and memory are there
    graph, message = torch.cuda.CUDAGraph(), "cannot be measured while a CUDA graph is captured"
    with pytest.raises(ebb.Error, match=message), torch.cuda.graph(graph):
        layer(x)


def test_relu_and_more_samples_than_run_at_a_time():
    torch.manual_seed(0)
    compare("RNN", 40, 20, 24, 96, torch.float16, tolerance=0.1, nonlinearity="relu")  # it forgets no rounding
    compare("LSTM", 30, 140, 16, 1024, torch.bfloat16)


@pytest.mark.parametrize("name", ["LSTM", "GRU"])
@pytest.mark.parametrize("hidden", [256, 512, 768, 1024])
@pytest.mark.parametrize("registers", [False, True])
def test_wherever_weights_lie(name, hidden, registers):
    torch.manual_seed(0)
    _core.set_gated_registers(registers)
    try:
        for batch in (16, 64, 128):
            ours, x, states, weights, first = compare(name, 50, batch, 32, hidden, torch.bfloat16, "90%", chunk=10)
            again = results(ours, x, states, weights)
            assert [torch.equal(a, b) for a, b in zip(first, again)] == [True] * len(first)
    finally:
        _core.set_gated_registers(True)

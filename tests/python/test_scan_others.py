# SPDX-License-Identifier: Apache-2.0
"""Code that was not written for ebb, unchanged, inside of scan."""

from __future__ import annotations

import ctypes

import pytest

torch = pytest.importorskip("torch", reason="PyTorch is not installed")
from scan_oracle import clones, compare, gradients, least, loop, same, weighted  # noqa: E402

import ebb  # noqa: E402

torch.set_num_threads(1)
T, BATCH, WIDTH = 30, 2, 5


@pytest.fixture(autouse=True)
def seed() -> None:
    torch.manual_seed(1)


def numbers(*shape: int) -> torch.Tensor:
    return torch.randn(*shape).requires_grad_()


# ------------------------------------------------------------------------------------------------ spiking neurons


@pytest.mark.parametrize(
    "neuron, states", [("Leaky", 1), ("Synaptic", 2), ("Alpha", 3), ("Lapicque", 1), ("RLeaky", 2)]
)
@pytest.mark.parametrize("chunk", [1, 4])
@pytest.mark.sweep(5)
def test_snntorch(neuron, states, chunk):
    snntorch = pytest.importorskip("snntorch", reason="the package snntorch is not installed")
    into, out = torch.nn.Linear(3, WIDTH), torch.nn.Linear(WIDTH, 2)
    options = {
        "Leaky": {"learn_beta": True},
        "Lapicque": {"beta": 0.5},
        "Synaptic": {"alpha": 0.9},
        "Alpha": {"alpha": 0.9, "beta": 0.8},
        "RLeaky": {"linear_features": WIDTH},
    }[neuron]
    cell = getattr(snntorch, neuron)(**{"beta": 0.85, **options})

    def f(carry, x):
        found = cell(into(x), *carry)
        spikes, rest = found[0], found[1:]
        carry = (spikes, *rest) if neuron == "RLeaky" else tuple(rest)
        return carry, out(spikes)

    init = tuple(torch.full((BATCH, WIDTH), 0.1) for _ in range(states))
    params = [*cell.parameters(), *into.parameters(), *out.parameters()]
    compare(f, init, numbers(T, BATCH, 3), params, chunk=chunk)


def test_snntorch_states_inside_of_the_module_are_refused_or_right():
    snntorch = pytest.importorskip("snntorch", reason="the package snntorch is not installed")
    into = torch.nn.Linear(3, WIDTH)
    cell = snntorch.Leaky(beta=0.9, init_hidden=True)

    def f(count, x):
        return count + 1, cell(into(x))

    xs = numbers(T, BATCH, 3)
    with torch.no_grad():
        xs.add_(1)
    cell.reset_hidden()
    wanted = gradients(weighted(loop(f, torch.zeros(()), xs)[1]), [xs, *into.parameters()])
    cell.reset_hidden()
    try:
        ys = ebb.scan(f, torch.zeros(()), xs, budget="2KiB", chunk=1)[1]
        found = gradients(weighted(ys), [xs, *into.parameters()])
    except ebb.Error as error:
        assert "another result" in str(error) or "computed outside" in str(error)
    else:
        same(found, wanted)


@pytest.mark.parametrize("cell_name", ["LIFCell", "LIFRecurrentCell", "LSNNRecurrentCell", "LICell"])
@pytest.mark.parametrize("chunk", [1, 4])
def test_norse(cell_name, chunk):
    norse = pytest.importorskip("norse.torch", reason="the package norse is not installed")
    kind = getattr(norse, cell_name)
    cell = kind(3, WIDTH) if "Recurrent" in cell_name else kind()
    into, out = torch.nn.Linear(3, 3 if "Recurrent" in cell_name else WIDTH), torch.nn.Linear(WIDTH, 2)
    start = cell(into(torch.zeros(BATCH, 3)), None)[1]
    init = torch.utils._pytree.tree_map(lambda leaf: leaf.detach(), start)

    def f(state, x):
        y, state = cell(into(x), state)
        return state, out(y)

    params = [*cell.parameters(), *into.parameters(), *out.parameters()]
    compare(f, init, numbers(T, BATCH, 3), params, chunk=chunk)


# ------------------------------------------------------------------------------------------------ solvers


@pytest.mark.parametrize("method", ["euler", "midpoint", "rk4"])
@pytest.mark.sweep(1)
def test_torchdiffeq(method):
    torchdiffeq = pytest.importorskip("torchdiffeq", reason="the package torchdiffeq is not installed")
    field = torch.nn.Sequential(torch.nn.Linear(WIDTH, 8), torch.nn.Tanh(), torch.nn.Linear(8, WIDTH))
    times = torch.linspace(0, 1, T + 1)

    def f(h, span):
        h = torchdiffeq.odeint(lambda t, y: field(y), h, span, method=method)[-1]
        return h, h

    spans = torch.stack([times[:-1], times[1:]], 1)
    for chunk in (1, 4):
        compare(f, numbers(BATCH, WIDTH), spans, field.parameters(), chunk=chunk)


# ------------------------------------------------------------------------------------------------ PyTorch's own


def test_checkpoints_inside():
    from torch.utils.checkpoint import checkpoint

    cell = torch.nn.GRUCell(3, WIDTH)

    def f(h, x):
        h = checkpoint(lambda h, x: torch.nn.functional.dropout(cell(x, h), 0.2), h, x, use_reentrant=False)
        return h, h

    init, xs = numbers(BATCH, WIDTH), numbers(T, BATCH, 3)
    budget = 8 * torch.get_rng_state().numel()
    found = []
    for scan, options in ((loop, {}), (ebb.scan, {"budget": budget, "chunk": 2})):
        torch.manual_seed(3)
        own = clones([init, xs])
        h, hs = scan(f, *own, **options)
        found.append((h, hs, gradients(weighted(h, hs), [*own, *cell.parameters()])))
    same(found[1], found[0])
    with pytest.raises(RuntimeError, match="use_reentrant=False"):
        ebb.scan(lambda h, x: (checkpoint(cell, x, h, use_reentrant=True), None), init, xs, budget=budget, chunk=1)


@pytest.mark.slow
def test_a_compiled_cell():
    cell = torch.nn.GRUCell(3, WIDTH)
    compiled = torch.compile(cell)

    def f(h, x):
        h = compiled(x, h)
        return h, h

    init, xs = numbers(BATCH, WIDTH), numbers(T, BATCH, 3)
    try:
        f(init, xs[0])
    except Exception as error:
        pytest.skip(f"torch.compile does not work here: {type(error).__name__}")
    wanted = gradients(weighted(*loop(f, init, xs)), [init, xs, *cell.parameters()])
    budget = 2 * least(f, init, xs, chunk=2)  # what it weighs changes as it is compiled
    found = gradients(weighted(*ebb.scan(f, init, xs, budget=budget, chunk=2)), [init, xs, *cell.parameters()])
    # Other kernels are made where there is no graph, so states differ by roundings.
    for ours, theirs in zip(found, wanted):
        assert torch.allclose(ours, theirs, rtol=1e-4, atol=float(theirs.abs().max()) * 1e-5)


@pytest.mark.skipif(not hasattr(torch.compiler, "set_stance"), reason="PyTorch 2.6 can do it")
def test_a_compiled_cell_stays_compiled():
    cell, calls = torch.nn.GRUCell(3, WIDTH), (ctypes.c_int * 2)()  # compiled, and all: which ebb does not put back

    def counting(graph, _):
        def run(*args):
            calls[0] += 1
            return graph.forward(*args)

        return run

    compiled = torch.compile(cell, backend=counting, dynamic=False)

    def f(h, x):
        calls[1] += 1
        h = compiled(x, h)
        return h, h

    init, xs = numbers(BATCH, WIDTH), numbers(T, BATCH, 3)
    budget = 2 * least(f, init, xs, chunk=2)
    for _ in range(2):  # the first looks at every operation of some steps, which are not compiled then
        calls[:] = 0, 0
        weighted(*ebb.scan(f, init, xs, budget=budget, chunk=2)).backward()
    assert calls[0] == calls[1] > T
    calls[:] = 0, 0
    loop(f, init, xs)
    assert calls[0] == T


def test_modules_of_torch_in_the_loop():
    layer = torch.nn.TransformerEncoderLayer(8, 2, 16, dropout=0.0, batch_first=True)

    def f(h, x):
        h = layer(h + x)
        return h, h.mean(1)

    for chunk in (1, 3):
        compare(f, numbers(BATCH, 4, 8), numbers(10, BATCH, 4, 8), layer.parameters(), chunk=chunk)
    rnn = torch.nn.LSTM(3, WIDTH)

    def g(carry, block):
        y, carry = rnn(block, carry)
        return carry, y

    init = (numbers(1, BATCH, WIDTH), numbers(1, BATCH, WIDTH))
    compare(g, init, numbers(10, 7, BATCH, 3), rnn.parameters(), chunk=1)

# SPDX-License-Identifier: Apache-2.0
"""The library's own kernels for spiking cells on a GPU: against a loop in float64 that fires where they do, in every budget, for many
shapes."""

from __future__ import annotations

import random

import pytest

torch = pytest.importorskip("torch")
if not torch.cuda.is_available():
    pytest.skip("no GPU here", allow_module_level=True)

import ebb  # noqa: E402
import ebb.nn  # noqa: E402
from ebb import _core  # noqa: E402
from ebb.nn import _neurons, _surrogate  # noqa: E402

if not _core.gated_architectures():
    pytest.skip("built without CUDA kernels", allow_module_level=True)

KINDS = ["LIF", "ALIF", "AdLIF"]
OWN = {"LIF": {}, "ALIF": {"tau_adp": 12.0, "beta": 0.6}, "AdLIF": {"tau_adp": 12.0, "a": 0.2, "b": 0.3}}
NEAR = {torch.float32: 2e-4, torch.float16: 2e-2, torch.bfloat16: 2e-1}  # a membrane to its threshold
ALLOWED = {torch.float32: 1e-3, torch.float16: 5e-2, torch.bfloat16: 3e-1}


class Forced(torch.autograd.Function):
    """Fires where it is told to, which must be where it would or nearly so."""

    @staticmethod
    def forward(ctx, distance, spikes, surrogate, sharpness, near):
        wrong = (distance >= 0).to(spikes.dtype) != spikes
        assert not (wrong & (distance.abs() > near)).any(), f"off by {float(distance[wrong].abs().max())}"
        ctx.save_for_backward(distance)
        ctx.how = surrogate, sharpness
        return spikes.clone()

    @staticmethod
    def backward(ctx, gradient):
        (distance,) = ctx.saved_tensors
        surrogate, sharpness = ctx.how
        return gradient * _surrogate._PSI[surrogate](distance, sharpness), None, None, None, None


def pair(kind, inputs, hidden, dtype=torch.float32, budget="60%", chunk=None, **how):
    units = {"threshold": 0.4, "tau_mem": 6.0} | OWN[kind]
    how = {**units, "train_tau": True, "train_threshold": True, "sharpness": 5.0, **how}
    net = getattr(ebb.nn, kind)(inputs, hidden, budget=budget, chunk=chunk, device="cuda", dtype=dtype, **how)
    with torch.no_grad():
        for name, parameter in net.named_parameters():
            if not name.startswith("weight"):
                parameter.mul_(0.5 + torch.rand_like(parameter))
    cell = getattr(ebb.nn, kind + "Cell")(inputs, hidden, device="cuda", dtype=torch.float64, **how)
    cell.load_state_dict({name.removesuffix("_l0"): tensor for name, tensor in net.state_dict().items()})
    return net, cell


def results(net, x, states, weights):
    x, states = x.detach().clone().requires_grad_(), [state.detach().clone().requires_grad_() for state in states]
    y, last = net(x, tuple(states))
    ((y.double() * weights).sum() + sum(state.double().sin().mean() for state in last)).backward()
    found = [y, *last, x.grad, *[state.grad for state in states], *[p.grad for p in net.parameters()]]
    net.zero_grad()
    return [tensor.detach() for tensor in found]


def right(cell, x, states, weights, spikes, near):
    """By a loop that fires as the kernels did."""
    step = iter(range(len(spikes)))
    cell._spike = lambda distance: Forced.apply(
        distance, spikes[next(step)].double(), cell.surrogate, cell.sharpness, near
    )
    x, states = x.double().requires_grad_(), [state.double().requires_grad_() for state in states]
    last, ys = tuple(states), []
    for one in x:
        last, y = cell(last, one)
        ys.append(y)
    ((torch.stack(ys) * weights).sum() + sum(state.sin().mean() for state in last)).backward()
    found = [torch.stack(ys), *last, x.grad, *[state.grad for state in states], *[p.grad for p in cell.parameters()]]
    # A lif reads the spikes before by recurrent weights alone.
    return [torch.zeros((), device="cuda") if tensor is None else tensor.detach() for tensor in found]


def compare(kind, steps, batch, inputs, hidden, dtype=torch.float32, **how):
    net, cell = pair(kind, inputs, hidden, dtype, **how)
    x = torch.randn(steps, batch, hidden if inputs is None else inputs, device="cuda").to(dtype)
    fields = [0.3 * torch.randn(batch, hidden, device="cuda").to(dtype) for _ in range(1 if kind == "LIF" else 2)]
    states = [*fields, (torch.rand(batch, hidden, device="cuda") < 0.3).to(dtype)]
    assert _neurons.why_not(net, x, [*net.parameters(), *states]) is None
    weights = torch.randn(steps, batch, hidden, device="cuda", dtype=torch.float64) / (steps * batch)
    found = results(net, x, states, weights)
    wanted = right(cell, x, states, weights, found[0], NEAR[dtype])
    for k, (a, b) in enumerate(zip(wanted, found, strict=True)):
        assert float((a - b.double()).norm()) <= ALLOWED[dtype] * max(1e-6, float(a.norm())), k
    assert 0.01 < float(found[0].float().mean()) < 0.95


@pytest.mark.parametrize("dtype", NEAR)
@pytest.mark.parametrize(
    "how", [{}, {"reset": "hard"}, {"attached_reset": True}, {"normalised": False}, {"bias": False}]
)
@pytest.mark.parametrize("kind", KINDS)
def test_layers(kind, how, dtype):
    torch.manual_seed(0)
    compare(kind, 40, 20, 24, 96, dtype, **how)


@pytest.mark.parametrize("dtype", NEAR)
@pytest.mark.parametrize("recurrent", [False, True])
@pytest.mark.parametrize("inputs", [None, 24])
@pytest.mark.parametrize("kind", KINDS)
def test_weights_that_are_not_there(kind, inputs, recurrent, dtype):
    torch.manual_seed(0)
    for steps, batch, how in ((40, 20, {}), (70, 3, {"reset": "hard", "attached_reset": True, "budget": "memory"})):
        compare(kind, steps, batch, inputs, 96, dtype, recurrent=recurrent, **how)


def test_many_neurons_without_weights():
    torch.manual_seed(0)
    compare("LIF", 37, 5, None, 70_001, recurrent=False)
    compare("ALIF", 37, 5, None, 70_001, torch.float16, recurrent=False, budget=None)


def test_a_million_time_steps():
    torch.manual_seed(0)
    net, _ = pair("LIF", None, 32, budget="64MiB")
    x = torch.randn(1_000_000, 1, 32, device="cuda", requires_grad=True)
    found = []
    for budget in ("64MiB", "512MiB"):
        net.budget, net.chunk, x.grad = budget, 128, None
        spikes, _ = net(x)
        spikes.square().mean().backward()
        found.append([spikes.detach(), x.grad, net.weight_hh_l0.grad])
        net.zero_grad()
    assert all(torch.equal(a, b) and b.isfinite().all() for a, b in zip(*found))
    assert 0.01 < float(found[0][0].mean()) < 0.95


@pytest.mark.parametrize("surrogate", list(_surrogate._PSI))
@pytest.mark.parametrize("kind", KINDS)
def test_surrogates(kind, surrogate):
    torch.manual_seed(0)
    compare(kind, 30, 9, 24, 64, surrogate=surrogate, sharpness=None)


@pytest.mark.parametrize("seed", range(40))
def test_random_shapes(seed):
    rng = random.Random(seed)
    torch.manual_seed(seed)
    batch = rng.choice([1, 2, 16, 33, 64, rng.randint(1, 150)])
    hidden = rng.choice([16, 50, 100, 128, 256, 512, 1024, rng.randint(1, 700)])
    kind, steps, inputs = rng.choice(KINDS), rng.randint(1, 40), rng.choice([None, rng.randint(1, 90)])
    recurrent = rng.choice([False, True, True])
    if inputs is None and recurrent:
        hidden = -(-hidden // 16) * 16
    how = {"chunk": rng.choice([None, 7]), "budget": rng.choice([None, "memory"]), "recurrent": recurrent}
    compare(kind, steps, batch, inputs, hidden, **how)


@pytest.mark.parametrize("kind", KINDS)
def test_the_same_bits_in_every_budget_and_every_time(kind):
    torch.manual_seed(0)
    net, _ = pair(kind, 40, 256, chunk=16)
    x = torch.randn(200, 32, 40, device="cuda")
    states = net.zero_state(32)
    found = []
    for budget in ("memory", "30%", None, None):
        net.budget = budget
        found.append(results(net, x, states, 1.0))
    assert all(torch.equal(a, b) for others in found[1:] for a, b in zip(found[0], others))


@pytest.mark.parametrize("kind", KINDS)
def test_the_budget_is_a_cap(kind):
    torch.manual_seed(0)
    net, _ = pair(kind, 128, 512, budget="16MiB")
    x = torch.randn(500, 64, 128, device="cuda", requires_grad=True)
    for _ in range(3):
        spikes, _ = net(x)
        given = torch.randn_like(spikes)
        spikes.backward(given)
    callers = sum(p.nbytes for p in net.parameters()) + x.nbytes + spikes.nbytes + given.nbytes
    net.zero_grad()
    x.grad = None
    del spikes
    torch.cuda.synchronize()
    before = torch.cuda.memory_allocated() - given.nbytes
    torch.cuda.reset_peak_memory_stats()
    net(x)[0].backward(given)
    assert torch.cuda.max_memory_allocated() - before - callers <= 1.02 * (16 << 20) + (1 << 20)

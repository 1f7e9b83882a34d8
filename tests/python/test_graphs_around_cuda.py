# SPDX-License-Identifier: Apache-2.0
"""CUDA graphs of blocks beside what others do: torch.compile, DistributedDataParallel, FSDP, autocast, packages of spiking neurons."""

from __future__ import annotations

import copy

import pytest

torch = pytest.importorskip("torch")
if not torch.cuda.is_available():
    pytest.skip("no GPU here", allow_module_level=True)

import graph_cases as cases  # noqa: E402
from graph_cases import ROOM, fresh, ran_as_graphs, results, same  # noqa: E402, F401

import ebb  # noqa: E402


def test_compiled_cells():
    case = cases.gru_carry_as_y()
    cell = torch.compile(case.module, dynamic=False)

    def f(h, x):
        h = cell(x, h)
        return h, h * 2

    case.f = f
    plain = results(case)
    for _ in range(3):
        ours = results(case, budget=ROOM, graph=True)
        assert all(torch.allclose(a, b, rtol=1e-4, atol=1e-5) for a, b in zip(plain, ours))
    assert ran_as_graphs(), ebb.last_report().remarks


@pytest.fixture
def group():
    import torch.distributed as dist

    dist.init_process_group("nccl", store=dist.HashStore(), rank=0, world_size=1)
    yield dist
    dist.destroy_process_group()


class Net(torch.nn.Module):
    def __init__(self, words):
        super().__init__()
        self.cell = torch.nn.LSTMCell(cases.INPUTS, cases.HIDDEN)
        self.out = torch.nn.Linear(cases.HIDDEN, 3)
        self.words = words

    def step(self, carry, x):
        h, c = self.cell(x, carry)
        return (h, c), h

    def forward(self, xs):
        zero = xs.new_zeros(cases.BATCH, cases.HIDDEN)
        _, ys = ebb.scan(self.step, (zero, zero), xs, **{"chunk": 7, **self.words})
        return self.out(ys)


def trained(net, xs, steps=5):
    optimizer = torch.optim.SGD(net.parameters(), 0.1)
    losses = []
    for _ in range(steps):
        optimizer.zero_grad()
        loss = net(xs).pow(2).mean()
        loss.backward()
        optimizer.step()
        losses.append(loss.detach())
    return losses


def test_data_parallel(group):
    xs = cases.inputs()
    net = Net({}).cuda()
    ours = copy.deepcopy(net)
    ours.words = {"budget": ROOM, "graph": True}
    parallel = torch.nn.parallel.DistributedDataParallel(ours, device_ids=[0])
    assert same(trained(net, xs), trained(parallel, xs))
    assert ran_as_graphs(), ebb.last_report().remarks


def test_sharded_parameters_run_without_graphs(group):
    fsdp = pytest.importorskip("torch.distributed.fsdp")
    if not hasattr(fsdp, "fully_shard"):
        pytest.skip("no fully_shard here")
    xs = cases.inputs()
    net = Net({}).cuda()
    ours = copy.deepcopy(net)
    ours.words = {"budget": "1MiB", "chunk": 4}
    fsdp.fully_shard(ours)
    plain, found = trained(net, xs), trained(ours, xs)
    assert all(torch.allclose(a, b) for a, b in zip(plain, found))
    assert not ran_as_graphs()


def test_autocast_around():
    case = cases.lstm()

    def f(carry, x):
        carry, y = case.f(carry, x)
        return tuple(t.float() for t in carry), y

    def go(**words):
        case.module.zero_grad()
        with torch.autocast("cuda", dtype=torch.bfloat16):
            _, ys = ebb.scan(f, case.init, case.xs, **words)
            loss = ys.float().sin().sum()
        loss.backward()
        return [ys.detach(), *(p.grad.clone() for p in case.module.parameters())]

    eager = go(budget=ROOM, graph=False, chunk=8, strategy="revolve")
    for _ in range(3):
        ours = go(budget=ROOM, graph=True, chunk=8)
    assert ran_as_graphs(), ebb.last_report().remarks
    plain = go()
    assert torch.equal(plain[0], ours[0])
    for a, b, c in zip(plain[1:], ours[1:], eager[1:]):
        # Casts of weights are made once for each block.
        assert torch.allclose(a, b, rtol=2e-2, atol=2e-2 * float(a.abs().max()))
        assert torch.allclose(c, b, rtol=2e-2, atol=2e-2 * float(a.abs().max()))


def test_snntorch():
    snn = pytest.importorskip("snntorch")
    net = torch.nn.ModuleList(
        [torch.nn.Linear(6, 16), snn.Leaky(beta=0.9, learn_beta=True), torch.nn.Linear(16, 3), snn.Leaky(beta=0.8)]
    ).cuda()

    def f(carry, x):
        spikes, first = net[1](net[0](x), carry[0])
        out, second = net[3](net[2](spikes), carry[1])
        return (first, second), out + second

    check(cases.Case(net, f, (cases.zeros(), cases.zeros(cases.BATCH, 3)), cases.inputs()))


def test_norse():
    norse = pytest.importorskip("norse.torch")
    cell = norse.LIFRecurrentCell(6, 16).cuda()

    def f(state, x):
        spikes, state = cell(x, state)
        return state, spikes

    start = cell.initial_state(cases.inputs()[0])
    start = type(start)(*(t.detach() for t in start))
    check(cases.Case(cell, f, start, cases.inputs()))


def test_spikingjelly():
    jelly = pytest.importorskip("spikingjelly.activation_based")
    from spikingjelly.activation_based import functional, neuron

    assert jelly
    net = torch.nn.Sequential(torch.nn.Linear(6, 16), neuron.LIFNode(), torch.nn.Linear(16, 3), neuron.LIFNode()).cuda()

    def go(**words):
        functional.reset_net(net)
        net.zero_grad()
        _, ys = ebb.scan(lambda c, x: (c, net(x)), None, xs, chunk=7, **words)
        ys.sum().backward()
        return [ys.detach(), *(p.grad.clone() for p in net.parameters())]

    xs = cases.inputs() * 3
    plain = go()
    for _ in range(3):
        assert same(plain, go(budget=ROOM, graph=True))
    assert ran_as_graphs(), ebb.last_report().remarks


def check(case):
    results(case)  # buffers have their shapes from then on
    plain = results(case)
    for call in range(4):
        assert same(plain, results(case, budget=ROOM, graph=True)), call
        assert ran_as_graphs() == (call > 0), ebb.last_report().remarks

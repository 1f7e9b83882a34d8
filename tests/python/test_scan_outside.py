# SPDX-License-Identifier: Apache-2.0
"""State that f keeps outside of its arguments: it runs with the bits of plain autograd, or is refused by name."""

from __future__ import annotations

import pytest

torch = pytest.importorskip("torch", reason="PyTorch is not installed")
from scan_oracle import gradients, loop, same, weighted  # noqa: E402
from stateful_neurons import BATCH, INPUTS, NEURONS, WIDTH, Counter, DelayLine, Neuron, Pair, Slotted  # noqa: E402

import ebb  # noqa: E402

torch.set_num_threads(1)


def tensors_of(net):
    """Everything that it keeps, as tensors."""
    kept = [value for part in (vars(net), net._buffers) for value in part.values()]
    kept += [getattr(net, "keeper", None) and net.keeper.membrane]
    leaves = torch.utils._pytree.tree_leaves(kept)
    return [torch.as_tensor(leaf) for leaf in leaves if isinstance(leaf, (torch.Tensor, float, int))]


def scarce(f, init, xs, **options):
    """A scan in a budget in which steps run again. What f keeps may be found out later than the least budget is said."""
    budget = 0
    for _ in range(3):
        try:
            found = ebb.scan(f, init, xs, budget=budget, **options)
        except ebb.Error as error:
            assert error.code == "infeasible_budget", error
            budget = int(1.2 * error.least_budget)
        else:
            assert ebb.last_report().strategy != "store_all"
            return found
    raise AssertionError(budget)


def run(net, xs, cut, **options):
    """Outputs, gradients and what is left behind, which the loss reads too."""
    net.reset()
    xs = xs.clone().requires_grad_()

    def f(carry, x):
        y = net(x)
        return 0.99 * carry + y.mean(), y

    carry, ys = (scarce if cut else ebb.scan)(f, torch.zeros(()), xs, **options)
    weights = torch.linspace(-1, 1, ys.numel()).view_as(ys)
    loss = carry + (ys * weights).sum()
    left = [kept for kept in tensors_of(net) if kept.is_floating_point()]
    loss = loss + sum((0.3 * kept).sum() for kept in left if kept.requires_grad)
    gradients = torch.autograd.grad(loss, [xs, *net.parameters()])
    return [loss.detach(), ys.detach(), carry.detach(), *gradients, *(kept.detach() for kept in tensors_of(net))]


def inputs(steps, silent):
    xs = torch.randn(steps, BATCH, INPUTS, generator=torch.Generator().manual_seed(silent))
    xs[:silent] = 0
    return xs


def expect_same(found, wanted):
    assert len(found) == len(wanted)
    for mine, theirs in zip(found, wanted):
        assert torch.equal(mine, theirs), (mine - theirs).abs().max()


@pytest.mark.parametrize("silent", [0, 1, 20, 200])
@pytest.mark.parametrize("chunk", [1, 4, None])
@pytest.mark.parametrize("kind", NEURONS)
@pytest.mark.sweep(24)
def test_bits_are_those_of_plain_autograd(kind, chunk, silent):
    torch.manual_seed(0)
    net, xs = kind(), inputs(silent + 40, silent)
    wanted = run(net, xs, False)
    expect_same(run(net, xs, True, chunk=chunk), wanted)
    expect_same(run(net, xs, True, chunk=chunk), wanted)


@pytest.mark.parametrize("kind", [Neuron, Counter, DelayLine, Pair])
def test_states_go_to_slow_tiers(kind, tmp_path):
    torch.manual_seed(0)
    net, xs = kind(), inputs(60, 5)
    wanted = run(net, xs, False)
    tiers = [ebb.file_tier(str(tmp_path), "16MiB")]
    expect_same(run(net, xs, True, chunk=2, tiers=tiers, strategy="async"), wanted)


def test_variables_and_globals():
    global level
    level = torch.zeros(WIDTH)
    weight = torch.randn(WIDTH, requires_grad=True)
    total, seen = torch.zeros(WIDTH), 0

    def f(carry, x):
        global level
        nonlocal total, seen
        level = 0.9 * level + weight * x
        total = (total + level).tanh()
        seen += 1
        return carry + seen, level * total

    def results(budget):
        global level
        nonlocal total, seen
        level, total, seen = torch.zeros(WIDTH), torch.zeros(WIDTH), 0
        carry, ys = ebb.scan(f, torch.zeros(()), xs, budget=budget, chunk=1)
        (gradient,) = torch.autograd.grad(ys.sum() + total.sum() + level.sum(), weight)
        return [carry, ys.detach(), gradient, total.detach(), torch.tensor(seen)]

    xs = torch.randn(60, 1)
    wanted = results(None)
    expect_same(results("2KiB"), wanted)
    assert ebb.last_report().strategy != "store_all"


def test_a_state_goes_on_from_one_scan_to_the_next():
    torch.manual_seed(0)
    net, xs = Neuron(), inputs(80, 0)

    def halves(budget):
        net.reset()
        first = ebb.scan(lambda c, x: (c, net(x)), torch.zeros(()), xs[:40], budget=budget, chunk=1)[1]
        second = ebb.scan(lambda c, x: (c, net(x)), torch.zeros(()), xs[40:], budget=budget, chunk=1)[1]
        loss = first.sum() + (second * second).sum()
        return [loss.detach(), *torch.autograd.grad(loss, net.parameters())]

    # Each scan adds up its part of a parameter's gradient, so that the sum is rounded otherwise.
    for mine, theirs in zip(halves("6KiB"), halves(None)):
        assert torch.allclose(mine, theirs, rtol=1e-5)


def test_while_loops():
    torch.manual_seed(0)
    net = Neuron()

    def results(budget):
        net.reset()

        def body(carry):
            t, h = carry
            return t + 1, (h + net(h[:, :INPUTS])).tanh()

        _, h = ebb.while_loop(
            lambda carry: bool(carry[0] < 50), body, (torch.zeros(()), torch.ones(BATCH, WIDTH)), budget=budget
        )
        loss = h.sum() + net.membrane.sum()
        return [loss.detach(), *torch.autograd.grad(loss, net.parameters())]

    wanted = results(None)
    expect_same(results("6KiB"), wanted)


def test_measuring_and_failing_leave_no_trace():
    torch.manual_seed(0)
    net, xs = Counter(), inputs(40, 0)

    def f(carry, x):
        return carry, net(x)

    before = net.membrane
    with pytest.raises(ebb.Error):
        ebb.scan(f, torch.zeros(()), xs, budget=1)
    assert net.membrane is before and net.calls == 0
    ebb.probe(f, torch.zeros(()), xs)
    assert net.membrane is before and net.calls == 0
    assert ebb.verify(f, torch.zeros(()), xs, budget="8KiB")
    assert net.membrane is before and net.calls == 0
    loss = ebb.scan(f, torch.zeros(()), xs, budget="8KiB")[1].sum()
    assert net.calls == 40
    net.reset()
    after = net.membrane
    loss.backward()
    assert net.membrane is after and net.calls == 0


def refused(net, xs, match):
    with pytest.raises(ebb.Error, match=match):
        ebb.scan(lambda c, x: (c, net(x)), torch.zeros(()), xs, budget="8KiB", chunk=1)[1].sum().backward()


def test_what_grows_or_cannot_be_put_back_is_refused_by_name():
    xs = inputs(60, 0)

    class Grows(Neuron):
        def reset(self):
            super().reset()
            self.record = []

        def forward(self, x):
            self.record.append(super().forward(x))
            return self.record[-1]

    net = Grows()
    refused(net, xs, r"Grows\.record changes from step to step.*return it as a y")
    assert net.record == []

    class Opaque(Neuron):
        def forward(self, x):
            self.state = Slotted()
            return super().forward(x)

    refused(Opaque(), xs, r"Opaque\.state changes from step to step, and it holds a Slotted")

    class Widens(Neuron):
        def forward(self, x):
            found = super().forward(x)
            self.history = torch.cat([getattr(self, "history", found[:0]), found])
            return found

    refused(Widens(), xs, r"Widens\.history changes from step to step.*float32\[2, 5\]")


def test_chains_refuse_it():
    net = torch.nn.Sequential(torch.nn.Linear(INPUTS, INPUTS), Neuron(), torch.nn.Linear(WIDTH, 2))
    with pytest.raises(ebb.Error, match=r"Neuron\.membrane changes"):
        ebb.Chain(net, torch.randn(BATCH, INPUTS), budget=2000)


@pytest.mark.parametrize("silent", [0, 20])
@pytest.mark.parametrize("name", ["Leaky", "Synaptic"])
def test_snntorch_with_hidden_states(name, silent):
    snntorch = pytest.importorskip("snntorch", reason="the package snntorch is not installed")
    torch.manual_seed(0)
    options = {"alpha": 0.8} if name == "Synaptic" else {}
    into, cell = torch.nn.Linear(INPUTS, WIDTH), getattr(snntorch, name)(beta=0.9, init_hidden=True, **options)
    xs = inputs(silent + 40, silent)

    def results(cut):
        cell.reset_mem() if hasattr(cell, "reset_mem") else cell.reset_hidden()
        f = lambda c, x: (c, cell(into(x)))
        ys = (scarce if cut else ebb.scan)(f, torch.zeros(()), xs, chunk=2)[1]
        loss = (ys * torch.linspace(-1, 1, ys.numel()).view_as(ys)).sum() + cell.mem.sum()
        return [loss.detach(), ys.detach(), cell.mem.detach(), *torch.autograd.grad(loss, into.parameters())]

    wanted = results(False)
    expect_same(results(True), wanted)


@pytest.mark.parametrize("chunk", [1, 3])
@pytest.mark.parametrize("writes", [False, True])
def test_state_that_is_an_output_too_and_used_twice(chunk, writes):
    """Its gradient as an output comes first, then those of its uses. `writes`: f changes it in place now and then."""

    class Neuron(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.weight = torch.nn.Parameter(torch.linspace(-1, 1, 4))
            self.mem = torch.zeros(3, 4)
            self.t = 0

        def forward(self, h, x):
            mem = self.mem
            if writes and self.t % 7 == 5:
                mem.mul_(0.5)
            self.t += 1
            self.mem = 0.5 * mem * self.weight + x - 0.3 * mem.sin() * mem
            return h * 0.5 + self.mem, self.mem if not writes else self.mem.clone()

    xs = torch.randn(60, 3, 4, generator=torch.Generator().manual_seed(0)).requires_grad_()
    found = []
    for scan, options in ((loop, {}), (ebb.scan, {"budget": "4KiB", "chunk": chunk})):
        neuron = Neuron()
        h, ys = scan(neuron, torch.zeros(3, 4), xs, **options)
        found.append((h, ys, neuron.mem, gradients(weighted(h, ys, neuron.mem), [xs, neuron.weight])))
    assert ebb.last_report().strategy != "store_all"
    same(*found)

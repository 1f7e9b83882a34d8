# SPDX-License-Identifier: Apache-2.0
"""The places in which f may keep something: each is replayed with the bits of plain autograd, or refused by name."""

from __future__ import annotations

import collections
import random

import numpy as np
import pytest

torch = pytest.importorskip("torch", reason="PyTorch is not installed")
import ebb  # noqa: E402

torch.set_num_threads(1)
WIDTH, STEPS = 4, 24


class Keeper:
    """An object with attributes."""


def results(make, cut, chunk=3):
    """Outputs and gradients, and what `left` says afterwards."""
    torch.manual_seed(0)
    random.seed(0)
    np.random.seed(0)
    weight = (0.3 * torch.randn(WIDTH, WIDTH)).requires_grad_()
    start, xs = torch.randn(WIDTH), torch.randn(STEPS, WIDTH)
    f, left, reset = (*make(weight), lambda: None, lambda: None)[:3]
    budget = 0 if cut else None
    for _ in range(4):
        try:
            h, ys = ebb.scan(f, start, xs, budget=budget, chunk=chunk if cut else None)
            break
        except ebb.Error as error:
            if error.code != "infeasible_budget":
                raise
            budget = int(1.2 * error.least_budget)
    assert not cut or ebb.last_report().strategy != "store_all"
    found = left()
    reset()
    (h.sum() + (ys * torch.arange(1, WIDTH + 1)).pow(2).sum()).backward()
    return ys.detach(), weight.grad, found


def halves(count):
    """A counter shows when it is wrong."""
    return 1.0 if count < 10 else 0.5


def submodules(weight):
    class Net(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.a, self.b, self.calls = torch.nn.Tanh(), torch.nn.Sigmoid(), 0
            self.now = self.a

        def forward(self, h, x):
            h = self.now(weight @ h + x)
            self.calls += 1
            if self.calls % 5 == 0:
                self.now = self.b if self.now is self.a else self.a
            return h, h

    net = Net()
    return net, lambda: type(net.now).__name__


def class_attributes(weight):
    class Count:
        calls = 0

    def f(h, x):
        Count.calls += 1
        h = torch.tanh(weight @ h + x) * halves(Count.calls)
        return h, h

    return f, lambda: Count.calls


def arrays(weight):
    calls = np.zeros(1)

    def f(h, x):
        calls[0] += 1
        h = torch.tanh(weight @ h + x) * halves(calls[0])
        return h, h

    return f, lambda: float(calls[0])


def sets(weight):
    seen = set()

    def f(h, x):
        seen.add(len(seen))
        h = torch.tanh(weight @ h + x) * halves(len(seen))
        return h, h

    return f, lambda: sorted(seen)


def orders(weight):
    """Which key is first."""
    parts = collections.OrderedDict((k, torch.full((WIDTH,), k / 4)) for k in range(3))

    def f(h, x):
        first = next(iter(parts))
        before = parts[first]
        parts[first] = 0.5 * before + 0.1 * h
        parts.move_to_end(first)
        h = torch.tanh(weight @ h + x + before)
        return h, h

    return f, lambda: list(parts)


def slots(weight):
    class Slotted:
        __slots__ = ("__calls", "membrane")

        def step(self, h, x):
            self.__calls = getattr(self, "_Slotted__calls", 0) + 1
            self.membrane = 0.9 * getattr(self, "membrane", torch.zeros(WIDTH)) + weight @ h + x
            h = torch.tanh(self.membrane) * halves(self.__calls)
            return h, h

    return (Slotted().step,)


def own_attributes(weight):
    def f(h, x):
        f.calls = getattr(f, "calls", 0) + 1
        h = torch.tanh(weight @ h + x) * halves(f.calls)
        return h, h

    return f, lambda: f.calls


def generators(weight):
    """Drawn from late."""
    own, keeper = random.Random(1), Keeper()
    keeper.calls, keeper.numpy = 0, np.random.default_rng(2)

    def f(h, x):
        keeper.calls += 1
        noise = 0.0
        if keeper.calls > 6:
            noise = own.random() + random.random() + np.random.rand() + keeper.numpy.random()
        h = torch.tanh(weight @ h + x + noise)
        return h, h

    return f, lambda: random.random()


def reset_before_backward(weight):
    """The caller begins anew before backward has run."""
    keeper = Keeper()

    def reset():
        keeper.state, keeper.line = Keeper(), collections.deque([torch.zeros(WIDTH)] * 2, maxlen=2)
        keeper.state.calls = 0

    def f(h, x):
        keeper.state.calls += 1
        h = torch.tanh(weight @ h + x + keeper.line[0]) * halves(keeper.state.calls)
        keeper.line.append(h)
        return h, h

    reset()
    return f, lambda: keeper.state.calls, reset


def evaluated_before_backward(weight):
    dropout = torch.nn.Dropout(0.5)

    def f(h, x):
        h = torch.tanh(weight @ dropout(h) + x)
        return h, h

    return f, lambda: None, dropout.eval


def truncated(weight):
    """Cut every eight steps, the last included: nothing is left to differentiate."""
    keeper = Keeper()
    keeper.calls, keeper.membrane = 0, torch.zeros(WIDTH)

    def f(h, x):
        keeper.calls += 1
        keeper.membrane = 0.9 * keeper.membrane + weight @ h
        if keeper.calls % 8 == 0:
            keeper.membrane = keeper.membrane.detach()
        h = torch.tanh(x + keeper.membrane)
        return h, h

    return f, lambda: keeper.membrane.requires_grad


def parameters(weight):
    """One of two parameters, which stays that parameter."""
    keeper = Keeper()
    keeper.both, keeper.calls = [weight, torch.nn.Parameter(torch.eye(WIDTH))], 0
    keeper.now = weight

    def f(h, x):
        h = torch.tanh(keeper.now @ h + x + 0.1 * keeper.both[0] @ h + 0.1 * keeper.both[1] @ h)
        keeper.calls += 1
        keeper.now = keeper.both[keeper.calls % 2]
        return h, h

    return f, lambda: keeper.now is weight


CASES = [
    submodules,
    class_attributes,
    arrays,
    sets,
    orders,
    slots,
    own_attributes,
    generators,
    reset_before_backward,
    evaluated_before_backward,
    truncated,
    parameters,
]


@pytest.mark.parametrize("make", CASES, ids=lambda make: make.__name__)
def test_bits_are_those_of_plain_autograd(make):
    for chunk in (2, 3):
        for mine, plain in zip(results(make, True, chunk), results(make, False)):
            if isinstance(plain, torch.Tensor):
                assert torch.equal(mine, plain)
            else:
                assert mine == plain


def views(keeper, weight, h, x):
    keeper.buffer.mul_(0.9)
    h = torch.tanh(weight @ h + x + keeper.last)
    keeper.buffer = torch.cat([keeper.buffer[1:], h.detach()[None]])
    keeper.last = keeper.buffer[-1]
    return h


def shared_lists(keeper, weight, h, x):
    h = torch.tanh(weight @ h + x + keeper.b[0])
    keeper.a = keeper.b = [h]
    return h


def fresh_modules(keeper, weight, h, x):
    keeper.net = torch.nn.Tanh()
    return keeper.net(weight @ h + x)


def sparse(keeper, weight, h, x):
    keeper.sparse = torch.eye(WIDTH).to_sparse()
    return torch.tanh(weight @ h + x)


REFUSED = {
    views: r"Keeper\.\w+ changes from step to step, and it shares memory with another tensor and is changed in place",
    shared_lists: r"Keeper\.\w+ changes from step to step, and its list lies in another place too",
    fresh_modules: r"Keeper\.net changes from step to step, and it holds a Tanh, which cannot be put back",
    sparse: r"Keeper\.sparse changes from step to step, and it holds a sparse tensor",
}


@pytest.mark.parametrize("step", REFUSED, ids=lambda step: step.__name__)
def test_what_cannot_be_put_back_is_refused_by_name(step):
    def make(weight):
        keeper = Keeper()
        keeper.buffer = torch.zeros(3, WIDTH)
        keeper.last, keeper.a = keeper.buffer[-1], [torch.zeros(WIDTH)]
        keeper.b = keeper.a

        def f(h, x):
            h = step(keeper, weight, h, x)
            return h, h

        return (f,)

    with pytest.raises(ebb.Error, match=REFUSED[step]):
        results(make, True)


def test_iterations_go_on_after_a_truncated_state():
    f = truncated(torch.randn(WIDTH, WIDTH, requires_grad=True))[0]
    for _ in range(2):
        ys = ebb.scan(f, torch.zeros(WIDTH), torch.randn(STEPS, WIDTH), budget="2KiB", chunk=1)[1]
        ys.sum().backward()
    assert ebb.last_report().strategy != "store_all"

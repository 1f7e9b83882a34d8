# SPDX-License-Identifier: Apache-2.0
"""Carries that start as None, and are what f makes them at its first step."""

from __future__ import annotations

import gc
import weakref
from collections import namedtuple

import pytest

torch = pytest.importorskip("torch", reason="PyTorch is not installed")
from scan_cases import BATCH, WIDTH, T, numbers  # noqa: E402
from scan_oracle import compare, gradients, least, loop, same, weighted  # noqa: E402

import ebb  # noqa: E402

torch.set_num_threads(1)

State = namedtuple("State", ["v", "i"])


@pytest.fixture(autouse=True)
def seed() -> None:
    torch.manual_seed(1)


def lstm():
    """As ncps' and torch's own cells take it."""
    cell = torch.nn.LSTMCell(WIDTH, 4)

    def f(carry, x):
        h, c = cell(x, carry)
        return (h, c), h * 2

    return f, None, list(cell.parameters())


def zeros():
    cell = torch.nn.GRUCell(WIDTH, 4)

    def f(h, x):
        h = cell(x, torch.zeros(BATCH, 4) if h is None else h)
        return h, h

    return f, None, list(cell.parameters())


def norse():
    """A state of several tensors that the first call makes, beside a carry that is there."""
    weight = numbers(WIDTH)

    def f(carry, x):
        state, trace = carry
        state = State(x * 0, x * 0) if state is None else state
        i = 0.8 * state.i + x * weight
        v = (state.v + 0.1 * (i - state.v)).tanh()
        return (State(v, i), 0.9 * trace + v), v

    return f, (None, numbers(BATCH, WIDTH)), [weight]


def learnt():
    """It starts from a parameter, and one None stays."""
    start, weight = numbers(BATCH, WIDTH), numbers(WIDTH)

    def f(carry, x):
        h = start if carry["h"] is None else carry["h"]
        h = (h * weight + x).tanh()
        return {"h": h, "none": None}, h

    return f, {"h": None, "none": None}, [start, weight]


def dropped():
    cell = torch.nn.GRUCell(WIDTH, 4)

    def f(h, x):
        h = cell(x, torch.randn(BATCH, 4) if h is None else torch.nn.functional.dropout(h, 0.3))
        return h, h

    return f, None, list(cell.parameters())


CELLS = [lstm, zeros, norse, learnt, dropped]


@pytest.mark.parametrize("reverse, reduce", [(False, None), (True, None), (False, "mean")])
@pytest.mark.parametrize("chunk", [1, 3])
@pytest.mark.parametrize("budget", ["least", 10**9, None], ids=["least", "ample", "none"])
@pytest.mark.parametrize("cell", CELLS)
@pytest.mark.sweep(16)
def test_bits_are_those_of_the_loop(cell, budget, chunk, reverse, reduce):
    f, init, params = cell()
    xs = numbers(40, BATCH, WIDTH)
    options = {"chunk": chunk, "reverse": reverse, "reduce": reduce}
    number = least(f, init, xs, **options) if budget == "least" else budget
    torch.manual_seed(2)
    wanted = loop(f, init, xs, reverse=reverse, reduce=reduce)
    theirs = gradients(weighted(*wanted), [xs, *params])
    torch.manual_seed(2)
    found = ebb.scan(f, init, xs, budget=number, **options)
    same(found, wanted)
    same(gradients(weighted(*found), [xs, *params]), theirs)
    if budget == "least":
        report = ebb.last_report()
        assert report.measured["forwards"] > report.steps and report.measured["charged"]["fast"] <= number


def test_the_first_step_is_charged_as_the_others_are():
    """Its graph keeps less, since what f makes has no gradient."""

    def f(h, x):
        h = torch.zeros(64, 64) if h is None else h
        h = (h.sin() * h.cos() + x).tanh()
        return h, h.mean()

    xs = numbers(60, 64, 64)
    compare(f, None, xs, budget=least(f, None, xs, chunk=1) + 10**5, chunk=1, verify=True)


@pytest.mark.parametrize("codec", ["bits", ("bits", "bits")])
def test_exact_codecs(codec):
    f, init, params = zeros()
    xs = numbers(60, BATCH, WIDTH)
    compare(f, init, xs, params, budget=least(f, init, xs, chunk=1, codec=codec) + 2000, chunk=1, codec=codec)


def test_in_host_memory_too():
    f, init, params = lstm()
    xs = numbers(40, BATCH, WIDTH)
    budget = least(f, init, xs, chunk=1)
    compare(
        f, init, xs, params, budget=budget + 2000, chunk=1, tiers=[ebb.memory_tier("1MiB")], strategy="disk_revolve"
    )


def test_backward_twice_and_nothing_is_left():
    f, init, params = lstm()
    xs = numbers(T, BATCH, WIDTH)
    wanted = gradients(weighted(*loop(f, init, xs)), params)
    carry, ys = ebb.scan(f, init, xs, budget=least(f, init, xs, chunk=1), chunk=1)
    loss = weighted(carry, ys)
    for _ in range(2):
        same(torch.autograd.grad(loss, params, retain_graph=True), wanted)
    node = weakref.ref(carry[0].grad_fn.call)
    del carry, ys, loss
    assert node() is None, "a cycle"
    gc.collect()


@pytest.mark.parametrize("budget", [None, "4KiB"])
@pytest.mark.parametrize(
    "later, words",
    [
        (lambda h: (h, h), "structure"),
        (lambda h: h.double(), "dtype"),
        (lambda h: h[:1], "shape"),
        (lambda h: None, "None"),
    ],
    ids=["structure", "dtype", "shape", "none"],
)
def test_what_changes_after_the_first_step_is_refused(later, words, budget):
    weight = numbers(WIDTH)

    def f(h, t):
        h = torch.ones(BATCH, WIDTH) if h is None else h
        h = (h * weight).tanh()
        return later(h) if int(t) == 5 else h, None

    with pytest.raises(ebb.Error, match=f"the carry.*{words}"):
        ebb.scan(f, None, torch.arange(40), budget=budget, chunk=1)


@pytest.mark.parametrize("budget", [None, "4KiB"])
def test_a_carry_that_becomes_something_later_is_refused(budget):
    weight = numbers(WIDTH)

    def f(carry, t):
        h, late = carry
        return ((h * weight).tanh(), h if int(t) == 5 else late), None

    with pytest.raises(ebb.Error, match="the carry"):
        ebb.scan(f, (numbers(WIDTH), None), torch.arange(40), budget=budget, chunk=1)


@pytest.mark.parametrize("budget", ["600B", "1MiB", None])
def test_while_loops(budget):
    weight = numbers(WIDTH)

    def run(call, **options):
        def f(carry):
            x, count = carry
            x = (weight.detach() if x is None else x) * weight
            return x.tanh(), count + 1

        x, count = call(lambda carry: carry[0] is None or int(carry[1]) < 30, f, (None, torch.tensor(0)), **options)
        return x.detach(), count, *gradients(x.sum(), [weight])

    def by_hand(cond, f, carry):
        while cond(carry):
            carry = f(carry)
        return carry

    same(run(ebb.while_loop, budget=budget), run(by_hand))


def test_a_while_loop_with_state_outside_and_a_tuple():
    """cond gets the carry alone."""
    weight = numbers(WIDTH)

    class Neuron:
        v = None

        def __call__(self, carry):
            x, count = carry
            self.v = x * weight if self.v is None else 0.5 * self.v + x * weight
            return self.v.tanh(), count + 1

    def cond(carry):
        x, count = carry
        return int(count) < 30

    def run(call, **options):
        x, count = call(cond, Neuron(), (torch.ones(WIDTH), torch.tensor(0)), **options)
        return x.detach(), count, *gradients(x.sum(), [weight])

    def by_hand(cond, f, carry):
        while cond(carry):
            carry = f(carry)
        return carry

    same(run(ebb.while_loop, budget="800B"), run(by_hand))


def test_what_f_keeps_outside_may_be_its_carry():
    """The very tensor that it got."""
    weight = numbers(WIDTH)
    xs = numbers(40, WIDTH)

    class Behind:
        last = None

        def __call__(self, h, x):
            late = h if self.last is None else self.last
            self.last = h
            h = (h * weight + late.sin() + x).tanh()
            return h, h.exp()

    def run(scan, **options):
        found = scan(Behind(), torch.ones(WIDTH), xs, **options)
        return *found, *gradients(weighted(*found), [xs, weight])

    found = run(ebb.scan, budget="1KiB", chunk=1)
    assert ebb.last_report().strategy != "store_all"
    same(found, run(loop))


def test_probe_and_verify():
    f, init, params = lstm()
    xs = numbers(60, BATCH, WIDTH)
    found = ebb.probe(f, init, xs, chunk=1)
    assert found.least == least(f, init, xs, chunk=1)
    assert ebb.verify(f, init, xs, budget=found.least, chunk=1)

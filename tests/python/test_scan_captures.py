# SPDX-License-Identifier: Apache-2.0
"""Tensors that f captures by closure: found, differentiated through, refused or let go."""

from __future__ import annotations

import functools
import gc
import weakref

import pytest

torch = pytest.importorskip("torch", reason="PyTorch is not installed")
from scan_cases import numbers  # noqa: E402
from scan_oracle import compare, gradients, least, loop, same, weighted  # noqa: E402

import ebb  # noqa: E402

torch.set_num_threads(1)

T, BATCH, WIDTH = 16, 2, 3


@pytest.fixture(autouse=True)
def seed() -> None:
    torch.manual_seed(1)


GLOBAL = torch.full((WIDTH,), 0.5, requires_grad=True)


# ------------------------------------------------------------------------------------------------ tensors


def test_leaves_are_found_wherever_they_are():
    weight = numbers(WIDTH)

    class Holder:
        def __init__(self):
            self.w = numbers(WIDTH)

        def step(self, h, x):
            h = (h * self.w + x).tanh()
            return h, h

        def __call__(self, h, x):
            return self.step(h, x)

    holder = Holder()
    plain = [
        (lambda h, x: ((h * weight + x).tanh(), h), weight),
        (lambda h, x, w=weight: ((h * w + x).tanh(), h), weight),
        (functools.partial(lambda w, h, x: ((h * w + x).tanh(), h), weight), weight),
        (lambda h, x: ((h * GLOBAL + x).tanh(), h), GLOBAL),
        (holder.step, holder.w),
        (holder, holder.w),
    ]
    for f, captured in plain:
        compare(f, numbers(WIDTH), numbers(T, WIDTH), [captured], chunk=1)


def test_a_tensor_computed_outside_is_differentiated_through():
    weight = numbers(WIDTH)

    def run(scan, **options):
        scaled = (weight * 2).exp()

        def f(h, x):
            h = (h * scaled + x).tanh()
            return h, h

        init, xs = torch.ones(WIDTH), torch.linspace(-1, 1, T * WIDTH).reshape(T, WIDTH)
        budget = {"budget": least(f, init, xs, chunk=1)} if options else {}
        h, hs = scan(f, init, xs, **options, **budget)
        return gradients(weighted(h, hs), [weight])

    same(run(ebb.scan, chunk=1), run(loop))


def test_a_tensor_computed_outside_may_be_used_outside_too():
    weight = numbers(WIDTH)
    init, xs = torch.ones(WIDTH), numbers(T, WIDTH, grad=False)

    def run(scan, **options):
        scaled = weight.exp()

        def f(h, x):
            h = (h * scaled + x).tanh()
            return h, h

        h, _ = scan(f, init, xs, **options)
        return gradients(weighted(h, scaled), [weight])

    small = least(lambda h, x: ((h * weight + x).tanh(),) * 2, init, xs, chunk=1)
    for ours, theirs in zip(run(ebb.scan, chunk=1, budget=2 * small), run(loop)):
        assert torch.allclose(ours, theirs, rtol=1e-5)


@pytest.mark.parametrize("chunk", [1, 3])
def test_a_tensor_computed_from_another_captured_one_is_refused(chunk):
    weight = numbers(WIDTH)
    scaled = weight.exp()

    def f(h, x):
        h = (h * scaled + x * weight).tanh()
        return h, h

    with pytest.raises(ebb.Error, match="computed from another"):
        ebb.scan(f, torch.ones(WIDTH), numbers(T, WIDTH), budget="4KiB", chunk=chunk)


def from_step(first: int, early, late):
    """f by the time step, which is its input."""

    def f(h, t):
        return (early if int(t) < first else late)(h)

    return f


@pytest.mark.parametrize("kind", ["leaf", "computed outside", "computed from a known one", "the output itself"])
@pytest.mark.parametrize("chunk", [1, 3])
def test_what_only_later_steps_use_is_refused_or_found_but_not_dropped(kind, chunk):
    weight, other = numbers(WIDTH), numbers(WIDTH)

    def run(scan, **options):
        late = {
            "leaf": other,
            "computed outside": other.exp(),
            "computed from a known one": weight.exp(),
            "the output itself": other,
        }[kind]

        def second(h):
            h = (h * weight * late).tanh()
            return h, (late if kind == "the output itself" else h)

        def first(h):
            h = (h * weight).tanh()
            return h, h

        f = from_step(7, first, second)
        h, hs = scan(f, torch.ones(WIDTH), torch.arange(T), **options)
        return gradients(weighted(h, hs), [weight, other])

    wanted = run(loop)
    refused = 0
    for budget in (350, 450, 600, 1000, 10**6):
        try:
            found = run(ebb.scan, budget=budget, chunk=chunk)
        except ebb.Error as error:
            assert "params" in str(error) or error.code == "infeasible_budget", error
            refused += "params" in str(error)
        else:
            for ours, theirs in zip(found, wanted):
                assert (ours is None) == (theirs is None) and (ours is None or torch.allclose(ours, theirs, rtol=1e-5))
    assert refused, "no budget made blocks of the steps"


def test_what_only_later_steps_use_may_be_named():
    weight, other = numbers(WIDTH), numbers(WIDTH)
    f = from_step(7, lambda h: ((h * weight).tanh(),) * 2, lambda h: ((h * weight * other).tanh(),) * 2)
    compare(f, numbers(WIDTH), torch.arange(T), [weight, other], chunk=1, given=[weight, other])
    module = torch.nn.ParameterList([torch.nn.Parameter(torch.randn(WIDTH)) for _ in range(2)])
    f = from_step(7, lambda h: ((h * module[0]).tanh(),) * 2, lambda h: ((h * module[1]).tanh(),) * 2)
    compare(f, numbers(WIDTH), torch.arange(T), module.parameters(), chunk=1, given=module)


@pytest.mark.parametrize("part", ["y", "carry"])
@pytest.mark.parametrize("chunk", [1, 3])
def test_what_has_gradients_in_later_steps_only_is_refused_or_right(part, chunk):
    weight = numbers(WIDTH)

    def f(carry, t):
        h, z = carry
        h = (h * weight).tanh()
        late = h if int(t) > 5 else torch.zeros(WIDTH)
        return (h, late), (h, late)

    def run(scan, **options):
        carry, ys = scan(f, (torch.ones(WIDTH), torch.zeros(WIDTH)), torch.arange(T), **options)
        return gradients(weighted(carry[0], ys[1] if part == "y" else carry[1]), [weight])

    wanted = run(loop)
    tried = refused = 0
    for budget in (500, 700, 1000, 10**6):
        try:
            found = run(ebb.scan, budget=budget, chunk=chunk)
        except ebb.Error as error:
            assert "gradient" in str(error) or error.code == "infeasible_budget", error
            refused += "gradient" in str(error)
        else:
            tried += 1
            same(found, wanted)
    assert tried and refused


def test_an_input_that_f_captures_too():
    xs = numbers(T, WIDTH)
    init = numbers(WIDTH)
    weight = numbers(WIDTH)

    def run(scan, **options):
        def f(h, x):
            h = (h * weight + x * xs.mean() + init).tanh()
            return h, h

        return gradients(weighted(*scan(f, init, xs, **options)), [init, xs, weight])

    for ours, theirs in zip(run(ebb.scan, budget="6KiB", chunk=1), run(loop)):
        assert torch.allclose(ours, theirs, rtol=1e-5, atol=1e-6)


def test_the_outputs_of_another_scan_are_captured():
    weight, other = numbers(WIDTH), numbers(WIDTH)
    init, xs = numbers(WIDTH), numbers(T, WIDTH)

    def run(scan, **options):
        _, memory = scan(lambda h, x: ((h * weight + x).tanh(),) * 2, init, xs, **options)

        def attend(h, x):
            h = ((memory @ h).softmax(0) @ memory * other + x).tanh()
            return h, h

        return gradients(weighted(*scan(attend, init, xs, **options)), [init, xs, weight, other])

    for ours, theirs in zip(run(ebb.scan, budget="2KiB", chunk=1), run(loop)):
        assert torch.allclose(ours, theirs, rtol=1e-5, atol=1e-5)
    assert ebb.last_report().strategy != "store_all"


# ------------------------------------------------------------------------------------------------ nothing is kept alive


def test_what_f_captured_is_let_go():
    def once():
        cell = torch.nn.RNNCell(WIDTH, WIDTH)
        table = [torch.ones(WIDTH)]

        def f(h, x):
            h = cell(x, h) * table[0]
            return h, h

        weighted(*ebb.scan(f, torch.zeros(BATCH, WIDTH), numbers(T, BATCH, WIDTH), budget="16KiB", chunk=1)).backward()
        return weakref.ref(cell), weakref.ref(table[0]), weakref.ref(f)

    found = once()
    gc.collect()
    assert [reference() is None for reference in found] == [True, True, True]

# SPDX-License-Identifier: Apache-2.0
"""Whatever the cell, the length, the chunk, the strategy and the budget: the bits of plain autograd."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable
from typing import Any

import pytest

torch = pytest.importorskip("torch", reason="PyTorch is not installed")
from hypothesis import HealthCheck, given, settings  # noqa: E402
from hypothesis import strategies as some  # noqa: E402
from scan_oracle import clones, compare, gradients, loop, same, wanting, weighted  # noqa: E402
from thorough import THOROUGH  # noqa: E402

import ebb  # noqa: E402
from ebb import _core  # noqa: E402

torch.set_num_threads(1)
F = torch.nn.functional

Cell = tuple[Callable, Any, list[torch.Tensor]]  # f, init, parameters


def smooth(kind: Callable, batch: int, inputs: int, width: int) -> Cell:
    cell = kind(inputs, width)

    def f(h, x):
        h = cell(x, h)
        return h, h

    return f, torch.randn(batch, width).requires_grad_(), list(cell.parameters())


def lstm(batch: int, inputs: int, width: int) -> Cell:
    cell = torch.nn.LSTMCell(inputs, width)

    def f(carry, x):
        carry = cell(x, carry)
        return carry, carry[0]

    return f, (torch.randn(batch, width).requires_grad_(), torch.zeros(batch, width)), list(cell.parameters())


def attention(batch: int, inputs: int, width: int) -> Cell:
    """A step that attends to the last four."""
    query, key, value = (torch.nn.Linear(inputs, width) for _ in range(3))

    def f(carry, x):
        keys, values = carry
        keys = torch.cat([keys[:, 1:], key(x)[:, None]], 1)
        values = torch.cat([values[:, 1:], value(x)[:, None]], 1)
        y = F.scaled_dot_product_attention(query(x)[:, None], keys, values)[:, 0]
        return (keys, values), y

    params = [p for layer in (query, key, value) for p in layer.parameters()]
    return f, (torch.randn(batch, 4, width).requires_grad_(), torch.zeros(batch, 4, width)), params


def ssm(batch: int, inputs: int, width: int) -> Cell:
    """A diagonal state space with a step size of its own for each input, as in Mamba."""
    a, skip = torch.rand(width).neg().requires_grad_(), torch.randn(inputs).requires_grad_()
    into, out, rate = torch.nn.Linear(inputs, width), torch.nn.Linear(width, inputs), torch.nn.Linear(inputs, width)

    def f(h, x):
        delta = F.softplus(rate(x))
        h = torch.exp(delta * a) * h + delta * into(x)
        return h, {"y": out(h) + skip * x}

    params = [a, skip, *into.parameters(), *out.parameters(), *rate.parameters()]
    return f, torch.zeros(batch, width), params


def neural_ode(batch: int, inputs: int, width: int) -> Cell:
    """Runge and Kutta's fourth order."""
    inner, outer = torch.nn.Linear(width + inputs, 2 * width), torch.nn.Linear(2 * width, width)

    def slope(h, x):
        return outer(inner(torch.cat([h, x], -1)).tanh())

    def f(h, x, dt=0.1):
        k1 = slope(h, x)
        k2 = slope(h + dt / 2 * k1, x)
        k3 = slope(h + dt / 2 * k2, x)
        k4 = slope(h + dt * k3, x)
        h = h + dt / 6 * (k1 + 2 * k2 + 2 * k3 + k4)
        return h, h

    return f, torch.randn(batch, width).requires_grad_(), [*inner.parameters(), *outer.parameters()]


class Spike(torch.autograd.Function):
    @staticmethod
    def forward(ctx, v):
        ctx.save_for_backward(v)
        return (v > 0).to(v.dtype)

    @staticmethod
    def backward(ctx, gradient):
        (v,) = ctx.saved_tensors
        return gradient / (1 + 10 * v.abs()) ** 2


def lif(batch: int, inputs: int, width: int) -> Cell:
    into, back = torch.nn.Linear(inputs, width), torch.nn.Linear(width, width)
    leak = torch.full((width,), 0.9).requires_grad_()

    def f(carry, x):
        v, z = carry
        v = v * leak * (1 - z.detach()) + into(x) + back(z)
        z = Spike.apply(v - 0.3)
        return (v, z), (z, v.detach())

    init = (torch.zeros(batch, width), torch.zeros(batch, width))
    return f, init, [leak, *into.parameters(), *back.parameters()]


CELLS: dict[str, Callable[[int, int, int], Cell]] = {
    "rnn": lambda *sizes: smooth(torch.nn.RNNCell, *sizes),
    "gru": lambda *sizes: smooth(torch.nn.GRUCell, *sizes),
    "lstm": lstm,
    "attention": attention,
    "ssm": ssm,
    "neural ode": neural_ode,
    "lif": lif,
}
# Those of `ebb plan` that need no slow memory and know the length.
STRATEGIES = [row.name for row in ebb.strategies() if not row.needs_tier]


def budget_between(f: Callable, init: Any, xs: torch.Tensor, share: float, **options: Any) -> int | None:
    """From the least (0) to what keeping everything takes (1); None where the strategy cannot."""
    try:
        ebb.scan(f, clones(init), clones(xs), budget=0, **options)
    except ebb.Error as error:
        if error.least_budget is None:
            raise
        small = error.least_budget
    step = ebb.scan(f, clones(init), clones(xs), budget=small, **options) and ebb.last_report()
    whole = _core.least_budget(
        _core.Chain.uniform(step.steps, step.costs.step_cost()), _core.Platform(fast=small), storing()
    )
    return small + int(share * max(0, whole - small))


def storing() -> Any:
    how = _core.PlanOptions()
    how.strategy = "store_all"
    return how


@settings(max_examples=60, deadline=None, derandomize=True, suppress_health_check=list(HealthCheck))
@given(
    name=some.sampled_from(sorted(CELLS)),
    steps=some.integers(1, 200 if THOROUGH else 80),
    chunk=some.sampled_from([None, 1, 2, 3, 7, 16, 300]),
    strategy=some.sampled_from(STRATEGIES),
    share=some.floats(0, 1),
    reverse=some.booleans(),
    reduce=some.sampled_from([None, None, "sum", "mean"]),
    sizes=some.tuples(*[some.integers(1, 5)] * 3),
    seed=some.integers(0, 1000),
)
def test_gradients_have_the_bits_of_plain_autograd(name, steps, chunk, strategy, share, reverse, reduce, sizes, seed):
    torch.manual_seed(seed)
    f, init, params = CELLS[name](*sizes)
    xs = torch.randn(steps, *sizes[:2]).requires_grad_(seed % 2 == 0)
    count = math.ceil(steps / (chunk or 1))
    # The least budget takes a number of steps that grows with the square of the length.
    share = max(share, 0.0 if count <= 40 else 0.1)
    options = {"chunk": chunk, "strategy": strategy, "reverse": reverse, "reduce": reduce}
    budget = budget_between(f, init, xs, share, **options)
    compare(f, init, xs, params, budget=budget, **options)


@pytest.mark.parametrize("name", sorted(CELLS))
@pytest.mark.parametrize("strategy", STRATEGIES)
@pytest.mark.sweep(18)
def test_every_cell_with_every_strategy(name, strategy):
    torch.manual_seed(1)
    f, init, params = CELLS[name](2, 3, 4)
    xs = torch.randn(40, 2, 3).requires_grad_()
    options = {"chunk": 2, "strategy": strategy}
    budget = budget_between(f, init, xs, 0.3, **options)
    report = compare(f, init, xs, params, budget=budget, **options)
    assert strategy == "store_all" or report.predicted["forwards"] > report.steps


@pytest.mark.slow
@pytest.mark.parametrize("name, steps, chunk", [("lstm", 2000, None), ("gru", 1500, 20), ("lif", 1000, 1)])
def test_long_sequences(name, steps, chunk):
    torch.manual_seed(1)
    f, init, params = CELLS[name](1, 2, 3)
    xs = torch.randn(steps, 1, 2).requires_grad_()
    budget = budget_between(f, init, xs, 0.05, chunk=chunk, strategy="revolve")
    report = compare(f, init, xs, params, budget=budget, chunk=chunk)
    assert report.predicted["forwards"] > report.steps


def test_dtypes_of_cells():
    torch.manual_seed(1)
    for dtype in (torch.float64, torch.bfloat16):
        cell = torch.nn.GRUCell(3, 4, dtype=dtype)

        def f(h, x):
            h = cell(x, h)
            return h, h

        init, xs = torch.randn(2, 4, dtype=dtype).requires_grad_(), torch.randn(50, 2, 3, dtype=dtype).requires_grad_()
        compare(f, init, xs, cell.parameters(), budget=budget_between(f, init, xs, 0.2, chunk=3), chunk=3)


def test_the_comparison_can_fail():
    """The oracle and the run are two things: a wrong replay is seen."""
    weight = torch.ones(3, requires_grad=True)
    # Counted where ebb does not put it back.
    calls, changes = itertools.count(), [10**9]

    def f(h, x):
        h = (h * weight + (next(calls) > changes[0]) * 1e-3).tanh()
        return h, h

    xs = torch.randn(40, 3).requires_grad_()
    wanted = gradients(weighted(*loop(f, torch.ones(3), xs)), [weight])
    own = clones(xs)
    h, hs = ebb.scan(f, torch.ones(3), own, budget=budget_between(f, torch.ones(3), xs, 0.2, chunk=1), chunk=1)
    changes[0] = next(calls) + 5
    with pytest.raises(AssertionError):
        same(gradients(weighted(h, hs), [weight, *wanting(own)])[:1], wanted)

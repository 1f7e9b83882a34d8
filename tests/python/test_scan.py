# SPDX-License-Identifier: Apache-2.0
"""ebb.scan against the loop written by hand: structures, inputs, lengths, dtypes, parameters."""

from __future__ import annotations

from collections import OrderedDict, namedtuple

import numpy as np
import pytest

torch = pytest.importorskip("torch", reason="PyTorch is not installed")
from scan_cases import BATCH, WIDTH, T, numbers, rnn  # noqa: E402
from scan_oracle import compare, gradients, least, loop, same, weighted  # noqa: E402

import ebb  # noqa: E402

torch.set_num_threads(1)

Pair = namedtuple("Pair", ["h", "c"])


@pytest.fixture(autouse=True)
def seed() -> None:
    torch.manual_seed(1)


# ------------------------------------------------------------------------------------------------ structures


def test_the_simplest_case_runs_in_the_least_budget_and_not_in_less():
    f, params = rnn()
    init, xs = numbers(BATCH, WIDTH), numbers(T, BATCH, WIDTH)
    report = compare(f, init, xs, params, chunk=1)
    assert report.strategy != "store_all" and report.predicted["forwards"] > T
    smallest = least(f, init, xs, chunk=1)
    with pytest.raises(ebb.Error) as caught:
        ebb.scan(f, init, xs, budget=smallest - 1, chunk=1)
    assert caught.value.least_budget == smallest


@pytest.mark.parametrize(
    "wrap",
    [
        lambda h, c: (h, c),
        lambda h, c: [h, c],
        lambda h, c: {"h": h, "c": c},
        lambda h, c: Pair(h, c),
        lambda h, c: OrderedDict(h=h, c=c),
        lambda h, c: {"deep": [Pair(h, None), (c,)], "none": None},
    ],
    ids=["tuple", "list", "dict", "namedtuple", "ordered dict", "nested"],
)
@pytest.mark.parametrize("budget", ["least", 10**9, None], ids=["least", "ample", "none"])
@pytest.mark.sweep(9)
def test_structures_of_states_and_outputs_come_back_as_they_are(wrap, budget):
    cell = torch.nn.LSTMCell(WIDTH, 4)

    def unwrap(tree):
        h, c = [leaf for leaf in torch.utils._pytree.tree_leaves(tree) if leaf is not None]
        return h, c

    def f(tree, x):
        h, c = cell(x, unwrap(tree))
        return wrap(h, c), wrap(h * 2, c.tanh())

    init, xs = wrap(numbers(BATCH, 4), numbers(BATCH, 4)), numbers(T, BATCH, WIDTH)
    compare(f, init, xs, cell.parameters(), budget=budget)
    carry, ys = ebb.scan(f, init, xs, budget=least(f, init, xs) if budget == "least" else budget)
    assert type(carry) is type(init) and type(ys) is type(init)
    assert torch.utils._pytree.tree_structure(carry) == torch.utils._pytree.tree_structure(init)


def test_a_dict_may_come_back_in_another_order():
    def f(carry, x):
        new = {"b": carry["b"] * 0.9 + carry["a"], "a": (carry["a"] + x).tanh()}
        return {"in": [new]}, new if bool(x[0] > 0) else dict(sorted(new.items()))

    def g(carry, x):
        return f(carry["in"][0], x)

    init, xs = {"in": [{"a": numbers(WIDTH), "b": numbers(WIDTH)}]}, numbers(T, WIDTH)
    assert len(set((xs[:, 0] > 0).tolist())) == 2
    carry, ys = loop(g, init, xs)
    found, found_ys = ebb.scan(g, init, xs, budget=least(g, init, xs, chunk=1), chunk=1)
    for name in "ab":
        same((found["in"][0][name], found_ys[name]), (carry["in"][0][name], ys[name]))
    for scan in (loop, ebb.scan):
        found, found_ys = scan(g, init, xs)
        assert [torch.equal(found_ys[name], ys[name]) for name in "ab"] == [True, True]


def test_states_of_several_lags():
    weight = numbers(3, WIDTH)

    def f(carry, x):
        h, before, long_before = carry
        new = (h * weight[0] + before * weight[1] + long_before * weight[2] + x).tanh()
        return (new, h, before), new

    init, xs = tuple(numbers(WIDTH) for _ in range(3)), numbers(T, WIDTH)
    wanted = gradients(weighted(*loop(f, init, xs)), [*init, xs, weight])
    for chunk in (1, 2, 5):
        found = gradients(
            weighted(*ebb.scan(f, init, xs, budget=least(f, init, xs, chunk=chunk), chunk=chunk)), [*init, xs, weight]
        )
        # A state that is carried over several steps gets what comes from them before what comes to it as an output.
        for ours, theirs in zip(found, wanted):
            assert torch.allclose(ours, theirs, rtol=0, atol=float(theirs.abs().max()) * T * 2.0**-23)


def test_a_carry_that_is_the_output_at_some_steps_only():
    cell = torch.nn.GRUCell(WIDTH, WIDTH)

    def f(h, x):
        x, reset = x
        h = cell(x, h)
        return (torch.zeros_like(h) if reset else h), h

    for chunk in (1, 2, 3):
        for at in (0, 5, T - 1):
            xs = (numbers(T, BATCH, WIDTH), (torch.arange(T) == at) | (torch.arange(T) % 4 == 3))
            compare(f, numbers(BATCH, WIDTH), xs, cell.parameters(), chunk=chunk)


def test_one_tensor_as_two_carries_and_two_outputs():
    cell = torch.nn.GRUCell(WIDTH, WIDTH)

    def f(carry, x):
        h = cell(x, carry[0] + carry[1] * 0.1)
        return (h, h), (h, h)

    init, xs = (numbers(BATCH, WIDTH), numbers(BATCH, WIDTH)), numbers(T, BATCH, WIDTH)
    wanted = gradients(weighted(*loop(f, init, xs)), [*init, xs, *cell.parameters()])
    for chunk in (1, 3):
        found = gradients(
            weighted(*ebb.scan(f, init, xs, budget=least(f, init, xs, chunk=chunk), chunk=chunk)),
            [*init, xs, *cell.parameters()],
        )
        # What comes to the one tensor by two ways is added for each way first.
        for ours, theirs in zip(found, wanted):
            assert torch.allclose(ours, theirs, rtol=0, atol=float(theirs.abs().max()) * T * 2.0**-23)


def test_no_output_no_state_no_input():
    f, params = rnn()
    compare(lambda h, x: (f(h, x)[0], None), numbers(BATCH, WIDTH), numbers(T, BATCH, WIDTH), params, chunk=2)
    compare(lambda none, x: (None, x.tanh() * params[0].sum()), None, numbers(T, WIDTH), params, budget=10**9)
    compare(lambda h, none: ((h * params[0].mean()).tanh(), h), numbers(WIDTH), None, params, length=T, chunk=1)


def test_inputs_in_a_structure():
    def f(h, x):
        gate = x["gate"] if x["nothing"] is None else 0
        h = h * gate + x["pair"][0] * x["pair"][1].to(h.dtype)
        return h, {"h": h, "count": x["pair"][1] + 1}

    xs = {"gate": numbers(T, WIDTH), "pair": [numbers(T, WIDTH), torch.randint(0, 5, (T, 1))], "nothing": None}
    compare(f, numbers(WIDTH), xs, chunk=3)


def test_inputs_as_arrays_and_as_a_function():
    f, params = rnn()
    init = numbers(BATCH, WIDTH)
    array = np.random.default_rng(1).standard_normal((T, BATCH, WIDTH), dtype=np.float32)
    compare(f, init, array, params)
    asked = []

    def at(t):
        asked.append(t)
        return torch.from_numpy(array[t])

    compare(f, init, at, params, length=T)
    assert set(asked) == set(range(T))
    compare(f, init, at, params, length=T, reverse=True)
    compare(f, init, np.ascontiguousarray(array[::-1])[::-1], params)


@pytest.mark.parametrize("chunk", [1, 5, None])
@pytest.mark.parametrize("reverse", [False, True])
@pytest.mark.parametrize("reduce", [None, "sum", "mean"])
@pytest.mark.sweep(6)
def test_reverse_reduce_and_length(reduce, reverse, chunk):
    f, params = rnn()

    def both(h, x):
        h, y = f(h, x)
        return h, (y, (y * y).sum())

    xs = numbers(T, BATCH, WIDTH)
    for length in (T, 7, 1, None):
        compare(both, numbers(BATCH, WIDTH), xs, params, reduce=reduce, reverse=reverse, length=length, chunk=chunk)


def test_a_carry_that_is_the_output_and_a_mean_of_it():
    f, params = rnn()
    compare(f, numbers(BATCH, WIDTH), numbers(T, BATCH, WIDTH), params, reduce="mean", chunk=1)


@pytest.mark.parametrize("steps", [1, 2, 3])
@pytest.mark.parametrize("chunk", [1, 2, 100, None])
def test_short_sequences(steps, chunk):
    f, params = rnn()
    init, xs = numbers(BATCH, WIDTH), numbers(steps, BATCH, WIDTH)
    compare(f, init, xs, params, chunk=chunk)
    compare(f, init, xs, params, chunk=chunk, budget=10**9)


def test_no_steps_at_all():
    f, params = rnn()
    init = numbers(BATCH, WIDTH)
    for budget in (None, 0, 10**9):
        carry, ys = ebb.scan(f, init, numbers(0, BATCH, WIDTH), budget=budget)
        assert torch.equal(carry, init) and ys is None
        weighted(carry).backward()
    assert ebb.scan(f, init, None, length=0, budget=0)[1] is None


# ------------------------------------------------------------------------------------------------ dtypes, layouts


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.bfloat16, torch.float16, torch.complex64])
def test_dtypes(dtype):
    weight = numbers(WIDTH, WIDTH, dtype=dtype)

    def f(h, x):
        h = (h @ weight + x) * 0.5
        return h, h * h

    compare(f, numbers(BATCH, WIDTH, dtype=dtype), numbers(T, BATCH, WIDTH, dtype=dtype), [weight], chunk=2)


def test_mixed_dtypes_integer_carries_and_outputs_without_gradients():
    weight = numbers(WIDTH)

    def f(carry, x):
        h, count, flag, precise = carry
        h = torch.where(flag, h * weight + x, h - x)
        precise = precise + h.sum().double()
        return (h, count + 1, ~flag, precise), (h, count, h.detach(), precise)

    init = (
        numbers(WIDTH),
        torch.zeros((), dtype=torch.int64),
        torch.tensor(True),
        torch.zeros((), dtype=torch.float64),
    )
    compare(f, init, numbers(T, WIDTH), [weight], chunk=2)
    carry, ys = ebb.scan(f, init, numbers(T, WIDTH), budget=least(f, init, numbers(T, WIDTH), chunk=2), chunk=2)
    assert carry[0].requires_grad and not carry[1].requires_grad
    assert [y.requires_grad for y in ys] == [True, False, False, True]


def test_layouts_of_inputs_and_states():
    f, params = rnn()
    batch_first = numbers(BATCH, T, WIDTH, grad=False).transpose(0, 1).requires_grad_()
    compare(f, numbers(WIDTH, BATCH, grad=False).t().requires_grad_(), batch_first, params)
    every_second = numbers(2 * T, BATCH, WIDTH, grad=False)[::2].requires_grad_()
    compare(f, numbers(BATCH, WIDTH), every_second, params)
    compare(
        f,
        numbers(1, WIDTH, grad=False).expand(BATCH, WIDTH),
        numbers(1, BATCH, WIDTH, grad=False).expand(T, BATCH, WIDTH),
        params,
    )


def test_tensors_without_elements():
    def f(h, x):
        h = h * 0.5 + x
        return h, h.sum()

    compare(f, numbers(0, WIDTH), numbers(T, 0, WIDTH), budget=10**6)
    weight = numbers(WIDTH)
    compare(
        lambda c, x: ((c[0] * weight, c[1] + 1), c[0]), (numbers(WIDTH), numbers(0)), numbers(T, 0), [weight], chunk=1
    )


# ------------------------------------------------------------------------------------------------ parameters


def test_frozen_parameters_get_nothing():
    cell = torch.nn.GRUCell(WIDTH, WIDTH)
    cell.weight_hh.requires_grad_(False)
    init, xs = numbers(BATCH, WIDTH), numbers(T, BATCH, WIDTH)

    def f(h, x):
        h = cell(x, h)
        return h, h

    compare(f, init, xs, cell.parameters(), chunk=1)
    assert cell.weight_hh.grad is None
    cell.requires_grad_(False)
    compare(f, init, xs, chunk=1)
    compare(f, init.detach(), xs, chunk=1)
    compare(f, init, xs.detach(), chunk=1)
    h, hs = ebb.scan(f, init.detach(), xs.detach(), budget=0)
    assert not h.requires_grad and not hs.requires_grad


def test_tied_weights_and_weights_used_outside():
    embedding = torch.nn.Embedding(7, WIDTH)
    cell = torch.nn.RNNCell(WIDTH, WIDTH)
    cell.weight_hh = cell.weight_ih
    tokens = torch.randint(0, 7, (T, BATCH))
    params = [embedding.weight, *cell.parameters()]

    def f(h, x):
        h = cell(x, h)
        return h, h @ embedding.weight.t()

    def step_by_step(run, **options):
        init = torch.zeros(BATCH, WIDTH) + cell.bias_ih
        h, logits = run(f, init, embedding(tokens), **options)
        return h, logits, gradients(weighted(h, logits) + (embedding.weight**2).sum(), params)

    h, logits, wanted = step_by_step(loop)
    budget = least(f, numbers(BATCH, WIDTH), numbers(T, BATCH, WIDTH), chunk=1)
    found_h, found_logits, found = step_by_step(ebb.scan, budget=budget, chunk=1)
    same((found_h, found_logits), (h, logits))
    # The uses outside and inside are added in another order than in one graph: one rounding for each of the T + 3 terms.
    for ours, theirs in zip(found, wanted):
        scale = theirs.abs().max() * (T + 3) * torch.finfo(torch.float32).eps
        assert torch.allclose(ours, theirs, rtol=0, atol=float(scale) * 4)


def test_gradients_add_up_over_calls():
    f, params = rnn()
    data = [(numbers(BATCH, WIDTH), numbers(T, BATCH, WIDTH)) for _ in range(3)]
    budget = least(f, *data[0], chunk=1)

    def accumulated(run, **options):
        for param in params:
            param.grad = None
        for init, xs in data:
            weighted(*run(f, init.detach(), xs.detach(), **options)).backward()
        return [param.grad.clone() for param in params]

    same(accumulated(ebb.scan, budget=budget, chunk=1), accumulated(loop))

# SPDX-License-Identifier: Apache-2.0
"""ebb.scan: budgets alone and shared, arguments that cannot be, threads."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest

torch = pytest.importorskip("torch", reason="PyTorch is not installed")
from scan_cases import BATCH, WIDTH, T, numbers, rnn  # noqa: E402
from scan_oracle import clones, compare, gradients, least, loop, same, wanting, weighted  # noqa: E402

import ebb  # noqa: E402
from ebb._tensor.memory import LiveBytes  # noqa: E402

torch.set_num_threads(1)


@pytest.fixture(autouse=True)
def seed() -> None:
    torch.manual_seed(1)


# ------------------------------------------------------------------------------------------------ budgets


@pytest.mark.parametrize(("steps", "chunk"), [(30, 1), (400, None)])
def test_shares_and_words_become_bytes_as_probe_says(steps, chunk):
    f, params = rnn()
    init, xs = numbers(BATCH, WIDTH), numbers(steps, BATCH, WIDTH)
    found = ebb.probe(f, init, xs, chunk=chunk)
    wanted = {"50%": found.store_all // 2, "speed": found.store_all, "memory": found.least}
    for said, total in wanted.items():
        for _ in range(2):  # measured, and remembered
            ebb.scan(f, init, xs, budget=said, chunk=chunk)
            report = ebb.last_report()
            assert report.budget == total and (report.strategy == "store_all") == (said == "speed")
            assert any(f"budget '{said}' is" in remark for remark in report.remarks)
    assert found.at("50%").budget == wanted["50%"] and found.at("speed").forwards == steps


def test_a_balanced_budget_lies_between():
    f, params = rnn()
    init, xs = numbers(BATCH, WIDTH), numbers(30, BATCH, WIDTH)
    found = ebb.probe(f, init, xs, chunk=1)
    report = compare(f, init, xs, params, budget="balanced", chunk=1)
    assert found.least <= report.budget <= found.store_all  # by the clock: two measurements may disagree


def test_a_share_that_is_too_small_says_what_it_is():
    f, params = rnn()
    init, xs = numbers(BATCH, WIDTH), numbers(30, BATCH, WIDTH)
    with pytest.raises(ebb.Error, match="budget '0.1%' is .* where keeping everything takes") as caught:
        ebb.scan(f, init, xs, budget="0.1%", chunk=1)
    compare(f, init, xs, params, budget=caught.value.least_budget, chunk=1)


@pytest.mark.parametrize("calls", [2, 3])
def test_one_budget_for_several_scans(calls):
    f, params = rnn(WIDTH)
    xs = numbers(30, BATCH, WIDTH)
    inits = [numbers(BATCH, WIDTH) for _ in range(calls)]
    one = least(f, inits[0], xs, chunk=1)
    budget = ebb.Budget(one * (calls + 3))

    def model(run, **options):
        ys, found = xs, []
        for init in inits:
            h, ys = run(f, init, ys, **options)
            found.append(h)
        return weighted(found, ys), (found, ys)

    loss, outputs = model(loop)
    wanted = gradients(loss, [xs, *inits])
    for _ in range(2):
        loss, found = model(ebb.scan, budget=budget, chunk=1)
        same(found, outputs)
        assert budget.held <= budget.total
        same(gradients(loss, [xs, *inits]), wanted)
        del loss, found
        assert budget.held == 0
    assert 0 < budget.peak <= budget.total


def test_a_shared_budget_that_is_too_small_names_the_least():
    f, params = rnn()
    init, xs = numbers(BATCH, WIDTH), numbers(30, BATCH, WIDTH)
    one = least(f, init, xs, chunk=1)

    def both(budget):
        h, ys = ebb.scan(f, init, xs, budget=budget, chunk=1)
        return ebb.scan(f, h, ys, budget=budget, chunk=1)

    with pytest.raises(ebb.Error) as caught:
        both(ebb.Budget(one + 1))
    assert caught.value.code == "infeasible_budget"
    wanted = gradients(weighted(*loop(f, *loop(f, init, xs))), [init, xs])
    same(gradients(weighted(*both(ebb.Budget(caught.value.least_budget))), [init, xs]), wanted)


def nested(levels, run, f, **options):
    """The step of a loop around so many loops."""

    def around(step):
        def outer(h, x):
            h, ys = run(step, h, x, **options)
            return h, ys.sum(0)

        return outer

    for _ in range(levels):
        f = around(f)
    return f


@pytest.mark.parametrize("levels", [1, 2])
def test_scans_inside_of_scans_share_a_budget(levels):
    """The least budget that is named works, and what is held in any is within it, whatever the calls inside hold."""
    cell = torch.nn.RNNCell(16, 16, dtype=torch.float64)
    f, params = lambda h, x: (cell(x, h), h), list(cell.parameters())
    init, xs = (numbers(*shape, 8, 16, dtype=torch.float64) for shape in ([], [4, 3, 5][: levels + 1]))
    wanted = gradients(weighted(*loop(nested(levels, loop, f), init, xs)), [init, xs, *params])

    def scanned(budget):
        return ebb.scan(nested(levels, ebb.scan, f, budget=budget, chunk=1), init, xs, budget=budget, chunk=1)

    small = pytest.raises(ebb.Error, scanned, ebb.Budget(1)).value.least_budget
    for total in (small, 2 * small):
        budget = ebb.Budget(total)
        for _ in range(2):
            found = gradients(weighted(*scanned(budget)), [init, xs, *params])
            same(found[:2], wanted[:2])
            # Each scan adds up what it gives to parameters before it gives it to the one around it.
            assert all(torch.allclose(ours, theirs, rtol=1e-9) for ours, theirs in zip(found[2:], wanted[2:]))
            assert budget.held == 0
        with LiveBytes() as counted:
            h, ys = scanned(budget)
            (h.sum() + ys.sum()).backward()
        callers = sum(2 * t.numel() * 8 for t in (h, ys)) + sum(t.grad.numel() * 8 for t in [init, xs, *params])
        assert counted.peak - callers <= total + 4096
        assert 0 < budget.peak <= total


def test_a_shared_budget_survives_a_failure():
    f, params = rnn()
    init, xs = numbers(BATCH, WIDTH), numbers(30, BATCH, WIDTH)
    budget = ebb.Budget(least(f, init, xs, chunk=1) + 100)
    calls = []

    def fails(h, x):
        calls.append(1)
        if len(calls) == 25:
            raise ValueError("step 25")
        return f(h, x)

    kept = []
    for _ in range(3):
        calls.clear()
        with pytest.raises(ValueError) as caught:
            ebb.scan(fails, init, xs, budget=budget, chunk=1)
        kept.append(caught)
        assert budget.held == 0
    wanted = gradients(weighted(*loop(f, init, xs)), [init, xs])
    same(gradients(weighted(*ebb.scan(f, init, xs, budget=budget, chunk=1)), [init, xs]), wanted)


def test_random_numbers_from_a_later_step_on_in_a_shared_budget():
    f, params = rnn()
    init, xs = numbers(BATCH, WIDTH), numbers(30, BATCH, WIDTH)

    def drops(carry, x):
        h, count = carry
        if int(count) > 5:
            h = torch.nn.functional.dropout(h, 0.5)
        h, y = f(h, x)
        return (h, count + 1), y

    start = (init, torch.zeros((), dtype=torch.int64))
    budget = ebb.Budget(3 * least(drops, start, xs, chunk=1) + 3 * torch.get_rng_state().numel())
    torch.manual_seed(4)
    wanted = gradients(weighted(*loop(drops, start, xs)), [init, xs])
    for _ in range(3):
        torch.manual_seed(4)
        same(gradients(weighted(*ebb.scan(drops, start, xs, budget=budget, chunk=1)), [init, xs]), wanted)
        assert budget.held == 0


def test_budgets_in_words_and_numbers():
    f, params = rnn()
    init, xs = numbers(BATCH, WIDTH), numbers(30, BATCH, WIDTH)
    number = least(f, init, xs, chunk=1)
    for budget in (number, str(number), f"{number}B", np.int64(number)):
        compare(f, init, xs, params, budget=budget, chunk=1)
    assert compare(f, init, xs, params, budget="64KiB", chunk=1).budget == 65536


def test_a_chunk_that_is_not_given_shrinks_to_fit():
    f, params = rnn()
    init, xs = numbers(BATCH, WIDTH), numbers(400, BATCH, WIDTH)
    small = least(f, init, xs)
    assert small < least(f, init, xs, chunk=4)
    compare(f, init, xs, params, budget=small + 2000)


# ------------------------------------------------------------------------------------------------ arguments


@pytest.mark.parametrize(
    "options",
    [
        {"budget": -1},
        {"budget": 1.5},
        {"budget": True},
        {"budget": "lots"},
        {"budget": [1]},
        {"chunk": 0},
        {"chunk": -1},
        {"chunk": 1.0},
        {"chunk": True},
        {"reduce": "max"},
        {"strategy": "best"},
        {"length": -1},
        {"length": T + 1},
        {"length": 2.0},
        {"length": True},
        {"params": [1]},
        {"params": 3},
        {"tiers": ["disk"]},
        {"tiers": 3},
    ],
    ids=str,
)
def test_impossible_arguments_are_refused_by_name(options):
    f, params = rnn()
    name = next(iter(options))
    with pytest.raises(ebb.Error, match=name):
        ebb.scan(f, numbers(BATCH, WIDTH), numbers(T, BATCH, WIDTH), **{"budget": 10**6, **options})


@pytest.mark.parametrize(
    "init, xs, words",
    [
        (1.0, torch.zeros(T, 3), "init"),
        ("h", torch.zeros(T, 3), "init"),
        (torch.zeros(3), "xs", "xs"),
        (torch.zeros(3), torch.zeros(()), "time"),
        (torch.zeros(3), None, "length"),
        (torch.zeros(3), {}, "length"),
        (torch.zeros(3), (torch.zeros(T, 3), torch.zeros(T + 1, 3)), "time steps"),
        (torch.zeros(3), [1.0, 2.0], "xs"),
    ],
)
@pytest.mark.parametrize("budget", [None, 10**6])
def test_impossible_trees_are_refused(init, xs, words, budget):
    with pytest.raises(ebb.Error, match=words):
        ebb.scan(lambda h, x: (h, h), init, xs, budget=budget)


@pytest.mark.parametrize(
    "result, words",
    [
        (lambda h, t: h, "carry, y"),
        (lambda h, t: None, "carry, y"),
        (lambda h, t: [h, h], "carry, y"),
        (lambda h, t: (h, h, h), "carry, y"),
        (lambda h, t: ((h, h), h), "structure"),
        (lambda h, t: (h.double(), h), "dtype"),
        (lambda h, t: (h[:2], h), "shape"),
        (lambda h, t: (None, h), "init"),
        (lambda h, t: (h, 1.0), "y"),
        (lambda h, t: (h, h if t else None), "y"),
        (lambda h, t: (h, None if t > 5 else h), "y"),
        (lambda h, t: (h, h[:2] if t > 5 else h), "y"),
        (lambda h, t: (h, h.double() if t > 5 else h), "y"),
        (lambda h, t: (h, (h, h) if t > 5 else h), "y"),
        (lambda h, t: (h if t < 6 else h.double(), h), "dtype"),
    ],
)
@pytest.mark.parametrize("budget", ["some", None])
@pytest.mark.parametrize("chunk", [1, 4])
def test_impossible_results_of_f_are_refused(result, words, budget, chunk):
    weight = numbers(WIDTH)

    def f(h, t):
        return result((h * weight).tanh(), int(t))

    with pytest.raises(ebb.Error, match=words):
        ebb.scan(f, numbers(WIDTH), torch.arange(40), budget=None if budget is None else "6KiB", chunk=chunk)


# ------------------------------------------------------------------------------------------------ threads


@pytest.mark.slow
def test_two_threads_scan_at_once():
    cases = []
    for k in range(2):
        f, params = rnn()
        init, xs = numbers(BATCH, WIDTH), numbers(50 + k, BATCH, WIDTH)
        wanted = gradients(weighted(*loop(f, init, xs)), [init, xs, *params])
        cases.append((f, params, init, xs, wanted, least(f, init, xs, chunk=1)))

    def many(case):
        f, params, init, xs, wanted, budget = case
        for _ in range(10):
            own = clones([init, xs])
            h, hs = ebb.scan(f, *own, budget=budget, chunk=1)
            same(gradients(weighted(h, hs), [*wanting(own), *params]), wanted)
            assert ebb.last_report().steps == len(xs)
        return True

    with ThreadPoolExecutor(2) as pool:
        assert all(pool.map(many, cases))


@pytest.mark.parametrize("strategy, other", [("auto", ""), ("revolve", "take strategy auto, or ")])
def test_a_budget_that_is_too_small_has_a_remedy_for_this_loop(strategy, other):
    f, params = rnn()
    init, xs = numbers(BATCH, WIDTH), numbers(30, BATCH, WIDTH)
    with pytest.raises(ebb.Error) as caught:
        ebb.scan(f, init, xs, budget=100, chunk=1, strategy=strategy)
    assert caught.value.remedy == f"raise the budget, {other or 'or '}take a smaller chunk"
    assert str(caught.value).startswith("scan: ") and "smaller step" not in str(caught.value)
    stages = torch.nn.Sequential(*(torch.nn.Linear(WIDTH, WIDTH) for _ in range(12)))
    with pytest.raises(ebb.Error) as caught:
        ebb.Chain(stages, init, 100, strategy=strategy)(init)
    assert caught.value.remedy == f"raise the budget, {other or 'or '}split its largest stage"
    with pytest.raises(ebb.Error) as caught:
        ebb.nn.LSTM(WIDTH, 8, budget=1, strategy=strategy)(xs)
    assert caught.value.remedy == f"raise the budget, {other or 'or '}take a smaller chunk"


@pytest.mark.parametrize("budget", [None, "1MiB", "2KiB"])
def test_inputs_made_in_inference_mode(budget):
    layer = torch.nn.Linear(4, 4)
    with torch.inference_mode():
        xs = torch.randn(60, 2, 4)
    found = []
    for given, options in ((xs.clone(), {}), (xs, {"budget": budget})):
        _, ys = ebb.scan(lambda h, x: ((layer(h) + x).tanh(), h), torch.zeros(2, 4), given, **options)
        found.append(gradients(ys.sum(), layer.parameters()))
    same(*found)


def test_an_f_that_is_no_function():
    with pytest.raises(ebb.Error, match="f is None; it is a function"):
        ebb.scan(None, torch.zeros(1), torch.zeros(3, 1), budget=100)

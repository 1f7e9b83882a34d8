# SPDX-License-Identifier: Apache-2.0
"""The chunk of a scan as a part of its plan: the law, the choice among lengths, and that no bit depends on it."""

from __future__ import annotations

import random

import pytest

torch = pytest.importorskip("torch", reason="PyTorch is not installed")
from scan_cases import BATCH, WIDTH, numbers, rnn  # noqa: E402
from scan_oracle import compare, least  # noqa: E402

import ebb  # noqa: E402
from ebb import _core  # noqa: E402
from ebb._base.cache import cache  # noqa: E402
from ebb._loop import chunking  # noqa: E402
from ebb._loop.costs import Costs  # noqa: E402
from ebb._loop.cut import Terms, lengths, needs_least, ranked  # noqa: E402
from ebb._loop.law import Law  # noqa: E402
from ebb._loop.offers import Offer, plan_in  # noqa: E402

torch.set_num_threads(1)


@pytest.fixture(autouse=True)
def seed() -> None:
    torch.manual_seed(1)


def law(knee: float = 2.0, tape: int = 4000, state: int = 1000, scratch: int = 500) -> Law:
    """Of blocks whose time steps take a millisecond."""

    def costs(length: int) -> Costs:
        seconds = 1e-3 * (length + knee)
        return Costs(state, tape * length + state, scratch * length, seconds, 1.2 * seconds, 2 * seconds, 3 * seconds)

    return Law((1, costs(1)), (16, costs(16)), _core.Chain.uniform(1, costs(16).step_cost()))


def terms(of: Law, budget: int, tiers: list | None = None) -> Terms:
    return Terms(lambda length: of.costs(length).step_cost(), _core.Platform(fast=budget, tiers=tiers or []))


def seconds(steps: int, length: int, on: Terms, strategy: str = "auto") -> float:
    how = _core.PlanOptions()
    how.strategy, how.tapes_stay = strategy, True
    try:
        return _core.make_plan(on.chain(steps, length), on.platform, how).prediction.seconds
    except ebb.Error:
        return float("inf")


# ------------------------------------------------------------------------------------------------ the law


def test_a_law_is_affine_and_exact_where_it_was_measured():
    of = law(knee=2.0, tape=4000, state=1000)
    assert of.costs(1) == of.short[1] and of.costs(16) == of.long[1]
    assert abs(of.knee - 2.0) < 1e-9
    for length in (2, 5, 40, 1000):
        found = of.costs(length)
        assert abs(found.tape - (4000 * length + 1000)) <= 1 and abs(found.scratch - 500 * length) <= 1
        assert found.state == 1000 and abs(found.forward - 1e-3 * (length + 2)) < 1e-9


def test_a_law_does_not_fall_below_its_short_block():
    of = law()
    noisy = Law(of.short, (16, of.short[1]), of.raw)
    assert noisy.costs(500) == of.short[1] and noisy.knee == 0


def test_heavier_blocks_make_all_lengths_heavier():
    of = law()
    before = of.costs(8).tape
    of.heavier = 2.0
    assert of.costs(8).tape == 2 * before and of.costs(1).tape == 2 * of.short[1].tape


# ------------------------------------------------------------------------------------------------ the choice


@pytest.mark.parametrize("steps", [1, 2, 3, 16, 100, 1000, 1023])
def test_lengths_are_few_and_even(steps):
    found = lengths(steps)
    assert found[-1] == 1 and found == sorted(set(found), reverse=True) and len(found) <= 18
    for length in found:
        blocks = -(-steps // length)
        assert -(-steps // blocks) == length  # no shorter blocks would be as many


def test_the_choice_is_nearly_the_best_of_all_lengths():
    draw = random.Random(4)
    worst, shorter, longer = 1.0, 0, 0
    for _ in range(12):
        steps = draw.choice([30, 60, 150])
        of = law(draw.choice([0, 0.5, 3, 20]), draw.choice([500, 4000, 20_000]), 1000, draw.choice([0, 300]))
        budget = int(draw.choice([0.03, 0.1, 0.4]) * steps * of.costs(1).tape) + 6000
        on = terms(of, budget)
        every = {length: seconds(steps, length, on) for length in range(1, steps // 2 + 1)}
        best = min(every.values())
        chosen = ranked(steps, [on], "auto")[0]
        if best == float("inf"):
            assert chosen == 1
            continue
        worst = max(worst, seconds(steps, chosen, on) / best)
        shorter += chosen < 8
        longer += chosen >= 8
    assert worst < 1.1 and shorter > 1 and longer > 1


def test_where_a_fixed_chunk_was_worse():
    """A budget that holds one long block: the longest that fits runs its steps again many times."""
    steps, of = 1000, law(knee=1.0)
    on = terms(of, of.costs(16).tape + of.costs(16).scratch + 4 * 1000)
    chosen = ranked(steps, [on], "auto")[0]
    assert seconds(steps, 16, on) < float("inf") and chosen < 16
    assert seconds(steps, chosen, on) < 0.75 * seconds(steps, 16, on)
    # And one that holds much, of a loop whose blocks are mostly overhead.
    steps, of = 100, law(knee=10.0)
    on = terms(of, 30 * of.costs(1).tape)
    chosen = ranked(steps, [on], "auto")[0]
    assert seconds(steps, chosen, on) < 0.5 * seconds(steps, 1, on)


def test_the_last_of_the_choice_needs_least():
    of = law()
    length, needed = needs_least(300, [terms(of, 0)], "auto")
    assert length == 1
    how = _core.PlanOptions()
    how.tapes_stay = True
    assert needed == _core.least_budget(_core.Chain.uniform(300, of.costs(1).step_cost()), _core.Platform(), how)
    assert ranked(300, [terms(of, needed - 1)], "auto") == [1]
    assert ranked(300, [terms(of, needed)], "auto")[-1] == 1
    # To keep all, few long blocks take less: they share what each has beside its tape.
    length, needed = needs_least(300, [terms(of, 0)], "store_all")
    assert length > 1 and needed < 300 * of.costs(1).tape


def test_the_usual_length_is_left_for_a_clear_gain_only():
    of = law(knee=2.0)
    on = terms(of, 200 * of.costs(1).tape)
    assert ranked(1000, [on], "auto", usual=16)[0] == 16 != ranked(1000, [on], "auto")[0]


# ------------------------------------------------------------------------------------------------ tiers


def test_tiers_never_make_a_plan_slower():
    draw = random.Random(3)
    used = 0
    for _ in range(60):
        steps = draw.choice([3, 10, 40, 150])
        of, length = law(draw.choice([0, 3]), draw.choice([300, 4000])), draw.choice([1, 4])
        costs = of.costs(length)
        budget = int(draw.random() ** 2 * steps * costs.tape) + costs.tape + costs.scratch + 3000
        speed = _core.TierSpeed(
            "host", capacity=10**6, write_rate=10 ** draw.uniform(4, 8), read_rate=10 ** draw.uniform(4, 8)
        )
        bare = Offer(_core.Chain.uniform(steps, costs.step_cost()), torch.device("cpu"))
        over = Offer(_core.Chain.uniform(steps, costs.step_cost(draw.choice([0, 4000]))), torch.device("cpu"), [speed])
        options = chunking.Options(chunking.Allowance(budget))
        found = plan_in("scan", [over, bare], budget, options)
        without = plan_in("scan", [bare], budget, options)[1].prediction.seconds
        assert found[1].prediction.seconds <= without * (1 + 1e-9)
        used += found[0] is over and any(map(any, found[1].prediction.moved))
    assert used > 2


@pytest.mark.usefixtures("even_clock")
def test_a_tier_that_is_too_slow_is_left_alone(tmp_path, monkeypatch):
    f, params = rnn()
    slow = {"capacity": 1 << 20, "write_rate": 1.0, "read_rate": 1.0}  # bytes a second, where steps take seconds
    monkeypatch.setattr("ebb._loop.offers.speed_of", lambda tier, *_: _core.TierSpeed(tier.name, **slow))
    init, xs = numbers(BATCH, WIDTH), numbers(60, BATCH, WIDTH)
    tier = ebb.file_tier(str(tmp_path), "1MiB")
    budget = least(f, init, xs, chunk=1) + 2000
    compare(f, init, xs, params, budget=budget, chunk=1)
    alone = ebb.last_report().predicted["forwards"]
    report = compare(f, init, xs, params, budget=budget, chunk=1, tiers=[tier])
    # Buffers for it would leave less room for states.
    assert report.predicted["forwards"] == alone


# ------------------------------------------------------------------------------------------------ scan


@pytest.mark.parametrize("share", [0.3, 0.6])
def test_every_choice_has_the_same_bits(share, monkeypatch):
    f, params = rnn()
    init, xs = numbers(BATCH, WIDTH), numbers(100, BATCH, WIDTH)
    budget = int(share * ebb.probe(f, init, xs).store_all)
    steps = set()
    for length in lengths(100):
        monkeypatch.setattr(chunking, "ranked", lambda *_, length=length: [length, 1])
        monkeypatch.setattr(chunking, "_choices", cache.section())
        steps.add(compare(f, init, xs, params, budget=budget).steps)
    assert len(steps) > 2


def test_what_was_chosen_is_remembered(monkeypatch):
    f, params = rnn()
    init, xs = numbers(BATCH, WIDTH), numbers(100, BATCH, WIDTH)
    whole = ebb.probe(f, init, xs).store_all
    monkeypatch.setattr(chunking, "_laws", cache.section())
    asked, measured = [], []
    real, own = chunking.ranked, chunking.measured
    monkeypatch.setattr(chunking, "ranked", lambda *args: asked.append(args) or real(*args))
    monkeypatch.setattr(chunking, "measured", lambda *args: measured.append(args) or own(*args))
    for _ in range(3):
        compare(f, init, xs, params, budget=whole // 3)
    assert len(asked) == len(measured) == 1
    compare(f, init, xs, params, budget=whole // 2)
    assert len(asked) == 2 and len(measured) == 1
    compare(f, init, xs, params, budget=whole // 2, chunk=7)
    assert len(asked) == 2 and ebb.last_report().steps == 15


def test_the_least_budget_is_that_of_the_length_that_needs_least():
    f, params = rnn()
    init, xs = numbers(BATCH, WIDTH), numbers(200, BATCH, WIDTH)
    small = least(f, init, xs)
    assert small == min(least(f, init, xs, chunk=length) for length in (1, 2, 4, 8))
    with pytest.raises(ebb.Error) as caught:
        ebb.scan(f, init, xs, budget=small - 1)
    assert caught.value.least_budget == small
    compare(f, init, xs, params, budget=small)
    assert ebb.probe(f, init, xs).least == small
    ebb.scan(f, init, xs, budget="memory")
    assert ebb.last_report().budget == small


def test_probe_takes_the_chunk_that_scan_takes():
    f, params = rnn()
    init, xs = numbers(BATCH, WIDTH), numbers(400, BATCH, WIDTH)
    found = ebb.probe(f, init, xs)
    for share in (0.1, 0.5):
        budget = int(share * found.store_all)
        point = found.at(budget)
        ebb.scan(f, init, xs, budget=budget)
        report = ebb.last_report()
        forwards = report.predicted["forwards"] * 400 / report.steps
        assert abs(point.forwards - forwards) <= 0.1 * forwards


def test_shared_budgets_divide_by_what_the_loop_needs():
    f, params = rnn()
    init, xs = numbers(BATCH, WIDTH), numbers(100, BATCH, WIDTH)
    budget = ebb.Budget(6 * least(f, init, xs))
    for _ in range(3):
        h, ys = ebb.scan(f, init, xs, budget=budget)
        h, ys = ebb.scan(f, h, ys, budget=budget)
        (h.sum() + ys.sum()).backward()
        assert budget.held == 0
    assert 0 < budget.peak <= budget.total


def test_under_autocast_no_clock_chooses(monkeypatch):
    monkeypatch.setattr("ebb._loop.law._in_turns", lambda *_: pytest.fail("timed"))
    weight = numbers(WIDTH, WIDTH)
    init, xs = numbers(BATCH, WIDTH), numbers(100, BATCH, WIDTH)

    def f(h, x):
        h = torch.tanh((h + x) @ weight).float()
        return h, h

    with torch.autocast("cpu", torch.bfloat16):
        ebb.scan(f, init, xs, budget="50%")
    assert 1 < ebb.last_report().steps < 100

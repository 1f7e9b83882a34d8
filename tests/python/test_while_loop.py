# SPDX-License-Identifier: Apache-2.0
"""Loops of unknown length against the loop written by hand."""

from __future__ import annotations

import pytest

torch = pytest.importorskip("torch")

import ebb  # noqa: E402

pytestmark = pytest.mark.usefixtures("one_thread")


def setting():
    torch.manual_seed(0)
    weight = (0.3 * torch.randn(8, 8)).requires_grad_()

    def f(carry):
        count, x = carry
        return count + 1, torch.tanh(x @ weight) + 0.1

    start = torch.linspace(0, 1, 8).repeat(4, 1)
    return weight, f, start


def gradients(length, **options):
    weight, f, start = setting()
    torch.manual_seed(1)
    start = start.clone().requires_grad_()
    count, x = ebb.while_loop(lambda carry: carry[0] < length, f, (torch.tensor(0), start), **options)
    if not x.requires_grad:
        return [count, x]
    x.pow(2).sum().backward()
    return [count, x.detach(), start.grad] + ([weight.grad] if weight.grad is not None else [])


@pytest.mark.parametrize("length", [0, 1, 2, 3, 4, 5, 6, 7, 8, 50, 333])
@pytest.mark.parametrize("budget", [2600, 4000, "1MiB"])
@pytest.mark.sweep(8)
def test_same_bits_at_any_length(length, budget):
    plain = gradients(length)
    ours = gradients(length, budget=budget)
    assert len(plain) == len(ours)
    assert all(torch.equal(a, b) for a, b in zip(plain, ours))
    if length:
        assert ebb.last_report().steps == length
        assert ebb.last_report().measured["forwards"] >= length


def test_shares_and_words_are_of_the_expected_length():
    budgets = {}
    for said in ("speed", "50%", "balanced", "memory"):
        same = gradients(40, budget=said, expected=40)
        budgets[said] = ebb.last_report().budget
        assert all(torch.equal(a, b) for a, b in zip(same, gradients(40)))
    assert budgets["memory"] <= budgets["balanced"] <= budgets["speed"]
    assert budgets["50%"] == budgets["speed"] // 2


@pytest.mark.parametrize("expected", [10, 1000])
@pytest.mark.sweep(1)
def test_states_stream_to_a_file(tmp_path, expected):
    plain = gradients(400)
    ours = gradients(400, budget=8000, tiers=[ebb.file_tier(tmp_path, "1MiB")], expected=expected)
    assert all(torch.equal(a, b) for a, b in zip(plain, ours))
    assert ebb.last_report().measured["moved"]["disk"][0] > 0


def test_a_full_tier_is_an_error(tmp_path):
    with pytest.raises(ebb.Error):
        gradients(400, budget=8000, tiers=[ebb.file_tier(tmp_path, "1KiB")], expected=10)
    assert torch.equal(gradients(30)[2], gradients(30, budget=4000)[2])


def test_without_gradients_nothing_is_kept():
    weight, f, start = setting()
    with torch.no_grad():
        count, x = ebb.while_loop(lambda carry: carry[0] < 9, f, (torch.tensor(0), start), budget=1)
    assert int(count) == 9 and not x.requires_grad


def test_random_numbers_are_drawn_again_alike():
    found = []
    for budget in (None, 20_000):
        weight, f, start = setting()
        torch.manual_seed(5)
        _, x = ebb.while_loop(
            lambda c: c[0] < 60,
            lambda c: (c[0] + 1, f((c[0], torch.dropout(c[1], 0.2, True)))[1]),
            (torch.tensor(0), start),
            budget=budget,
        )
        x.sum().backward()
        found.append((weight.grad, torch.get_rng_state()))
    assert torch.equal(found[0][0], found[1][0]) and torch.equal(found[0][1], found[1][1])


@pytest.mark.parametrize(
    "wrong",
    [
        {"expected": 0},
        {"expected": True},
        {"budget": -1},
        {"budget": "much"},
        {"tiers": 3},
        {"budget": 1},
        {"strategy": "revolve", "budget": 4000},
    ],
)
def test_what_cannot_be_is_refused(wrong):
    weight, f, start = setting()
    with pytest.raises(ebb.Error):
        ebb.while_loop(lambda c: c[0] < 9, f, (torch.tensor(0), start), **{"budget": 4000, **wrong})

# SPDX-License-Identifier: Apache-2.0
"""What callers allow, as the package takes it."""

from __future__ import annotations

import copy
import pickle

import pytest

import ebb
from ebb import _core
from ebb._base.budget import allowance_of
from ebb._base.wish import Costs


def never():
    raise AssertionError("nobody need ask")


def test_plain_bytes_are_all_for_the_call():
    allowed = allowance_of("64KiB")
    assert (allowed.total, allowed.shared, repr(allowed)) == (65536, False, "65536")
    assert allowed.take(never) == allowed.take(never) == 65536
    assert allowed.part(3).total == 21845
    assert allowed.ledger is None and allowed.own_ledger() is not allowed.own_ledger()


def test_a_shared_budget_is_divided():
    budget = ebb.Budget(1000)
    allowed = allowance_of(budget)
    assert allowed.shared and allowed is allowance_of(budget) and allowed.part(3) is allowed
    assert allowed.own_ledger() is allowed.ledger
    assert allowed.take(lambda: (100, 900)) == 500  # half, since nothing is known
    assert allowed.take(lambda: (100, 100)) == 100
    with pytest.raises(ebb.Error, match=r"ebb.Budget\('1000 B'\): call 3 of this iteration") as caught:
        allowed.take(lambda: (500, 500))
    assert (caught.value.code, caught.value.least_budget) == ("infeasible_budget", 1100)
    allowed.cancel()
    allowed.give_back()
    assert allowed.take(lambda: (200, 2000)) == 500  # a new round, of which one call is known to be like the last


def test_whole_numbers_may_be_floats():
    assert allowance_of(2e9).total == ebb.Budget(2e9).total == 2_000_000_000


@pytest.mark.parametrize("given", ["20%", " 20 % ", "balanced", "speed", "memory"])
def test_shares_and_words_are_settled_by_the_costs_of_a_call(given):
    allowed = allowance_of(given)
    costs = Costs(1000, lambda: 1010, lambda: 100, lambda: [(100, 9.0), (300, 2.0), (1010, 1.0)])
    assert not allowed.settled and allowed.told == []
    allowed.settle(allowed.wish.bytes(costs), costs.whole)
    wanted = {"balanced": 300, "speed": 1010, "memory": 100}.get(given, 200)
    assert (allowed.total, allowed.settled, allowed.part(2).settled) == (wanted, True, False)
    assert allowed.told == [
        f"budget '{given.strip()}' is {_core.format_bytes(wanted)} where keeping everything takes 1000 B"
    ]


@pytest.mark.parametrize("given", ["20%", "balanced"])
def test_a_shared_budget_that_is_a_share_or_a_word_is_each_calls_own(given):
    budget = ebb.Budget(given)
    one, other = allowance_of(budget), allowance_of(budget)
    assert budget.total is None and repr(budget) == f"ebb.Budget('{given}')"
    assert one is not other and one.ledger is other.ledger and not one.settled and one.part(2).ledger is one.ledger
    assert pickle.loads(pickle.dumps(budget)).__dict__.keys() == budget.__dict__.keys()


@pytest.mark.parametrize(
    ("given", "words"),
    [
        (0.2, "did you mean '20%'"),
        (1.5, "whole number"),
        ("0.6", "did you mean '60%'"),
        ("0%", "above 0"),
        ("x%", "above 0"),
    ],
)
def test_what_was_meant_is_said(given, words):
    for read in (allowance_of, ebb.Budget):
        with pytest.raises(ebb.Error, match=words):
            read(given)


@pytest.mark.parametrize("given", [None, -1, 1.5, True, "much"])
def test_what_is_no_budget_is_refused(given):
    with pytest.raises(ebb.Error, match="budget"):
        allowance_of(given)


def test_copies_share_and_loaded_ones_do_not():
    budget = ebb.Budget("1KiB")
    assert copy.deepcopy(budget) is budget
    loaded = pickle.loads(pickle.dumps(budget))
    assert loaded.total == 1024 and allowance_of(loaded) is not allowance_of(budget)


def test_a_word_with_a_zero_byte_is_an_error_like_any_other():
    with pytest.raises(ebb.Error, match="budget"):
        ebb.Budget("1\0M")

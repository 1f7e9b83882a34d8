# SPDX-License-Identifier: Apache-2.0
"""What callers allow, as the package takes it."""

from __future__ import annotations

import copy
import pickle

import pytest

import ebb
from ebb._base.budget import allowance_of


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

# SPDX-License-Identifier: Apache-2.0
"""probe and verify."""

from __future__ import annotations

import itertools

import pytest

torch = pytest.importorskip("torch")

import ebb  # noqa: E402


@pytest.fixture
def loop():
    torch.set_num_threads(1)
    torch.manual_seed(0)
    cell = torch.nn.LSTMCell(6, 12)

    def f(carry, x):
        h, c = cell(torch.dropout(x, 0.1, True), carry)
        return (h, c), h

    zero = torch.zeros(4, 12)
    return f, (zero, zero), torch.randn(100, 4, 6)


def test_probe_predicts_what_scan_reports(loop):
    f, init, xs = loop
    state = torch.get_rng_state()
    found = ebb.probe(f, init, xs, chunk=2)
    assert torch.equal(state, torch.get_rng_state())
    assert found.least <= found.budget("balanced") <= found.store_all
    assert [p.slowdown for p in found.points] == sorted((p.slowdown for p in found.points), reverse=True)
    assert found.points[-1].forwards == 100 and abs(found.points[-1].slowdown - 1) < 1e-6
    budget = found.budget("balanced")
    ebb.scan(f, init, xs, budget=budget, chunk=2)
    assert 2 * ebb.last_report().predicted["forwards"] == found.at(budget).forwards
    assert "slowdown" in str(found)


def test_probe_refuses(loop):
    f, init, xs = loop
    found = ebb.probe(f, init, xs[:40])
    with pytest.raises(ebb.Error) as error:
        found.at(found.least - 1)
    assert error.value.least_budget == found.least
    with pytest.raises(ebb.Error, match="prefer"):
        found.budget("fast")
    with pytest.raises(ebb.Error, match="no time steps"):
        ebb.probe(f, init, xs[:0])


def test_verify_says_yes_and_no(loop):
    f, init, xs = loop
    found = ebb.verify(f, init, xs, budget="32KiB")
    assert found and found.worst == 0 and found.compared > 100 * 4 * 12
    assert found.report.strategy != "store_all"
    calls, still = itertools.count(), 240  # counted where ebb does not put it back

    def depends_on_calls(carry, x):
        count = next(calls)
        (h, c), y = f(carry, x)
        return (h + (1e-3 * count if count > still else 0), c), y

    wrong = ebb.verify(depends_on_calls, init, xs, budget="32KiB")
    assert not wrong and wrong.worst > 0 and "differences" in str(wrong)
    calls, still = itertools.count(), 150
    with pytest.raises(ebb.Error, match="another state when it was recomputed"):
        _, ys = ebb.scan(depends_on_calls, init, xs, budget="32KiB", verify=True)
        ys.sum().backward()

# SPDX-License-Identifier: Apache-2.0
"""What reports say, in words that a user of PyTorch knows."""

from __future__ import annotations

import pytest

torch = pytest.importorskip("torch", reason="PyTorch is not installed")

import ebb  # noqa: E402

pytestmark = pytest.mark.usefixtures("one_thread")


def ran(budget, **options):
    cell = torch.nn.GRUCell(3, 8)
    xs = torch.randn(400, 2, 3)
    reports = []
    for _ in range(2):
        ebb.scan(lambda h, x: (cell(x, h), None), torch.zeros(2, 8), xs, budget=budget, **options)[0].sum().backward()
        reports.append(ebb.last_report())
    return reports


def test_a_report_counts_time_steps_and_names_memory_device_and_strategy():
    _, report = ran("48KiB", chunk=4)
    assert (report.steps, report.length, report.chunk) == (100, 400, 4)
    text = str(report)
    again = 4 * (report.measured["forwards"] - 100)
    assert text.startswith("400 time steps in ") and f"of 48 KiB of memory (cpu), {again} of them recomputed" in text
    assert "each 4 steps" in text and "\n  memory  " in text and "fast" not in text
    summary = next(row.summary for row in ebb.strategies() if row.name == report.strategy)
    assert f"{report.strategy}: {summary}" in text
    assert report.as_dict()["time_steps"] == 400 and report.as_dict()["device"] == "cpu"


def test_the_chunk_is_that_of_all_blocks_but_a_shorter_last():
    _, report = ran("80%", chunk=150)
    assert (report.chunk, report.steps) == (150, 3) and report.as_dict()["chunk"] == 150
    assert "each 150 steps" in str(report)


def test_a_first_call_recommends_to_verify():
    first, second = ran("48KiB")
    assert any("ebb.verify" in remark for remark in first.remarks) and "ebb.verify" in str(first)
    assert not any("ebb.verify" in remark for remark in second.remarks)


def test_where_all_fits_it_says_so():
    report = ran("64MiB")[-1]
    assert report.slowdown == 1 and "everything kept, 1.00 x the time of a plain loop" in report.brief()


def test_slowdowns_are_told_against_plain_autograd():
    report = ran("48KiB", chunk=4)[-1]
    assert report.slowdown == max(1, report.predicted["seconds"] / (100 * report.costs.plain))
    assert report.costs.plain > 0


def test_a_while_loop_recommends_its_own_check():
    rate = torch.tensor(0.9, requires_grad=True)
    ebb.while_loop(lambda x: x > 0.01, lambda x: rate * x, torch.tensor(1.0), budget="1KiB").backward()
    report = ebb.last_report()
    assert report.length == 44 and "verify=True" in str(report)

# SPDX-License-Identifier: Apache-2.0
"""Plans and reports as pages. What pages look like in a browser is in test_view_page.py."""

import html
import json
import re

import pytest

import ebb


def data_of(page):
    return json.loads(re.search(r'<script type="application/json" id="data">(.*?)</script>', page, re.S)[1])


def framed(shown):
    assert shown.startswith("<iframe")
    return html.unescape(re.search(r'srcdoc="([^"]*)"', shown, re.S)[1])


def test_a_plan(tmp_path):
    plan = ebb.plan(100, state="1KiB", tape="4KiB", budget="40KiB", tiers=["disk:write=1GB/s,read=2GB/s"])
    path = tmp_path / "plan.html"
    data = data_of(plan.to_html(path))
    assert data == data_of(path.read_text(encoding="utf-8"))
    assert data["chosen"]["seconds"] == plan.seconds and data["chosen"]["bound"] == plan.bound_seconds
    assert data["curve"]["lines"]
    shown = data_of(framed(plan._repr_html_()))
    assert "curve" not in shown and shown["film"] == data["film"]


def test_a_long_plan_is_shown_at_once():
    shown = data_of(framed(ebb.plan(10**8, strategy="revolve", slots=10)._repr_html_()))
    assert "film" not in shown and "too many" in shown["remarks"][0]


def test_what_to_json_writes_makes_the_page(tmp_path):
    plan = ebb.plan(30, platform="laptop", state="1KiB", tape="4KiB", budget="30KiB")
    question = json.loads(plan.to_json())["question"]
    assert question["chain"]["repeat"] == 30 and question["platform"]["name"] == "laptop"
    assert data_of(ebb._core.document_page(plan.to_json(), "plan.json"))["chosen"]["seconds"] == plan.seconds


def test_a_report_of_run():
    np = pytest.importorskip("numpy")

    class Double:
        steps = 20

        def forward(self, i, u):
            return 2 * u

        def backward(self, i, before, after, adjoint):
            return 2 * adjoint

    report = ebb.run(Double(), np.ones(4), adjoint=np.ones(4), budget="1KiB").report
    rows = {row["what"]: row for row in data_of(report.to_html())["reports"][0]["rows"]}
    assert rows["Forward steps"]["measured"] == report.measured.forwards
    assert rows["Peak in fast"]["predicted"] == report.predicted.peak[0]
    assert data_of(framed(report._repr_html_()))["reports"]


@pytest.mark.parametrize("budget", ["8KiB", "1GiB"])
def test_a_report_of_scan(tmp_path, budget):
    torch = pytest.importorskip("torch", reason="PyTorch is not installed")
    cell = torch.nn.GRUCell(3, 8)
    xs = torch.randn(50, 2, 3)
    ebb.scan(lambda h, x: (cell(x, h), None), torch.zeros(2, 8), xs, budget=budget)[0].sum().backward()
    report = ebb.last_report()
    shown = data_of(report.to_html(str(tmp_path / "report.html")))["reports"][0]
    rows = {row["what"]: row for row in shown["rows"]}
    assert shown["strategy"] == report.strategy
    assert rows["Forward steps"]["predicted"] == report.predicted["forwards"]


def test_a_compression_report():
    torch = pytest.importorskip("torch", reason="PyTorch is not installed")
    conv, norm, relu = torch.nn.Conv2d(3, 8, 3), torch.nn.BatchNorm2d(8), torch.nn.ReLU()
    net = torch.nn.Sequential(conv, norm, relu, torch.nn.Conv2d(8, 8, 3))
    report = ebb.compression_report(ebb.compress(net), torch.randn(2, 3, 16, 16))
    data = data_of(report.to_html())
    assert [row[0] for row in data["tables"][0]["rows"]] == [row.layer or "(model)" for row in report.rows]
    assert sum(row["measured"] for row in data["bars"]["rows"]) == report.totals.kept


def test_a_path_that_cannot_be_written():
    with pytest.raises(OSError):
        ebb.plan(3).to_html("/nowhere/page.html")

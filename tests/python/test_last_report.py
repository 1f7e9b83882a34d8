# SPDX-License-Identifier: Apache-2.0
"""`ebb.last_report` tells about the latest call, never about an earlier one."""

from __future__ import annotations

import contextlib

import pytest

torch = pytest.importorskip("torch")

import ebb  # noqa: E402
import ebb.nn  # noqa: E402

torch.set_num_threads(1)
CELL = torch.nn.GRUCell(3, 8)
XS = torch.randn(60, 2, 3)


def step(h, x):
    h = CELL(x, h)
    return h, h


def scan(budget, xs=XS):
    return ebb.scan(step, torch.zeros(2, 8), xs, budget=budget)[0]


def while_loop(budget):
    return ebb.while_loop(lambda h: h.sum() < 1e9, lambda h: CELL(XS[0], h) + 1e9, torch.zeros(2, 8), budget=budget)


def chain(budget):
    net = torch.nn.Sequential(*[torch.nn.Linear(8, 8) for _ in range(4)])
    return ebb.Chain(net, torch.randn(2, 8), budget)(torch.randn(2, 8))


def layer(kind, dtype=torch.float32):
    def call(budget):
        own = getattr(ebb.nn, kind)(3, 8, budget=budget).to(dtype)
        return own(XS.to(dtype))[0]

    return call


CALLS = {
    "scan": scan,
    "while_loop": while_loop,
    "Chain": chain,
    "native layer": layer("LSTM"),
    "layer in chunks": layer("GRU", torch.bfloat16),
    "spiking layer": layer("LIF"),
    "spiking layer in plain torch": layer("LIF", torch.bfloat16),
}


@pytest.mark.parametrize("call", CALLS.values(), ids=CALLS)
@pytest.mark.parametrize("way", ["no budget", "no gradients"])
def test_a_call_that_plans_nothing_has_none(call, way):
    scan("8KiB").sum().backward()
    assert ebb.last_report().length == 60
    with torch.no_grad() if way == "no gradients" else contextlib.nullcontext():
        call(None if way == "no budget" else "1MiB")
    assert ebb.last_report() is None


def test_nor_has_one_that_differentiates_nothing_or_has_no_time_steps():
    scan("8KiB")
    ebb.scan(lambda h, x: (h + x, None), torch.zeros(2, 3), XS, budget="1MiB")
    assert ebb.last_report() is None
    scan("8KiB")
    scan("8KiB", XS[:0])
    assert ebb.last_report() is None
    scan("8KiB")
    ebb.while_loop(lambda h: False, lambda h: h, torch.zeros(2), budget="1MiB")
    assert ebb.last_report() is None


@pytest.mark.parametrize("call", CALLS.values(), ids=CALLS)
def test_every_call_in_a_budget_has_one(call):
    scan(None)
    call("1MiB").sum().backward()
    assert ebb.last_report().budget == 1 << 20
    assert "1 MiB" in ebb.last_report().brief()


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_of_a_layer_it_is_the_layers_own(dtype):
    own = ebb.nn.LSTM(3, 8, bidirectional=True, budget="1MiB", dtype=dtype)
    own(XS.to(dtype))[0].sum().backward()
    assert ebb.last_report().runs == own.report.runs and len(own.report.runs) == 2


def test_a_call_that_failed_has_none():
    scan("8KiB")
    with pytest.raises(ebb.Error, match="at least"):
        scan("1B")
    assert ebb.last_report() is None


@pytest.mark.parametrize("budget", ["1MiB", "16KiB"])
def test_calls_inside_of_a_call_are_not_meant(budget):
    """Neither where they run for the first time nor where they run again in backward."""

    def nested(h, x):
        return ebb.scan(step, h, x[None], budget=None)[0], None

    h, _ = ebb.scan(nested, torch.zeros(2, 8), XS, budget=budget)
    report = ebb.last_report()
    assert report.length == 60 and (report.strategy == "store_all") == (budget == "1MiB")
    h.sum().backward()
    assert ebb.last_report() is report

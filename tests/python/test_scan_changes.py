# SPDX-License-Identifier: Apache-2.0
"""What f uses changes from call to call or from step to step: seen, replayed or refused, never passed over in silence."""

from __future__ import annotations

import types

import pytest

torch = pytest.importorskip("torch", reason="PyTorch is not installed")

from scan_oracle import compare  # noqa: E402

import ebb  # noqa: E402

pytestmark = pytest.mark.usefixtures("one_thread")


def test_a_net_that_thaws_is_measured_again():
    net = torch.nn.Sequential(*[torch.nn.Sequential(torch.nn.Linear(4, 4), torch.nn.Tanh()) for _ in range(8)])
    scale = torch.ones(3, 4, requires_grad=True)
    xs = torch.randn(60, 3, 4)

    def f(h, x):
        return (h * scale + net(x)).tanh(), None

    for p in net.parameters():
        p.requires_grad_(False)
    frozen = ebb.probe(f, torch.zeros(3, 4), xs).store_all
    for _ in range(2):
        ebb.scan(f, torch.zeros(3, 4), xs, budget=frozen)[0].sum().backward()
        assert ebb.last_report().strategy == "store_all"
    for p in net.parameters():
        p.requires_grad_(True)
    ebb.scan(f, torch.zeros(3, 4), xs, budget=frozen)[0].sum().backward()
    assert ebb.last_report().strategy != "store_all"


def test_a_first_block_without_gradient_is_refused_where_a_later_one_has_one():
    w = torch.randn(8, 8, requires_grad=True)

    def warm(carry, x):
        t, h = carry
        return (t + 1, h @ w if int(t) > 20 else h * 0.5), None

    init = (torch.tensor(0), torch.ones(2, 8))
    with pytest.raises(ebb.Error, match="params="):
        ebb.scan(warm, init, None, length=100, budget="64KiB")
    found = []
    for options in ({}, {"budget": "16KiB", "params": [w]}):
        w.grad = None
        ebb.scan(warm, init, None, length=40, **options)[0][1].sum().backward()
        found.append(w.grad)
    assert torch.equal(*found)


def test_a_graph_that_grows_is_planned_for():
    w = torch.randn(8, requires_grad=True)

    def grows(carry, x):
        t, h = carry
        wide = (h * w).expand(1 + 10 * int(t), 8).tanh().mean(0)
        return (t + 1, wide), None

    init = torch.tensor(0), torch.ones(8)
    with pytest.raises(ebb.Error, match="budget") as error:
        ebb.scan(grows, init, None, length=100, budget="4KiB", chunk=1)
    assert error.value.code == "infeasible_budget"
    compare(grows, init, None, [w], length=100, budget=error.value.least_budget, chunk=1)


def test_a_buffer_that_changes_late_is_replayed():
    class Late(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.cell = torch.nn.GRUCell(4, 8)
            self.register_buffer("scale", torch.ones(()))

        def forward(self, carry, x):
            t, h = carry
            if int(t) > 30:
                self.scale *= 1.01
            return (t + 1, self.cell(x, h) * self.scale.clone()), None

    found = []
    for budget in (None, "48KiB"):
        torch.manual_seed(0)
        net = Late()
        init = (torch.tensor(0), torch.zeros(3, 8))
        carry, _ = ebb.scan(net, init, torch.randn(90, 3, 4), budget=budget, chunk=3)
        carry[1].sum().backward()
        found.append([net.cell.weight_hh.grad, net.scale.clone()])
    assert ebb.last_report().strategy != "store_all"
    assert all(torch.equal(a, b) for a, b in zip(*found))


def test_a_changed_tensor_that_cannot_be_found_is_refused_and_can_be_named():
    hidden = types.ModuleType("sys.hidden")  # as modules of Python itself are called, where ebb does not look
    hidden.norm = torch.nn.BatchNorm1d(8)
    cell = torch.nn.GRUCell(4, 8)
    xs = torch.randn(100, 3, 4)

    def f(h, x):
        return hidden.norm(cell(x, h)), None

    with pytest.raises(ebb.Error, match="in place"):
        ebb.scan(f, torch.zeros(3, 8), xs, budget="24KiB")
    hidden.norm.reset_running_stats()
    ebb.scan(f, torch.zeros(3, 8), xs, budget="24KiB", params=torch.nn.ModuleList([hidden.norm, cell]))[
        0
    ].sum().backward()
    assert ebb.last_report().strategy != "store_all"
    assert int(hidden.norm.num_batches_tracked) == 100


_model = None


def test_a_global_that_is_replaced_is_measured_again():
    global _model
    xs = torch.randn(64, 4, 8)

    def step(h, x):
        for cell in _model:
            h = cell(x, h)
        return h, None

    taken = []
    for cells in (1, 8):
        _model = torch.nn.ModuleList(torch.nn.GRUCell(8, 8) for _ in range(cells))
        found = ebb.probe(step, torch.zeros(4, 8), xs)
        taken.append(found.store_all)
        ebb.scan(step, torch.zeros(4, 8), xs, budget=2 * taken[0])[0].sum().backward()
        assert (ebb.last_report().strategy == "store_all") == (cells == 1)
    assert taken[1] > 2 * taken[0]

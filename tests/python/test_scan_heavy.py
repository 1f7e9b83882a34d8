# SPDX-License-Identifier: Apache-2.0
"""Loops whose first steps are not their largest: what they hold stays within the budget, and gradients keep autograd's bits."""

from __future__ import annotations

import gc

import pytest

torch = pytest.importorskip("torch", reason="PyTorch is not installed")
from scan_oracle import compare, gradients, loop, same, weighted  # noqa: E402

import ebb  # noqa: E402
from ebb._loop.engine import Call  # noqa: E402
from ebb._tensor.memory import LiveBytes  # noqa: E402

pytestmark = pytest.mark.usefixtures("one_thread")

UNITS, STEPS, BATCH = 128, 100, 8


class Events:
    """Each unit that fires takes a row of the weights: what a step keeps grows with how many do."""

    def __init__(self, seed: int = 1):
        generator = torch.Generator().manual_seed(seed)
        self.weight = (0.1 * torch.randn(UNITS, UNITS, generator=generator)).requires_grad_()

    def __call__(self, h, x):
        rows, units = x.nonzero(as_tuple=True)
        drive = torch.zeros_like(h).index_add(0, rows, self.weight[units].tanh().exp())
        h = 0.9 * h + drive.tanh()
        return h, h.mean()


def quiet_until(step: int, firing: float = 0.25, steps: int = STEPS, seed: int = 2) -> torch.Tensor:
    xs = (torch.rand(steps, BATCH, UNITS, generator=torch.Generator().manual_seed(seed)) < firing).float()
    xs[:step] = 0
    return xs


def held(f, xs, budget, **options):
    """The most bytes held at once, less what is the caller's: outputs and the gradients of parameters (once as they grow, once
    in .grad)."""
    f.weight.grad = None
    gc.collect()
    with LiveBytes() as counted:
        h, ys = ebb.scan(f, torch.zeros(BATCH, UNITS), xs, budget=budget, **options)
        (h.sum() + ys.sum()).backward()
    return counted.peak - 2 * f.weight.nbytes - h.nbytes - 3 * ys.nbytes


def step_bytes(f, xs):
    """What the largest step keeps."""
    most = 0
    for x in xs[-20:]:
        saved = []
        with torch.autograd.graph.saved_tensors_hooks(lambda t: saved.append(t) or t, lambda t: t):
            f(torch.zeros(BATCH, UNITS, requires_grad=True), x)
        most = max(most, sum({t.untyped_storage().data_ptr(): t.untyped_storage().nbytes() for t in saved}.values()))
    return most


@pytest.mark.sweep(1)
@pytest.mark.parametrize("quiet", [20, 1, 60])
def test_a_budget_holds_where_the_first_steps_are_quiet(quiet):
    f, xs = Events(), quiet_until(quiet)
    compare(f, torch.zeros(BATCH, UNITS), xs, [f.weight], budget="4MiB")  # and measures
    report = ebb.last_report()
    assert report.strategy != "store_all" and report.predicted["peak"]["fast"] <= 4 << 20
    assert held(f, xs, "4MiB") <= 4 << 20


def test_a_first_call_oversteps_by_one_time_step_at_most():
    f, xs = Events(), quiet_until(20)
    assert held(f, xs, "4MiB") <= (4 << 20) + 2 * step_bytes(f, xs)


def test_all_fits_at_first_and_then_does_not():
    f = Events()
    init, quiet, busy = torch.zeros(BATCH, UNITS), torch.zeros(STEPS, BATCH, UNITS), quiet_until(50)
    for _ in range(5):  # until only some steps are weighed
        ebb.scan(f, init, quiet, budget="4MiB")[1].sum().backward()
        assert ebb.last_report().strategy == "store_all"
    compare(f, init, busy, [f.weight], budget="4MiB")
    assert ebb.last_report().strategy != "store_all"
    assert held(f, busy, "4MiB") <= 4 << 20


def test_a_backward_that_meets_heavier_steps_is_planned_again(monkeypatch):
    f, init = Events(), torch.zeros(BATCH, UNITS)
    calm = torch.zeros(500, BATCH, UNITS)
    ebb.scan(f, init, calm, budget="1MiB", chunk=1)[1].sum().backward()
    assert ebb.last_report().strategy != "store_all"
    busy = calm.clone()
    busy[10:20] = quiet_until(0, steps=10)  # which a forward only passes, and of which a backward weighs one
    again = []
    monkeypatch.setattr(Call, "_plan_again", lambda call, own=Call._plan_again: (again.append(call), own(call)))
    compare(f, init, busy, [f.weight], budget="1MiB", chunk=1)
    assert len(again) == 1
    report = ebb.last_report()
    assert report.done and report.predicted["peak"]["fast"] <= 1 << 20
    assert held(f, busy, "1MiB", chunk=1) <= 1 << 20
    assert len(again) == 1


def test_what_was_heavy_is_remembered():
    f, init, xs = Events(), torch.zeros(BATCH, UNITS), quiet_until(20)
    ebb.scan(f, init, xs, budget="4MiB")[1].sum().backward()
    calls = 0

    def counting(h, x):
        nonlocal calls
        calls += 1
        return f(h, x)

    for _ in range(2):
        calls = 0
        ebb.scan(counting, init, xs, budget="4MiB")[1].sum().backward()
    assert calls <= 3 * STEPS


def test_a_time_step_that_no_budget_holds_is_named():
    f, xs = Events(), quiet_until(20)
    with pytest.raises(ebb.Error, match="scan: .*budget") as caught:
        ebb.scan(f, torch.zeros(BATCH, UNITS), xs, budget="256KiB")
    assert caught.value.code == "infeasible_budget"
    compare(f, torch.zeros(BATCH, UNITS), xs, [f.weight], budget=caught.value.least_budget)


def test_a_chunk_that_no_budget_holds_is_refused():
    f, xs = Events(), quiet_until(20)
    with pytest.raises(ebb.Error, match="take a smaller chunk") as caught:
        ebb.scan(f, torch.zeros(BATCH, UNITS), xs, budget="2MiB", chunk=50)
    assert caught.value.code == "infeasible_budget"


def test_random_numbers_and_counters_are_as_if_nothing_was_weighed():
    f, xs = Events(), quiet_until(20)
    init = torch.zeros(BATCH, UNITS)

    def noisy(h, x):
        h, y = f(h, x)
        return torch.nn.functional.dropout(h, 0.2), y

    found = []
    for run in (lambda: loop(noisy, init, xs), lambda: ebb.scan(noisy, init, xs, budget="4MiB")):
        torch.manual_seed(3)
        h, ys = run()
        found.append((h, ys, gradients(weighted(h, ys), [f.weight]), torch.rand(4)))
    same(*found)


def test_while_loop_with_quiet_beginnings():
    f = Events()
    xs = quiet_until(20)

    def step(carry):
        t, h = carry
        return t + 1, f(h, xs[int(t)])[0]

    found = []
    for options in ({}, {"budget": "4MiB"}):
        start = (torch.tensor(0), torch.zeros(BATCH, UNITS))
        _, h = ebb.while_loop(lambda carry: carry[0] < STEPS, step, start, **options)
        found.append((h, gradients(weighted(h), [f.weight])))
    same(*found)


def test_a_share_is_of_what_the_heaviest_steps_take():
    f, init, xs = Events(), torch.zeros(BATCH, UNITS), quiet_until(20)
    ebb.scan(f, init, torch.zeros_like(xs), budget="20%")[1].sum().backward()
    light = ebb.last_report().budget
    compare(f, init, xs, [f.weight], budget="20%")
    heavy = ebb.last_report().budget
    assert heavy > 5 * light
    assert held(f, xs, "20%") <= heavy


# ------------------------------------------------------------------------------------------------ what weighing must not hide


@pytest.mark.parametrize("budget", [None, "10MiB", "8KiB", "4KiB"])
def test_a_tensor_that_is_changed_after_it_was_saved_is_an_error(budget):
    torch.manual_seed(0)
    layer, xs = torch.nn.Linear(4, 4), torch.randn(40, 2, 4)
    xs[:, 0, 0] = torch.arange(40)

    def f(h, x):
        a = torch.sigmoid(layer(h) + 0.01 * x)
        b = a * a
        if x[0, 0] >= 20:
            a.add_(1.0)
        return torch.tanh(b), a

    h, ys = ebb.scan(f, torch.zeros(2, 4), xs, budget=budget)
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        (h.sum() + ys.sum()).backward()


def test_a_parameter_that_is_changed_before_backward_is_an_error():
    layer, xs = torch.nn.Linear(4, 4), torch.randn(40, 2, 4)
    _, ys = ebb.scan(lambda h, x: (layer(h).tanh() + x, h), torch.zeros(2, 4), xs, budget="10MiB")
    with torch.no_grad():
        layer.weight.mul_(2)
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        ys.sum().backward()


def test_state_that_changes_late_in_heavy_steps():
    class Late(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.weight = torch.nn.Parameter(torch.ones(8))
            self.register_buffer("trace", torch.zeros(8))

        def forward(self, h, x):
            n = int(x[0])
            z = (h[:1] * self.weight[:1]).expand(n).exp().sin()
            if n > 8:
                self.trace = 0.9 * self.trace + 1.0
            return h + 1e-3 * z.mean() * self.weight, h.mean()

    xs = torch.tensor([8.0] * 20 + [20_000.0] * 44)[:, None]
    found = []
    for run, options in ((loop, {}), (ebb.scan, {"budget": "1MiB"})):
        net = Late()
        h, ys = run(net, torch.zeros(8), xs, **options)
        found.append((h, ys, net.trace, gradients(weighted(h, ys), [net.weight])))
    same(*found)
    assert ebb.last_report().strategy != "store_all"


@pytest.mark.parametrize("inner", [None, "64MiB", "1MiB"])
def test_scans_inside_are_weighed_too(inner):
    f = Events()
    xs = quiet_until(20, steps=40).reshape(8, 5, BATCH, UNITS)

    def outer(h, x):
        h, ys = ebb.scan(f, h, x, budget=inner)
        return h, ys.sum()

    outer.weight = f.weight
    init = torch.zeros(BATCH, UNITS)
    for _ in range(2):
        h, ys = ebb.scan(outer, init, xs, budget="4MiB")
        (h.sum() + ys.sum()).backward()
    f.weight.grad = None
    gc.collect()
    with LiveBytes() as counted:
        h, ys = ebb.scan(outer, init, xs, budget="4MiB")
        (h.sum() + ys.sum()).backward()
    assert ebb.last_report().strategy != "store_all"
    assert counted.peak - 4 * f.weight.nbytes - 2 * h.nbytes <= 4 << 20  # gradients of both scans


@pytest.mark.slow
def test_heavy_steps_anywhere_after_calls_that_were_all_alike():
    f, init = Events(), torch.zeros(BATCH, UNITS)
    calm = torch.zeros(200, BATCH, UNITS)
    busy = calm.clone()
    busy[[t for t in range(200) if t % 16]] = quiet_until(0, steps=1)[0]
    for _ in range(4):
        ebb.scan(f, init, calm, budget="1MiB", chunk=1)[1].sum().backward()
    held(f, busy, "1MiB", chunk=1)
    assert held(f, busy, "1MiB", chunk=1) <= 1 << 20


def small_views(h, x, weight):
    """A small view of a memory that grows."""
    last = (torch.zeros(int(x[0]), 8) + h.detach())[-1]
    return torch.tanh(h * weight + last * weight), h.mean()


def another_weight(h, x, weight):
    """What quiet steps save is a parameter, and weighs nothing."""
    if x[0] < 100:
        return torch.tanh(h + (h @ weight)[:8] * 1e-6), h.mean()
    return torch.tanh(h + h.sum().expand(int(8 * x[0])).exp().sin().mean()), h.mean()


@pytest.mark.parametrize("step", [small_views, another_weight])
def test_memories_are_weighed_not_tensors(step):
    shape = (8,) if step is small_views else (8, 1 << 15)
    weight = torch.full(shape, 0.1).requires_grad_()
    xs = torch.tensor([1.0] * 20 + [10_000.0] * 44)[:, None]
    with LiveBytes() as counted:
        h, ys = ebb.scan(lambda h, x: step(h, x, weight), torch.zeros(8), xs, budget="4MiB")
        (h.sum() + ys.sum()).backward()
    assert ebb.last_report().strategy != "store_all"
    assert counted.peak - 3 * weight.nbytes <= (4 << 20) + (1 << 20)


def test_hooks_of_the_caller_see_what_is_saved():
    layer, xs = torch.nn.Linear(4, 4), torch.randn(10, 2, 4)
    seen = []

    def f(h, x):
        return (layer(h) + x).tanh(), None

    for budget in (None, "10MiB"):
        seen.append(0)

        def pack(tensor):
            seen[-1] += 1
            return tensor

        with torch.autograd.graph.saved_tensors_hooks(pack, lambda tensor: tensor):
            ebb.scan(f, torch.zeros(2, 4), xs, budget=budget)[0].sum().backward()
    assert 0 < seen[0] <= seen[1]  # and those of measuring


def test_parameters_that_are_not_found_from_f_weigh_nothing():
    class Hidden:
        __slots__ = ("weight",)

        def __init__(self):
            self.weight = torch.full((8, 1 << 12), 0.1).requires_grad_()

        def __call__(self, h, x):
            return torch.tanh(h + (h @ self.weight)[:, :8] + x), None

    hidden = [Hidden()] * 2000  # too many to be looked through
    init, xs = torch.zeros(2, 8), torch.zeros(40, 1)

    def f(h, x):
        return hidden[0](h, x)

    ebb.scan(f, init, xs, budget="speed", chunk=4)[0].sum().backward()
    assert ebb.last_report().strategy == "store_all"

# SPDX-License-Identifier: Apache-2.0
"""Loops that are easily replayed wrongly as CUDA graphs: each was, once."""

from __future__ import annotations

import gc
import pathlib
import subprocess
import sys
import textwrap
import types

import pytest

torch = pytest.importorskip("torch")
if not torch.cuda.is_available():
    pytest.skip("no GPU here", allow_module_level=True)

import graph_cases as cases  # noqa: E402
from graph_cases import (  # noqa: E402, F401
    HIDDEN,
    INPUTS,
    ROOM,
    Case,
    Keeps,
    always_tried,
    captured,
    fresh,
    inputs,
    ran_as_graphs,
    results,
    same,
    zeros,
)

import ebb  # noqa: E402

GLOBALS = globals()
SLOPE = GAIN = 1.0


def agree(case, calls=4, **words):
    for call in range(calls):
        assert same(results(case, **words), results(case, budget=ROOM, graph=True, **words)), call
    assert ran_as_graphs()


def without(case, reason, **words):
    """As plain autograd, not captured, and the report says why."""
    plain = results(case, **words)
    for call in range(3):
        assert same(plain, results(case, budget="60%", **words)), call
    assert not ran_as_graphs() and any(reason in remark for remark in ebb.last_report().remarks), (
        ebb.last_report().remarks
    )


def _swap(lin):
    return (lambda c, x: ((c[1], c[0]), torch.tanh(lin(x) + c[0]))), 2


def _shift(lin):
    def f(c, x):
        new = torch.tanh(lin(x) + c[2])
        return (new, c[0], c[1]), new * c[2]

    return f, 3


def _shift_back(lin):
    def f(c, x):
        new = torch.tanh(lin(x) + c[0])
        return (c[1], c[2], new), new * c[0]

    return f, 3


@pytest.mark.parametrize("chunk", [1, 2])
@pytest.mark.parametrize("kind", [_swap, _shift, _shift_back])
def test_carries_that_change_places(kind, chunk):
    lin = torch.nn.Linear(INPUTS, HIDDEN).cuda()
    f, count = kind(lin)
    agree(Case(lin, f, tuple(zeros() + k for k in range(count)), inputs(), {"chunk": chunk}))


@pytest.mark.parametrize("chunk", [1, 8])
def test_sum_of_carries(chunk):
    agree(cases.gru_carry_as_y(reduce="sum", chunk=chunk))


class Spike(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        ctx.save_for_backward(x)
        return (x > 0).float()

    @staticmethod
    def backward(ctx, g):
        (x,) = ctx.saved_tensors
        return g / (SLOPE * x.abs() + 1) ** 2


def test_slope_of_a_surrogate():
    lin = torch.nn.Linear(INPUTS, HIDDEN).cuda()

    def f(h, x):
        h = 0.9 * h + lin(x)
        s = Spike.apply(h - 0.1)
        return h - s, s

    case = Case(lin, f, zeros(), inputs())
    try:
        for call in range(5):
            GLOBALS["SLOPE"] = 1.0 if call < 3 else 25.0
            assert same(results(case), results(case, budget=ROOM, graph=True)), call
    finally:
        GLOBALS["SLOPE"] = 1.0


def test_carry_on_the_cpu():
    """CPU work is no part of a graph."""
    lin = torch.nn.Linear(INPUTS, HIDDEN).cuda()

    def f(carry, x):
        h, n = carry
        h = torch.tanh(h + lin(x)) / (n + 1)
        return (h, n + 1), h * 1

    case = Case(lin, f, (zeros(), torch.zeros((), dtype=torch.int64)), inputs(), {"chunk": 4})
    without(case, "is not on cuda:0")


@pytest.mark.parametrize("bound", [False, True])
def test_counts_on_the_cpu(bound):
    lin, box = torch.nn.Linear(INPUTS, HIDDEN).cuda(), types.SimpleNamespace(n=torch.zeros(()))

    def f(h, x):
        if bound:
            box.n = box.n + 1
        else:
            box.n.add_(1)
        h = torch.tanh(h + lin(x)) / (box.n + 1)
        return h, h * 1

    case = Case(lin, f, zeros(), inputs(), {"chunk": 4})

    def go(**words):
        box.n = torch.zeros(())
        return [*results(case, **words), box.n.clone()]

    plain = go()
    for call in range(4):
        assert same(plain, go(budget="60%")), call
    assert not ran_as_graphs()


def test_number_beside_the_state():
    class Leaky(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.linear, self.state = torch.nn.Linear(INPUTS, HIDDEN), (0.0, 0.9)

        def forward(self, x):
            v, tau = self.state
            v = tau * v + self.linear(x)
            self.state = (v, tau)
            return v * 1

    module = Leaky().cuda()
    case = Case(module, lambda g, x: (g, module(x) * g), zeros(1) + 1, inputs())
    for call in range(5):
        tau = 0.9 if call < 3 else 0.5
        module.state = (0.0, tau)
        plain = results(case)
        module.state = (0.0, tau)
        assert same(plain, results(case, budget=ROOM, graph=True)), call


def test_state_that_begins_as_a_tensor():
    module = Keeps().cuda()
    xs = inputs()
    for _ in range(8):
        module.v = zeros()
        _, ys = ebb.scan(lambda g, x: (g, module(x) * g), zeros(1) + 1, xs, budget=ROOM, graph=True, chunk=7)
        ys.sum().backward()
    assert ran_as_graphs()


def test_gradient_of_init_stays():
    module, xs = Keeps().cuda(), inputs()

    def one(scale):
        module.v = 0.0
        init = (zeros(1) + 1).requires_grad_()
        c, ys = ebb.scan(lambda g, x: (g.view(1), module(x)), init, xs, budget=ROOM, graph=True, chunk=1)
        (ys.sum() + c.sum() * scale).backward()
        return init.grad

    for _ in range(2):
        one(1.0)
    kept = one(1.0)
    one(7.0)
    assert ran_as_graphs() and float(kept) == 1.0


@pytest.mark.skipif(not hasattr(torch.backends.cuda.matmul, "fp32_precision"), reason="older PyTorch")
def test_new_settings_of_precision():
    before = torch.backends.cuda.matmul.fp32_precision
    try:
        torch.backends.cuda.matmul.fp32_precision = "tf32"
        case = cases.lstm()
        for _ in range(3):
            results(case, budget=ROOM, graph=True)
    finally:
        torch.backends.cuda.matmul.fp32_precision = before


def test_sparse_weights():
    w = torch.eye(HIDDEN, device="cuda").to_sparse()
    cell = torch.nn.GRUCell(INPUTS, HIDDEN).cuda()

    def f(h, x):
        h = cell(x, torch.sparse.mm(w, h.t()).t())
        return h, h * 1

    without(Case(cell, f, zeros(), inputs()), "sparse")


@pytest.mark.usefixtures("always_tried")
def test_hook_inside_of_f():
    cell = torch.nn.GRUCell(INPUTS, HIDDEN).cuda()

    def f(h, x):
        h = cell(x, h)
        if h.requires_grad:
            h.register_hook(lambda g: None)
        return h, h * 2

    without(Case(cell, f, zeros(), inputs()), "hooks a tensor")


@pytest.mark.parametrize("pinned", [False, True])
def test_copy_from_the_host_that_does_not_wait(pinned):
    """A graph would read host memory that was given back."""
    cell = torch.nn.GRUCell(INPUTS, HIDDEN).cuda()

    def f(h, x):
        k = torch.full((HIDDEN,), 0.5)
        h = cell(x, h) * (k.pin_memory() if pinned else k).to("cuda", non_blocking=True)
        return h, h * 2

    without(Case(cell, f, zeros(), inputs()), "copies from the host")


def test_two_threads_that_capture():
    script = textwrap.dedent("""
        import threading, time, sys
        import torch, ebb
        import graph_cases as cases
        from ebb._tensor import capture
        words = dict(budget="400MiB", graph=True)
        a, b = cases.lstm(), cases.gru_carry_as_y()
        cases.results(a, **words)
        for _ in range(2):
            cases.results(b, **words)
        c, ys = ebb.scan(b.f, b.init, b.xs, **words)
        inside = threading.Event()
        plain = capture._in_thread_of
        def slow(device, work):
            if threading.current_thread().name == "forward":
                inside.set(); time.sleep(2)
            return plain(device, work)
        capture._in_thread_of = slow
        def forward():
            cases.results(a, **words)
        def backward():
            inside.wait(60)
            c.sum().backward()  # another pattern than both
        threads = [threading.Thread(target=forward, name="forward", daemon=True), threading.Thread(target=backward, daemon=True)]
        [t.start() for t in threads]
        [t.join(60) for t in threads]
        import os
        alive = any(t.is_alive() for t in threads)
        print("DEADLOCK" if alive else "fine", flush=True)
        os._exit(alive)
    """)
    here = pathlib.Path(__file__).parent
    found = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, timeout=300, cwd=here)
    assert found.returncode == 0, found.stdout + found.stderr


def test_another_pattern_of_gradients_is_captured_at_the_next_call():
    case = cases.lstm()
    captured(case)
    for only in ("carry", "ys"):
        plain = results(case, only=only)
        for _ in range(2):
            assert same(plain, results(case, only=only, budget=ROOM, graph=True))
            assert ran_as_graphs()


def test_condition_on_what_is_kept_outside():
    class M(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.w, self.v = torch.nn.Parameter(torch.tensor(0.1)), 0.0

        def forward(self, h):
            self.v = self.v + self.w
            return h * 1.01 + self.v

    module, steps = M().cuda(), [0]

    def cond(h):
        steps[0] += 1
        assert steps[0] < 500, "cond never sees the end"
        return not torch.is_tensor(module.v) or bool(module.v < 2.0)

    def go(**words):
        module.v, steps[0], module.w.grad = 0.0, 0, None
        h = ebb.while_loop(cond, module, zeros(4), **words)
        h.sum().backward()
        return [h.detach(), module.w.grad.clone()]

    plain = go()
    for call in range(3):
        assert same(plain, go(budget="1MiB", expected=20)), call
    assert not ran_as_graphs()


class Reads(torch.nn.Module):
    class Inner:
        gain = 1.0

    def __init__(self):
        super().__init__()
        self.cell = torch.nn.GRUCell(INPUTS, HIDDEN)

    @property
    def gain(self):
        return GAIN

    @staticmethod
    def static():
        return GAIN


def _set(k):
    GLOBALS["GAIN"] = k


def _holes():
    module = Reads().cuda()
    settings = types.ModuleType("settings_of_mine")
    settings.gain = 1.0
    sys.modules["settings_of_mine"] = settings

    class Own(dict):
        pass

    own = Own()
    own.gain = 1.0

    def imported():
        import settings_of_mine

        return settings_of_mine.gain

    def change_inner(k):
        Reads.Inner.gain = k

    return module, {
        "property": (lambda: module.gain, _set),
        "static": (lambda: module.static(), _set),
        "nested class": (lambda: module.Inner.gain, change_inner),
        "module in a closure": (lambda: settings.gain, lambda k: setattr(settings, "gain", k)),
        "import inside": (imported, lambda k: setattr(settings, "gain", k)),
        "attribute of a dict": (lambda: own.gain, lambda k: setattr(own, "gain", k)),
    }


KINDS = ["property", "static", "nested class", "module in a closure", "import inside", "attribute of a dict"]


@pytest.mark.parametrize("kind", KINDS)
def test_all_that_f_reads_is_seen(kind):
    module, found = _holes()
    read, change = found[kind]

    def f(h, x):
        h = module.cell(x, h)
        return h, h * read()

    case = Case(module, f, zeros(), inputs())
    for call in range(5):
        change(1.0 if call < 3 else 3.0)
        assert same(results(case), results(case, budget=ROOM, graph=True)), call


def test_failed_capture_leaves_nothing_without_the_collector():
    cell = torch.nn.GRUCell(32, 512).cuda()

    def f(h, x):
        h = cell(x, h)
        return h * (0.5 if h.sum().item() > 0 else 1.0), h * 1

    case = Case(cell, f, torch.zeros(512, 512, device="cuda"), torch.randn(60, 512, 32, device="cuda"), {"chunk": 5})
    results(case, budget="200MiB")
    gc.collect()
    gc.disable()
    try:
        held = torch.cuda.memory_allocated()
        results(case, budget="200MiB")
        assert any("waits for the GPU" in remark for remark in ebb.last_report().remarks), ebb.last_report().remarks
        assert torch.cuda.memory_allocated() <= held + (36 << 20)  # what cuBLAS has taken
    finally:
        gc.enable()

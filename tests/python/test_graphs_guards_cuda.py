# SPDX-License-Identifier: Apache-2.0
"""A replay runs no Python: what it would miss is seen, and what cannot be captured runs as without graphs and leaves nothing behind."""

from __future__ import annotations

import gc
import random
import weakref

import numpy as np
import pytest

torch = pytest.importorskip("torch")
if not torch.cuda.is_available():
    pytest.skip("no GPU here", allow_module_level=True)

import graph_cases as cases  # noqa: E402
from graph_cases import (  # noqa: E402, F401
    ROOM,
    always_tried,
    captured,
    fresh,
    ran_as_graphs,
    results,
    same,
    scaled,
)
from graph_changes import CHANGES, Settings, factor, seen  # noqa: E402

import ebb  # noqa: E402


def _in_place(case, box):
    with torch.no_grad():
        case.module.weight_ih.mul_(0.5)


def _host(case, box):
    box["host"].add_(1.0)


def _matmul(case, box):
    torch.set_float32_matmul_precision("high" if torch.get_float32_matmul_precision() == "highest" else "highest")


@pytest.mark.parametrize("change", [*CHANGES, _in_place, _host, _matmul])
def test_a_change_is_seen(change):
    box = {**seen(), "host": torch.ones(())}
    precision = torch.get_float32_matmul_precision()
    try:
        case = scaled(cases.lstm(), lambda: factor(box) * box["host"])
        for call in range(5):
            if call == 3:
                change(case, box)
            plain = results(case)
            assert same(plain, results(case, budget=ROOM, graph=True)), call
            # After some changes it is another loop, whose first call is not captured.
            assert call in (0, 3) or ran_as_graphs(), ebb.last_report().remarks
    finally:
        torch.set_float32_matmul_precision(precision)
        Settings.scale = 1.0


def test_modes_of_a_module_are_seen():
    case = cases.dropout()
    for call in range(6):
        case.module.train(call < 4)
        assert same(results(case), results(case, budget=ROOM, graph=True)), call
    assert ran_as_graphs()


def test_after_three_captures_again_it_runs_as_without_and_says_what_changed():
    settings = Settings()
    case = scaled(cases.lstm(), lambda: settings.deep["list"][0])
    seen = []
    for call in range(7):
        settings.deep["list"][0] = 1.0 + call
        plain = results(case)
        assert same(plain, results(case, budget=ROOM, **({"graph": True} if call < 5 else {})))
        seen.append(ran_as_graphs())
    assert seen == [False, True, True, True, True, False, False]
    with pytest.raises(ebb.Error, match="changed after each of 4 captures: Settings"):
        results(case, budget=ROOM, graph=True)


def _item(h):
    return h * (0.5 if h.sum().item() > 0 else 1.0)


def _nonzero(h):
    return h * ((h > 0).nonzero().shape[0] / h.numel())


def _from_host(h):
    return h + torch.randn(h.shape).to(h.device)


def _cpu_random(h):
    return h * float(torch.rand(()))


def _python_random(h):
    return h * random.random()


def _numpy_random(h):
    return h * np.random.rand()


REFUSED = {
    "item": (_item, "waits for the GPU"),
    "nonzero": (_nonzero, "waits for the GPU"),
    "host copy": (_from_host, "copies from the host"),
    "cpu generator": (_cpu_random, "random numbers"),
    "python random": (_python_random, "random numbers"),
    "numpy random": (_numpy_random, "random numbers"),
}


@pytest.mark.usefixtures("always_tried")
@pytest.mark.parametrize("kind", REFUSED)
def test_what_cannot_be_captured_runs_as_without(kind):
    operation, reason = REFUSED[kind]
    cell = torch.nn.GRUCell(32, 256).cuda()

    def f(h, x):
        h = operation(cell(x, h))
        return h, h

    def go(**words):
        random.seed(1)
        np.random.seed(1)
        return results(case, **words)

    case = cases.Case(cell, f, torch.zeros(64, 256, device="cuda"), torch.randn(120, 64, 32, device="cuda"))
    stream, plain = torch.cuda.current_stream(), go()
    torch.cuda.synchronize()
    for call in range(4):
        gc.collect()
        torch.cuda.empty_cache()
        held = torch.cuda.memory_allocated(), torch.cuda.memory_reserved()
        assert same(plain, go(budget="20MiB", chunk=5))
        assert not ran_as_graphs()
        if call > 0:
            assert any(reason in remark for remark in ebb.last_report().remarks), ebb.last_report().remarks
    assert torch.cuda.current_stream() == stream and not torch.cuda.is_current_stream_capturing()
    gc.collect()
    torch.cuda.empty_cache()
    assert torch.cuda.memory_allocated() <= held[0] + (1 << 20)
    with pytest.raises(ebb.Error, match="graph=True, but blocks cannot run as CUDA graphs"):
        go(budget="20MiB", chunk=5, graph=True)
    # Captures, streams and generators work as before.
    good = cases.dropout()
    plain = results(good)
    for _ in range(2):
        assert same(plain, results(good, budget=ROOM, graph=True))
    assert ran_as_graphs()


def _hook(case):
    case.module.register_forward_hook(lambda *_: None)


def _subclass(case):
    class Own(torch.Tensor):
        pass

    case.module.register_buffer("own", torch.ones(2, device="cuda").as_subclass(Own))


def _large_on_host(case):
    case.module.register_buffer("table", torch.zeros(5000))


WHYS = {"hook": (_hook, "has a hook"), "subclass": (_subclass, "Own"), "host": (_large_on_host, "on the cpu")}


@pytest.mark.parametrize("kind", WHYS)
def test_what_cannot_be_listed_is_refused(kind):
    change, reason = WHYS[kind]
    case = cases.lstm()
    change(case)
    results(case, budget=ROOM)
    with pytest.raises(ebb.Error, match=reason):
        for _ in range(2):
            results(case, budget=ROOM, graph=True)


def test_words_that_need_python_are_refused():
    case = cases.lstm()
    results(case, budget=ROOM, graph=True)
    for words, reason in (
        ({"verify": True}, "verify"),
        ({"codec": "bf16"}, "codec"),
        ({"preserve_rng_state": False}, "preserve_rng_state"),
        ({"budget": ebb.Budget(ROOM)}, "shared"),
    ):
        with pytest.raises(ebb.Error, match=reason):
            results(case, **{"budget": ROOM, "graph": True, **words})
    with pytest.raises(ebb.Error, match="xs is a function"):
        for _ in range(2):
            _, ys = ebb.scan(case.f, case.init, lambda t: case.xs[t], length=20, budget=ROOM, graph=True, chunk=5)
            ys.sum().backward()
    with pytest.raises(ebb.Error, match="graph is 3"):
        results(case, budget=ROOM, graph=3)


def test_graphs_on_a_cpu_are_refused():
    cell = torch.nn.GRUCell(2, 3)
    with pytest.raises(ebb.Error, match="the loop is on the cpu"):
        ebb.scan(lambda h, x: (cell(x, h), None), torch.zeros(1, 3), torch.randn(50, 1, 2), budget="20KiB", graph=True)


def test_inside_another_capture():
    case = cases.lstm()
    captured(case)
    graph = torch.cuda.CUDAGraph()
    with pytest.raises(ebb.Error, match="a CUDA graph is being captured around it"), torch.cuda.graph(graph):
        ebb.scan(case.f, case.init, case.xs, budget=ROOM, graph=True, chunk=7)
    plain = results(case)
    assert same(plain, results(case, budget=ROOM, graph=True)) and ran_as_graphs()


def test_a_scan_inside_of_one():
    cell = torch.nn.GRUCell(6, 16).cuda()

    def inner(h, x):
        h = cell(x, h)
        return h, h

    def outer(h, x):
        h, ys = ebb.scan(inner, h, x, budget=ROOM)
        return h, ys[-1]

    case = cases.Case(cell, outer, cases.zeros(), torch.randn(30, 8, 4, 6, device="cuda"))
    plain = results(case)
    for _ in range(3):
        assert same(plain, results(case, budget="1MiB", chunk=3))
    with pytest.raises(ebb.Error, match="captured around it"):
        for _ in range(2):
            results(case, budget=ROOM, graph=True)
    assert same(plain, results(case, budget="1MiB", chunk=3))


def test_watchers_see_all_operations():
    from torch.utils.flop_counter import FlopCounterMode

    case = cases.lstm()
    captured(case)
    with FlopCounterMode(display=False) as mode:
        results(case, budget=ROOM)
    assert not ran_as_graphs() and mode.get_total_flops() > 0


def test_they_go_with_the_model_and_by_a_call():
    case = cases.lstm()
    captured(case)
    gc.collect()
    torch.cuda.empty_cache()
    held = torch.cuda.memory_reserved()
    module = weakref.ref(case.module)
    del case
    gc.collect()
    assert module() is None
    torch.cuda.empty_cache()
    assert torch.cuda.memory_reserved() < held
    case = cases.lstm()
    captured(case)
    gc.collect()
    torch.cuda.empty_cache()
    held = torch.cuda.memory_reserved()
    ebb.clear_cache()
    gc.collect()
    torch.cuda.empty_cache()
    assert torch.cuda.memory_reserved() < held
    assert same(results(case), results(case, budget=ROOM, graph=True))


def test_weights_that_moved_between_forward_and_backward():
    case = cases.lstm()
    for _ in range(3):
        _, ys = ebb.scan(case.f, case.init, case.xs, budget=ROOM, graph=True, chunk=7)
        ys.sum().backward(retain_graph=True)
    assert ran_as_graphs()
    case.module.weight_hh.data = case.module.weight_hh.data.clone()
    with pytest.raises(ebb.Error, match="has moved since"):
        ys.sum().backward()


def test_what_f_reads_is_changed_between_forward_and_backward():
    cases.changed_before_backward(cases.HIDDEN, (cases.STEPS + 1,), budget=ROOM, graph=True)
    assert ran_as_graphs()


@pytest.mark.parametrize("beyond", [0, 1], ids=["usual", "with a last block of its own"])
def test_what_f_reads_and_has_no_copy_is_changed_between_forward_and_backward(beyond):
    cases.expect_stale_refused(beyond)

# SPDX-License-Identifier: Apache-2.0
"""What a replay would miss, and what cannot be captured, on a machine without a GPU: as test_graphs_guards_cuda.py, by graph_stand_in.py."""

from __future__ import annotations

import random

import pytest

torch = pytest.importorskip("torch")
if torch.cuda.is_available():
    pytest.skip("here is a GPU, for test_graphs*_cuda.py", allow_module_level=True)

import graph_cases as cases  # noqa: E402
from graph_cases import (  # noqa: E402, F401
    HIDDEN,
    INPUTS,
    ROOM,
    Case,
    captured,
    expect_forgotten,
    ran_as_graphs,
    results,
    same,
    scaled,
    short,
    without,
)
from graph_changes import CHANGES, Settings, factor, seen  # noqa: E402
from graph_stand_in import SEGMENT, WORKSPACE, stand_in  # noqa: E402, F401

import ebb  # noqa: E402
from ebb._tensor.capture import workspace_bytes  # noqa: E402
from ebb._tensor.memory import LiveBytes  # noqa: E402

CPU = torch.device("cpu")


@pytest.mark.sweep(3)
@pytest.mark.parametrize("change", CHANGES)
def test_a_change_is_seen(change, gpu, monkeypatch):
    monkeypatch.setattr(Settings, "scale", 1.0)
    box = seen()
    case = scaled(cases.lstm(), lambda: factor(box))
    for call in range(5):
        if call == 3:
            change(case, box)
            captures = gpu.captures
        assert same(results(case), results(case, budget=ROOM, graph=True)), call
        # After some changes it is another loop, whose first call is not captured.
        assert call in (0, 3) or ran_as_graphs(), ebb.last_report().remarks
    assert gpu.captures > captures


def test_a_weight_that_changes_in_place_needs_no_capture(gpu):
    case = cases.lstm()
    captured(case)
    captures = gpu.captures
    with torch.no_grad():
        case.module.weight_ih.mul_(0.5)
    assert same(results(case), results(case, budget=ROOM, graph=True))
    assert ran_as_graphs() and gpu.captures == captures


def test_modes_of_a_module_are_seen():
    case = cases.dropout()
    for call in range(5):
        case.module.train(call < 3)
        assert same(results(case), results(case, budget=ROOM, graph=True)), call
    assert ran_as_graphs()


def test_after_three_captures_again_it_runs_as_without_and_says_what_changed():
    settings = Settings()
    case = scaled(cases.lstm(), lambda: settings.deep["list"][0])
    seen = []
    for call in range(7):
        settings.deep["list"][0] = 1.0 + call
        words = {"budget": ROOM, "graph": True} if call < 5 else {"budget": "60%"}
        assert same(results(case), results(case, **words))
        seen.append(ran_as_graphs())
    assert seen == [False, True, True, True, True, False, False]
    with pytest.raises(ebb.Error, match="changed after each of 4 captures: Settings"):
        results(case, budget=ROOM, graph=True)


def test_graph_false(gpu):
    case = cases.lstm()
    captured(case)
    replays = gpu.replays
    assert same(results(case), results(case, budget="60%", graph=False))
    assert not ran_as_graphs() and gpu.replays == replays


def _item(h):
    return h * (0.5 if h.sum().item() > 0 else 1.0)


def _nonzero(h):
    return h * ((h > 0).nonzero().shape[0] / h.numel())


def _hooks(h):
    if h.requires_grad:
        h.register_hook(lambda g: None)
    return h * 1


def _python_random(h):
    return h * random.random()


OWN = torch.Generator()


def _own_generator(h):
    return h * torch.rand(h.shape, generator=OWN)


REFUSED = {
    "item": (_item, "waits for the GPU"),
    "nonzero": (_nonzero, "waits for the GPU"),
    "hook": (_hooks, "hooks a tensor"),
    "python random": (_python_random, "random numbers"),
    "own generator": (_own_generator, "random numbers"),
}


@pytest.mark.sweep(3)
@pytest.mark.parametrize("kind", REFUSED)
def test_what_cannot_be_captured_runs_as_without(kind, gpu):
    operation, reason = REFUSED[kind]
    net = torch.nn.ModuleList([torch.nn.GRUCell(INPUTS, HIDDEN), torch.nn.BatchNorm1d(HIDDEN), torch.nn.Dropout(0.2)])

    def f(h, x):
        h = operation(net[2](net[1](net[0](x, h))))
        return h, h * 2

    def go(**words):
        random.seed(1)
        OWN.manual_seed(1)
        return results(case, **words)

    case = Case(net, f, cases.zeros(), cases.inputs())
    plain, stream = go(), torch.cuda.current_stream()
    for call in range(3):
        assert same(plain, go(budget="60%"))
        assert not ran_as_graphs()
        assert call == 0 or any(reason in remark for remark in ebb.last_report().remarks), ebb.last_report().remarks
    with pytest.raises(ebb.Error, match="graph=True, but blocks cannot run as CUDA graphs"):
        go(budget="60%", graph=True)
    assert torch.cuda.current_stream() is stream and not torch.cuda.is_current_stream_capturing()
    torch.cuda.empty_cache()
    assert torch.cuda.memory_reserved() == workspace_bytes(CPU)
    cases.agree(cases.dropout())  # captures, streams and generators work as before


@pytest.mark.parametrize("total", [0, WORKSPACE + SEGMENT])
def test_no_memory_for_graphs(total, gpu, monkeypatch):
    case = cases.batch_norm()
    monkeypatch.setattr(gpu, "total", total)
    without(case, "the GPU has no memory for them")
    torch.cuda.empty_cache()
    assert torch.cuda.memory_reserved() == workspace_bytes(CPU)


def test_what_cannot_be_listed_is_refused():
    case = cases.lstm()
    case.module.register_forward_hook(lambda *_: None)
    without(case, "has a hook")
    with pytest.raises(ebb.Error, match="has a hook"):
        results(case, budget=ROOM, graph=True)


def test_a_number_that_counts_blocks():
    class Counts(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.linear, self.state = torch.nn.Linear(INPUTS, HIDDEN), (0.0, 0)

        def forward(self, x):
            self.state = (0.9 * self.state[0] + self.linear(x), self.state[1] + 1)
            return self.state[0] / self.state[1]

    module = Counts()

    def go(**words):
        module.state = (0.0, 0)
        return results(case, **words)

    case = Case(module, lambda g, x: (g, module(x) * g), cases.zeros(1) + 1, cases.inputs())
    plain = go()
    for _ in range(3):
        assert same(plain, go(budget="60%")) and not ran_as_graphs()
    assert any("holds something else after each block" in remark for remark in ebb.last_report().remarks)


def otherwise(factor):
    """A loop that is another one where it is captured."""
    case = cases.raw_tensors()
    plain = case.f

    def f(h, x):
        h, ys = plain(h, x)
        return h * (factor if torch.cuda.is_current_stream_capturing() else 1.0), ys

    case.f = f
    return case


def test_a_graph_that_is_unlike_f_is_not_used():
    without(otherwise(1.5), "a forward as a graph gives another result than f itself")


def test_a_graph_that_rounds_otherwise_says_so():
    captured(otherwise(1 + 2**-22))
    assert ran_as_graphs()
    assert any("rounds otherwise than f itself" in remark for remark in ebb.last_report().remarks)


def test_one_block():
    case = cases.keeps_outside(chunk=10)
    results(case, budget=ROOM, graph=True)
    with pytest.raises(ebb.Error, match="the loop is one block"):
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


def test_inside_another_capture():
    case = cases.lstm()
    captured(case)
    graph = torch.cuda.CUDAGraph()
    with pytest.raises(ebb.Error, match="a CUDA graph is being captured around it"), torch.cuda.graph(graph):
        ebb.scan(case.f, case.init, case.xs, budget=ROOM, graph=True, chunk=3)
    assert same(results(case), results(case, budget=ROOM, graph=True)) and ran_as_graphs()


def test_a_scan_inside_of_one():
    cell = torch.nn.GRUCell(INPUTS, HIDDEN)

    def inner(h, x):
        h = cell(x, h)
        return h, h

    def outer(h, x):
        h, ys = ebb.scan(inner, h, x, budget=ROOM)
        return h, ys[-1]

    case = Case(cell, outer, cases.zeros(), cases.inputs(5, cases.BATCH, INPUTS))
    with pytest.raises(ebb.Error, match="captured around it"):
        for _ in range(2):
            results(case, budget=ROOM, graph=True)
    assert same(results(case), results(case, budget="60%"))


def test_watchers_see_all_operations(gpu):
    case = cases.lstm()
    captured(case)
    replays = gpu.replays
    with LiveBytes() as watched:
        results(case, budget=ROOM)
    assert gpu.replays == replays and watched.peak > 0


def test_what_a_graph_repeats_wrongly_is_an_error(monkeypatch, tmp_path):
    """Now and then a block also runs without. A graph that proved wrong is not used again."""
    monkeypatch.setattr("ebb._loop.engine.COMPARED", 3)
    path = tmp_path / "scale"
    path.write_text("1.0")
    case = scaled(cases.gru_carry_as_y(), lambda: float(path.read_text()))
    expect_forgotten(case, path)


@pytest.mark.parametrize("kind", cases.READ_FROM_A_FILE)
def test_gradients_and_buffers_that_a_graph_repeats_wrongly_are_an_error(kind, monkeypatch, tmp_path):
    monkeypatch.setattr("ebb._loop.engine.COMPARED", 3)
    path = tmp_path / "number"
    path.write_text("1.0")
    expect_forgotten(kind(path), path)


def test_budgets_without_room_are_compared_too(monkeypatch, tmp_path):
    monkeypatch.setattr("ebb._loop.engine.COMPARED", 2)
    path = tmp_path / "slope"
    path.write_text("1.0")
    case = cases.slope_read_from(path)
    captured(case)
    costs = ebb.last_report().costs
    words = {"budget": costs.scratch + 8 * costs.state, "graph": True}
    results(case, **words)
    assert any("beyond the budget" in remark for remark in ebb.last_report().remarks)
    path.write_text("2.0")
    with pytest.raises(ebb.Error, match="gives another result than f"):
        for _ in range(2):
            results(case, **words)


@pytest.mark.sweep(1)
@pytest.mark.parametrize("kind", ["batch norm", "dropout", "outside", "sum"])
def test_what_is_compared_now_and_then_stays_as_it_is(kind, monkeypatch):
    monkeypatch.setattr("ebb._loop.engine.COMPARED", 1)
    cases.agree(cases.KINDS[kind](), calls=4)


def test_weights_that_moved_between_forward_and_backward(gpu):
    case = cases.lstm()
    for _ in range(3):
        _, ys = ebb.scan(case.f, case.init, case.xs, budget=ROOM, graph=True, chunk=3)
        ys.sum().backward(retain_graph=True)
    assert ran_as_graphs()
    case.module.weight_hh.data = case.module.weight_hh.data.clone()
    replays = gpu.replays
    with pytest.raises(ebb.Error, match="has moved since"):
        ys.sum().backward()
    assert gpu.replays == replays


def test_what_f_reads_is_changed_between_forward_and_backward():
    cases.changed_before_backward(cases.HIDDEN, (cases.STEPS + 1,), budget=ROOM, graph=True)
    assert ran_as_graphs()


@pytest.mark.parametrize("beyond", [0, 1], ids=["usual", "with a last block of its own"])
def test_what_f_reads_and_has_no_copy_is_changed_between_forward_and_backward(beyond):
    cases.expect_stale_refused(beyond)

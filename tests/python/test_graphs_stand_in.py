# SPDX-License-Identifier: Apache-2.0
"""Blocks as graphs on a machine without a GPU, where graph_stand_in.py acts as one: what is around graphs, not what CUDA does."""

from __future__ import annotations

import gc
import threading
import types
import weakref

import pytest

torch = pytest.importorskip("torch")
if torch.cuda.is_available():
    pytest.skip("here is a GPU, for test_graphs*_cuda.py", allow_module_level=True)

import graph_cases as cases  # noqa: E402
from graph_cases import HIDDEN, INPUTS, ROOM, Case, agree, captured, ran_as_graphs, results, same, short  # noqa: E402, F401
from graph_stand_in import WORKSPACE, stand_in  # noqa: E402, F401

import ebb  # noqa: E402
from ebb._loop import engine  # noqa: E402
from ebb._loop.graphs import Graphs  # noqa: E402
from ebb._tensor.capture import workspace_bytes  # noqa: E402

CPU = torch.device("cpu")


@pytest.mark.sweep(9)
@pytest.mark.parametrize("only", ["all", "carry", "ys"])
@pytest.mark.parametrize("kind", cases.KINDS)
def test_same_bits_as_plain(kind, only):
    agree(cases.KINDS[kind](), only=only)


@pytest.mark.sweep(2)
@pytest.mark.parametrize("states", [3, 5])
@pytest.mark.parametrize("kind", ["lstm", "dropout", "batch norm", "outside", "sum"])
def test_few_states(kind, states):
    """Steps run again several times."""
    case = cases.KINDS[kind]()
    case.words["chunk"] = 1
    plain = results(case)
    captured(case)
    costs = ebb.last_report().costs
    ours = results(case, budget=costs.scratch + states * max(costs.state, 1) + 1024, graph=True)
    assert ran_as_graphs() and same(plain, ours)
    assert ebb.last_report().measured["forwards"] > ebb.last_report().steps


@pytest.mark.parametrize("states", [3, 5])
def test_forwards_that_nobody_needs_are_not_predicted(states, monkeypatch):
    case = cases.KINDS["lstm"]()
    case.words["chunk"] = 1
    captured(case)
    costs, spared, ran = ebb.last_report().costs, [], []
    count, advance = engine.spared_forwards, Graphs.advance
    monkeypatch.setattr(engine, "spared_forwards", lambda *given: spared.append(count(*given)) or spared[-1])
    monkeypatch.setattr(Graphs, "advance", lambda *given: ran.append(1) or advance(*given))
    results(case, budget=costs.scratch + states * costs.state + 1024, graph=True)
    assert len(spared) == 1 and spared[0] > 0
    assert len(ran) == ebb.last_report().measured["forwards"] - spared[0]


@pytest.mark.sweep(2)
@pytest.mark.parametrize("kind", ["lstm", "dropout", "batch norm", "outside", "init None"])
def test_states_in_host_memory(kind, monkeypatch):
    monkeypatch.setattr("ebb._tensor.tier_speed._link_rates", lambda device: (1e12, 1e12))
    monkeypatch.setattr(cases, "STEPS", 24)
    case = cases.KINDS[kind]()
    case.words["chunk"] = 1
    plain = results(case)
    captured(case)
    costs = ebb.last_report().costs
    budget, tiers = costs.scratch + 5 * costs.state, [ebb.memory_tier("1MiB", "host")]
    for _ in range(2):
        assert same(plain, results(case, budget=budget, graph=True, tiers=tiers))
        assert ran_as_graphs() and ebb.last_report().predicted["peak"]["host"] > 0


def test_training_goes_as_without():
    """Weights change in place, and the graph is retained for one backward more."""

    def trained(**words):
        torch.manual_seed(1)
        case = cases.dropout()
        optimizer = torch.optim.Adam(case.module.parameters(), 0.01)
        losses = []
        for _ in range(3):
            optimizer.zero_grad()
            _, ys = ebb.scan(case.f, case.init, case.xs, chunk=3, **words)
            loss = ys.pow(2).mean()
            loss.backward(retain_graph=True)
            loss.backward()
            losses.append(loss.detach())
            optimizer.step()
        return [*losses, *(p.detach() for p in case.module.parameters())]

    assert same(trained(), trained(budget=ROOM, graph=True))
    assert ran_as_graphs()


@pytest.mark.sweep(1)
@pytest.mark.parametrize("kind", ["dropout", "batch norm"])
def test_two_calls_before_either_backward(kind):
    case = cases.KINDS[kind]()
    buffers = [b.clone() for b in case.module.buffers()]

    def both(**words):
        torch.manual_seed(5)
        case.module.zero_grad()
        for b, old in zip(case.module.buffers(), buffers):
            b.copy_(old)
        one = ebb.scan(case.f, case.init, case.xs, chunk=3, **words)[1]
        two = ebb.scan(case.f, case.init, case.xs * 2, chunk=3, **words)[1]
        two.sin().sum().backward()
        grads = [p.grad.clone() for p in case.module.parameters()]
        one.sin().sum().backward()
        found = [one.detach(), two.detach(), *grads, *(p.grad.clone() for p in case.module.parameters())]
        return found + [b.clone() for b in case.module.buffers()] + [torch.rand(2)]

    plain = both()
    for _ in range(3):
        assert same(plain, both(budget=ROOM, graph=True))
    assert ran_as_graphs()


def test_gradients_and_results_stay_as_they_are():
    """Nothing that was handed out lies where a later call writes."""
    case = cases.gru_carry_as_y()
    captured(case)
    carry, ys = ebb.scan(case.f, case.init, case.xs, budget=ROOM, graph=True, chunk=3)
    ys.sum().backward()
    held = [carry, ys, *(p.grad for p in case.module.parameters())]
    copies = [t.detach().clone() for t in held]
    case.module.zero_grad()
    ebb.scan(case.f, case.init, case.xs * 3, budget=ROOM, graph=True, chunk=3)[1].sum().backward()
    assert ran_as_graphs() and same(copies, [t.detach() for t in held])


def _swap(lin):
    return (lambda c, x: ((c[1], c[0]), torch.tanh(lin(x) + c[0]))), 2


def _shift(lin):
    def f(c, x):
        new = torch.tanh(lin(x) + c[2])
        return (new, c[0], c[1]), new * c[2]

    return f, 3


@pytest.mark.parametrize("reduce", [None, "sum"])
def test_carry_whose_strides_change(reduce):
    """Of blocks that are unlike all that were captured some run without graphs."""
    lin = torch.nn.Linear(INPUTS, 4)

    def f(h, x):
        h = torch.tanh(lin(x) + h).t()
        return h, h.sum(0)

    agree(Case(lin, f, torch.zeros(4, 4), cases.inputs(), {"reduce": reduce}))


@pytest.mark.sweep(2)
@pytest.mark.parametrize("chunk", [1, 2])
@pytest.mark.parametrize("kind", [_swap, _shift])
def test_carries_that_change_places(kind, chunk):
    lin = torch.nn.Linear(INPUTS, HIDDEN)
    f, count = kind(lin)
    agree(Case(lin, f, tuple(cases.zeros() + k for k in range(count)), cases.inputs(), {"chunk": chunk}))


def test_carry_that_is_a_weight():
    """Whose gradient is that of the carry itself."""
    module = torch.nn.Linear(INPUTS, HIDDEN)
    module.start = torch.nn.Parameter(torch.randn(cases.BATCH, HIDDEN))

    def f(carry, x):
        h, start = carry
        return (torch.tanh(h + start + module(x)), module.start), h * 2

    agree(Case(module, f, (cases.zeros(), cases.zeros()), cases.inputs(), {"chunk": 1}))


def test_while_loop():
    cell, x = torch.nn.GRUCell(8, 16), torch.randn(4, 8)

    def go(**words):
        cell.zero_grad()
        state = torch.zeros(4, 16), torch.zeros(())
        h, _ = ebb.while_loop(lambda c: c[1] < 20, lambda c: (cell(x, c[0]), c[1] + 1), state, **words)
        h.sin().sum().backward()
        return [h.detach(), *(p.grad.clone() for p in cell.parameters())]

    plain = go()
    for call in range(3):
        assert same(plain, go(budget=ROOM, graph=True, expected=30))
        assert ran_as_graphs() == (call > 0), ebb.last_report().remarks


def test_state_that_begins_as_another_kind_of_thing():
    class Leaky(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.linear, self.state = torch.nn.Linear(INPUTS, HIDDEN), (0.0, 0.9)

        def forward(self, x):
            v, tau = self.state
            self.state = (tau * v + self.linear(x), tau)
            return self.state[0] * 1

    module = Leaky()
    case = Case(module, lambda g, x: (g, module(x) * g), cases.zeros(1) + 1, cases.inputs())
    for call in range(5):
        tau = 0.9 if call < 3 else 0.5
        module.state = (0.0, tau)
        plain = results(case)
        module.state = (0.0, tau)
        assert same(plain, results(case, budget=ROOM, graph=True)), call


def test_another_pattern_of_gradients_is_captured_at_the_next_call(gpu):
    case = cases.lstm()
    captured(case)
    for only in ("carry", "ys"):
        plain = results(case, only=only)
        for _ in range(2):
            captures = gpu.captures
            assert same(plain, results(case, only=only, budget=ROOM, graph=True))
            assert ran_as_graphs()
        assert gpu.captures > captures
        results(case, only=only, budget=ROOM, graph=True)


def test_two_loops_on_two_streams():
    """One after the other, whatever the streams: the stand-in refuses others."""
    both = [cases.dropout(), cases.lstm()]
    expected = [results(case) for case in both]
    for case in both:
        captured(case)
    streams = [torch.cuda.Stream() for _ in both]
    for _ in range(2):
        for case, stream, plain in zip(both, streams, expected):
            with torch.cuda.stream(stream):
                assert same(plain, results(case, budget=ROOM, graph=True)) and ran_as_graphs()


def test_threads_on_their_streams():
    case = cases.lstm()

    def once(**words):
        init = tuple(t.clone().requires_grad_() for t in case.init)
        _, ys = ebb.scan(case.f, init, case.xs, chunk=3, **words)
        grads = torch.autograd.grad(ys.double().sin().sum(), list(case.module.parameters()))
        return [t.detach().clone() for t in (ys, *grads)]

    expected = once()
    for _ in range(2):
        once(budget=ROOM, graph=True)
    found = []

    def work(stream):
        with torch.cuda.stream(stream):
            found.extend(once(budget=ROOM, graph=True) for _ in range(2))

    threads = [threading.Thread(target=work, args=(torch.cuda.Stream(),)) for _ in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(found) == 4 and all(same(expected, one) for one in found)


def test_they_go_with_the_model_and_by_a_call(gpu):
    case = cases.lstm()
    captured(case)
    assert gpu.graphs() > 0
    module = weakref.ref(case.module)
    del case
    gc.collect()
    assert module() is None and gpu.graphs() == 0
    case = cases.lstm()
    captured(case)
    ebb.clear_cache()
    gc.collect()
    torch.cuda.empty_cache()
    assert gpu.graphs() == 0 and torch.cuda.memory_reserved() == workspace_bytes(CPU)
    agree(case)


@pytest.mark.sweep(1)
@pytest.mark.parametrize("kind", ["lstm", "outside", "sum"])
def test_all_that_graphs_hold_counts(kind, gpu):
    """Pools, workspaces, what a graph takes when it is launched first, and the tensors that go in and out."""
    case = cases.KINDS[kind]()
    captured(case)
    held = gpu.held()
    costs = ebb.last_report().costs
    assert costs.scratch >= held
    enough = costs.scratch + 40 * costs.state + 4096
    for _ in range(2):
        with pytest.raises(ebb.Error, match="does not fit beside the states of a plan"):
            results(case, budget=held, graph=True)
        if kind != "outside":  # where what f keeps has a history, to which the call with its graphs belongs
            assert gpu.graphs() == 0 and gpu.held() == workspace_bytes(CPU)
        ours = results(case, budget=enough, graph=True)
        assert ran_as_graphs() and same(results(case), ours)
        assert gpu.held() == held or kind == "outside"
    with pytest.raises(ebb.Error, match="does not fit beside the states of a plan"):
        results(case, budget=held, graph=True)
    with pytest.raises(ebb.Error, match="was given back 3 times for calls in smaller budgets"):
        results(case, budget=enough, graph=True)
    assert same(results(case), results(case, budget=enough))


def test_what_cannot_fit_is_not_captured(gpu, monkeypatch):
    monkeypatch.setenv("CUBLAS_WORKSPACE_CONFIG", f":{WORKSPACE >> 11}:2")
    case = cases.KINDS["lstm"]()
    case.words["chunk"] = 1
    results(case, budget=WORKSPACE, graph=True)
    with pytest.raises(ebb.Error, match="they need more than"):
        results(case, budget=WORKSPACE, graph=True)
    assert gpu.captures == 0 and gpu.held() == 0


@pytest.mark.slow  # the loop is longer
def test_what_libraries_keep_for_graphs_that_do_not_fit_counts(monkeypatch):
    monkeypatch.setattr(cases, "STEPS", 300)
    monkeypatch.setattr("ebb._loop.capturing._GAIN", 1e9)
    case = cases.gru_carry_as_y()
    with pytest.raises(ebb.Error) as small:
        results(case, budget=1)
    budget = WORKSPACE + 2 * small.value.least_budget
    plain = results(case)
    for _ in range(3):
        assert same(plain, results(case, budget=budget)) and not ran_as_graphs()
    report = ebb.last_report()
    assert any("does not fit beside" in remark for remark in report.remarks), report.remarks
    results(case, budget=budget - WORKSPACE, graph=False)
    assert report.measured["forwards"] == ebb.last_report().measured["forwards"]


@pytest.mark.slow  # the loop is longer
def test_without_asking_where_not_all_fits(monkeypatch):
    """The default: captured from the second call on, where that is faster."""
    monkeypatch.setattr(cases, "STEPS", 300)
    case = cases.gru_carry_as_y()
    plain = results(case)
    for gain, graphs in ((0.0, False), (1e9, True)):
        monkeypatch.setattr("ebb._loop.capturing._GAIN", gain)
        ebb.clear_cache()
        for call in range(3):
            ours = results(case, budget="400KiB")
            assert same(plain, ours)
            assert ran_as_graphs() == (graphs and call > 0), ebb.last_report().remarks
        text = "capturing took" if graphs else "they would not be faster"
        assert any(text in remark for remark in ebb.last_report().remarks), ebb.last_report().remarks
    for _ in range(4):
        assert same(plain, results(case, budget="400KiB", chunk=None))  # one that is chosen for graphs


def test_second_derivatives_are_refused_as_without():
    case = cases.lstm()
    captured(case)
    _, ys = ebb.scan(case.f, case.init, case.xs, budget=ROOM, graph=True, chunk=3)
    with pytest.raises(ebb.Error, match="second derivatives"):
        torch.autograd.grad(ys.sum(), list(case.module.parameters()), create_graph=True)


def test_counts_beside_the_carry():
    lin, box = torch.nn.Linear(INPUTS, HIDDEN), types.SimpleNamespace(n=torch.zeros(()))

    def f(h, x):
        box.n.add_(1)
        h = torch.tanh(h + lin(x)) / (box.n + 1)
        return h, h * 1

    case = Case(lin, f, cases.zeros(), cases.inputs(), {"chunk": 4})

    def go(**words):
        box.n.zero_()
        return [*results(case, **words), box.n.clone()]

    plain = go()
    for _ in range(3):
        assert same(plain, go(budget=ROOM, graph=True))
    assert ran_as_graphs()


@pytest.mark.parametrize("kind", ["lstm", "dropout", "batch norm", "outside", "sum", "several uses"])
@pytest.mark.sweep(2)
def test_loops_of_other_lengths_have_the_same_graphs(kind, gpu):
    """But for their last block, where that is another one."""
    case = cases.KINDS[kind]()
    cases.other_lengths(case, [20, 24, 27, 14, 7, 21, 20])
    captures = gpu.captures
    cases.other_lengths(case, [15, 27, 9, 33], first=False)
    assert gpu.captures == captures


@pytest.mark.parametrize("budget", [ROOM, "60%"])
def test_loops_of_other_lengths_in_blocks_that_are_chosen(budget):
    case = cases.lstm(chunk=None)
    for k, steps in enumerate([80, 97, 64, 81, 100, 90, 75]):
        ours = Case(case.module, case.f, case.init, torch.randn(steps, 4, INPUTS), case.words)
        assert same(results(ours), results(ours, budget=budget, graph=None if budget != ROOM else True)), k


def test_a_last_block_without_a_graph_is_a_part_of_the_budget():
    case = cases.lstm()
    found = []
    for steps in (20, 20, 20, 19):  # 7 blocks, the last of 2 and of 1
        ours = Case(case.module, case.f, case.init, torch.randn(steps, 4, INPUTS), case.words)
        results(ours, budget=ROOM, graph=True)
        found.append(ebb.last_report().predicted["peak"]["fast"])
    assert ran_as_graphs() and found[3] > found[2] == found[1]


def test_spiking_layers_take_the_word(monkeypatch):
    monkeypatch.setattr("ebb.nn._native.why_not", lambda *tensors: "on a GPU")
    x = torch.randn(40, 3, INPUTS)
    for graph in (True, False):
        layer = ebb.nn.LIF(INPUTS, HIDDEN, budget=ROOM, chunk=4, graph=graph)
        for _ in range(3):
            layer(x)[0].sum().backward()
        assert ran_as_graphs() is graph
    with pytest.raises(ebb.Error, match="ALIF: graph is 'yes'; it is True, False"):
        ebb.nn.ALIF(INPUTS, HIDDEN, graph="yes")


def test_a_short_loop_leaves_the_graphs_of_a_long_one(gpu, monkeypatch):
    """Its share of memory is less than they need."""
    monkeypatch.setattr("ebb._loop.capturing._GAIN", 1e9)
    monkeypatch.setattr("ebb._loop.capturing._least", lambda loop, seen: 0)
    case = cases.lstm()
    seen = []
    for steps in (900, 900, 900, 60, 900, 60, 900, 60, 900, 60, 900):
        ours = Case(case.module, case.f, case.init, torch.randn(steps, 4, INPUTS), {"chunk": 30})
        results(ours, budget="90%")
        seen.append((steps, ran_as_graphs(), gpu.captures))
    captures = seen[1][2]
    assert seen[1][1] and all(graphs == (steps == 900) for steps, graphs, _ in seen[1:]), seen
    assert all(count == captures for *_, count in seen[1:])

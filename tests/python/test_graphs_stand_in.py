# SPDX-License-Identifier: Apache-2.0
"""Blocks as graphs on a machine without a GPU, where graph_stand_in.py acts as one: what is around graphs, not what CUDA does."""

from __future__ import annotations

import gc
import random
import threading
import types
import weakref

import numpy as np
import pytest

torch = pytest.importorskip("torch")
if torch.cuda.is_available():
    pytest.skip("here is a GPU, for test_graphs*_cuda.py", allow_module_level=True)

import graph_cases as cases  # noqa: E402
from graph_cases import HIDDEN, INPUTS, ROOM, Case, captured, ran_as_graphs, results, same  # noqa: E402
from graph_stand_in import SEGMENT, WORKSPACE, gpu  # noqa: E402, F401

import ebb  # noqa: E402
from ebb._tensor.capture import workspace_bytes  # noqa: E402
from ebb._tensor.memory import LiveBytes  # noqa: E402

CPU = torch.device("cpu")


@pytest.fixture(autouse=True)
def short(monkeypatch):
    """Loops of three blocks and a part of one, and graphs are measured once."""
    monkeypatch.setattr(cases, "STEPS", 10)
    monkeypatch.setattr(cases, "CHUNK", 3)
    for name in ("_ROUNDS", "_TOGETHER"):
        monkeypatch.setattr(f"ebb._loop.capturing.{name}", 1)


def agree(case, calls=3, **words):
    for call in range(calls):
        assert same(results(case, **words), results(case, budget=ROOM, graph=True, **words)), call
        assert ran_as_graphs() == (call > 0), ebb.last_report().remarks


def without(case, reason, budget="60%", **words):
    """As plain autograd, not captured, and the report says why."""
    for call in range(3):
        assert same(results(case, **words), results(case, budget=budget, **words)), call
        assert not ran_as_graphs()
    assert any(reason in remark for remark in ebb.last_report().remarks), ebb.last_report().remarks


def scaled(case, by):
    """y times what `by` gives."""
    plain = case.f

    def f(carry, x):
        carry, y = plain(carry, x)
        return carry, y * by()

    case.f = f
    return case


@pytest.mark.sweep(12)
@pytest.mark.parametrize("only", ["all", "carry", "ys"])
@pytest.mark.parametrize("kind", cases.KINDS)
def test_same_bits_as_plain(kind, only):
    agree(cases.KINDS[kind](), only=only)


@pytest.mark.sweep(4)
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


@pytest.mark.parametrize("chunk", [1, 2])
@pytest.mark.parametrize("kind", [_swap, _shift])
def test_carries_that_change_places(kind, chunk):
    lin = torch.nn.Linear(INPUTS, HIDDEN)
    f, count = kind(lin)
    agree(Case(lin, f, tuple(cases.zeros() + k for k in range(count)), cases.inputs(), {"chunk": chunk}))


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


def test_another_pattern_of_gradients_is_captured_at_the_next_call(gpu):  # noqa: F811
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


class Settings:
    scale = 1.0

    def __init__(self):
        self.deep = {"list": [1.0]}


def _number(case, box):
    box["k"] = 0.5


def _moved(case, box):
    case.module.weight_ih.data = case.module.weight_ih.data.clone() * 0.5


def _frozen(case, box):
    case.module.bias_ih.requires_grad_(False)


def _parameter(case, box):
    case.module.bias_hh = torch.nn.Parameter(case.module.bias_hh.detach() * 2)


def _class(case, box):
    Settings.scale = 3.0


def _deep(case, box):
    box["settings"].deep["list"][0] += 1.0


def _array(case, box):
    box["array"][0] += 1.0


@pytest.mark.sweep(4)
@pytest.mark.parametrize("change", [_number, _moved, _frozen, _parameter, _class, _deep, _array])
def test_a_change_is_seen(change, gpu, monkeypatch):  # noqa: F811
    monkeypatch.setattr(Settings, "scale", 1.0)
    box = {"k": 1.0, "settings": Settings(), "array": np.ones(3)}
    case = scaled(
        cases.lstm(),
        lambda: box["k"] * Settings.scale * box["settings"].deep["list"][0] * float(box["array"][0]),
    )
    for call in range(5):
        if call == 3:
            change(case, box)
            captures = gpu.captures
        assert same(results(case), results(case, budget=ROOM, graph=True)), call
        # After some changes it is another loop, whose first call is not captured.
        assert call in (0, 3) or ran_as_graphs(), ebb.last_report().remarks
    assert gpu.captures > captures


def test_a_weight_that_changes_in_place_needs_no_capture(gpu):  # noqa: F811
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


def test_after_three_captures_it_runs_as_without_and_says_what_changed():
    settings = Settings()
    case = scaled(cases.lstm(), lambda: settings.deep["list"][0])
    seen = []
    for call in range(6):
        settings.deep["list"][0] = 1.0 + call
        words = {"budget": ROOM, "graph": True} if call < 4 else {"budget": "60%"}
        assert same(results(case), results(case, **words))
        seen.append(ran_as_graphs())
    assert seen == [False, True, True, True, False, False]
    with pytest.raises(ebb.Error, match="changed after each of 3 captures: Settings"):
        results(case, budget=ROOM, graph=True)


def test_graph_false(gpu):  # noqa: F811
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


@pytest.mark.parametrize("kind", REFUSED)
def test_what_cannot_be_captured_runs_as_without(kind, gpu):  # noqa: F811
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
    agree(cases.dropout())  # captures, streams and generators work as before


@pytest.mark.parametrize("total", [0, WORKSPACE + SEGMENT])
def test_no_memory_for_graphs(total, gpu, monkeypatch):  # noqa: F811
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


def test_watchers_see_all_operations(gpu):  # noqa: F811
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
    captured(case)
    assert ran_as_graphs()
    path.write_text("2.0")
    with pytest.raises(ebb.Error, match="as a CUDA graph gives another result"):
        for _ in range(4):
            results(case, budget=ROOM, graph=True)
    doubled = results(case)
    for _ in range(2):
        ours = results(case, budget=ROOM, graph=True)
    assert ran_as_graphs() and same(doubled, ours)


def test_what_a_graph_repeats_wrongly_in_backward_is_an_error(monkeypatch, tmp_path):
    monkeypatch.setattr("ebb._loop.engine.COMPARED", 3)
    path = tmp_path / "slope"
    path.write_text("1.0")
    cell = torch.nn.Linear(INPUTS, HIDDEN)

    class Spike(torch.autograd.Function):
        @staticmethod
        def forward(ctx, u):
            return (u > 0).float()

        @staticmethod
        def backward(ctx, gradient):
            return gradient * float(path.read_text())

    def f(h, x):
        h = 0.9 * h + cell(x)
        spikes = Spike.apply(h)
        return h - spikes, spikes

    case = Case(cell, f, cases.zeros(), cases.inputs())
    captured(case)
    assert ran_as_graphs()
    path.write_text("2.0")
    with pytest.raises(ebb.Error, match="as a CUDA graph gives another result"):
        for _ in range(4):
            results(case, budget=ROOM, graph=True)
    doubled = results(case)
    for _ in range(2):
        ours = results(case, budget=ROOM, graph=True)
    assert ran_as_graphs() and same(doubled, ours)


@pytest.mark.sweep(2)
@pytest.mark.parametrize("kind", ["batch norm", "dropout", "outside", "sum"])
def test_what_is_compared_now_and_then_stays_as_it_is(kind, monkeypatch):
    monkeypatch.setattr("ebb._loop.engine.COMPARED", 1)
    agree(cases.KINDS[kind](), calls=4)


def test_weights_that_moved_between_forward_and_backward(gpu):  # noqa: F811
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


def test_they_go_with_the_model_and_by_a_call(gpu):  # noqa: F811
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


@pytest.mark.parametrize("kind", ["lstm", "outside", "sum"])
def test_all_that_graphs_hold_counts(kind, gpu):  # noqa: F811
    """Pools, workspaces, what a graph takes when it is launched first, and the tensors that go in and out."""
    case = cases.KINDS[kind]()
    captured(case)
    held = gpu.held()
    costs = ebb.last_report().costs
    assert costs.scratch >= held
    with pytest.raises(ebb.Error, match="does not fit beside the states of a plan"):
        results(case, budget=held, graph=True)
    ours = results(case, budget=costs.scratch + 40 * costs.state + 4096, graph=True)
    assert ran_as_graphs() and same(results(case), ours)
    assert gpu.held() == held


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

# SPDX-License-Identifier: Apache-2.0
"""Blocks as CUDA graphs have the bits of plain autograd, whatever the loop does. `./dev cuda` runs it where a GPU is."""

from __future__ import annotations

import pytest

torch = pytest.importorskip("torch")
if not torch.cuda.is_available():
    pytest.skip("no GPU here", allow_module_level=True)

import graph_cases as cases  # noqa: E402
from graph_cases import ROOM, captured, fresh, ran_as_graphs, results, same  # noqa: E402, F401

import ebb  # noqa: E402


@pytest.mark.parametrize("only", ["all", "carry", "ys"])
@pytest.mark.parametrize("kind", cases.KINDS)
def test_same_bits_as_plain(kind, only):
    case = cases.KINDS[kind]()
    for call in range(4):
        plain = results(case, only=only)
        ours = results(case, only=only, budget=ROOM, graph=True)
        assert ran_as_graphs() == (call > 0), ebb.last_report().remarks
        assert same(plain, ours), call


@pytest.mark.parametrize("states", [3, 6])
@pytest.mark.parametrize("kind", ["lstm", "gru, carry as y", "dropout", "batch norm", "outside", "sum", "chunk 1"])
def test_few_states(kind, states, monkeypatch):
    """Steps run again several times."""
    case = cases.KINDS[kind]()
    case.words.setdefault("chunk", 3)
    plain = results(case)
    captured(case)
    costs = ebb.last_report().costs
    budget = costs.scratch + states * max(costs.state, 1) + 4096
    ours = results(case, budget=budget, graph=True)
    assert ran_as_graphs() and same(plain, ours)
    assert ebb.last_report().measured["forwards"] > ebb.last_report().steps


@pytest.mark.parametrize("kind", ["lstm", "dropout", "outside", "init None"])
def test_states_in_host_memory(kind):
    case = cases.KINDS[kind]()
    case.words["chunk"] = 3
    plain = results(case)
    captured(case)
    costs = ebb.last_report().costs
    tiers = [ebb.memory_tier("64MiB", "host")]
    for _ in range(3):
        ours = results(case, budget=costs.scratch + 6 * costs.state + (64 << 10), graph=True, tiers=tiers)
        assert ran_as_graphs() and same(plain, ours)


def test_without_asking_where_not_all_fits():
    """The default: captured from the second call on."""
    cell = torch.nn.LSTMCell(32, 256).cuda()
    xs = torch.randn(600, 64, 32, device="cuda")
    zero = torch.zeros(64, 256, device="cuda")
    case = cases.Case(cell, lambda c, x: (lambda h: (h, h[0]))(cell(x, c)), (zero, zero), xs)
    plain = results(case)
    for call in range(3):
        ours = results(case, budget="150MiB", chunk=8)
        assert ran_as_graphs() == (call > 0), ebb.last_report().remarks
        assert same(plain, ours)
    for _ in range(6):
        ours = results(case, budget="150MiB", chunk=None)  # which is chosen for graphs once they are known
        assert same(plain, ours)
    assert ran_as_graphs()
    assert any("capturing took" in remark for remark in ebb.last_report().remarks)
    assert "CUDA graphs" in ebb.last_report().brief()
    results(case, budget="150MiB", graph=False)
    assert not ran_as_graphs()


def test_training_goes_as_without():
    """Weights change in place, gradients are added up over two calls, and the graph is retained for one backward more."""

    def trained(**words):
        torch.manual_seed(1)
        case = cases.lstm()
        optimizer = torch.optim.Adam(case.module.parameters(), 0.01)
        losses = []
        for _ in range(5):
            optimizer.zero_grad()
            kept = []
            for _ in range(2):
                _, ys = ebb.scan(case.f, case.init, case.xs, chunk=7, **words)
                loss = ys.pow(2).mean()
                loss.backward(retain_graph=True)
                kept.append([p.grad for p in case.module.parameters()])
            loss.backward()
            losses.append(loss.detach())
            optimizer.step()
        return [*losses, *(p.detach() for p in case.module.parameters()), *kept[-1]]

    assert same(trained(), trained(budget=ROOM, graph=True))
    assert ran_as_graphs()


def test_two_calls_before_either_backward():
    case = cases.dropout()

    def both(**words):
        torch.manual_seed(5)
        case.module.zero_grad()
        one = ebb.scan(case.f, case.init, case.xs, chunk=7, **words)[1]
        two = ebb.scan(case.f, case.init, case.xs * 2, chunk=7, **words)[1]
        two.sin().sum().backward()
        grads = [p.grad.clone() for p in case.module.parameters()]
        one.sin().sum().backward()
        return [one.detach(), two.detach(), *grads, *(p.grad.clone() for p in case.module.parameters())]

    plain = both()
    for _ in range(3):
        assert same(plain, both(budget=ROOM, graph=True))
    assert ran_as_graphs()


def test_gradients_and_results_stay_as_they_are():
    """Nothing that was handed out lies where a later call writes."""
    case = cases.gru_carry_as_y()
    captured(case)
    carry, ys = ebb.scan(case.f, case.init, case.xs, budget=ROOM, graph=True, chunk=7)
    ys.sum().backward()
    held = [carry, ys, *(p.grad for p in case.module.parameters())]
    copies = [t.detach().clone() for t in held]
    for p in case.module.parameters():
        p.grad = None
    other = ebb.scan(case.f, case.init, case.xs * 3, budget=ROOM, graph=True, chunk=7)[1]
    other.sum().backward()
    assert ran_as_graphs() and same(copies, [t.detach() for t in held])


def test_nodes_of_others_are_left_alone():
    """DDP and others hold the nodes that add up gradients, made on another stream."""
    case = cases.lstm()
    held = [p.expand_as(p).grad_fn.next_functions[0][0] for p in case.module.parameters()]
    side = torch.cuda.Stream()
    with torch.cuda.stream(side):
        results(case)
    plain = results(case)
    for call in range(3):
        assert same(plain, results(case, budget=ROOM, graph=True))
        assert ran_as_graphs() == (call > 0), ebb.last_report().remarks
    del held


def test_on_streams_and_threads():
    import threading

    case = cases.lstm()

    def once(**words):
        init = tuple(t.clone().requires_grad_() for t in case.init)
        _, ys = ebb.scan(case.f, init, case.xs, chunk=7, **words)
        grads = torch.autograd.grad(ys.double().sin().sum(), list(case.module.parameters()))
        return [t.detach().clone() for t in (ys, *grads)]

    expected = once()
    for _ in range(2):
        once(budget=ROOM, graph=True)
    assert ran_as_graphs()
    streams = [torch.cuda.Stream() for _ in range(3)]
    torch.cuda.synchronize()
    found = []

    def work(stream):
        with torch.cuda.stream(stream):
            found.extend(once(budget=ROOM, graph=True) for _ in range(5))
        stream.synchronize()

    threads = [threading.Thread(target=work, args=(stream,)) for stream in streams]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    torch.cuda.synchronize()
    assert len(found) == 15 and all(same(expected, one) for one in found)


def test_while_loop():
    cell = torch.nn.GRUCell(8, 16).cuda()
    x = torch.randn(4, 8, device="cuda")

    def go(**words):
        cell.zero_grad()
        state = (torch.zeros(4, 16, device="cuda"), torch.zeros((), device="cuda"))
        h, _ = ebb.while_loop(lambda c: c[1] < 40, lambda c: (cell(x, c[0]), c[1] + 1), state, **words)
        h.sin().sum().backward()
        return [h.detach(), *(p.grad.clone() for p in cell.parameters())]

    plain = go()
    for call in range(3):
        assert same(plain, go(budget=ROOM, graph=True, expected=50))
        assert ran_as_graphs() == (call > 0), ebb.last_report().remarks


@pytest.mark.parametrize("layer", ["LIF", "ALIF"])
def test_layers(layer):
    # In float64, which no kernel of the library takes.
    net = getattr(ebb.nn, layer)(8, 256, budget="200MiB", device="cuda", dtype=torch.float64)
    xs = (torch.rand(1500, 64, 8, device="cuda") < 0.3).double()

    def go():
        net.zero_grad()
        spikes, _ = net(xs)
        spikes.sum().backward()
        return [spikes.detach(), *(p.grad.clone() for p in net.parameters() if p.grad is not None)]

    net.budget = None
    plain = go()
    net.budget = "200MiB"
    found = [go() for _ in range(6)]
    assert all(same(plain, one) for one in found)
    assert ran_as_graphs(), ebb.last_report().remarks


def test_what_a_graph_repeats_wrongly_is_an_error(monkeypatch, tmp_path):
    """Now and then a block also runs without."""
    monkeypatch.setattr("ebb._loop.engine.COMPARED", 4)
    path = tmp_path / "scale"
    path.write_text("1.0")
    case = cases.scaled(cases.gru_carry_as_y(), lambda: float(path.read_text()))
    cases.expect_forgotten(case, path)


@pytest.mark.parametrize("kind", cases.READ_FROM_A_FILE)
def test_gradients_and_buffers_that_a_graph_repeats_wrongly_are_an_error(kind, monkeypatch, tmp_path):
    monkeypatch.setattr("ebb._loop.engine.COMPARED", 4)
    path = tmp_path / "number"
    path.write_text("1.0")
    cases.expect_forgotten(kind(path), path)


def test_second_derivatives_are_refused_as_without():
    case = cases.lstm()
    captured(case)
    _, ys = ebb.scan(case.f, case.init, case.xs, budget=ROOM, graph=True, chunk=7)
    with pytest.raises(ebb.Error, match="second derivatives"):
        torch.autograd.grad(ys.sum(), list(case.module.parameters()), create_graph=True)


@pytest.mark.parametrize("kind", ["lstm", "dropout", "batch norm", "outside", "sum"])
def test_loops_of_other_lengths_have_the_same_graphs(kind):
    cases.other_lengths(cases.KINDS[kind](), [63, 70, 65, 91, 63])

# SPDX-License-Identifier: Apache-2.0
"""Packed sequences in layers that the library's own GPU kernels run: with a stand-in for the kernels on the CPU, beside torch's own
layers in float64."""

from __future__ import annotations

import itertools

import pytest

torch = pytest.importorskip("torch", reason="PyTorch is not installed")
from gated_cases import NAMES, on_a_gpu, same  # noqa: E402, F401
from torch.nn.utils.rnn import pack_padded_sequence, pad_packed_sequence  # noqa: E402

import ebb  # noqa: E402
import ebb.nn  # noqa: E402
from ebb._loop import examine  # noqa: E402
from ebb._tensor.memory import LiveBytes  # noqa: E402
from ebb.nn._layout import Even, Packed  # noqa: E402

pytestmark = pytest.mark.usefixtures("one_thread")

INPUTS, HIDDEN = 5, 8
LENGTHS = {
    "apart": [40, 33, 21, 20, 3],
    "not sorted": [3, 40, 21, 21, 1],
    "in two": [30, 30, 14, 14],
    "alike": [25, 25, 25],
    "alone": [17],
    "short": [1, 1],
}
HOW = [{}, {"num_layers": 2}, {"bidirectional": True}, {"num_layers": 2, "bidirectional": True, "bias": False}]


class Packs:
    """A layer, packed sequences, states, and torch's own layer in float64 with the same weights."""

    def __init__(self, name, lengths, dtype=torch.float32, budget="60%", chunk=None, **how):
        torch.manual_seed(0)
        self.lengths = lengths
        self.net = getattr(ebb.nn, name)(INPUTS, HIDDEN, budget=budget, chunk=chunk, **how).to(dtype)
        self.exact = getattr(torch.nn, name)(INPUTS, HIDDEN, **how).double()
        self.exact.load_state_dict(self.net.state_dict())
        self.x = torch.randn(max(lengths), len(lengths), INPUTS).to(dtype)
        layers = self.net.num_layers * (2 if self.net.bidirectional else 1)
        self.states = [torch.randn(layers, len(lengths), HIDDEN).to(dtype) for _ in range(2 if name == "LSTM" else 1)]

    def results(self, net=None, uses="ys", of_x=True):
        net = net or self.net
        dtype = next(net.parameters()).dtype
        x = self.x.to(dtype, copy=True).requires_grad_(of_x)
        states = [state.to(dtype, copy=True).requires_grad_() for state in self.states]
        packed = pack_padded_sequence(x, self.lengths, enforce_sorted=False)
        y, last = net(packed, tuple(states) if len(states) == 2 else states[0])
        last = last if isinstance(last, tuple) else (last,)
        assert y.batch_sizes.equal(packed.batch_sizes)
        weights = torch.linspace(-1, 1, y.data.numel(), dtype=torch.float64).view(y.data.shape)
        loss = (y.data.double() * weights).mean() if "y" in uses else 0
        if "s" in uses:
            loss = loss + sum((k + 1) * state.double().sin().mean() for k, state in enumerate(last))
        loss.backward()
        found = [pad_packed_sequence(y)[0], *last, x.grad, *[state.grad for state in states]]
        found += [parameter.grad for parameter in net.parameters()]
        net.zero_grad()
        return [None if tensor is None else tensor.detach() for tensor in found]

    def check(self, tolerance=1e-5, **how):
        for right, found in zip(self.results(self.exact, **how), self.results(**how), strict=True):
            assert (right is None) == (found is None)
            if right is not None:
                assert float((right - found.double()).abs().max()) <= tolerance * max(1e-4, float(right.abs().max()))


def budgets(name, lengths, how):
    """The least that works, and more."""
    with pytest.raises(ebb.Error) as refused:
        Packs(name, lengths, budget=1, chunk=7, **how).results()
    return [refused.value.least_budget, "50%", "speed"]


@pytest.mark.parametrize("lengths", LENGTHS.values(), ids=LENGTHS.keys())
@pytest.mark.parametrize("how", HOW, ids=str)
@pytest.mark.parametrize("name", NAMES)
@pytest.mark.sweep(16)
def test_gradients_are_those_of_torch(name, how, lengths):
    Packs(name, lengths, chunk=7, budget="speed", **how).check()


@pytest.mark.parametrize("how", HOW, ids=str)
@pytest.mark.parametrize("name", NAMES)
@pytest.mark.sweep(4)
def test_every_budget_has_the_same_bits(name, how):
    lengths = LENGTHS["not sorted"]
    found = []
    for budget in budgets(name, lengths, how):
        case = Packs(name, lengths, budget=budget, chunk=7, **how)
        found.append(case.results())
        case.check()
    assert all(same(found[0], other) for other in found)


@pytest.mark.parametrize("chunk", [1, 2, 20, 21, 40, None])
@pytest.mark.parametrize("name", NAMES)
@pytest.mark.sweep(6)
def test_chunks_of_any_length(name, chunk):
    for how in ({}, {"bidirectional": True}):
        Packs(name, LENGTHS["apart"], chunk=chunk, budget="speed" if chunk else "60%", **how).check()


@pytest.mark.parametrize("uses, of_x", [("y", True), ("s", True), ("ys", False)])
@pytest.mark.parametrize("name", NAMES)
@pytest.mark.sweep(3)
def test_what_has_no_gradient(name, uses, of_x):
    for how in HOW:
        Packs(name, LENGTHS["apart"], chunk=7, **how).check(uses=uses, of_x=of_x)


@pytest.mark.parametrize("dtype, tolerance", [(torch.bfloat16, 6e-2), (torch.float16, 1e-2)])
@pytest.mark.parametrize("name", NAMES)
def test_sixteen_bits(name, dtype, tolerance):
    for how in HOW[:3]:
        Packs(name, LENGTHS["not sorted"], dtype, chunk=7, **how).check(tolerance)


@pytest.mark.parametrize("name", NAMES)
def test_without_gradients(name):
    for how in HOW:
        case = Packs(name, LENGTHS["not sorted"], **how)
        right = case.results()
        packed = pack_padded_sequence(case.x, case.lengths, enforce_sorted=False)
        with torch.no_grad():
            y, last = case.net(packed, tuple(case.states) if name == "LSTM" else case.states[0])
        last = last if isinstance(last, tuple) else (last,)
        for a, b in zip(right, [pad_packed_sequence(y)[0], *last]):
            assert torch.allclose(a, b, atol=1e-6)


def taken(net, x, lengths):
    """Bytes of a call beside what is the caller's."""
    packed = pack_padded_sequence(x, lengths)
    data = packed.data.detach().requires_grad_()
    packed = packed._replace(data=data)
    with LiveBytes() as counted:
        y, last = net(packed)
        last = last if isinstance(last, tuple) else (last,)
        given = [torch.ones((), dtype=x.dtype).expand(t.shape) for t in (y.data, *last)]
        torch.autograd.backward([y.data, *last], given)
    callers = [y.data, *last, data.grad, *[p.grad for p in net.parameters()]]
    # States that a layer begins with are its own, and all runs of a layer have theirs.
    callers += 2 * list(last)
    net.zero_grad()
    return counted.peak - sum(tensor.nbytes for tensor in callers)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize("how", [{}, {"num_layers": 2}, {"bidirectional": True}], ids=str)
@pytest.mark.parametrize("name", NAMES)
@pytest.mark.sweep(5)
def test_the_budget_is_a_cap(name, how, dtype):
    torch.manual_seed(0)
    net = getattr(ebb.nn, name)(16, 64, chunk=8, budget=1, **how).to(dtype)
    x = torch.randn(64, 16, 16).to(dtype)
    uneven = sorted(torch.randint(1, 64, (15,)).tolist() + [64], reverse=True)
    for lengths in ([64] * 16, uneven, [64] + [1] * 15):
        net.budget = 1
        with pytest.raises(ebb.Error) as small:
            taken(net, x, lengths)
        net.budget = small.value.least_budget
        # Both directions' outputs are there before they are one.
        beside = 2 * sum(lengths) * 128 * x.element_size() if net.bidirectional else 0
        for factor in (1, 1.5, 3):
            net.budget = int(factor * small.value.least_budget)
            assert max(taken(net, x, lengths) for _ in range(2)) <= net.budget + beside, (lengths, factor)


@pytest.mark.parametrize("chunk", [10, None])
@pytest.mark.parametrize("how", HOW, ids=str)
@pytest.mark.parametrize("name", NAMES)
@pytest.mark.sweep(5)
def test_sequences_of_other_lengths_are_not_measured_again(name, how, chunk, monkeypatch):
    """Blocks count as if all sequences lasted as long as they."""
    ebb.clear_cache()
    measured, own = [], examine.explicit_costs
    monkeypatch.setattr(examine, "explicit_costs", lambda *given: measured.append(1) or own(*given))
    Packs(name, [40, 28, 1, 1], chunk=chunk, **how).results()
    count = len(measured)
    assert count > 0
    for lengths in ([40, 10, 10, 10], [40] * 4, [1, 1, 1, 35], [33, 40, 2, 40]):
        Packs(name, lengths, chunk=chunk, **how).check()
    assert len(measured) == count or chunk is None


def test_on_other_kernels_sequences_of_other_lengths_are_measured_anew():
    """As many rows and time steps may be spread otherwise, and the first chunk then have more of them."""
    found = []
    for lengths in ([40, 10, 10, 10], [40, 28, 1, 1]):
        case = Packs("LSTM", lengths, chunk=10)
        case.net.native = False
        case.results()
        found.append(case.net.report.runs[0].costs.tape)
    assert found[1] < found[0]


@pytest.mark.parametrize("chunk", [1, 3, 7, 40, 64])
def test_where_rows_lie(chunk):
    lengths = torch.tensor(sorted(LENGTHS["apart"], reverse=True))
    sizes = (lengths > torch.arange(40)[:, None]).sum(1)
    names = [(t, b) for t, size in enumerate(sizes.tolist()) for b in range(size)]
    for backwards in (False, True):
        layouts = Packed(sizes, chunk, backwards, torch.device("cpu"))
        seen = []
        for block in range(-(-40 // chunk)):
            layout, order, first = layouts.layout(block), layouts.order(block), layouts.first(block)
            assert layout.rows == layouts.rows(block) <= layouts.rows_at_most
            own = names[first : first + layout.rows]
            seen += own if order is None else [names[row] for row in order.tolist()]
            assert sum(stretch.rows for stretch in layout.stretches) == layout.rows
            for earlier, later in itertools.pairwise(layout.stretches):
                assert later.first == earlier.first + earlier.rows and later.batch < earlier.batch
            batch = layout.stretches[0].batch
            for row, source in zip(range(batch, layout.rows), layout.earlier.tolist(), strict=True):
                assert own[source] == (own[row][0] - 1, own[row][1])
            if block > 0:
                assert layouts.before(block) == int(sizes[block * chunk - 1])
        if backwards:
            # Each sample from its last time step to its first.
            expected = [(int(lengths[b]) - 1 - t, b) for t, b in names]
            assert seen == expected
        else:
            assert seen == names
        rows = torch.arange(len(names))[:, None]
        assert [names[row] for row in layouts.last(rows)[:, 0].tolist()] == [(n - 1, b) for b, n in enumerate(lengths)]


@pytest.mark.parametrize("length, chunk", [(40, 7), (40, 8), (5, 9), (1, 1)])
def test_where_rows_of_one_length_lie(length, chunk):
    for backwards in (False, True):
        layouts = Even(length, 3, chunk, backwards)
        blocks = list(range(-(-length // chunk)))
        spans = [range(layouts.first(block), layouts.first(block) + layouts.rows(block)) for block in blocks]
        in_order = [row for span in (spans[::-1] if backwards else spans) for row in span]
        assert in_order == list(range(3 * length))
        assert layouts.rows_at_most == max(len(span) for span in spans)

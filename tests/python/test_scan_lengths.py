# SPDX-License-Identifier: Apache-2.0
"""ebb.scan over samples of different lengths: padded, with `lengths`, and packed."""

from __future__ import annotations

import pytest

torch = pytest.importorskip("torch", reason="PyTorch is not installed")
from scan_cases import WIDTH, numbers, rnn  # noqa: E402
from scan_oracle import gradients, least, loop, same, weighted  # noqa: E402
from torch.nn.utils.rnn import PackedSequence, pack_sequence, pad_sequence  # noqa: E402

import ebb  # noqa: E402

torch.set_num_threads(1)
STEPS, LENGTHS = 20, [7, 20, 1, 13]
SAMPLES = len(LENGTHS)


@pytest.fixture(autouse=True)
def seed() -> None:
    torch.manual_seed(1)


def batched(f, carry, xs, reverse=False, reduce=None):
    """The loop over the padded batch, with torch.where on the carry."""
    counts = torch.tensor(LENGTHS)
    ys = []
    for t in reversed(range(STEPS)) if reverse else range(STEPS):
        alive = (t < counts)[:, None]
        new, y = f(carry, xs[t])
        carry = torch.where(alive, new, carry)
        ys.append(torch.where(alive, y, 0))
    if reduce is not None:
        total = sum(ys[1:], ys[0])
        return carry, total if reduce == "sum" else total / counts[:, None]
    return carry, torch.stack(ys[::-1] if reverse else ys)


def one_by_one(f, init, xs, reverse=False, reduce=None):
    """Each sample alone, over its own steps."""
    carries, outputs = [], []
    for k, length in enumerate(LENGTHS):
        carry, ys = loop(f, init[k : k + 1], xs[:length, k : k + 1], reverse=reverse, reduce=reduce)
        carries.append(carry)
        outputs.append(ys if reduce else torch.cat([ys, ys.new_zeros(STEPS - length, *ys.shape[1:])]))
    return torch.cat(carries), torch.cat(outputs, 0 if reduce else 1)


def elementwise():
    weight = numbers(WIDTH)

    def f(h, x):
        h = (h * weight + x).tanh()
        return h, h * weight

    return f, [weight]


@pytest.mark.parametrize("cell", [elementwise, rnn])
@pytest.mark.parametrize("budget", ["least", 10**9, None], ids=["least", "ample", "none"])
@pytest.mark.parametrize("chunk", [1, 3, None])
@pytest.mark.parametrize("reverse, reduce", [(False, None), (True, None), (False, "mean"), (True, "sum")])
@pytest.mark.sweep(12)
def test_bits_are_those_of_the_batched_loop(cell, budget, chunk, reverse, reduce):
    f, params = cell()
    init, xs = numbers(SAMPLES, WIDTH), numbers(STEPS, SAMPLES, WIDTH)
    options = {"chunk": chunk, "reverse": reverse, "reduce": reduce, "lengths": LENGTHS}
    number = least(f, init, xs, **options) if budget == "least" else budget
    found = ebb.scan(f, init, xs, budget=number, **options)
    outcomes = [*found, *gradients(weighted(*found), [init, xs, *params])]
    wanted = batched(f, init, xs, reverse, reduce)
    same(outcomes, [*wanted, *gradients(weighted(*wanted), [init, xs, *params])])
    alone = one_by_one(f, init, xs, reverse, reduce)
    theirs = [*alone, *gradients(weighted(*alone), [init, xs, *params])]
    exact = 4 if cell is elementwise else 0  # sums over samples are in another order
    same(outcomes[:exact], theirs[:exact])
    for a, b in zip(outcomes[exact:], theirs[exact:]):
        assert torch.allclose(a, b, rtol=1e-4, atol=1e-6)


@pytest.mark.parametrize("budget", ["4KiB", None])
def test_what_is_behind_a_sequence_may_be_anything(budget):
    f, params = rnn()
    init, clean = numbers(SAMPLES, WIDTH), torch.randn(STEPS, SAMPLES, WIDTH)
    dirty = clean.clone()
    for k, length in enumerate(LENGTHS):
        clean[length:, k], dirty[length:, k] = 0, torch.tensor([float("nan"), float("inf"), 1e30])
    clean.requires_grad_(), dirty.requires_grad_()
    wanted = batched(f, init, clean)
    theirs = [*wanted, *gradients(weighted(*wanted), [init, clean, *params])]
    found = ebb.scan(f, init, dirty, budget=budget, chunk=1, lengths=LENGTHS)
    ours = [*found, *gradients(weighted(*found), [init, dirty, *params])]
    same(ours, theirs)
    for k, length in enumerate(LENGTHS):
        assert not found[1][length:, k].any() and not ours[3][length:, k].any()


def test_gradients_of_outputs_behind_a_sequence_go_nowhere():
    f, params = rnn()
    init, xs = numbers(SAMPLES, WIDTH), numbers(STEPS, SAMPLES, WIDTH)
    ys = ebb.scan(f, init, xs, budget="4KiB", chunk=1, lengths=LENGTHS)[1]
    dead = torch.arange(STEPS)[:, None] >= torch.tensor(LENGTHS)
    found = torch.autograd.grad(ys, [init, xs, *params], dead[..., None].expand_as(ys).float(), allow_unused=True)
    assert not any(gradient.any() for gradient in found)


@pytest.mark.parametrize(
    "given",
    [torch.tensor(LENGTHS), torch.tensor(LENGTHS, dtype=torch.int32), tuple(LENGTHS), torch.tensor(LENGTHS).numpy()],
    ids=["tensor", "int32", "tuple", "array"],
)
def test_lengths_of_any_kind_with_time_second(given):
    f, params = rnn()
    init, xs = numbers(SAMPLES, WIDTH), numbers(STEPS, SAMPLES, WIDTH)
    wanted = batched(f, init, xs)
    h, ys = ebb.scan(f, init, xs.movedim(0, 1), dim=1, budget="4KiB", chunk=1, lengths=given)
    same((h, ys.movedim(1, 0)), wanted)


def test_structures_and_a_function_of_time():
    cell = torch.nn.LSTMCell(WIDTH, 4)
    init, xs = (numbers(SAMPLES, 4), numbers(SAMPLES, 4)), numbers(STEPS, SAMPLES, WIDTH)
    gates = torch.rand(STEPS)

    def f(carry, x):
        h, c = cell(x["x"] * x["gate"], (carry["h"], carry["c"]))
        return {"h": h, "c": c}, (h, None)

    def flat(carry, x):
        h, c = cell(x, carry.chunk(2, 1))
        return torch.cat([h, c], 1), h

    wanted = batched(flat, torch.cat(init, 1), xs * gates[:, None, None])
    tree = dict(zip("hc", init))
    for given in ({"x": xs, "gate": gates}, lambda t: {"x": xs[t], "gate": gates[t]}):
        carry, (ys, none) = ebb.scan(f, tree, given, budget=None, lengths=LENGTHS)
        assert none is None
        same((torch.cat([carry["h"], carry["c"]], 1), ys), wanted)
    carry, (ys, none) = ebb.scan(f, tree, {"x": xs, "gate": gates}, budget="8KiB", chunk=1, lengths=LENGTHS)
    same((torch.cat([carry["h"], carry["c"]], 1), ys), wanted)


def test_samples_without_a_step():
    f, params = rnn()
    init, xs = numbers(3, WIDTH), numbers(5, 3, WIDTH)
    h, ys = ebb.scan(f, init, xs, lengths=[0, 5, 2], budget="2KiB", chunk=1)
    assert torch.equal(h[0], init[0]) and not ys[:, 0].any()


def test_a_carry_that_starts_as_none():
    cell = torch.nn.LSTMCell(WIDTH, 4)
    xs = numbers(STEPS, SAMPLES, WIDTH)

    def f(carry, x):
        carry = cell(x, carry)
        return carry, carry[0]

    zero = torch.zeros(SAMPLES, 4)
    wanted = ebb.scan(f, (zero, zero), xs, lengths=LENGTHS)
    theirs = gradients(weighted(*wanted), [xs, *cell.parameters()])
    found = ebb.scan(f, None, xs, lengths=LENGTHS, budget="6KiB", chunk=1)
    assert ebb.last_report().strategy != "store_all"
    same(found, wanted)
    same(gradients(weighted(*found), [xs, *cell.parameters()]), theirs)
    for options in ({"reverse": True}, {"lengths": [0, 1, 2, 20]}):
        with pytest.raises(ebb.Error, match="starts as None.*init of tensors"):
            ebb.scan(f, None, xs, **{"lengths": LENGTHS, **options})


# ------------------------------------------------------------------------------------------------ packed


@pytest.mark.parametrize("budget", ["6KiB", 10**9, None])
@pytest.mark.parametrize("ordered", [True, False])
@pytest.mark.parametrize("bias", [True, False])
def test_a_packed_sequence_as_torch_has_it(budget, ordered, bias):
    cell = torch.nn.LSTMCell(WIDTH, 4, bias)
    layer = torch.nn.LSTM(WIDTH, 4, bias=bias)
    for name, weight in cell.named_parameters():
        getattr(layer, f"{name}_l0").data.copy_(weight)
    parts = [numbers(length, WIDTH) for length in (sorted(LENGTHS)[::-1] if ordered else LENGTHS)]
    xs = pack_sequence(parts, enforce_sorted=ordered)
    init = (numbers(SAMPLES, 4), numbers(SAMPLES, 4))

    def f(carry, x):
        carry = cell(x, carry)
        return carry, carry[0]

    (h, c), ys = ebb.scan(f, init, xs, budget=budget)
    again = pack_sequence(parts, enforce_sorted=ordered)
    theirs, (their_h, their_c) = layer(again, tuple(state[None] for state in init))
    assert isinstance(ys, PackedSequence) and torch.equal(ys.batch_sizes, xs.batch_sizes)
    pairs = [(ys.data, theirs.data), (h, their_h[0]), (c, their_c[0])]
    ours = gradients(weighted(ys.data, h, c), [*parts, *init, *cell.parameters()])
    wanted = gradients(weighted(theirs.data, their_h[0], their_c[0]), [*parts, *init, *layer.parameters()])
    for a, b in [*pairs, *zip(ours, wanted)]:
        assert torch.allclose(a, b, rtol=1e-4, atol=1e-5)


def test_a_packed_sequence_has_the_bits_of_a_padded_one():
    f, params = rnn()
    parts = [numbers(length, WIDTH) for length in LENGTHS]
    init = numbers(SAMPLES, WIDTH)
    h, ys = ebb.scan(f, init, pad_sequence(parts), lengths=LENGTHS)
    wanted = gradients(weighted(h, ys), [*parts, init, *params])
    found, packed = ebb.scan(f, init, pack_sequence(parts, enforce_sorted=False), budget="4KiB", chunk=1)
    padded = torch.nn.utils.rnn.pad_packed_sequence(packed)[0]
    same((found, padded), (h, ys))
    same(gradients(weighted(found, padded), [*parts, init, *params]), wanted)


# ------------------------------------------------------------------------------------------------ refused


@pytest.mark.parametrize(
    "options, words",
    [
        ({"lengths": 3}, "lengths is 3"),
        ({"lengths": []}, "lengths is"),
        ({"lengths": [1.5] * SAMPLES}, "lengths is"),
        ({"lengths": [[1] * SAMPLES]}, "lengths is"),
        ({"lengths": torch.full((SAMPLES,), 1j)}, "lengths is"),
        ({"lengths": "long"}, "lengths is"),
        ({"lengths": [1, 2, 3, STEPS + 1]}, f"from 1 to {STEPS + 1}.*0 to {STEPS}"),
        ({"lengths": [1, 2, 3, -1]}, "from -1 to 3"),
        ({"lengths": LENGTHS, "length": 10}, "from 1 to 20.*0 to 10"),
        ({"lengths": [1, 2, 3]}, "3 samples.*first dimension"),
    ],
)
def test_impossible_lengths(options, words):
    f, params = rnn()
    with pytest.raises(ebb.Error, match=words):
        ebb.scan(f, torch.zeros(SAMPLES, WIDTH), numbers(STEPS, SAMPLES, WIDTH), budget="4KiB", **options)


def test_carries_and_outputs_without_samples():
    xs = numbers(STEPS, SAMPLES, WIDTH)
    with pytest.raises(ebb.Error, match="the carry holds a tensor of shape"):
        ebb.scan(lambda h, x: (h + x.sum(0), x), torch.zeros(WIDTH), xs, lengths=LENGTHS)
    with pytest.raises(ebb.Error, match="y holds a tensor of shape"):
        ebb.scan(lambda h, x: (h + x, x.mean()), torch.zeros(SAMPLES, WIDTH), xs, lengths=LENGTHS)
    with pytest.raises(ebb.Error, match="PackedSequence"):
        ebb.scan(lambda h, x: (h, x), torch.zeros(1, 3), pack_sequence([numbers(5, 3)]), lengths=[5])

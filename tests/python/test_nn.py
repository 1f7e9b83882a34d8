# SPDX-License-Identifier: Apache-2.0
"""ebb.nn's recurrent layers against torch.nn's own: outputs, states and every gradient, however they are called."""

import pytest

torch = pytest.importorskip("torch", reason="PyTorch is not installed")
from hypothesis import given, settings  # noqa: E402
from hypothesis import strategies as st  # noqa: E402
from nn_pairs import (  # noqa: E402
    DTYPES,
    KINDS,
    assert_close,
    assert_same,
    gradients,
    least_budget,
    pair,
    states_for,
    tolerance,
    with_state,
)
from torch.nn.utils.rnn import pack_padded_sequence, pack_sequence, pad_packed_sequence  # noqa: E402

import ebb  # noqa: E402
import ebb.nn  # noqa: E402


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("bias", [True, False])
@pytest.mark.parametrize("batch_first", [False, True])
@pytest.mark.parametrize("bidirectional", [False, True])
@pytest.mark.parametrize("num_layers", [1, 3])
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.sweep(10)
def test_all_constructor_options(kind, num_layers, bidirectional, batch_first, bias, dtype):
    sizes = {"input_size": 4, "hidden_size": 7, "num_layers": num_layers, "bidirectional": bidirectional}
    x = torch.randn((3, 23, 4) if batch_first else (23, 3, 4), dtype=dtype)
    h, c = states_for(sizes, 3, dtype)
    options = {**sizes, "bias": bias, "batch_first": batch_first, "dtype": dtype}

    def call(layer, x, h, c):
        result = with_state(layer, x, h, c)
        return result if layer.mode == "LSTM" else (*result, c * 1)

    ours = assert_same(kind, [x, h, c], call, 23 * 3, **options)
    assert ours.report.peak <= ours.report.budget
    between = 0 if not bidirectional else (num_layers - 1) * 23 * 3 * 14 * x.element_size()
    assert ours.report.kept == between
    assert len(ours.report.runs) == (num_layers * 2 if bidirectional else 1)


@pytest.mark.parametrize("nonlinearity", ["tanh", "relu"])
def test_elman_layers_have_both_nonlinearities(nonlinearity):
    options = {"input_size": 3, "hidden_size": 6, "nonlinearity": nonlinearity}
    assert_same("RNN", torch.randn(30, 2, 3).double(), lambda layer, x: layer(x), 60, **options)
    assert ebb.nn.RNN(3, 6, 1, nonlinearity, budget="1MiB").mode == f"RNN_{nonlinearity.upper()}"


@pytest.mark.parametrize("native", [True, False])
@pytest.mark.parametrize("name, words", [("LSTM", {}), ("GRU", {}), ("RNN", {}), ("RNN", {"nonlinearity": "relu"})])
def test_what_is_not_a_number_goes_through_as_in_torch(name, words, native):
    torch.manual_seed(0)
    ours = getattr(ebb.nn, name)(3, 5, budget="64KiB", native=native, **words)
    torchs = getattr(torch.nn, name)(3, 5, **words)
    torchs.load_state_dict(ours.state_dict())
    x = torch.randn(12, 2, 3)
    x[4, 1, 0] = float("nan")
    found = []
    for layer in (ours, torchs):
        own = x.clone().requires_grad_()
        y, _ = layer(own)
        y.sum().backward()
        found.append([tensor.isnan() for tensor in (y, own.grad, *[p.grad for p in layer.parameters()])])
    assert found[1][0].any() and not found[1][0].all()
    assert all(torch.equal(a, b) for a, b in zip(*found))


@pytest.mark.parametrize("with_hx", [False, True])
@pytest.mark.parametrize("bidirectional", [False, True])
@pytest.mark.parametrize("batch_first", [False, True])
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.sweep(5)
def test_unbatched_inputs(kind, batch_first, bidirectional, with_hx):
    sizes = {"input_size": 4, "hidden_size": 5, "num_layers": 2, "bidirectional": bidirectional}
    x = torch.randn(11, 4, dtype=torch.float64)
    h, c = states_for(sizes, None, torch.float64)

    def call(layer, x, h, c):
        return (layer(x) if not with_hx else with_state(layer, x, h, c)), (h * 1, c * 1)

    assert_same(kind, [x, h, c], call, 11, batch_first=batch_first, **sizes)


@pytest.mark.parametrize("bidirectional", [False, True])
@pytest.mark.parametrize("lengths", [[9, 9, 9], [9, 5, 1, 7], [1, 1], [4]])
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.sweep(5)
def test_packed_sequences(kind, lengths, bidirectional):
    sizes = {"input_size": 4, "hidden_size": 5, "num_layers": 2, "bidirectional": bidirectional}
    x = torch.randn(max(lengths), len(lengths), 4, dtype=torch.float64)
    h, c = states_for(sizes, len(lengths), torch.float64)
    orders = [(lengths, False), (sorted(lengths, reverse=True), True)]
    for order, enforce_sorted in orders:

        def call(layer, x, h, c):
            packed = pack_padded_sequence(x, torch.tensor(order), enforce_sorted=enforce_sorted)
            result = with_state(layer, packed, h, c)
            assert torch.equal(result[0].batch_sizes, packed.batch_sizes)
            padded, found = pad_packed_sequence(result[0])
            assert found.tolist() == order
            return (padded, result[1]) if layer.mode == "LSTM" else (padded, result[1], c * 1)

        assert_same(kind, [x, h, c], call, sum(lengths), **sizes)


@settings(max_examples=25, deadline=None)
@given(
    kind=st.sampled_from(KINDS),
    lengths=st.lists(st.integers(1, 12), min_size=1, max_size=5),
    layers=st.integers(1, 2),
    bidirectional=st.booleans(),
    chunk=st.sampled_from([None, 1, 3]),
)
def test_packed_sequences_are_sequences_one_by_one(kind, lengths, layers, bidirectional, chunk):
    """The oracle is torch's layer on each sample alone, so that torch's packing has no part in it."""
    theirs, ours = pair(kind, 2, 3, layers, bidirectional=bidirectional, chunk=chunk)
    samples = [torch.randn(length, 2, dtype=torch.float64) for length in lengths]
    output, _ = ours(pack_sequence(samples, enforce_sorted=False))
    padded, _ = pad_packed_sequence(output, batch_first=True)
    for sample, row in zip(samples, padded):
        expected, _ = theirs(sample)
        assert_close([row[: len(sample)]], [expected], tolerance(ours, torch.float64, len(sample)))


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("steps", [1, 2, 50, 301])
@pytest.mark.sweep(5)
def test_bits_do_not_depend_on_the_budget(kind, steps):
    x = torch.randn(steps, 2, 3)
    plain = None
    least = least_budget(ebb.nn, kind, steps)
    for budget in ["1GiB", least * 2, least + 2000, least]:
        _, ours = pair(kind, 3, 8, 2, budget=budget, dtype=torch.float32)
        found = gradients(ours, [x], lambda layer, x: layer(x))
        assert ours.report.peak <= ours.report.budget
        assert ours.report.peak == sum(run.booked for run in ours.report.runs)
        if plain is None:
            plain = found
        assert all(torch.equal(a, b) for a, b in zip(found, plain)), budget
    if steps > 100:
        assert ours.report.runs[0].predicted.forwards > 1.5 * ours.report.runs[0].predicted.records


@pytest.mark.parametrize("bidirectional", [False, True])
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.sweep(3)
def test_the_least_budget_works_and_less_does_not(kind, bidirectional):
    least = least_budget(ebb.nn, kind, 60, bidirectional=bidirectional)
    x = torch.randn(60, 2, 3, requires_grad=True)
    getattr(ebb.nn, kind)(3, 8, 2, bidirectional=bidirectional, budget=least)(x)[0].sum().backward()
    with pytest.raises(ebb.Error, match="least|at least") as raised:
        getattr(ebb.nn, kind)(3, 8, 2, bidirectional=bidirectional, budget=least - 1)(x)
    assert raised.value.least_budget == least


@pytest.mark.parametrize("kind", KINDS)
def test_without_a_budget_it_is_torchs_own_code(kind):
    theirs, ours = pair(kind, 3, 5, 2, budget=None, bidirectional=True, dtype=torch.float32)
    x = torch.randn(20, 4, 3)
    for one, other in zip(
        gradients(ours, [x], lambda layer, x: layer(x)), gradients(theirs, [x], lambda layer, x: layer(x))
    ):
        assert torch.equal(one, other)
    assert ours.report is None


@pytest.mark.parametrize("kind", KINDS)
def test_dropout_between_layers_draws_what_torch_draws(kind):
    options = {"input_size": 3, "hidden_size": 20, "num_layers": 3, "dropout": 0.4}

    def call(layer, x):
        torch.manual_seed(11)
        return layer(x)

    ours = assert_same(kind, torch.randn(15, 3, 3).double(), call, 45, **options)
    assert ours.report.kept == 2 * 15 * 3 * 20 * (8 + 1)
    ours.eval()
    x = torch.randn(15, 3, 3).double()
    assert torch.equal(ours(x)[0], ours(x)[0])
    assert len(ours._runs.keeping.idle[0]) == 1  # one net again


def test_dropout_of_packed_sequences():
    def call(layer, x):
        torch.manual_seed(5)
        return layer(pack_padded_sequence(x, torch.tensor([3, 8, 5]), enforce_sorted=False))

    options = {"input_size": 3, "hidden_size": 6, "num_layers": 2, "dropout": 0.5, "bidirectional": True}
    assert_same("LSTM", torch.randn(8, 3, 3).double(), call, 16, **options)

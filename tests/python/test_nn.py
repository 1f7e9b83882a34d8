# SPDX-License-Identifier: Apache-2.0
"""ebb.nn's recurrent layers against torch.nn's own: outputs, states and every gradient, however they are called.

Tolerances: native cells and torch add the same products in another order and have their own exponentials. A result is a
chain of T steps of sums of n = I + H + 2 products, each within n + 4 roundings (a few for the activation); gradients
add up T * B such terms. Steps here do not amplify errors (weights of 1 / sqrt(H)), so (n + 4) * sqrt(T * B) units of
rounding of the largest number bound what is seen, and a factor of 8 is for chains that do amplify a little.
"""

import copy
import gc
import io
import pickle
import warnings

import pytest

torch = pytest.importorskip("torch", reason="PyTorch is not installed")
from hypothesis import given, settings  # noqa: E402
from hypothesis import strategies as st  # noqa: E402
from torch.nn.utils.rnn import PackedSequence, pack_padded_sequence, pack_sequence, pad_packed_sequence  # noqa: E402

import ebb  # noqa: E402
import ebb.nn  # noqa: E402
from ebb.nn import _native  # noqa: E402

torch.set_num_threads(1)
KINDS = ["RNN", "LSTM", "GRU"]
DTYPES = [torch.float64, torch.float32]


def pair(kind, *args, budget="1MiB", dtype=torch.float64, seed=0, tiers=None, chunk=None, strategy="auto", **kwargs):
    """torch's layer and ours with the same parameters."""
    torch.manual_seed(seed)
    theirs = getattr(torch.nn, kind)(*args, dtype=dtype, **kwargs)
    own = {"budget": budget, "tiers": tiers, "chunk": chunk, "strategy": strategy}
    ours = getattr(ebb.nn, kind)(*args, dtype=dtype, **kwargs, **own)
    ours.load_state_dict(theirs.state_dict())
    return theirs, ours


def tensors_of(result):
    """All tensors of what a layer gives."""
    if isinstance(result, PackedSequence):
        return [result.data]
    if torch.is_tensor(result):
        return [result]
    return [tensor for part in result for tensor in tensors_of(part)]


def loss_of(result, seed=1):
    generator = torch.Generator().manual_seed(seed)
    weights = [torch.randn(t.shape, generator=generator, dtype=t.dtype) for t in tensors_of(result)]
    return sum((tensor * weight).sum() for tensor, weight in zip(tensors_of(result), weights))


def gradients(layer, leaves, call):
    """Outputs and the gradients of leaves and parameters."""
    layer.zero_grad()
    leaves = [leaf.detach().clone().requires_grad_() for leaf in leaves]
    result = call(layer, *leaves)
    loss_of(result).backward()
    outputs = [tensor.detach() for tensor in tensors_of(result)]
    return outputs + [leaf.grad for leaf in leaves] + [p.grad.clone() for p in layer.parameters()]


def tolerance(layer, dtype, terms):
    n = layer.input_size + layer.hidden_size * (2 if layer.bidirectional else 1) + 2
    return 8 * (n + 4) * terms**0.5 * torch.finfo(dtype).eps


def assert_close(found, expected, relative):
    assert len(found) == len(expected)
    for i, (own, other) in enumerate(zip(found, expected)):
        assert own.shape == other.shape and own.dtype == other.dtype
        largest = max(other.abs().max().item(), 1e-3)
        error = (own - other).abs().max().item() / largest
        assert error <= relative, f"tensor {i} of {len(found)}: {error:.2e} of the largest, allowed {relative:.2e}"


def assert_same(kind, x, call, terms, **options):
    theirs, ours = pair(kind, **options)
    leaves = x if isinstance(x, list) else [x]
    expected, found = gradients(theirs, leaves, call), gradients(ours, leaves, call)
    assert_close(found, expected, tolerance(ours, expected[0].dtype, terms))
    return ours


def states_for(layer, batch, dtype, seed=3):
    generator = torch.Generator().manual_seed(seed)
    rows = layer["num_layers"] * (2 if layer["bidirectional"] else 1)
    shape = (rows, batch, layer["hidden_size"]) if batch else (rows, layer["hidden_size"])
    return [torch.randn(shape, generator=generator, dtype=dtype) * 0.5 for _ in range(2)]


def with_state(layer, x, h, c):
    return layer(x, (h, c) if layer.mode == "LSTM" else h)


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("bias", [True, False])
@pytest.mark.parametrize("batch_first", [False, True])
@pytest.mark.parametrize("bidirectional", [False, True])
@pytest.mark.parametrize("num_layers", [1, 3])
@pytest.mark.parametrize("kind", KINDS)
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


@pytest.mark.parametrize("with_hx", [False, True])
@pytest.mark.parametrize("bidirectional", [False, True])
@pytest.mark.parametrize("batch_first", [False, True])
@pytest.mark.parametrize("kind", KINDS)
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


def least_budget(module, kind, steps, **options):
    """What the error of an impossible budget says."""
    layer = getattr(module, kind)(3, 8, 2, budget=1, **options)
    with pytest.raises(ebb.Error) as raised:
        layer(torch.randn(steps, 2, 3, requires_grad=True))
    assert raised.value.code == "infeasible_budget"
    assert raised.value.least_budget > 1
    return raised.value.least_budget


@pytest.mark.parametrize("bidirectional", [False, True])
@pytest.mark.parametrize("kind", KINDS)
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


@pytest.mark.parametrize("kind", KINDS)
def test_state_dicts_go_both_ways(kind):
    theirs, ours = pair(kind, 3, 4, 2, bidirectional=True)
    assert list(ours.state_dict()) == list(theirs.state_dict())
    assert isinstance(ours, type(theirs))
    torch.nn.init.normal_(ours.weight_hh_l1)
    theirs.load_state_dict(ours.state_dict())
    assert torch.equal(theirs.weight_hh_l1, ours.weight_hh_l1)
    torch.manual_seed(7)
    one = getattr(torch.nn, kind)(3, 4, 2)
    torch.manual_seed(7)
    other = getattr(ebb.nn, kind)(3, 4, 2, budget="1MiB")
    assert all(torch.equal(a, b) for a, b in zip(one.parameters(), other.parameters()))


@pytest.mark.parametrize("kind", KINDS)
def test_gradients_accumulate(kind):
    theirs, ours = pair(kind, 3, 5, dtype=torch.float64)
    for layer in (theirs, ours):
        for seed in range(3):
            torch.manual_seed(seed)
            loss_of(layer(torch.randn(9, 2, 3, dtype=torch.float64))).backward()
    found, expected = [p.grad for p in ours.parameters()], [p.grad for p in theirs.parameters()]
    assert_close(found, expected, tolerance(ours, torch.float64, 54))


def test_several_forwards_before_their_backwards():
    """The same layer twice in one graph, and two graphs at a time."""
    theirs, ours = pair("GRU", 4, 4)
    x = torch.randn(9, 2, 4, dtype=torch.float64)

    def twice(layer, x):
        return layer(layer(x)[0])

    assert_close(gradients(ours, [x], twice), gradients(theirs, [x], twice), tolerance(ours, torch.float64, 36))
    first, second = loss_of(ours(x)), loss_of(ours(2 * x), seed=2)
    ours.zero_grad()
    first.backward()
    alone = [p.grad.clone() for p in ours.parameters()]
    ours.zero_grad()
    second.backward()
    ours.zero_grad()
    loss_of(ours(x)).backward()
    assert all(torch.equal(p.grad, own) for p, own in zip(ours.parameters(), alone))


def test_a_graph_may_be_retained():
    _, ours = pair("LSTM", 3, 5, 2, budget="20KiB")
    x = torch.randn(40, 2, 3, dtype=torch.float64, requires_grad=True)
    loss = loss_of(ours(x))
    loss.backward(retain_graph=True)
    once = [x.grad.clone()] + [p.grad.clone() for p in ours.parameters()]
    ours(torch.randn(40, 2, 3, dtype=torch.float64))  # the run has other work in between
    loss.backward()
    twice = [x.grad] + [p.grad for p in ours.parameters()]
    assert all(torch.equal(2 * one, two) for one, two in zip(once, twice))
    with pytest.raises(RuntimeError, match="second time"):
        loss.backward()


def test_a_loss_on_a_part_of_the_results():
    theirs, ours = pair("LSTM", 3, 5, 2)
    x = torch.randn(12, 2, 3, dtype=torch.float64)
    parts = [lambda y, h, c: y[-1], lambda y, h, c: c, lambda y, h, c: h[1], lambda y, h, c: y[3, 0]]
    for part in parts:

        def call(layer, x):
            output, (h, c) = layer(x)
            return part(output, h, c)

        assert_close(gradients(ours, [x], call), gradients(theirs, [x], call), tolerance(ours, torch.float64, 24))


def test_frozen_parameters_and_inputs_without_gradients():
    theirs, ours = pair("GRU", 3, 5, 2)
    x = torch.randn(9, 2, 3, dtype=torch.float64)
    for layer in (theirs, ours):
        layer.weight_hh_l0.requires_grad_(False)
        loss_of(layer(x)).backward()
    assert ours.weight_hh_l0.grad is None and x.grad is None
    names = [name for name, p in theirs.named_parameters() if p.requires_grad]
    found = [getattr(ours, name).grad for name in names]
    assert_close(found, [getattr(theirs, name).grad for name in names], tolerance(ours, torch.float64, 18))
    ours.requires_grad_(False)
    assert not ours(x)[0].requires_grad
    x.requires_grad_()
    theirs.requires_grad_(False)
    loss_of(ours(x)).backward()
    own = x.grad.clone()
    x.grad = None
    loss_of(theirs(x)).backward()
    assert_close([own], [x.grad], tolerance(ours, torch.float64, 18))


@pytest.mark.parametrize("mode", [torch.no_grad, torch.inference_mode])
def test_without_gradients_nothing_is_kept(mode):
    _, ours = pair("LSTM", 3, 5, 2, bidirectional=True, budget="64KiB", dtype=torch.float32)
    x = torch.randn(200, 2, 3)
    expected = ours(x)[0].detach()
    with mode():
        output, (h, c) = ours(x)
    assert torch.equal(output, expected)
    assert not output.requires_grad and not h.requires_grad
    assert ours.report is None  # no backward so far
    small = ebb.nn.LSTM(3, 8, 2, bidirectional=True, budget=1)
    with pytest.raises(ebb.Error) as raised:
        small(x)
    small.budget = raised.value.least_budget - 1  # of this call: a gradient of x would take more
    with mode():
        small(x)  # no backward: less is enough
    with pytest.raises(ebb.Error):
        small(x)


@pytest.mark.parametrize("kind", KINDS)
def test_copies_and_pickles(kind):
    _, ours = pair(kind, 3, 5, 2, budget="100KiB", chunk=2)
    x = torch.randn(30, 2, 3, dtype=torch.float64)
    expected = gradients(ours, [x], lambda layer, x: layer(x))
    file = io.BytesIO()
    torch.save(ours, file)
    file.seek(0)
    for other in (
        copy.deepcopy(ours),
        copy.copy(ours),
        pickle.loads(pickle.dumps(ours)),
        torch.load(file, weights_only=False),
    ):
        assert (other.budget, other.chunk, other.strategy) == ("100KiB", 2, "auto")
        found = gradients(other, [x], lambda layer, x: layer(x))
        assert all(torch.equal(a, b) for a, b in zip(found, expected))
    assert copy.deepcopy(ours)._runs is not ours._runs
    assert repr(ours).endswith("budget='100KiB')")


def test_runs_are_used_again_and_given_back():
    layer = ebb.nn.LSTM(3, 5, budget="50KiB")
    for _ in range(3):
        layer(torch.randn(40, 2, 3))[0].sum().backward()
    assert len(layer._runs.keeping.idle) == 1
    own = layer._runs.keeping.idle[0]
    result = layer(torch.randn(40, 2, 3))
    assert not layer._runs.keeping.idle
    del result  # a graph that nobody goes back through
    gc.collect()
    assert layer._runs.keeping.idle == [own]
    layer(torch.randn(41, 2, 3))[0].sum().backward()
    assert layer._runs.keeping.idle != [own] and len(layer._runs.keeping.idle) == 1
    layer.release()
    assert not layer._runs.keeping.idle


def test_inputs_in_any_layout():
    theirs, ours = pair("LSTM", 3, 5)
    base = torch.randn(6, 9, 2, dtype=torch.float64)
    views = [
        lambda t: t.permute(1, 2, 0)[..., :3],  # numbers of a row far apart
        lambda t: t.permute(1, 0, 2)[:, :4].reshape(9, 4, 2)[..., :1].expand(9, 4, 3),
        lambda t: t[:, :, :1].expand(6, 9, 3).transpose(0, 1),
        lambda t: t.reshape(-1)[:27].reshape(9, 1, 3)[::2],
        lambda t: t.reshape(18, 6)[:, :3].reshape(9, 2, 3)[:, :1],
    ]
    for view in views:

        def call(layer, t):
            return layer(view(t))

        assert_close(gradients(ours, [base], call), gradients(theirs, [base], call), 1e-13)


@pytest.mark.parametrize("kind", KINDS)
def test_mistakes_are_those_of_torch(kind):
    theirs, ours = pair(kind, 3, 5, 2, dtype=torch.float32)
    state = torch.zeros(2, 4, 5)
    wrong = [
        (torch.randn(6, 2, 4), None),  # input_size
        (torch.randn(6), None),
        (torch.randn(1, 6, 2, 3), None),
        (torch.randn(0, 2, 3), None),  # no time step
        (torch.randn(6, 2, 3), state),  # batch of the state
        (torch.randn(6, 3), state),  # an unbatched input and a batched state
        (torch.randn(6, 4, 3), state[:1]),
    ]
    for x, h in wrong:
        hx = None if h is None else (h, h) if kind == "LSTM" else h
        with pytest.raises((ValueError, RuntimeError)) as theirs_raised:
            theirs(x, hx)
        with pytest.raises(type(theirs_raised.value)):
            ours(x, hx)
    assert torch.equal(ours(torch.randn(6, 0, 3))[0], theirs(torch.randn(6, 0, 3))[0])  # no sample


def test_what_cannot_be_is_refused():
    with pytest.raises(ebb.Error, match="proj_size is 2"):
        ebb.nn.LSTM(3, 5, proj_size=2)
    with pytest.raises(ebb.Error, match="budget is -1"):
        ebb.nn.LSTM(3, 5, budget=-1)
    with pytest.raises(ebb.Error, match="chunk is 0"):
        ebb.nn.LSTM(3, 5, chunk=0)
    with pytest.raises(ebb.Error):
        ebb.nn.LSTM(3, 5, budget="much")
    with pytest.raises(ebb.Error, match="strategy"):
        ebb.nn.LSTM(3, 5, budget="1MiB", strategy="hope")(torch.randn(6, 2, 3))


def test_where_native_cells_do_not_apply():
    x = torch.randn(6, 2, 3)
    assert _native.why_not(x, torch.nn.Parameter(x)) is None
    assert "bfloat16" in _native.why_not(x.bfloat16())
    assert "float64" in _native.why_not(x, x.double())
    assert "meta" in _native.why_not(x.to("meta"))
    assert "autocast" in why_in_autocast(x)
    assert "65536" in _native.fits(65536)


def why_in_autocast(x):
    with torch.autocast("cpu"):
        return _native.why_not(x)


def forwards(layer):
    return sum(run.predicted.forwards for run in layer.report.runs)


@pytest.mark.parametrize("bidirectional", [False, True])
def test_slow_tiers_give_the_same_bits(tmp_path, bidirectional):
    x = torch.randn(300, 2, 3)
    options = {"bidirectional": bidirectional, "dtype": torch.float32}
    _, plain = pair("LSTM", 3, 8, 2, budget="1GiB", **options)
    expected = gradients(plain, [x], lambda layer, x: layer(x))
    budget = least_budget(ebb.nn, "LSTM", 300, bidirectional=bidirectional) * 2
    tiers = [ebb.memory_tier("1MiB"), ebb.file_tier(tmp_path, "8MiB")]
    for named in (tiers, tiers[1]):
        _, ours = pair("LSTM", 3, 8, 2, budget=budget, tiers=named, strategy="async", **options)
        found = gradients(ours, [x], lambda layer, x: layer(x))
        assert all(torch.equal(a, b) for a, b in zip(found, expected))
        for run in ours.report.runs:
            assert run.tiers == (["ram", "disk"] if given is tiers else ["disk"])
            # A slow disk may not be worth it.
            assert given is not tiers or any(written for written, _ in run.predicted.moved)
    with pytest.raises(ebb.Error, match="no tier"):
        ebb.nn.LSTM(3, 8, budget=budget, tiers=["disk"])(x)


def test_one_budget_for_several_layers():
    budget = ebb.Budget("120KiB")
    layers = [ebb.nn.LSTM(8, 8, budget=budget), ebb.nn.GRU(8, 4, bidirectional=True, budget=budget)]
    layers.append(ebb.nn.LIF(8, 8, budget=budget))
    plain = [ebb.nn.LSTM(8, 8, budget="1GiB"), ebb.nn.GRU(8, 4, bidirectional=True, budget="1GiB"), ebb.nn.LIF(8, 8)]
    x = torch.randn(300, 2, 8)
    for one, other in zip(layers, plain):
        other.load_state_dict(one.state_dict())
    for _ in range(3):
        for net in (layers, plain):
            output = x
            for layer in net:
                layer.zero_grad()
                output, _ = layer(output)
            output.sum().backward()
        for one, other in zip(layers, plain):
            for name, parameter in one.named_parameters():
                if parameter.requires_grad:
                    assert torch.equal(parameter.grad, other.get_parameter(name).grad)
        assert budget.held == 0
    assert 0.5 * budget.total < budget.peak <= budget.total
    assert sum(layer.report.budget for layer in layers) <= budget.total
    with pytest.raises(ebb.Error) as raised:
        ebb.nn.LSTM(8, 8, budget=ebb.Budget(10))(x)
    assert raised.value.code == "infeasible_budget"


def test_double_backward_is_refused():
    _, ours = pair("LSTM", 3, 5)
    x = torch.randn(6, 2, 3, dtype=torch.float64, requires_grad=True)
    with pytest.raises(ebb.Error, match="create_graph") as raised:
        torch.autograd.grad(ours(x)[0].sum(), x, create_graph=True)
    assert raised.value.code == "unavailable"


def test_an_input_changed_before_backward_is_an_error():
    _, ours = pair("LSTM", 3, 5)
    x = torch.randn(6, 2, 3, dtype=torch.float64)
    output, _ = ours(x)
    x.add_(1)
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        output.sum().backward()


def test_training_reaches_the_same_parameters():
    """Some steps of an optimiser, side by side."""
    theirs, ours = pair("LSTM", 2, 8, dtype=torch.float64, budget="30KiB")
    for layer in (theirs, ours):
        optimiser = torch.optim.Adam(layer.parameters(), lr=0.01)
        torch.manual_seed(4)
        for _ in range(10):
            x = torch.randn(100, 4, 2, dtype=torch.float64)
            optimiser.zero_grad()
            loss = (layer(x)[0][-1, :, 0] - x.sum((0, 2)) / 20).square().mean()
            loss.backward()
            optimiser.step()
    # Adam divides by the size of a gradient, so small ones lose digits.
    assert_close(list(ours.parameters()), list(theirs.parameters()), 1e-8)


def test_saved_tensor_hooks_and_hooks_of_parameters():
    theirs, ours = pair("GRU", 3, 5, 2)
    x = torch.randn(9, 2, 3, dtype=torch.float64)
    fired = []
    hooks = [p.register_post_accumulate_grad_hook(lambda p: fired.append(p)) for p in ours.parameters()]

    def call(layer, x):
        with torch.autograd.graph.saved_tensors_hooks(lambda t: t.clone(), lambda t: t.clone()):
            return layer(x)

    assert_close(gradients(ours, [x], call), gradients(theirs, [x], call), tolerance(ours, torch.float64, 18))
    assert len(fired) == len(hooks)  # once each


def test_nothing_is_printed_or_warned(capfd):
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        ebb.nn.LSTM(3, 5, 2, budget="1MiB")(torch.randn(20, 2, 3))[0].sum().backward()
    assert capfd.readouterr() == ("", "")

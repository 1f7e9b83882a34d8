# SPDX-License-Identifier: Apache-2.0
"""ebb.nn's recurrent layers as modules: saved, copied, frozen, shared, refused, in slow tiers."""

import copy
import gc
import io
import pickle
import warnings

import pytest

torch = pytest.importorskip("torch", reason="PyTorch is not installed")
from nn_pairs import (  # noqa: E402
    KINDS,
    assert_close,
    gradients,
    least_budget,
    loss_of,
    pair,
    tolerance,
)

import ebb  # noqa: E402
import ebb.nn  # noqa: E402
from ebb.nn import _native  # noqa: E402


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


SLOW_TIERS = [
    (True, "both"),
    *(pytest.param(*case, marks=pytest.mark.slow) for case in [(True, "disk"), (False, "both"), (False, "disk")]),
]


@pytest.mark.parametrize("bidirectional, used", SLOW_TIERS)
def test_slow_tiers_give_the_same_bits(tmp_path, bidirectional, used):
    x = torch.randn(100, 2, 3)
    options = {"bidirectional": bidirectional, "dtype": torch.float32}
    _, plain = pair("LSTM", 3, 8, 2, budget="1GiB", **options)
    expected = gradients(plain, [x], lambda layer, x: layer(x))
    budget = least_budget(ebb.nn, "LSTM", 100, bidirectional=bidirectional) * 2
    tiers = [ebb.memory_tier("1MiB"), ebb.file_tier(tmp_path, "8MiB")]
    named = tiers if used == "both" else tiers[1]
    for strategy in ("async", "single_remote"):
        _, ours = pair("LSTM", 3, 8, 2, budget=budget, tiers=named, strategy=strategy, **options)
        found = gradients(ours, [x], lambda layer, x: layer(x))
        assert all(torch.equal(a, b) for a, b in zip(found, expected))
        for run in ours.report.runs:
            assert run.tiers == (["ram", "disk"] if used == "both" else ["disk"])
            # A slow tier may not be worth it, where there is a choice.
            assert strategy == "async" or any(written for written, _ in run.predicted.moved)
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


@pytest.mark.parametrize("kind", ["LSTM", "LIF"])
def test_budgets_that_are_shares_and_words(kind):
    x = torch.randn(300, 2, 8)
    options = {"bidirectional": True} if kind == "LSTM" else {}
    plain = getattr(ebb.nn, kind)(8, 8, budget="1GiB", **options)
    plain(x)[0].sum().backward()
    budgets = {}
    for said in ("speed", "20%", "memory", "balanced"):
        layer = getattr(ebb.nn, kind)(8, 8, budget=said, **options)
        layer.load_state_dict(plain.state_dict())
        for _ in range(2):
            layer.zero_grad()
            layer(x)[0].sum().backward()
        assert all(
            torch.equal(a.grad, b.grad) for a, b in zip(layer.parameters(), plain.parameters()) if a.requires_grad
        )
        budgets[said] = layer.report.budget
        assert layer.report.peak <= budgets[said]
        assert (forwards(layer) == forwards(plain)) == (said == "speed")
    assert budgets["memory"] <= budgets["20%"] <= 0.2 * budgets["speed"] + 1
    assert budgets["memory"] <= budgets["balanced"] <= budgets["speed"]


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

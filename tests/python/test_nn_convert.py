# SPDX-License-Identifier: Apache-2.0
"""`ebb.nn.convert` and `revert`: the recurrent layers of a model that is there already, in a budget and back."""

from __future__ import annotations

import copy
import pickle

import pytest

torch = pytest.importorskip("torch")

from nn_pairs import assert_close  # noqa: E402

import ebb  # noqa: E402
import ebb.nn  # noqa: E402

torch.set_num_threads(1)
OWN = {"RNN": ebb.nn.RNN, "LSTM": ebb.nn.LSTM, "GRU": ebb.nn.GRU}


class Tagger(torch.nn.Module):
    """A model of somebody: layers of all three kinds, one of them in two places, in double precision."""

    def __init__(self):
        super().__init__()
        self.embed = torch.nn.Linear(3, 6)
        self.encoder = torch.nn.ModuleDict({"low": torch.nn.LSTM(6, 4, bidirectional=True), "mid": torch.nn.GRU(8, 6)})
        self.top = torch.nn.RNN(6, 6, 2, dropout=0.0)
        self.again = self.top
        self.head = torch.nn.Linear(6, 2)
        self.double()

    def forward(self, x):
        x, _ = self.encoder["low"](self.embed(x))
        x, _ = self.encoder["mid"](x)
        x, _ = self.top(x)
        x, _ = self.again(x)
        return self.head(x)


def model():
    torch.manual_seed(0)
    return Tagger()


X = torch.randn(60, 3, 3, dtype=torch.float64, generator=torch.Generator().manual_seed(1))


def gradients(net):
    net.zero_grad()
    out = net(X)
    out.pow(2).sum().backward()
    return [out.detach(), *(p.grad.clone() for p in net.parameters())]


def recurrent(net):
    return {name: layer for name, layer in net.named_modules() if isinstance(layer, torch.nn.RNNBase)}


def test_every_recurrent_layer_is_ebbs_on_one_budget():
    plain, net = model(), model()
    assert ebb.nn.convert(net, "256KiB") is net
    layers = recurrent(net)
    assert {name: type(layer) for name, layer in layers.items()} == {
        "encoder.low": ebb.nn.LSTM,
        "encoder.mid": ebb.nn.GRU,
        "top": ebb.nn.RNN,
    }
    assert net.again is net.top
    budget = net.top.budget
    assert isinstance(budget, ebb.Budget) and budget.total == 256 * 1024
    assert all(layer.budget is budget for layer in layers.values())
    expected = gradients(plain)
    for _ in range(2):
        found = gradients(net)
    # As near to torch's as layers that are made as ebb's are: other sums of the same numbers.
    assert_close(found, expected, 1e-12)
    assert 0 < budget.peak <= budget.total and budget.held == 0


def test_gradients_are_those_of_layers_made_as_ebbs():
    net, made = model(), model()
    ebb.nn.convert(net, "256KiB")
    made.encoder["low"] = ebb.nn.LSTM(6, 4, bidirectional=True, budget="256KiB", dtype=torch.float64)
    made.encoder["mid"] = ebb.nn.GRU(8, 6, budget="256KiB", dtype=torch.float64)
    made.top = made.again = ebb.nn.RNN(6, 6, 2, budget="256KiB", dtype=torch.float64)
    made.load_state_dict(net.state_dict())
    assert all(torch.equal(a, b) for a, b in zip(gradients(net), gradients(made), strict=True))


def test_all_that_a_layer_had_stays():
    plain, net = model(), model()
    net.top.eval()
    net.top.weight_hh_l0.requires_grad_(False)
    seen = []
    net.top.register_forward_hook(lambda *_: seen.append("hook"))
    before = dict(net.named_parameters())
    ebb.nn.convert(net, "256KiB")
    assert all(before[name] is parameter for name, parameter in net.named_parameters())
    assert not net.top.training and net.encoder["mid"].training
    assert not net.top.weight_hh_l0.requires_grad
    assert list(net.state_dict()) == list(plain.state_dict())
    net.load_state_dict(plain.state_dict())
    plain.load_state_dict(net.state_dict())
    net(X)
    assert seen == ["hook", "hook"]


def test_an_optimiser_made_before_goes_on():
    def train(net, convert):
        optimiser = torch.optim.Adam(net.parameters(), lr=0.01)
        for step in range(4):
            if step == 2 and convert:
                ebb.nn.convert(net, "256KiB")
            optimiser.zero_grad()
            net(X).pow(2).mean().backward()
            optimiser.step()
        return list(net.parameters())

    assert_close(train(model(), True), train(model(), False), 1e-8)  # Adam divides by small numbers


def test_back_it_is_torchs():
    plain, net = model(), model()
    attributes = {name: set(vars(layer)) for name, layer in recurrent(net).items()}
    ebb.nn.convert(net, "256KiB", chunk=5)
    gradients(net)
    assert ebb.nn.revert(net) is net
    assert {name: set(vars(layer)) for name, layer in recurrent(net).items()} == attributes
    assert all(type(layer).__module__ == "torch.nn.modules.rnn" for layer in recurrent(net).values())
    assert all(torch.equal(a, b) for a, b in zip(gradients(net), gradients(plain), strict=True))
    assert ebb.nn.revert(net) is net


@pytest.mark.parametrize("kind", OWN)
def test_a_model_that_is_one_layer(kind):
    layer = getattr(torch.nn, kind)(3, 5)
    weight = layer.weight_ih_l0
    found = ebb.nn.convert(layer, "64KiB")
    assert found is layer and type(found) is OWN[kind] and found.weight_ih_l0 is weight
    found(torch.randn(30, 2, 3))[0].sum().backward()
    assert found.report.peak <= 64 * 1024
    assert type(ebb.nn.revert(found)) is getattr(torch.nn, kind)


@pytest.mark.parametrize("ran", [False, True])
def test_copies_and_pickles(ran):
    net = ebb.nn.convert(model(), "256KiB")
    net.encoder["mid"].native = False
    expected = gradients(net)
    if not ran:
        net = ebb.nn.convert(model(), "256KiB")
        net.encoder["mid"].native = False
    for other in (copy.deepcopy(net), pickle.loads(pickle.dumps(net))):
        assert all(torch.equal(a, b) for a, b in zip(gradients(other), expected, strict=True))
        assert len({id(layer.budget) for layer in recurrent(other).values()}) == 1
        assert other.top.budget.total == 256 * 1024 and other.again is other.top


def test_again_with_another_budget_and_options():
    net = ebb.nn.convert(model(), "1MiB")
    shared = ebb.Budget("300KiB")
    ebb.nn.convert(net, shared, chunk=4, tiers=ebb.memory_tier("1MiB"), native=False, strategy="auto")
    for layer in recurrent(net).values():
        assert layer.budget is shared and (layer.chunk, layer.native) == (4, False)
        assert layer.tiers == ebb.memory_tier("1MiB")
    assert_close(gradients(net), gradients(model()), 1e-12)


class Residual(torch.nn.LSTM):
    def forward(self, x, hx=None):
        y, state = super().forward(x, hx)
        return x + y, state


def strange(kind):
    if kind == "proj_size":
        return torch.nn.LSTM(6, 4, proj_size=2)
    if kind == "parametrised":
        return torch.nn.utils.parametrizations.weight_norm(torch.nn.LSTM(6, 6), "weight_hh_l0")
    return Residual(6, 6)


@pytest.mark.parametrize(
    "kind, said", [("proj_size", "proj_size=2"), ("class", "Residual"), ("parametrised", "ParametrizedLSTM")]
)
def test_what_cannot_be_converted_is_refused_by_name(kind, said):
    net = torch.nn.ModuleDict({"good": torch.nn.GRU(3, 6), "bad": strange(kind)})
    with pytest.raises(ebb.Error, match=said) as raised:
        ebb.nn.convert(net, "1MiB")
    assert "bad" in str(raised.value) and "skip=['bad']" in str(raised.value)
    assert type(net["good"]) is torch.nn.GRU
    before = type(net["bad"])
    for skip in ("bad", ["bad"], [net["bad"]], [before]):
        ebb.nn.convert(net, "1MiB", skip=skip)
        assert type(net["good"]) is ebb.nn.GRU and type(net["bad"]) is before
    assert type(ebb.nn.revert(net)["good"]) is torch.nn.GRU and type(net["bad"]) is before


def test_skipped_parts_stay_with_all_that_they_contain():
    net = ebb.nn.convert(model(), "1MiB", skip=["encoder"])
    assert type(net.encoder["low"]) is torch.nn.LSTM and type(net.top) is ebb.nn.RNN


@pytest.mark.parametrize(
    "call, said",
    [
        (lambda: ebb.nn.convert(model(), None), "budget is None.*revert"),
        (lambda: ebb.nn.convert(model(), "much"), "much"),
        (lambda: ebb.nn.convert(model(), "1MiB", chunk=0), "chunk is 0"),
        (lambda: ebb.nn.convert(model(), "1MiB", skip=["nobody"]), "nobody"),
        (lambda: ebb.nn.convert(model(), "1MiB", skip=[3]), "skip has 3"),
        (lambda: ebb.nn.convert(model(), "1MiB", skip=3), "skip has 3"),
        (lambda: ebb.nn.convert(model(), "1MiB", tiers="zz"), "'z' is no tier"),
        (lambda: ebb.nn.convert(torch.nn.Linear(2, 2), "1MiB"), "no torch.nn.RNN, LSTM or GRU"),
        (lambda: ebb.nn.convert("model", "1MiB"), "model is a str"),
        (lambda: ebb.nn.revert("model"), "model is a str"),
    ],
)
def test_mistakes(call, said):
    with pytest.raises(ebb.Error, match=said):
        call()


def test_a_layer_that_was_parametrised_since_is_not_reverted():
    net = ebb.nn.convert(model(), "1MiB")
    torch.nn.utils.parametrizations.weight_norm(net.top, "weight_hh_l0")
    with pytest.raises(ebb.Error, match="top has become ParametrizedRNN"):
        ebb.nn.revert(net)
    assert type(net.encoder["mid"]) is ebb.nn.GRU


def test_a_budget_may_be_a_share_for_all_layers():
    x = torch.randn(200, 2, 3)
    net = torch.nn.ModuleDict({"low": torch.nn.LSTM(3, 8), "high": torch.nn.GRU(8, 8)})
    ebb.nn.convert(net, "20%")
    for _ in range(2):
        net["high"](net["low"](x)[0])[0].sum().backward()
    budget = net["low"].budget
    given = [layer.report.budget for layer in net.values()]
    assert budget.total is None and budget.held == 0 and 0 < budget.peak <= sum(given)
    ebb.nn.convert(net, "100%")
    net["high"](net["low"](x)[0])[0].sum().backward()
    assert all(abs(part - 0.2 * layer.report.budget) < 1 for part, layer in zip(given, net.values()))

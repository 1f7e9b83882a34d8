# SPDX-License-Identifier: Apache-2.0
"""ebb.fit: arguments, mistakes, and models that are not plain chains of layers."""

import copy
import gc
import itertools
import pickle
import weakref
from types import SimpleNamespace

import pytest

torch = pytest.importorskip("torch", reason="PyTorch is not installed")
from compressed_nets import (  # noqa: E402
    chain,
    everything,
    least_of,
    net_and_sample,
    residual_net,
    same,
    training_gradients,
    training_peak,
    ways,
)

import ebb  # noqa: E402
from ebb._compress.compress import compressed_layers  # noqa: E402

pytestmark = pytest.mark.usefixtures("one_thread")


ALL_LOSSY = [("pool", 4), "int8", "linear"]


def test_arguments_by_name_and_a_loss_of_ones_own():
    class Two(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.net = residual_net()

        def forward(self, image, scale):
            return {"out": self.net(image) * scale}

    model = Two()
    sample = {"image": torch.randn(4, 3, 16, 16), "scale": torch.tensor(2.0)}
    seen = []

    def loss(out):
        seen.append(out["out"].shape)
        return out["out"].logsumexp(1).sum()

    ebb.fit(model, sample, "60%", loss=loss)
    assert model.ebb_fit.peak <= model.ebb_fit.budget and set(seen) == {torch.Size([4, 10])}
    assert "recompute" in ways(model)
    assert str(model.ebb_fit).count("\n") == len(model.ebb_fit.rows) + 1
    assert model.ebb_fit.to_dict()["peak"] == model.ebb_fit.peak


@pytest.mark.parametrize(
    "options, words",
    [
        ({"budget": "0%"}, "0%"),
        ({"budget": "0.6"}, "budget is '0.6', less than a byte; did you mean '60%'"),
        ({"budget": " .125 "}, "did you mean '12.5%'"),
        ({"budget": 0.6}, "did you mean '60%'"),
        ({"budget": "x%"}, "x%"),
        ({"budget": -1}, "budget"),
        ({"budget": None}, "budget"),
        ({"lossy": ["poll"]}, "poll"),
        ({"lossy": ("pool", 3)}, r"lossy has \('pool', 3\)"),
        ({"lossy": 3}, "lossy is 3"),
        ({"lossy": ("int8", 4)}, r"lossy has \('int8', 4\)"),
        ({"lossy": {"pool": 4}}, "lossy is {'pool': 4}"),
        ({"lossy": ["pool", 4]}, "lossy has 4"),
        ({"lossy": [["pool"]]}, "lossy has"),
        ({"lossy": None}, "lossy is None"),
        ({"disk": 3}, "disk"),
        ({"sample": 3}, "sample"),
        ({"loss": 3}, "loss"),
        ({"loss": lambda out: out}, "one number"),
        ({"loss": lambda out: torch.zeros(())}, "one number"),
        ({"skip": ["nobody"]}, "nobody"),
        ({"skip": 3}, "skip has 3"),
        ({"model": 3}, "model"),
        ({"budget": ebb.Budget("1MiB")}, "budget is ebb.Budget"),
        ({"model": torch.nn.Sequential(torch.nn.LazyConv2d(4, 3))}, "Lazy"),
    ],
)
def test_mistakes_are_named(options, words):
    model, sample = net_and_sample("plain")
    given = {"model": model, "sample": sample, "budget": "50%", **options}
    with pytest.raises(ebb.Error, match=words) as error:
        ebb.fit(given.pop("model"), given.pop("sample"), given.pop("budget"), **given)
    assert error.value.code == "invalid_argument"


def test_a_model_without_gradients_is_refused():
    model, sample = net_and_sample("plain")
    model.requires_grad_(False)
    with pytest.raises(ebb.Error, match="no backward pass"):
        ebb.fit(model, sample, "50%")


def test_the_error_says_what_else_could_be_allowed():
    model, sample = net_and_sample("plain")
    with pytest.raises(ebb.Error, match=r"\('pool', 8\), 'int8'; disk="):
        ebb.fit(model, sample, 1)  # it has no linear layer


def test_mistakes_are_found_before_anything_runs():
    model, sample = net_and_sample("plain")
    model.register_forward_pre_hook(lambda *_: pytest.fail("it runs"))
    for options in ({"budget": "x%"}, {"budget": "many"}, {"lossy": "all"}, {"disk": 3}):
        with pytest.raises(ebb.Error):
            ebb.fit(model, sample, **{"budget": "50%", **options})


def test_a_model_that_takes_no_less_is_left_as_it_was():
    """A ReLU between convolutions: torch keeps what comes out once, for both."""
    model = chain(
        lambda: torch.nn.Conv2d(3, 3, 3, padding=1), torch.nn.ReLU, lambda: torch.nn.Conv2d(3, 3, 3, padding=1)
    )
    sample = torch.randn(4, 3, 16, 16)
    before, peak = everything(model), training_peak(model, sample)
    for verify, budget in itertools.product((True, False), ("100%", 2 * peak)):
        found = ebb.fit(model, sample, budget, lossy=ALL_LOSSY, verify=verify).ebb_fit
        assert found.peak == peak <= found.budget and found.rows == [] and found.slowdown == 1
        assert "as they were" in found.brief()
        assert same(everything(model), before)
    assert least_of(model, sample) == peak


@pytest.mark.slow
def test_more_ways_never_need_a_larger_budget():
    """Also where a prediction is wrong, as with copies that autocast makes."""
    model, sample = residual_net(), torch.randn(2, 3, 8, 8)
    with torch.autocast("cpu", torch.bfloat16):
        exact = least_of(model, sample)
        assert least_of(model, sample, lossy=["pool", "int8", "linear"]) <= exact
        assert ebb.fit(model, sample, exact, lossy=["pool", "int8", "linear"]).ebb_fit.peak <= exact


def test_layers_to_skip_are_those_of_this_call():
    model, sample = net_and_sample("residual")
    every = set(compressed_layers(ebb.compress(model)))
    for name in ("3.conv1", "3.conv2"):  # both look the same in text
        layer = model.get_submodule(name)
        ebb.fit(model, sample, "90%", skip=(one for one in [layer]))
        assert {row.layer for row in model.ebb_fit.rows} == every - {name}
        assert training_peak(model, sample) <= model.ebb_fit.budget


def test_what_else_is_given_counts():
    class Choice(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.net = residual_net()

        def forward(self, x, short):
            return self.net[:3](x) if short else self.net(x)

    model, sample = Choice(), net_and_sample("residual")[1]
    peaks = [ebb.fit(model, {"x": sample, "short": short}, "100%").ebb_fit.stock_peak for short in (True, False)]
    assert peaks[0] < peaks[1] == training_peak(residual_net(), sample)


def test_a_sample_that_was_computed_keeps_its_graph():
    model, sample = net_and_sample("residual")
    origin = sample.clone().requires_grad_()
    given = origin.exp()
    ebb.fit(model, given, "70%")
    ebb.compression_report(model, given)
    assert origin.grad is None
    given.sum().backward()
    assert torch.equal(origin.grad, origin.detach().exp())


def test_an_output_that_only_the_loss_understands():
    class Wrapped(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.net = residual_net()

        def forward(self, x):
            return SimpleNamespace(out=self.net(x))

    model, sample = Wrapped(), net_and_sample("residual")[1]
    with pytest.raises(ebb.Error, match="a loss must say"):
        ebb.fit(model, sample, "70%")
    found = ebb.fit(model, sample, "70%", loss=lambda given: given.out.square().sum()).ebb_fit
    assert found.peak <= found.budget


def test_a_model_is_freed_whatever_its_loss_holds():
    model, sample = net_and_sample("plain")
    ebb.fit(model, sample, "100%", loss=lambda out: out.sum() * len(model))  # noqa: F821
    gone = weakref.ref(model)
    del model
    gc.collect()
    assert gone() is None


def test_weights_that_are_computed_when_they_are_read():
    """Reading one goes on with a power iteration, in buffers."""
    norm = torch.nn.utils.parametrizations.spectral_norm
    model = chain(
        lambda: norm(torch.nn.Conv2d(3, 8, 3)),
        lambda: torch.nn.BatchNorm2d(8),
        torch.nn.ReLU,
        lambda: norm(torch.nn.Conv2d(8, 8, 3)),
    )
    sample = torch.randn(4, 3, 16, 16)
    before = everything(model)
    ebb.fit(model, sample, "100%")
    ebb.compression_report(ebb.compress(model), sample)
    ebb.decompress(model)
    assert same(everything(model), before)


@pytest.mark.parametrize("runs", [0, 1, 5, 10, 13])
@pytest.mark.sweep(2)
def test_a_step_that_fails_leaves_no_trace(runs):
    class Fails(torch.autograd.Function):
        @staticmethod
        def forward(ctx, x):
            return x.clone()

        @staticmethod
        def backward(ctx, gradient):
            raise ValueError("no gradient")

    left = [runs]

    def spoil(model, given, out):
        left[0] -= 1
        return Fails.apply(out) if left[0] < 0 else None

    model, sample = net_and_sample("residual")
    hook = model.register_forward_hook(spoil)
    before = everything(model)
    with pytest.raises(ValueError, match="no gradient"):
        ebb.fit(model, sample, "70%")
    assert same(everything(model), before)
    hook.remove()
    wanted = training_gradients(residual_net(), sample)
    assert same(training_gradients(model, sample), wanted)
    assert same(training_gradients(ebb.fit(model, sample, "70%"), sample), wanted)


@pytest.mark.parametrize("verify", [True, False])
@pytest.mark.sweep(1)
def test_rows_say_what_is_pooled_before_it_has_run(verify):
    model = chain(*[lambda: torch.nn.Conv2d(3, 3, 3, padding=1), torch.nn.LeakyReLU] * 4)
    sample = torch.randn(4, 3, 16, 16)
    least = least_of(model, sample, lossy="pool", verify=verify)
    for _ in range(2):
        rows = ebb.fit(model, sample, least, lossy="pool", verify=verify).ebb_fit.rows
        pooled = {row.layer for row in rows if row.way == "pool 2x2"}
        assert (
            pooled
            == {name for name, layer in compressed_layers(model).items() if layer.ebb_settings.way == "compress"}
            != set()
        )
        model(sample).sum().backward()
        assert pooled == {row.layer for row in ebb.compression_report(model, sample).rows if row.way == "pool 2x2"}


def test_a_second_fit_and_copies():
    model, sample = net_and_sample("residual")
    wanted = training_gradients(model, sample)
    first = ebb.fit(ebb.compress(model, pool=4), sample, "70%").ebb_fit
    assert ebb.fit(model, sample, "70%").ebb_fit == first
    for twin in (copy.deepcopy(model), pickle.loads(pickle.dumps(model))):
        assert twin.ebb_fit == first and same(training_gradients(twin, sample), wanted)
        ebb.fit(twin, sample, "60%")
        assert training_peak(twin, sample) <= twin.ebb_fit.budget < first.budget
        assert same(training_gradients(twin, sample), wanted)
    assert model.ebb_fit == first
    assert not hasattr(ebb.compress(model), "ebb_fit")

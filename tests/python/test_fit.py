# SPDX-License-Identifier: Apache-2.0
"""ebb.fit: the measured peak is within the budget, gradients have their bits, and nothing else changes."""

import copy
import gc
import pickle
import random
import weakref
from dataclasses import replace
from types import SimpleNamespace

import pytest

torch = pytest.importorskip("torch", reason="PyTorch is not installed")

from compressed_nets import NETS, everything, net_and_sample, residual_net, same, training_gradients, training_peak  # noqa: E402

import ebb  # noqa: E402
from ebb._compress.compress import compressed_layers  # noqa: E402
from ebb._compress.offloading import Offloading  # noqa: E402
from ebb._compress.record import record_bytes  # noqa: E402
from ebb._compress.sample_step import SampleStep  # noqa: E402
from ebb._fit.plan import Planner, evaluate, kept_by_layer  # noqa: E402
from ebb._fit.profile import Allowed, Profile  # noqa: E402

pytestmark = pytest.mark.usefixtures("one_thread")

ALL_LOSSY = [("pool", 4), "int8", "linear"]


def ways(model):
    return {row.way for row in model.ebb_fit.rows}


def least_of(model, sample, **options):
    with pytest.raises(ebb.Error) as error:
        ebb.fit(model, sample, 1, **options)
    assert error.value.code == "infeasible_budget"
    return error.value.least_budget


@pytest.mark.parametrize("name", NETS)
def test_peak_is_within_every_budget_and_gradients_are_exact(name):
    model, sample = net_and_sample(name)
    stock_peak, wanted = training_peak(model, sample), training_gradients(model, sample)
    before = everything(model)
    least = least_of(model, sample)
    assert same(everything(model), before)
    slowdowns = []
    for part in (1.0, 0.7, 0.5, 0.0):
        budget = max(least, int(part * stock_peak))
        assert ebb.fit(model, sample, budget) is model
        found = model.ebb_fit
        assert found.budget == budget and found.peak <= budget
        assert training_peak(model, sample) <= budget
        assert ways(model) <= {"keep", "recompute"}
        assert same(training_gradients(model, sample), wanted)
        slowdowns.append(found.slowdown)
    assert slowdowns == sorted(slowdowns)
    ebb.decompress(model)
    assert same(everything(model), before)
    assert not hasattr(model, "ebb_fit")


def test_all_is_kept_where_it_fits():
    model, sample = net_and_sample("residual")
    peak = training_peak(model, sample)
    ebb.fit(model, sample, "100%", lossy=ALL_LOSSY)
    assert ways(model) == {"keep"}
    assert model.ebb_fit.stock_peak == model.ebb_fit.budget == peak


def test_lossy_ways_are_used_where_they_are_allowed_and_needed():
    model, sample = net_and_sample("residual")
    exact = least_of(model, sample)
    out = training_gradients(model, sample)[0]
    smaller = least_of(model, sample, lossy=ALL_LOSSY)
    assert smaller < 0.9 * exact
    ebb.fit(model, sample, smaller, lossy=ALL_LOSSY)
    assert training_peak(model, sample) <= smaller
    assert any("pool" in way for way in ways(model)) and "int8" in ways(model)
    assert torch.equal(training_gradients(model, sample)[0], out)
    pooled = ebb.fit(model, sample, least_of(model, sample, lossy=["pool", "linear"]), lossy=["pool", "linear"])
    assert ways(pooled) <= {"keep", "recompute", "pool 2x2", "int8"}
    assert all(row.way != "int8" or row.kind == "Linear" for row in pooled.ebb_fit.rows)


@pytest.mark.parametrize(
    "lossy, wanted",
    [
        ("pool", Allowed((2,))),
        (("pool", 4), Allowed((2, 4))),
        (("pool", "int8"), Allowed((2,), True)),
        (("pool", "linear"), Allowed((2,), linear=("int8",))),
        (("int8", ("pool", 8)), Allowed((2, 4, 8), True)),
        ([("pool", 4)], Allowed((2, 4))),
        ([("pool", 8), "pool"], Allowed((2, 4, 8))),
        ((("pool", 4),), Allowed((2, 4))),
        ({"project", "linear"}, Allowed(linear=("int8", "project"))),
        (iter(["int8"]), Allowed(norm=True)),
        ((), Allowed()),
        (["linear", "linear"], Allowed(linear=("int8",))),
    ],
)
def test_ways_to_say_what_may_be_lossy(lossy, wanted):
    assert Allowed.of(lossy, None) == wanted


def test_linear_layers_may_keep_less():
    torch.manual_seed(0)
    model = torch.nn.Sequential(*[layer for _ in range(6) for layer in (torch.nn.Linear(64, 64), torch.nn.ReLU())])
    sample = torch.randn(8, 16, 64)
    exact = least_of(model, sample)
    for lossy in ("linear", "project", ["linear", "project"]):
        smaller = least_of(model, sample, lossy=lossy)
        assert smaller < exact
        ebb.fit(model, sample, smaller, lossy=lossy)
        assert training_peak(model, sample) <= smaller
        assert ways(model) & {"int8", "project"}


@pytest.mark.parametrize("name, budget", [("residual", "65%"), ("transformer", "45%")])
def test_what_is_kept_may_go_to_disk(name, budget, tmp_path):
    model, sample = net_and_sample(name)
    wanted = training_gradients(model, sample)
    before = ebb.fit(model, sample, budget, disk=tmp_path).ebb_fit
    assert "offload" in ways(model) and before.peak <= before.budget
    for _ in range(3):
        assert training_peak(model, sample) <= before.budget
    assert same(training_gradients(model, sample), wanted)
    mover = next(
        layer.ebb_settings.offloading for layer in compressed_layers(model).values() if layer.ebb_settings.offloading
    )
    report = mover.report
    assert report.moved.tensors > 0 and report.written.bytes == report.moved.bytes
    for twin in (copy.deepcopy(model), pickle.loads(pickle.dumps(model))):
        assert same(training_gradients(twin, sample), wanted)
    table = ebb.compression_report(model, sample)
    assert table.totals.moved == sum(row.moved for row in table.rows) > 0
    assert all(row.error in (None, 0.0) for row in table.rows)


def test_one_transfer_serves_all_readers(tmp_path):
    """A residual block's first convolution and its side branch read one tensor."""
    model, sample = net_and_sample("residual")
    ebb.compress(model)
    mover = Offloading(tmp_path, 1, 1 << 20)
    block = model[4]
    for layer in compressed_layers(model).values():
        layer.ebb_settings.offloading = mover
    block.conv1.ebb_settings.way = block.side[0].ebb_settings.way = "offload"
    model(sample).sum().backward()
    assert mover.asked == 4 * 8 * 16 * 16 * 4
    assert mover.report.saved == mover.report.moved.tensors == 1


@pytest.mark.parametrize("name", NETS)
def test_prediction_is_what_layers_keep(name):
    """For plans drawn at random, lossy ones too: predicted bytes against those that torch's hooks see."""
    model, sample = net_and_sample(name)
    ebb.compress(model)
    step = SampleStep("test", model, sample, None)
    profile = Profile(step, None, None, Allowed.of([("pool", 8), "int8", "linear"], None))
    draw = random.Random(name)
    layers = compressed_layers(model)
    for _ in range(6):
        keys = {one.name: draw.choice(one.options).key for one in profile.steps}
        for name_, layer in layers.items():
            way, block, codec = keys.get(name_, ("keep", 0, "int8"))
            layer.ebb_settings.way, layer.ebb_settings.codec = way, codec
            if block:
                layer.ebb_settings.block = (block,) * len(layer.stride)
                layer.ebb_settings.always = True
        measured = sum(event.bytes for event in record_bytes(step))
        plan = evaluate(profile.steps, keys)
        assert plan.bytes == measured
        assert sum(kept_by_layer(profile.steps, keys).values()) == plan.bytes


def test_a_plan_is_made_tighter_until_its_peak_fits(monkeypatch):
    """A prediction that leaves out what passes by is too low; what was measured counts."""
    measure = Profile.__init__

    def too_low(self, *args):
        measure(self, *args)
        self.steps = [replace(one, scratch=0) for one in self.steps]
        self.planner = Planner(self.steps)

    monkeypatch.setattr(Profile, "__init__", too_low)
    model, sample = net_and_sample("residual")
    ebb.fit(model, sample, "65%")
    found = model.ebb_fit
    assert found.predicted_peak < 0.9 * found.peak and found.peak <= found.budget
    assert training_peak(model, sample) <= found.budget


def test_a_layer_that_is_called_twice_has_one_way():
    torch.manual_seed(0)
    shared = torch.nn.Conv2d(8, 8, 3, padding=1)
    model = torch.nn.Sequential(
        torch.nn.Conv2d(3, 8, 3, padding=1), torch.nn.ReLU(), shared, torch.nn.ReLU(), shared, torch.nn.ReLU()
    )
    sample = torch.randn(4, 3, 16, 16)
    least = least_of(model, sample, lossy=("pool", 4))
    ebb.fit(model, sample, least, lossy=("pool", 4))
    assert training_peak(model, sample) <= least
    assert shared.ebb_settings.way == "compress"


def test_a_layer_that_also_reads_data_does_not_keep_a_copy_of_it():
    torch.manual_seed(0)
    shared = torch.nn.Conv2d(4, 4, 3, padding=1)
    model = torch.nn.Sequential(*[layer for _ in range(4) for layer in (shared, torch.nn.LeakyReLU())])
    sample = torch.randn(4, 4, 16, 16)
    least = least_of(model, sample, lossy="pool")
    assert least < least_of(model, sample)
    ebb.fit(model, sample, least, lossy="pool")
    assert shared.ebb_settings.way == "compress" and training_peak(model, sample) <= least
    kept = sum(event.bytes for event in record_bytes(SampleStep("test", model, sample, lambda out: out.sum())))
    assert kept == 3 * 4 * 4 * 8 * 8 * 4 + 4 * 4 * 4 * 16 * 16 // 8  # three pooled inputs, and four times bits


def test_a_failed_fit_leaves_a_compressed_model_as_it_was():
    model, sample = net_and_sample("residual")
    ebb.compress(model, pool=2)
    before = (
        everything(model),
        {name: copy.copy(layer.ebb_settings) for name, layer in compressed_layers(model).items()},
    )
    least_of(model, sample)
    after = everything(model), {name: layer.ebb_settings for name, layer in compressed_layers(model).items()}
    assert same(after, before)


def test_gradients_generators_and_statistics_stay(tmp_path):
    model, sample = net_and_sample("transformer")
    sample.requires_grad_()
    model(sample).sum().backward()
    gradients = [parameter.grad for parameter in model.parameters()], sample.grad
    before = everything(model), sample.grad.clone()
    ebb.fit(model, sample, "95%", lossy=["linear"])
    ebb.decompress(model)
    assert same((everything(model), sample.grad), before)
    assert all(p.grad is old for p, old in zip(model.parameters(), gradients[0])) and sample.grad is gradients[1]


def test_without_verification_the_prediction_counts():
    model, sample = net_and_sample("residual")
    ebb.fit(model, sample, "60%", verify=False)
    assert model.ebb_fit.peak is None and model.ebb_fit.predicted_peak <= model.ebb_fit.budget
    with pytest.raises(ebb.Error) as error:
        ebb.fit(model, sample, 1, verify=False)
    ebb.fit(model, sample, error.value.least_budget, verify=False)


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


def chain(*layers):
    torch.manual_seed(0)
    return torch.nn.Sequential(*[layer() for layer in layers])


def test_mistakes_are_found_before_anything_runs():
    model, sample = net_and_sample("plain")
    model.register_forward_pre_hook(lambda *_: pytest.fail("it runs"))
    for options in ({"budget": "x%"}, {"budget": "many"}, {"lossy": "all"}, {"disk": 3}):
        with pytest.raises(ebb.Error):
            ebb.fit(model, sample, **{"budget": "50%", **options})


def test_a_model_that_takes_more_with_bits_is_left_as_it_was():
    """A ReLU between convolutions: torch keeps what comes out once, for both."""
    model = chain(
        lambda: torch.nn.Conv2d(3, 3, 3, padding=1), torch.nn.ReLU, lambda: torch.nn.Conv2d(3, 3, 3, padding=1)
    )
    sample = torch.randn(4, 3, 16, 16)
    before, peak = everything(model), training_peak(model, sample)
    for verify in (True, False):
        found = ebb.fit(model, sample, "100%", lossy=ALL_LOSSY, verify=verify).ebb_fit
        assert found.peak == peak == found.budget and found.rows == [] and found.slowdown == 1
        assert "as they were" in found.brief()
        assert same(everything(model), before)
    assert least_of(model, sample) == peak
    ebb.fit(model, sample, 2 * peak)
    assert ways(model) == {"keep"}


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
    ebb.compression_report(model, sample)
    ebb.decompress(model)
    assert same(everything(model), before)


@pytest.mark.parametrize("runs", [0, 1, 5, 10, 13])
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

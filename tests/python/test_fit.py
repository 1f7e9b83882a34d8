# SPDX-License-Identifier: Apache-2.0
"""ebb.fit: the measured peak is within the budget, gradients have their bits, and nothing else changes."""

import copy
import pickle
import random
from dataclasses import replace

import pytest

torch = pytest.importorskip("torch", reason="PyTorch is not installed")
from compressed_nets import (  # noqa: E402
    NETS,
    everything,
    least_of,
    net_and_sample,
    same,
    training_gradients,
    training_peak,
    ways,
)

import ebb  # noqa: E402
from ebb._compress.compress import compressed_layers  # noqa: E402
from ebb._compress.offloading import Offloading  # noqa: E402
from ebb._compress.record import record_bytes  # noqa: E402
from ebb._compress.sample_step import SampleStep  # noqa: E402
from ebb._fit.plan import Planner, evaluate, kept_by_layer  # noqa: E402
from ebb._fit.profile import Allowed, Profile  # noqa: E402

pytestmark = pytest.mark.usefixtures("one_thread")


ALL_LOSSY = [("pool", 4), "int8", "linear"]


@pytest.mark.usefixtures("even_clock")
@pytest.mark.parametrize("name", NETS)
@pytest.mark.sweep(2)
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


@pytest.mark.usefixtures("even_clock")
@pytest.mark.parametrize("name, budget", [("residual", "65%"), ("transformer", "45%")])
@pytest.mark.sweep(1)
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
@pytest.mark.sweep(1)
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


@pytest.mark.usefixtures("even_clock")
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

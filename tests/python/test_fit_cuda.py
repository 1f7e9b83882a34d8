# SPDX-License-Identifier: Apache-2.0
"""ebb.fit and ebb.compression_report on a GPU: its allocator is the judge. `./dev cuda` runs it where one is."""

from __future__ import annotations

import pytest

torch = pytest.importorskip("torch")

from compressed_nets import NETS, net_and_sample, same, training_gradients  # noqa: E402

import ebb  # noqa: E402
from ebb._compress.compress import compressed_layers  # noqa: E402
from ebb._compress.offloading import Offloading  # noqa: E402

pytestmark = pytest.mark.skipif(not torch.cuda.is_available(), reason="no GPU here")


@pytest.fixture(autouse=True)
def same_bits_in_every_run():
    before = torch.backends.cudnn.deterministic
    torch.backends.cudnn.deterministic = True
    yield
    torch.backends.cudnn.deterministic = before


def large(name):
    """Large enough that the allocator's rounding is small."""
    model, sample = net_and_sample(name)
    return model.cuda(), sample.cuda().repeat(16, *[1] * (sample.dim() - 1))


def allocator_peak(model, sample):
    for parameter in model.parameters():
        parameter.grad = torch.zeros_like(parameter)
    factors = torch.randn_like(model(sample))
    torch.cuda.synchronize()
    before = torch.cuda.memory_allocated()
    torch.cuda.reset_peak_memory_stats()
    (model(sample) * factors).sum().backward()
    torch.cuda.synchronize()
    found = torch.cuda.max_memory_allocated() - before
    for parameter in model.parameters():
        parameter.grad = None
    return found


@pytest.mark.parametrize("name", NETS)
def test_the_allocator_stays_within_the_budget(name):
    model, sample = large(name)
    wanted = training_gradients(model, sample)
    with pytest.raises(ebb.Error) as error:
        ebb.fit(model, sample, 1)
    least = error.value.least_budget
    for part in (100, 70, 50, 0):
        ebb.fit(model, sample, "100%")
        budget = max(least, model.ebb_fit.stock_peak * part // 100)
        ebb.fit(model, sample, budget)
        assert model.ebb_fit.peak <= budget
        assert allocator_peak(model, sample) <= budget
        assert same(training_gradients(model, sample), wanted)


def test_what_is_kept_may_go_to_host_memory():
    model, sample = large("residual")
    ebb.compress(model)
    wanted = training_gradients(model, sample)
    mover = Offloading(None, 2, 1 << 24)
    for layer in compressed_layers(model).values():
        layer.ebb_settings.way, layer.ebb_settings.offloading = "offload", mover
    assert same(training_gradients(model, sample), wanted)
    assert mover.report.moved.tensors > 5 and mover.report.pinned.tensors == mover.report.moved.tensors
    report = ebb.compression_report(model, sample)
    assert report.totals.moved > 0 and report.totals.kept < report.totals.stock_kept // 4


def test_lossy_ways_reach_further():
    model, sample = large("residual")
    least = []
    for lossy in ((), [("pool", 4), "int8"]):
        with pytest.raises(ebb.Error) as error:
            ebb.fit(model, sample, 1, lossy=lossy)
        least.append(error.value.least_budget)
    assert least[1] <= least[0]
    ebb.fit(model, sample, least[1], lossy=[("pool", 4), "int8"])
    assert allocator_peak(model, sample) <= least[1]
    assert all(row.error is not None for row in ebb.compression_report(model, sample).rows if "conv" in row.layer)

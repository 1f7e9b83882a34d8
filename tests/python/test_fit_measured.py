# SPDX-License-Identifier: Apache-2.0
"""ebb.fit against measurements that know nothing of its model: bytes of live tensors, operations that run."""

import itertools

import pytest

torch = pytest.importorskip("torch", reason="PyTorch is not installed")

from compressed_nets import NETS, least_of, net_and_sample, training_peak  # noqa: E402
from torch.utils._python_dispatch import TorchDispatchMode  # noqa: E402

import ebb  # noqa: E402
from ebb._compress.compress import compressed_layers  # noqa: E402

pytestmark = pytest.mark.usefixtures("one_thread")


class Convolutions(TorchDispatchMode):
    """How many run, other than for gradients."""

    def __init__(self):
        super().__init__()
        self.count = 0

    def __torch_dispatch__(self, function, types, args=(), kwargs=None):
        self.count += function is torch.ops.aten.convolution.default
        return function(*args, **(kwargs or {}))


def convolutions(model, sample):
    with Convolutions() as seen:
        model(sample).sum().backward()
    model.zero_grad()
    return seen.count


@pytest.mark.usefixtures("even_clock")
@pytest.mark.parametrize("name", NETS)
@pytest.mark.parametrize("lossy", [(), (("pool", 4), "int8", "linear")], ids=["exact", "lossy"])
@pytest.mark.sweep(2)
def test_the_predicted_peak_is_the_measured_one(name, lossy):
    """Within 8 %: what passes by inside of an operation is measured once, before anything is chosen. Which plan is chosen depends on
    how fast operations are; 5 % is usual, the worst that was seen 6.7 %."""
    model, sample = net_and_sample(name)
    whole, least = training_peak(model, sample), least_of(model, sample, lossy=lossy)
    predicted, measured = [], []
    for part in (0, 0.25, 0.5, 0.75, 1):
        found = ebb.fit(model, sample, int(least + part * (whole - least)), lossy=lossy).ebb_fit
        predicted.append(found.predicted_peak)
        measured.append(training_peak(model, sample))
        assert found.peak == measured[-1] <= found.budget
    assert predicted == pytest.approx(measured, rel=0.08)
    # Without convolutions nothing is computed again.
    assert min(measured) < 0.9 * max(measured) or name == "transformer"


@pytest.mark.slow
def test_no_way_to_run_the_net_computes_less_again_in_as_few_bytes():
    """Against every plan there is for a small net, each of them run."""
    model, sample = net_and_sample("plain")
    ebb.compress(model, norm="recompute")
    norms = [layer for layer in compressed_layers(model).values() if isinstance(layer, torch.nn.BatchNorm2d)]
    plans = []
    for ways in itertools.product(("keep", "recompute"), repeat=len(norms)):
        for norm, way in zip(norms, ways):
            norm.ebb_settings.way = way
        plans.append((training_peak(model, sample), convolutions(model, sample)))
    peaks = sorted({peak for peak, _ in plans})
    assert len(peaks) > 3 and len({count for _, count in plans}) == len(norms) + 1
    ebb.decompress(model)
    assert least_of(model, sample) == peaks[0]
    for limit in peaks:
        ebb.fit(model, sample, limit)
        assert training_peak(model, sample) <= limit
        assert convolutions(model, sample) == min(count for peak, count in plans if peak <= limit), limit

# SPDX-License-Identifier: Apache-2.0
"""Encoded tapes: what reports, verify, probe and errors say."""

from __future__ import annotations

import pytest

torch = pytest.importorskip("torch", reason="PyTorch is not installed")
from codec_loops import BATCH, STEPS, WIDTH, lstm, room  # noqa: E402
from scan_oracle import least  # noqa: E402

import ebb  # noqa: E402
import ebb.nn  # noqa: E402

torch.set_num_threads(1)


@pytest.fixture(autouse=True)
def seed() -> None:
    torch.manual_seed(3)


def test_the_report_says_what_was_done():
    f, init, xs, _ = lstm()
    ebb.scan(f, init, xs, budget=room(f, init, xs, chunk=4), chunk=4, codec=("int8", "bf16"))[1].sum().backward()
    report = ebb.last_report()
    coding = report.coding
    assert coding.codec == {"tape": "int8", "state": "bf16"} and coding.approximate
    assert coding.state * 2 == coding.raw_state and coding.tape < coding.raw_tape / 2
    assert report.as_dict()["coding"]["raw_tape"] == coding.raw_tape
    assert "approximate" in report.brief() and "tape int8, state bf16" in str(report)


def test_verify_measures_each_gradient():
    f, init, xs, params = lstm()
    budget = room(f, init, xs, chunk=4)
    found = ebb.verify(f, init, xs, budget=budget, chunk=4, codec="bf16")
    assert not found and len(found.gradients) == len(params) + 3
    for one in found.gradients:
        assert 0 < one.relative < 2**-6 and 0.999 < one.cosine < 1 + 1e-9
    assert "weight_hh" in str(found) and "cosine" in str(found)
    exact = ebb.verify(f, init, xs, budget=budget, chunk=4, codec="bits")
    assert exact and all(one.relative == 0 for one in exact.gradients)


def test_verify_says_what_the_norms_say():
    f, init, xs, params = lstm()
    budget = room(f, init, xs, chunk=4)
    found = {one.name: one for one in ebb.verify(f, init, xs, budget=budget, chunk=4, codec="int8").gradients}
    ours = []
    for options in ({}, {"budget": budget, "chunk": 4, "codec": "int8"}):
        carry, ys = ebb.scan(f, init, xs, **options)
        generator = torch.Generator().manual_seed(1)
        outputs = [*carry, ys]
        seeds = [torch.randn(r.shape, generator=generator, dtype=torch.float64).float() for r in outputs]
        ours.append(torch.autograd.grad(outputs, params, seeds)[1].double().flatten())
    assert found["weight_hh"].relative == pytest.approx(float((ours[0] - ours[1]).norm() / ours[0].norm()), rel=1e-6)
    cosine = float(ours[0] @ ours[1] / ours[0].norm() / ours[1].norm())
    assert found["weight_hh"].cosine == pytest.approx(cosine, rel=1e-9)


def test_probe_knows_the_codec():
    f, init, xs, _ = lstm()
    plain, coded = (ebb.probe(f, init, xs, chunk=4, codec=codec) for codec in (None, "int8"))
    assert coded.costs.tape < plain.costs.tape / 2 and coded.store_all < plain.store_all


@pytest.mark.parametrize(
    "codec, words",
    [
        ("gzip", "bf16, fp16, int8, bits and pool:N"),
        ("zstd", "not known before"),
        ("raw", "leave it out"),
        ("pool:x", "pool"),
        ("pool:4x8", "pool:N"),
        ("bf16:3", "no parameter"),
        (7, "a pair"),
        (("bf16", "bf16", "bf16"), "a pair"),
        ({"tapes": "bf16"}, '"tape" and "state"'),
        ({"state": "events"}, "not known before"),
    ],
)
def test_what_is_no_codec_is_refused(codec, words):
    with pytest.raises(ebb.Error, match="codec") as caught:
        ebb.scan(
            lambda h, x: (h * x, None), torch.ones(4), torch.ones(10, 4, requires_grad=True), budget=1024, codec=codec
        )
    assert words in str(caught.value)


def test_what_a_codec_cannot_go_with_is_refused():
    f, init, xs, _ = lstm()
    with pytest.raises(ebb.Error, match="budget is None"):
        ebb.scan(f, init, xs, codec="bf16")
    with pytest.raises(ebb.Error, match="verify=True"):
        ebb.scan(f, init, xs, budget="1MiB", codec=(None, "bf16"), verify=True)
    for layer in (ebb.nn.LSTM, ebb.nn.LIF):
        with pytest.raises(ebb.Error, match="takes no codec"):
            layer(3, 4, budget="1MiB", codec="bf16")


def test_verify_true_goes_with_lossy_tapes():
    f, init, xs, _ = lstm()
    ebb.scan(f, init, xs, budget=room(f, init, xs, chunk=4), chunk=4, codec="int8", verify=True)[1].sum().backward()


def test_spikes_that_end_are_an_error_and_not_a_wrong_gradient():
    def f(carry, x):
        h, t = carry
        gate = torch.where(t < 30, (x > 0).to(x.dtype), x)
        return (gate * 1.0, t + 1), (gate * h).exp()

    xs = torch.randn(STEPS, BATCH, WIDTH, requires_grad=True)
    init = torch.zeros(BATCH, WIDTH), torch.zeros((), dtype=torch.int64)
    with pytest.raises(ebb.Error, match="does not take"):
        budget = least(f, init, xs, chunk=1, codec=(None, "bits"), strategy="revolve")
        _, ys = ebb.scan(f, init, xs, budget=budget + 20_000, chunk=1, codec=(None, "bits"), strategy="revolve")
        ys.sum().backward()

# SPDX-License-Identifier: Apache-2.0
"""The bytes of tapes and states that are kept encoded, and what a budget buys then."""

from __future__ import annotations

import gc

import pytest

torch = pytest.importorskip("torch", reason="PyTorch is not installed")
from codec_loops import BATCH, lif, lstm, room  # noqa: E402

import ebb  # noqa: E402
from ebb._loop.codec.codec import Codec  # noqa: E402
from ebb._loop.codec.tape import Recording  # noqa: E402
from ebb._tensor.memory import LiveBytes  # noqa: E402

torch.set_num_threads(1)


@pytest.fixture(autouse=True)
def seed() -> None:
    torch.manual_seed(3)


def recorded(codec: str, work) -> Recording:
    recording = Recording(Codec(codec), set())
    with recording.hooks():
        recording.result = work()
    return recording


def test_spikes_are_kept_in_a_bit_each():
    weight = torch.randn(256, 256, requires_grad=True)
    spikes = (torch.randn(64, 256) > 1).float()
    recording = recorded("bits", lambda: spikes.clone() @ weight)
    recording.seal(set())
    assert recording.encoded_from == 64 * 256 * 4
    assert recording.encoded_bytes == recording.encoded_from // 32


def test_views_of_one_storage_are_encoded_once_and_decoded_as_they_were():
    a = torch.randn(32, 128, requires_grad=True)

    def work():
        whole = torch.tanh(a)
        left, right = whole.chunk(2, 1)
        return (left * right * whole.t().reshape(64, 64)[:32]).sum() + whole.pow(3).sum()

    recording = recorded("fp16", work)
    recording.seal(set())
    whole = a.numel() * a.element_size()
    # The tanh, the product of its halves and half of the copy that reshape makes.
    assert recording.encoded_bytes == (whole + whole // 2 + whole // 2) // 2
    (mine,) = torch.autograd.grad(recording.result, a)
    (exact,) = torch.autograd.grad(work(), a)
    assert 0 < float((mine - exact).norm() / exact.norm()) < 2**-10


def test_small_tensors_whole_numbers_and_what_somebody_holds_stay():
    a = torch.randn(1024, requires_grad=True)
    held = []

    def work():
        small = torch.exp(a[:16])
        held.append(torch.exp(a))
        index = torch.arange(1024).flip(0)
        return small.sum() + held[0].sum() + torch.exp(a)[index].sum() + a.double().to(torch.bfloat16).exp().sum()

    recording = recorded("bf16", work)
    held[0] = held[0].detach()
    recording.seal(set())
    assert recording.encoded_from == 1024 * 4


def test_a_spiking_tape_weighs_what_its_spikes_no_longer_do():
    f, init, xs, params = lif(width=256)
    ebb.scan(f, init, xs, budget=room(f, init, xs, chunk=8), chunk=8, codec="bits")
    coding = ebb.last_report().coding
    # Of a step the spikes for the weights of the next one, the last of a block being its state, are 31/32 smaller.
    spikes = 7 * BATCH * 256 * 4
    places = 8 * 4  # one number for each output, where its gradient enters
    assert coding.raw_tape - coding.tape == spikes * 31 // 32 - places


def test_a_net_that_is_silent_at_first_is_looked_at_until_it_spikes():
    f, init, xs, _ = lif()
    xs[:10] = 0
    ebb.scan(f, init, xs, budget=room(f, init, xs, chunk=4), chunk=4, codec="bits")[1].sum().backward()
    coding = ebb.last_report().coding
    assert coding.raw_tape - coding.tape >= 3 * BATCH * 64 * 4 * 31 // 32 - 4 * 4


@pytest.mark.parametrize("chunk", [1, 4])
@pytest.mark.sweep(1)
def test_the_same_budget_buys_fewer_forwards(chunk):
    f, init, xs, _ = lstm()
    budget = room(f, init, xs, share=0.2, chunk=chunk)
    forwards = []
    for codec in (None, "bf16", "int8"):
        ebb.scan(f, init, xs, budget=budget, chunk=chunk, codec=codec)[1].sum().backward()
        report = ebb.last_report()
        assert report.measured["forwards"] == report.predicted["forwards"]
        forwards.append(report.measured["forwards"])
    assert forwards[0] > forwards[1] > forwards[2]


def test_smaller_states_need_a_smaller_budget_or_fewer_forwards():
    f, init, xs, _ = lstm()
    budget = room(f, init, xs, share=0.02, chunk=1)
    forwards = []
    for codec in (None, (None, "int8")):
        ebb.scan(f, init, xs, budget=budget, chunk=1, strategy="revolve", codec=codec)[1].sum().backward()
        forwards.append(ebb.last_report().measured["forwards"])
    assert forwards[0] > forwards[1]


@pytest.mark.parametrize("codec, chunk", [("bf16", 1), ("bits", 4), (("int8", "bf16"), 1), ("int8", 4)])
@pytest.mark.parametrize("model", [lif, lstm])
@pytest.mark.sweep(4)
def test_the_peak_is_within_the_prediction_and_the_budget(codec, chunk, model):
    f, init, xs, params = model()
    budget = room(f, init, xs, chunk=chunk)
    ebb.scan(f, init, xs, budget=budget, chunk=chunk, codec=codec)
    gc.collect()
    with LiveBytes() as counted:
        carry, ys = ebb.scan(f, init, xs, budget=budget, chunk=chunk, codec=codec)
        (carry[0].sum() + ys.sum()).backward()
    callers = 2 * sum(t.numel() * 4 for t in (*carry, ys)) + sum(p.numel() * 4 for p in params)
    report = ebb.last_report()
    assert report.predicted["peak"]["fast"] <= budget
    assert counted.peak - callers <= report.predicted["peak"]["fast"] * 1.01 + (1 << 14)

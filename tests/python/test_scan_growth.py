# SPDX-License-Identifier: Apache-2.0
"""Loops whose tapes were all alike: the allocator tells of those that keep more, and they are weighed; others are not."""

from __future__ import annotations

import pytest

torch = pytest.importorskip("torch", reason="PyTorch is not installed")
from scan_oracle import compare, gradients, loop, same, weighted  # noqa: E402

import ebb  # noqa: E402
from ebb._loop.growth import Growth  # noqa: E402
from ebb._loop.recorder import Recorder  # noqa: E402
from ebb._tensor import allocated  # noqa: E402

pytestmark = pytest.mark.usefixtures("one_thread")

UNITS, BATCH, BUDGET = 64, 16, "1MiB"


@pytest.fixture(params=["cpu", "cuda"])
def device(request):
    if request.param == "cuda" and not torch.cuda.is_available():
        pytest.skip("no GPU")
    found = torch.device(request.param, 0 if request.param == "cuda" else None)
    if allocated.allocated(found) is None:
        pytest.skip("malloc does not tell")
    torch.set_default_device(found)
    square = torch.ones(UNITS, UNITS, requires_grad=True)
    (square @ square).sum().backward()  # cuBLAS keeps a workspace for each thread
    yield found
    torch.set_default_device(None)


@pytest.fixture
def served(monkeypatch):
    """Whatever it takes to read: blocks are small here."""
    monkeypatch.setattr(Growth, "serves", lambda growth, device, record: True)


@pytest.fixture
def weighings(monkeypatch):
    """The blocks that are weighed from now on."""
    found = []
    own = Recorder.weighed

    def weighed(recorder, block, *rest):
        found.append(block)
        return own(recorder, block, *rest)

    monkeypatch.setattr(Recorder, "weighed", weighed)
    return found


class Cell:
    """A step of which x says how many times more it keeps."""

    def __init__(self):
        torch.manual_seed(1)
        self.weight = (0.1 * torch.randn(UNITS, UNITS)).requires_grad_()

    def __call__(self, h, x):
        more = h.repeat(max(1, int(x)), 1).exp().sin()
        h = torch.tanh(h @ self.weight + 1e-3 * more.mean())
        return h, h.mean()


def calm(steps=200):
    return torch.ones(steps)


def run(f, xs, **options):
    h, ys = ebb.scan(f, torch.zeros(BATCH, UNITS), xs, budget=BUDGET, **options)
    (h.sum() + ys.sum()).backward()


def test_memory_of_tensors_is_seen(device):
    read = allocated.allocated(device)
    before = read()
    kept = torch.empty(100_000)
    assert 400_000 <= read() - before < 410_000
    del kept
    assert abs(read() - before) < 10_000


def test_tapes_that_are_alike_are_weighed_in_the_first_call_alone(device, served, weighings):
    f = Cell()
    run(f, calm())
    assert ebb.last_report().strategy != "store_all"
    assert len(set(weighings)) == ebb.last_report().steps
    run(f, calm())  # learns what they take
    weighings.clear()
    run(f, calm())
    assert len(weighings) <= 1  # collecting garbage may look like a tape


@pytest.mark.parametrize("chunk", [None, 1])
def test_a_later_call_with_heavier_steps_is_planned_for_them(device, served, chunk):
    f, busy = Cell(), calm()
    busy[100:104] = 20
    for _ in range(3):
        run(f, calm(), chunk=chunk)
    first = ebb.last_report()
    report = compare(f, torch.zeros(BATCH, UNITS), busy, [f.weight], budget=BUDGET, chunk=chunk)
    light = first.costs.tape / first.chunk * report.chunk  # blocks may have another length now
    busy_step = 20 * BATCH * UNITS * 4
    assert report.costs.tape > light + 0.9 * busy_step
    assert report.strategy != "store_all" and report.predicted["peak"]["fast"] <= 1 << 20


def test_a_suspect_is_recorded_again_with_the_same_random_numbers(device, monkeypatch, served, weighings):
    f, xs = Cell(), calm()

    def noisy(h, x):
        h, y = f(h, x)
        return torch.nn.functional.dropout(h, 0.2), y

    monkeypatch.setattr(Growth, "is_suspect", lambda growth, taken: True)
    init = torch.zeros(BATCH, UNITS)
    run(noisy, xs)
    weighings.clear()
    found = []
    for way in (lambda: loop(noisy, init, xs), lambda: ebb.scan(noisy, init, xs, budget=BUDGET)):
        torch.manual_seed(3)
        h, ys = way()
        found.append((h, ys, gradients(weighted(h, ys), [f.weight]), torch.rand(4)))
    same(*found)
    assert len(set(weighings)) == ebb.last_report().steps


def test_growth_learns_what_blocks_take_and_no_more():
    growth = Growth()
    assert growth.is_suspect(500_000)
    growth.clear(500_000, weight=400_000, nodes=100)
    assert not growth.is_suspect(500_000) and not growth.is_suspect(504_000)
    assert growth.is_suspect(510_000)
    growth.clear(50_000_000, weight=400_000, nodes=100)  # somebody else took it
    assert growth.is_suspect(510_000)


def test_growth_is_given_up_where_it_says_nothing(monkeypatch):
    growth = Growth()
    cpu = torch.device("cpu")
    monkeypatch.setattr("ebb._loop.growth.seconds_to_read", lambda device: 1e-5)
    assert growth.serves(cpu, record=1e-3) and not growth.serves(cpu, record=1e-4)
    for _ in range(8):
        growth.clear(50_000_000, weight=400_000, nodes=100)
    assert not growth.serves(cpu, record=1e-3)

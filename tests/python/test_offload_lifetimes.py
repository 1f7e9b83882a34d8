# SPDX-License-Identifier: Apache-2.0
"""ebb.offload gives everything back: memory, objects, files; also under load and at the end of the process."""

from __future__ import annotations

import gc
import os
import subprocess
import sys
import weakref

import pytest

torch = pytest.importorskip("torch", reason="PyTorch is not installed")
from offload_cases import DEVICES, MODELS, WAYS, gradients, same_bits, settled, way_in  # noqa: E402
from torch import nn  # noqa: E402

import ebb  # noqa: E402


@pytest.fixture(params=DEVICES)
def device(request):
    return request.param


@pytest.fixture(params=WAYS)
def way(request, tmp_path):
    return way_in(request.param, tmp_path)


def test_a_retained_graph_gives_the_device_its_memory_back(device):
    x = torch.randn(1000, device=device, requires_grad=True)
    came = []

    class Look(torch.autograd.Function):
        @staticmethod
        def forward(ctx, y):
            z = y * 1
            ctx.save_for_backward(z)
            return y.sum()

        @staticmethod
        def backward(ctx, gradient):
            (z,) = ctx.saved_tensors
            came.append(weakref.ref(z.untyped_storage()))
            return gradient * torch.ones_like(z)

    with ebb.offload(cpu_as_device=True) as off:
        loss = Look.apply(x)
    assert settled(off, device).moved.tensors == 1
    loss.backward(retain_graph=True)
    assert came[0]() is None
    loss.backward()
    assert off.report.misses == 2


def test_import_alone_needs_no_torch():
    done = subprocess.run(
        [sys.executable, "-c", "import sys, ebb; assert 'torch' not in sys.modules; assert 'offload' in dir(ebb)"],
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stderr


@pytest.mark.slow
def test_a_graph_alive_at_the_end_prints_nothing(tmp_path):
    program = (
        "import sys, torch, ebb\n"
        "off = ebb.offload(disk=sys.argv[1])\n"
        "with off:\n"
        "    loss = torch.randn(1000, requires_grad=True).exp().sin().sum()\n"
    )
    done = subprocess.run([sys.executable, "-c", program, str(tmp_path)], capture_output=True, text=True)
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")


def resident():
    with open("/proc/self/statm") as file:
        return int(file.read().split()[1]) * os.sysconf("SC_PAGE_SIZE")


def at_rest(off):
    """The report, once nothing is on its way to the pool or the disk any more."""
    mover = off._saver._mover
    report = off.report
    while mover._spilling or mover._waiting or mover._moving:
        report = off.report
    return report


@pytest.mark.slow
def test_nothing_grows_over_iterations(way, device):
    off = ebb.offload(**way)
    torch.manual_seed(0)
    weight = torch.randn(256, 256, device=device, requires_grad=True)

    def iteration():
        with off:
            y = torch.randn(512, 256, device=device) @ weight
            for _ in range(4):
                y = y.tanh() * y
            y = y.sum()
        y.backward()

    for _ in range(3):
        iteration()
    first = at_rest(off)
    gc.collect()
    before, objects = resident(), len(gc.get_objects())
    for _ in range(30):
        iteration()
    at_rest(off)
    # Without the collector: what is left behind must not wait for it.
    assert len(gc.get_objects()) - objects < 30 * 10  # an iteration saves a dozen tensors
    assert off.report.pool_bytes == first.pool_bytes
    if "disk" not in way:  # with one, it depends on how fast that is
        assert off.report.pool_peak == first.pool_peak
    assert resident() - before < 40 << 20  # they saved 135 MiB


def test_an_unused_graph_gives_everything_back(way, device):
    off = ebb.offload(**way)
    for _ in range(3):
        with off:
            loss = torch.randn(4096, device=device, requires_grad=True).exp().tanh().exp().sum()
        del loss
    pool = off._saver._mover.pool
    report = at_rest(off)
    assert report.moved.tensors > 0
    assert off.report and pool.used == 0


def test_the_object_dies_with_its_last_graph(way, device):
    off = ebb.offload(**way)
    with off:
        loss = torch.randn(4096, device=device, requires_grad=True).exp().tanh().sum()
    pool = weakref.ref(off._saver._mover.pool)
    del off
    loss.backward()
    del loss
    assert pool() is None


@pytest.mark.skipif(not torch.cuda.is_available(), reason="no CUDA device")
def test_the_device_is_relieved():
    def peak(off):
        torch.manual_seed(0)
        model = nn.Sequential(*[nn.Sequential(nn.Linear(1024, 1024), nn.GELU()) for _ in range(24)]).cuda()
        x = torch.randn(8192, 1024, device="cuda")
        for _ in range(2):
            torch.cuda.synchronize()
            torch.cuda.reset_peak_memory_stats()
            if off is None:
                loss = model(x).square().mean()
            else:
                with off:
                    loss = model(x).square().mean()
            loss.backward()
            torch.cuda.synchronize()
        return torch.cuda.max_memory_allocated(), [parameter.grad for parameter in model.parameters()]

    plain, expected = peak(None)
    off = ebb.offload(pool="4GiB", read_ahead="128MiB")
    less, got = peak(off)
    assert same_bits(got, expected)
    assert off.report.pool_pinned and off.report.pageable.tensors == 0
    assert less < plain / 2


@pytest.mark.skipif(not torch.cuda.is_available(), reason="no CUDA device")
def test_other_streams_than_the_default():
    stream, other = torch.cuda.Stream(), torch.cuda.Stream()
    expected = gradients(MODELS["transformer"], "cuda", None, 2)
    off = ebb.offload(pool="64MiB", min_offload_size=64)
    for chosen in (stream, other, stream):
        chosen.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(chosen):
            got = gradients(MODELS["transformer"], "cuda", off, 2)
        torch.cuda.current_stream().wait_stream(chosen)
        assert same_bits(got, expected)


@pytest.mark.skipif(not torch.cuda.is_available(), reason="no CUDA device")
def test_many_iterations_under_load_keep_the_bits():
    """Memory that is reused too early shows as other bits, sooner or later."""
    torch.manual_seed(0)
    model = nn.Sequential(*[nn.TransformerEncoderLayer(256, 4, 1024, 0.0, batch_first=True) for _ in range(6)]).cuda()
    xs = [torch.randn(16, 256, 256, device="cuda") for _ in range(4)]

    def step(x, off):
        model.zero_grad()
        if off is None:
            loss = model(x).square().mean()
        else:
            with off:
                loss = model(x).square().mean()
        loss.backward()
        return [parameter.grad.clone() for parameter in model.parameters()]

    expected = [step(x, None) for x in xs]
    off = ebb.offload(pool="2GiB", max_fwd_stash_size=2, read_ahead="64MiB")
    for turn in range(40):
        assert same_bits(step(xs[turn % 4], off), expected[turn % 4]), turn
    assert off.report.hits > off.report.misses

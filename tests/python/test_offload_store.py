# SPDX-License-Identifier: Apache-2.0
"""ebb.offload: what is moved and what stays, in which order, to the pool and the disk; mistakes are named."""

from __future__ import annotations

import os

import pytest

torch = pytest.importorskip("torch", reason="PyTorch is not installed")
from offload_cases import DEVICES, MODELS, gradients, same_bits, settled  # noqa: E402
from torch import nn  # noqa: E402

import ebb  # noqa: E402


@pytest.fixture(params=DEVICES)
def device(request):
    return request.param


def test_budget_keeps_the_newest(device):
    x = torch.randn(32, 32, device=device, requires_grad=True)
    with ebb.offload(cpu_as_device=True, budget=3 * x.nbytes) as off:
        y = x
        for _ in range(10):
            y = y.sin()
        loss = y.sum()
        del y
    report = settled(off, device)
    # The first of the ten is x itself, a leaf. On a GPU the budget holds the one that is on its way, too.
    moved = 7 if device == "cuda" else 6
    assert (report.moved.tensors, report.kept["budget"].tensors) == (moved, 9 - moved)
    loss.backward()
    assert (off.report.misses, off.report.hits) == (0, moved)
    assert off.report.moved.tensors == moved


def test_nothing_to_do_on_a_cpu_is_said():
    with ebb.offload() as off:
        torch.randn(1000, requires_grad=True).exp().sum().backward()
    assert off.report.moved.tensors == 0
    assert off.report.kept["host"].tensors == 1
    assert "nothing left the device" in str(off.report)
    assert "already in host memory, and no disk= was given" in str(off.report)


def test_small_ones_stay(device):
    with ebb.offload(cpu_as_device=True, min_offload_size=4001) as off:
        torch.randn(1000, device=device, requires_grad=True).exp().sum().backward()
    assert off.report.kept["small"].bytes == 4000
    with ebb.offload(cpu_as_device=True, min_offload_size=4000) as off:
        loss = torch.randn(1000, device=device, requires_grad=True).exp().sum()
    assert off.report.moved.bytes == 4000
    loss.backward()


def test_keep_decides(device):
    with ebb.offload(cpu_as_device=True, keep=lambda tensor: tensor.dtype == torch.bool) as off:
        loss = nn.functional.dropout(torch.randn(5000, device=device, requires_grad=True).exp(), 0.5).sum()
    assert ("asked" in off.report.kept) == (device == "cuda")
    with ebb.offload(cpu_as_device=True, keep=lambda tensor: True) as off:
        loss = loss + torch.randn(5000, device=device, requires_grad=True).exp().sum()
    assert off.report.moved.tensors == 0
    loss.backward()


def test_the_oldest_go_to_disk(tmp_path, device):
    x = torch.randn(4096, device=device, requires_grad=True)  # 16 KiB
    off = ebb.offload(cpu_as_device=True, pool="64KiB", disk=str(tmp_path), read_ahead="16KiB")
    with off:
        y = x
        for _ in range(12):
            y = y.tanh()
        loss = y.sum()
        del y
    report = off.report
    assert report.moved.tensors == 12
    assert 8 <= report.written.tensors < 12
    assert report.pool_peak <= 64 << 10
    loss.backward()
    report = off.report
    assert report.read.tensors >= report.written.tensors - 4
    assert os.listdir(tmp_path) == []
    assert "disk" in str(report)
    y = x.detach().requires_grad_()
    z = y
    for _ in range(12):
        z = z.tanh()
    z.sum().backward()
    assert torch.equal(x.grad, y.grad)


def test_reads_ahead_go_back_in_order(device):
    """Each layer finds its tensor on the way, and no more than the distance is ever on the way."""
    x = torch.randn(1024, device=device, requires_grad=True)
    off = ebb.offload(cpu_as_device=True, pool="1MiB", read_ahead=2 * x.nbytes)
    ages = []
    load = off._saver._mover.load
    off._saver._mover.load = lambda item: (ages.append(item.age), load(item))
    with off:
        y = x
        for _ in range(8):
            y = y.tanh()
        loss = y.sum()
        del y
    on_the_way = []
    node = loss.grad_fn
    while node is not None:
        node.register_hook(lambda *_: on_the_way.append(off._saver._ahead))
        node = node.next_functions[0][0] if node.next_functions else None
    settled(off, device)
    loss.backward()
    assert ages == list(range(7, -1, -1))
    assert (off.report.misses, off.report.hits) == (1, 7)
    assert max(on_the_way) == 2 * x.nbytes


@pytest.mark.parametrize("model", ["transformer", "recurrent"])
def test_a_backward_pass_reads_each_storage_once(model, device):
    off = ebb.offload(cpu_as_device=True, min_offload_size=64)
    ages = []
    load = off._saver._mover.load
    off._saver._mover.load = lambda item: (ages.append(item.age), load(item))
    gradients(MODELS[model], device, off, 2)
    assert len(ages) > 10
    assert len(ages) == len(set(ages))


def test_a_full_pool_is_said(device):
    x = torch.randn(4096, device=device, requires_grad=True)  # 16 KiB
    with ebb.offload(cpu_as_device=True, pool="32KiB") as off:
        y = x
        for _ in range(6):
            y = y.tanh()
        loss = y.sum()
        del y
    report = off.report
    assert (report.moved.tensors, report.overflow.tensors, report.pool_peak) == (6, 4, 32 << 10)
    assert report.pinned.tensors == (2 if torch.cuda.is_available() else 0)
    assert "beside the pool, which was full: 4 (64 KiB)" in str(report)
    loss.backward()


def test_a_damaged_file_is_an_error_and_never_a_gradient(tmp_path):
    """Other bytes in the file than were written: the read says so."""
    off = ebb.offload(disk=str(tmp_path), max_fwd_stash_size=1, read_ahead=0)
    x = torch.randn(8192, requires_grad=True)
    with off:
        y = x
        for _ in range(6):
            y = y.tanh()
        loss = y.sum()
        del y
    while off._saver._mover._moving:
        off.report  # noqa: B018 - looks what has ended
    for number in os.listdir("/proc/self/fd"):
        link = f"/proc/self/fd/{number}"
        if os.path.exists(link) and os.readlink(link).startswith(str(tmp_path)):
            file = os.open(link, os.O_RDWR)
            os.pwrite(file, b"other" * 1000, 40_000)
            os.close(file)
    with pytest.raises(ebb.Error) as raised:
        loss.backward()
    assert raised.value.code == "io"
    assert x.grad is None
    assert same_bits(gradients(MODELS["mlp"], "cpu", off), gradients(MODELS["mlp"], "cpu"))


def test_a_full_disk_keeps_the_rest(tmp_path):
    x = torch.randn(4096, requires_grad=True)
    tier = ebb.file_tier(tmp_path, "40KiB")
    with ebb.offload(disk=tier) as off:
        y = x
        for _ in range(6):
            y = y.tanh()
        loss = y.sum()
        del y
    assert (off.report.written.tensors, off.report.kept["full"].tensors) == (2, 4)
    assert "no room for them elsewhere" in str(off.report)
    loss.backward()
    with ebb.offload(disk=tier, pool="16KiB", cpu_as_device=True) as off:
        y = x
        for _ in range(6):
            y = y.tanh()
        loss = y.sum()
        del y
    assert off.report.moved.tensors == 6
    assert off.report.written.tensors == 2
    loss.backward()


@pytest.mark.parametrize(
    "options",
    [
        {"budget": "many"},
        {"budget": -1},
        {"pool": 1.5},
        {"pool": "-2GiB"},
        {"disk": 3},
        {"disk": "/no/such/directory"},
        {"read_ahead": None},
        {"min_offload_size": "x"},
        {"max_fwd_stash_size": 0},
        {"keep": 3},
    ],
)
def test_mistakes_are_named(options):
    with pytest.raises(ebb.Error) as raised:
        ebb.offload(**options)
    (name, value) = next(iter(options.items()))
    assert name in str(raised.value) or str(value) in str(raised.value)


def test_torchtunes_arguments_in_their_order(device):
    with ebb.offload(True, None, 5, 1024) as off:
        torch.randn(10, device=device, requires_grad=True).exp().sum().backward()
    assert off.report.saved == 1

# SPDX-License-Identifier: Apache-2.0
"""Bits, small indices and bytes in place of activations: packed, unpacked and against PyTorch's own."""

from __future__ import annotations

import math

import pytest

torch = pytest.importorskip("torch")

import ebb  # noqa: E402
from ebb import _core  # noqa: E402

NAMES = {torch.float32: "float32", torch.float64: "float64", torch.int64: "int64", torch.uint8: "uint8"}


@pytest.fixture(autouse=True)
def one_thread():
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


def every_kind_of_number(count, dtype, seed=0):
    torch.manual_seed(seed)
    x = torch.randn(count, dtype=dtype) * 3
    tiny = torch.finfo(dtype).smallest_normal / 8
    special = [math.nan, -math.nan, 0.0, -0.0, math.inf, -math.inf, tiny, -tiny, 6.0, 1.0, -1.0]
    at = torch.randperm(count)[: len(special)]
    x[at] = torch.tensor(special, dtype=dtype)[: len(at)]
    return x


def bits_of(x, threads=1, **more):
    bits = torch.full(((x.numel() + 7) // 8,), 255, dtype=torch.uint8)
    _core.sign_bits(NAMES[x.dtype], x.numel(), x.data_ptr(), bits.data_ptr(), threads=threads, **more)
    return bits


def masked(bits, gy, threads=1, slope=None):
    gx = torch.full_like(gy, math.nan)
    _core.masked(NAMES[gy.dtype], gy.numel(), bits.data_ptr(), gy.data_ptr(), gx.data_ptr(), slope, threads)
    return gx


def same_bits(a, b):
    whole = torch.int32 if a.dtype == torch.float32 else torch.int64
    return torch.equal(a.view(whole), b.view(whole))


COUNTS = [1, 7, 8, 9, 63, 64, 65, 511, 513, 4096, 9001]


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("count", COUNTS)
def test_bits_have_the_bits_of_torchs_relus(count, dtype):
    x, gy = every_kind_of_number(count, dtype), every_kind_of_number(count, dtype, 1)
    aten = torch.ops.aten
    no_nan = x.nan_to_num(0.5)  # of a NaN torch's clamps make what its place in memory says
    for threads in (1, 2):
        bits = bits_of(x, threads, rule="relu")
        assert same_bits(masked(bits, gy, threads), aten.threshold_backward(gy, x, 0))
        assert same_bits(masked(bits, gy, threads), aten.threshold_backward(gy, torch.relu(x), 0))
        bits = bits_of(x, threads, rule="positive")
        expected = aten.leaky_relu_backward(gy, x, 0.01, False)
        assert same_bits(masked(bits, gy, threads, slope=0.01), expected)
        bits = bits_of(no_nan, threads, rule="between", low=0, high=6)
        assert same_bits(masked(bits, gy, threads), aten.hardtanh_backward(gy, no_nan, 0, 6))


def test_bits_are_lowest_first_and_padded_with_0():
    x = torch.tensor([1.0, -1, 0, 2, -1, -1, -1, -1, -1, 5])
    assert bits_of(x).tolist() == [0b1001, 0b10]
    assert bits_of(torch.full((3,), math.nan), rule="between").tolist() == [0]


def test_masking_may_be_in_place():
    x, gy = torch.randn(1000), torch.randn(1000)
    bits, expected = bits_of(x), torch.where(x > 0, gy, 0.0)
    _core.masked("float32", 1000, bits.data_ptr(), gy.data_ptr(), gy.data_ptr())
    assert torch.equal(gy, expected)


@pytest.mark.parametrize("dtype", [torch.int64, torch.uint8])
@pytest.mark.parametrize("bits", [4, 8])
@pytest.mark.parametrize("count", [0, 1, 2, 3, 4095, 4097, 9000])
def test_small_indices_come_back(count, bits, dtype):
    torch.manual_seed(count)
    indices = torch.randint(0, 2**bits, (count,)).to(dtype)
    packed = torch.full(((count * bits + 7) // 8 + 1,), 77, dtype=torch.uint8)
    back = torch.zeros_like(indices)
    for threads in (1, 2):
        _core.pack_small(NAMES[dtype], count, indices.data_ptr(), bits, packed.data_ptr(), threads)
        _core.unpack_small(NAMES[dtype], count, packed.data_ptr(), bits, back.data_ptr(), threads)
        assert torch.equal(back, indices) and packed[-1] == 77
    if bits == 4 and count >= 2:
        assert packed[0] == indices[0] + 16 * indices[1]


@pytest.mark.parametrize("bad, bits", [(16, 4), (-1, 4), (256, 8), (-1, 8), (2**40, 8)])
def test_an_index_too_large_is_refused(bad, bits):
    indices = torch.zeros(9, dtype=torch.int64)
    indices[6] = bad
    packed = torch.zeros(9, dtype=torch.uint8)
    with pytest.raises(ebb.Error, match=rf"element 6 is {bad}; .* 0 to {2**bits - 1}") as caught:
        _core.pack_small("int64", 9, indices.data_ptr(), bits, packed.data_ptr())
    assert caught.value.code == "invalid_argument"


def channels_round_trip(x, mean=None, threads=1):
    n, c, inner = x.shape[0], x.shape[1], x[0, 0].numel()
    codes, scales = torch.zeros(x.shape, dtype=torch.int8), torch.zeros(c)
    address = 0 if mean is None else mean.data_ptr()
    name, back = NAMES[x.dtype], torch.full_like(x, math.nan)
    _core.int8_channels_encode(name, n, c, inner, x.data_ptr(), address, codes.data_ptr(), scales.data_ptr(), threads)
    _core.int8_channels_decode(
        name, n, c, inner, codes.data_ptr(), scales.data_ptr(), address, back.data_ptr(), threads
    )
    return codes, scales, back


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("centred", [False, True])
def test_channels_come_back_within_half_a_scale(centred, dtype):
    torch.manual_seed(3)
    x = torch.randn(3, 5, 7, 9, dtype=dtype) * torch.tensor([1, 1e-3, 1e4, 0, 7]).view(1, 5, 1, 1) + 2
    mean = x.mean((0, 2, 3)) if centred else None
    centre = 0 if mean is None else mean.view(1, 5, 1, 1)
    codes, scales, back = channels_round_trip(x, mean)
    largest = (x - centre).abs().amax((0, 2, 3))
    torch.testing.assert_close(scales.to(dtype), (largest / 127).clamp(min=2.0**-126), rtol=1e-6, atol=0)
    own = scales.to(dtype).view(1, 5, 1, 1)
    expected = torch.round((x - centre) / own)
    assert (codes.to(dtype) - expected).abs().max() <= 1  # a tie may fall either way after a float's rounding
    assert ((back - x).abs() <= own * 0.5001 + x.abs() * 2.0**-22).all()
    for threads in (2, 3):
        again = channels_round_trip(x, mean, threads)
        assert all(torch.equal(a, b) for a, b in zip(again, (codes, scales, back)))


@pytest.mark.parametrize("bad", [math.nan, math.inf, -math.inf])
def test_what_is_not_finite_shows_in_its_channel(bad):
    x = torch.randn(2, 3, 4)
    x[1, 1, 2] = bad
    back = channels_round_trip(x)[2]
    assert back[:, 1].isnan().all() and back[:, [0, 2]].isfinite().all()


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("count", [1, 63, 64, 65, 1000, 70000])
def test_blocks_come_back_within_half_a_scale(count, dtype):
    torch.manual_seed(count)
    x = torch.randn(count, dtype=dtype) * torch.logspace(-6, 6, count, dtype=dtype)
    rows = -(-count // 64)
    padded = torch.nn.functional.pad(x, (0, rows * 64 - count)).view(rows, 64)
    for threads in (1, 2):
        codes, scales = torch.zeros(count, dtype=torch.int8), torch.zeros(rows)
        back = torch.full_like(x, math.nan)
        name = NAMES[dtype]
        _core.int8_blocks_encode(name, count, x.data_ptr(), codes.data_ptr(), scales.data_ptr(), threads)
        _core.int8_blocks_decode(name, count, codes.data_ptr(), scales.data_ptr(), back.data_ptr(), threads)
        torch.testing.assert_close(scales.to(dtype), padded.abs().amax(1) / 127, rtol=1e-6, atol=0)
        allowed = scales.to(dtype).repeat_interleave(64)[:count] * 0.5001
        assert ((back - x).abs() <= allowed).all()

# SPDX-License-Identifier: Apache-2.0
"""The GPU kernels of compressed layers against the formulas in torch's operations: on a GPU, else by Triton's interpreter."""

import pytest
import torch
import torch.nn.functional as F

ON_GPU = torch.cuda.is_available()
pytest.importorskip("triton")

from ebb._compress.arithmetic import formulas, triton_kernels  # noqa: E402
from ebb._compress.arithmetic.shapes import Order  # noqa: E402

LAST = [torch.contiguous_format, torch.channels_last]


def values(*shape: int, order: torch.memory_format = torch.contiguous_format) -> torch.Tensor:
    x = torch.randn(*shape, generator=torch.Generator().manual_seed(3))
    return (x.contiguous(memory_format=order) if x.dim() == 4 else x).to("cuda" if ON_GPU else "cpu")


@pytest.mark.parametrize("order", LAST)
@pytest.mark.parametrize("block", [(2, 2), (4, 4), (3, 2), (7, 1)])
def test_means_of_blocks(order, block):
    x = values(2, 3, 7, 10, order=order)
    size = tuple(-(-n // p) for n, p in zip(x.shape[2:], block))
    found = triton_kernels.box_sums(x, size, block, block, (0, 0), mean=True)
    torch.testing.assert_close(found, formulas.pool(x, block, "average"))
    assert found.is_contiguous(memory_format=order)


@pytest.mark.parametrize("order", LAST)
def test_sums_of_boxes_that_overlap_and_stick_out(order):
    x = values(2, 3, 7, 9, order=order)
    found = triton_kernels.box_sums(x, (8, 11), (2, 3), (1, 1), (-1, -2))
    torch.testing.assert_close(found, F.avg_pool2d(F.pad(x, (2, 2, 1, 1)), (2, 3), 1, divisor_override=1))
    found = triton_kernels.box_sums(x, (2, 3), (2, 2), (2, 2), (1, 2))
    torch.testing.assert_close(found, F.avg_pool2d(x[:, :, 1:5, 2:8], 2, divisor_override=1))


@pytest.mark.parametrize("count", [1, 31, 32, 33, 5000])
@pytest.mark.parametrize("rule", ["relu", "positive", "between"])
def test_bits(count, rule):
    x = values(count)
    x[::7] = 0.0
    x[::11] = torch.nan
    bits, expected = triton_kernels.bits_of(x, rule, -0.5, 0.5), formulas.bits_of(x, rule, -0.5, 0.5)
    assert torch.equal(bits[: expected.numel()], expected)
    assert not bits[expected.numel() :].any()
    gy = values(count)
    gy[::5] = torch.inf
    for slope in (None, 0.1):
        assert torch.equal(triton_kernels.masked(bits, gy, slope), formulas.masked(expected, gy, slope))


@pytest.mark.slow
@pytest.mark.parametrize("order", LAST)
def test_8_bits_with_a_scale_for_each_channel(order):
    x = values(2, 70, 9, 11, order=order)
    x[:, 3] = 0.25
    centre = x.mean((0, 2, 3))
    codes, scale = triton_kernels.int8_channels(x, centre)
    expected_codes, expected_scale = formulas.int8_channels(x, centre)
    assert torch.equal(scale, expected_scale)
    assert torch.equal(codes, expected_codes)
    back = triton_kernels.from_int8_channels(codes, scale, centre, torch.float32)
    torch.testing.assert_close(back, formulas.from_int8_channels(codes, scale, centre, torch.float32))
    assert (back - x).abs().amax((0, 2, 3)).le(0.501 * scale + 1e-6).all()


def test_what_is_not_finite_shows_in_its_channel_alone():
    for wrong in (torch.nan, torch.inf):
        x = values(2, 3, 4, 4)
        x[1, 2, 1, 1] = wrong
        centre = torch.zeros(3, device=x.device)
        back = triton_kernels.from_int8_channels(*triton_kernels.int8_channels(x, centre), centre, torch.float32)
        assert back[:, 2].isnan().all() and back[:, :2].isfinite().all()


@pytest.mark.parametrize("order", LAST)
@pytest.mark.parametrize(
    "kernel, stride, padding, dilation",
    [((3, 3), (2, 2), (1, 1), (1, 1)), ((5, 4), (2, 3), (2, 1), (1, 2)), ((2, 2), (2, 2), (0, 0), (1, 1))],
)
def test_places_in_windows(order, kernel, stride, padding, dilation):
    x = values(2, 3, 17, 19, order=order)
    _, places = F.max_pool2d(x, kernel, stride, padding, dilation, return_indices=True)
    packed = triton_kernels.pack_places(places, 19, kernel, stride, padding, dilation)
    assert packed.numel() == (-(-places.numel() // 2) if kernel[0] * kernel[1] <= 16 else places.numel())
    assert torch.equal(
        triton_kernels.unpack_places(packed, torch.empty_like(places), 19, kernel, stride, padding, dilation), places
    )


def test_order_finds_its_way_back():
    for order in LAST:
        x = values(2, 3, 4, 5, order=order)
        how = Order(x)
        assert how.flat(x).data_ptr() == x.data_ptr()
        assert torch.equal(how.back(how.flat(x)), x) and how.back(how.flat(x)).is_contiguous(memory_format=order)

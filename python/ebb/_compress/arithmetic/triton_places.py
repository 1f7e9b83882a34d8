# SPDX-License-Identifier: Apache-2.0
"""Where max-pooling found the largest, as places in the windows: kernels for GPUs."""

from __future__ import annotations

import torch
import triton
import triton.language as tl
from torch import Tensor

from ebb._compress.arithmetic.triton_launch import MANY, first, on, wide


@triton.jit
def _corner(at, channels, out_h, out_w, step_h, step_w, pad_h, pad_w, LAST: tl.constexpr):
    # Where the window of an output begins in the input.
    if LAST:
        pixel = at // channels
        j = pixel % out_w
        i = pixel // out_w % out_h
    else:
        j = at % out_w
        i = at // out_w % out_h
    return i * step_h - pad_h, j * step_w - pad_w


# Arguments stand in one line each way round: there are many, always the same.
# fmt: off
@triton.jit
def _window_places(
    places, at, there, channels, out_h, out_w, in_w, step_h, step_w, pad_h, pad_w, apart_h, apart_w, kernel_w, LAST: tl.constexpr
):
    top, left = _corner(at, channels, out_h, out_w, step_h, step_w, pad_h, pad_w, LAST)
    place = tl.load(places + at, there, 0).to(tl.int32)
    inside = (place // in_w - top) // apart_h * kernel_w + (place % in_w - left) // apart_w
    return tl.where(there, inside, 0)


@triton.jit
def _pack_places(
    places, packed, total, channels, out_h, out_w, in_w, step_h, step_w, pad_h, pad_w, apart_h, apart_w, kernel_w,
    LAST: tl.constexpr, HALVES: tl.constexpr, MANY: tl.constexpr, WIDE: tl.constexpr,
):
    at = first(MANY, WIDE) + tl.arange(0, MANY)
    if HALVES:
        low = _window_places(
            places, 2 * at, 2 * at < total,
            channels, out_h, out_w, in_w, step_h, step_w, pad_h, pad_w, apart_h, apart_w, kernel_w, LAST,
        )
        high = _window_places(
            places, 2 * at + 1, 2 * at + 1 < total,
            channels, out_h, out_w, in_w, step_h, step_w, pad_h, pad_w, apart_h, apart_w, kernel_w, LAST,
        )
        tl.store(packed + at, (low | (high << 4)).to(tl.uint8), 2 * at < total)
    else:
        inside = _window_places(
            places, at, at < total,
            channels, out_h, out_w, in_w, step_h, step_w, pad_h, pad_w, apart_h, apart_w, kernel_w, LAST,
        )
        tl.store(packed + at, inside.to(tl.uint8), at < total)


@triton.jit
def _unpack_places(
    packed, places, total, channels, out_h, out_w, in_w, step_h, step_w, pad_h, pad_w, apart_h, apart_w, kernel_w,
    LAST: tl.constexpr, HALVES: tl.constexpr, MANY: tl.constexpr, WIDE: tl.constexpr,
):
    at = first(MANY, WIDE) + tl.arange(0, MANY)
    there = at < total
    if HALVES:
        inside = (tl.load(packed + at // 2, there, 0).to(tl.int32) >> (at % 2 * 4).to(tl.int32)) & 15
    else:
        inside = tl.load(packed + at, there, 0).to(tl.int32)
    top, left = _corner(at, channels, out_h, out_w, step_h, step_w, pad_h, pad_w, LAST)
    h = top + inside // kernel_w * apart_h
    w = left + inside % kernel_w * apart_w
    tl.store(places + at, h.to(tl.int64) * in_w + w, there)
# fmt: on


def pack_places(
    places: Tensor,
    in_w: int,
    kernel: tuple[int, int],
    step: tuple[int, int],
    pad: tuple[int, int],
    apart: tuple[int, int],
) -> Tensor:
    """Where max-pooling over two axes found the largest, as places in the windows: 4 bits each where they suffice, else 8."""
    last = places.is_contiguous(memory_format=torch.channels_last) and not places.is_contiguous()
    halves, total = kernel[0] * kernel[1] <= 16, places.numel()
    packed = torch.empty(-(-total // 2) if halves else total, dtype=torch.uint8, device=places.device)
    with on(places):
        _pack_places[(triton.cdiv(packed.numel(), MANY),)](
            places,
            packed,
            total,
            *places.shape[1:],
            in_w,
            *step,
            *pad,
            *apart,
            kernel[1],
            last,
            halves,
            MANY,
            wide(places),
        )
    return packed


def unpack_places(
    packed: Tensor,
    places: Tensor,
    in_w: int,
    kernel: tuple[int, int],
    step: tuple[int, int],
    pad: tuple[int, int],
    apart: tuple[int, int],
) -> Tensor:
    """The other way round, into `places`."""
    last = places.is_contiguous(memory_format=torch.channels_last) and not places.is_contiguous()
    with on(places):
        _unpack_places[(triton.cdiv(places.numel(), MANY),)](
            packed,
            places,
            places.numel(),
            *places.shape[1:],
            in_w,
            *step,
            *pad,
            *apart,
            kernel[1],
            last,
            kernel[0] * kernel[1] <= 16,
            MANY,
            wide(places),
        )
    return places

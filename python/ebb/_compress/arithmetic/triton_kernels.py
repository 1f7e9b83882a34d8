# SPDX-License-Identifier: Apache-2.0
"""Kernels for GPUs where torch's own operations would read and write several times: each value is read and written once.

Every kernel does in float32 what its formula in arithmetic.py does; Triton comes with torch for CUDA.
"""

from __future__ import annotations

import torch
import triton
import triton.language as tl
from torch import Tensor

from ebb._compress.arithmetic import formulas
from ebb._compress.arithmetic.triton_launch import MANY, first, on, wide
from ebb._compress.arithmetic.triton_places import pack_places, unpack_places

__all__ = ["bits_of", "box_sums", "from_int8_channels", "int8_channels", "masked", "pack_places", "unpack_places"]

_WORDS = 64
_ROUNDS = 8  # this many times, where it looks for the largest


# fmt: off
@triton.jit
def _box_sums(
    x, y, total, channels, in_h, in_w, out_h, out_w, step_h, step_w, from_h, from_w,
    BOX_H: tl.constexpr, BOX_W: tl.constexpr, LAST: tl.constexpr, MEAN: tl.constexpr, MANY: tl.constexpr, WIDE: tl.constexpr,
):
    # fmt: on
    at = first(MANY, WIDE) + tl.arange(0, MANY)
    there = at < total
    # Neighbouring threads take neighbours in memory.
    if LAST:
        c = at % channels
        rest = at // channels
        j = rest % out_w
        rest = rest // out_w
        i = rest % out_h
        n = rest // out_h
    else:
        j = at % out_w
        rest = at // out_w
        i = rest % out_h
        rest = rest // out_h
        c = rest % channels
        n = rest // channels
    top = i * step_h + from_h
    left = j * step_w + from_w
    # Both lie in the same order; y is written where `at` says.
    if LAST:
        x_h = in_w * channels
        x_w = channels
        base = n * in_h * in_w * channels + c
    else:
        x_h = in_w
        x_w = 1
        base = (n * channels + c) * in_h * in_w
    found = tl.zeros([MANY], tl.float32)
    for a in range(BOX_H):
        h = top + a
        for b in range(BOX_W):
            w = left + b
            inside = there & (h >= 0) & (h < in_h) & (w >= 0) & (w < in_w)
            found += tl.load(x + base + h * x_h + w * x_w, inside, 0.0).to(tl.float32)
    if MEAN:
        rows = tl.minimum(top + BOX_H, in_h) - tl.maximum(top, 0)
        columns = tl.minimum(left + BOX_W, in_w) - tl.maximum(left, 0)
        found = found / (rows * columns).to(tl.float32)
    tl.store(y + at, found, there)


def box_sums(
    x: Tensor,
    size: tuple[int, int],
    box: tuple[int, int],
    step: tuple[int, int],
    begin: tuple[int, int],
    mean: bool = False,
) -> Tensor:
    """Sums over boxes of x, the first at `begin`; zeros are around x. `mean`: over what of a box lies in x."""
    last = x.is_contiguous(memory_format=torch.channels_last) and not x.is_contiguous()
    x = x if last else x.contiguous()
    y = torch.empty(
        (*x.shape[:2], *size),
        dtype=x.dtype,
        device=x.device,
        memory_format=torch.channels_last if last else torch.contiguous_format,
    )
    total = y.numel()
    if total:
        with on(x):
            _box_sums[(triton.cdiv(total, MANY),)](
                x, y, total, x.shape[1], *x.shape[2:], *size, *step, *begin, *box, last, mean, MANY, wide(x, y)
            )
    return y


@triton.jit
def _bits_of(x, bits, count, low, high, RULE: tl.constexpr, WORDS: tl.constexpr):
    word = tl.program_id(0).to(tl.int64) * WORDS + tl.arange(0, WORDS)
    place = tl.arange(0, 32)
    at = word[:, None] * 32 + place[None, :]
    value = tl.load(x + at, at < count, 0.0)
    if RULE == "relu":
        passes = (value <= 0) == 0  # also what is no number
    elif RULE == "positive":
        passes = value > 0
    else:
        passes = (value > low) & (value < high)
    passes = tl.where(passes & (at < count), 1, 0).to(tl.uint32)
    tl.store(
        bits + word, tl.sum(passes << place[None, :].to(tl.uint32), 1).to(tl.int32, bitcast=True), word * 32 < count
    )


@triton.jit
def _masked(bits, gy, gx, count, slope, SLOPE: tl.constexpr, MANY: tl.constexpr):
    at = tl.program_id(0).to(tl.int64) * MANY + tl.arange(0, MANY)
    word = tl.load(bits + at // 32, at < count, 0)
    passes = (word >> (at % 32).to(tl.int32)) & 1
    value = tl.load(gy + at, at < count, 0.0)
    if SLOPE:
        other = (value.to(tl.float32) * slope).to(value.dtype)
    else:
        other = tl.zeros_like(value)
    tl.store(gx + at, tl.where(passes != 0, value, other), at < count)


def bits_of(x: Tensor, rule: str, low: float, high: float) -> Tensor:
    """Whole 32-bit words, as bytes."""
    count = x.numel()
    bits = torch.empty(-(-count // 32), dtype=torch.int32, device=x.device)
    if count:
        with on(x):
            _bits_of[(triton.cdiv(bits.numel(), _WORDS),)](x, bits, count, low, high, rule, _WORDS)
    return bits.view(torch.uint8)


def masked(bits: Tensor, gy: Tensor, slope: float | None) -> Tensor:
    gx = torch.empty_like(gy)
    if gy.numel():
        with on(gy):
            _masked[(triton.cdiv(gy.numel(), MANY),)](
                bits.view(torch.int32), gy, gx, gy.numel(), slope or 0.0, slope is not None, MANY
            )
    return gx


@triton.jit
def _distance(value, mean):
    away = tl.abs(value - mean)
    return tl.where(away == away, away, float("inf"))  # a largest of numbers forgets what is none


@triton.jit
def _farthest(x, centre, most, total, channels, inner, MANY: tl.constexpr, ROUNDS: tl.constexpr):
    # A program for a piece of one channel: rows of `inner` values, `channels` rows apart.
    c = tl.program_id(0)
    mean = tl.load(centre + c)
    here = tl.zeros([MANY], tl.float32)
    per_channel = total // channels
    for round in range(ROUNDS):
        at = (tl.program_id(1) * ROUNDS + round) * MANY + tl.arange(0, MANY)
        there = at < per_channel
        row = (at // inner * channels + c).to(tl.int64)
        value = tl.load(x + row * inner + at % inner, there, 0.0).to(tl.float32)
        here = tl.maximum(here, tl.where(there, _distance(value, mean), 0.0))
    # The largest is the same whoever comes first.
    tl.atomic_max(most + c, tl.max(here, 0))


@triton.jit
def _farthest_last(x, centre, most, pixels, channels, ROWS: tl.constexpr, COLUMNS: tl.constexpr, ROUNDS: tl.constexpr):
    # The same where the channels of a pixel are neighbours: a program for pixels of some channels.
    c = tl.program_id(1) * COLUMNS + tl.arange(0, COLUMNS)
    mean = tl.load(centre + c, c < channels, 0.0)
    here = tl.zeros([ROWS, COLUMNS], tl.float32)
    for round in range(ROUNDS):
        pixel = (tl.program_id(0) * ROUNDS + round).to(tl.int64) * ROWS + tl.arange(0, ROWS)
        there = (pixel < pixels)[:, None] & (c < channels)[None, :]
        value = tl.load(x + pixel[:, None] * channels + c[None, :], there, 0.0).to(tl.float32)
        here = tl.maximum(here, tl.where(there, _distance(value, mean[None, :]), 0.0))
    tl.atomic_max(most + c, tl.max(here, 0), c < channels)


@triton.jit
def _to_int8(x, centre, scale, codes, total, channels, inner, MANY: tl.constexpr, WIDE: tl.constexpr):
    at = first(MANY, WIDE) + tl.arange(0, MANY)
    there = at < total
    c = at // inner % channels
    away = tl.load(x + at, there, 0.0).to(tl.float32) - tl.load(centre + c, there, 0.0)
    part = away / tl.load(scale + c, there, 1.0)
    # Adding 1.5 * 2^23 rounds to the nearest whole number, ties to even.
    whole = (part + 12582912.0) - 12582912.0
    tl.store(codes + at, whole.to(tl.int8), there)


@triton.jit
def _from_int8(codes, centre, scale, x, total, channels, inner, MANY: tl.constexpr, WIDE: tl.constexpr):
    at = first(MANY, WIDE) + tl.arange(0, MANY)
    there = at < total
    c = at // inner % channels
    code = tl.load(codes + at, there, 0).to(tl.float32)
    tl.store(x + at, code * tl.load(scale + c, there, 1.0) + tl.load(centre + c, there, 0.0), there)


def _rows(x: Tensor) -> int:
    """How many neighbours in memory belong to one channel."""
    channels_last = {4: torch.channels_last, 5: torch.channels_last_3d}.get(x.dim())
    last = channels_last is not None and x.is_contiguous(memory_format=channels_last) and not x.is_contiguous()
    return 1 if last else x[0, 0].numel()


def int8_channels(x: Tensor, centre: Tensor) -> tuple[Tensor, Tensor]:
    channels, inner = x.shape[1], _rows(x)
    most = scale = torch.zeros(channels, dtype=torch.float32, device=x.device)
    codes = torch.empty_like(x, dtype=torch.int8)
    total = x.numel()
    if total:
        with on(x):
            pixels = total // channels
            if inner == 1:
                grid = (triton.cdiv(pixels, 16 * _ROUNDS), triton.cdiv(channels, 64))
                _farthest_last[grid](x, centre, most, pixels, channels, 16, 64, _ROUNDS)
            else:
                grid = (channels, triton.cdiv(pixels, _ROUNDS * MANY))
                _farthest[grid](x, centre, most, total, channels, inner, MANY, _ROUNDS)
            scale = formulas.int8_scale(most)
            _to_int8[(triton.cdiv(total, MANY),)](x, centre, scale, codes, total, channels, inner, MANY, wide(x))
    return codes, scale


def from_int8_channels(codes: Tensor, scale: Tensor, centre: Tensor, dtype: torch.dtype) -> Tensor:
    x = torch.empty_like(codes, dtype=dtype)
    if x.numel():
        with on(x):
            _from_int8[(triton.cdiv(x.numel(), MANY),)](
                codes, centre, scale, x, x.numel(), codes.shape[1], _rows(codes), MANY, wide(x)
            )
    return x

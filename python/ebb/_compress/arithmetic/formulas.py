# SPDX-License-Identifier: Apache-2.0
"""The arithmetic of compressed copies in torch's own operations: for every device and type."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import Tensor

from ebb._base.cache import Section, cache
from ebb._compress.arithmetic.shapes import Convolution
from ebb._loop.codec import formulas as _codec_formulas

BoxSums = Callable[..., Tensor]


def pool(x: Tensor, block: Sequence[int], kind: str) -> Tensor:
    dims = len(block)
    average = (F.avg_pool1d, F.avg_pool2d, F.avg_pool3d)[dims - 1]
    largest = (F.max_pool1d, F.max_pool2d, F.max_pool3d)[dims - 1]
    function: Callable[..., Tensor] = average if kind == "average" else largest
    return function(x, block, block, ceil_mode=True)


def pooled_weight_gradient(
    pooled: Tensor,
    gy: Tensor,
    size: Sequence[int],
    taps: Sequence[int],
    block: Sequence[int],
    conv: Convolution,
    box_sums: BoxSums | None = None,
) -> Tensor:
    """The input is never spread: each tap's outputs are summed over the block they read from, which is a convolution of box sums
    of `gy` with the pooled input, with stride `block` and its taps in reverse.
    """
    dims = len(size)
    if dims == 1:  # avg_pool1d has no divisor_override
        flat = Convolution((1, *conv.stride), (0, *conv.before), (0, *conv.after), (1, *conv.dilation), conv.groups)
        return pooled_weight_gradient(
            pooled.unsqueeze(2), gy.unsqueeze(2), (1, *size), (1, *taps), (1, *block), flat, box_sums
        ).squeeze(2)
    total: Tensor | None = None
    for region, ways in _regions(tuple(size), tuple(taps), tuple(block), conv):
        found = _region_gradient(pooled, gy, region, ways, taps, conv, box_sums)
        if found is not None:
            total = found if total is None else total + found
    if total is None:
        return gy.new_zeros(gy.shape[1], pooled.shape[1] // conv.groups, *taps)
    return total


@dataclass(frozen=True)
class _Part:
    """`count` blocks of `width`, from `start` on; they are blocks `first`, `first` + 1, ... of the pooled copy."""

    start: int
    width: int
    count: int
    first: int


def _parts(size: int, block: int) -> list[_Part]:
    whole, rest = divmod(size, block)
    parts = [_Part(0, block, whole, 0)]
    return parts + [_Part(whole * block, rest, 1, whole)] if rest else parts


@dataclass(frozen=True)
class _Axis:
    """The sums of `box` outputs, from the one at `begin` on, read with this stride, dilation and number of taps; tap u of the
    convolution is tap `order[u]` here. `apart`: zeros are put between the outputs first, that many places apart."""

    begin: int
    box: int
    stride: int
    dilation: int
    taps: int
    order: tuple[int, ...]
    count: int
    apart: int

    @property
    def lone(self) -> bool:
        """Only every box-th sum is read: the others need not be there."""
        return self.taps == 1

    @property
    def length(self) -> int:
        """Of the sums; there are box - 1 more outputs."""
        return (self.count - 1) * self.stride + (self.taps - 1) * self.dilation + 1


def _axis(part: _Part, taps: int, stride: int, before: int, dilation: int) -> _Axis:
    if stride > 1 and part.width % stride == 0 and part.start % stride == 0:
        # Each tap reads width / stride neighbouring outputs per block; taps that read the same ones are one here.
        shifts = [-((dilation * u - before) // stride) for u in range(taps)]
        least = min(shifts)
        box = part.width // stride
        return _Axis(
            part.start // stride + least,
            box,
            box,
            1,
            max(shifts) - least + 1,
            tuple(shift - least for shift in shifts),
            part.count,
            1,
        )
    begin = part.start + before - dilation * (taps - 1)
    return _Axis(begin, part.width, part.width, dilation, taps, tuple(reversed(range(taps))), part.count, stride)


def _cut(gy: Tensor, axis: int, how: _Axis) -> Tensor | None:
    """The outputs that `how` reads, zeros where there are none; None if there are none at all."""
    need = how.length + how.box - 1
    if how.apart == 1:
        begin, length = how.begin, need
    else:
        begin = -(-how.begin // how.apart)
        length = (how.begin + need - 1) // how.apart - begin + 1
    size = gy.shape[axis]
    low, high = max(begin, 0), min(begin + length, size)
    if low >= high:
        return None
    gy = gy.narrow(axis, low, high - low)
    lead = low - how.begin
    if how.apart > 1:
        lead = low * how.apart - how.begin
        shape = list(gy.shape)
        shape[axis] = (shape[axis] - 1) * how.apart + 1
        wide = gy.new_zeros(shape)
        place = [slice(None)] * gy.dim()
        place[axis] = slice(None, None, how.apart)
        wide[tuple(place)] = gy
        gy = wide
    padding = [0, 0] * (gy.dim() - 1 - axis) + [lead, need - lead - gy.shape[axis]]
    return F.pad(gy, padding) if any(padding) else gy


_Region = tuple[tuple[_Part, ...], list[_Axis]]
_known_regions: Section[list[_Region]] = cache.section()


def _regions(size: tuple[int, ...], taps: tuple[int, ...], block: tuple[int, ...], conv: Convolution) -> list[_Region]:
    """The parts of the input with blocks of one shape, and how the outputs that read them are summed."""
    return _known_regions.get_or((size, taps, block, conv), lambda: _new_regions(size, taps, block, conv))


def _new_regions(
    size: tuple[int, ...], taps: tuple[int, ...], block: tuple[int, ...], conv: Convolution
) -> list[_Region]:
    parts = [_parts(n, min(p, n)) for n, p in zip(size, block)]
    return [
        (region, [_axis(*each) for each in zip(region, taps, conv.stride, conv.before, conv.dilation)])
        for region in itertools.product(*parts)
    ]


def _region_gradient(
    pooled: Tensor,
    gy: Tensor,
    region: tuple[_Part, ...],
    ways: list[_Axis],
    taps: Sequence[int],
    conv: Convolution,
    box_sums: BoxSums | None,
) -> Tensor | None:
    dims = len(region)
    for axis, part in enumerate(region):
        if part.count != pooled.shape[2 + axis]:
            pooled = pooled.narrow(2 + axis, part.first, part.count)
    sums = _box_sums(gy, ways, box_sums)
    if sums is None:
        return None
    groups, ins, outs = conv.groups, pooled.shape[1], gy.shape[1]
    shape = (ins, outs // groups, *[way.taps for way in ways])
    found = torch.ops.aten.convolution_backward(
        pooled,
        sums,
        gy.new_empty(1).expand(shape),
        None,
        [1 if way.lone else way.stride for way in ways],
        [0] * dims,
        [way.dilation for way in ways],
        False,
        [0] * dims,
        groups,
        (False, True, False),
    )[1]
    if groups == 1:
        found = found.transpose(0, 1)
    else:
        found = (
            found.reshape(groups, ins // groups, outs // groups, *shape[2:])
            .transpose(1, 2)
            .reshape(outs, ins // groups, *shape[2:])
        )
    for axis, (way, count) in enumerate(zip(ways, taps), 2):
        if way.taps > 1 and way.order == tuple(reversed(range(count))):
            found = found.flip(axis)
        elif way.order != tuple(range(count)):
            found = torch.cat([found.narrow(axis, place, 1) for place in way.order], axis)
    return found.contiguous()


def _box_sums(gy: Tensor, ways: list[_Axis], kernel: BoxSums | None) -> Tensor | None:
    """None: no output reads this part of the input."""
    box, step = [way.box for way in ways], [way.box if way.lone else 1 for way in ways]
    if len(ways) == 2 and all(way.apart == 1 for way in ways) and kernel is not None:
        begin, size = [way.begin for way in ways], [way.count if way.lone else way.length for way in ways]
        if math.prod(box) == 1 and begin == [0, 0] and size == list(gy.shape[2:]):
            return gy
        return kernel(gy, tuple(size), tuple(box), tuple(step), tuple(begin))
    sums = gy
    for axis, way in enumerate(ways):
        part = _cut(sums, 2 + axis, way)
        if part is None:
            return None
        sums = part
    if math.prod(box) == 1:
        return sums
    return (F.avg_pool2d if len(ways) == 2 else F.avg_pool3d)(sums, box, step, divisor_override=1)


def bits_of(x: Tensor, rule: str, low: float, high: float) -> Tensor:
    if rule == "relu":
        return pack_bits(torch.le(x, 0).logical_not_())
    if rule == "positive":
        return pack_bits(torch.gt(x, 0))
    return pack_bits(torch.gt(x, low).logical_and_(torch.lt(x, high)))


def masked(bits: Tensor, gy: Tensor, slope: float | None) -> Tensor:
    passes = unpack_bits(bits, gy.numel())
    return torch.where(passes, gy, gy.new_zeros(()) if slope is None else slope * gy)


def pack_small(values: Tensor, most: int) -> Tensor:
    flat = values.flatten().to(torch.uint8)
    if most > 15:
        return flat
    if flat.numel() % 2:
        flat = F.pad(flat, (0, 1))
    return flat[0::2] | (flat[1::2] << 4)


def unpack_small(packed: Tensor, most: int, count: int) -> Tensor:
    if most > 15:
        return packed
    return torch.stack((packed & 15, packed >> 4), 1).flatten()[:count]


def int8_channels(x: Tensor, centre: Tensor) -> tuple[Tensor, Tensor]:
    shape = (1, -1, *[1] * (x.dim() - 2))
    away = x.float() - centre.view(shape)
    scale = int8_scale(away.abs().amax([0, *range(2, x.dim())]))
    return away.div_(scale.view(shape)).round_().to(torch.int8), scale


def from_int8_channels(codes: Tensor, scale: Tensor, centre: Tensor, dtype: torch.dtype) -> Tensor:
    shape = (1, -1, *[1] * (codes.dim() - 2))
    return (codes * scale.view(shape)).add_(centre.view(shape)).to(dtype)


def int8_blocks(x: Tensor) -> tuple[Tensor, Tensor]:
    codes, scales, largest = _codec_formulas.int8_blocks(x)
    return codes, _or_nan(scales, largest)


from_int8_blocks = _codec_formulas.from_int8_blocks
pack_bits, unpack_bits = _codec_formulas.pack_bits, _codec_formulas.unpack_bits


def int8_scale(largest: Tensor) -> Tensor:
    return _or_nan(_codec_formulas.int8_scale(largest), largest)


def _or_nan(scale: Tensor, largest: Tensor) -> Tensor:
    """What is not finite makes its values NaN when they are decoded, as int8_rows.h has it."""
    return torch.where(largest.isfinite(), scale, torch.nan)

# SPDX-License-Identifier: Apache-2.0
"""The codecs of the library in torch's own operations, for devices and dtypes that it has none for: the same bytes.

Each `encode` takes a flat tensor and gives its bytes, and whether the codec takes its values: a tensor, so that nothing
waits for the device; None where it takes all.
"""

from __future__ import annotations

from functools import lru_cache

import torch
from torch import Tensor
from torch.nn.functional import pad

_BLOCK = 64
_LEAST_SCALE = float.fromhex("0x1p-126")
_LARGEST_SCALE = float.fromhex("0x1.020406p121")

Encoded = tuple[Tensor, "Tensor | None"]


def encode_half(flat: Tensor, kind: torch.dtype) -> Encoded:
    return flat.to(torch.float32).to(kind).view(torch.uint8), None


def decode_half(encoded: Tensor, kind: torch.dtype, dtype: torch.dtype) -> Tensor:
    return encoded.view(kind).to(torch.float32).to(dtype)


def int8_scale(largest: Tensor) -> Tensor:
    """As int8_math.h has it. Divided by a tensor: torch multiplies by 1/127 where it is a number, which rounds otherwise."""
    return (largest / torch.full_like(largest, 127.0)).clamp(_LEAST_SCALE, _LARGEST_SCALE)


def int8_blocks(flat: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """(codes, scales, largest sizes): a scale for every 64."""
    values = flat.to(torch.float32)
    rows = pad(values, (0, -values.numel() % _BLOCK)).view(-(-values.numel() // _BLOCK), _BLOCK)
    largest = rows.abs().amax(1)
    scales = int8_scale(largest)
    return torch.round(rows / scales[:, None]).to(torch.int8).view(-1)[: values.numel()], scales, largest


def from_int8_blocks(codes: Tensor, scales: Tensor, dtype: torch.dtype) -> Tensor:
    count = codes.numel()
    rows = pad(codes.to(torch.float32), (0, -count % _BLOCK)).view(scales.numel(), _BLOCK)
    return (rows * scales[:, None]).view(-1)[:count].to(dtype)


def encode_int8(flat: Tensor) -> Encoded:
    """The scales, then a byte for each."""
    codes, scales, largest = int8_blocks(flat)
    return torch.cat([scales.view(torch.uint8), codes.view(torch.uint8)]), torch.isfinite(largest).all()


def decode_int8(encoded: Tensor, dtype: torch.dtype, count: int) -> Tensor:
    blocks = -(-count // _BLOCK)
    # The codes need not begin where a float may; the scales do.
    return from_int8_blocks(encoded[4 * blocks :].view(torch.int8), encoded[: 4 * blocks].view(torch.float32), dtype)


def pack_bits(bits: Tensor) -> Tensor:
    """Of a flat tensor of bools, the first in the lowest bit."""
    eights = pad(bits.view(torch.uint8), (0, -bits.numel() % 8)).view(-(-bits.numel() // 8), 8)
    return (eights * _powers(bits.device)).sum(1, dtype=torch.uint8)


def unpack_bits(packed: Tensor, count: int) -> Tensor:
    return (packed[:, None] & _powers(packed.device)).ne(0).view(-1)[:count]


@lru_cache
def _powers(device: torch.device) -> Tensor:
    return torch.tensor([1, 2, 4, 8, 16, 32, 64, 128], dtype=torch.uint8, device=device)


def encode_bits(flat: Tensor) -> Encoded:
    """One bit for each 0 or 1. A negative zero is neither."""
    ones = flat == 1
    taken = (ones | ((flat == 0) & ~torch.signbit(flat))).all()
    return pack_bits(ones), taken


def decode_bits(encoded: Tensor, dtype: torch.dtype, count: int) -> Tensor:
    return unpack_bits(encoded, count).to(dtype)


def encode_pool(flat: Tensor, block: int) -> Encoded:
    """The mean of each block of neighbours, added up from the first to the last; the last block has its true count."""
    values = flat.to(torch.float32) if flat.element_size() == 2 else flat
    whole = values.numel() // block * block
    means = _means(values[:whole].view(-1, block))
    if whole < values.numel():
        means = torch.cat([means, _means(values[whole:].view(1, -1))])
    return means.to(flat.dtype).view(torch.uint8), None


def _means(rows: Tensor) -> Tensor:
    total = rows[:, 0].clone()
    for column in range(1, rows.shape[1]):
        total += rows[:, column]
    # By a tensor: a number would become a product with its inverse on some devices.
    return total / torch.full_like(total, rows.shape[1])


def decode_pool(encoded: Tensor, block: int, dtype: torch.dtype, count: int) -> Tensor:
    return encoded.view(dtype).repeat_interleave(block)[:count]

# SPDX-License-Identifier: Apache-2.0
"""The arithmetic of compressed copies, each by what is fastest where its values are: C++ on a CPU, Triton on a GPU, and torch's
own operations for everything else. All have one meaning, given here."""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from typing import Any

import torch
from torch import Tensor

from ebb._compress.arithmetic import formulas, native
from ebb._compress.arithmetic.shapes import Convolution

pack_bits, unpack_bits = formulas.pack_bits, formulas.unpack_bits
pack_small, unpack_small = formulas.pack_small, formulas.unpack_small


def pool(x: Tensor, block: Sequence[int], kind: str) -> Tensor:
    """The mean, or the largest, of each block; blocks at the end of an axis have their true counts."""
    block = tuple(min(p, n) for p, n in zip(block, x.shape[2:]))
    if _too_narrow(x):
        return pool(x.float(), block, kind).to(x.dtype)
    if len(block) == 2 and kind == "average" and (kernels := _kernels(x)) is not None:
        return kernels.box_sums(
            x, tuple(-(-n // p) for p, n in zip(block, x.shape[2:])), block, block, (0, 0), mean=True
        )
    return _by(x).pool(x, block, kind)


def pooled_weight_gradient(
    pooled: Tensor, gy: Tensor, size: Sequence[int], taps: Sequence[int], block: Sequence[int], conv: Convolution
) -> Tensor:
    """The weight gradient of a convolution whose input, of spatial `size`, is `pooled` with every block spread over its place."""
    if _too_narrow(gy):
        return pooled_weight_gradient(pooled.float(), gy.float(), size, taps, block, conv).to(gy.dtype)
    if (kernels := _kernels(gy)) is not None:
        return formulas.pooled_weight_gradient(pooled, gy, size, taps, block, conv, kernels.box_sums)
    return _by(gy).pooled_weight_gradient(pooled, gy, size, taps, block, conv)


def sign_bits(x: Tensor) -> Tensor:
    """A bit for each element of a flat tensor, 1 where a ReLU lets the gradient pass, lowest bit first."""
    return _bits(x, "relu", 0.0, 0.0)


def positive_bits(x: Tensor) -> Tensor:
    """1 where LeakyReLU lets the gradient pass: unlike a ReLU's, not where x is no number."""
    return _bits(x, "positive", 0.0, 0.0)


def range_bits(x: Tensor, low: float, high: float) -> Tensor:
    """1 where Hardtanh lets the gradient pass."""
    return _bits(x, "between", low, high)


def _bits(x: Tensor, rule: str, low: float, high: float) -> Tensor:
    return (_kernels(x) or _by(x)).bits_of(x, rule, low, high)


def masked(bits: Tensor, gy: Tensor, slope: float | None = None) -> Tensor:
    """A flat gradient where the bit is 1; elsewhere slope times it, or 0."""
    return (_kernels(gy) or _by(gy)).masked(bits, gy, slope)


def int8_channels(x: Tensor, centre: Tensor) -> tuple[Tensor, Tensor]:
    """(codes, scales): x as that many 127ths of its channel's largest distance from `centre`."""
    dense = x.is_contiguous() or (x.dim() == 4 and x.is_contiguous(memory_format=torch.channels_last))
    return ((_kernels(x) if dense else None) or _by(x)).int8_channels(x, centre)


def from_int8_channels(codes: Tensor, scale: Tensor, centre: Tensor, dtype: torch.dtype) -> Tensor:
    like = codes.new_empty(0, dtype=dtype)
    dense = codes.is_contiguous() or (codes.dim() == 4 and codes.is_contiguous(memory_format=torch.channels_last))
    return ((_kernels(like) if dense else None) or _by(like, codes.numel())).from_int8_channels(
        codes, scale, centre, dtype
    )


def int8_blocks(x: Tensor) -> tuple[Tensor, Tensor]:
    """(codes, scales) of a flat tensor: 127ths of the largest of each block of 64."""
    return _by(x).int8_blocks(x)


def from_int8_blocks(codes: Tensor, scale: Tensor, dtype: torch.dtype) -> Tensor:
    return _by(codes.new_empty(0, dtype=dtype), codes.numel()).from_int8_blocks(codes, scale, dtype)


def _too_narrow(x: Tensor) -> bool:
    """On a CPU torch has no means of blocks in three dimensions for these types."""
    return x.dim() == 5 and x.device.type == "cpu" and x.dtype in (torch.bfloat16, torch.float16)


def _by(x: Tensor, count: int | None = None) -> Any:
    return native if native.takes(x, x.numel() if count is None else count) else formulas


@lru_cache(maxsize=1)
def _triton() -> Any:
    try:
        from ebb._compress.arithmetic import triton_kernels
    except ImportError:
        return None
    return triton_kernels


def gpu_kernels(x: Tensor) -> Any:
    return _triton() if x.is_cuda else None


def _kernels(x: Tensor) -> Any:
    return gpu_kernels(x) if x.dtype in (torch.float32, torch.float16, torch.bfloat16) else None

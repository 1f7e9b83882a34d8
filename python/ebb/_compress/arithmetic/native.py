# SPDX-License-Identifier: Apache-2.0
"""The arithmetic of compressed copies by the C++ room `codec`: float32 and float64 on a CPU."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from ebb import _core
from ebb._compress.arithmetic import formulas
from ebb._compress.arithmetic.shapes import Convolution, Order

_NAMES = {torch.float32: "float32", torch.float64: "float64"}


def takes(x: Tensor, count: int) -> bool:
    return x.device.type == "cpu" and x.dtype in _NAMES and count > 0


def pool(x: Tensor, block: Sequence[int], kind: str) -> Tensor:
    if not x.is_contiguous():
        return formulas.pool(x, block, kind)
    size = x.shape[2:]
    pooled = x.new_empty(*x.shape[:2], *[-(-n // p) for n, p in zip(size, block)])
    _core.pool_blocks(
        _NAMES[x.dtype],
        x.shape[0] * x.shape[1],
        list(size),
        list(block),
        kind,
        x.data_ptr(),
        pooled.data_ptr(),
        torch.get_num_threads(),
    )
    return pooled


def pooled_weight_gradient(
    pooled: Tensor, gy: Tensor, size: Sequence[int], taps: Sequence[int], block: Sequence[int], conv: Convolution
) -> Tensor:
    pooled, gy = pooled.contiguous(), gy.contiguous()
    gw = gy.new_empty(gy.shape[1], pooled.shape[1] // conv.groups, *taps)
    axes = list(zip(size, gy.shape[2:], taps, conv.stride, conv.before, conv.dilation, block))
    _core.pooled_weight_gradient(
        _NAMES[gy.dtype],
        gy.shape[0],
        pooled.shape[1],
        gy.shape[1],
        conv.groups,
        axes,
        pooled.data_ptr(),
        gy.data_ptr(),
        gw.data_ptr(),
        torch.get_num_threads(),
    )
    return gw


def bits_of(x: Tensor, rule: str, low: float, high: float) -> Tensor:
    bits = torch.empty(-(-x.numel() // 8), dtype=torch.uint8, device="cpu")
    _core.sign_bits(_NAMES[x.dtype], x.numel(), x.data_ptr(), bits.data_ptr(), rule, low, high, torch.get_num_threads())
    return bits


def masked(bits: Tensor, gy: Tensor, slope: float | None) -> Tensor:
    gx = torch.empty_like(gy)
    _core.masked(
        _NAMES[gy.dtype], gy.numel(), bits.data_ptr(), gy.data_ptr(), gx.data_ptr(), slope, torch.get_num_threads()
    )
    return gx


def int8_channels(x: Tensor, centre: Tensor) -> tuple[Tensor, Tensor]:
    order = Order(x)
    codes, flat = order.empty(x, torch.int8), order.flat(x)
    scales = torch.empty(x.shape[1], dtype=torch.float32, device="cpu")
    centre = centre.to(x.dtype).contiguous()
    _core.int8_channels_encode(
        _NAMES[x.dtype],
        *order.channels(),
        flat.data_ptr(),
        centre.data_ptr(),
        codes.data_ptr(),
        scales.data_ptr(),
        torch.get_num_threads(),
    )
    return codes, scales


def from_int8_channels(codes: Tensor, scales: Tensor, centre: Tensor, dtype: torch.dtype) -> Tensor:
    order = Order(codes)
    x = order.empty(codes, dtype)
    centre = centre.to(dtype).contiguous()
    _core.int8_channels_decode(
        _NAMES[dtype],
        *order.channels(),
        codes.data_ptr(),
        scales.data_ptr(),
        centre.data_ptr(),
        x.data_ptr(),
        torch.get_num_threads(),
    )
    return x


def int8_blocks(x: Tensor) -> tuple[Tensor, Tensor]:
    codes = torch.empty(x.numel(), dtype=torch.int8, device="cpu")
    scales = torch.empty(-(-x.numel() // 64), dtype=torch.float32, device="cpu")
    _core.int8_blocks_encode(
        _NAMES[x.dtype], x.numel(), x.data_ptr(), codes.data_ptr(), scales.data_ptr(), torch.get_num_threads()
    )
    return codes, scales


def from_int8_blocks(codes: Tensor, scales: Tensor, dtype: torch.dtype) -> Tensor:
    x = torch.empty(codes.numel(), dtype=dtype, device="cpu")
    _core.int8_blocks_decode(
        _NAMES[dtype], codes.numel(), codes.data_ptr(), scales.data_ptr(), x.data_ptr(), torch.get_num_threads()
    )
    return x

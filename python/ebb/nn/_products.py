# SPDX-License-Identifier: Apache-2.0
"""Large products of a recurrent layer's matrices on a GPU. Those of 16 bits are torch's. Those of float32 are as precise as recurrent
layers shall be, which torch's own setting for matrices may differ from: cuBLAS is called with torch's handle."""

from __future__ import annotations

import functools
from collections.abc import Callable

import torch
from torch import Tensor

from ebb import _core


class Products:
    """Of one dtype of 16 bits."""

    def __init__(self, dtype: torch.dtype, device: torch.device):
        self._add_up = adding(dtype, device)

    def fill(self, out: Tensor, a: Tensor, b: Tensor) -> None:
        """out = a b"""
        torch.mm(a, b, out=out)

    def add(self, out: Tensor, a: Tensor, b: Tensor) -> None:
        """out += a b"""
        out.addmm_(a, b)

    def biased(self, bias: Tensor | None, a: Tensor, b: Tensor, out: Tensor | None = None) -> Tensor:
        """a b, and the bias in every row."""
        return torch.mm(a, b, out=out) if bias is None else torch.addmm(bias, a, b, out=out)

    def add_up(self, total: Tensor, a: Tensor, b: Tensor) -> None:
        """total += a b; the total is float32."""
        self._add_up(total, a, b)

    def add_rows(self, total: Tensor, ones: Tensor, rows: Tensor) -> None:
        """total += ones rows, one for each row: their sum, which nothing rounds on the way."""
        self._add_up(total, ones, rows)


class FloatProducts(Products):
    """Of float32, rounded to TF32 before they are multiplied or not."""

    def __init__(self, tf32: bool):
        self._tf32 = tf32

    def fill(self, out: Tensor, a: Tensor, b: Tensor) -> None:
        _multiply(out, a, b, False, self._tf32)

    def add(self, out: Tensor, a: Tensor, b: Tensor) -> None:
        _multiply(out, a, b, True, self._tf32)

    def biased(self, bias: Tensor | None, a: Tensor, b: Tensor, out: Tensor | None = None) -> Tensor:
        if out is None:
            out = a.new_empty(a.shape[0], b.shape[1])
        if bias is not None:
            out.copy_(bias)
        _multiply(out, a, b, bias is not None, self._tf32)
        return out

    def add_up(self, total: Tensor, a: Tensor, b: Tensor) -> None:
        _multiply(total, a, b, True, self._tf32)

    def add_rows(self, total: Tensor, ones: Tensor, rows: Tensor) -> None:
        _multiply(total, ones, rows, True, False)


# Of torch's cuBLAS; 0: it has none.
_CUBLAS = int((torch.version.cuda or "0").partition(".")[0])


def why_not(dtype: torch.dtype) -> str | None:
    """What keeps products of the dtype from being made; None: nothing does."""
    if dtype != torch.float32 or _core.cublas_is_loaded(_CUBLAS):
        return None
    return "the cuBLAS of PyTorch is none that can be called"


def products_of(number: str, device: torch.device) -> Products:
    """By the name of a GatedShape's numbers."""
    if number in ("tf32", "float32"):
        return FloatProducts(number == "tf32")
    return Products(getattr(torch, number), device)


def _multiply(out: Tensor, a: Tensor, b: Tensor, adds: bool, tf32: bool) -> None:
    a, a_stride, a_transposed = _lying(a)
    b, b_stride, b_transposed = _lying(b)
    _core.float_product(
        _CUBLAS,
        torch.cuda.current_blas_handle(),
        out.data_ptr(),
        out.stride(0),
        out.shape[0],
        out.shape[1],
        a.shape[1],
        a.data_ptr(),
        a_stride,
        a_transposed,
        b.data_ptr(),
        b_stride,
        b_transposed,
        adds,
        tf32,
    )


def _lying(matrix: Tensor) -> tuple[Tensor, int, bool]:
    """As cuBLAS reads it, and the numbers from row to row, or, where it lies transposed, from column to column."""
    (rows, columns), (down, across) = matrix.shape, matrix.stride()
    if (across == 1 or columns == 1) and (down >= columns or rows == 1):
        return matrix, max(down, columns), False
    if (down == 1 or rows == 1) and (across >= rows or columns == 1):
        return matrix, max(across, rows), True
    return matrix.contiguous(), columns, False


Adds = Callable[[Tensor, Tensor, Tensor], object]


@functools.cache
def adding(dtype: torch.dtype, device: torch.device) -> Adds:
    """The best way to add the product of two matrices of a 16-bit dtype to a sum in float32."""
    small, total = torch.zeros(16, 16, dtype=dtype, device=device), torch.zeros(16, 16, device=device)
    for way in (_add_at_once, _add_wide):
        try:
            way(total, small, small)
        except (RuntimeError, TypeError) as error:  # before PyTorch 2.8, or no GPU
            if isinstance(error, torch.cuda.OutOfMemoryError) or "CUDA error" in str(error):
                raise  # which says nothing about the way
            continue
        return way
    return _add_narrow


def _add_at_once(total: Tensor, a: Tensor, b: Tensor) -> object:
    return torch.addmm(total, a, b, out_dtype=torch.float32, out=total)


def _add_wide(total: Tensor, a: Tensor, b: Tensor) -> object:
    return total.add_(torch.mm(a, b, out_dtype=torch.float32))


def _add_narrow(total: Tensor, a: Tensor, b: Tensor) -> object:
    return total.add_(a @ b)

# SPDX-License-Identifier: Apache-2.0
"""Max-pooling that keeps which element of each window was the largest, in 4 or 8 bits, and not its input."""

from __future__ import annotations

import math
from functools import partial
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from ebb._compress.arithmetic.dispatch import gpu_kernels, pack_small, unpack_small
from ebb._compress.arithmetic.shapes import Order
from ebb._compress.compiled import NotScripted, never_compiled
from ebb._compress.derivatives import along
from ebb._compress.settings import at_work


class _Windows:
    """Where the windows of a pooling lie in its input."""

    def __init__(self, layer: Any, size: torch.Size, places: Tensor):
        dims = len(size)

        def each(value: Any) -> tuple[int, ...]:
            return (value,) * dims if isinstance(value, int) else tuple(value)

        self.kernel, self.dilation, self.padding = each(layer.kernel_size), each(layer.dilation), each(layer.padding)
        self.stride = each(layer.stride)
        self._size, self._out, self._device = size, places.shape[2:], places.device
        self._order, self._count = Order(places), places.numel()
        self._most = math.prod(self.kernel) - 1
        self._part = max(1, -(-places.shape[0] // 8))

    def pack(self, places: Tensor) -> Tensor:
        """Places of the largest in the input become small numbers, their places in the windows."""
        if (kernels := gpu_kernels(places)) is not None and len(self._size) == 2:
            return kernels.pack_places(places, *self._two_axes())
        # In parts: the places on the way are 8 bytes each, several times over.
        inside = self._order.empty(places, torch.uint8)
        for small, large in zip(inside.split(self._part), places.split(self._part)):
            small.copy_(self._inside(large))
        return pack_small(self._order.flat(inside), self._most)

    def unpack(self, packed: Tensor) -> Tensor:
        """The other way round."""
        if (kernels := gpu_kernels(packed)) is not None and len(self._size) == 2:
            return kernels.unpack_places(packed, self._order.empty(packed, torch.int64), *self._two_axes())
        inside = self._order.back(unpack_small(packed, self._most, self._count))
        places = self._order.empty(inside, torch.int64)
        for large, small in zip(places.split(self._part), inside.split(self._part)):
            large.copy_(self._outside(small))
        return places

    def _two_axes(self) -> tuple[Any, ...]:
        return self._size[1], self.kernel, self.stride, self.padding, self.dilation

    def _inside(self, flat: Tensor) -> Tensor:
        found = torch.zeros_like(flat)
        for axis in reversed(range(len(self._size))):
            place = flat % self._size[axis]
            flat = flat // self._size[axis]
            found += (place - self._start(axis)) // self.dilation[axis] * math.prod(self.kernel[axis + 1 :])
        return found

    def _outside(self, inside: Tensor) -> Tensor:
        inside = inside.long()
        found = torch.zeros_like(inside)
        for axis in reversed(range(len(self._size))):
            place = inside % self.kernel[axis] * self.dilation[axis] + self._start(axis)
            inside = inside // self.kernel[axis]
            found += place * math.prod(self._size[axis + 1 :])
        return found

    def _start(self, axis: int) -> Tensor:
        start = torch.arange(self._out[axis], device=self._device) * self.stride[axis] - self.padding[axis]
        return start.view(-1, *[1] * (len(self._out) - 1 - axis))


class _MaxPool(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor, layer: Any) -> Tensor:
        dims = x.dim() - 2
        function = (F.max_pool1d, F.max_pool2d, F.max_pool3d)[dims - 1]
        out, places = function(x, layer.kernel_size, layer.stride, layer.padding, layer.dilation, layer.ceil_mode, True)
        ctx.windows = _Windows(layer, x.shape[2:], places)
        ctx.like, ctx.ceil = Order(x), layer.ceil_mode
        ctx.save_for_backward(ctx.windows.pack(places))
        return out

    @staticmethod
    def backward(ctx: Any, gy: Tensor) -> tuple[Tensor | None, None]:
        (packed,) = ctx.saved_tensors
        spread = partial(_spread, ctx.windows, ctx.like, ctx.ceil)
        return along(gy, packed, spread, partial(_gathered, ctx.windows)), None


def _spread(windows: _Windows, order: Order, ceil: bool, packed: Tensor, gy: Tensor) -> Tensor:
    """Each number of the gradient at the place of its window's largest."""
    places = windows.unpack(packed)
    like = order.empty(gy)  # torch asks for the input, and looks at its size and order alone
    options = [windows.kernel, windows.stride, windows.padding, windows.dilation]
    if len(windows.kernel) == 3:
        return torch.ops.aten.max_pool3d_with_indices_backward(gy, like, *options, ceil, places)
    if len(windows.kernel) == 2:
        return torch.ops.aten.max_pool2d_with_indices_backward(gy, like, *options, ceil, places)
    gy, like, places = (one.unsqueeze(2) for one in (gy, like, places))
    options = [(first, *each) for first, each in zip((1, 1, 0, 1), options)]
    return torch.ops.aten.max_pool2d_with_indices_backward(gy, like, *options, ceil, places).squeeze(2)


def _gathered(windows: _Windows, packed: Tensor, gx: Tensor) -> Tensor:
    """What lies at those places."""
    places = windows.unpack(packed)
    return gx.flatten(2).gather(2, places.flatten(2)).view(places.shape)


def small_windows(layer: Any) -> bool:
    """Whether the place of the largest is all that it must keep, and a byte has room for that."""
    kernel = layer.kernel_size
    dims = {nn.MaxPool1d: 1, nn.MaxPool2d: 2}.get(getattr(layer, "stock", type(layer)), 3)
    return not layer.return_indices and (kernel**dims if isinstance(kernel, int) else math.prod(kernel)) <= 256


class _CompressedMaxPool(NotScripted):
    """A mixin in front of nn.MaxPoolNd; `dims` are spatial."""

    dims = 0

    @never_compiled
    def forward(self: Any, x: Tensor) -> Tensor:
        if x.dim() != 2 + self.dims or not small_windows(self) or not at_work(x):
            return super().forward(x)  # type: ignore[misc]
        return _MaxPool.apply(x, self)


class MaxPool1d(_CompressedMaxPool, nn.MaxPool1d):
    stock = nn.MaxPool1d
    dims = 1


class MaxPool2d(_CompressedMaxPool, nn.MaxPool2d):
    stock = nn.MaxPool2d
    dims = 2


class MaxPool3d(_CompressedMaxPool, nn.MaxPool3d):
    stock = nn.MaxPool3d
    dims = 3

# SPDX-License-Identifier: Apache-2.0
"""Words that the arithmetic of compressed copies shares."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor


@dataclass(frozen=True)
class Convolution:
    """Per spatial axis; `before` and `after` are zeros around the input."""

    stride: tuple[int, ...]
    before: tuple[int, ...]
    after: tuple[int, ...]
    dilation: tuple[int, ...]
    groups: int


class Order:
    """How a tensor lies in memory, so that what is kept element by element finds its place in a gradient again."""

    def __init__(self, x: Tensor):
        self._shape, self._stride = x.shape, x.stride()
        self.format = torch.contiguous_format
        if x.is_contiguous():
            return
        for dims, channels_last in ((4, torch.channels_last), (5, torch.channels_last_3d)):
            if x.dim() == dims and x.is_contiguous(memory_format=channels_last):
                self.format = channels_last

    def flat(self, x: Tensor) -> Tensor:
        """A view where x lies like the first one, else a copy."""
        x = x.contiguous(memory_format=self.format)
        return (x if self.format == torch.contiguous_format else x.movedim(1, -1)).reshape(-1)

    def result(self, value: Tensor, other: Tensor, last: bool) -> Tensor:
        """A result of the first tensor and `other` (which torch's operation has first, if the first one is its last) in the order
        that torch would have chosen: operations after it may round differently in another one."""
        if other.stride() == self._stride == value.stride():
            return value
        one, two = _without_data(self._shape, self._stride), _without_data(other.shape, other.stride())
        stride = (two + one if last else one + two).stride()
        return value if value.stride() == stride else value.new_empty_strided(value.shape, stride).copy_(value)

    def empty(self, like: Tensor, dtype: torch.dtype | None = None) -> Tensor:
        """Memory of its shape and order, of the type of `like` unless another is named, and beside it."""
        return torch.empty(self._shape, dtype=dtype or like.dtype, device=like.device, memory_format=self.format)

    def channels(self) -> tuple[int, int, int]:
        """(outer, channels, inner): how the second axis lies in the flat tensor."""
        channels = self._shape[1]
        if self.format != torch.contiguous_format:
            return self._shape.numel() // channels, channels, 1
        return self._shape[0], channels, self._shape[2:].numel()

    def back(self, flat: Tensor) -> Tensor:
        if self.format == torch.contiguous_format:
            return flat.view(self._shape)
        return flat.view(self._shape[0], *self._shape[2:], self._shape[1]).movedim(-1, 1)


def _without_data(shape: torch.Size, stride: tuple[int, ...]) -> Tensor:
    return torch.empty_strided(shape, stride, device="meta")

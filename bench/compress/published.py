# SPDX-License-Identifier: Apache-2.0
"""The method of Barley and Fröning (arXiv 2409.11902) as they describe it, for comparison: each convolution keeps its
input averaged over blocks and repeats the averages for the gradient of its weights; all other layers stay as they are.

Where blocks do not tile a map, what is left at the lower and right border is taken as zero; a map smaller than a block
is one block.
"""

from __future__ import annotations

from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn


class _Convolve(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor, weight: Tensor, bias: Tensor | None, layer: PublishedConv2d) -> Tensor:
        ctx.size = x.shape
        ctx.block = [min(layer.block, size) for size in x.shape[2:]]
        ctx.layer = layer
        ctx.with_bias = bias is not None
        ctx.save_for_backward(F.avg_pool2d(x, ctx.block), weight)
        return F.conv2d(x, weight, bias, layer.stride, layer.padding, layer.dilation, layer.groups)

    @staticmethod
    @torch.autograd.function.once_differentiable
    def backward(ctx: Any, gy: Tensor) -> tuple[Tensor | None, ...]:
        pooled, weight = ctx.saved_tensors
        layer, (height, width) = ctx.layer, ctx.size[2:]
        x = pooled.repeat_interleave(ctx.block[0], 2).repeat_interleave(ctx.block[1], 3)
        x = F.pad(x, (0, width - x.shape[3], 0, height - x.shape[2]))
        gx, gw, gb = torch.ops.aten.convolution_backward(
            gy,
            x,
            weight,
            [weight.shape[0]] if ctx.with_bias else None,
            layer.stride,
            layer.padding,
            layer.dilation,
            False,
            [0, 0],
            layer.groups,
            [ctx.needs_input_grad[0], True, ctx.with_bias],
        )
        return gx, gw, gb, None


class PublishedConv2d(nn.Conv2d):
    block: int

    def forward(self, x: Tensor) -> Tensor:
        weight, bias = self.weight, self.bias
        if torch.is_autocast_enabled(x.device.type):
            dtype = torch.get_autocast_dtype(x.device.type)
            x, weight, bias = x.to(dtype), weight.to(dtype), None if bias is None else bias.to(dtype)
        return _Convolve.apply(x, weight, bias, self)


def published(model: nn.Module, block: int) -> nn.Module:
    """Every convolution of the model, changed in place."""
    for module in model.modules():
        if type(module) is nn.Conv2d:
            module.__class__ = PublishedConv2d
            module.block = block
    return model

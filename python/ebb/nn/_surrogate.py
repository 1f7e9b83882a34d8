# SPDX-License-Identifier: Apache-2.0
"""Spikes in plain torch: what stands in for their derivative, by the names and numbers of the native cells."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import torch

from ebb import _core
from ebb._base.errors import Error


def _bell(x: torch.Tensor, sigma: float) -> torch.Tensor:
    return torch.exp(-0.5 * (x / sigma) ** 2) / (sigma * math.sqrt(2 * math.pi))


_PSI: dict[str, Callable[[torch.Tensor, float], torch.Tensor]] = {
    "fast_sigmoid": lambda x, k: 1 / (1 + k * x.abs()) ** 2,
    "superspike": lambda x, k: k / (1 + x.abs()) ** 2,
    "arctan": lambda x, k: k / 2 / (1 + (math.pi / 2 * k * x) ** 2),
    "triangular": lambda x, k: k * (1 - x.abs()).clamp(min=0),
    "boxcar": lambda x, k: (x.abs() <= k).to(x.dtype),
    "multi_gaussian": lambda x, k: 0.5 * (1.15 * _bell(x, k) - 0.15 * (_bell(x - k, 6 * k) + _bell(x + k, 6 * k))),
}
_SHARPNESS: dict[str, float] = {name: sharpness for name, _, sharpness in _core.surrogates()}


def sharpness_of(surrogate: str, sharpness: float | None) -> float:
    """The number that is taken; raises for a name that is not there."""
    if surrogate not in _PSI:
        raise Error(f"surrogate is {surrogate!r}; there are {', '.join(_PSI)}")
    if sharpness is None:
        return _SHARPNESS[surrogate]
    if not (math.isfinite(sharpness) and sharpness > 0):
        raise Error(f"sharpness is {sharpness!r}; it must be above 0")
    return float(sharpness)


class Spike(torch.autograd.Function):
    """1 where x is 0 or more; in backward psi(x) stands in for the derivative."""

    @staticmethod
    def forward(ctx: Any, x: torch.Tensor, surrogate: str, sharpness: float) -> torch.Tensor:
        ctx.save_for_backward(x)
        ctx.surrogate, ctx.sharpness = surrogate, sharpness
        return (x >= 0).to(x.dtype)

    @staticmethod
    def backward(ctx: Any, gradient: torch.Tensor) -> Any:
        (x,) = ctx.saved_tensors
        return gradient * _PSI[ctx.surrogate](x, ctx.sharpness), None, None

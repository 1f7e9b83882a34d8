# SPDX-License-Identifier: Apache-2.0
"""How far weight gradients of a variant are from those of stock layers, on one batch at the same weights."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor, nn


def weight_gradients(model: nn.Module, loss: Callable[[nn.Module], Tensor]) -> dict[str, Tensor]:
    """Of every convolution, in double precision. Random layers draw the same numbers every time."""
    torch.manual_seed(3)
    model.zero_grad(set_to_none=True)
    loss(model).backward()
    found = {
        name: layer.weight.grad.double().flatten()
        for name, layer in model.named_modules()
        if isinstance(layer, (nn.Conv1d, nn.Conv2d, nn.Conv3d))
    }
    model.zero_grad(set_to_none=True)
    return found


def cosines(found: dict[str, Tensor], exact: dict[str, Tensor]) -> dict[str, float]:
    """1 where both have the same bits, so that exact is told from nearly so."""
    return {
        name: 1.0
        if torch.equal(found[name], exact[name])
        else (torch.dot(found[name], exact[name]) / (found[name].norm() * exact[name].norm())).item()
        for name in found
    }


def errors(found: dict[str, Tensor], exact: dict[str, Tensor]) -> dict[str, float]:
    """The norm of the difference against that of the exact gradient."""
    return {name: ((found[name] - exact[name]).norm() / exact[name].norm()).item() for name in found}

# SPDX-License-Identifier: Apache-2.0
"""What a compressed layer was asked to do."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor


@dataclass
class Settings:
    """One for each layer, at `layer.ebb_settings`; it may be changed between iterations.

    way: "keep" (exactly what the backward pass needs), "compress", "recompute", "offload".
    A ReLU that may "keep" keeps nothing where its input can be computed again, and bits elsewhere; "compress": always bits,
    which is faster where no layer after it needs that input again.
    block: a convolution's, per spatial axis; pooling: "average" or "max". data: also of an input that was not computed, which
    the caller has anyway.
    codec: what "compress" means where there are several: a linear layer's "int8" or "project".
    """

    way: str = "keep"
    block: tuple[int, ...] = ()
    pooling: str = "average"
    data: bool = False
    codec: str = "int8"


def settings_of(layer: torch.nn.Module) -> Settings:
    found: Any = layer.ebb_settings
    return found


def at_work(*tensors: Tensor | None) -> bool:
    """Whether there will be a backward pass. Elsewhere a layer does what torch's own does."""
    return torch.is_grad_enabled() and any(tensor is not None and tensor.requires_grad for tensor in tensors)


def autocast_dtype(tensor: Tensor) -> torch.dtype | None:
    kind = tensor.device.type
    return torch.get_autocast_dtype(kind) if torch.is_autocast_enabled(kind) else None


def without_autocast(tensor: Tensor) -> torch.autocast:
    return torch.autocast(tensor.device.type, enabled=False)

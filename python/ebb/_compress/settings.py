# SPDX-License-Identifier: Apache-2.0
"""What a compressed layer was asked to do."""

from __future__ import annotations

from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from ebb._base.errors import Error


@dataclass
class Settings:
    """One for each layer, at `layer.ebb_settings`; it may be changed between iterations.

    way: "keep" (exactly what the backward pass needs), "compress", "recompute", "offload".
    A ReLU keeps nothing where its input can be recomputed exactly ("keep"), and "bits" elsewhere. Where the next layer does not recompute
    that input, bits take less at the worst moment of a backward pass, and less time.
    block: a convolution's, per spatial axis; pooling: "average" or "max". always: also of an input that is kept in any case: that can
    be computed again, or that the caller has.
    offers: a convolution's output may be computed again by the norm after it.
    pooled: whether the last call did; the layer says so.
    codec: what "compress" means where there are several: a linear layer's "int8" or "project".
    offloading: who moves what "offload" lets go, an `Offloading`; others look after it as they run.
    """

    way: str = "keep"
    block: tuple[int, ...] = ()
    pooling: str = "average"
    always: bool = False
    pooled: bool = False
    offers: bool = True
    codec: str = "int8"
    offloading: Any = None


_are_transforms_active = torch._C._are_functorch_transforms_active
_is_any_autocast = torch._C._is_any_autocast_enabled


def settings_of(layer: torch.nn.Module) -> Settings:
    found: Any = layer.ebb_settings
    return found


def at_work(*tensors: Tensor | None) -> bool:
    """Whether there will be a backward pass. Elsewhere a layer does what torch's own does. The first tensor is the input."""
    if not torch.is_grad_enabled():
        return False
    for tensor in tensors:
        if tensor is not None and tensor.requires_grad:
            break
    else:
        return False
    if _are_transforms_active():
        raise Error(
            "a compressed layer is used inside of a transform of torch.func, which cannot see what it keeps; call "
            "ebb.decompress(model) first, or use torch.autograd",
            "unavailable",
        )
    return tensors[0] is not None and not tensors[0].is_inference()  # torch cannot keep those


def parametrised(layer: torch.nn.Module) -> bool:
    """Whether reading a parameter computes it (torch.nn.utils.parametrize): twice would be once too often."""
    return "parametrizations" in layer._modules


def affine_of(layer: Any) -> tuple[Any, Any]:
    """Its weight and bias. Where they are parameters like any other they are read from where a module has them, which is faster."""
    own = layer._parameters
    if "weight" in own and "bias" in own:
        return own["weight"], own["bias"]
    return layer.weight, layer.bias


def weight_of(layer: torch.nn.Module | None) -> Tensor | None:
    """None where there is none, or where reading it would compute it, which may change buffers."""
    found = None if layer is None or parametrised(layer) else getattr(layer, "weight", None)
    return found if isinstance(found, Tensor) else None


def autocast_dtype(tensor: Tensor) -> torch.dtype | None:
    if not _is_any_autocast():
        return None
    kind = tensor.device.type
    return torch.get_autocast_dtype(kind) if torch.is_autocast_enabled(kind) else None


def without_autocast(tensor: Tensor) -> AbstractContextManager[Any]:
    if not _is_any_autocast():
        return nullcontext()
    kind = tensor.device.type
    return torch.autocast(kind, enabled=False) if torch.is_autocast_enabled(kind) else nullcontext()

# SPDX-License-Identifier: Apache-2.0
"""What starting a Triton kernel takes: the device, and whether 32 bits count its elements."""

from __future__ import annotations

from contextlib import AbstractContextManager, nullcontext
from typing import Any

import torch
import triton
import triton.language as tl
from torch import Tensor

MANY = 1024  # values a program works on


def on(x: Tensor) -> AbstractContextManager[Any]:
    """Triton starts kernels on the current device. On a CPU its interpreter runs them, in tests."""
    return torch.cuda.device_of(x) if x.is_cuda and x.device.index != torch.cuda.current_device() else nullcontext()


def wide(*tensors: Tensor) -> bool:
    """Whether 32 bits are too few to count elements; dividing 64 takes several times as long."""
    return any(tensor.numel() >= 2**31 - MANY for tensor in tensors)


@triton.jit
def first(MANY: tl.constexpr, WIDE: tl.constexpr):
    if WIDE:
        return tl.program_id(0).to(tl.int64) * MANY
    return tl.program_id(0) * MANY

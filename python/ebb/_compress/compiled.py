# SPDX-License-Identifier: Apache-2.0
"""torch.compile and compressed layers: its graph ends where one begins and goes on behind it.

Inside of a graph the compiler decides what is kept, and it does not see saved-tensor hooks.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

Forward = Callable[[Any, Tensor], Tensor]


@torch.compiler.disable
def _run(forward: Forward, layer: Any, x: Tensor) -> Tensor:
    return forward(layer, x)


def never_compiled(forward: Forward) -> Forward:
    """For the forward of a compressed layer. Without gradients it keeps nothing: then it is torch's own, in one graph."""

    @functools.wraps(forward)
    def wrapper(self: Any, x: Tensor) -> Tensor:
        if not torch.compiler.is_compiling():
            return forward(self, x)
        return _run(forward, self, x) if torch.is_grad_enabled() else self.stock.forward(self, x)

    return wrapper

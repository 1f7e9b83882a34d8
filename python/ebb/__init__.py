# SPDX-License-Identifier: Apache-2.0
"""ebb: backpropagation through time in the memory you have.

The planner needs NumPy alone; what works on tensors (`scan`, `while_loop`, `nn`, `Chain`, `offload`, ...) is loaded when it
is first used and needs PyTorch 2.4 or later.
"""

from __future__ import annotations

import importlib
from typing import Any

from ebb._budget import Budget
from ebb._core import version as __version__
from ebb._errors import Error
from ebb.tiers import FileTier, MemoryTier, file_tier, memory_tier

# Where names that need PyTorch live.
_TORCH = {
    "Chain": "ebb._chain",
    "last_report": "ebb._engine",
    "scan": "ebb._scan",
    "while_loop": "ebb._scan",
}

__all__ = ["Budget", "Error", "FileTier", "MemoryTier", "__version__", "file_tier", "memory_tier", *_TORCH]


def __getattr__(name: str) -> Any:
    if name not in _TORCH:
        raise AttributeError(f"module 'ebb' has no attribute {name!r}")
    try:
        value = getattr(importlib.import_module(_TORCH[name]), name)
    except ModuleNotFoundError as missing:
        if missing.name == "torch":
            raise Error(f"ebb.{name} needs PyTorch 2.4 or later; pip install torch", "unavailable") from None
        raise
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *_TORCH})

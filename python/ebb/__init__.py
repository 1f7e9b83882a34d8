# SPDX-License-Identifier: Apache-2.0
"""ebb: backpropagation through time in the memory you have.

The planner needs nothing else, `run` needs NumPy. What works on tensors (`scan`, `while_loop`, `nn`, `Chain`, `offload`, ...)
needs PyTorch 2.4 or later. Both are loaded when they are first used.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

from ebb._base.budget import Budget
from ebb._base.cache import clear_cache
from ebb._base.errors import Error
from ebb._base.kernels import gpu_kernels
from ebb._core import version as __version__
from ebb.planning import Plan, Prediction, Strategy, Traffic, largest, least_budget, plan, replay, strategies, sweep
from ebb.tiers import FileTier, MemoryTier, file_tier, memory_tier

if TYPE_CHECKING:  # type checkers see no __getattr__, and so every name with its type
    from ebb import nn as nn
    from ebb import schedules as schedules
    from ebb._compiled.backend import compiled as compiled
    from ebb._compress.compress import compress as compress
    from ebb._compress.compress import decompress as decompress
    from ebb._compress.report import compression_report as compression_report
    from ebb._fit.fit import fit as fit
    from ebb._loop.chain import Chain as Chain
    from ebb._loop.last_report import last_report as last_report
    from ebb._loop.probe import probe as probe
    from ebb._loop.scan import scan as scan
    from ebb._loop.verify import verify as verify
    from ebb._loop.while_loop import while_loop as while_loop
    from ebb._offload.offload import offload as offload
    from ebb.nn._trained import load as load
    from ebb.running import Costs as Costs
    from ebb.running import RunResult as RunResult
    from ebb.running import run as run

# Where names live that need NumPy or PyTorch, which take long to load; a module stands for itself.
_LATER = {
    "Chain": "ebb._loop.chain",
    "Costs": "ebb.running",
    "RunResult": "ebb.running",
    "compiled": "ebb._compiled.backend",
    "compress": "ebb._compress.compress",
    "compression_report": "ebb._compress.report",
    "decompress": "ebb._compress.compress",
    "fit": "ebb._fit.fit",
    "last_report": "ebb._loop.last_report",
    "load": "ebb.nn._trained",
    "nn": "",
    "offload": "ebb._offload.offload",
    "probe": "ebb._loop.probe",
    "run": "ebb.running",
    "scan": "ebb._loop.scan",
    "schedules": "",
    "verify": "ebb._loop.verify",
    "while_loop": "ebb._loop.while_loop",
}

__all__ = [
    "Budget",
    "Error",
    "FileTier",
    "MemoryTier",
    "Plan",
    "Prediction",
    "Strategy",
    "Traffic",
    "__version__",
    "clear_cache",
    "file_tier",
    "gpu_kernels",
    "largest",
    "least_budget",
    "memory_tier",
    "plan",
    "replay",
    "strategies",
    "sweep",
    *_LATER,
]


def _show(value: Any) -> None:
    """A class says the name that users write, in tracebacks and pickles too: there is no other that may not change."""
    if isinstance(value, type):
        value.__module__ = "ebb"


for _name in __all__:
    _show(globals().get(_name))


if not TYPE_CHECKING:

    def __getattr__(name: str) -> Any:
        if name not in _LATER:
            raise AttributeError(f"module 'ebb' has no attribute {name!r}")
        try:
            home = importlib.import_module(_LATER[name] or f"ebb.{name}")
        except ModuleNotFoundError as missing:
            if missing.name == "torch":
                raise Error(f"ebb.{name} needs PyTorch 2.4 or later; pip install torch", "unavailable") from None
            raise
        value = getattr(home, name) if _LATER[name] else home
        _show(value)
        globals()[name] = value
        return value


def __dir__() -> list[str]:
    return sorted({*globals(), *_LATER})

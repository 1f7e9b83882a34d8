# SPDX-License-Identifier: Apache-2.0
"""Layers under a budget where the native cells do not apply."""

from __future__ import annotations

from typing import Any

from ebb._errors import Error


def run(module: Any, input: Any, hx: Any, reason: str) -> Any:
    """What ``module(input, hx)`` gives, in the module's budget. ``reason``: why the native cells do not apply."""
    raise Error(
        f"{type(module).__name__} with a budget: {reason}; the native cells need float32 or float64 on the CPU, "
        "without autocast. Set budget=None for torch's own kernels in unlimited memory",
        "unavailable",
    )

# SPDX-License-Identifier: Apache-2.0
"""Functions that torch.compile leaves alone."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

import torch

Function = TypeVar("Function", bound=Callable[..., Any])


def eager(function: Function) -> Function:
    """torch.compiler.disable, which has no types of its own."""
    found: Function = torch.compiler.disable(function)
    return found

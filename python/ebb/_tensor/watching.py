# SPDX-License-Identifier: Apache-2.0
"""Modes that see every operation."""

from __future__ import annotations

from typing import Any

import torch
from torch.utils._python_dispatch import TorchDispatchMode

_stance: Any = getattr(torch.compiler, "set_stance", None)  # since PyTorch 2.6


class Watching(TorchDispatchMode):
    """Functions of torch.compile run eagerly inside. If one were called compiled while a mode is on, torch would take its code
    for one that cannot be compiled, and run it eagerly for good."""

    def __enter__(self) -> Any:
        self._eager = None if _stance is None else _stance("force_eager")
        if self._eager is not None:
            self._eager.__enter__()
        return super().__enter__()

    def __exit__(self, *raised: Any) -> None:
        super().__exit__(*raised)
        if self._eager is not None:
            self._eager.__exit__(*raised)

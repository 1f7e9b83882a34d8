# SPDX-License-Identifier: Apache-2.0
"""What a layer's last backward took."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from ebb import _core
from ebb._base.sizes import UNLIMITED


@dataclass(frozen=True)
class LayerReport:
    """Memory of the last forward and backward of a layer, in bytes.

    ``budget``: what was allowed. ``peak``: what was held for states, tapes and work, never more than the budget.
    ``kept``: outputs of lower layers that an upper layer read, and what dropout kept; the caller's, never charged.
    ``runs``: one report for each run over the sequence: one for a whole stack, or one for each layer and direction
    where a layer needs the whole output of the one below it.
    """

    budget: int
    peak: int
    kept: int
    runs: tuple[Any, ...]

    def brief(self) -> str:
        budget = "unlimited" if self.budget >= UNLIMITED else _core.format_bytes(self.budget)
        line = f"peak {_core.format_bytes(self.peak)} of {budget}"
        if self.kept:
            line += f"; {_core.format_bytes(self.kept)} of outputs kept between layers beside it"
        return line

    def __str__(self) -> str:
        return "\n".join([self.brief(), *(run.brief() for run in self.runs)])

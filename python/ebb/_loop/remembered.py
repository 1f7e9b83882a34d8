# SPDX-License-Identifier: Apache-2.0
"""What was measured about blocks before."""

from __future__ import annotations

from dataclasses import dataclass

from ebb._base.cache import Section, cache
from ebb._loop.costs import Costs


@dataclass
class Remembered:
    """What was found about blocks before."""

    costs: Costs
    fits: set[int]  # budgets that hold everything
    raw: tuple[int, int]  # bytes of a tape and of a state, without codecs
    coded: list[bool] | None = None  # leaves of the carry that are kept encoded


remembered: Section[Remembered] = cache.section()

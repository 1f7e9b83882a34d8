# SPDX-License-Identifier: Apache-2.0
"""What was measured about blocks before."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field, replace
from typing import Any

from ebb._base.cache import Section, cache
from ebb._loop.costs import Costs
from ebb._loop.growth import Growth
from ebb._loop.tape import Pattern, Weight
from ebb._loop.wishes import Settled


@dataclass
class Remembered:
    """What was found about blocks before."""

    costs: Costs  # of the heaviest
    weight: Weight  # of the heaviest
    raw: tuple[int, int]  # bytes of a tape and of a state, without codecs
    first: tuple[int, int]  # the same of the first block alone, by which it is known again
    coded: list[bool] | None = None  # leaves of the carry that are kept encoded
    fits: set[int] = field(default_factory=set)  # budgets that hold everything
    settled: Settled = field(default_factory=dict)
    outweighed: bool = False  # by a block that was seen since
    varies: bool = False  # not all blocks weigh the same
    calls: int = 0  # in a row in which no tape was too heavy
    patterns: Counter[Pattern] = field(default_factory=Counter)  # of gradients that blocks were given in one backward
    growth: Growth = field(default_factory=Growth)
    copies: bool = False  # from the host to a GPU

    @property
    def alike(self) -> bool:
        """Blocks have weighed the same for so long that to weigh some of them is enough."""
        return not self.varies and self.calls > 0

    @property
    def kept(self) -> tuple[int, int]:
        """Bytes of a tape and of a state where no codec is used."""
        return max(self.raw[0], self.costs.tape), self.raw[1]

    def note_too_heavy(self) -> None:
        self.outweighed = self.varies = True
        self.growth = Growth()
        self.fits.clear()
        self.settled.clear()

    def covers(self, raw: tuple[int, int]) -> bool:
        """What was found holds where the first tape and state take so much."""
        if self.varies and raw[1] == self.raw[1]:
            return raw[0] <= self.kept[0]
        return raw == self.first


remembered: Section[Remembered] = cache.section()


def remembered_of(key: Any, kin: Any) -> Remembered | None:
    """Of the loop, or else of one with the same blocks, `kin`, and another number of them."""
    found = remembered.get(key)
    other = None if found is not None or kin == key else remembered.get(kin)
    if other is not None:
        found = replace(other, fits=set(), settled={})
        remembered.put(key, found)
    return found


def remember(key: Any, kin: Any, known: Remembered) -> None:
    remembered.put(key, known)
    remembered.put(kin, known)

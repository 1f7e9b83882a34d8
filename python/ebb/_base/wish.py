# SPDX-License-Identifier: Apache-2.0
"""Budgets that are not said in bytes: a share of what keeping everything takes, or a word for what matters."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from ebb import _core
from ebb._base.errors import Error
from ebb._base.sizes import as_bytes

WORDS = ("speed", "balanced", "memory")
POINTS = 12  # budgets among which "balanced" chooses
_MOST = 1000  # percent


@dataclass(frozen=True)
class Costs:
    """Of a call, in which a wish becomes bytes."""

    whole: int  # bytes that keeping everything takes, of which a share is
    most: Callable[[], int]  # bytes with which a plan keeps everything
    least: Callable[[], int]  # bytes without which it does not work
    points: Callable[
        [], list[tuple[int, float]]
    ]  # budgets from the least to that which keeps everything, and their seconds


@dataclass(frozen=True)
class Wish:
    """`share` is a fraction of what keeping everything takes; None: `said` is one of WORDS."""

    said: str
    share: float | None = None

    def bytes(self, costs: Costs) -> int:
        """ "speed": enough to keep everything; "memory": the least that works; "balanced": where bytes x seconds are least."""
        if self.share is not None:
            return int(self.share * costs.whole)
        if self.said == "speed":
            return costs.most()
        if self.said == "memory":
            return costs.least()
        return min(costs.points(), key=lambda point: point[0] * point[1])[0]

    def told(self, found: int, whole: int) -> str:
        """For reports and errors."""
        size = _core.format_bytes
        return f"budget {self.said!r} is {size(found)} where keeping everything takes {size(whole)}"


def bytes_of(value: float | str, what: str) -> int:
    """What is said in bytes; a part of one is a share that lacks its sign."""
    try:
        number = float(value)
    except (TypeError, ValueError):
        number = 0.0
    if 0 < number < 1:
        raise Error(
            f"{what} is {value!r}, less than a byte; did you mean '{100 * number:g}%', or a unit: '{number:g}GiB'?"
        )
    return as_bytes(value, what)


def wish_of(value: object, what: str) -> Wish | None:
    """None: it is said in bytes, or is no budget.

    >>> wish_of("20%", "budget"), wish_of("memory", "budget"), wish_of("2GiB", "budget")
    (Wish(said='20%', share=0.2), Wish(said='memory', share=None), None)
    """
    if not isinstance(value, str):
        return None
    word = value.strip()
    if word in WORDS:
        return Wish(word)
    if not word.endswith("%"):
        return None
    try:
        percent = float(word[:-1])
    except ValueError:
        percent = -1.0
    if not 0 < percent <= _MOST:
        raise Error(
            f"{what} is {value!r}; a share of what keeping everything takes is a number above 0, up to {_MOST}, with %, "
            "such as '20%'"
        )
    return Wish(word, percent / 100)

# SPDX-License-Identifier: Apache-2.0
"""The five actions that a plan is made of.

Places are ``"work"`` (the live state), ``"fast"`` and the names of the slow tiers; items are ``"state"`` and
``"tape"``.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from ebb._base.errors import Error


@dataclass(frozen=True, slots=True)
class Advance:
    """Runs steps ``from_`` to ``to - 1`` from the live state, keeping nothing."""

    from_: int
    to: int


@dataclass(frozen=True, slots=True)
class Record:
    """Runs steps ``from_`` to ``to - 1`` from the live state, leaving their tapes in fast."""

    from_: int
    to: int


@dataclass(frozen=True, slots=True)
class Reverse:
    """Goes backward through the recorded steps ``to - 1`` to ``from_`` and frees their tapes."""

    from_: int
    to: int


@dataclass(frozen=True, slots=True)
class Copy:
    """Starts a transfer of the state before a step, or of the tape of a step."""

    item: str
    step: int
    from_: str
    to: str


@dataclass(frozen=True, slots=True)
class Drop:
    """Forgets a state or a tape at a place."""

    item: str
    step: int
    place: str


Action = Advance | Record | Reverse | Copy | Drop

_RANGES = (Advance, Record, Reverse)
_ITEMS = ("state", "tape")


def places_of(tiers: Sequence[str]) -> list[str]:
    """The places of a platform with these tiers, as the library numbers them from -1 on."""
    return ["work", "fast", *tiers]


def from_rows(rows: Iterable[tuple[Any, ...]], tiers: Sequence[str]) -> Iterator[Action]:
    """The library's actions in words."""
    places = places_of(tiers)
    for kind, *parts in rows:
        if kind < 3:
            yield _RANGES[kind](*parts)
        elif kind == 3:
            item, step, start, end = parts
            yield Copy(_ITEMS[item], step, places[start + 1], places[end + 1])
        else:
            item, step, place = parts
            yield Drop(_ITEMS[item], step, places[place + 1])


def to_rows(actions: Iterable[Action], tiers: Sequence[str]) -> Iterator[tuple[int, ...]]:
    """Actions in words as the library takes them."""
    places = {place: number - 1 for number, place in enumerate(places_of(tiers))}
    for action in actions:
        try:
            if isinstance(action, _RANGES):
                yield (_RANGES.index(type(action)), action.from_, action.to)
            elif isinstance(action, Copy):
                yield (3, _ITEMS.index(action.item), action.step, places[action.from_], places[action.to])
            elif isinstance(action, Drop):
                yield (4, _ITEMS.index(action.item), action.step, places[action.place])
            else:
                raise Error(f"replay: {action!r} is no action; it must be an Advance, Record, Reverse, Copy or Drop")
        except (KeyError, ValueError):
            raise Error(
                f"replay: {action!r} names an item or a place that is not there; "
                f"items are {', '.join(_ITEMS)}, places are {', '.join(places)}"
            ) from None

# SPDX-License-Identifier: Apache-2.0
"""Other tensors in the places of those that a function finds."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import Any

from torch import Tensor

from ebb._tensor.outside import Outside


def _swapped(value: Any, other: dict[int, Tensor]) -> Any:
    """A value with other tensors in it; itself where it has none of them."""
    if isinstance(value, Tensor):
        return other.get(id(value), value)
    if type(value) in (list, tuple):
        parts = [_swapped(part, other) for part in value]
    elif type(value) is dict:
        parts = [_swapped(part, other) for part in value.values()]
    else:
        return value
    if all(a is b for a, b in zip(parts, value.values() if type(value) is dict else value)):
        return value
    return dict(zip(value, parts)) if type(value) is dict else type(value)(parts)


@contextlib.contextmanager
def standing_in(outside: Outside, params: list[Tensor], aliases: list[Tensor]) -> Iterator[None]:
    """Modules and variables have other tensors for their parameters, in the same memory: the caller's have nodes in autograd that
    belong to other streams, for which a capture cannot wait."""
    other = {id(p): alias for p, alias in zip(params, aliases)}
    found = []
    for place in outside.places:
        for key in place.keys():
            value = place.get(key)
            instead = _swapped(value, other)
            if instead is not value:
                found.append((place, key, value))
                place.put(key, instead)
    try:
        yield
    finally:
        for place, key, value in found:
            place.put(key, value)

# SPDX-License-Identifier: Apache-2.0
"""Places in which Python code keeps values: attributes and globals, variables of closures, items of containers.

A place gives its values as a list. Two looks at it are compared by the identity of what they saw, which takes a microsecond
for a module; holding on to what was seen keeps identities unique."""

from __future__ import annotations

import types
from collections.abc import Callable, Iterable, Iterator
from itertools import repeat
from operator import is_
from typing import Any, Protocol


class Missing:
    """There is nothing."""

    def __repr__(self) -> str:
        return "nothing"


MISSING = Missing()
WHOLE = object()  # the only key of a place that is one value


class View(Protocol):
    def __len__(self) -> int: ...

    def __iter__(self) -> Iterator[Any]: ...


class _Read:
    """A view of values that must be asked for."""

    __slots__ = ("_length", "_values")

    def __init__(self, length: int, values: Callable[[], Iterable[Any]]):
        self._length, self._values = length, values

    def __len__(self) -> int:
        return self._length

    def __iter__(self) -> Iterator[Any]:
        return iter(self._values())


class Place(Protocol):
    name: str

    def keys(self) -> list[Any]:
        """Of the values. [WHOLE]: the place is one value."""

    def values(self) -> list[Any]: ...

    def views(self) -> list[View]:
        """Its values, as they are whenever one goes through them. All views of a place are of one length."""

    def get(self, key: Any) -> Any:
        """MISSING where there is nothing."""

    def put(self, key: Any, value: Any) -> None: ...

    def said(self, key: Any) -> str:
        """For messages."""


class Names:
    """Attributes, or globals: only some names."""

    def __init__(self, names: dict[Any, Any], name: str, only: tuple[str, ...] | None = None):
        self.name, self._names, self._only = name, names, only

    def keys(self) -> list[Any]:
        return list(self._names) if self._only is None else list(self._only)

    def values(self) -> list[Any]:
        if self._only is None:
            return list(self._names.values())
        get = self._names.get
        return [get(key, MISSING) for key in self._only]

    def views(self) -> list[View]:
        names, only = self._names, self._only
        if only is None:
            return [names.values()]
        return [_Read(len(only), lambda: map(names.get, only, repeat(MISSING)))]

    def get(self, key: Any) -> Any:
        return self._names.get(key, MISSING)

    def put(self, key: Any, value: Any) -> None:
        if value is MISSING:
            self._names.pop(key, None)
        else:
            self._names[key] = value

    def said(self, key: Any) -> str:
        if isinstance(key, str) and key.isidentifier():
            return f"{self.name}.{key}" if self.name else key
        return f"{self.name}[{key!r}]"


def _slots_of(kind: type) -> Iterable[str]:
    slots = kind.__dict__.get("__slots__", ())
    return (slots,) if isinstance(slots, str) else slots


class Slots:
    """The attributes of an object whose class names them in __slots__."""

    def __init__(self, owner: Any, name: str):
        self.name, self._owner = name, owner
        self._names = [
            f"_{kind.__name__.lstrip('_')}{key}" if key.startswith("__") else key  # as Python calls it
            for kind in type(owner).__mro__
            for key in _slots_of(kind)
            if not key.endswith("__")
        ]

    def keys(self) -> list[Any]:
        return self._names

    def values(self) -> list[Any]:
        return [getattr(self._owner, key, MISSING) for key in self._names]

    def views(self) -> list[View]:
        return [_Read(len(self._names), self.values)] if self._names else []

    def get(self, key: Any) -> Any:
        return getattr(self._owner, key, MISSING)

    def put(self, key: Any, value: Any) -> None:
        if value is not MISSING:
            setattr(self._owner, key, value)
        elif hasattr(self._owner, key):
            delattr(self._owner, key)

    def said(self, key: Any) -> str:
        return f"{self.name}.{key}"


class Attributes(Slots):
    """Those of a class itself."""

    def __init__(self, owner: type):
        self.name, self._owner = owner.__name__, owner
        kinds = (types.FunctionType, types.MemberDescriptorType, staticmethod, classmethod, property, type)
        self._names = [
            key for key, value in vars(owner).items() if not key.startswith("__") and not isinstance(value, kinds)
        ]

    def values(self) -> list[Any]:
        return [self.get(key) for key in self._names]

    def get(self, key: Any) -> Any:
        return vars(self._owner).get(key, MISSING)


class Cell:
    """A variable of an enclosing function."""

    def __init__(self, cell: types.CellType, name: str):
        self.name, self._cell = name, cell

    def keys(self) -> list[Any]:
        return [WHOLE]

    def values(self) -> list[Any]:
        return [self.get(WHOLE)]

    def views(self) -> list[View]:
        return [_Read(1, self.values)]

    def get(self, key: Any) -> Any:
        try:
            return self._cell.cell_contents
        except ValueError:
            return MISSING

    def put(self, key: Any, value: Any) -> None:
        if value is MISSING:
            del self._cell.cell_contents
        else:
            self._cell.cell_contents = value

    def said(self, key: Any) -> str:
        return self.name


class Items:
    """A list, a deque or a set, whose items move: it is one value, the list of them."""

    def __init__(self, items: Any, name: str):
        self.name, self._items = name, items

    def keys(self) -> list[Any]:
        return [WHOLE]

    def values(self) -> list[Any]:
        return list(self._items)

    def views(self) -> list[View]:
        return [self._items]

    def get(self, key: Any) -> Any:
        return list(self._items)

    def put(self, key: Any, value: Any) -> None:
        if same(value, self.values()):
            return
        self._items.clear()
        if isinstance(self._items, set):
            self._items.update(value)
        else:
            self._items.extend(value)

    def said(self, key: Any) -> str:
        return self.name

    @property
    def container(self) -> Any:
        return self._items


class Entries(Items):
    """A dict that is a value: one value too, since the order of its keys may matter."""

    def values(self) -> list[Any]:
        return [*self._items, *self._items.values()]

    def views(self) -> list[View]:
        return [self._items, self._items.values()]

    def get(self, key: Any) -> Any:
        return dict(self._items)

    def put(self, key: Any, value: Any) -> None:
        if same([*value, *value.values()], self.values()):
            return
        self._items.clear()
        self._items.update(value)

    def seen(self, values: list[Any]) -> dict[Any, Any]:
        """What was seen, as a dict."""
        half = len(values) // 2
        return dict(zip(values[:half], values[half:]))


Seen = list[tuple[list[Any], list[Any]]]  # by place: keys and values


def look(places: list[Place]) -> Seen:
    return [(place.keys(), place.values()) for place in places]


def same(seen: list[Any], now: list[Any]) -> bool:
    return len(seen) == len(now) and all(map(is_, seen, now))


def changed(places: list[Place], seen: Seen) -> list[tuple[int, Any]]:
    """Place and key of what is another object than it was."""
    found: list[tuple[int, Any]] = []
    for k, (place, (keys, values)) in enumerate(zip(places, seen)):
        now = place.values()
        if same(values, now):
            continue
        if keys == [WHOLE]:
            found.append((k, WHOLE))
            continue
        before = dict(zip(keys, values))
        for key in dict.fromkeys([*keys, *place.keys()]):
            if before.get(key, MISSING) is not place.get(key):
                found.append((k, key))
    return found


def value_seen(places: list[Place], seen: Seen, k: int, key: Any) -> Any:
    """What a place held when it was seen."""
    keys, values = seen[k]
    if key is not WHOLE:
        return dict(zip(keys, values)).get(key, MISSING)
    place = places[k]
    if isinstance(place, Entries):
        return place.seen(values)
    return list(values) if isinstance(place, Items) else values[0]


def put_back(places: list[Place], seen: Seen) -> None:
    for k, key in changed(places, seen):
        places[k].put(key, value_seen(places, seen, k, key))

# SPDX-License-Identifier: Apache-2.0
"""Slow memories that a run may use beside its budget."""

from __future__ import annotations

import os
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from ebb import _core
from ebb._base.errors import Error
from ebb._base.sizes import as_bytes


@dataclass(frozen=True)
class MemoryTier:
    """Host memory beside a smaller fast budget. :func:`memory_tier` makes it."""

    capacity: int
    name: str = "ram"

    def slow_tier(self) -> _core.SlowTier:
        return _core.memory_tier(self.capacity, self.name)


@dataclass(frozen=True)
class FileTier:
    """An unnamed file in a directory; it disappears with the run or the process. :func:`file_tier` makes it."""

    directory: str
    capacity: int
    name: str = "disk"
    engine: str = "any"
    direct: bool = True

    def slow_tier(self) -> _core.SlowTier:
        return _core.file_tier(self.directory, self.capacity, self.name, self.engine, self.direct)


Tier = MemoryTier | FileTier


def memory_tier(capacity: int | str, name: str = "ram") -> MemoryTier:
    """Host memory as a slow tier of up to ``capacity`` bytes, copied by separate threads.

    >>> memory_tier("1GiB")
    MemoryTier(capacity=1073741824, name='ram')
    """
    return MemoryTier(as_bytes(capacity, "memory_tier: capacity"), _checked_name(name))


def file_tier(
    directory: str | os.PathLike[str],
    capacity: int | str,
    name: str = "disk",
    *,
    engine: str = "any",
    direct: bool = True,
) -> FileTier:
    """A file of up to ``capacity`` bytes in ``directory``, which must exist. A crash leaves nothing behind.

    ``engine`` is ``"uring"``, ``"threads"`` or ``"any"``: io_uring where the system has it. ``direct``: past the page
    cache where the file system allows it.

    >>> file_tier("/tmp", "4GiB").name
    'disk'
    """
    path = os.fspath(directory)
    if not isinstance(path, str) or not os.path.isdir(path):
        raise Error(f"file_tier: {path!r} is no directory; name one that exists", "io")
    if engine not in ("any", "uring", "threads"):
        raise Error(f"file_tier: the engine is {engine!r}; it must be 'any', 'uring' or 'threads'")
    return FileTier(path, as_bytes(capacity, "file_tier: capacity"), _checked_name(name), engine, bool(direct))


def listed(tiers: Tier | Iterable[Tier] | None) -> tuple[Tier, ...]:
    """The tiers, nearest first; their names must differ."""
    if tiers is None:
        return ()
    given = (
        (tiers,)
        if isinstance(tiers, (MemoryTier, FileTier))
        else tuple(tiers)
        if isinstance(tiers, Iterable)
        else (tiers,)
    )
    for tier in given:
        if not isinstance(tier, (MemoryTier, FileTier)):
            raise Error(f"tiers: {tier!r} is no tier; ebb.memory_tier and ebb.file_tier make them")
    names = [tier.name for tier in given]
    for name in names:
        if names.count(name) > 1:
            raise Error(f"tiers: two are called {name!r}; give each a name of its own")
    return given


def slow_tiers(tiers: Tier | Iterable[Tier] | None) -> Sequence[_core.SlowTier]:
    """The same as the library takes them."""
    return [tier.slow_tier() for tier in listed(tiers)]


def _checked_name(name: str) -> str:
    if not isinstance(name, str):
        raise Error(f"a tier's name is {name!r}; it is a word")
    _core.check_tier_name("a tier", name)
    return name

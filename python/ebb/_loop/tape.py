# SPDX-License-Identifier: Apache-2.0
"""What a run over tensors holds: states, tapes, and a first block that has run already."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from torch import Tensor

from ebb._loop.blocks import Leaves
from ebb._tensor.context import Snapshot, View
from ebb._tensor.trees import addresses, storage_bytes

Flags = tuple[bool, ...]


class Pattern(NamedTuple):
    """Which gradients there are where a block is reversed. `head`: it is the first."""

    head: bool
    steps: int
    carry: Flags
    given: Flags
    seeds: Flags


def there(tensors: Sequence[Tensor | None]) -> Flags:
    return tuple(t is not None for t in tensors)


class Outputs:
    """All outputs that are the very same tensor, in the order of time: the last one, by its block and its place in the block's
    ys, and those before."""

    __slots__ = ("block", "y", "earlier")

    def __init__(self, block: int, y: int, earlier: Outputs | None):
        self.block, self.y, self.earlier = block, y, earlier

    def before(self, block: int) -> Outputs | None:
        """Those of blocks before this one."""
        found: Outputs | None = self
        while found is not None and found.block >= block:
            found = found.earlier
        return found

    def places(self) -> list[tuple[int, int]]:
        found = []
        one: Outputs | None = self
        while one is not None:
            found.append((one.block, one.y))
            one = one.earlier
        return found[::-1]


# For each leaf of a carry the outputs that it is; of leaves that are one tensor only the first has them.
Origins = tuple[Outputs | None, ...] | None


class State:
    """What restarts the computation: the carry and what f changes beside it."""

    __slots__ = ("leaves", "snapshot", "versions", "wait", "coded")

    def __init__(self, leaves: Leaves, snapshot: Snapshot | None, coded: bool = False):
        self.leaves = leaves
        self.snapshot = snapshot
        self.coded = coded  # leaves are as a StateCodec has them
        self.wait: Callable[[], None] | None = None  # until it has arrived
        self.versions = [None if leaf is None else leaf._version for leaf in leaves]

    def arrive(self) -> None:
        if self.wait is not None:
            self.wait()
            self.wait = None
            self.versions = [None if leaf is None else leaf._version for leaf in self.leaves]

    def tensors(self) -> list[Tensor]:
        kept = [leaf for leaf in self.leaves if leaf is not None]
        return kept if self.snapshot is None else kept + self.snapshot.tensors()


class Tape:
    __slots__ = ("carry", "inputs", "out", "ys", "after", "since")

    def __init__(self, carry: Leaves, inputs: list[Tensor], out: Leaves, ys: list[Tensor], after: State, since: int):
        self.carry, self.inputs, self.out, self.ys, self.after = carry, inputs, out, ys, after
        self.since = since  # older nodes of the graph are somebody else's

    def weight(self, saved: list[Tensor], callers: list[Tensor]) -> int:
        """Bytes of all that autograd saved, the states and outputs with it, without what is the caller's."""
        held = saved + self.carry + self.inputs + self.ys + self.after.tensors()
        return storage_bytes(held, addresses(callers))


@dataclass(frozen=True)
class Weight:
    """Of a block's tape."""

    bytes: int
    saved: int = -1  # of it by autograd; -1 where a codec keeps it
    step: int = 0  # the most that is saved in one time step

    @property
    def cap(self) -> int:
        """What others may weigh that are planned for as if they weighed as much: steps differ by a few numbers."""
        return self.bytes + min(4096, self.bytes // 8)


class Head:
    """The first block, already run."""

    def __init__(self, before: View, leaves: Leaves, ys: list[Tensor], origins: Origins):
        self.before, self.leaves, self.ys, self.origins = before, leaves, ys, origins

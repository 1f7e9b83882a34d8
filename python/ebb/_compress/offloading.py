# SPDX-License-Identifier: Apache-2.0
"""Layers whose input leaves the device until the backward pass: to host memory from a GPU, to disk from a CPU."""

from __future__ import annotations

import os
from typing import Any

from torch import Tensor

from ebb._compress.recipes import Leaf, Recipe
from ebb._compress.settings import Settings
from ebb._compress.sources import Source, recipe_of
from ebb._offload.offload import offload
from ebb._offload.report import OffloadReport


class Offloading:
    """One for all layers of a model: what is needed next is read ahead, so they must know the order.

    disk: a directory, or None. under_way: copies that may be on their way out, whose tensors still occupy the device.
    ahead: bytes that are read before they are needed.
    """

    def __init__(self, disk: str | os.PathLike[str] | None, under_way: int, ahead: int):
        self._options = (disk, under_way, ahead)
        self._saver = offload(disk=disk, max_fwd_stash_size=under_way, read_ahead=ahead)._saver
        self.asked = 0  # bytes, since it was made

    # A copy of a model shares it; one that is loaded elsewhere has its own.
    def __deepcopy__(self, memo: dict[int, Any]) -> Offloading:
        return self

    def __reduce__(self) -> tuple[Any, ...]:
        return Offloading, self._options

    @property
    def report(self) -> OffloadReport:
        return self._saver.report()

    def look(self) -> None:
        """What somebody held when it was given may be free to go by now."""
        self._saver.end()

    def take(self, tensor: Tensor) -> Recipe:
        self.asked += tensor.untyped_storage().nbytes()
        leaf = Leaf(tensor)
        leaf.hold(tensor, (self._saver.pack, self._saver.unpack))
        return Recipe(_as_it_is, leaf)


def _as_it_is(value: Tensor, mine: bool) -> Tensor:
    return value


def held(x: Tensor, settings: Settings) -> Recipe | Leaf:
    """What a layer keeps of its input. Where it has gone, whoever else would keep it keeps the same: there is one transfer."""
    if settings.offloading is not None:
        settings.offloading.look()
    found = recipe_of(x)
    if found is not None:
        return found
    if settings.way != "offload":
        return Leaf(x)
    Source.of(x).recipe = found = settings.offloading.take(x)
    return found

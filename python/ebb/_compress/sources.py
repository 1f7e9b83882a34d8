# SPDX-License-Identifier: Apache-2.0
"""What is known about tensors of a forward pass."""

from __future__ import annotations

import weakref
from collections.abc import Callable
from typing import Any

from torch import Tensor

from ebb._compress.packed import outer_hooks
from ebb._compress.recipes import Hooks, Leaf, Recipe


class Source(weakref.ref[Tensor]):
    """What is known about a tensor, which it is a reference to.

    recipe: what it depends on is kept in any case. offer: what it depends on is kept, but it takes long.
    Both only where the same saved-tensor hooks are around: those of a torch.utils.checkpoint count what is saved, and must
    find it again when they run the same layers on their own, where nothing is known of what came before.
    """

    __slots__ = ("_address", "_hooks", "_kept", "_offer", "_recipe", "_seen_as", "_version", "name")

    def __init__(self, tensor: Tensor, gone: Callable[[Any], None]):
        super().__init__(tensor, gone)  # type: ignore[call-arg]
        self.name = id(tensor)
        self._version, self._address = tensor._version, tensor.data_ptr()
        self._recipe: weakref.ref[Recipe] | None = None
        self._offer: weakref.ref[Recipe] | None = None
        self._kept: dict[Any, weakref.ref[Leaf]] | None = None
        self._hooks: Hooks | None = None
        self._seen_as: tuple[weakref.ref[Recipe], Callable[..., Tensor]] | None = None

    @staticmethod
    def known(tensor: Tensor) -> Source | None:
        """None where nothing is known, or where the tensor has changed since."""
        found = _SOURCES.get(id(tensor))
        if found is None or found._version != tensor._version or found() is not tensor:
            return None
        return found if found._address == tensor.data_ptr() else None

    @staticmethod
    def of(tensor: Tensor) -> Source:
        """An empty one where nothing is known."""
        found = Source.known(tensor)
        if found is None:
            found = _SOURCES[id(tensor)] = Source(tensor, _gone)
        return found

    @property
    def recipe(self) -> Recipe | None:
        if (self._recipe is None and self._seen_as is None) or self._hooks != outer_hooks():
            return None
        found = None if self._recipe is None else self._recipe()
        if found is None and self._seen_as is not None and (first := self._seen_as[0]()) is not None:
            found = Recipe(self._seen_as[1], first)
            self._recipe = weakref.ref(found)
        return found

    @recipe.setter
    def recipe(self, recipe: Recipe) -> None:
        self._recipe, self._hooks = weakref.ref(recipe), outer_hooks()

    def seen_as(self, first: Recipe, view: Callable[..., Tensor]) -> None:
        """It is a view of what another recipe gives. Nothing is saved by a view that could own a recipe of its own, so there is
        one when somebody asks."""
        self._seen_as, self._hooks = (weakref.ref(first), view), outer_hooks()

    @property
    def offer(self) -> Recipe | None:
        return None if self._offer is None or self._hooks != outer_hooks() else self._offer()

    @offer.setter
    def offer(self, offer: Recipe) -> None:
        self._offer, self._hooks = weakref.ref(offer), outer_hooks()

    def copy(self, name: Any) -> Leaf | None:
        """A smaller copy that another layer keeps of it."""
        found = None if self._kept is None else self._kept.get(name)
        return None if found is None else found()

    def keep_copy(self, name: Any, leaf: Leaf) -> None:
        if self._kept is None:
            self._kept = {}
        self._kept[name] = weakref.ref(leaf)


# Not an attribute of the tensor: that would go into files and copies of it.
_SOURCES: dict[int, Source] = {}


# At the end of a process, names of modules go first.
def _gone(source: Any, sources: dict[int, Source] = _SOURCES) -> None:
    name = source.name
    if sources.get(name) is source:
        del sources[name]


def recipe_of(tensor: Tensor) -> Recipe | None:
    found = Source.known(tensor)
    return None if found is None else found.recipe

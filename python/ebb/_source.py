# SPDX-License-Identifier: Apache-2.0
"""Sources: how a tensor can be had again in the backward pass, so that it need not be kept.

A layer that keeps its input leaves a recipe on its output: relu(norm(x)) can be computed from x. The next layer then keeps the
recipe where it would have kept the tensor. Recipes compute with the operations of the forward pass: the same bits.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor

from ebb._errors import Error

Hooks = tuple[Callable[[Tensor], Any], Callable[[Any], Tensor]]

_NAME = "_ebb_source"


def outer_hooks() -> Hooks | None:
    """The saved-tensor hooks around us; an older torch does not say."""
    top = getattr(torch._C._autograd, "_top_saved_tensors_default_hooks", None)
    return top(True) if top is not None else None


def foreign_hooks() -> bool:
    """Whether somebody else's hooks see what is saved here."""
    top = outer_hooks()
    if top is None:
        return False
    pack, unpack = top
    return unpack is not _unpack or pack.__self__._outer is not None  # type: ignore[attr-defined]


class Leaf:
    """A tensor that is kept as it is. `shared` are those whose bytes are there anyway: parameters, small ones."""

    def __init__(self, tensor: Tensor, shared: bool = False):
        self._tensor: Tensor | None = tensor.detach()
        self._version = tensor._version
        self._shared = shared
        self._packed: Any = None
        self._unpack: Callable[[Any], Tensor] | None = None

    def hold(self, outer: Hooks | None) -> None:
        """What surrounds us (an ebb.offload, torch's save_on_cpu) moves it as it moves what others save."""
        if outer is None or self._shared or self._tensor is None:
            return
        pack, self._unpack = outer
        self._packed = pack(self._tensor)
        self._tensor = None

    def get(self) -> Tensor:
        if self._unpack is not None:
            return self._unpack(self._packed)
        assert self._tensor is not None
        if self._tensor._version != self._version:
            raise Error(f"a tensor of shape {tuple(self._tensor.shape)} that a compressed layer needs for its backward pass was "
                        "changed in place after the forward pass; call backward() before changing it, or change a clone")
        return self._tensor


class Recipe:
    """A value and how to compute it again. `compute(value of the first part, may it be overwritten, other values)`.

    It is read once in each backward pass by everyone who keeps it, and remembered from the first read to the last.
    """

    def __init__(self, compute: Callable[..., Tensor], first: Recipe | Leaf, others: Sequence[Leaf] = ()):
        self._compute, self._first, self._others = compute, first, others
        self._readers = 0
        self._reads = 0
        self._value: Tensor | None = None

    def hold(self, outer: Hooks | None) -> None:
        self._first.hold(outer)
        for other in self._others:
            other.hold(outer)

    def keep(self, outer: Hooks | None) -> None:
        """One more layer keeps it."""
        self._readers += 1
        self.hold(outer)

    def read(self) -> Tensor:
        """For one of those who keep it."""
        value = self._get()
        self._reads += 1
        if self._reads % self._readers == 0:
            self._value = None
        else:
            self._remember(value)
        return value

    def _get(self) -> Tensor:
        if self._value is not None:
            return self._value
        with torch.no_grad():
            if isinstance(self._first, Leaf):
                value, mine = self._first.get(), False
            else:
                value, mine = self._first._pass_on()
            return self._compute(value, mine, *[other.get() for other in self._others])

    def _pass_on(self) -> tuple[Tensor, bool]:
        """For a recipe that goes on from here. Those who keep this one read it later in the same backward pass."""
        value = self._get()
        if self._readers > 0:
            self._remember(value)
        return value, self._value is None

    def _remember(self, value: Tensor) -> None:
        if self._value is None:
            try:
                # A backward pass that leaves out some readers must not leave the value behind.
                torch.autograd.Variable._execution_engine.queue_callback(self._forget)
            except RuntimeError:
                return  # read outside of a backward pass
            self._value = value

    def _forget(self) -> None:
        self._value = None
        self._reads = 0


class Source:
    """What is known about a tensor.

    recipe: what it depends on is kept in any case. offer: what it depends on is kept, but it takes long. kept: smaller copies
    that layers keep of it.
    """

    def __init__(self, tensor: Tensor):
        self._version = tensor._version
        self.recipe: Recipe | None = None
        self.offer: Recipe | None = None
        self.kept: dict[Any, Tensor] = {}

    @staticmethod
    def known(tensor: Tensor) -> Source | None:
        """None where nothing is known, or where the tensor has changed since."""
        found = getattr(tensor, _NAME, None)
        return found if found is not None and found._version == tensor._version else None

    @staticmethod
    def of(tensor: Tensor) -> Source:
        """An empty one where nothing is known."""
        found = Source.known(tensor)
        if found is None:
            found = Source(tensor)
            setattr(tensor, _NAME, found)
        return found

    def start(self, tensor: Tensor) -> Recipe | Leaf:
        """Where a recipe for something computed from `tensor` begins."""
        return self.recipe or Leaf(tensor)


class _Kept:
    def __init__(self, recipe: Recipe, outer: Hooks | None):
        self.recipe = recipe
        recipe.keep(outer)


class keeping:  # noqa: N801 - a context
    """Operations inside keep `recipe` where they would save `tensor`; None: whatever they save."""

    def __init__(self, recipe: Recipe, tensor: Tensor | None = None):
        self._recipe, self._tensor, self._all = recipe, tensor, tensor is None
        self._outer = outer_hooks()
        self._hooks = torch.autograd.graph.saved_tensors_hooks(self._pack, _unpack)

    def __enter__(self) -> None:
        self._hooks.__enter__()

    def __exit__(self, *error: Any) -> None:
        self._hooks.__exit__(*error)
        self._tensor = None  # torch keeps the hooks as long as what they packed

    def _pack(self, saved: Tensor) -> Any:
        if self._all or _same_memory(saved, self._tensor):
            return _Kept(self._recipe, self._outer)
        return _leaf(saved, self._outer)


class watching:  # noqa: N801 - a context
    """Operations inside keep recipes where they would save tensors that have one: those of torch that are no layers of ours."""

    def __init__(self) -> None:
        self._outer = outer_hooks()
        self._hooks = torch.autograd.graph.saved_tensors_hooks(self._pack, _unpack)

    def __enter__(self) -> None:
        self._hooks.__enter__()

    def __exit__(self, *error: Any) -> None:
        self._hooks.__exit__(*error)

    def _pack(self, saved: Tensor) -> Any:
        source = Source.known(saved)
        if source is not None and source.recipe is not None:
            return _Kept(source.recipe, self._outer)
        return _leaf(saved, self._outer)


def _leaf(saved: Tensor, outer: Hooks | None) -> Leaf:
    """Torch does not look for changes in place where hooks are; a leaf does."""
    leaf = Leaf(saved)
    leaf.hold(outer)
    return leaf


def _unpack(packed: _Kept | Leaf) -> Tensor:
    return packed.recipe.read() if isinstance(packed, _Kept) else packed.get()


def _same_memory(one: Tensor, other: Tensor | None) -> bool:
    return one is other or (other is not None and one.numel() > 0 and one.data_ptr() == other.data_ptr()
                            and one.shape == other.shape and one.stride() == other.stride() and one.dtype == other.dtype)

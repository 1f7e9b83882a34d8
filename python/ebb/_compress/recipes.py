# SPDX-License-Identifier: Apache-2.0
"""Sources: how a tensor can be recomputed in the backward pass, so that it need not be kept.

A layer that keeps its input leaves a recipe on its output: relu(norm(x)) can be computed from x. The next layer then keeps the
recipe where it would have kept the tensor. Recipes compute with the operations of the forward pass: the same bits.

The autograd graph alone owns what is kept: a recipe lives in what the layer that left it saved, and tensors know it weakly. So
what torch frees when a node of the graph has run is freed here too, whoever still holds the tensors.
"""

from __future__ import annotations

import weakref
from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor

from ebb._base.errors import Error

Hooks = tuple[Callable[[Tensor], Any], Callable[[Any], Tensor]]

_CHANGED = (
    "a tensor of shape {} that a compressed layer needs for its backward pass was changed in place after the forward pass; "
    "call backward() before changing it, or change a clone"
)


_top_hooks = getattr(torch._C._autograd, "_top_saved_tensors_default_hooks", None)


def outer_hooks() -> Hooks | None:
    """The saved-tensor hooks of somebody else around us; an older torch does not say."""
    top = _top_hooks(True) if _top_hooks is not None else None
    if top is not None and top[1] is _unpack:
        return top[0].__self__.outer
    return top


def can_be_watched() -> bool:
    """An older torch, 2.6 for one, does not say whose hooks are around."""
    return _top_hooks is not None


def is_watched() -> bool:
    """Whether what operations save here goes through our hooks first. Who only looks on (record.py) says so."""
    top = _top_hooks(True) if _top_hooks is not None else None
    return top is not None and (top[1] is _unpack or getattr(top[0], "looks_on", False))


class _Value:
    """What can be had in the backward pass. Each reader reads it once in a pass; it is remembered from the first to the last."""

    def __init__(self) -> None:
        self._readers = 0  # saved tensors of the graph that are not freed
        self._done = 0  # of those, in this turn
        self._turn = 0
        self._value: Tensor | None = None

    def enrol(self) -> None:
        self._readers += 1

    def dismiss(self, turn: int) -> None:
        self._readers -= 1
        if turn == self._turn:
            self._done -= 1
        if self._value is not None and self._done >= self._readers:
            self._forget()

    def read(self, turn: int) -> tuple[Tensor, int]:
        """For a reader whose last turn is given; also says which turn this was."""
        value, _ = self._get()
        now = self._turn
        if turn != now:
            self._done += 1
        if self._done >= self._readers:
            self._forget()
        else:
            self._remember(value)
        return value, now

    def pass_on(self) -> tuple[Tensor, bool]:
        """For a recipe that goes on from here, and whether it may overwrite it. Readers come later in the same backward pass."""
        value, mine = self._get()
        if self._readers > 0:
            self._remember(value)
        return value, mine and self._value is None

    def _get(self) -> tuple[Tensor, bool]:
        value = self._value
        return self._make() if value is None else (value, False)

    def _make(self) -> tuple[Tensor, bool]:
        """The value, and whether nothing else holds it."""
        raise NotImplementedError

    def _remember(self, value: Tensor) -> None:
        if self._value is None:
            me = weakref.ref(self)  # the engine must not keep alive until the end what is freed on the way

            def forget() -> None:
                if (found := me()) is not None:
                    found._forget()

            try:
                # A backward pass that leaves out some readers must not leave the value behind.
                torch.autograd.Variable._execution_engine.queue_callback(forget)
            except RuntimeError:
                return  # read outside of a backward pass
            self._value = value

    def _forget(self) -> None:
        self._value = None
        self._done = 0
        self._turn += 1


class Leaf(_Value):
    """A tensor that is kept as it is."""

    exact = True

    def __init__(self, tensor: Tensor):
        super().__init__()
        self._tensor: Tensor | None = tensor.detach()
        self._version = tensor._version
        self._packed: Any = None
        self.hooks: Hooks | None = None

    def hold(self, saved: Tensor, outer: Hooks | None) -> None:
        """What surrounds us (an ebb.offload, torch's save_on_cpu) moves it as it moves what others save."""
        if outer is None or self._tensor is None:
            return
        self._packed, self.hooks = outer[0](saved), outer
        self._tensor = None

    def held_by(self, outer: Hooks | None) -> bool:
        return self.hooks == outer

    @property
    def tensor(self) -> Tensor | None:
        return self._tensor

    def _make(self) -> tuple[Tensor, bool]:
        if self.hooks is not None:
            return self.hooks[1](self._packed), False
        assert self._tensor is not None
        if self._tensor._version != self._version:
            raise Error(_CHANGED.format(tuple(self._tensor.shape)))
        if self._tensor.untyped_storage().nbytes() == 0 and self._tensor.numel() > 0:
            raise Error(
                f"the memory of a tensor of shape {tuple(self._tensor.shape)} that a compressed layer needs for its backward "
                "pass has been freed, as FSDP does with parameters; put this layer and the one after it into one "
                'unit, or use norm="exact"'
            )
        return self._tensor, False

    def _remember(self, value: Tensor) -> None:
        if self.hooks is not None:  # some allow only one look in a backward pass
            super()._remember(value)


class Recipe(_Value):
    """A value and how to compute it again: `compute(value of the first part, may it be overwritten, other values)`. `exact`:
    with the bits it had; else about."""

    def __init__(
        self, compute: Callable[..., Tensor], first: Recipe | Leaf, others: Sequence[Leaf] = (), exact: bool = True
    ):
        super().__init__()
        self._compute, self._first, self._others = compute, first, others
        self.exact: bool = exact and first.exact

    def _make(self) -> tuple[Tensor, bool]:
        first, mine = self._first.pass_on()
        kind = first.device.type
        with torch.no_grad():
            others = [other.pass_on()[0] for other in self._others]
            if torch.is_autocast_enabled(
                kind
            ):  # a backward() inside of it; types are what they were in the forward pass
                with torch.autocast(kind, enabled=False):
                    value = self._compute(first, mine, *others)
            else:
                value = self._compute(first, mine, *others)
        return value, mine or value.data_ptr() != first.data_ptr()


class Source:
    """What is known about a tensor.

    recipe: what it depends on is kept in any case. offer: what it depends on is kept, but it takes long. Both only where the
    same saved-tensor hooks are around: those of a torch.utils.checkpoint count what is saved, and must find it again when they
    run the same layers on their own, where nothing is known of what came before.
    """

    def __init__(self, tensor: Tensor):
        self._version, self._address = tensor._version, tensor.data_ptr()
        self._recipe: weakref.ref[Recipe] | None = None
        self._offer: weakref.ref[Recipe] | None = None
        self._kept: dict[Any, weakref.ref[Leaf]] = {}
        self._hooks: Hooks | None = None
        self._seen_as: tuple[weakref.ref[Recipe], Callable[..., Tensor]] | None = None

    @staticmethod
    def known(tensor: Tensor) -> Source | None:
        """None where nothing is known, or where the tensor has changed since."""
        known = _SOURCES.get(id(tensor))
        return known[1] if known is not None and known[0]() is tensor and known[1]._is_of(tensor) else None

    @staticmethod
    def of(tensor: Tensor) -> Source:
        """An empty one where nothing is known."""
        found = Source.known(tensor)
        if found is not None:
            return found
        name, found, sources = (
            id(tensor),
            Source(tensor),
            _SOURCES,
        )  # at the end of a process, names of modules go first

        def gone(ref: weakref.ref[Tensor]) -> None:
            if (now := sources.get(name)) is not None and now[0] is ref:
                del sources[name]

        _SOURCES[name] = (weakref.ref(tensor, gone), found)
        return found

    def _is_of(self, tensor: Tensor) -> bool:
        return self._version == tensor._version and self._address == tensor.data_ptr()

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
        """It is a view of what another recipe gives. Nothing is saved by a view that could own a recipe of its own, so there is one when
        somebody asks."""
        self._seen_as, self._hooks = (weakref.ref(first), view), outer_hooks()

    @property
    def offer(self) -> Recipe | None:
        return None if self._offer is None or self._hooks != outer_hooks() else self._offer()

    @offer.setter
    def offer(self, offer: Recipe) -> None:
        self._offer, self._hooks = weakref.ref(offer), outer_hooks()

    def copy(self, name: Any) -> Leaf | None:
        """A smaller copy that another layer keeps of it."""
        found = self._kept.get(name)
        return None if found is None else found()

    def keep_copy(self, name: Any, leaf: Leaf) -> None:
        self._kept[name] = weakref.ref(leaf)


def recipe_of(tensor: Tensor) -> Recipe | None:
    found = Source.known(tensor)
    return None if found is None else found.recipe


# Not an attribute of the tensor: that would go into files and copies of it.
_SOURCES: dict[int, tuple[weakref.ref[Tensor], Source]] = {}


class _Packed:
    """What the graph saves: a value to read, and the recipe that rests on it."""

    __slots__ = ("_value", "_leaves", "_turn")

    def __init__(self, value: _Value, leaves: Recipe | None):
        self._value, self._leaves, self._turn = value, leaves, -1
        value.enrol()

    def read(self) -> Tensor:
        value, self._turn = self._value.read(self._turn)
        return value

    def __del__(self) -> None:
        self._value.dismiss(self._turn)


class _Hooks:
    """A context with saved-tensor hooks of ours."""

    def __init__(self) -> None:
        self.outer = outer_hooks()
        self._hooks = torch.autograd.graph.saved_tensors_hooks(self._pack, _unpack)

    def __enter__(self) -> None:
        self._hooks.__enter__()

    def __exit__(self, *error: Any) -> None:
        self._hooks.__exit__(*error)

    def _pack(self, saved: Tensor) -> Any:
        raise NotImplementedError

    def _as_torch(self, saved: Tensor) -> Any:
        """Torch does not look for changes in place where hooks are: what is saved comes with its version."""
        if self.outer is not None:
            pack, unpack = self.outer
            return pack(saved), None, unpack
        return saved.detach() if saved.grad_fn is not None else saved, saved._version, None


class keeping(_Hooks):
    """Operations inside keep `value` where they would save `tensor` (None: whatever they save), and with it `leaves`, a recipe
    that rests on it: it is the output's. If they do not save `tensor` that recipe is gone with its last user."""

    def __init__(self, value: Recipe | Leaf, tensor: Tensor | None, leaves: Recipe | None = None):
        super().__init__()
        self._value, self._tensor, self._leaves = value, tensor, leaves
        self._all = tensor is None

    def __exit__(self, *error: Any) -> None:
        super().__exit__(*error)
        del self._value, self._tensor, self._leaves, self._hooks  # torch has the hooks as long as what they packed

    def _pack(self, saved: Tensor) -> Any:
        if not self._all and not _same_memory(saved, self._tensor):
            return self._as_torch(saved)
        if isinstance(self._value, Leaf):
            self._value.hold(saved, self.outer)
        return _Packed(self._value, self._leaves)


class watching(_Hooks):
    """Operations inside keep recipes where they would save tensors that have one: those of torch that are no layers of ours."""

    def __exit__(self, *error: Any) -> None:
        super().__exit__(*error)
        del self._hooks

    def take_off(self) -> None:
        """The end, also where hooks of others are on top: those stay."""
        others = []
        while _top_hooks is not None and (top := _top_hooks(True)) is not None:
            if getattr(top[0], "__self__", None) is self:
                break
            others.append(top)
            torch._C._autograd._pop_saved_tensors_default_hooks()
        if _top_hooks is None or _top_hooks(True) is not None:
            self.__exit__(None, None, None)
        for pair in reversed(others):
            torch._C._autograd._push_saved_tensors_default_hooks(*pair)

    def _pack(self, saved: Tensor) -> Any:
        recipe = recipe_of(saved)
        return self._as_torch(saved) if recipe is None or not recipe.exact else _Packed(recipe, None)


class unwatched:
    """Inside, what `watching` has no use for is saved as if it were not there: faster."""

    def __enter__(self) -> None:
        top = _top_hooks(True) if _top_hooks is not None else None
        self._pair = top if top is not None and top[1] is _unpack and top[0].__self__.outer is None else None
        if self._pair is not None:
            torch._C._autograd._pop_saved_tensors_default_hooks()

    def __exit__(self, *error: Any) -> None:
        if self._pair is not None:
            torch._C._autograd._push_saved_tensors_default_hooks(*self._pair)


def _unpack(packed: Any) -> Tensor:
    if type(packed) is _Packed:
        return packed.read()
    saved, version, unpack = packed
    if unpack is not None:
        return unpack(saved)
    if saved._version != version:
        raise Error(_CHANGED.format(tuple(saved.shape)))
    return saved


def _same_memory(one: Tensor, other: Tensor | None) -> bool:
    return one is other or (
        other is not None
        and one.numel() > 0
        and one.data_ptr() == other.data_ptr()
        and one.shape == other.shape
        and one.stride() == other.stride()
        and one.dtype == other.dtype
    )

# SPDX-License-Identifier: Apache-2.0
"""How operations of torch come to keep something else than the tensors they would save."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import torch
from torch import Tensor

from ebb._compress.packed import Packed, can_be_watched, foreign, outer_hooks, top_hooks, unpack
from ebb._compress.recipes import Hooks, Leaf, Recipe
from ebb._compress.sources import recipe_of

Run = Callable[[], Tensor]

_push = torch._C._autograd._push_saved_tensors_default_hooks
_pop = torch._C._autograd._pop_saved_tensors_default_hooks


class _Hooks:
    """A context with saved-tensor hooks of ours."""

    def __init__(self) -> None:
        self.outer = outer_hooks()
        self._hooks = torch.autograd.graph.saved_tensors_hooks(self._pack, unpack)

    def __enter__(self) -> None:
        self._hooks.__enter__()

    def __exit__(self, *error: Any) -> None:
        self._hooks.__exit__(*error)

    def _pack(self, saved: Tensor) -> Any:
        raise NotImplementedError

    def _as_torch(self, saved: Tensor) -> Any:
        """Torch does not look for changes in place where hooks are: what is saved comes with its version."""
        if self.outer is not None:
            pack, unpack_outer = self.outer
            return pack(saved), None, unpack_outer
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
        return Packed(self._value, self._leaves)


class watching(_Hooks):
    """Operations inside keep recipes where they would save tensors that have one: those of torch that are no layers of ours."""

    def __exit__(self, *error: Any) -> None:
        super().__exit__(*error)
        del self._hooks

    def take_off(self) -> None:
        """The end, also where hooks of others are on top: those stay."""
        others = []
        while (top := top_hooks()) is not None:
            if getattr(top[0], "__self__", None) is self:
                break
            others.append(top)
            _pop()
        if top is not None or not can_be_watched():
            self.__exit__(None, None, None)
        for pair in reversed(others):
            _push(*pair)

    def _pack(self, saved: Tensor) -> Any:
        recipe = recipe_of(saved)
        return self._as_torch(saved) if recipe is None or not recipe.exact else Packed(recipe, None)


class Saved(NamedTuple):
    """What a node of torch's calls the one tensor that it need not keep. seen: the name under which that is asked whether it is the
    layer's input; None where it cannot be something else, since the node saves nothing more."""

    raw: str
    seen: str | None


INPUT = Saved("_raw_saved_input", "_saved_input")
OWN = Saved("_raw_saved_self", "_saved_self")
COPY = Saved("_raw_saved_self", None)  # which torch makes of an input that is overwritten
RESULT = Saved("_raw_saved_result", None)


def run_keeping(run: Run, x: Tensor, what: Saved, value: Recipe | Leaf, leaves: Recipe | None) -> Tensor:
    """What `run` gives, an operation of torch's on x. It keeps `value` in the place of `what`, and with it `leaves`, as in `keeping`."""
    top = top_hooks()
    # Hooks are asked for every tensor that is saved, each time in Python. The node itself is told of the one, if no others are around.
    if foreign(top) or x._is_view():
        with keeping(value, None if what.seen is None else x, leaves):
            return run()
    out = _without(top, run)
    node = out.grad_fn
    raw = getattr(node, what.raw, None)
    if raw is not None and (what.seen is None or getattr(node, what.seen) is x):
        raw.register_hooks(Packed(value, leaves).instead, Packed.read)
    return out


def run_bare(run: Run) -> Tensor:
    """What `run` gives, where no tensor has a recipe: then `watching` has no use for it, and without it saving is faster."""
    top = top_hooks()
    return run() if foreign(top) else _without(top, run)


def _without(top: Hooks | None, run: Run) -> Tensor:
    tops = []
    while top is not None:  # of models in models, several
        tops.append(top)
        _pop()
        top = top_hooks()
    try:
        return run()
    finally:
        while tops:
            _push(*tops.pop())


def _same_memory(one: Tensor, other: Tensor | None) -> bool:
    return one is other or (
        other is not None
        and one.numel() > 0
        and one.data_ptr() == other.data_ptr()
        and one.shape == other.shape
        and one.stride() == other.stride()
        and one.dtype == other.dtype
    )

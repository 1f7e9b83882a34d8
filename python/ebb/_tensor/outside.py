# SPDX-License-Identifier: Apache-2.0
"""State that a function keeps outside of its arguments: attributes, variables and items that it binds anew.

Its tensors are carries, which have gradients; numbers and the like are kept beside. Where a loop begins the places hold
whatever the caller left there; from the first block on they hold tensors of the same kinds."""

from __future__ import annotations

import collections
import enum
import types
import weakref
from collections.abc import Iterator
from itertools import chain
from operator import is_
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor
from torch.utils import _pytree

from ebb._base.errors import Error
from ebb._tensor.function_key import object_key
from ebb._tensor.places import MISSING, WHOLE, Items, Missing, Place, Seen, View, changed, look, put_back, value_seen
from ebb._tensor.trees import flatten, leaves_of, mapped

# What cannot change but by being bound anew.
_FIXED = (
    int,
    float,
    complex,
    str,
    bytes,
    type(None),
    Missing,
    enum.Enum,
    range,
    slice,
    type,
    types.BuiltinFunctionType,
    types.ModuleType,
    np.generic,
    weakref.ReferenceType,
    torch.dtype,
    torch.device,
    torch.Size,
)


class Carried(list[Any]):
    """A list of ours that f gets its carry from: its tensors are given as they are, like any carry, and not as clones."""


class _At(NamedTuple):
    """Stands for the tensor at this place of the carry."""

    leaf: int


class Form(NamedTuple):
    """A value without its tensors."""

    spec: Any
    parts: list[Any]


Kind = tuple[torch.Size, torch.dtype, torch.device]


class Outside:
    """moving: what is known to change, as places and keys. `own`: how many leaves the caller's carry has."""

    def __init__(self, places: list[Place], known: dict[int, Any]):
        self._places = places
        self._known = known  # objects that were there before, whose own places are watched
        self.storages: dict[int, str] = {}  # of the tensors that were taken last, with names of their places
        self._shared: set[int] = set()  # leaves of that carry which share memory with others
        self._given: dict[int, tuple[Tensor, int]] = {}  # by leaf of that carry, with their versions
        self._writes = False  # f has been seen to change some of them in place
        self._unused: dict[int, Tensor] = {}
        self.moving: list[tuple[int, Any]] = []
        self.own = 0
        self._start: list[Any] = []
        self._views: list[View] = []  # of what is not known to change
        self._sizes: list[int] = []  # of the views
        self._seen: list[Any] = []  # in them
        self._partly: list[tuple[Place, dict[Any, Any], set[Any]]] = []
        self.forms: list[Form] = []
        self._kinds: list[list[Kind]] | None = None

    @property
    def places(self) -> list[Place]:
        return self._places

    @property
    def start(self) -> list[Any]:
        """What lies in the places that change where the loop begins."""
        return self._start

    def look(self) -> Seen:
        return look(self._places)

    def put_back(self, seen: Seen) -> None:
        put_back(self._places, seen)

    def as_seen(self, seen: Seen) -> list[tuple[Place, Any, Any]]:
        """Binds everything as it was seen. Returns what was there, and what lies where f puts something: to be put back.
        Items of containers that f leaves alone stay as they are: hooks may write to them meanwhile."""
        undone = {
            (k, key): (self._places[k], key, self._places[k].get(key))
            for k, key in [*self.moving, *changed(self._places, seen)]
            if (k, key) in self.moving or not isinstance(self._places[k], Items)
        }
        for k, key in undone:
            self._places[k].put(key, value_seen(self._places, seen, k, key))
        return list(undone.values())

    def names(self) -> list[str]:
        return [self._places[k].said(key) for k, key in self.moving]

    def begin(self, seen: Seen, own: int) -> None:
        """A loop begins, where all is as it was seen."""
        self.own = own
        self.forms, self._kinds, self._given = [], None, {}
        self._start = [value_seen(self._places, seen, k, key) for k, key in self.moving]
        moving: dict[int, set[Any]] = {}
        for k, key in self.moving:
            moving.setdefault(k, set()).add(key)
        self._views, self._sizes, self._seen = [], [], []
        for k, place in enumerate(self._places):
            views = [] if k in moving else place.views()
            if views:
                self._views += views
                self._sizes += [len(seen[k][1]) // len(views)] * len(views)
                self._seen += seen[k][1]
        self._partly = [(self._places[k], dict(zip(*seen[k])), keys) for k, keys in moving.items() if WHOLE not in keys]

    def is_still(self) -> bool:
        """Nothing has changed but what is known to."""
        if list(map(len, self._views)) != self._sizes:
            return False
        if not all(map(is_, self._seen, chain.from_iterable(self._views))):
            return False
        for place, before, moving in self._partly:
            for key, value in zip(place.keys(), place.values()):
                if key not in moving and before.get(key, MISSING) is not value:
                    return False
            for key, value in before.items():
                if key not in moving and value is not MISSING and place.get(key) is MISSING:
                    return False
        return True

    def learn(self, seen: Seen) -> bool:
        """Whether more has changed since than was known to."""
        known = set(self.moving)
        new = [entry for entry in changed(self._places, seen) if entry not in known]
        self.moving += new
        return bool(new)

    def start_tensors(self) -> list[Tensor]:
        """Those with a history that lie there where the loop begins: its first block gets them as carries too, since they
        may come from what f uses."""
        leaves = leaves_of(self._start)
        found = {id(leaf): leaf for leaf in leaves if _has_history(leaf) and id(leaf) not in self._unused}
        return list(found.values())

    def leave_out(self, unused: list[int]) -> None:
        """Of start_tensors(), by their places, those that no step reads: their graphs may be gone."""
        tensors = self.start_tensors()
        self._unused.update((id(tensors[k]), tensors[k]) for k in unused)

    def begin_again(self, given: list[Tensor]) -> None:
        """All places are as where the loop began, with these for start_tensors()."""
        instead = {id(old): new.clone() for old, new in zip(self.start_tensors(), given)}
        for (k, key), value in zip(self.moving, self._start):
            if instead:
                value = mapped(lambda leaf: instead.get(id(leaf), leaf), value)
            self._places[k].put(key, value)

    def results(self, own: list[Any], rest: Iterator[Tensor]) -> list[Any]:
        """The last carry, of a loop's results: what is behind the caller's leaves is next."""
        at = _leaves_of(self.forms)
        return own + [next(rest) if k in at else None for k in range(self.own, self.own + len(at))]

    def give(self, carry: list[Any], clone: bool = True) -> None:
        """Puts the tensors of a carry where they belong; clones, where f changes them in place. Else they are given as they are: a
        gradient that is added to a clone, and not to the tensor itself, is added in another order."""
        self._given = {}

        def tensor(leaf: int, clone: bool) -> Any:
            if leaf < self.own:
                return carry[leaf]
            if leaf not in self._given:
                given = carry[leaf].clone() if clone else carry[leaf]
                self._given[leaf] = given, given._version
            return self._given[leaf][0]

        for (k, key), form in zip(self.moving, self.forms):
            place = self._places[k]
            cloned = clone and self._writes and not (isinstance(place, Items) and isinstance(place.container, Carried))
            leaves = [tensor(part.leaf, cloned) if type(part) is _At else part for part in form.parts]
            place.put(key, _pytree.tree_unflatten(leaves, form.spec))

    def take(self, own: list[Any], given: list[Any]) -> list[Tensor | None]:
        """The tensors that lie there now; None for one that is there, or in the caller's carry, already: so that its
        gradients are added as autograd adds them. `given`: the carry before, of which some may be left."""
        self._check_shared()
        before = {id(leaf) for leaf in given}
        at = {id(leaf): k for k, leaf in enumerate(own) if leaf is not None}
        containers: set[int] = set()
        found: list[Tensor | None] = []
        forms, kinds = [], []
        for k, key in self.moving:
            place = self._places[k]
            value = place.get(key)
            _check_alone(place, key, place.container if isinstance(place, Items) else value, containers)
            leaves, spec = flatten(value)
            if any(isinstance(leaf, Tensor) and leaf.layout is not torch.strided for leaf in leaves):
                raise _refusal(place.said(key), "it holds a sparse tensor")
            parts: list[Any] = []
            kinds.append([(leaf.shape, leaf.dtype, leaf.device) for leaf in leaves if _is_carried(leaf, before)])
            for leaf in leaves:
                if _is_carried(leaf, before):
                    found.append(None if id(leaf) in at else leaf)
                    parts.append(_At(at.setdefault(id(leaf), len(own) + len(found) - 1)))
                elif isinstance(leaf, (_FIXED, Tensor)) or id(leaf) in self._known:
                    parts.append(leaf)
                else:
                    raise _refusal(place.said(key), f"it holds a {type(leaf).__name__}, which cannot be put back")
            forms.append(Form(spec, parts))
        self._check(kinds)
        self.forms = forms
        self._note_memory(own, found)
        return found

    def _note_memory(self, own: list[Any], found: list[Tensor | None]) -> None:
        at: dict[int, list[int]] = {}
        for k, leaf in enumerate(own + found):
            if leaf is not None:
                at.setdefault(leaf.untyped_storage()._cdata, []).append(k)
        self._shared = {k for leaves in at.values() if len(leaves) > 1 for k in leaves}
        names = [name for name, form in zip(self.names(), self.forms) for _ in _leaves_of([form])]
        self.storages = {leaf.untyped_storage()._cdata: name for leaf, name in zip(found, names) if leaf is not None}

    def _check_shared(self) -> None:
        """Tensors that share memory are apart when a block begins: none of them may be written to."""
        for leaf, (tensor, version) in self._given.items():
            if leaf in self._shared and tensor._version > version:
                name = next(name for name, form in zip(self.names(), self.forms) if leaf in _leaves_of([form]))
                raise _refusal(name, "it shares memory with another tensor and is changed in place")

    def wrote(self) -> bool:
        """Whether f has changed some of them in place, and had not before."""
        if self._writes:
            return False
        self._writes = any(tensor._version > version for tensor, version in self._given.values())
        return self._writes

    def may_write(self) -> bool:
        """A step wrote to a leaf of its graph: whether that may have been one of them, as it was not known to."""
        known, self._writes = self._writes, True
        return not known

    def without_gradient(self, carry: list[Any]) -> frozenset[int]:
        """After the first block: which leaves have none. Of a tensor that the block left alone nothing is known."""
        left_alone = {id(leaf) for leaf in leaves_of(self._start)}
        return frozenset(
            k
            for k, leaf in enumerate(carry)
            if k >= self.own and leaf is not None and not leaf.requires_grad and id(leaf) not in left_alone
        )

    def _check(self, kinds: list[list[Kind]]) -> None:
        if self._kinds is None:
            self._kinds = kinds
        for name, before, now in zip(self.names(), self._kinds, kinds):
            if before != now:
                raise _refusal(name, f"after the first block it held {_said(before)} and then {_said(now)}")


def _is_carried(leaf: Any, before: set[int]) -> bool:
    """Parameters stay what they are."""
    return isinstance(leaf, Tensor) and (not (leaf.requires_grad and leaf.is_leaf) or id(leaf) in before)


def _check_alone(place: Place, key: Any, value: Any, met: set[int]) -> None:
    """A container that can be reached in two ways would be two when it is put back."""
    stack = [value]
    while stack:
        one = stack.pop()
        if isinstance(one, (list, dict, collections.deque, set)):
            if id(one) in met:
                raise _refusal(place.said(key), f"its {type(one).__name__} lies in another place too")
            met.add(id(one))
            stack += one.values() if isinstance(one, dict) else one
        elif isinstance(one, tuple):
            stack += one


def filled(leaves: list[Any], forms: list[Form]) -> list[Any]:
    """A carry with tensors also where another leaf is the same one."""
    at = _leaves_of(forms)
    return leaves[: len(leaves) - len(at)] + [leaves[k] for k in at]


def forms_key(forms: list[Form]) -> Any:
    """By which they are the same, but for their tensors."""
    return [(form.spec, [part if type(part) is _At else object_key(part) for part in form.parts]) for form in forms]


def _leaves_of(forms: list[Form]) -> list[int]:
    """For each tensor of the forms, in their order, where it is in the carry."""
    return [part.leaf for form in forms for part in form.parts if type(part) is _At]


def _has_history(leaf: Any) -> bool:
    return isinstance(leaf, Tensor) and leaf.grad_fn is not None


def _said(kinds: list[Kind]) -> str:
    if not kinds:
        return "no tensor"
    shown = ", ".join(f"{str(dtype).removeprefix('torch.')}{list(shape)}" for shape, dtype, _ in kinds[:3])
    return shown if len(kinds) <= 3 else f"{len(kinds)} tensors ({shown}, ...)"


def _refusal(name: str, why: str) -> Error:
    return Error(
        f"{name} changes from step to step, and {why}",
        remedy="make it a part of the carry, or return it as a y",
    )

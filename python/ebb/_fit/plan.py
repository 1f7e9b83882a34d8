# SPDX-License-Identifier: Apache-2.0
"""What a plan for the layers of a model keeps, as numbers alone, and the plan that takes least time within a limit.

A plan gives each layer one of its options, which holds for all its calls; where a call has no use for it (its input is the
caller's, say) that call keeps. Layers are walked in the order in which they run; a layer's backward pass needs at
most what was kept up to there, and what passes by: so the bytes after each layer, with its scratch, are all that the limit is
about. What an option saves depends on the layers before: a norm's input can be computed again only where its convolution keeps
its own input, and what follows a norm keeps nothing only where the norm kept its input. This is the state of the walk.

The search goes from layer to layer with all pairs of bytes and seconds that no other pair beats, for each state. States forget
what no later layer asks for, so there are few of them. It is exact up to the width of a bucket, where there are too many pairs.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, NamedTuple

_PAIRS = 400  # of one state; beyond, one for each bucket of bytes


@dataclass(frozen=True)
class Option:
    """One way of a layer. bytes: of the copy that "compress" keeps; seconds: beyond those of "keep"."""

    way: str = "keep"
    block: int = 0
    codec: str = "int8"
    bytes: int = 0
    seconds: float = 0.0

    @property
    def key(self) -> tuple[str, int, str]:
        return self.way, self.block, self.codec


KEEP = Option()


@dataclass(frozen=True)
class LayerCall:
    """One call of a layer, or operations between layers.

    kind: conv, norm, relu, gate, dropout, linear, or other. x, y: tensors by number; storage: x's memory by number, with that many
    bytes (0: the caller's). own: bytes that it keeps besides x. saved: (tensor, storage, bytes) that "other" saves. bits: what
    a relu keeps where its input cannot be recomputed, or where that is its way. again: seconds to compute y from x. scratch: bytes that pass by.
    """

    name: str
    kind: str
    x: int | None = None
    y: int | None = None
    storage: int | None = None
    x_bytes: int = 0
    own: int = 0
    saved: tuple[tuple[int | None, int, int], ...] = ()
    needs_x: bool = True
    offers: bool = False
    bits: int = 0
    again: float = 0.0
    scratch: int = 0
    options: tuple[Option, ...] = (KEEP,)


class _Recipe(NamedTuple):
    """held: bytes of what is computed again on the way and read by others later. seconds: to compute it from what is kept; 0
    where somebody has read it by then. exact: not from 8 bits."""

    held: int
    seconds: float
    exact: bool = True


@dataclass
class _State:
    recipes: dict[int, _Recipe] = field(default_factory=dict)
    offers: dict[int, _Recipe] = field(default_factory=dict)
    kept: dict[Any, None] = field(default_factory=dict)
    chosen: dict[str, tuple[str, int, str]] = field(default_factory=dict)

    def copy(self) -> _State:
        return _State(dict(self.recipes), dict(self.offers), dict(self.kept), dict(self.chosen))

    def signature(self) -> tuple[Any, ...]:
        return (
            frozenset(self.recipes.items()),
            frozenset(self.offers.items()),
            frozenset(self.kept),
            frozenset(self.chosen.items()),
        )


class _Move(NamedTuple):
    bytes: int
    seconds: float
    held: int  # while its backward pass runs


class _Call:
    """One step on the way through a plan: what it keeps, holds and takes. Changes the state."""

    def __init__(self, state: _State, step: LayerCall, option: Option):
        self._state, self._step, self._option = state, step, option
        self._recipe = None if step.x is None else state.recipes.get(step.x)
        self._total, self._held, self._seconds = 0, 0, option.seconds

    def go(self) -> _Move:
        step, way = self._step, self._option.way
        if way == "offload":
            if self._recipe is None and step.needs_x and step.x is not None:
                self._recipe = self._state.recipes[step.x] = _Recipe(step.x_bytes, 0.0)
            else:
                self._seconds = 0.0
        if way == "compress" and step.kind == "conv":
            self._pooled()
        elif way == "compress" and step.kind in ("norm", "linear"):
            self._coded()
        else:
            getattr(self, f"_{step.kind}", self._other)()
        return _Move(self._total, self._seconds, self._held)

    def _keep(self, key: Any, size: int) -> int:
        if size == 0 or key in self._state.kept:
            return 0
        self._state.kept[key] = None
        return size

    def _keep_x(self) -> int:
        """Where it cannot be recomputed."""
        if self._recipe is not None or not self._step.needs_x:
            return 0
        return self._keep(self._step.storage, self._step.x_bytes)

    def _leave(self, recipe: _Recipe) -> None:
        if self._step.y is not None:
            self._state.recipes[self._step.y] = recipe

    def _pooled(self) -> None:
        self._total += self._keep(("pooled", self._step.x, self._option.block), self._option.bytes)
        if self._recipe is not None:
            self._seconds += self._recipe.seconds

    def _coded(self) -> None:
        self._total += self._option.bytes
        if self._step.kind == "norm":
            self._leave(_Recipe(self._step.x_bytes, self._step.again, exact=False))

    def _conv(self) -> None:
        step, recipe = self._step, self._recipe
        self._total += self._keep_x()
        if recipe is not None:
            self._held += recipe.held
        if step.offers and step.y is not None and (recipe is None or recipe.exact):
            before = 0 if recipe is None else recipe.held + step.x_bytes
            self._state.offers[step.y] = _Recipe(before, step.again)

    def _norm(self) -> None:
        step = self._step
        offer = None if step.x is None else self._state.offers.get(step.x)
        if self._recipe is not None and not self._recipe.exact:
            self._recipe = None
        if self._recipe is None and self._option.way == "recompute" and offer is not None:
            self._recipe = _Recipe(offer.held + step.x_bytes, 0.0)
            self._seconds += offer.seconds
        self._linear()
        self._leave(_Recipe(self._held, step.again))

    def _relu(self) -> None:
        recipe = self._recipe
        reads = recipe is not None and recipe.exact and self._option.way != "bits"
        if not reads:
            self._total += self._step.bits
        if recipe is None:
            return
        if reads:
            self._held = recipe.held
        elif recipe.exact:
            self._held = -min(self._step.scratch, self._step.x_bytes)  # its output, which is not computed again
            recipe = recipe._replace(seconds=0.0)
        self._leave(recipe)  # a layer that pools leaves the norm to be done again here

    def _gate(self) -> None:
        self._linear()
        self._leave(_Recipe(self._held, 0.0, self._recipe is None or self._recipe.exact))

    def _dropout(self) -> None:
        self._total += self._step.own
        if self._recipe is not None:
            self._leave(self._recipe)

    def _linear(self) -> None:
        self._total += self._step.own + self._keep_x()
        self._held = 0 if self._recipe is None else self._recipe.held

    def _other(self) -> None:
        self._total += self._step.own
        for tensor, storage, size in self._step.saved:
            known = None if tensor is None else self._state.recipes.get(tensor)
            if known is None or not known.exact:
                self._total += self._keep(storage, size)


@dataclass(frozen=True)
class FitPlan:
    """Options by the names of layers; the bytes kept in all, the most bytes at once, and seconds beyond keeping all."""

    options: Mapping[str, Option]
    bytes: int
    peak: int
    seconds: float

    @property
    def key(self) -> tuple[Any, ...]:
        return tuple(sorted((name, option.key) for name, option in self.options.items()))


def evaluate(steps: Sequence[LayerCall], options: Mapping[str, tuple[str, int, str]], moving: int = 0) -> FitPlan:
    """What a plan comes to; layers without an option keep. moving: bytes that are under way where anything is moved."""
    state, total, peak, seconds = _State(), 0, 0, 0.0
    taken: dict[str, Option] = {}
    for step in steps:
        option = _named(step, options.get(step.name, KEEP.key))
        move = _Call(state, step, option).go()
        total, seconds = total + move.bytes, seconds + move.seconds
        peak = max(peak, total + step.scratch + move.held)
        if step.name not in taken or option.way != "keep":
            taken[step.name] = option
    if any(option.way == "offload" for option in taken.values()):
        peak += moving
    return FitPlan(taken, total, peak, seconds)


def kept_by_layer(steps: Sequence[LayerCall], options: Mapping[str, tuple[str, int, str]]) -> dict[str, int]:
    state = _State()
    found: dict[str, int] = {}
    for step in steps:
        move = _Call(state, step, _named(step, options.get(step.name, KEEP.key))).go()
        found[step.name] = found.get(step.name, 0) + move.bytes
    return found


def _named(step: LayerCall, key: tuple[str, int, str]) -> Option:
    return next((option for option in step.options if option.key == key), KEEP)


def _keys(steps: Sequence[LayerCall]) -> dict[str, list[tuple[str, int, str]]]:
    """What each layer may do: what any of its calls may."""
    found: dict[str, dict[tuple[str, int, str], None]] = {}
    for step in steps:
        found.setdefault(step.name, {}).update(dict.fromkeys(option.key for option in step.options))
    return {name: list(keys) for name, keys in found.items()}


class _Pair(NamedTuple):
    """Bytes and seconds so far; how it came about."""

    bytes: int
    seconds: float
    before: Any
    key: tuple[str, int, str]


class Planner:
    """Plans for one list of steps. moving: bytes that are under way where anything is moved."""

    def __init__(self, steps: Sequence[LayerCall], moving: int = 0):
        self._steps, self._moving = steps, moving
        self._forgettable = _last_uses(steps)
        still = [replace(step, options=tuple(one for one in step.options if one.way != "offload")) for step in steps]
        self._ways = [(still, 0)]
        if any(len(few.options) < len(step.options) for few, step in zip(still, steps)):
            self._ways.append((list(steps), moving))

    def solve(self, limit: int) -> FitPlan | None:
        """The plan of least time whose bytes stay within the limit; None where there is none."""
        found = [self._search(steps, limit - apart, True) for steps, apart in self._ways]
        plans = [evaluate(self._steps, keys, self._moving) for keys in found if keys is not None]
        return min(plans, key=lambda plan: (plan.seconds, plan.peak)) if plans else None

    def least(self) -> list[FitPlan]:
        """The plans that need the least limit: without moving anything, and with it; and both with nothing lossy, where a
        prediction may be better."""
        found = {}
        for steps, _ in self._ways:
            exact = [
                replace(step, options=tuple(one for one in step.options if one.way != "compress")) for step in steps
            ]
            for plan in (self._least(steps), self._least(exact)):
                found[plan.key] = plan
        return list(found.values())

    def _least(self, steps: Sequence[LayerCall]) -> FitPlan:
        keep = evaluate(self._steps, {}).peak
        low, high = -1, keep
        while high - low > max(1, keep >> 12):
            middle = (low + high) // 2
            if self._search(steps, middle, False) is None:
                low = middle
            else:
                high = middle
        keys = self._search(steps, high, True)
        assert keys is not None
        return evaluate(self._steps, keys, self._moving)

    def _search(
        self, steps: Sequence[LayerCall], limit: int, all_pairs: bool
    ) -> dict[str, tuple[str, int, str]] | None:
        states: dict[Any, tuple[_State, list[_Pair]]] = {None: (_State(), [_Pair(0, 0.0, None, KEEP.key)])}
        keys = _keys(steps)
        for step, over in zip(steps, self._forgettable):
            after: dict[Any, tuple[_State, list[_Pair]]] = {}
            for state, pairs in states.values():
                tied = state.chosen.get(step.name)
                for key in keys[step.name] if tied is None else [tied]:
                    now = state.copy()
                    move = _Call(now, step, _named(step, key)).go()
                    room = limit - step.scratch - move.held - move.bytes
                    now.chosen[step.name] = key
                    _forget(now, over)
                    into = after.setdefault(now.signature(), (now, []))[1]
                    into.extend(
                        _Pair(pair.bytes + move.bytes, pair.seconds + move.seconds, pair, key)
                        for pair in pairs
                        if pair.bytes <= room
                    )
            states = {
                key: (state, _best(pairs, limit) if all_pairs else [min(pairs, key=lambda pair: pair.bytes)])
                for key, (state, pairs) in after.items()
                if pairs
            }
        last = [pair for _, pairs in states.values() for pair in pairs]
        if not last:
            return None
        pair = min(last, key=lambda one: (one.seconds, one.bytes))
        chosen = {}
        for step in reversed(steps):
            chosen[step.name] = pair.key
            pair = pair.before
        return chosen


def _best(pairs: list[_Pair], limit: int) -> list[_Pair]:
    """Those that no other beats in both."""
    found: list[_Pair] = []
    for pair in sorted(pairs, key=lambda one: (one.bytes, one.seconds)):
        if not found or pair.seconds < found[-1].seconds:
            found.append(pair)
    if len(found) <= _PAIRS:
        return found
    width = max(1, limit // _PAIRS)
    buckets: dict[int, _Pair] = {}
    for pair in found:  # seconds fall: the last of a bucket is its fastest
        buckets[pair.bytes // width] = pair
    return [found[0], *(pair for pair in buckets.values() if pair is not found[0])]


@dataclass(frozen=True)
class _Over:
    """What no later step asks for."""

    tensors: frozenset[int]
    storages: frozenset[Any]
    names: frozenset[str]


def _last_uses(steps: Sequence[LayerCall]) -> list[_Over]:
    tensors: dict[int, int] = {}
    storages: dict[Any, int] = {}
    names: dict[str, int] = {}
    for k, step in enumerate(steps):
        names[step.name] = k
        for tensor in _tensors(step):
            tensors[tensor] = k
        for storage in [step.storage, *(storage for _, storage, _ in step.saved)]:
            storages[storage] = k
    found = []
    for k in range(len(steps)):
        found.append(
            _Over(
                frozenset(t for t, last in tensors.items() if last == k),
                frozenset(s for s, last in storages.items() if last == k),
                frozenset(n for n, last in names.items() if last == k),
            )
        )
    return found


def _tensors(step: LayerCall) -> Iterable[int]:
    return [tensor for tensor in (step.x, step.y, *(tensor for tensor, _, _ in step.saved)) if tensor is not None]


def _forget(state: _State, over: _Over) -> None:
    for tensor in over.tensors:
        state.recipes.pop(tensor, None)
        state.offers.pop(tensor, None)
        for key in [key for key in state.kept if isinstance(key, tuple) and key[1] == tensor]:
            del state.kept[key]
    for storage in over.storages:
        state.kept.pop(storage, None)
    for name in over.names:
        state.chosen.pop(name, None)

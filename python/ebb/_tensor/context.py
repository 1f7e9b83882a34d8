# SPDX-License-Identifier: Apache-2.0
"""What a function sees beside its arguments and must see again when it runs again: random numbers, autocast, tensors that
it changes in place (running statistics and the like), and what it binds anew."""

from __future__ import annotations

import contextlib
import types
from collections.abc import Callable, Iterator, Sequence
from typing import Any, NamedTuple

import torch
from torch import Tensor

from ebb._base.errors import Error
from ebb._tensor.cached import Cached
from ebb._tensor.outside import Form, Outside
from ebb._tensor.places import Seen
from ebb._tensor.reach import Reach
from ebb._tensor.reads import Reads
from ebb._tensor.values import Value, global_generators, same_value, value_of

_SMALL = 1 << 20  # bytes of a tensor beside modules whose values are compared, not only its version
_OF_DEVICE = 1  # among the states of generators, that of the GPU's own


class Snapshot(NamedTuple):
    """Of a state: what changes from step to step."""

    generators: list[Tensor]
    buffers: list[Tensor]
    forms: list[Form]
    values: list[Any]

    def tensors(self) -> list[Tensor]:
        return self.generators + self.buffers


class View(NamedTuple):
    """Of everything that might change."""

    generators: list[Tensor]
    buffers: list[Tensor]
    versions: list[int]
    places: Seen
    values: list[Any]


class Changing(NamedTuple):
    """What f was found to change, without the objects themselves."""

    draws: bool
    buffers: list[int]
    moving: list[tuple[int, Any]]


def _is_small(tensor: Tensor) -> bool:
    return not tensor.requires_grad and tensor.layout is torch.strided and tensor.nbytes <= _SMALL


class Surroundings:
    def __init__(self, function: Callable, device: torch.device, random: bool, modules: Sequence[torch.nn.Module] = ()):
        self.device = device
        self._kinds = ["cpu"] if device.type == "cpu" else ["cpu", device.type]
        self._autocast = [
            (kind, torch.get_autocast_dtype(kind), torch.is_autocast_enabled(kind)) for kind in self._kinds
        ]
        self._cached = torch.is_autocast_cache_enabled()
        self.autocast = any(enabled for _, _, enabled in self._autocast)
        self._random = random
        found = Reach(function, modules)
        self._own_generators = found.generators if random else []
        self._tensors, self._modules = found.tensors, found.modules
        self.cached = Cached(self._modules)
        self._all_buffers = [b for module in self._modules for b in module.buffers() if b is not None]
        self._all_buffers += [t for t in self._tensors if _is_small(t)]
        known = {id(b) for b in self._all_buffers}
        self._fixed = [t for t in self.tensors() if id(t) not in known]
        self.outside = Outside(found.places, found.known)
        values = [value_of(thing, random) for thing in found.known.values()]
        self._all_values = [value for value in values if value is not None] + (global_generators() if random else [])
        self._moving_values: list[Value] = []
        self.complete = found.complete  # all that f can read was looked at
        self.code = frozenset(  # of all that f can call
            thing.__code__ for thing in found.known.values() if isinstance(thing, types.FunctionType)
        )
        self.draws = False  # f draws random numbers
        self.draws_elsewhere = False  # and not only from the device's own generator
        self.changed: list[Tensor] = []  # buffers that f changes
        self._still = View([], [], [], [], [])  # what look() saw before
        self._watched: list[tuple[Tensor, int]] = []  # tensors that are not known to change, and their versions

    # What changes from step to step is part of the state.
    def take_over(self, known: Surroundings) -> None:
        """What another found about the same function."""
        self.draws, self.changed = known.draws, known.changed
        self.outside.moving = known.outside.moving
        self._moving_values = [self._all_values[known._all_values.index(value)] for value in known._moving_values]

    def changing(self) -> Changing:
        """What is found by now. Not the values of arrays and the like."""
        known = {id(b) for b in self.changed}
        places = [k for k, b in enumerate(self._all_buffers) if id(b) in known]
        return Changing(self.draws, places, list(self.outside.moving))

    def expect(self, found: Changing) -> None:
        """What was found before about the same function, over objects that are the same."""
        self.draws, self.changed = found.draws, [self._all_buffers[k] for k in found.buffers]
        self.outside.moving = list(found.moving)

    def look(self) -> View:
        """Everything that might change."""
        return View(
            self._generators() if self._random else [],
            [b.detach().clone() for b in self._all_buffers],
            self._versions(),
            self.outside.look(),
            [value.read() for value in self._all_values],
        )

    def begin(self, view: View, own: int) -> None:
        """A loop begins, where all is as it was seen; `own`: the leaves of its carry."""
        self._still = view
        self._watch()
        self.cached.begin()
        self.outside.begin(view.places, own)

    def _watch(self) -> None:
        changed = {id(b) for b in self.changed}
        every = zip(self._all_buffers + self._fixed, self._still.versions)
        self._watched = [(tensor, version) for tensor, version in every if id(tensor) not in changed]

    def learn(self) -> bool:
        """After f has run: whether more has changed since the loop began than was known to. Tensors count as changed that
        were written to, whatever is in them now."""
        if self.cached.learn():
            return True  # what computing them drew or changed says nothing about f
        before, now = self._still, self._versions()
        drawn = [not torch.equal(a, b) for a, b in zip(before.generators, self._generators())] if self._random else []
        late = any(drawn) and not self.draws
        self.draws = self.draws or late
        self.draws_elsewhere |= any(yes for k, yes in enumerate(drawn) if k != _OF_DEVICE or self.device.type == "cpu")
        known = {id(b) for b in self.changed}
        written = [
            b
            for b, old, then, version in zip(self._all_buffers, before.buffers, before.versions, now)
            if id(b) not in known and (then != version or not torch.equal(b, old))
        ]
        new = {id(b) for b in written}
        self.changed = [b for b in self._all_buffers if id(b) in known | new]
        moved = [
            value
            for value, old in zip(self._all_values, before.values)
            if value not in self._moving_values and not same_value(old, value.read())
        ]
        self._moving_values += moved
        count = len(self._all_buffers)
        self._watch()
        self._check_fixed(before.versions[count:], now[count:])
        return self.outside.learn(before.places) or late or bool(new) or bool(moved)

    def is_still(self) -> bool:
        """Nothing has changed since the loop began but what is known to, as far as identities and versions tell."""
        return (
            self.outside.is_still()
            and self.cached.is_still()
            and all(tensor._version == version for tensor, version in self._watched)
        )

    def place(self, leaves: list[Any], rest: Iterator[Tensor]) -> Iterator[Tensor]:
        """After a loop: of its results, behind its carry, those that f keeps outside. Returns the others."""
        self.outside.give(self.outside.results(leaves, rest), clone=False)
        return rest

    def refuse_outside(self, name: str) -> None:
        """For what cannot keep it."""
        if self.outside.moving:
            raise Error(
                f"{name}: {self.outside.names()[0]} changes each time that it runs, and is no buffer that is changed in place",
                remedy="let a stage change only its buffers, or hand on what changes",
            )

    def _check_fixed(self, before: list[int], now: list[int]) -> None:
        for tensor, then, version in zip(self._fixed, before, now):
            if then != version:
                raise Error(
                    f"f changes a tensor of shape {list(tensor.shape)} in place that is no part of its arguments and no "
                    "buffer of a module that can be found from f; name the module in params=, or make the tensor a "
                    "part of the carry"
                )

    def _versions(self) -> list[int]:
        return [t._version for t in self._all_buffers] + [t._version for t in self._fixed]

    def put_back(self, view: View) -> None:
        self.outside.put_back(view.places)
        self._set_generators(view.generators)
        for value, copy in zip(self._all_values, view.values):
            value.write(copy)
        for buffer, old in zip(self._all_buffers, view.buffers):
            buffer.data.copy_(old)

    def part(self, view: View) -> Snapshot | None:
        """What a state keeps of what look() saw, where the loop begins."""
        if not self.moves:
            return None
        kept = {id(b) for b in self.changed}
        return Snapshot(
            view.generators if self.draws else [],
            [old for b, old in zip(self._all_buffers, view.buffers) if id(b) in kept],
            [],
            [view.values[self._all_values.index(value)] for value in self._moving_values],
        )

    def knows(self, tensor: Tensor) -> bool:
        """It is one of the buffers that are watched, or a view of one."""
        memory = tensor.untyped_storage()._cdata
        return any(b.untyped_storage()._cdata == memory for b in self._all_buffers)

    def tensors(self) -> list[Tensor]:
        """All that is found from f."""
        own = [t for module in self._modules for t in (*module.parameters(), *module.buffers())]
        return self._tensors + own + self.cached.tensors()

    def reaches(self, tensors: list[Tensor]) -> bool:
        """All of them are found from f."""
        found = {id(t) for t in self._tensors} | {id(p) for module in self._modules for p in module.parameters()}
        return all(id(tensor) in found for tensor in tensors)

    @property
    def modules(self) -> list[torch.nn.Module]:
        """That are found from f."""
        return list(self._modules)

    def fingerprint(self) -> tuple[Any, ...]:
        """What costs depend on of the modules that f uses."""
        return (
            *(
                (part.training, tuple((p.requires_grad, p.shape, p.dtype) for p in part.parameters(recurse=False)))
                for module in self._modules
                for part in module.modules()
            ),
            *((t.requires_grad, t.shape, t.dtype) for t in self._tensors),
        )

    @property
    def turns(self) -> bool:
        """f changes arrays, or draws from generators that are not PyTorch's."""
        return bool(self._moving_values)

    @property
    def moves(self) -> bool:
        return self.draws or bool(self.changed) or bool(self.outside.moving) or bool(self._moving_values)

    def snapshot(self) -> Snapshot | None:
        """What a state keeps of them; None where f changes nothing."""
        if not self.moves:
            return None
        for buffer in self.changed:
            name = self.outside.storages.get(buffer.untyped_storage()._cdata)
            if name is not None:
                raise Error(
                    f"{name} shares memory with a tensor that f changes in place, and is bound anew",
                    remedy="let it be a clone, or make it a part of the carry",
                )
        return Snapshot(
            self._generators() if self.draws else [],
            [b.detach().clone() for b in self.changed],
            self.outside.forms,
            [value.read() for value in self._moving_values],
        )

    def restore(self, kept: Snapshot | None) -> None:
        if kept is None:
            return
        self._set_generators(kept.generators)
        self.outside.forms = kept.forms
        for value, copy in zip(self._moving_values, kept.values):
            value.write(copy)
        for buffer, old in zip(self.changed, kept.buffers):
            buffer.data.copy_(old)  # .data: graphs that saved the buffer are not to be told

    @contextlib.contextmanager
    def replaying(self) -> Iterator[None]:
        """Around a backward: afterwards all is as it was."""
        kept, undone = self.snapshot(), self.outside.as_seen(self._still.places)  # the caller may have reset something
        try:
            with contextlib.ExitStack() as stack:
                stack.enter_context(self._as_read())
                stack.enter_context(self.cached.again())
                stack.enter_context(self.casting())
                if stale := self.stale():
                    stack.enter_context(Reads(stale))
                yield
        finally:
            self.restore(kept)
            for place, key, value in undone:
                place.put(key, value)

    @contextlib.contextmanager
    def _as_read(self) -> Iterator[None]:
        """With what the caller has changed in place since the loop began as it was then."""
        changed = {id(b) for b in self.changed}
        known = zip(self._all_buffers, self._still.buffers, self._still.versions)
        since = [
            (b, old, b.detach().clone())
            for b, old, then in known
            if b._version != then and id(b) not in changed and b.shape == old.shape
        ]
        try:
            for buffer, old, _ in since:
                buffer.data.copy_(old)
            yield
        finally:
            for buffer, _, now in since:
                buffer.data.copy_(now)

    def stale(self) -> list[Tensor]:
        """What the caller has changed in place since the loop began and there is no copy of."""
        then = self._still.versions[len(self._all_buffers) :]
        found = [tensor for tensor, version in zip(self._fixed, then) if tensor._version != version]
        return found + [b for b, old in zip(self._all_buffers, self._still.buffers) if b.shape != old.shape]

    @contextlib.contextmanager
    def casting(self) -> Iterator[None]:
        """As autocast was where the loop began, in any thread."""
        with contextlib.ExitStack() as stack:
            # Also where it was off, and is on around the backward.
            if self.autocast or any(torch.is_autocast_enabled(kind) for kind in self._kinds):
                for kind, dtype, enabled in self._autocast:
                    stack.enter_context(torch.autocast(kind, dtype=dtype, enabled=enabled, cache_enabled=self._cached))
            yield

    def fresh_casts(self) -> None:
        """Casts that autocast keeps from a run without gradients would cut graphs of one with them, and those from another
        graph would make that a part of this one."""
        if self.autocast:
            torch.clear_autocast_cache()

    def _generators(self) -> list[Tensor]:
        states = [torch.get_rng_state()]
        if self.device.type == "cuda":
            states.append(torch.cuda.get_rng_state(self.device))
        return states + [generator.get_state() for generator in self._own_generators]

    def _set_generators(self, states: list[Tensor]) -> None:
        if not states:
            return
        torch.set_rng_state(states[0])
        if self.device.type == "cuda":
            torch.cuda.set_rng_state(states[1], self.device)
        first = len(states) - len(self._own_generators)
        for generator, state in zip(self._own_generators, states[first:]):
            generator.set_state(state)

# SPDX-License-Identifier: Apache-2.0
"""What a function sees beside its arguments and must see again when it runs again: random numbers, autocast, and buffers
that it changes (running statistics and the like)."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import torch
from torch import Tensor

from ebb._tensor.reach import reach, reach_generators

Snapshot = tuple[list[Tensor], list[Tensor]]  # states of generators, values of buffers


class Surroundings:
    def __init__(self, function: Callable, device: torch.device, random: bool, modules: Sequence[torch.nn.Module] = ()):
        self._device = device
        self._kinds = ["cpu"] if device.type == "cpu" else ["cpu", device.type]
        self._autocast = [
            (kind, torch.get_autocast_dtype(kind), torch.is_autocast_enabled(kind)) for kind in self._kinds
        ]
        self._cached = torch.is_autocast_cache_enabled()
        self.autocast = any(enabled for _, _, enabled in self._autocast)
        self._random = random
        self._own_generators = reach_generators(function) if random else []
        found, self._tensors = reach(function)
        self._modules = [*modules, *found]
        self._all_buffers = [b for module in self._modules for b in module.buffers() if b is not None]
        self.draws = False  # f draws random numbers
        self.changed: list[Tensor] = []  # buffers that f changes
        self._still: Snapshot = ([], [])  # what look() saw before

    # What changes from step to step is part of the state.
    def take_over(self, known: Surroundings) -> None:
        """What another found about the same function."""
        self.draws, self.changed = known.draws, known.changed
        self._still = self.look()

    def look(self) -> Snapshot:
        """Everything that might change."""
        return (self._generators() if self._random else []), [b.detach().clone() for b in self._all_buffers]

    def learn(self, before: Snapshot) -> None:
        """After f has run: what it changed since."""
        if self._random and not self._same(before[0], self._generators()):
            self.draws = True
        self._still = before
        known = {id(b) for b in self.changed}
        new = {id(b) for b, old in zip(self._all_buffers, before[1]) if not torch.equal(b, old)}
        self.changed = [b for b in self._all_buffers if id(b) in known | new]

    def put_back(self, before: Snapshot) -> None:
        self._set_generators(before[0])
        for buffer, old in zip(self._all_buffers, before[1]):
            buffer.data.copy_(old)

    def part(self, all_of_it: Snapshot) -> Snapshot | None:
        """What a state keeps of what look() saw."""
        if not self.moves:
            return None
        kept = {id(b) for b in self.changed}
        return (all_of_it[0] if self.draws else []), [
            old for b, old in zip(self._all_buffers, all_of_it[1]) if id(b) in kept
        ]

    def learn_late(self) -> bool:
        """After a whole forward: whether it drew random numbers or changed buffers although the first block did not."""
        late = self._random and not self.draws and not self._same(self._still[0], self._generators())
        self.draws = self.draws or late
        known = {id(b) for b in self.changed}
        new = {
            id(b) for b, old in zip(self._all_buffers, self._still[1]) if id(b) not in known and not torch.equal(b, old)
        }
        self.changed = [b for b in self._all_buffers if id(b) in known | new]
        return late or bool(new)

    def knows(self, tensor: Tensor) -> bool:
        """It is one of the buffers that are watched, or a view of one."""
        memory = tensor.untyped_storage()._cdata
        return any(b.untyped_storage()._cdata == memory for b in self._all_buffers)

    def tensors(self) -> list[Tensor]:
        """All that is found from f."""
        return self._tensors + [t for module in self._modules for t in (*module.parameters(), *module.buffers())]

    def reaches(self, tensors: list[Tensor]) -> bool:
        """All of them are found from f."""
        found = {id(t) for t in self._tensors} | {id(p) for module in self._modules for p in module.parameters()}
        return all(id(tensor) in found for tensor in tensors)

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

    @staticmethod
    def _same(a: list[Tensor], b: list[Tensor]) -> bool:
        return all(torch.equal(x, y) for x, y in zip(a, b))

    @property
    def moves(self) -> bool:
        return self.draws or bool(self.changed)

    def snapshot(self) -> Snapshot | None:
        """What a state keeps of them; None where f changes nothing."""
        if not self.moves:
            return None
        return (self._generators() if self.draws else []), [b.detach().clone() for b in self.changed]

    def restore(self, kept: Snapshot | None) -> None:
        if kept is None:
            return
        self._set_generators(kept[0])
        for buffer, old in zip(self.changed, kept[1]):
            buffer.data.copy_(old)  # .data: graphs that saved the buffer are not to be told

    @contextlib.contextmanager
    def replaying(self) -> Iterator[None]:
        """Around a backward: afterwards all is as it was."""
        kept = self.snapshot()
        try:
            with contextlib.ExitStack() as stack:
                if self.autocast:
                    for kind, dtype, enabled in self._autocast:
                        stack.enter_context(
                            torch.autocast(kind, dtype=dtype, enabled=enabled, cache_enabled=self._cached)
                        )
                yield
        finally:
            self.restore(kept)

    def fresh_casts(self) -> None:
        """Casts that autocast keeps from a run without gradients would cut graphs of one with them."""
        if self.autocast:
            torch.clear_autocast_cache()

    def _generators(self) -> list[Tensor]:
        states = [torch.get_rng_state()]
        if self._device.type == "cuda":
            states.append(torch.cuda.get_rng_state(self._device))
        return states + [generator.get_state() for generator in self._own_generators]

    def _set_generators(self, states: list[Tensor]) -> None:
        if not states:
            return
        torch.set_rng_state(states[0])
        if self._device.type == "cuda":
            torch.cuda.set_rng_state(states[1], self._device)
        first = len(states) - len(self._own_generators)
        for generator, state in zip(self._own_generators, states[first:]):
            generator.set_state(state)

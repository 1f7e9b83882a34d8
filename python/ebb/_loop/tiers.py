# SPDX-License-Identifier: Apache-2.0
"""States of tensors in slow tiers: pinned host memory beside a GPU, files, memory beside a smaller budget."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import torch
from torch import Tensor

from ebb import _core
from ebb._base.errors import Error
from ebb._loop.tape import State
from ebb._tensor.context import Snapshot
from ebb._tensor.host_pool import host_memory
from ebb.tiers import FileTier, MemoryTier, Tier, slow_tiers

_BUFFERS = 4  # items of a tier that are on their way at once


class StateLayout:
    """A state as one run of bytes: each tensor at a multiple of 64."""

    def __init__(self, state: State):
        tensors = state.tensors()
        self._present = [leaf is not None for leaf in state.leaves]
        self._generators = None if state.snapshot is None else len(state.snapshot.generators)
        self._kinds = [(t.shape, t.dtype, t.device, t.numel() * t.element_size()) for t in tensors]
        self._offsets = []
        self.bytes = 0
        for _, _, _, nbytes in self._kinds:
            self._offsets.append(self.bytes)
            self.bytes += (nbytes + 63) // 64 * 64

    def parts(self, memory: Tensor) -> list[Tensor]:
        return [
            memory[offset : offset + nbytes].view(dtype).view(shape)
            for offset, (shape, dtype, _, nbytes) in zip(self._offsets, self._kinds)
        ]

    def empty(self) -> list[Tensor]:
        return [torch.empty(shape, dtype=dtype, device=device) for shape, dtype, device, _ in self._kinds]

    def state(self, tensors: list[Tensor], wait: Callable[[], None] | None) -> State:
        rest = iter(tensors)
        leaves = [next(rest) if there else None for there in self._present]
        snapshot = None
        if self._generators is not None:
            others = list(rest)
            snapshot = Snapshot(others[: self._generators], others[self._generators :], [], [])
        found = State(leaves, snapshot)
        found.wait = wait
        return found


class _Stored:
    """A tier of the C++ store, by way of a few buffers in host memory."""

    def __init__(self, tier: Tier, count: int, layout: StateLayout, pinned: bool):
        self._layout = layout
        self._store = _core.Store(slow_tiers([tier]), [(count * layout.bytes, layout.bytes, count)])
        self._free = [host_memory(layout.bytes, pinned)[0] for _ in range(_BUFFERS)]
        self._slots: dict[int, int] = {}
        self._leaving: dict[int, tuple[int, Tensor]] = {}  # by step: ticket and buffer

    def _buffer(self) -> Tensor:
        if not self._free:
            if not self._leaving:
                raise Error("a tier has more states on their way than its plan said", "out_of_budget")
            self._settle(next(iter(self._leaving)))
        return self._free.pop()

    def _settle(self, step: int) -> None:
        if step in self._leaving:
            ticket, memory = self._leaving.pop(step)
            self._free.append(memory)
            self._store.wait(ticket)

    def put(self, step: int, state: State) -> None:
        memory = self._buffer()
        for part, tensor in zip(self._layout.parts(memory), state.tensors()):
            part.copy_(tensor)
        self._slots[step] = self._store.add(0, self._layout.bytes)
        ticket = self._store.put(0, self._slots[step], memory.data_ptr(), self._layout.bytes, memory)
        self._leaving[step] = ticket, memory

    def get(self, step: int) -> State:
        self._settle(step)
        memory = self._buffer()
        ticket = self._store.get(0, self._slots[step], memory.data_ptr(), self._layout.bytes, memory)
        tensors = self._layout.empty()
        under_way = [True]

        def wait() -> None:
            if under_way:
                under_way.clear()
                try:
                    self._store.wait(ticket)
                    for tensor, part in zip(tensors, self._layout.parts(memory)):
                        tensor.copy_(part)
                finally:
                    self._free.append(memory)

        return self._layout.state(tensors, wait)

    def drop(self, step: int) -> None:
        self._settle(step)
        self._store.drop(0, self._slots.pop(step))

    def clear(self) -> None:
        for step in list(self._leaving):
            try:
                self._settle(step)
            except Error:
                pass  # what failed is forgotten
        for step in list(self._slots):
            try:
                self._store.drop(0, self._slots.pop(step))
            except Error:
                pass


class _Pinned:
    """Host memory beside a GPU, taken once; copies run on a stream of their own."""

    def __init__(self, count: int, layout: StateLayout, device: torch.device):
        self._layout = layout
        self._device = device
        self._stream = torch.cuda.Stream(device)
        self._memory = host_memory(count * layout.bytes, True)[0]
        self._free = list(range(count))
        self._rows: dict[int, int] = {}

    def _parts(self, step: int) -> list[Tensor]:
        start = self._rows[step] * self._layout.bytes
        return self._layout.parts(self._memory[start : start + self._layout.bytes])

    def _copy(self, targets: list[Tensor], sources: list[Tensor], on_gpu: list[Tensor]) -> torch.cuda.Event:
        # All that was asked of the device before is done first: a row may be read still, memory may be in use still.
        self._stream.wait_stream(torch.cuda.current_stream(self._device))
        with torch.cuda.stream(self._stream):
            for target, source in zip(targets, sources):
                target.copy_(source, non_blocking=True)
            done = torch.cuda.Event()
            done.record(self._stream)
        for tensor in on_gpu:
            if tensor.device.type == "cuda":
                tensor.record_stream(self._stream)
        return done

    def put(self, step: int, state: State) -> None:
        self._rows[step] = self._free.pop()
        tensors = state.tensors()
        self._copy(self._parts(step), tensors, tensors)

    def get(self, step: int) -> State:
        tensors = self._layout.empty()
        done = self._copy(tensors, self._parts(step), tensors)

        def wait() -> None:
            if all(tensor.device.type == "cuda" for tensor in tensors):
                torch.cuda.current_stream(self._device).wait_event(done)
            else:
                done.synchronize()

        return self._layout.state(tensors, wait)

    def drop(self, step: int) -> None:
        self._free.append(self._rows.pop(step))

    def clear(self) -> None:
        for step in list(self._rows):
            self.drop(step)


class TorchTiers:
    """The tiers of one run. `counts` are the most states that each holds."""

    def __init__(self, tiers: Sequence[Tier], counts: Sequence[int], like: State, device: torch.device):
        layout = StateLayout(like)
        self._tiers: list[_Stored | _Pinned] = []
        for tier, count in zip(tiers, counts):
            if device.type == "cuda" and isinstance(tier, MemoryTier):
                self._tiers.append(_Pinned(count, layout, device))
            else:
                self._tiers.append(_Stored(tier, count, layout, device.type == "cuda"))

    def put(self, tier: int, step: int, state: State) -> None:
        self._tiers[tier].put(step, state)

    def get(self, tier: int, step: int) -> State:
        return self._tiers[tier].get(step)

    def drop(self, tier: int, step: int) -> None:
        self._tiers[tier].drop(step)

    def clear(self) -> None:
        for tier in self._tiers:
            tier.clear()


def buffer_bytes(tiers: Sequence[Tier], state_bytes: int, device: torch.device) -> int:
    """Fast memory that transfers take on a CPU, where buffers and tensors share one memory."""
    if device.type == "cuda":
        return 0
    return sum(_BUFFERS * state_bytes for tier in tiers if isinstance(tier, (FileTier, MemoryTier)))

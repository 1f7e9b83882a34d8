# SPDX-License-Identifier: Apache-2.0
"""Bytes and seconds of work on tensors, measured."""

from __future__ import annotations

import time
import weakref
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor
from torch.utils._pytree import tree_leaves

from ebb._tensor.trees import rounded, storage_bytes
from ebb._tensor.watching import Watching


class LiveBytes(Watching):
    """Bytes of the tensors that operations inside make and that are still alive: `live` and `peak`."""

    def __init__(self) -> None:
        super().__init__()
        self.live = self.peak = 0
        self._seen: dict[int, Any] = {}

    def __torch_dispatch__(self, operation: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        result = operation(*args, **(kwargs or {}))
        given = None
        for leaf in tree_leaves(result):
            if not isinstance(leaf, Tensor) or leaf.layout is not torch.strided:
                continue
            memory = leaf.untyped_storage()
            if memory._cdata in self._seen:
                continue
            if given is None:
                tensors = [
                    t for t in tree_leaves((args, kwargs)) if isinstance(t, Tensor) and t.layout is torch.strided
                ]
                given = {t.untyped_storage()._cdata for t in tensors}
            if memory._cdata not in given:
                self._add(memory, rounded(memory.nbytes(), leaf.device))
        return result

    def _add(self, memory: Any, nbytes: int) -> None:
        key = memory._cdata

        def forget() -> None:
            self._book(key, -nbytes)
            del self._seen[key]

        self._seen[key] = weakref.finalize(memory, forget)
        self._seen[key].atexit = False
        self._book(key, nbytes)

    def _book(self, key: int, nbytes: int) -> None:
        self.live += nbytes
        self.peak = max(self.peak, self.live)


class _Timeline(LiveBytes):
    """Also what came and went when."""

    def __init__(self) -> None:
        super().__init__()
        self._numbers: dict[int, int] = {}  # by memory, of the one that was there last
        self._changes: list[tuple[int, int]] = []  # number and bytes, below 0 of what went

    def _book(self, key: int, nbytes: int) -> None:
        super()._book(key, nbytes)
        if nbytes > 0:
            self._numbers[key] = len(self._changes)
        if nbytes != 0:
            self._changes.append((self._numbers[key], nbytes))

    def peak_without(self, tensors: list[Tensor]) -> int:
        """As if these, which are alive, had been somebody else's from the first."""
        left_out = {self._numbers.get(tensor.untyped_storage()._cdata) for tensor in tensors}
        live = peak = 0
        for number, nbytes in self._changes:
            if number not in left_out:
                live += nbytes
                peak = max(peak, live)
        return peak


def peak_of(work: Callable[[], Any], device: torch.device) -> tuple[Any, int]:
    """The result, and the most bytes that were held at once beyond those held before. On a GPU this resets the peak that
    torch.cuda.max_memory_allocated() tells."""
    if device.type == "cuda":
        torch.cuda.synchronize(device)
        before = torch.cuda.memory_allocated(device)
        torch.cuda.reset_peak_memory_stats(device)
        result = work()
        torch.cuda.synchronize(device)
        return result, torch.cuda.max_memory_allocated(device) - before
    with LiveBytes() as counted:
        result = work()
    return result, counted.peak


def peak_beside(work: Callable[[], list[Tensor]], device: torch.device) -> int:
    """The most bytes that were held at once, as of peak_of, beside the tensors that `work` returns. On a GPU it is not seen when
    a kernel takes memory inside: it is taken to be while all of those tensors are there."""
    timeline = _Timeline()

    def watched() -> list[Tensor]:
        with timeline:
            return work()

    if device.type != "cuda":
        return timeline.peak_without(watched())
    found, peak = peak_of(watched, device)
    return max(timeline.peak_without(found), peak - storage_bytes(found))


def seconds_of(work: Callable[[], Any], device: torch.device) -> float:
    if device.type == "cuda":
        torch.cuda.synchronize(device)
    start = time.perf_counter()
    work()
    if device.type == "cuda":
        torch.cuda.synchronize(device)
    return time.perf_counter() - start

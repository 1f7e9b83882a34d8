# SPDX-License-Identifier: Apache-2.0
"""Seconds by the clock, and bytes: tracked tensors on a CPU, allocator and driver on a GPU."""

from __future__ import annotations

import gc
import signal
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from statistics import median

import torch

from ebb._tensor.memory import LiveBytes


def once(run: Callable[[], None], device: torch.device) -> float:
    if device.type == "cuda":
        torch.cuda.synchronize()
    start = time.perf_counter()
    run()
    if device.type == "cuda":
        torch.cuda.synchronize()
    return time.perf_counter() - start


def timed(run: Callable[[], None], device: torch.device, rounds: int) -> float:
    return min(once(run, device) for _ in range(rounds))


class Memory:
    """What a way takes beyond what is held when this is made. Gradients of parameters should be there by then.

    `watched`: operations can be watched, by which tensors are tracked on a CPU; compiled ones cannot, and nothing is found.
    `first`: at most while it is prepared and called for the first times. Then `look(run)` finds for one more call `peak`, the
    tensors that are alive at most; and on a GPU `reserved`, what the allocator holds with what it caches for CUDA graphs,
    `device`, what the driver says that is gone, and `kept`, what the allocator cannot give back afterwards."""

    def __init__(self, device: torch.device, watched: bool):
        self._cuda, self._watched = device.type == "cuda", watched
        self.first: int | None = None
        self.peak: int | None = None
        self.reserved: int | None = None
        self.device: int | None = None
        self.kept: int | None = None
        if self._cuda:
            self._before = self._now(empty=True)
            torch.cuda.reset_peak_memory_stats()

    def _now(self, empty: bool) -> tuple[int, int, int]:
        """Bytes alive, reserved and taken from the device."""
        gc.collect()
        torch.cuda.synchronize()
        if empty:
            torch.cuda.empty_cache()
        free, total = torch.cuda.mem_get_info()
        return torch.cuda.memory_allocated(), torch.cuda.memory_reserved(), total - free

    def look(self, run: Callable[[], None]) -> None:
        if not self._cuda:
            if self._watched:
                with LiveBytes() as live:
                    run()
                self.peak = live.peak
            return
        alive, reserved, gone = self._before
        self.first = torch.cuda.max_memory_allocated() - alive
        self._now(empty=True)
        torch.cuda.reset_peak_memory_stats()
        run()
        self.device = self._now(empty=False)[2] - gone
        self.peak = torch.cuda.max_memory_allocated() - alive
        self.reserved = torch.cuda.max_memory_reserved() - reserved
        self.kept = self._now(empty=True)[1] - reserved


@contextmanager
def at_most(seconds: float) -> Iterator[None]:
    """Raises TimeoutError in what takes longer."""

    def late(*_: object) -> None:
        raise TimeoutError(f"took longer than {seconds:g} s")

    before = signal.signal(signal.SIGALRM, late)
    signal.setitimer(signal.ITIMER_REAL, seconds)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)


def milliseconds(work: Callable[[], None], rounds: int, in_a_row: int = 1) -> float:
    """By the GPU's clock, in the middle of several; of each in a row, where nothing waits for the GPU in between."""
    found = []
    for _ in range(rounds + 2):
        start, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
        start.record()
        for _ in range(in_a_row):
            work()
        end.record()
        end.synchronize()
        found.append(start.elapsed_time(end) / in_a_row)
    return median(found[2:])

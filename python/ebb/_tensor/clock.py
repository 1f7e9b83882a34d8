# SPDX-License-Identifier: Apache-2.0
"""How long work takes on a device that goes on by itself."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Iterator

import torch


class Clock:
    """Runs while `running()` does. A GPU is waited for only where somebody asks for the seconds."""

    def __init__(self, device: torch.device):
        self._device = device
        self._seconds = 0.0
        self._events: list[tuple[torch.cuda.Event, torch.cuda.Event]] = []

    @contextlib.contextmanager
    def running(self) -> Iterator[None]:
        if self._device.type != "cuda":
            began = time.perf_counter()
            yield
            self._seconds += time.perf_counter() - began
            return
        stream = torch.cuda.current_stream(self._device)
        if torch.cuda.is_current_stream_capturing():  # its events could not be asked
            yield
            return
        begin, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
        begin.record(stream)
        yield
        end.record(stream)
        self._events.append((begin, end))

    def seconds(self) -> float:
        """So far."""
        for begin, end in self._events:
            end.synchronize()
            self._seconds += begin.elapsed_time(end) / 1e3
        self._events.clear()
        return self._seconds

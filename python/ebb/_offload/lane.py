# SPDX-License-Identifier: Apache-2.0
"""Copies between a device and host memory, and who waits for whom.

Two rules. What a copy reads or writes is given back to an allocator only when the copy is done, or when the stream that
would reuse it waits for the copy. The compute stream is asked for before a side stream is entered: inside it, the
current stream is the side stream.
"""

from __future__ import annotations

from typing import Any

import torch

from ebb._tensor.host_pool import HostBlock


class Leaving:
    """Device memory that a copy still reads."""

    __slots__ = ("source", "streams", "event", "side")

    def __init__(self, source: torch.Tensor, streams: set[Any], event: Any, side: Any):
        self.source: torch.Tensor | None = source
        self.streams = streams
        self.event = event
        self.side = side

    @property
    def nbytes(self) -> int:
        return 0 if self.source is None else self.source.untyped_storage().nbytes()

    def done(self) -> bool:
        return self.event is None or self.event.query()

    def let_go(self) -> None:
        """The streams that may reuse the memory wait for the copy; the host does not."""
        if self.source is not None and not self.done():
            for stream in self.streams | {torch.cuda.current_stream(self.source.device)}:
                stream.wait_event(self.event)
        self.source = None

    def __del__(self) -> None:
        if self.source is not None and not self.done():
            self.source.record_stream(self.side)


class Arriving:
    """Device memory that a copy fills: ``bytes`` after ``wait``."""

    __slots__ = ("bytes", "stream", "event", "side")

    def __init__(self, memory: torch.Tensor, stream: Any, event: Any, side: Any):
        self.bytes = memory
        self.stream = stream
        self.event = event
        self.side = side

    def wait(self) -> torch.Tensor:
        """The current stream waits; the host does not."""
        if self.event is not None:
            now = torch.cuda.current_stream(self.bytes.device)
            now.wait_event(self.event)
            if now != self.stream:
                self.bytes.record_stream(now)
                self.stream.wait_event(self.event)
            self.event = None
        return self.bytes

    def __del__(self) -> None:
        if self.event is not None and not self.event.query():
            self.bytes.record_stream(self.side)


class Lane:
    """One device's copies: on two side streams, or in turn with its computation."""

    def __init__(self, device: torch.device, use_streams: bool):
        self.device = device
        self.streams = use_streams and device.type == "cuda"
        if self.streams:
            self.out_stream = torch.cuda.Stream(device)
            self.back_stream = torch.cuda.Stream(device)

    def producer(self) -> Any:
        """The stream that computes now; None where there is but one."""
        return torch.cuda.current_stream(self.device) if self.device.type == "cuda" else None

    def out(self, source: torch.Tensor, block: HostBlock, producers: set[Any]) -> Leaving:
        """Starts the copy of a tensor of bytes into a block; later transfers of the block wait for ``block.events``."""
        target = block.bytes.narrow(0, 0, source.numel())
        side = self.out_stream if self.streams else self.producer()
        if side is not None:
            for stream in (producers | {self.producer()}) - {side}:
                side.wait_stream(stream)
        _settle(block, side)
        if not self.streams:
            target.copy_(source)
            return Leaving(source, set(), None, None)
        with torch.cuda.stream(side):
            target.copy_(source, non_blocking=True)
            event = side.record_event()
        block.events.append(event)
        return Leaving(source, producers, event, side)

    def back(self, block: HostBlock, size: int) -> Arriving:
        """Starts the copy of a block's first bytes to the device."""
        compute = self.producer()
        target = torch.empty(size, dtype=torch.uint8, device=self.device)
        source = block.bytes.narrow(0, 0, size)
        if not self.streams:
            _settle(block, compute)
            target.copy_(source)
            return Arriving(target, compute, None, None)
        side = self.back_stream
        # The memory comes from the compute stream's allocator: work that is queued there may still use it.
        side.wait_stream(compute)
        _settle(block, side)
        with torch.cuda.stream(side):
            target.copy_(source, non_blocking=True)
            event = side.record_event()
        block.events.append(event)
        return Arriving(target, compute, event, side)


def _settle(block: HostBlock, stream: Any) -> None:
    """The stream waits for what else uses the block; without a stream the host does."""
    block.events = [event for event in block.events if not event.query()]
    for event in block.events:
        if stream is None:
            event.synchronize()
        else:
            stream.wait_event(event)

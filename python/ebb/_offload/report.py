# SPDX-License-Identifier: Apache-2.0
"""What ebb.offload did, in numbers."""

from __future__ import annotations

import dataclasses

from ebb._core import format_bytes

REASONS = {
    "held": "held by the caller",
    "parameter": "parameters and views of them",
    "small": "smaller than min_offload_size",
    "host": "already in host memory, and no disk= was given",
    "budget": "within the budget",
    "asked": "kept by keep=",
    "full": "no room for them elsewhere",
    "kind": "not a plain strided tensor",
}


@dataclasses.dataclass
class Count:
    """How many, and how many bytes they have together."""

    tensors: int = 0
    bytes: int = 0

    def add(self, size: int, times: int = 1) -> None:
        self.tensors += times
        self.bytes += size * times


@dataclasses.dataclass
class OffloadReport:
    """Counts since the object was made; saved tensors that share one storage are moved, and counted, once."""

    saved: int = 0
    """Tensors that autograd saved inside the ``with``."""
    moved: Count = dataclasses.field(default_factory=Count)
    kept: dict[str, Count] = dataclasses.field(default_factory=dict)
    """By reason: held, parameter, small, host, budget, asked, full, kind."""
    pinned: Count = dataclasses.field(default_factory=Count)
    pageable: Count = dataclasses.field(default_factory=Count)
    """Moved to host memory whose pages are not locked: beside the pool, or because it could not be pinned."""
    overflow: Count = dataclasses.field(default_factory=Count)
    """Moved to host memory beside the pool, which had no room."""
    written: Count = dataclasses.field(default_factory=Count)
    """To disk, from the device's host or from the pool."""
    read: Count = dataclasses.field(default_factory=Count)
    """From disk."""
    failed_writes: int = 0
    pool_bytes: int = 0
    pool_pinned: bool = False
    pool_peak: int = 0
    hits: int = 0
    """Reads that had been started ahead of their use."""
    misses: int = 0

    def keep(self, reason: str, size: int, times: int = 1) -> None:
        self.kept.setdefault(reason, Count()).add(size, times)

    def __str__(self) -> str:
        lines = [f"saved {self.saved} tensors; moved {_text(self.moved)}"]
        if self.saved and not self.moved.tensors:
            lines[0] += ": nothing left the device"
        lines += [f"  kept {_text(count)}: {REASONS[why]}" for why, count in self.kept.items() if count.tensors]
        if self.pinned.tensors or self.pageable.tensors:
            lines.append(f"  host: {_text(self.pinned)} pinned, {_text(self.pageable)} pageable")
        if self.pool_bytes:
            kind = "pinned" if self.pool_pinned else "pageable"
            lines.append(f"  pool: {format_bytes(self.pool_bytes)} {kind}, peak {format_bytes(self.pool_peak)}")
        if self.overflow.tensors:
            lines.append(f"  beside the pool, which was full: {_text(self.overflow)}")
        if self.written.tensors:
            lines.append(f"  disk: {_text(self.written)} written, {_text(self.read)} read")
        if self.failed_writes:
            lines.append(f"  disk: {self.failed_writes} writes failed; these tensors stayed in memory")
        if self.hits or self.misses:
            lines.append(f"  read ahead: {self.hits} hits, {self.misses} misses")
        return "\n".join(lines)


def _text(count: Count) -> str:
    return f"{count.tensors} ({format_bytes(count.bytes)})"

# SPDX-License-Identifier: Apache-2.0
"""Where the time steps of sequences lie in rows, chunk by chunk."""

from __future__ import annotations

import itertools
from typing import NamedTuple, Protocol

import torch
from torch import Tensor

from ebb.nn._segments import Rows


class Stretch(NamedTuple):
    """Time steps with the same samples."""

    first: int  # its first row, counted from the chunk's
    rows: int
    batch: int


class Layout(NamedTuple):
    """The rows of a chunk: a time step after the other, in each its samples. Those that end come last, so that no time step has more
    than the one before."""

    rows: int
    stretches: list[Stretch]
    # Of each row after the first time step: which row of the chunk has its sample's time step before. None: there is one stretch, in
    # which that is as many rows away everywhere.
    earlier: Tensor | None = None


class Layouts(Protocol):
    """Of all chunks of a sequence."""

    batch: int
    rows_at_most: int  # of a chunk
    held: list[Tensor]  # on the device

    def first(self, block: int) -> int:
        """The first row of a chunk, where its rows lie in order."""

    def order(self, block: int) -> Tensor | None:
        """Which rows are a chunk's; None: they lie in order."""

    def rows(self, block: int) -> int:
        """How many a chunk has."""

    def layout(self, block: int) -> Layout: ...

    def before(self, block: int) -> int:
        """How many samples the time step before a chunk has."""

    def last(self, outputs: Tensor) -> Tensor:
        """Of all outputs those of each sample's last time step."""


class Even:
    """Sequences of one length. `backwards`: time runs from the last row to the first."""

    held: list[Tensor] = []

    def __init__(self, length: int, batch: int, chunk: int, backwards: bool):
        self.batch, self._length, self._chunk, self._backwards = batch, length, chunk, backwards
        self.rows_at_most = min(chunk, length) * batch
        full, rest = chunk * batch, length % chunk * batch
        self._full, self._rest = [Layout(rows, [Stretch(0, rows, batch)]) for rows in (full, rest)]

    def first(self, block: int) -> int:
        start = block * self._chunk
        step = max(0, self._length - start - self._chunk) if self._backwards else start
        return step * self.batch

    def order(self, block: int) -> Tensor | None:
        return None

    def rows(self, block: int) -> int:
        return self.layout(block).rows

    def layout(self, block: int) -> Layout:
        return self._full if (block + 1) * self._chunk <= self._length else self._rest

    def before(self, block: int) -> int:
        return self.batch

    def last(self, outputs: Tensor) -> Tensor:
        return outputs[-self.batch :].clone()


class Packed:
    """Packed sequences. `backwards`: each runs from its own last time step, so that of these, too, fewer and fewer are left."""

    def __init__(self, batch_sizes: Tensor, chunk: int, backwards: bool, device: torch.device):
        self.batch, self._chunk = int(batch_sizes[0]), chunk
        self._sizes: list[int] = batch_sizes.tolist()
        self._firsts = [0, *itertools.accumulate(self._sizes)]
        counts = [self.rows(block) for block in range(-(-len(self._sizes) // chunk))]
        self.rows_at_most = counts[0]
        self._where = Rows(batch_sizes)
        self.held = [_earlier(batch_sizes, chunk).to(device)]
        self._earlier = self.held[0].split([rows - first for rows, first in zip(counts, self._sizes[::chunk])])
        self._orders: tuple[Tensor, ...] = ()
        if backwards:
            self.held.append(self._where.from_the_end(0, len(self._sizes), device))
            self._orders = self.held[1].split(counts)

    def first(self, block: int) -> int:
        return self._firsts[min(block * self._chunk, len(self._sizes))]

    def order(self, block: int) -> Tensor | None:
        return self._orders[block] if self._orders else None

    def rows(self, block: int) -> int:
        return self.first(block + 1) - self.first(block)

    def layout(self, block: int) -> Layout:
        start = block * self._chunk
        stretches, first = [], 0
        for batch, same in itertools.groupby(self._sizes[start : start + self._chunk]):
            rows = batch * len(list(same))
            stretches.append(Stretch(first, rows, batch))
            first += rows
        return Layout(first, stretches, self._earlier[block])

    def before(self, block: int) -> int:
        return self._sizes[block * self._chunk - 1]

    def last(self, outputs: Tensor) -> Tensor:
        return outputs.index_select(0, self._where.from_the_end(0, 1, outputs.device))


def _earlier(batch_sizes: Tensor, chunk: int) -> Tensor:
    """As in `Layout`, of all chunks."""
    times = torch.arange(len(batch_sizes)).repeat_interleave(batch_sizes)
    firsts = batch_sizes.cumsum(0) - batch_sizes
    starts = times.div(chunk, rounding_mode="floor") * chunk
    samples = torch.arange(len(times)) - firsts[times]
    found = firsts[(times - 1).clamp(min=0)] - firsts[starts] + samples
    return found[times > starts].to(torch.int32)

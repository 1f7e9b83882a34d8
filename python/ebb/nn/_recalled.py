# SPDX-License-Identifier: Apache-2.0
"""A recurrent layer whose outputs are the caller's: they tell what the derivative needs, so that no time step runs twice."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from torch import Tensor

from ebb._tensor.trees import addresses, rounded
from ebb.nn._gated import GatedBlocks, GatedKernel
from ebb.nn._gated_layer import Leaves, Steps
from ebb.nn._layout import Layout


class RecalledBlocks(GatedBlocks):
    """One layer, forwards in time. A tape is what outputs do not tell: the c before the chunk, of an LSTM, or membranes. All else is
    made when the chunk is reversed. Of the carry only the last one has its h, which is a row of the outputs elsewhere."""

    recalls = True

    def __init__(
        self,
        name: str,
        kernel: GatedKernel,
        x: Tensor,
        batch_sizes: Tensor | None,
        chunk: int,
        states: list[Tensor],
    ):
        super().__init__(name, kernel, x, batch_sizes, chunk, False)
        (self._layer,) = kernel.stack
        self._has_field = self._layer.has_field
        self._start = self._layer.aligned(states[0].detach())
        self._before: Sequence[Tensor] = []  # the outputs in chunks that begin and end a time step earlier
        if not addresses([self._start]) & addresses(states):
            self.beside += rounded(self._start.nbytes, x.device)
        rows = self._layouts.rows_at_most
        self.made, of_sums = self._layer.recorded_bytes(rows)
        self.grows = self.made + of_sums
        if batch_sizes is not None:
            self.grows += rows * self._layer.hidden * x.element_size()  # the h before each row
        if self._gated.widens:
            self.grows += 2 * rows * self._layer.hidden * x.element_size()  # outputs and their gradients

    def _trial(self, x: Tensor, sizes: Tensor) -> tuple[GatedBlocks, list[Tensor]]:
        return RecalledBlocks(self.name, self._gated, x, sizes, len(sizes), [self._start]), [x]

    def recall(self, ys: list[Tensor]) -> None:
        # Hooks of others may have packed it and return it at any address.
        self._filled = self._layer.aligned(ys[0].detach().contiguous()).view(self._given.shape[0], self._gated.hidden)
        self._before = []

    def kept(self, carry: Leaves) -> Leaves:
        return [None, carry[1]] if self._has_field else [None]

    def advance(self, block: int, carry: Leaves, first: bool) -> Leaves:
        if not (first or self._has_field):
            return [None]
        layer, x, layout = self._layer, self._inputs[block], self._layouts.layout(block)
        widens, (before, outputs) = self._gated.widens, self._addresses(block)
        unread = x.new_empty(layout.rows, layer.hidden) if widens or not first else None
        wide = self._h_before(block, layout) if widens else None
        field = layer.run(
            layer.sums(x),
            layout,
            before if wide is None else wide.data_ptr(),
            layer.field_of(carry),
            outputs if unread is None else unread.data_ptr(),
            self._gated.stream,
        )
        if first and unread is not None:
            self._put(block, self._filled, unread)
        if layer.mode == "GRU":
            return [field]
        assert self._filled is not None
        last = first and block == self.count - 1
        h = self._gated.wide(self._layouts.last(self._filled)) if last else None
        return [h] if field is None else [h, field]

    def record(self, block: int, carry: Leaves, first: bool) -> tuple[Leaves, Any]:
        return self.advance(block, carry, first), carry[1] if self._has_field else None

    def held(self, tape: Any) -> list[Tensor]:
        return [] if tape is None else [tape]

    def reverse(self, block: int, tape: Any, gradients: Leaves) -> Leaves:
        layer, x, layout, stream = self._layer, self._inputs[block], self._layouts.layout(block), self._gated.stream
        if self._gated.widens or layout.earlier is not None:
            before, outputs, hs = self._around(block, layout)
            steps = Steps(outputs.data_ptr(), before.data_ptr(), [hs])
        else:
            at_before, at_outputs = self._addresses(block)
            steps = Steps(at_outputs, at_before, self._hs(block))
        of_outputs, address = self._of_outputs(block)
        gates = layer.recall(x, layout, tape, steps, stream)
        totals, beside = self._totals[0], self._beside(block)
        layer.pull_back(x, layout, gates, steps, address, gradients, totals, *beside, stream)
        return gradients

    def _h_before(self, block: int, layout: Layout) -> Tensor:
        """Of the samples that a chunk begins with."""
        if block == 0:
            return self._start
        assert self._filled is not None
        row = self._layouts.first(block) - self._layouts.before(block)
        return self._gated.wide(self._filled.narrow(0, row, layout.stretches[0].batch))

    def _addresses(self, block: int) -> tuple[int, int]:
        """Of the h before a chunk and of its outputs, where no units are missing."""
        assert self._filled is not None
        each = self._layer.hidden * self._filled.element_size()
        outputs = self._filled.data_ptr() + self._layouts.first(block) * each
        return self._start.data_ptr() if block == 0 else outputs - self._layouts.before(block) * each, outputs

    def _around(self, block: int, layout: Layout) -> tuple[Tensor, Tensor, Tensor]:
        """The h before a chunk, its outputs, and the h before each row."""
        before, outputs = self._h_before(block, layout), self._outputs(block)
        if layout.earlier is not None:
            outputs = self._gated.wide(outputs)
            return before, outputs, self._layer.before_each(before, outputs, layout)
        batch = self._layouts.batch
        hs = outputs.new_zeros(batch + layout.rows, self._layer.hidden)
        hs.narrow(0, 0, batch).copy_(before)
        hs.narrow(0, batch, layout.rows).narrow(1, 0, outputs.shape[1]).copy_(outputs)
        return hs, hs.narrow(0, batch, layout.rows), hs.narrow(0, 0, layout.rows)

    def _hs(self, block: int) -> list[Tensor]:
        """The h before each row, in one piece or two, where no units are missing and all sequences have one length."""
        assert self._filled is not None
        if not self._before:
            batch = self._layouts.batch
            sizes = [self._layouts.rows(k) for k in range(self.count)]
            self._before = self._filled.split([sizes[0] - batch, *sizes[1:], batch])
        if block > 0:
            return [self._before[block]]
        return [self._start, self._before[0]] if len(self._before[0]) > 0 else [self._start]

    def results(self) -> list[Tensor]:
        self._before = []
        return super().results()

    def forget(self) -> None:
        super().forget()
        self._filled, self._before = None, []

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
    """One layer, forwards in time. A tape is what outputs do not tell: the c before the chunk, of an LSTM. All else is made when the
    chunk is reversed. Of the carry only the last one has its h, which is a row of the outputs elsewhere."""

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
        self._lstm = self._layer.mode == "LSTM"
        self._start = self._layer.aligned(states[0].detach())
        self._before: Sequence[Tensor] = []  # the outputs in chunks that begin and end a time step earlier
        if not addresses([self._start]) & addresses(states):
            self.beside += rounded(self._start.nbytes, x.device)
        rows = self._layouts.rows_at_most
        self.made, of_sums = self._layer.recorded_bytes(rows)
        self.grows = self.made + of_sums
        if batch_sizes is not None:
            self.grows += rows * self._layer.hidden * x.element_size()  # the h before each row

    def _trial(self, x: Tensor, sizes: Tensor) -> tuple[GatedBlocks, list[Tensor]]:
        return RecalledBlocks(self.name, self._gated, x, sizes, len(sizes), [self._start]), [x]

    def recall(self, ys: list[Tensor]) -> None:
        # Hooks of others may have packed it and return it at any address.
        self._filled = self._layer.aligned(ys[0].detach().contiguous()).view(self._given.shape[0], self._layer.hidden)
        self._before = []

    def kept(self, carry: Leaves) -> Leaves:
        return [None, carry[1]] if self._lstm else [None]

    def advance(self, block: int, carry: Leaves, first: bool) -> Leaves:
        if not (first or self._lstm):
            return [None]
        layer, x, layout = self._layer, self._inputs[block], self._layouts.layout(block)
        steps = self._steps(block)
        unread = None if first else x.new_empty(layout.rows, layer.hidden)
        outputs = steps.outputs if unread is None else unread.data_ptr()
        field = layer.run(layer.sums(x), layout, steps.before, layer.field_of(carry), outputs, self._gated.stream)
        if layer.mode == "GRU":
            return [field]
        assert self._filled is not None
        h = self._layouts.last(self._filled) if first and block == self.count - 1 else None
        return [h] if field is None else [h, field]

    def record(self, block: int, carry: Leaves, first: bool) -> tuple[Leaves, Any]:
        return self.advance(block, carry, first), carry[1] if self._lstm else None

    def held(self, tape: Any) -> list[Tensor]:
        return [] if tape is None else [tape]

    def reverse(self, block: int, tape: Any, gradients: Leaves) -> Leaves:
        layer, x, layout, stream = self._layer, self._inputs[block], self._layouts.layout(block), self._gated.stream
        steps = self._steps(block, self._hs(block, layout))
        of_outputs, address = self._of_outputs(block)
        gates = layer.recall(x, layout, tape, steps.hs, stream)
        totals, beside = self._totals[0], self._beside(block)
        layer.pull_back(x, layout, gates, steps, address, gradients, totals, *beside, stream)
        return gradients

    def _steps(self, block: int, hs: list[Tensor] | None = None) -> Steps:
        assert self._filled is not None
        filled, each = self._filled, self._layer.hidden * self._filled.element_size()
        outputs = filled.data_ptr() + self._layouts.first(block) * each
        before = self._start.data_ptr() if block == 0 else outputs - self._layouts.before(block) * each
        return Steps(outputs, before, hs or [])

    def _hs(self, block: int, layout: Layout) -> list[Tensor]:
        """The h before each row."""
        assert self._filled is not None
        if layout.earlier is not None:
            first, before = self._layouts.first(block), self._start
            if block > 0:
                before = self._filled.narrow(0, first - self._layouts.before(block), layout.stretches[0].batch)
            return [self._layer.before_each(before, self._outputs(block), layout)]
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

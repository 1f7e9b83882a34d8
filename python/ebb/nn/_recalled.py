# SPDX-License-Identifier: Apache-2.0
"""A recurrent layer whose outputs are the caller's: they tell what the derivative needs, so that no time step runs twice."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from torch import Tensor

from ebb._tensor.trees import addresses, rounded
from ebb.nn._gated import GatedBlocks, GatedKernel
from ebb.nn._gated_layer import Leaves, Steps


class RecalledBlocks(GatedBlocks):
    """One layer, forwards in time. A tape is what outputs do not tell: the c before the chunk, of an LSTM. All else is made when the
    chunk is reversed. Of the carry only the last one has its h, which is a row of the outputs elsewhere."""

    recalls = True

    def __init__(self, name: str, kernel: GatedKernel, x: Tensor, chunk: int, states: list[Tensor]):
        super().__init__(name, kernel, x, chunk, False)
        (self._layer,) = kernel.stack
        self._lstm = self._layer.mode == "LSTM"
        self._start = self._layer.aligned(states[0].detach())
        self._before: Sequence[Tensor] = []  # the outputs in chunks that begin and end a time step earlier
        if not addresses([self._start]) & addresses(states):
            self.beside += rounded(self._start.nbytes, x.device)
        self.made, of_sums = self._layer.recorded_bytes(self._rows_at_most)
        self.grows = self.made + of_sums

    def recall(self, ys: list[Tensor]) -> None:
        # Hooks of others may have packed it and return it at any address.
        self._filled = self._layer.aligned(ys[0].detach().contiguous()).view(self._given.shape[0], self._layer.hidden)
        self._before = []

    def kept(self, carry: Leaves) -> Leaves:
        return [None, carry[1]] if self._lstm else [None]

    def advance(self, block: int, carry: Leaves, first: bool) -> Leaves:
        if not (first or self._lstm):
            return [None]
        layer, x = self._layer, self._inputs[block]
        steps = self._steps(block)
        unread = None if first else x.new_empty(x.shape[0], layer.hidden)
        outputs = steps.outputs if unread is None else unread.data_ptr()
        field = layer.run(layer.sums(x), self._batch, steps.before, layer.field_of(carry), outputs, self._gated.stream)
        if layer.mode == "GRU":
            return [field]
        h = self._outputs(block)[-self._batch :].clone() if first and block == self.count - 1 else None
        return [h] if field is None else [h, field]

    def record(self, block: int, carry: Leaves, first: bool) -> tuple[Leaves, Any]:
        return self.advance(block, carry, first), carry[1] if self._lstm else None

    def held(self, tape: Any) -> list[Tensor]:
        return [] if tape is None else [tape]

    def reverse(self, block: int, tape: Any, gradients: Leaves) -> Leaves:
        layer, x = self._layer, self._inputs[block]
        steps = self._steps(block, self._hs(block))
        of_outputs, address = self._of_outputs(block)
        gates = layer.recall(x, tape, steps.hs, self._batch, self._gated.stream)
        layer.pull_back(x, gates, steps, address, gradients, self._totals[0], *self._beside(block), self._gated.stream)
        return gradients

    def _steps(self, block: int, hs: list[Tensor] | None = None) -> Steps:
        assert self._filled is not None
        filled, each = self._filled, self._layer.hidden * self._filled.element_size()
        outputs = filled.data_ptr() + self._first_row(block) * each
        before = self._start.data_ptr() if block == 0 else outputs - self._batch * each
        return Steps(outputs, before, hs or [])

    def _hs(self, block: int) -> list[Tensor]:
        """The h before each row."""
        if not self._before:
            assert self._filled is not None
            sizes = [self.steps(k) * self._batch for k in range(self.count)]
            self._before = self._filled.split([sizes[0] - self._batch, *sizes[1:], self._batch])
        if block > 0:
            return [self._before[block]]
        return [self._start, self._before[0]] if len(self._before[0]) > 0 else [self._start]

    def results(self) -> list[Tensor]:
        self._before = []
        return super().results()

    def forget(self) -> None:
        super().forget()
        self._filled, self._before = None, []

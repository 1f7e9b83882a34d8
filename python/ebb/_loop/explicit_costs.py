# SPDX-License-Identifier: Apache-2.0
"""What a block costs that runs forward and back by itself."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import torch
from torch import Tensor

from ebb._loop.blocks import Blocks, Explicit, Leaves
from ebb._loop.costs import Costs, Tried, measure_tried
from ebb._tensor.trees import addresses, rounded, storage_bytes


class _Trial(Tried):
    """The first block."""

    def __init__(self, blocks: Explicit, initial: Leaves):
        self._blocks, self._initial = blocks, initial

    def forward(self) -> None:
        self._blocks.advance(0, self._initial, False)

    def record(self) -> tuple[Leaves, Any]:
        return self._blocks.record(0, self._initial, False)

    def reverse(self, tape: Any) -> list[Tensor]:
        after, own = tape
        self._blocks.reverse(0, own, [torch.zeros_like(leaf) for leaf in after])
        return []

    def plain(self, together: int) -> None:
        for _ in range(together):
            self.reverse(self.record())


def explicit_costs(
    blocks: Blocks, explicit: Explicit, initial: Leaves, inputs: list[Tensor], device: torch.device
) -> Costs:
    """Runs the first block a few times, forward and back. Inside of `running`."""
    trial = _Trial(explicit, initial)
    after, tape = trial.record()
    held = storage_bytes([*explicit.held(tape), *after], addresses(inputs + explicit.params))
    state = sum(rounded(leaf.nbytes, device) for leaf in after)
    del after, tape
    blocks.begin()
    # Gradients that come as one number take a copy more than others.
    blocks.begin_backward([torch.zeros((), dtype=y.dtype, device=device).expand(y.shape) for y in blocks.results()])
    try:
        costs = measure_tried(trial, held, state, device)
    finally:
        explicit.forget()
    return replace(costs, scratch=costs.scratch + explicit.beside)

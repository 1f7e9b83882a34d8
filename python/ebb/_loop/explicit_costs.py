# SPDX-License-Identifier: Apache-2.0
"""What a block costs that runs forward and back by itself."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import torch
from torch import Tensor

from ebb._loop.blocks import Explicit, Leaves
from ebb._loop.costs import Costs, Tried, measure_tried
from ebb._tensor.memory import seconds_of
from ebb._tensor.trees import addresses, rounded, storage_bytes


class _Trial(Tried):
    """The first block. Where outputs are recalled they are there, and its time is that of a first run: another may have nothing to do."""

    def __init__(self, blocks: Explicit, initial: Leaves):
        self._blocks, self._initial = blocks, initial

    def forward(self) -> None:
        self._forward()
        self._blocks.advance(0, self._initial, False)

    def _forward(self) -> None:
        self._blocks.advance(0, self._initial, self._blocks.recalls)

    def record(self) -> Any:
        return self._blocks.record(0, self._initial, self._blocks.recalls)[1]

    def reverse(self, tape: Any) -> list[Tensor]:
        self._blocks.reverse(0, tape, self._blocks.adjoint([None] * len(self._initial)))
        return []

    def plain(self, together: int) -> None:
        for _ in range(together):
            self.reverse(self.record())

    def seconds(self, device: torch.device) -> tuple[float, float, float]:
        ahead = seconds_of(self._forward, device)
        tapes: list[Any] = []
        recording = seconds_of(lambda: tapes.append(self.record()), device)
        return ahead, recording, seconds_of(lambda: self.reverse(tapes[0]), device)


def explicit_costs(explicit: Explicit, initial: Leaves, device: torch.device) -> tuple[Costs, int]:
    """Runs a block a few times, forward and back. Inside of `running`. Without what a backward holds beside; and the bytes of all that
    keeping everything would keep of a block."""
    blocks, inputs = explicit.trial()
    blocks.begin()
    after, tape = blocks.record(0, initial, True)
    kept = [leaf for leaf in blocks.kept(after) if leaf is not None]
    held = storage_bytes([*blocks.held(tape), *kept], addresses(inputs + blocks.params))
    state = sum(rounded(leaf.nbytes, device) for leaf in kept)
    del after, tape, kept
    ys = blocks.results()
    blocks.recall(ys)
    # Gradients that come as one number take a copy more than others.
    blocks.begin_backward([torch.zeros((), dtype=y.dtype, device=device).expand(y.shape) for y in ys])
    try:
        costs = measure_tried(_Trial(blocks, initial), held, state, device)
    finally:
        blocks.forget()
    return replace(costs, grows=blocks.grows), costs.tape + blocks.made

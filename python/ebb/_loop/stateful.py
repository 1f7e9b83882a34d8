# SPDX-License-Identifier: Apache-2.0
"""Blocks of a function that keeps state outside of its arguments: behind the leaves of their carry are the tensors of it."""

from __future__ import annotations

from typing import Any

from torch import Tensor

from ebb._loop.blocks import Blocks, Leaves
from ebb._loop.surprises import ChangesLater
from ebb._tensor.outside import Outside


class Stateful:
    """Other blocks, and what their function keeps outside. Where they begin the carry is the caller's alone."""

    def __init__(self, blocks: Blocks, outside: Outside):
        self._blocks = blocks
        self._outside = outside

    def __getattr__(self, name: str) -> Any:
        return getattr(self._blocks, name)

    def run(self, block: int, carry: Leaves, inputs: list[Tensor]) -> tuple[Leaves, list[Tensor]]:
        outside = self._outside
        if not outside.moving:
            return self._blocks.run(block, carry, inputs)
        own = carry[: outside.own]
        if block == 0:
            outside.begin_again(carry[outside.own :])
        else:
            outside.give(carry)
        try:
            leaves, ys = self._blocks.run(block, own, inputs)
        except RuntimeError as error:
            if "a leaf Variable that requires grad" in str(error) and outside.may_write():
                raise ChangesLater from error
            raise
        if outside.wrote():
            raise ChangesLater
        return leaves + outside.take(leaves, carry), ys

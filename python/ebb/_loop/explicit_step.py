# SPDX-License-Identifier: Apache-2.0
"""A Step over blocks that run forward and back by themselves: no graph is built and autograd is not asked."""

from __future__ import annotations

from contextlib import AbstractContextManager
from typing import Any

from torch import Tensor

from ebb._loop.blocks import Explicit, Leaves
from ebb._loop.recorder import Recorder
from ebb._loop.step import TorchStep
from ebb._loop.tape import State, Tape
from ebb._loop.tiers import TorchTiers


class _Recorded(Tape):
    __slots__ = ("own",)

    def __init__(self, own: Any, after: Leaves):
        super().__init__([], [], [], [], State(after, None), 0)
        self.own = own


class ExplicitStep(TorchStep):
    """States, tiers and the order of things are a TorchStep's; what runs is the blocks' own."""

    def __init__(self, explicit: Explicit, recorder: Recorder, initial: State, tiers: TorchTiers | None):
        super().__init__(recorder, initial, tiers=tiers)
        self._explicit = explicit

    def running(self) -> AbstractContextManager[None]:
        return self._explicit.running()

    def end_forward(self) -> None:
        """Blocks change nothing."""

    @property
    def recalls(self) -> bool:
        return self._explicit.recalls

    def recall(self, ys: list[Tensor]) -> None:
        self._explicit.recall(ys)

    def held(self) -> list[Tensor]:
        tapes = [tape.own for tape in self._tapes.values() if isinstance(tape, _Recorded)]
        return super().held() + [tensor for tape in tapes for tensor in self._explicit.held(tape)]

    def clear(self) -> None:
        super().clear()
        self._explicit.forget()

    def advance(self, start: int, end: int, first: bool) -> int:
        live, wanted = self._live, first and not self._mute
        for block in range(start, end):
            live = self._explicit.advance(block, live, wanted)
        self._live = live
        return end

    def record(self, start: int, end: int, first: bool) -> None:
        wanted = first and not self._mute
        for block in range(start, end):
            self._live, tape = self._explicit.record(block, self._live, wanted)
            self._tapes[block] = _Recorded(tape, self._explicit.kept(self._live))

    def begin_backward(self, adjoint: list[Tensor | None]) -> None:
        super().begin_backward(self._explicit.adjoint(adjoint))

    def reverse(self, start: int, end: int) -> None:
        self._live = []
        for block in reversed(range(start, end)):
            tape = self._tapes.pop(block)
            assert isinstance(tape, _Recorded)
            self._gradients.carry = self._explicit.reverse(block, tape.own, self._gradients.carry)

    def _state(self) -> State:
        return State(self._explicit.kept(self._live), None)

    def _held(self, step: int) -> State:
        return State(self._explicit.kept(self.initial.leaves), None) if step == 0 else super()._held(step)

    def end_backward(self) -> tuple[list[Tensor | None], list[Tensor | None], list[Tensor | None]]:
        self._gradients.carry = self._explicit.of_carry(self._gradients.carry)
        self._gradients.params = self._explicit.of_params()
        return super().end_backward()

# SPDX-License-Identifier: Apache-2.0
"""What a block of steps costs: bytes and seconds, measured on the first one."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Container
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor

from ebb._base.errors import Error
from ebb._core import StepCost
from ebb._loop.blocks import Leaves
from ebb._loop.recorder import Gradients, Recorder, quiet_hooks
from ebb._loop.tape import Tape
from ebb._tensor.memory import peak_beside, peak_of, seconds_of
from ebb._tensor.outside import Form
from ebb._tensor.trees import can_have_gradient, storage_bytes

_ROUNDS = 2
# A plain loop calls autograd once for all of its steps, so that several blocks together tell better what one takes, where they are small.
_TOGETHER, _SMALL, _TIME_STEPS = 8, 2 << 20, 32


@dataclass(frozen=True)
class Costs:
    """Of one block."""

    state: int
    tape: int
    scratch: int
    forward: float
    record: float
    backward: float
    plain: float  # forward and backward as plain autograd runs it, without any of our care
    live: int = 0  # bytes of a state that is not kept, where a codec keeps it in fewer
    grows: int = 0  # bytes of the scratch that grow with the length of a block, where a tape does not

    def step_cost(self, extra: int = 0, adjoint: int | None = None) -> StepCost:
        live = max(self.state, self.live)
        return StepCost(
            forward=self.forward,
            record=self.record,
            backward=self.backward,
            state=max(1, self.state),
            tape=max(1, self.tape),
            adjoint=max(1, live if adjoint is None else adjoint),
            scratch=self.scratch + extra,
            live=self.live,
        )

    def with_state(self, more: int) -> Costs:
        return replace(self, state=self.state + more, tape=self.tape + more)


class Tried(ABC):
    """A block that can be run again and again. Gradients go nowhere."""

    @abstractmethod
    def forward(self) -> None: ...

    @abstractmethod
    def record(self) -> Any:
        """A tape."""

    @abstractmethod
    def reverse(self, tape: Any) -> list[Tensor]:
        """Gradients that are the caller's as soon as they are there."""

    @abstractmethod
    def plain(self, together: int) -> None:
        """That many blocks one after the other, as plain autograd runs them."""

    def seconds(self, device: torch.device) -> tuple[float, float, float]:
        """Forward, recorded, and back."""
        ahead = seconds_of(self.forward, device)
        tapes: list[Any] = []
        recording = seconds_of(lambda: tapes.append(self.record()), device)
        return ahead, recording, seconds_of(lambda: self.reverse(tapes[0]), device)


class Trial(Tried):
    """By autograd. `own`: ids of parameters that no other block uses. Their
    gradients are the caller's as soon as they are there. Those of others are added to what later blocks gave, which takes memory
    for one more of each: they are in `gradients`, which several trials may share. `forms`: of what f keeps outside, before the block."""

    def __init__(
        self,
        recorder: Recorder,
        initial: Leaves,
        block: int = 0,
        own: Container[int] = (),
        forms: list[Form] | None = None,
        gradients: Gradients | None = None,
    ):
        self._recorder, self._initial, self._block, self._own, self._forms = recorder, initial, block, own, forms
        self._gradients = gradients or recorder.no_gradients([])

    def _begin(self) -> None:
        if self._forms is not None:
            self._recorder.around.outside.forms = self._forms

    def forward(self) -> None:
        self._begin()
        blocks = self._recorder.blocks
        with torch.no_grad():
            carry = [None if t is None else t.clone() for t in self._initial]
            blocks.run(self._block, carry, blocks.inputs(self._block, False))

    def record(self) -> Tape:
        self._begin()
        tape, _ = self._recorder.recorded(self._block, self._initial)
        self._recorder.check(self._block, tape)
        return tape

    def reverse(self, tape: Tape) -> list[Tensor]:
        params, gradients = self._recorder.facts.params, self._gradients
        gradients.params = [None if id(p) in self._own else of_p for p, of_p in zip(params, gradients.params)]
        gradients.carry = [torch.ones_like(t) if t is not None and t.requires_grad else None for t in tape.out]
        of_ys = [torch.ones_like(y) if y.requires_grad else None for y in tape.ys]
        self._recorder.pull_back(tape, gradients, of_ys, [])
        return [of_p for p, of_p in zip(params, gradients.params) if of_p is not None and id(p) in self._own]

    def plain(self, together: int) -> None:
        self._begin()
        self._gradients.params = [None] * len(self._gradients.params)  # which a plain loop does not have beside its own
        recorder, blocks, block = self._recorder, self._recorder.blocks, self._block
        carry = [t.detach().requires_grad_() if can_have_gradient(t) else t for t in self._initial]
        inputs = blocks.inputs(block, True)
        with torch.enable_grad():
            given = [None if t is None else t.clone() for t in carry] if block in recorder.facts.mutates else carry
            out, ys = blocks.run(block, given, inputs)
            for _ in range(together - 1):
                out, more = blocks.run(block, out, inputs)
                ys = ys + more
        ends = [t for t in out + ys if t is not None and t.requires_grad]
        wanted = [t for t in carry + inputs + recorder.facts.params if t is not None and t.requires_grad]
        if ends and wanted:
            with quiet_hooks(recorder.facts.params):
                torch.autograd.grad(ends, wanted, [torch.ones_like(t) for t in ends], allow_unused=True)


def check_measurable(name: str, device: torch.device) -> None:
    """Raises while a CUDA graph is captured, since clocks and comparisons wait for the GPU."""
    if device.type == "cuda" and torch.cuda.is_current_stream_capturing():
        raise Error(
            f"{name}: what it costs is not known yet, and cannot be measured while a CUDA graph is captured around it",
            remedy="run the same call once before the capture",
        )


def measure(
    recorder: Recorder,
    initial: Leaves,
    tape_bytes: int,
    state_bytes: int,
    device: torch.device,
    block: int = 0,
    own: Container[int] = (),
    forms: list[Form] | None = None,
    loops: bool = True,
) -> Costs:
    """Runs the block a few times, forward and back. `loops`: what comes out of it can go into it. Others as of Trial."""
    check_measurable(recorder.blocks.name, device)
    trial = Trial(recorder, initial, block, own, forms)
    together = 1
    if loops and forms is None and not recorder.around.outside.moving:
        steps = -(-recorder.blocks.length // recorder.blocks.count)
        each = max(1, tape_bytes + storage_bytes(recorder.facts.params))  # gradients of several blocks are added up
        together = max(1, min(_TOGETHER, _SMALL // each, _TIME_STEPS // steps))
    return measure_tried(trial, tape_bytes, state_bytes, device, together)


def measure_tried(trial: Tried, tape_bytes: int, state_bytes: int, device: torch.device, together: int = 1) -> Costs:
    """`together`: blocks that are timed at once where plain autograd runs them."""
    trial.forward()
    _, forward_peak = peak_of(trial.forward, device)
    tape, record_peak = peak_of(trial.record, device)
    trial.reverse(tape)
    tape = trial.record()
    reverse_peak = peak_beside(lambda: trial.reverse(tape), device)
    rounds = [trial.seconds(device) for _ in range(_ROUNDS)]
    plainly = [seconds_of(lambda: trial.plain(together), device) for _ in range(_ROUNDS)]
    scratch = max(forward_peak, record_peak - tape_bytes, reverse_peak)
    ahead, recorded, back = (min(column) for column in zip(*rounds))
    return Costs(state_bytes, tape_bytes, scratch, ahead, recorded, back, min(plainly) / together)

# SPDX-License-Identifier: Apache-2.0
"""What a block of steps costs: bytes and seconds, measured on the first one."""

from __future__ import annotations

import time
import weakref
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

from ebb._blocks import Leaves
from ebb._core import StepCost
from ebb._torch_step import TorchStep
from ebb._torch_tape import Tape
from ebb._trees import rounded

_ROUNDS = 2


class LiveBytes(TorchDispatchMode):
    """Bytes of the tensors that operations inside make and that are still alive: `live` and `peak`."""

    def __init__(self) -> None:
        super().__init__()
        self.live = self.peak = 0
        self._seen: dict[int, Any] = {}

    def __torch_dispatch__(self, operation: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        result = operation(*args, **(kwargs or {}))
        given = None
        for leaf in tree_leaves(result):
            if not isinstance(leaf, Tensor) or leaf.is_sparse:
                continue
            memory = leaf.untyped_storage()
            if memory._cdata in self._seen:
                continue
            if given is None:
                given = {t.untyped_storage()._cdata for t in tree_leaves((args, kwargs)) if isinstance(t, Tensor)}
            if memory._cdata not in given:
                self._add(memory, rounded(memory.nbytes(), leaf.device))
        return result

    def _add(self, memory: Any, nbytes: int) -> None:
        key = memory._cdata

        def forget() -> None:
            self.live -= nbytes
            del self._seen[key]

        self._seen[key] = weakref.finalize(memory, forget)
        self._seen[key].atexit = False
        self.live += nbytes
        self.peak = max(self.peak, self.live)


def peak_of(work: Callable[[], Any], device: torch.device) -> tuple[Any, int]:
    """The result, and the most bytes that were held at once beyond those held before. On a GPU this resets the peak that
    torch.cuda.max_memory_allocated() tells."""
    if device.type == "cuda":
        torch.cuda.synchronize(device)
        before = torch.cuda.memory_allocated(device)
        torch.cuda.reset_peak_memory_stats(device)
        result = work()
        torch.cuda.synchronize(device)
        return result, torch.cuda.max_memory_allocated(device) - before
    with LiveBytes() as counted:
        result = work()
    return result, counted.peak


def seconds_of(work: Callable[[], Any], device: torch.device) -> float:
    if device.type == "cuda":
        torch.cuda.synchronize(device)
    start = time.perf_counter()
    work()
    if device.type == "cuda":
        torch.cuda.synchronize(device)
    return time.perf_counter() - start


@dataclass(frozen=True)
class Costs:
    """Of one block."""

    state: int
    tape: int
    scratch: int
    forward: float
    record: float
    backward: float
    live: int = 0  # bytes of a state that is not kept, where a codec keeps it in fewer

    def step_cost(self, extra: int = 0, adjoint: int | None = None) -> StepCost:
        live = max(self.state, self.live)
        return StepCost(forward=self.forward, record=self.record, backward=self.backward, state=max(1, self.state),
                        tape=max(1, self.tape), adjoint=max(1, live if adjoint is None else adjoint),
                        scratch=self.scratch + extra, live=self.live)

    def with_state(self, more: int) -> Costs:
        return replace(self, state=self.state + more, tape=self.tape + more)


def measure(step: TorchStep, initial: Leaves, tape_bytes: int, state_bytes: int, device: torch.device,
            block: int = 0) -> Costs:
    """Runs the block a few times, forward and back. Gradients go nowhere."""

    def forward() -> None:
        with torch.no_grad():
            step.blocks.run(block, [None if t is None else t.clone() for t in initial], step.blocks.inputs(block, False))

    def reverse(tape: Tape) -> None:
        step.adjoint = [torch.ones_like(t) if t is not None and t.requires_grad else None for t in tape.out]
        step.pull_back(tape, [torch.ones_like(y) if y.requires_grad else None for y in tape.ys], [], [])

    forward()
    _, forward_peak = peak_of(forward, device)
    tape, record_peak = peak_of(lambda: step.recorded(block, initial)[0], device)
    step.begin_backward([])
    reverse(tape)
    tape = step.recorded(block, initial)[0]
    _, reverse_peak = peak_of(lambda: reverse(tape), device)
    seconds = [float("inf")] * 3
    for _ in range(_ROUNDS):
        seconds[0] = min(seconds[0], seconds_of(forward, device))
        tapes: list[Tape] = []
        seconds[1] = min(seconds[1], seconds_of(lambda: tapes.append(step.recorded(block, initial)[0]), device))
        seconds[2] = min(seconds[2], seconds_of(lambda: reverse(tapes[0]), device))
    step.begin_backward([])
    scratch = max(forward_peak, record_peak - tape_bytes, reverse_peak)
    return Costs(state_bytes, tape_bytes, scratch, *seconds)

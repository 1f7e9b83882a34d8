# SPDX-License-Identifier: Apache-2.0
"""A Step whose blocks are CUDA graphs: a tape is the state before its block, which is recorded when it is reversed."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager, suppress
from typing import Any

import torch
from torch import Tensor

from ebb import _core
from ebb._base.errors import Error
from ebb._loop.blocks import Leaves
from ebb._loop.graphs import Advance, Graphs, check_alike_f
from ebb._loop.recorder import Back, Gradients
from ebb._loop.step import TorchStep
from ebb._loop.surprises import ChangesLater
from ebb._loop.tape import Pattern, State, Tape
from ebb._tensor.context import Snapshot
from ebb._tensor.outside import forms_key

_ADVANCE, _RECORD, _REVERSE, _COPY = range(4)  # kinds of a plan's actions
_WORK = -1


def spared_forwards(plan: _core.Plan, blocks: int) -> int:
    """Blocks that a plan records right before they are reversed. Only the last block of the loop runs forward then, for its outputs:
    of others, what comes after them is not needed. 0 for a plan that does not know its end."""
    spared, waits = 0, False
    if plan.length_unknown:
        return 0
    rows: Any = _core.cursor(plan)
    for kind, *parts in rows:
        if kind == _REVERSE:
            spared, waits = spared + waits, False
        elif kind == _RECORD:
            waits = parts[1] < blocks
        elif kind == _ADVANCE or (kind == _COPY and parts[2] == _WORK):
            waits = False
    return spared


class _StateTape(Tape):
    __slots__ = ("snapshot",)

    def __init__(self, before: Leaves, ys: list[Tensor], snapshot: Snapshot | None):
        super().__init__(before, [], [], ys, State([], None), 0)
        self.snapshot = snapshot  # of what f changes beside its carry, before the block


class GraphStep(TorchStep):
    """`forms`: of what f keeps outside, after each block, or None where it keeps nothing. With them the first block begins with other
    things than all others, and runs as it would without graphs. `compared`: a block that f itself runs too, for comparison, when
    it is advanced first and when it is reversed. `missing` is called where gradients come in a pattern of which there is no graph,
    `wrong` where a graph gives others than f."""

    def __init__(
        self,
        graphs: Graphs,
        *arguments: Any,
        forms: Any,
        compared: int | None,
        missing: Callable[[Pattern], None],
        wrong: Callable[[], None],
        **words: Any,
    ):
        self._graphs = graphs
        self._missing, self._wrong = missing, wrong
        self._forms, self._compared, self._compared_back = forms, compared, compared
        self._unknown: Tape | None = None  # whose following part has not been asked for yet
        self._now: Leaves = []
        self._begins = False  # a backward
        self._unchecked = False  # in it, whether blocks that are graphs read what the caller has changed
        self._untold = False  # that replays have changed buffers
        super().__init__(*arguments, **words)
        self._addresses = [(tensor, tensor.data_ptr()) for tensor in self.around.tensors()]

    @property
    def _live(self) -> Leaves:
        if self._unknown is not None:
            tape, self._unknown = self._unknown, None
            block = next(block for block, own in self._tapes.items() if own is tape)
            self._now, _ = self._advance(block, tape.carry, False)
            tape.after = State(self._now, self.around.snapshot())
        return self._now

    @_live.setter
    def _live(self, leaves: Leaves) -> None:
        self._now, self._unknown = leaves, None

    def running(self) -> AbstractContextManager[None]:
        if torch.cuda.is_current_stream_capturing():
            raise Error(
                f"{self.blocks.name}: its forward ran as CUDA graphs, so that its backward cannot be captured as a part of another one",
                remedy="capture neither, or give graph=False",
            )
        self._check_memory()
        return self._graphs.running()

    def end_forward(self) -> None:
        self._tell()

    def _tell(self) -> None:
        """Autograd that buffers have changed, which a replay does not: before a tape is recorded that may save them, not after."""
        if self._untold:
            for buffer in self.around.changed:
                torch.autograd.graph.increment_version(buffer)
        self._untold = False

    def _alone(self, block: int) -> bool:
        return block == 0 and self._forms is not None

    def _advance(self, block: int, live: Leaves, first: bool) -> tuple[Leaves, list[Tensor]]:
        if self._alone(block):
            return super()._advance(block, live, first)
        if first and self._forms is not None and forms_key(self.around.outside.forms) != self._forms:
            raise ChangesLater
        before = self.around.snapshot() if block == self._compared and first else None
        found = self._graphs.advance(self.recorder, block, live, self.blocks.sums() if first else [])
        if found is None:
            return super()._advance(block, live, first)
        self._untold = self._untold or not self._mute
        if block == self._compared and first:
            self._compare_with_f(block, live, found, before)
        if first:
            self._note_origins(block, found.carry, found.out, found.ys)
        ys = [y.clone() for y in found.ys] if self.blocks.reduces and first else found.ys
        return [None if leaf is None else leaf.clone() for leaf in found.out], ys

    def _compare_with_f(self, block: int, live: Leaves, found: Advance, before: Snapshot | None) -> None:
        after, self._compared = self.around.snapshot(), None
        self.around.restore(before)
        with suppress(torch.cuda.OutOfMemoryError):  # another call may have room for it
            self._graphs.compare(self.recorder, block, found, live)
            own = self.around.snapshot()
            if own is not None and after is not None:
                check_alike_f(self.recorder, block, after.buffers, own.buffers)
        self.around.restore(after)

    def _record(self, block: int, first: bool, outside: set[int]) -> None:
        if self._alone(block) or not self._graphs.has(self.blocks, block, self._live):
            self._tell()
            super()._record(block, first, outside)
            return
        before, snapshot = self._live, self.around.snapshot()
        if first or snapshot is not None:
            live, ys = self._advance(block, before, first)
        marks = self._graphs.given_on(self.blocks, block, before)
        tape = _StateTape(before, marks, snapshot)  # type: ignore[arg-type]
        self._tapes[block] = tape
        if first or snapshot is not None:
            self._live = live
            tape.after = State(live, self.around.snapshot())
        else:
            self._live = []
            self._unknown = tape
        if first and not self._mute:
            self.left = None
            self.blocks.keep(block, ys)

    def _held(self, step: int) -> State:
        if self._unknown is not None and step > 0 and self._tapes.get(step - 1) is self._unknown:
            _ = self._live
        return super()._held(step)

    def _check_memory(self) -> None:
        for tensor, address in self._addresses:
            if tensor.data_ptr() != address:
                raise Error(
                    f"{self.blocks.name}: a tensor of shape {list(tensor.shape)} that f uses has moved since the forward ran, so "
                    "that CUDA graphs would read what is there no more",
                    remedy="move tensors after the backward pass, or give graph=False",
                )

    def _check_still(self) -> None:
        """What is replayed changes nothing but what it was captured with."""

    def begin_backward(self, adjoint: list[Tensor | None]) -> None:
        super().begin_backward(adjoint)
        self._begins = self._unchecked = True

    def _reverse(self, block: int, tape: Tape) -> None:
        begins, self._begins = self._begins, False
        if begins:
            self._graphs.begin_backward(self.facts.params)
        if not isinstance(tape, _StateTape):
            self._gradients.params = self._graphs.of_params()
            super()._reverse(block, tape)
            self._graphs.take_params(self._gradients.params)
            return
        last, self._last = self._last, False
        given, seeds, after = self._outputs_in_order(block, tape)
        if last:
            for m, outputs in enumerate(after):
                if outputs is not None:
                    self._gradients.carry[m] = self._sum_of(outputs, None, [], [], self._gradients.carry[m])
        unchecked, self._unchecked = self._unchecked, False
        if unchecked and self.around.stale():
            self.recorder.taped(
                block, tape.carry
            )  # which is refused where f reads one of them: a graph does not tell what it reads
        self.around.restore(tape.snapshot)
        expected = self._expected(tape, given, seeds) if block == self._compared_back else None
        back = Back(block, tape.carry, self._gradients, given, seeds)
        of_inputs = self._graphs.reverse(self.recorder, back)
        if expected is not None and of_inputs is not None:
            try:
                now = [*self._gradients.carry, *of_inputs, *self._graphs.of_params()]
                check_alike_f(self.recorder, block, now, expected)
            except Error:
                self._wrong()
                raise
        if of_inputs is None:
            self._missing(back.pattern(self.blocks))
            of_inputs = self._reversed_without(block, tape.carry, given, seeds)
        if of_inputs:
            self.blocks.take_input_gradients(block, of_inputs)

    def _expected(
        self, tape: _StateTape, given: list[Tensor | None], seeds: list[Tensor | None]
    ) -> list[Tensor | None] | None:
        """The gradients of the carry, of the inputs and of the parameters by f itself, for comparison; None: the device has no memory
        for that."""
        block, self._compared_back = self._compared_back, None
        assert block is not None
        try:
            recorded, _ = self.recorder.taped(block, tape.carry)
            by_now = self._gradients.carry, self._graphs.of_params()
            own = Gradients(*([None if t is None else t.clone() for t in each] for each in by_now))
            of_inputs = self.recorder.pull_back(recorded, own, given, seeds)
        except torch.cuda.OutOfMemoryError:
            return None
        finally:
            self.around.restore(tape.snapshot)
        return [*own.carry, *of_inputs, *own.params]

    def _reversed_without(
        self, block: int, live: Leaves, given: list[Tensor | None], seeds: list[Tensor | None]
    ) -> list[Tensor | None]:
        tape, _ = self.recorder.taped(block, live)
        self.recorder.check(block, tape)
        self._gradients.params = self._graphs.of_params()
        of_inputs = self.recorder.pull_back(tape, self._gradients, given, seeds)
        self._graphs.take_params(self._gradients.params)
        return of_inputs

    def end_backward(self) -> tuple[list[Tensor | None], list[Tensor | None], list[Tensor | None]]:
        self._gradients.params = self._graphs.of_params()
        self._gradients = self._graphs.handed_out(self._gradients)
        return super().end_backward()

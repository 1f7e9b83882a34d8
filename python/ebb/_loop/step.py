# SPDX-License-Identifier: Apache-2.0
"""A Step of PyTorch tensors for the C++ executor: states are lists of tensors, tapes are autograd graphs.

Gradients are bit-identical to plain autograd's, however the steps are cut: autograd adds the gradients of a tensor in the order
in which its uses are reached, last first, so what later blocks gave is put in first, as the gradient of the tensor itself.
"""

from __future__ import annotations

import contextlib
import itertools
import zlib
from collections import Counter
from collections.abc import Callable
from contextlib import AbstractContextManager
from dataclasses import replace
from typing import Any

import torch
from torch import Tensor

from ebb._base.errors import Error
from ebb._loop.blocks import Leaves
from ebb._loop.codec.tape import Recording
from ebb._loop.holders import holds
from ebb._loop.recorder import Back, Recorder, origins_of
from ebb._loop.surprises import ChangesLater, TooHeavy
from ebb._loop.tape import Head, Origins, Outputs, Pattern, State, Tape, Weight
from ebb._loop.tiers import TorchTiers
from ebb._tensor.outside import Form, filled


class TorchStep:
    """advance, record, reverse, copy and drop as ebb/run/handle_run.h asks for; -1 is `work`, 0 `fast`.

    recorder: the blocks, and what is known of them. initial: where they begin. head: the first block, if it has run already.
    until: where the length is unknown: it ends in a state of which this is true. verify: steps that run again are compared.
    ahead: the steps are weighed that the first forward only passes, too. patterns: counts what is given to blocks in backward."""

    def __init__(
        self,
        recorder: Recorder,
        initial: State,
        *,
        head: Head | None = None,
        tiers: TorchTiers | None = None,
        until: Callable[[Leaves], bool] | None = None,
        verify: bool = False,
        ahead: bool = False,
        patterns: Counter[Pattern] | None = None,
    ):
        self.blocks, self.around, self.facts = recorder.blocks, recorder.around, recorder.facts
        self.initial = initial
        self.recorder = recorder
        self._head = head
        self._tiers = tiers
        self._until = until
        self._ahead = ahead
        self._patterns = patterns
        self._mute = False  # outputs are with the caller already
        self._seen: dict[int, int] | None = {} if verify else None
        self._gradients = recorder.no_gradients([])
        self._origins: dict[int, Origins] = {}  # by block, of the carry after it
        self._last = False  # the next block that is reversed is the last one
        self._kept: dict[int, State] = {}
        self._tapes: dict[int, Tape] = {}
        self.left: list[bool] | None = None  # which leaves of the last carry have a gradient, where that was seen
        self._beside: dict[int, tuple[list[Form], list[Any]]] = {}  # what is no tensor of states in slow tiers
        self._live: Leaves = []
        self._of_outputs: tuple[int, list[Tensor | None]] = (-1, [])  # the gradients of one block's, and which

    def plan_for(self, weight: Weight) -> None:
        """Tapes may weigh so much from now on."""
        self.facts = replace(self.facts, weight=weight, growth=None)

    def running(self) -> AbstractContextManager[None]:
        """Around a forward or a backward."""
        return contextlib.nullcontext()

    @property
    def recalls(self) -> bool:
        """Blocks read the outputs when they run again."""
        return False

    def recall(self, ys: list[Tensor]) -> None:
        """The outputs, for those that do."""

    def end_forward(self) -> None:
        """Raises ChangesLater where f has changed more than was known."""
        if self.around.learn():
            raise ChangesLater

    def begin(self) -> None:
        """A forward begins at the initial state."""
        self.clear()
        if self._head is None:
            self.around.restore(self.initial.snapshot)
        self._live = self.initial.leaves

    def hand_out(self) -> tuple[Leaves, list[Tensor]]:
        """After the first forward: the last state and the outputs, which are the caller's from now on. They are tensors of
        their own: the caller's get a graph that holds this step, which must not hold them."""
        self._mute = True
        holds(self)
        return [None if leaf is None else leaf.detach() for leaf in self._live], self.blocks.results()

    def held(self) -> list[Tensor]:
        kept = [tensor for state in self._kept.values() for tensor in state.tensors()]
        for tape in self._tapes.values():
            kept += [leaf for leaf in tape.carry if leaf is not None] + tape.inputs + tape.ys + tape.after.tensors()
        return kept

    def begin_backward(self, adjoint: list[Tensor | None]) -> None:
        self._gradients = self.recorder.no_gradients(adjoint)
        self._last = True
        self._of_outputs = (-1, [])

    def end_backward(self) -> tuple[list[Tensor | None], list[Tensor | None], list[Tensor | None]]:
        """The gradients of the initial carry, of the inputs and of the parameters."""
        return self._gradients.carry, self.blocks.end_backward(), self._gradients.params

    def clear(self) -> None:
        self._kept.clear()
        self._tapes.clear()
        self._live = []
        if self._tiers is not None:
            self._tiers.clear()

    # The executor's calls.

    def advance(self, start: int, end: int, first: bool) -> int:
        self.around.fresh_casts()
        live = self._live
        with torch.no_grad():
            for block in range(start, end):
                if block == 0 and self._head is not None:
                    live, ys = self._head.leaves, self._head.ys
                    self._origins[0] = self._head.origins
                    self._head = None
                else:
                    live, ys = self._advance(block, live, first)
                if first and not self._mute:
                    self._check_still()
                    self.left = None
                    self.blocks.keep(block, ys)
                self._compare(block, live, first)
                if first and self._until is not None and block + 1 < end and self._until(live):
                    end = block + 1
                    break
        self._live = live
        return end

    def _advance(self, block: int, live: Leaves, first: bool) -> tuple[Leaves, list[Tensor]]:
        weight = self.facts.weight
        if first and self._ahead and not self._mute and weight is not None:
            tape, given, _ = self.recorder.weighed(block, live, weight, weight.cap)
            self._note_origins(block, given, tape.out, tape.ys)
            return tape.after.leaves, [y.detach() for y in tape.ys]
        if block in self.facts.mutates:
            live = [None if leaf is None else leaf.clone() for leaf in live]
        out, ys = self.blocks.run(block, live, self.blocks.inputs(block, False))
        if first:
            self._note_origins(block, live, out, ys)
        return [None if leaf is None else leaf.detach() for leaf in out], ys

    def ended(self, step: int) -> bool:
        with torch.no_grad():
            return self._until is not None and self._until(self._live)

    def record(self, start: int, end: int, first: bool) -> None:
        if start == 0 and self._head is not None:
            self.around.put_back(self._head.before)
            self._head = None
        outside = self.recorder.outside() if self.facts.tape_codec is not None else set()
        for block in range(start, end):
            self._record(block, first, outside)

    def _record(self, block: int, first: bool, outside: set[int]) -> None:
        codec, weight, growth = self.facts.tape_codec, self.facts.weight, self.facts.growth
        recording = None if codec is None else Recording(codec, outside)
        if recording is not None:
            with recording.hooks():
                tape, given = self.recorder.taped(block, self._live)
        elif weight is not None and growth is not None:
            tape, given = self.recorder.watched(block, self._live, weight, growth)
        elif weight is not None:
            tape, given, _ = self.recorder.weighed(block, self._live, weight, weight.cap)
        else:
            tape, given = self.recorder.taped(block, self._live)
        self.recorder.check(block, tape)
        if first:
            self._note_origins(block, given, tape.out, tape.ys)
        del given
        self._tapes[block] = tape
        self._live = tape.after.leaves
        if first and not self._mute:
            self._check_still()
            self.left = [leaf is not None and leaf.requires_grad for leaf in tape.out]
            self.blocks.keep(block, [y.detach() for y in tape.ys])
        if recording is not None:
            found = self.recorder.sealed(tape, recording)
            if weight is not None and found > weight.cap:
                raise TooHeavy
        self._compare(block, self._live, first)

    def _check_still(self) -> None:
        if not self.around.is_still():
            self.around.learn()
            raise ChangesLater

    def _note_origins(self, block: int, before: Leaves, out: Leaves, ys: list[Tensor]) -> None:
        self._origins[block] = origins_of(block, before, out, ys, self._origins.get(block - 1))

    def reverse(self, start: int, end: int) -> None:
        self._live = []
        for block in reversed(range(start, end)):
            self._reverse(block, self._tapes.pop(block))

    def _check_differentiable(self, block: int, tape: Tape) -> None:
        """What had no gradient in the first block has been handed out as such."""
        pairs = list(zip(tape.ys, itertools.cycle(self.facts.outputs)))
        if self._last:
            pairs += zip(tape.out, self.facts.differentiable)
        self._last = False
        if any(tensor is not None and tensor.requires_grad and not flag for tensor, flag in pairs):
            raise Error(
                f"{self.blocks.name}: a y or a carry has a gradient in block {block} that it had not in the first one, "
                "where it was handed out without; let it depend on what is differentiated from the first step on, "
                "or detach it"
            )

    def _reverse(self, block: int, tape: Tape) -> None:
        last = self._last
        self._check_differentiable(block, tape)
        given, seeds, after = self._outputs_in_order(block, tape)
        if last:
            # Whoever got the last carry uses it after all steps, and so before them when going back.
            for m, outputs in enumerate(after):
                if outputs is not None and tape.out[m].requires_grad:
                    self._gradients.carry[m] = self._sum_of(outputs, None, [], [], self._gradients.carry[m])
        if self._patterns is not None:
            self._patterns[Back(block, tape.carry, self._gradients, given, seeds).pattern(self.blocks)] += 1
        of_inputs = self.recorder.pull_back(tape, self._gradients, given, seeds)
        if of_inputs:
            self.blocks.take_input_gradients(block, of_inputs)

    def _outputs_in_order(self, block: int, tape: Tape) -> tuple[list[Tensor | None], list[Tensor | None], Any]:
        """The gradients of the ys and those that come first in the carry before, with the outputs that the carry after is. What
        is an output and goes on in the carry gets its gradients as outputs where it is used for the last time, before all others."""
        given = list(self._output_gradients(block))
        after = self._origins.get(block) or ()
        gone_on = {id(outputs.before(block)) for outputs in after if outputs is not None}
        for outputs in after:
            while outputs is not None and outputs.block == block:
                given[outputs.y] = None
                outputs = outputs.earlier
        seeds = [
            None if outputs is None or id(outputs) in gone_on else self._sum_of(outputs, leaf, tape.ys, given)
            for outputs, leaf in zip(self._origins.get(block - 1) or (), tape.carry)
        ]
        return given, seeds, after

    def _output_gradients(self, block: int) -> list[Tensor | None]:
        if self._of_outputs[0] != block:
            self._of_outputs = block, self.blocks.output_gradients(block)
        return self._of_outputs[1]

    def _sum_of(
        self,
        outputs: Outputs,
        leaf: Tensor | None,
        ys: list[Tensor],
        given: list[Tensor | None],
        total: Tensor | None = None,
    ) -> Tensor | None:
        """To `total` the gradient of a tensor as outputs of blocks before, and as those of this one's `ys` that are the leaf, which
        are then no longer `given`. Added up in the order of time, as the backward of torch.stack does."""
        found = [self._output_gradients(block)[y] for block, y in outputs.places()]
        for k, y in enumerate(ys):
            if y is leaf:
                found.append(given[k])
                given[k] = None
        for gradient in found:
            if gradient is not None:
                total = gradient if total is None else total + gradient
        return total

    def copy(self, is_tape: bool, step: int, source: int, target: int) -> None:
        if source < 0:
            state = self._state()
        elif source == 0:
            state = self._held(step)
        else:
            state = self.initial if self._is_first(step) else self._from_tier(source, step)
        if target != 0:
            state.arrive()
        state = self.facts.kept(state, self.blocks.name) if target >= 0 else self._as_live(state)
        if target < 0:
            self._check_unchanged(state)
            self._live = state.leaves
            self.around.restore(state.snapshot)
        elif target == 0:
            self._kept[step] = state
        elif not self._is_first(step):
            if state.snapshot is not None:
                self._beside[step] = state.snapshot.forms, state.snapshot.values
                state = State(filled(state.leaves, state.snapshot.forms), state.snapshot, state.coded)
            self._slow.put(target - 1, step, state)

    def _state(self) -> State:
        """That is live."""
        return State(self._live, self.around.snapshot())

    def _as_live(self, state: State) -> State:
        if not state.coded:
            return state
        self._check_unchanged(state)
        assert self.facts.state_codec is not None
        return State(self.facts.state_codec.decode(state.leaves), state.snapshot)

    @property
    def _slow(self) -> TorchTiers:
        assert self._tiers is not None  # or the plan would not name them
        return self._tiers

    def drop(self, is_tape: bool, step: int, place: int) -> None:
        if place > 0:
            if not self._is_first(step):
                self._slow.drop(place - 1, step)
        elif is_tape:
            del self._tapes[step]
        else:
            del self._kept[step]

    def _from_tier(self, tier: int, step: int) -> State:
        state = self._slow.get(tier - 1, step)
        if state.snapshot is not None:
            forms, values = self._beside[step]
            state.snapshot = state.snapshot._replace(forms=forms, values=values)
        state.coded = self.facts.state_codec is not None
        return state

    def _is_first(self, step: int) -> bool:
        """It is the initial state and has other tensors than later ones, so that no tier takes it: it is kept in any case."""
        return step == 0 and bool(self.around.outside.moving)

    def _held(self, step: int) -> State:
        if step in self._kept:
            return self._kept[step]
        return self.initial if step == 0 else self._tapes[step - 1].after

    def _check_unchanged(self, state: State) -> None:
        for leaf, version in zip(state.leaves, state.versions):
            if leaf is not None and leaf._version != version:
                raise Error(
                    f"{self.blocks.name}: a carry was changed in place after f returned it, so that a step cannot "
                    "be run again from it; change a clone instead"
                )

    def _compare(self, block: int, leaves: Leaves, first: bool) -> None:
        if self._seen is None:
            return
        mark = 0
        for leaf in leaves:
            if leaf is not None:
                mark = zlib.crc32(leaf.detach().cpu().contiguous().reshape(-1).view(torch.uint8).numpy(), mark)
        if first and block not in self._seen:
            self._seen[block] = mark
        elif self._seen[block] != mark:
            raise Error(
                f"{self.blocks.name}: block {block} gave another state when it was recomputed; f depends on something "
                "that is not in its arguments, its random numbers or its modules' buffers, or is not "
                "deterministic on this device"
            )

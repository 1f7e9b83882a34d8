# SPDX-License-Identifier: Apache-2.0
"""A Step of PyTorch tensors for the C++ executor: states are lists of tensors, tapes are autograd graphs.

Gradients have the bits of plain autograd, however the steps are cut: autograd adds the gradients of a tensor in the order
in which its uses are reached, last first, so what later blocks gave is put in first, as the gradient of the tensor itself.
"""

from __future__ import annotations

import contextlib
import itertools
import zlib
from collections.abc import Callable, Container, Iterator
from typing import Any

import torch
from torch import Tensor

from ebb._base.errors import Error
from ebb._loop.blocks import Blocks, Leaves
from ebb._loop.codec.codec import Codec
from ebb._loop.codec.state import StateCodec
from ebb._loop.codec.tape import Recording, roots
from ebb._loop.tape import Head, Origins, State, Tape
from ebb._tensor.captures import Known, sequence_number
from ebb._tensor.context import Surroundings
from ebb._tensor.trees import addresses, can_have_gradient

_WEIGHED = 16  # every so many-th tape is weighed, which takes time
_SLACK = 4096


class TorchStep:
    """advance, record, reverse, copy and drop as ebb/run/handle_run.h asks for; -1 is `work`, 0 `fast`."""

    def __init__(
        self,
        blocks: Blocks,
        surroundings: Surroundings,
        params: list[Tensor],
        initial: Leaves,
        *,
        tiers: Any = None,
        verify: bool = False,
    ):
        self.blocks = blocks
        self.around = surroundings
        self.params = params
        self.tiers = tiers
        self.mutates: Container[int] = ()  # blocks that change their carry in place
        self.given: Leaves = []  # what the last block recorded got for its carry
        self.mute = False  # outputs are with the caller already
        self.until: Callable[[Leaves], bool] | None = None  # where the length is unknown: it ends in this state
        self.initial = State(initial, None)
        self._seen: dict[int, int] | None = {} if verify else None
        self.weight = 0  # of the first tape; 0: tapes differ and are not weighed
        self.callers: list[Tensor] = []  # inputs, as the caller holds them
        self.tape_codec: Codec | None = None
        self.state_codec: StateCodec | None = None
        self.head: Head | None = None
        self.adjoint: list[Tensor | None] = []
        self.running: list[Tensor | None] = []
        self.differentiable: list[bool] = []  # the tensors of the final carry, then the outputs
        self.first_origins: Origins = None
        self._origins: dict[int, Origins] = {}  # by block, of the carry after it
        self._last = False  # the next block that is reversed is the last one
        self._known: Known | None = None
        self._kept: dict[int, State] = {}
        self._tapes: dict[int, Tape] = {}
        self._live: Leaves = []

    def begin(self) -> None:
        """A forward begins at the initial state."""
        self.clear()
        if self.head is None:
            self.around.restore(self.initial.snapshot)
        self._live = self.initial.leaves

    def start_with(self, head: Head) -> None:
        """The first block has run already."""
        self.head = head
        self.initial.snapshot = self.around.part(head.before)

    def kept_initial(self) -> State:
        """The initial state as others like it are kept."""
        return self._as_kept(self.initial)

    def first_look(self, block: int, live: Leaves) -> tuple[Tape, list[Tensor], bool]:
        """A block of which nothing is known yet: its tape, what autograd saved for it beside the carry, and whether it
        changes its carry in place."""
        known, self.mutates = self.mutates, (block,)
        try:
            tape, seen = self._taped_and_saved(block, live)
        finally:
            self.mutates = known
        self.first_origins = self._origins_of(block, self.given, tape.out, tape.ys)
        clones = addresses(self.given)
        changes = any(leaf is not None and leaf._version > 0 for leaf in self.given)
        self.given = []
        return tape, [t for t in seen if t.untyped_storage().data_ptr() not in clones], changes

    def _taped_and_saved(self, block: int, live: Leaves) -> tuple[Tape, list[Tensor]]:
        saved: list[Tensor] = []

        def pack(tensor: Tensor) -> Tensor:
            # A graph that holds a tensor which holds the graph would never die.
            saved.append(tensor.detach())
            return saved[-1]

        with torch.autograd.graph.saved_tensors_hooks(pack, lambda tensor: tensor):
            tape = self.taped(block, live)
        return tape, [tensor for tensor in saved if not tensor.is_sparse]

    def _weighed(self, block: int, live: Leaves) -> Tape:
        """Records a block and sees that it takes no more than the plan knows of."""
        tape, saved = self._taped_and_saved(block, live)
        self._check_weight(block, tape.weight(saved, self.params + self.callers))
        return tape

    def _check_weight(self, block: int, found: int) -> None:
        if found > self.weight + self.weight // 100 + _SLACK:
            raise Error(
                f"{self.blocks.name}: the graph of block {block} takes {found} bytes, that of the first took {self.weight}, for which "
                "the budget was planned; let the first steps be the largest ones, or take a smaller chunk",
                "out_of_budget",
            )

    def recorded(self, block: int, live: Leaves, cautious: bool = False) -> tuple[Tape, int]:
        """A block recorded as `record` does it, and with a codec the bytes that its tape takes, else 0. `cautious`: as
        Recording.seal has it."""
        if self.tape_codec is None:
            return self.taped(block, live), 0
        recording = Recording(self.tape_codec, self._outside())
        with recording.hooks():
            tape = self.taped(block, live)
        return tape, self._sealed(tape, recording, cautious)

    def _sealed(self, tape: Tape, recording: Recording, cautious: bool = False) -> int:
        """Nobody needs the outputs of the block any more: what the tape keeps is encoded. Returns its bytes."""
        tape.ys = roots(tape.ys)
        recording.seal(addresses(tape.carry + tape.inputs + tape.out + tape.after.tensors()), cautious)
        return tape.weight(recording.raw(), self.params + self.callers) + recording.encoded_bytes

    def _outside(self) -> set[int]:
        """Where that lies which is the caller's."""
        return addresses(self.params + self.callers + self.around.tensors())

    def begin_backward(self, adjoint: list[Tensor | None]) -> None:
        self.adjoint = adjoint
        self._last = True
        self.running = [None] * len(self.params)

    def clear(self) -> None:
        self._kept.clear()
        self._tapes.clear()
        self._live = []
        if self.tiers is not None:
            self.tiers.clear()

    def final(self) -> Leaves:
        """The last state, as tensors of their own: the caller's get a graph that holds this step, which must not hold them."""
        return [None if leaf is None else leaf.detach() for leaf in self._live]

    # The executor's calls.

    def advance(self, start: int, end: int, first: bool) -> int:
        self.around.fresh_casts()
        live = self._live
        with torch.no_grad():
            for block in range(start, end):
                if block == 0 and self.head is not None:
                    live, ys = self.head.leaves, self.head.ys
                    self._origins[0] = self.head.origins
                    self.head = None
                else:
                    if block in self.mutates:
                        live = [None if leaf is None else leaf.clone() for leaf in live]
                    out, ys = self.blocks.run(block, live, self.blocks.inputs(block, False))
                    if first:
                        self._origins[block] = self._origins_of(block, live, out, ys)
                    live = [None if leaf is None else leaf.detach() for leaf in out]
                if first and not self.mute:
                    self.blocks.keep(block, ys)
                if self._seen is not None:
                    self._compare(block, live, first)
                if first and self.until is not None and block + 1 < end and self.until(live):
                    end = block + 1
                    break
        self._live = live
        return end

    def ended(self, step: int) -> bool:
        with torch.no_grad():
            return self.until is not None and self.until(self._live)

    def record(self, start: int, end: int, first: bool) -> None:
        if start == 0 and self.head is not None:
            self.around.put_back(self.head.before)
            self.head = None
        outside = self._outside() if self.tape_codec is not None else set()
        for block in range(start, end):
            self.around.fresh_casts()
            recording = None if self.tape_codec is None else Recording(self.tape_codec, outside)
            weighs = self.weight > 0 and block > 0 and (block % _WEIGHED == 0 or self._seen is not None)
            if recording is not None:
                with recording.hooks():
                    tape = self.taped(block, self._live)
            else:
                tape = self._weighed(block, self._live) if weighs else self.taped(block, self._live)
            if self._known is None:
                self._known = Known(self.params)
            self._known.check(
                tape.out + tape.ys, tape.carry + tape.inputs, tape.since, f"{self.blocks.name}: block {block}"
            )
            if first:
                self._origins[block] = self._origins_of(block, self.given, tape.out, tape.ys)
            self._tapes[block] = tape
            self._live = tape.after.leaves
            if first and not self.mute:
                self.blocks.keep(block, [y.detach() for y in tape.ys])
            if recording is not None:
                self._check_weight(block, self._sealed(tape, recording))
            if self._seen is not None:
                self._compare(block, self._live, first)

    def taped(self, block: int, live: Leaves) -> Tape:
        carry = [leaf.detach().requires_grad_() if can_have_gradient(leaf) else leaf for leaf in live]
        with torch.enable_grad():
            inputs = self.blocks.inputs(block, True)
            since = sequence_number()  # in the thread that runs it: a backward may have one of its own
            given = [None if leaf is None else leaf.clone() for leaf in carry] if block in self.mutates else carry
            try:
                out, ys = self.blocks.run(block, given, inputs)
            except RuntimeError as error:
                if "a leaf Variable that requires grad" not in str(error) or block in self.mutates:
                    raise
                raise Error(
                    f"{self.blocks.name}: f changes its carry in place in block {block}, and did not in the first one; "
                    "let it change a clone"
                ) from error
        self.given = given
        after = State([None if leaf is None else leaf.detach() for leaf in out], self.around.snapshot())
        return Tape(carry, inputs, out, ys, after, since)

    def reverse(self, start: int, end: int) -> None:
        self._live = []
        for block in reversed(range(start, end)):
            self._reverse(block, self._tapes.pop(block))

    def _check_differentiable(self, block: int, tape: Tape) -> None:
        """What had no gradient in the first block has been handed out as such."""
        carries = [leaf for leaf in tape.out if leaf is not None]
        of_carries, of_ys = self.differentiable[: len(carries)], self.differentiable[len(carries) :]
        pairs = list(zip(tape.ys, itertools.cycle(of_ys)))
        if self._last:
            pairs += zip(carries, of_carries)
        self._last = False
        if any(tensor.requires_grad and not flag for tensor, flag in pairs):
            raise Error(
                f"{self.blocks.name}: a y or a carry has a gradient in block {block} that it had not in the first one, "
                "where it was handed out without; let it depend on what is differentiated from the first step on, "
                "or detach it"
            )

    def _reverse(self, block: int, tape: Tape) -> None:
        last = self._last
        self._check_differentiable(block, tape)
        given = self.blocks.output_gradients(block)
        # What is an output and goes on in the carry gets its gradient as an output first: where it is used for the last time.
        after = self._origins.get(block) or ()
        gone_on = {origin for origin in after if origin is not None}
        for of_block, y in gone_on:
            if of_block == block:
                given[y] = None
        seeds = self._first_gradients(self._origins.get(block - 1) or (), gone_on)
        final = self._first_gradients(after, set()) if last else []
        of_inputs = self.pull_back(tape, given, seeds, final)
        if of_inputs:
            self.blocks.take_input_gradients(block, of_inputs)

    def _origins_of(self, block: int, before: Leaves, out: Leaves, ys: list[Tensor]) -> Origins:
        """Which leaves of the carry after a block are outputs, of this block or an earlier one."""
        earlier = self._origins.get(block - 1) or (None,) * len(before)
        found: list[tuple[int, int] | None] = []
        for leaf in out:
            origin = None
            if leaf is not None:
                origin = next(((block, k) for k, y in enumerate(ys) if y is leaf), None)
                if origin is None:
                    origin = next((earlier[m] for m, old in enumerate(before) if old is leaf), None)
            found.append(None if origin in found else origin)
        return tuple(found) if any(found) else None

    def _first_gradients(self, origins: Origins, gone_on: set[tuple[int, int]]) -> list[Tensor | None]:
        """Of the leaves that are outputs and do not go on."""
        return [
            None if origin is None or origin in gone_on else self.blocks.output_gradients(origin[0])[origin[1]]
            for origin in origins or ()
        ]

    def pull_back(
        self, tape: Tape, given: list[Tensor | None], seeds: list[Tensor | None], final: list[Tensor | None]
    ) -> list[Tensor | None]:
        """From the adjoint after the tape's block to the one before it; adds to the running gradients of parameters. Returns
        the gradients of the inputs. `given` are those of the ys; `seeds` and `final` come first in those of the carry before
        and after."""
        roots: list[Tensor] = []
        gradients: list[Tensor] = []
        for tensors, theirs in (
            (tape.out, self.adjoint),
            (tape.out, final),
            (tape.ys, given),
            (tape.carry, seeds),
            (self.params, self.running),
        ):
            for tensor, gradient in zip(tensors, theirs):
                if gradient is not None and tensor is not None and tensor.requires_grad:
                    roots.append(tensor)
                    gradients.append(gradient)
        carries = [leaf for leaf in tape.carry if leaf is not None and leaf.requires_grad]
        inputs = [leaf for leaf in tape.inputs if leaf.requires_grad]
        wanted = carries + inputs + self.params
        found: list[Tensor | None] = [None] * len(wanted)
        if roots and wanted:
            with _quiet_hooks(self.params):
                found = list(torch.autograd.grad(roots, wanted, gradients, allow_unused=True))
        rest = iter(found)
        self.adjoint = [next(rest) if leaf is not None and leaf.requires_grad else None for leaf in tape.carry]
        of_inputs = [next(rest) if leaf.requires_grad else None for leaf in tape.inputs]
        self.running = list(rest)
        return of_inputs if inputs else []

    def copy(self, is_tape: bool, step: int, source: int, target: int) -> None:
        if source < 0:
            state = State(self._live, self.around.snapshot())
        elif source == 0:
            state = self._held(step)
        else:
            state = self.tiers.get(source - 1, step)
            state.coded = self.state_codec is not None
        if target != 0:
            state.arrive()
        state = self._as_kept(state) if target >= 0 else self._as_live(state)
        if target < 0:
            self._check_unchanged(state)
            self._live = state.leaves
            self.around.restore(state.snapshot)
        elif target == 0:
            self._kept[step] = state
        else:
            self.tiers.put(target - 1, step, state)

    def _as_kept(self, state: State) -> State:
        if self.state_codec is None or state.coded:
            return state
        return State(self.state_codec.encode(state.leaves, self.blocks.name), state.snapshot, True)

    def _as_live(self, state: State) -> State:
        if not state.coded:
            return state
        self._check_unchanged(state)
        return State(self.state_codec.decode(state.leaves), state.snapshot)

    def drop(self, is_tape: bool, step: int, place: int) -> None:
        if place > 0:
            self.tiers.drop(place - 1, step)
        elif is_tape:
            del self._tapes[step]
        else:
            del self._kept[step]

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
        mark = 0
        for leaf in leaves:
            if leaf is not None:
                mark = zlib.crc32(leaf.detach().cpu().contiguous().reshape(-1).view(torch.uint8).numpy(), mark)
        if first and block not in self._seen:
            self._seen[block] = mark
        elif self._seen[block] != mark:
            raise Error(
                f"{self.blocks.name}: block {block} gave another state when it ran again; f depends on something "
                "that is not in its arguments, its random numbers or its modules' buffers, or is not "
                "deterministic on this device"
            )


@contextlib.contextmanager
def _quiet_hooks(params: list[Tensor]) -> Iterator[None]:
    """Hooks of parameters are for the whole gradient, not for parts of it."""
    hooked = [(param, dict(param._backward_hooks)) for param in params if param._backward_hooks]
    for param, _ in hooked:
        param._backward_hooks.clear()
    try:
        yield
    finally:
        for param, hooks in hooked:
            param._backward_hooks.update(hooks)

# SPDX-License-Identifier: Apache-2.0
"""Blocks recorded by autograd and differentiated, as facts found by a first look say."""

from __future__ import annotations

import contextlib
from collections.abc import Container, Iterator
from dataclasses import dataclass, field

import torch
from torch import Tensor

from ebb._base.errors import Error
from ebb._loop.blocks import Blocks, Leaves
from ebb._loop.codec.codec import Codec
from ebb._loop.codec.state import StateCodec
from ebb._loop.codec.tape import Recording, roots
from ebb._loop.growth import Growth
from ebb._loop.holders import collected
from ebb._loop.surprises import TooHeavy
from ebb._loop.tape import Origins, Outputs, Pattern, State, Tape, Weight, there
from ebb._tensor.allocated import allocated
from ebb._tensor.captures import Known, sequence_number
from ebb._tensor.context import Surroundings
from ebb._tensor.scale import Scale
from ebb._tensor.trees import addresses, can_have_gradient


@dataclass(frozen=True)
class Facts:
    """What is known of blocks before a plan runs them."""

    params: list[Tensor] = field(default_factory=list)  # what they use beside carry and inputs, and has gradients
    mutates: Container[int] = ()  # blocks that change their carry in place
    callers: list[Tensor] = field(default_factory=list)  # inputs, as the caller holds them
    tape_codec: Codec | None = None
    state_codec: StateCodec | None = None
    differentiable: list[bool] = field(default_factory=list)  # the leaves of the final carry
    outputs: list[bool] = field(default_factory=list)  # which outputs are differentiable
    weight: Weight | None = None  # of the heaviest tape that is planned for; None: they are not weighed
    growth: Growth | None = None  # where tapes have been alike for so long that only suspects are weighed
    without: frozenset[int] = frozenset()  # leaves of the carry, behind the caller's, that have no gradient

    def kept(self, state: State, name: str) -> State:
        """A state as it is kept."""
        if self.state_codec is None or state.coded:
            return state
        return State(self.state_codec.encode(state.leaves, name), state.snapshot, True)


@dataclass
class Gradients:
    """On their way back: of the carry before the block that was differentiated last, and the sums for the parameters."""

    carry: list[Tensor | None]
    params: list[Tensor | None]


@dataclass(frozen=True)
class Back:
    """What a block is reversed with: the carry before it, the gradients after it, those of its ys, and those that come first in the
    gradients of the carry before."""

    block: int
    live: Leaves
    gradients: Gradients
    given: list[Tensor | None]
    seeds: list[Tensor | None]

    def pattern(self, blocks: Blocks) -> Pattern:
        kinds = there(self.gradients.carry), there(self.given), there(self.seeds)
        return Pattern(self.block == 0, blocks.steps(self.block), *kinds)


class Recorder:
    """Runs blocks with a graph, and goes back over it."""

    def __init__(self, blocks: Blocks, surroundings: Surroundings, facts: Facts):
        self.blocks, self.around, self.facts = blocks, surroundings, facts
        self._known: Known | None = None
        self._theirs: set[int] | None = None  # addresses of what is the caller's

    def taped(self, block: int, live: Leaves, snapshot: bool = True) -> tuple[Tape, Leaves]:
        """The tape, and what the block got for its carry. Without `snapshot` it does not know what f changes beside."""
        without = self.facts.without
        carry = [
            leaf.detach().requires_grad_() if can_have_gradient(leaf) and k not in without else leaf
            for k, leaf in enumerate(live)
        ]
        mutates = block in self.facts.mutates
        self.around.fresh_casts()
        with torch.enable_grad():
            inputs = self.blocks.inputs(block, True)
            since = sequence_number()  # in the thread that runs it: a backward may have one of its own
            given = [None if leaf is None else leaf.clone() for leaf in carry] if mutates else carry
            try:
                out, ys = self.blocks.run(block, given, inputs)
            except RuntimeError as error:
                if "a leaf Variable that requires grad" not in str(error) or mutates:
                    raise
                raise Error(
                    f"{self.blocks.name}: f changes its carry in place in block {block}, and did not in the first one; "
                    "let it change a clone"
                ) from error
        for k in without:
            if out[k] is not None and out[k].requires_grad:
                raise Error(
                    f"{self.blocks.name}: what f keeps outside of its arguments ({', '.join(self.around.outside.names())}) has a "
                    f"gradient in block {block} that it had not in the first one; make it a part of the carry"
                )
        beside = self.around.snapshot() if snapshot else None
        after = State([None if leaf is None else leaf.detach() for leaf in out], beside)
        return Tape(carry, inputs, out, ys, after, since), given

    def taped_and_saved(self, block: int, live: Leaves, scale: Scale) -> tuple[Tape, Leaves]:
        """With what autograd saves on a scale, and what calls inside of the block hold."""
        with scale.hooks(), collected() as holders:
            tape, given = self.taped(block, live)
        scale.add(holders.tensors())
        return tape, given

    def weighed(self, block: int, live: Leaves, most: Weight, cap: int) -> tuple[Tape, Leaves, Weight | None]:
        """With what it weighs where that is more than `most`. Raises TooHeavy at the time step that takes it beyond `cap` bytes.
        Not for codecs."""
        if self._theirs is None:
            self._theirs = addresses(self.facts.params + self.facts.callers)
        scale, counts = Scale(self._theirs), [0]

        def look() -> None:
            counts.append(scale.count())
            if scale.total > cap:
                raise TooHeavy

        self.blocks.between(look)
        try:
            tape, given = self.taped_and_saved(block, live, scale)
        finally:
            self.blocks.between(None)
        counts.append(scale.count())
        if scale.total == most.saved:
            return tape, given, None
        found = self.weight(tape, scale.tensors())
        if found > cap:
            raise TooHeavy
        return tape, given, None if found <= most.bytes else Weight(found, scale.total, max(counts))

    def watched(self, block: int, live: Leaves, most: Weight, growth: Growth) -> tuple[Tape, Leaves]:
        """Weighed where it takes more memory than others did. Raises TooHeavy as `weighed` does."""
        read = allocated(self.around.device)
        assert read is not None
        before, start = self.around.snapshot(), read()
        tape, given = self.taped(block, live)
        taken = read() - start
        if not growth.is_suspect(taken):
            return tape, given
        with torch.enable_grad():
            nodes = sequence_number() - tape.since
        del tape, given
        self.around.restore(before)
        tape, given, _ = self.weighed(block, live, most, most.cap)
        growth.clear(taken, most.cap, nodes)
        return tape, given

    def recorded(self, block: int, live: Leaves, cautious: bool = False) -> tuple[Tape, int]:
        """A block recorded as a plan has it done, and with a codec the bytes that its tape takes, else 0. `cautious`: as
        Recording.seal has it."""
        if self.facts.tape_codec is None:
            return self.taped(block, live)[0], 0
        recording = Recording(self.facts.tape_codec, self.outside())
        with recording.hooks():
            tape, _ = self.taped(block, live)
        return tape, self.sealed(tape, recording, cautious)

    def sealed(self, tape: Tape, recording: Recording, cautious: bool = False) -> int:
        """The outputs of the block are no longer needed: what the tape keeps is encoded. Returns its bytes."""
        tape.ys = roots(tape.ys)
        recording.seal(addresses(tape.carry + tape.inputs + tape.out + tape.after.tensors()), cautious)
        return self.weight(tape, recording.raw()) + recording.encoded_bytes

    def check(self, block: int, tape: Tape) -> None:
        """Raises where it reaches something whose gradient was not asked for."""
        if self._known is None:
            self._known = Known(self.facts.params)
        where = f"{self.blocks.name}: block {block}"
        self._known.check(tape.out + tape.ys, tape.carry + tape.inputs, tape.since, where)

    def weight(self, tape: Tape, saved: list[Tensor]) -> int:
        """Bytes of a tape without what is the caller's."""
        return tape.weight(saved, self.facts.params + self.facts.callers)

    def outside(self) -> set[int]:
        """Where that lies which is the caller's."""
        return addresses(self.facts.params + self.facts.callers + self.around.tensors())

    def no_gradients(self, carry: list[Tensor | None]) -> Gradients:
        """Where going back begins, with the gradient of the last carry."""
        return Gradients(list(carry), [None] * len(self.facts.params))

    def pull_back(
        self,
        tape: Tape,
        gradients: Gradients,
        given: list[Tensor | None],
        seeds: list[Tensor | None],
    ) -> list[Tensor | None]:
        """Takes the gradients from after the tape's block to before it. Returns those of the inputs. `given` are those of
        the ys; `seeds` come first in those of the carry before."""
        params = self.facts.params
        starts: list[Tensor] = []
        theirs: list[Tensor] = []
        for tensors, of_them in (
            (tape.out, gradients.carry),
            (tape.ys, given),
            (tape.carry, seeds),
            (params, gradients.params),
        ):
            for tensor, gradient in zip(tensors, of_them):
                if gradient is not None and tensor is not None and tensor.requires_grad:
                    starts.append(tensor)
                    theirs.append(gradient)
        carries = [leaf for leaf in tape.carry if leaf is not None and leaf.requires_grad]
        inputs = [leaf for leaf in tape.inputs if leaf.requires_grad]
        wanted = carries + inputs + params
        found: list[Tensor | None] = [None] * len(wanted)
        if starts and wanted:
            with quiet_hooks(params):
                found = list(torch.autograd.grad(starts, wanted, theirs, allow_unused=True))
        rest = iter(found)
        gradients.carry = [next(rest) if leaf is not None and leaf.requires_grad else None for leaf in tape.carry]
        of_inputs = [next(rest) if leaf.requires_grad else None for leaf in tape.inputs]
        gradients.params = list(rest)
        return of_inputs if inputs else []


@dataclass(frozen=True)
class Look:
    """At a block of which nothing was known."""

    tape: Tape
    saved: list[Tensor]  # by autograd, beside the carry
    scale: Scale
    origins: Origins
    mutates: bool  # it changes its carry in place


def first_look(blocks: Blocks, surroundings: Surroundings, block: int, live: Leaves) -> Look:
    """Runs it on a clone of its carry."""
    recorder = Recorder(blocks, surroundings, Facts(mutates=(block,)))
    scale = Scale()
    blocks.between(scale.end_step)
    try:
        tape, given = recorder.taped_and_saved(block, live, scale)
    finally:
        blocks.between(None)
    clones = addresses(given)
    return Look(
        tape,
        [tensor for tensor in scale.tensors() if tensor.untyped_storage().data_ptr() not in clones],
        scale,
        origins_of(block, given, tape.out, tape.ys, None),
        any(leaf is not None and leaf._version > 0 for leaf in given),
    )


def origins_of(block: int, before: Leaves, out: Leaves, ys: list[Tensor], earlier: Origins) -> Origins:
    """Which leaves of the carry after a block are outputs, of this block or of those before, whose are `earlier`."""
    known = earlier or (None,) * len(before)
    found: list[Outputs | None] = []
    for m, leaf in enumerate(out):
        origin = None
        if leaf is not None and not any(leaf is other for other in out[:m]):
            origin = next((of for of, old in zip(known, before) if old is leaf and of is not None), None)
            for k, y in enumerate(ys):
                if y is leaf:
                    origin = Outputs(block, k, origin)
        found.append(origin)
    return tuple(found) if any(found) else None


@contextlib.contextmanager
def quiet_hooks(params: list[Tensor]) -> Iterator[None]:
    """Hooks of parameters are for the whole gradient, not for parts of it."""
    hooked = [(param._backward_hooks, dict(param._backward_hooks)) for param in params if param._backward_hooks]
    for hooks, _ in hooked:
        hooks.clear()
    try:
        yield
    finally:
        for hooks, own in hooked:
            hooks.update(own)

# SPDX-License-Identifier: Apache-2.0
"""The first block of a loop, run to see what it uses, changes and weighs."""

from __future__ import annotations

import sys
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any, TypeVar

import torch
from torch import Tensor

from ebb import _core
from ebb._base.errors import Error
from ebb._loop.arguments import Options, refuse_transforms
from ebb._loop.blocks import Blocks, Explicit, Leaves
from ebb._loop.codec.state import StateCodec
from ebb._loop.costs import Costs, check_measurable, measure
from ebb._loop.explicit_costs import explicit_costs
from ebb._loop.offers import Offer, offers_of
from ebb._loop.recorder import Facts, Recorder, first_look
from ebb._loop.remembered import Remembered, remember, remembered, remembered_of
from ebb._loop.surprises import ATTEMPTS, ChangesLater
from ebb._loop.tape import Head, State, Weight
from ebb._loop.tiers import StateLayout
from ebb._loop.weigh_all import weigh_all
from ebb._loop.wishes import whole_bytes
from ebb._tensor.captures import find_captures, reached_leaves
from ebb._tensor.context import Surroundings, View
from ebb._tensor.outside import Form
from ebb._tensor.scale import hooks_around
from ebb._tensor.trees import addresses, can_have_gradient, close, storage_bytes
from ebb._tensor.written import Written

Result = TypeVar("Result")

_LOOKED_AT = 8  # blocks, where what a codec takes depends on the values


@dataclass(frozen=True)
class Loop:
    """A call of a loop in a budget: what runs, on what, and how. `key`: costs of loops with the same are the same. `kin`: those of
    their blocks are."""

    blocks: Blocks
    function: Callable
    initial: Leaves
    inputs: list[Tensor]
    device: torch.device
    options: Options
    key: Any
    kin: Any
    around: Surroundings
    before: View  # of the surroundings
    own: int  # leaves of the initial carry that are the caller's

    @property
    def count(self) -> int:
        """Blocks, as planned."""
        return self.options.expected if self.options.unknown else self.blocks.count

    @property
    def start(self) -> Leaves:
        return [None if leaf is None else leaf.detach() for leaf in self.initial]


@dataclass(frozen=True)
class Examined:
    """What a loop has shown in its first block."""

    recorder: Recorder
    head: Head
    known: Remembered
    differentiable: bool

    def fits_raw(self, limit: int, speeds: list[_core.TierSpeed]) -> bool:
        """All of it, without codecs."""
        return whole_bytes(self.raw_of(self.known, self.recorder.blocks.count), speeds) <= limit

    def raw_chain(self, options: Options) -> _core.Chain:
        """Without codecs."""
        return self.raw_of(self.known, options.expected if options.unknown else self.recorder.blocks.count)

    @staticmethod
    def raw_of(known: Remembered, count: int) -> _core.Chain:
        """Of that many blocks, without codecs."""
        tape, state = known.kept
        return _core.Chain.uniform(count, replace(known.costs, tape=tape, state=state, live=0).step_cost())

    def offers(self, options: Options, device: torch.device) -> list[Offer]:
        count = options.expected if options.unknown else self.recorder.blocks.count
        return offers_of(count, self.known.costs, options, device)


@dataclass(frozen=True)
class _Found:
    """By the first look alone, nothing measured."""

    facts: Facts
    head: Head
    forms: list[Form]  # of what f keeps outside, after the first block
    weight: Weight  # of the first tape
    raw: tuple[int, int]  # bytes of tape and state
    shared: int  # of which the leaves of the first carry share that many


def settled(loop: Loop, attempt: Callable[[Loop], Result]) -> Result:
    """Tries until all is known that changes from step to step. Where it raises all is as it was."""
    for _ in range(ATTEMPTS):
        try:
            loop.around.begin(loop.before, loop.own)
            return attempt(replace(loop, initial=loop.initial + loop.around.outside.start_tensors()))
        except ChangesLater:
            loop.around.cached.learn()
            loop.around.put_back(loop.before)
            if loop.around.cached.fill():
                loop = replace(loop, before=loop.around.look())
        except BaseException:
            loop.around.put_back(loop.before)
            raise
        finally:
            loop.around.fresh_casts()
    raise Error(
        f"{loop.blocks.name}: something else changes from step to step each time f runs: "
        + ", ".join(loop.around.outside.names()[-3:]),
        remedy="make it a part of the carry, or return it as a y",
    )


def examine(loop: Loop) -> Examined:
    """Runs the first block, and a few times more where nothing is remembered of it. The surroundings are then as after it."""
    around, options = loop.around, loop.options
    if loop.blocks.explicit is not None:
        return _examine_explicit(loop, loop.blocks.explicit)
    found = _look(loop)
    after = around.look()
    recorder = Recorder(loop.blocks, around, found.facts)
    known = remembered_of(loop.key, loop.kin)
    if known is None or not known.covers(found.raw):
        check_measurable(loop.blocks.name, loop.device)
        copies = False
        if options.preserve_rng_state:
            around.put_back(loop.before)
            copies = _check_repeats(recorder, loop.start, found.head)
        outweighed = known is not None and known.varies
        known = _measured(recorder, loop, found, after)
        known.copies = copies
        if outweighed:
            known.note_too_heavy()  # what it depends on has changed, but hardly that
        remember(loop.key, loop.kin if _tells(recorder, loop, found) else loop.key, known)
        around.put_back(after)
        around.outside.forms = found.forms
    elif known.coded is not None and found.facts.state_codec is not None:
        found.facts.state_codec.limit_to(known.coded)
    if known.outweighed:
        around.put_back(loop.before)
        weigh_all(recorder, loop.start, known, options, loop.device)
        if around.learn():
            raise ChangesLater
        around.put_back(after)
        around.outside.forms = found.forms
    # Who hooks what is saved around the loop, as a checkpoint does, is to see the same in every call, whatever the clock says.
    watched = known.alike and hooks_around() is None and known.growth.serves(loop.device, known.costs.record)
    facts = replace(found.facts, weight=known.weight, growth=known.growth if watched else None)
    differentiable = any(t is not None and t.requires_grad for t in [*loop.initial, *loop.inputs, *facts.params])
    return Examined(Recorder(loop.blocks, around, facts), found.head, known, differentiable)


def _examine_explicit(loop: Loop, blocks: Explicit) -> Examined:
    """There is nothing to look for: the first block runs only where its costs are not known."""
    known = remembered.get(loop.key)
    if known is None:
        bare = remembered.get(("bare", loop.kin))  # without what depends on the length of the loop
        if bare is None:
            check_measurable(loop.blocks.name, loop.device)
            with torch.no_grad(), blocks.running():
                costs, tape = explicit_costs(blocks, loop.start, loop.device)
            whole = tape, costs.state
            bare = Remembered(costs, Weight(costs.tape), whole, whole)
            remembered.put(("bare", loop.kin), bare)
        costs = replace(bare.costs, scratch=bare.costs.scratch + blocks.beside)
        known = replace(bare, costs=costs, fits=set(), settled={})
        remembered.put(loop.key, known)
    differentiable = any(t is not None and t.requires_grad for t in [*loop.initial, *loop.inputs, *blocks.params])
    facts = Facts(blocks.params, callers=loop.inputs, differentiable=[True] * len(loop.initial), outputs=[True])
    head = Head(loop.before, loop.start, [], None)  # nothing has run that the caller could use
    return Examined(Recorder(loop.blocks, loop.around, facts), head, known, differentiable)


def _look(loop: Loop) -> _Found:
    blocks, around, start = loop.blocks, loop.around, loop.start
    look = first_look(blocks, around, 0, start)
    tape = look.tape
    known = len(around.outside.moving)
    still = around.cached.is_still()
    around.learn()
    unused: list[int] = []
    if len(tape.carry) > loop.own:
        used = reached_leaves(tape.out + tape.ys, tape.since)
        unused = [k for k, leaf in enumerate(tape.carry[loop.own :]) if id(leaf) not in used]
    around.outside.leave_out(unused)
    if unused or len(around.outside.moving) > known or not still:
        raise ChangesLater
    own = [leaf for leaf in tape.carry + tape.inputs if leaf is not None]
    given = (loop.options.params or []) + around.cached.tensors()
    params = find_captures(around.tensors(), tape.out + tape.ys, own, tape.since, given)
    refuse_transforms(blocks.name, [t for t in [*tape.out, *tape.ys] if t is not None])
    head = Head(
        loop.before,
        [None if t is None else t.detach() for t in tape.out],
        [y.detach() for y in tape.ys],
        look.origins,
    )
    # What f keeps outside is no part of the first state, but of all others.
    kept = head.leaves[loop.own :]
    state = State(start[: loop.own] + kept, around.snapshot())
    tape.after.snapshot = state.snapshot  # which was not known when it ran
    # Leaves of the first carry may share memory (one tensor of zeros for all); later ones do not.
    shared = max(0, StateLayout(state).bytes - storage_bytes(state.tensors()))
    weight = tape.weight(look.saved, params + loop.inputs) + storage_bytes(kept)
    raw = weight + shared, storage_bytes(state.tensors()) + shared
    codecs = loop.options.codecs
    without = around.outside.without_gradient(tape.out)
    flags = [
        leaf is None or leaf.requires_grad or (k >= loop.own and k not in without and can_have_gradient(leaf))
        for k, leaf in enumerate(tape.out)
    ]
    facts = Facts(
        params,
        range(sys.maxsize) if look.mutates else (),
        loop.inputs,
        None if codecs is None else codecs.tape,
        None if codecs is None or codecs.state is None else StateCodec(codecs.state, state.leaves),
        flags,
        blocks.output_flags(tape.ys),
        without=without,
    )
    steps = look.scale.steps(addresses(params + loop.inputs))
    return _Found(facts, head, around.outside.forms, Weight(raw[0], sum(steps), max(steps)), raw, shared)


def _measured(recorder: Recorder, loop: Loop, found: _Found, after: View) -> Remembered:
    first = found.raw
    live, around = found.head.leaves, recorder.around
    second = _has_second(recorder, loop, found)
    if second:
        around.put_back(after)
        around.outside.forms = found.forms
        more = recorder.weighed(1, live, found.weight, sys.maxsize)[-1]
        if more is not None:
            found = replace(found, raw=(more.bytes, first[1]), weight=more)
    around.put_back(loop.before)
    if loop.options.codecs is not None:
        return _measure_coded(recorder, loop, found, first, second)
    costs = measure(recorder, loop.start, *found.raw, loop.device)
    if second:
        around.put_back(after)
        also = measure(recorder, live, *found.raw, loop.device, 1, forms=found.forms)
        costs = Costs(*map(max, vars(costs).values(), vars(also).values()))
    return Remembered(costs, found.weight, found.raw, first)


def _tells(recorder: Recorder, loop: Loop, found: _Found) -> bool:
    """What was measured holds for longer loops: where f begins with nothing, a whole block that begins otherwise was."""
    blocks = recorder.blocks
    return not _makes(loop, found) or (blocks.count > 1 and blocks.steps(1) == blocks.steps(0))


def _has_second(recorder: Recorder, loop: Loop, found: _Found) -> bool:
    """Where f begins with nothing and makes its own zeros, which have no gradient, the first block keeps less than others:
    the second is measured too, if there is one."""
    live, until = found.head.leaves, loop.options.until
    return _makes(loop, found) and recorder.blocks.count > 1 and (until is None or not until(live))


def _makes(loop: Loop, found: _Found) -> bool:
    """f begins with nothing."""
    return len(found.head.leaves) > len(loop.start)


def _check_repeats(recorder: Recorder, start: Leaves, head: Head) -> bool:
    """Runs the first block once more. Kernels may differ by roundings where there is no graph. Returns whether it copies from the
    host to a GPU."""
    blocks = recorder.blocks
    given = [None if leaf is None else leaf.clone() for leaf in start]
    inputs = blocks.inputs(0, False)
    with torch.no_grad(), Written() as written:
        leaves, ys = blocks.run(0, given, inputs)
    for tensor in written.found:
        if not recorder.around.knows(tensor) and not any(tensor is own for own in given + inputs):
            raise Error(
                f"{blocks.name}: f changes a tensor of shape {list(tensor.shape)} in place that is no part of its arguments "
                "and no buffer of a module that can be found from f; name the module in params=, or make the tensor a part "
                "of the carry"
            )
    for old, new in zip(head.leaves + head.ys, leaves + ys):
        if old is not None and not close(old, new):
            raise Error(
                f"{blocks.name}: f gives another result when its first step is recomputed: it depends on something that "
                "changes from call to call, like a counter, an attribute, a captured tensor that is changed in place "
                "or a generator of random numbers; make that a part of the carry or of the input"
            )
    return written.copies


def _measure_coded(recorder: Recorder, loop: Loop, found: _Found, first: tuple[int, int], second: bool) -> Remembered:
    """What blocks cost whose tapes or states are kept encoded. Where it depends on the values how small they become,
    the first of them, which may be all zeros, say little: later ones are looked at too."""
    facts, blocks, until = recorder.facts, recorder.blocks, loop.options.until
    start = live = loop.start
    tape_bytes, state_bytes = found.raw
    codecs = facts.tape_codec, None if facts.state_codec is None else facts.state_codec.codec
    varies = any(codec is not None and codec.varies for codec in codecs)
    # Not at the last one, which may be shorter.
    for block in range(max(1, min(blocks.count - 1, _LOOKED_AT if varies else 1 + second))):
        if block > 0 and until is not None and until(live):
            break
        tape, taken = recorder.recorded(block, live, cautious=True)
        if facts.tape_codec is not None and block >= second:
            tape_bytes = min(tape_bytes, taken + found.shared)
        live = tape.after.leaves
        if facts.state_codec is not None:
            facts.state_codec.look(live)
        del tape
    coded = None
    if facts.state_codec is not None:
        coded = facts.state_codec.coded
        kept = facts.kept(State(start, recorder.around.snapshot()), blocks.name)
        state_bytes = max(StateLayout(kept).bytes, storage_bytes(kept.tensors()))
    costs = measure(recorder, start, tape_bytes, state_bytes, loop.device)
    costs = replace(costs, live=found.raw[1]) if coded else costs
    weight = Weight(costs.tape) if facts.tape_codec is not None else found.weight
    return Remembered(costs, weight, found.raw, first, coded)

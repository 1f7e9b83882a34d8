# SPDX-License-Identifier: Apache-2.0
"""Blocks of a loop as CUDA graphs: one advances a block, one records it and goes back over it. What goes in and comes out lies in
tensors that stay where they are."""

from __future__ import annotations

import contextlib
import itertools
import threading
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor

from ebb._base.errors import Error
from ebb._loop.blocks import Leaves
from ebb._loop.recorder import Back, Gradients, Recorder
from ebb._loop.tape import Flags, Pattern, there
from ebb._tensor.capture import CannotCapture, Pool, launch, workspace_bytes
from ebb._tensor.outside import Outside, forms_key
from ebb._tensor.standing_in import standing_in
from ebb._tensor.trees import addresses, close, same_bits, storage_bytes


def _like(tensors: Sequence[Tensor | None]) -> list[Tensor | None]:
    return [None if t is None else torch.zeros_like(t.detach()) for t in tensors]


def _copies(to: Sequence[Tensor | None], source: Sequence[Tensor | None]) -> None:
    pairs = [(a, b) for a, b in zip(to, source) if a is not None and b is not None and a is not b]
    if pairs:
        torch._foreach_copy_([a for a, _ in pairs], [b for _, b in pairs])


def _nothing_yet(sums: Sequence[Tensor | None]) -> None:
    """Fills them with what leaves all that is added to it as it is: zeros would change the sign of others."""
    for total in sums:
        if total is not None:
            (torch.view_as_real(total) if total.is_complex() else total).fill_(-0.0)


def _kinds(leaves: Leaves) -> tuple[Any, ...]:
    return tuple(None if t is None else t.stride() for t in leaves)


class _Static:
    """Blocks whose inputs are always the same tensors."""

    def __init__(self, blocks: Any, inputs: list[Tensor]):
        self._blocks, self._inputs = blocks, inputs

    def __getattr__(self, name: str) -> Any:
        return getattr(self._blocks, name)

    def inputs(self, block: int, gradients: bool) -> list[Tensor]:
        wanted = self._blocks.inputs_with_gradient() if gradients else [False] * len(self._inputs)
        return [t.detach().requires_grad_() if yes else t.detach() for t, yes in zip(self._inputs, wanted)]


def check_alike_f(
    recorder: Recorder, block: int, found: Sequence[Tensor | None], expected: Sequence[Tensor | None]
) -> None:
    """What a graph gave with what f itself gives."""
    for a, b in zip(found, expected):
        if (a is None) != (b is None) or (a is not None and b is not None and not close(a.detach(), b.detach())):
            raise Error(
                f"{recorder.blocks.name}: block {block} as a CUDA graph gives another result than f: f depends on something that "
                "changes and that cannot be seen from it, which a graph repeats as it was captured",
                remedy="make it a part of the carry or of xs, or give graph=False",
            )


@dataclass
class Advance:
    """One block forward. What comes out lies in the pool until the next graph runs."""

    graph: torch.cuda.CUDAGraph
    carry: Leaves  # before it
    out: Leaves
    ys: list[Tensor]


@dataclass
class _Reverse:
    graph: torch.cuda.CUDAGraph
    given: list[Tensor | None]
    seeds: list[Tensor | None]
    carry: Flags  # which leaves have a gradient before the block
    of_inputs: list[Tensor | None]
    params: Flags


class _Shape:
    """What blocks share whose carries and inputs are alike."""

    def __init__(self, live: Leaves, inputs: list[Tensor]):
        self.carry = _like(live)
        self.inputs = [torch.zeros_like(t.detach()) for t in inputs]
        self.advance: Advance | None = None
        self.reverse: dict[Pattern, _Reverse] = {}


def _is_whole(shape: _Shape | None) -> bool:
    return shape is not None and shape.advance is not None and bool(shape.reverse)


class Graphs:
    """Of one loop. Whoever uses them holds `lock`; they run on the current stream."""

    def __init__(self, device: torch.device):
        self.lock = threading.RLock()
        self.remark: str | None = None
        self._device = device
        self._pool = Pool(device)
        self._shapes: dict[Any, _Shape] = {}
        self._sums: list[Tensor] = []
        self._adjoint: list[Tensor | None] = []
        self._params: list[Tensor | None] = []
        self._touched: list[bool] = []
        self._used: torch.cuda.Event | None = None

    @property
    def bytes(self) -> int:
        """Of everything that they hold, with what libraries hold for all graphs of the device."""
        kept: list[Tensor | None] = [*self._sums, *self._adjoint, *self._params]
        for shape in self._shapes.values():
            kept += [*shape.carry, *shape.inputs]
            for reverse in shape.reverse.values():
                kept += reverse.given + reverse.seeds
        own = storage_bytes([t for t in kept if t is not None])
        return self._pool.bytes + own + workspace_bytes(self._device)

    @contextlib.contextmanager
    def running(self) -> Iterator[None]:
        """One user at a time, on whichever stream."""
        with self.lock:
            stream = torch.cuda.current_stream(self._device)
            if self._used is not None:
                stream.wait_event(self._used)
            try:
                yield
            finally:
                self._used = torch.cuda.Event()
                self._used.record(stream)

    def sum_up(self, like: list[Tensor]) -> None:
        """Blocks add their outputs to such tensors."""
        self._sums = [torch.zeros_like(y) for y in like]

    @staticmethod
    def _key(blocks: Any, block: int, live: Leaves) -> Any:
        # The first block begins a sum, others go on with it.
        return blocks.steps(block), _kinds(live), blocks.reduces and block == 0

    def _shape(self, blocks: Any, block: int, live: Leaves) -> _Shape | None:
        return self._shapes.get(self._key(blocks, block, live))

    def has(self, blocks: Any, block: int, live: Leaves) -> bool:
        """A block like this one was captured, forward and back."""
        return _is_whole(self._shape(blocks, block, live))

    def has_alike(self, blocks: Any, block: int) -> bool:
        """A block of as many time steps was."""
        return any(steps == blocks.steps(block) and _is_whole(shape) for (steps, *_), shape in self._shapes.items())

    def _sums_before(self, block: int) -> list[Tensor]:
        return [] if block == 0 else self._sums

    def advance(self, recorder: Recorder, block: int, live: Leaves, sums: list[Tensor]) -> Advance | None:
        """From `live`; `sums`: the outputs of the blocks before, where they are added up and somebody needs them. None: no block like
        this one was captured."""
        blocks: Any = recorder.blocks
        shape = self._shape(blocks, block, live)
        if shape is None or shape.advance is None:
            return None
        _copies(shape.carry, live)
        _copies(shape.inputs, blocks.inputs(block, False))
        _copies(self._sums_before(block), sums)
        launch(shape.advance.graph, self._device)
        return shape.advance

    def capture_advance(self, recorder: Recorder, block: int, live: Leaves) -> Advance:
        blocks: Any = recorder.blocks
        inputs = blocks.inputs(block, False)
        shape = self._shapes.setdefault(self._key(blocks, block, live), _Shape(live, inputs))
        _copies(shape.carry, live)
        _copies(shape.inputs, inputs)
        if shape.advance is None:
            shape.advance = self._captured_advance(recorder, block, shape)
        return shape.advance

    def _captured_advance(self, recorder: Recorder, block: int, shape: _Shape) -> Advance:
        blocks: Any = recorder.blocks
        around, mutates = recorder.around, block in recorder.facts.mutates

        def body(trial: bool) -> Any:
            around.fresh_casts()
            with torch.no_grad(), around.casting(), blocks.going_on_from(self._sums_before(block)):
                given = [None if t is None else t.clone() for t in shape.carry] if mutates else shape.carry
                out, ys = blocks.run(block, given, [t.detach() for t in shape.inputs])
                return given, out, ys

        before = around.snapshot()
        with self._steady(around.outside):
            graph, (given, out, ys), _ = self._pool.capture(body, lambda _: around.restore(before))
        self._pool.launch_first(graph)
        after = around.snapshot()
        around.restore(before)
        _, eager_out, eager_ys = body(True)  # in this thread, on its stream: as without graphs
        around.restore(after)
        self._check("forward", [*out, *ys], [*eager_out, *eager_ys])
        return Advance(graph, given, out, ys)

    def begin_backward(self, params: list[Tensor]) -> None:
        if not self._params:
            self._params = _like(params)
        _nothing_yet(self._params)
        self._touched = [False] * len(self._params)

    def of_params(self) -> list[Tensor | None]:
        """The gradients by now, which stay here."""
        return [p if yes else None for p, yes in zip(self._params, self._touched)]

    def carry_like(self) -> Leaves:
        """A carry as blocks have it that are graphs."""
        return next(iter(self._shapes.values())).carry

    def outputs_like(self, blocks: Any, block: int, live: Leaves) -> list[Tensor]:
        """Of a block that was advanced from a carry like `live`."""
        advance = self._shapes[self._key(blocks, block, live)].advance
        assert advance is not None
        return advance.ys

    def given_on(self, blocks: Any, block: int, live: Leaves) -> list[Tensor | None]:
        """For each y of a block the leaf of `live`, the carry before it, that it is."""
        shape = self._shapes[self._key(blocks, block, live)]
        assert shape.advance is not None
        places = [next((m for m, leaf in enumerate(shape.carry) if y is leaf), None) for y in shape.advance.ys]
        return [None if m is None else live[m] for m in places]

    def take_params(self, gradients: list[Tensor | None]) -> None:
        """What they are after a block that was no graph."""
        _copies(self._params, gradients)
        self._touched = [yes or of is not None for yes, of in zip(self._touched, gradients)]

    def reverse(self, recorder: Recorder, back: Back) -> list[Tensor | None] | None:
        """Records the block and goes back over it: the gradients are then those before it, and stay here. Returns those of the
        inputs, which lie in the pool; None: no block like this one was captured. The sums for parameters are not looked at: they
        stay here from the last block on."""
        shape = self._shape(recorder.blocks, back.block, back.live)
        found = None if shape is None else shape.reverse.get(back.pattern(recorder.blocks))
        if shape is None or found is None:
            return None
        self._put_in(recorder, shape, back)
        _copies(found.given, back.given)
        _copies(found.seeds, back.seeds)
        launch(found.graph, self._device)
        self._touched = [a or b for a, b in zip(self._touched, found.params)]
        back.gradients.carry = [a if yes else None for a, yes in zip(self._adjoint, found.carry)]
        return found.of_inputs

    def _put_in(self, recorder: Recorder, shape: _Shape, back: Back) -> None:
        _copies(shape.carry, back.live)
        _copies(shape.inputs, recorder.blocks.inputs(back.block, False))
        _copies(self._adjoint, self._apart(back.gradients.carry))

    def _apart(self, carry: Sequence[Tensor | None]) -> list[Tensor | None]:
        """Gradients of a carry such that they can be copied to ours: a tensor of ours that goes to another place, since f has passed a
        leaf on, is a clone."""
        own = {t.untyped_storage().data_ptr() for t in self._adjoint if t is not None}
        return [
            t if t is None or t is mine or t.untyped_storage().data_ptr() not in own else t.clone()
            for t, mine in zip(carry, self._adjoint)
        ]

    def capture_reverse(self, recorder: Recorder, back: Back) -> None:
        """Of a block that was captured forward."""
        shape, pattern = self._shape(recorder.blocks, back.block, back.live), back.pattern(recorder.blocks)
        assert shape is not None
        if not self._adjoint:
            self._adjoint = _like(shape.carry)
        self._put_in(recorder, shape, back)
        if pattern not in shape.reverse:
            shape.reverse[pattern] = self._captured_reverse(
                recorder, back.block, shape, pattern, back.given, back.seeds
            )

    def _captured_reverse(
        self,
        recorder: Recorder,
        block: int,
        shape: _Shape,
        pattern: Pattern,
        given: list[Tensor | None],
        seeds: list[Tensor | None],
    ) -> _Reverse:
        blocks: Any = recorder.blocks
        static: Any = _Static(blocks, shape.inputs)
        params, around = recorder.facts.params, recorder.around
        aliases = [p.detach().requires_grad_() for p in params]
        inner = Recorder(static, around, replace(recorder.facts, params=aliases))
        own_given, own_seeds = _like(given), _like(seeds)
        _copies(own_given, given)
        _copies(own_seeds, seeds)
        present: list[bool] = [False] * len(params)

        def body(trial: bool) -> Any:
            around.fresh_casts()
            with around.casting(), blocks.going_on_from(self._sums_before(block)):
                tape, _ = inner.taped(block, shape.carry, snapshot=False)
                if trial:
                    inner.check(block, tape)
                carry = [a if yes else None for a, yes in zip(self._adjoint, pattern.carry)]
                sums = [p if yes else None for p, yes in zip(self._params, present)]
                found = Gradients(carry, sums)
                of_inputs = inner.pull_back(tape, found, own_given, own_seeds)
                if trial:
                    flags = [t is not None and t.requires_grad for t in [*tape.out, *tape.ys]]
                    results = [None if t is None else t.clone() for t in [*found.carry, *of_inputs]]
                    return results, self._kept(found.params), flags
                with torch.no_grad():
                    _copies(self._adjoint, self._apart(found.carry))
                    _copies(self._params, found.params)
                return there(found.carry), of_inputs, there(found.params)

        def between(tried: Any) -> None:
            _, of_params, flags = tried
            expected = itertools.chain(recorder.facts.differentiable, itertools.cycle(recorder.facts.outputs))
            if any(has and not may for has, may in zip(flags, expected)):
                raise CannotCapture("a y or a carry has a gradient that it has not in the first block")
            present[:] = there(of_params)
            around.restore(before)

        before = around.snapshot()
        with standing_in(around.outside, params, aliases), self._steady(around.outside):
            graph, (carry, of_inputs, of_params), tried = self._pool.capture(body, between)
        around.fresh_casts()
        self._pool.launch_first(graph)
        now = [a for a, yes in zip(self._adjoint, carry) if yes] + [t for t in of_inputs if t is not None]
        now += [p for p, yes in zip(self._params, of_params) if yes]
        self._check("backward", now, [t for t in [*tried[0], *tried[1]] if t is not None])
        if not around.is_still():
            raise CannotCapture("a backward changes Python values")
        return _Reverse(graph, own_given, own_seeds, carry, of_inputs, of_params)

    @contextlib.contextmanager
    def _steady(self, outside: Outside) -> Iterator[None]:
        """What f keeps outside has the same form after a block as before, but for its tensors."""
        before = forms_key(outside.forms)
        yield
        if outside.moving and forms_key(outside.forms) != before:
            raise CannotCapture(f"{outside.names()[0]} holds something else after each block, beside its tensors")

    def _check(self, what: str, found: Sequence[Tensor | None], expected: Sequence[Tensor | None]) -> None:
        """A graph that was just captured against what f does itself."""
        for a, b in zip(found, expected, strict=True):
            if a is None or b is None or same_bits(a.detach(), b.detach()):
                continue
            if not close(a.detach(), b.detach()):
                raise CannotCapture(f"a {what} as a graph gives another result than f itself")
            self.remark = f"a {what} as a graph rounds otherwise than f itself"

    def compare(self, recorder: Recorder, block: int, found: Advance, live: Leaves) -> None:
        """A block that was advanced just now with f itself. Raises where the graph was wrong."""
        blocks: Any = recorder.blocks
        given = [None if t is None else t.clone() for t in live]
        with torch.no_grad(), blocks.going_on_from([t.clone() for t in self._sums_before(block)]):
            out, ys = blocks.run(block, given, blocks.inputs(block, False))
        check_alike_f(recorder, block, [*found.out, *found.ys], [*out, *ys])

    def handed_out(self, gradients: Gradients) -> Gradients:
        """They are the caller's from now on."""
        return Gradients(self._kept(gradients.carry), self._kept(gradients.params))

    def _kept(self, gradients: Sequence[Tensor | None]) -> list[Tensor | None]:
        """Those that lie where a replay writes are clones. One of a parameter is that of a carry where f makes it its carry."""
        own = addresses(self._adjoint + self._params)
        return [t.clone() if t is not None and t.untyped_storage().data_ptr() in own else t for t in gradients]

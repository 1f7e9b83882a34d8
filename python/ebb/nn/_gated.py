# SPDX-License-Identifier: Apache-2.0
"""Recurrent layers on a GPU by the library's own kernels: a chunk of time steps of a layer is one of them and a few large products."""

from __future__ import annotations

import contextlib
import functools
from collections.abc import Iterator, Sequence
from typing import Any

import torch
from torch import Tensor

from ebb import _core
from ebb._tensor.trees import rounded
from ebb.nn._gated_layer import AT_ONCE, GatedLayer, Leaves, Taped, Totals
from ebb.nn._layout import Even, Layout, Layouts, Packed
from ebb.nn._products import why_not as products_why_not
from ebb.nn._segments import Segments

_DTYPES = (torch.bfloat16, torch.float16, torch.float32)

# Time steps that are run at once where nothing is planned: enough that a call's own time does not count, so few that what inputs add
# takes little memory.
_WITHOUT_GRADIENTS = 256


def why_not(layer: Any, x: Tensor, others: list[Tensor], sizes: Tensor | None) -> str | None:
    """What keeps the kernels from running this layer; None: nothing does. `others`: its states and parameters."""
    if x.device.type != "cuda":
        return f"a tensor is on {x.device}"
    dtype = cast_to(x) or x.dtype
    if dtype not in _DTYPES:
        return f"a tensor has dtype {dtype}"
    if any((cast_to(other) or other.dtype) != dtype or other.device != x.device for other in others):
        return "inputs, states and parameters differ in dtype or device"
    if (reason := products_why_not(dtype)) is not None:
        return reason
    batch = x.shape[1] if sizes is None else int(sizes[0])
    with torch.cuda.device(x.device):
        shape = _core.GatedShape(layer.mode, _number(dtype), 1, batch, units_of(layer.hidden_size, dtype), False)
        return _core.gated_unfit(shape) or None


def cast_to(tensor: Tensor) -> torch.dtype | None:
    """What autocast makes of it, as of all that torch's own recurrent kernels are given; None: it is off, or leaves it alone."""
    kind = tensor.device.type
    if not torch.is_autocast_enabled(kind) or tensor.dtype not in _DTYPES:
        return None
    return torch.get_autocast_dtype(kind)


def _tf32() -> bool:
    """Whether recurrent layers may multiply so. Where precisions differ between operations, the old name of the setting is an error."""
    rnn = getattr(torch.backends.cudnn, "rnn", None)
    if rnn is None:
        return bool(torch.backends.cudnn.allow_tf32)
    return bool(rnn.fp32_precision == "tf32")


def _number(dtype: torch.dtype) -> str:
    """What is multiplied, as a GatedShape calls it."""
    return "tf32" if dtype == torch.float32 and _tf32() else str(dtype).removeprefix("torch.")


def units_of(hidden: int, dtype: torch.dtype) -> int:
    """As many as kernels take: those beyond the layer's have no weights, so that they stay 0 and add nothing to anything, as long as
    states are finite."""
    each = 16 if dtype == torch.float32 else 32
    return -(-hidden // each) * each


def widened(hidden: int, weights: list[Tensor]) -> list[Tensor]:
    """The weights of a stack of layers for as many units as kernels take. Gradients find their way back."""
    beyond = units_of(hidden, weights[0].dtype) - hidden
    if beyond == 0:
        return weights
    found = []
    for k, weight in enumerate(weights):
        parts = weight.reshape(-1, hidden, *weight.shape[1:])
        # What the lowest layer reads are no units.
        pad = (0, beyond) if weight.dim() == 1 else (0, 0 if k == 0 else beyond, 0, beyond)
        found.append(torch.nn.functional.pad(parts, pad).flatten(0, 1))
    return found


class GatedKernel:
    """A stack of layers in one direction over a chunk of time steps. Its carry has the leaves of each layer, the lowest first. Inputs
    and outputs of `advance`, `record` and `reverse`, which are called inside of `running`, are rows."""

    alike = False
    dtypes: list[torch.dtype] = []
    kin: tuple[Any, ...] = ()  # what costs depend on beside sizes

    def __init__(self, layer: Any, weights: list[Tensor], layers: int, backwards: bool):
        self._mode, self.hidden = layer.mode, layer.hidden_size
        self._each = len(weights) // layers
        self.weights, self.layers, self._backwards = weights, layers, backwards
        self.stack = self._layers(layer)
        self.stream = 0

    def _layers(self, layer: Any) -> list[GatedLayer]:
        number = _number(self.weights[0].dtype)
        return [
            GatedLayer(self._mode, number, own, self.hidden, self._backwards) for own in self._of_layers(self.weights)
        ]

    @property
    def own(self) -> list[Tensor]:
        """What it holds beside the weights."""
        return [tensor for layer in self.stack for tensor in layer.own]

    def _of_layers(self, of_weights: list[Any]) -> list[list[Any]]:
        return [of_weights[k * self._each : (k + 1) * self._each] for k in range(self.layers)]

    @property
    def made(self) -> list[Tensor]:
        """Weights that are not the caller's, but made of them."""
        return self.weights if self.widens else []

    @property
    def units(self) -> int:
        """Those of a layer, and those that are there for the kernels alone."""
        return self.weights[1].shape[1]

    @property
    def widens(self) -> bool:
        """Whether there are any of those."""
        return self.units > self.hidden

    def wide(self, rows: Tensor) -> Tensor:
        """With zeros for all units that are not the layer's."""
        if not self.widens:
            return rows
        found = rows.new_zeros(*rows.shape[:-1], self.units)
        found.narrow(-1, 0, self.hidden).copy_(rows)
        return found

    def start(self, states: list[Tensor]) -> list[Tensor]:
        """What an LSTM calls c and a GRU h goes on in float32."""
        if self.widens:
            states = [torch.nn.functional.pad(state, (0, self.units - self.hidden)) for state in states]
        if self._mode in ("LSTM", "GRU"):
            field = states[-1].float()
            states = [*states[:-1], field.clone() if field.data_ptr() % AT_ONCE != 0 else field]
        return [state[k] for k in range(self.layers) for state in states]

    def end(self, states: list[Tensor]) -> list[Tensor]:
        width, dtype = len(states) // self.layers, self.weights[0].dtype
        found = [torch.stack(states[k::width]).to(dtype) for k in range(width)]
        return [state[..., : self.hidden].contiguous() for state in found] if self.widens else found

    def __call__(self, x: Tensor, carry: Leaves, batch_sizes: Tensor | None) -> tuple[Leaves, Tensor]:
        """A whole sequence, without gradients."""
        blocks = GatedBlocks("", self, x, batch_sizes, _WITHOUT_GRADIENTS, self._backwards)
        with torch.no_grad(), self.running(x):
            blocks.begin()
            for block in range(blocks.count):
                carry = blocks.advance(block, carry, True)
        return carry, blocks.results()[0]

    @contextlib.contextmanager
    def running(self, x: Tensor) -> Iterator[None]:
        """On the device and the stream that x is on. Products are of the dtype that they are given in, whatever autocast wants."""
        with torch.cuda.device(x.device), torch.autocast(x.device.type, enabled=False):
            self.stream = stream_of(x)
            yield

    def advance(self, x: Tensor, layout: Layout, carry: Leaves, outputs: Tensor | None) -> Leaves:
        """The carry after. Fills the outputs, if somebody wants them."""
        after: Leaves = []
        width = len(carry) // self.layers
        for k, layer in enumerate(self.stack):
            filled = outputs if k == self.layers - 1 else None
            if filled is None:
                filled = x.new_empty(x.shape[0], layer.hidden)
            after += layer.advance(x, layout, carry[k * width : (k + 1) * width], filled, self.stream)
            x = filled
        return after

    def record(self, x: Tensor, layout: Layout, carry: Leaves) -> tuple[Leaves, Tensor, list[Taped]]:
        """The carry after, the outputs, which are a part of the tape, and the tape of each layer."""
        after: Leaves = []
        tapes = []
        width = len(carry) // self.layers
        for k, layer in enumerate(self.stack):
            own, x, tape = layer.record(x, layout, carry[k * width : (k + 1) * width], self.stream)
            after += own
            tapes.append(tape)
        return after, x, tapes

    def reverse(
        self,
        tapes: list[Taped],
        layout: Layout,
        of_outputs: int,
        of_carry: Leaves,
        totals: list[Totals],
        of_x: Tensor | None,
        ones: Tensor | None,
    ) -> None:
        """Turns the gradients of the carry after into those of the carry before, with those of the outputs, of which this is the
        address. Uses up the tapes, fills of_x, if somebody wants it, and adds to the totals."""
        width = len(of_carry) // self.layers
        above: Tensor | None = None  # stays until those below have read it
        for k in reversed(range(self.layers)):
            tape = tapes.pop()
            of_inputs = of_x if k == 0 else torch.empty_like(tape.x)
            own = of_carry[k * width : (k + 1) * width]
            given = of_outputs if above is None else above.data_ptr()
            self.stack[k].reverse(tape, layout, given, own, totals[k], of_inputs, ones, self.stream)
            above = of_inputs

    def of_carry(self, gradients: Leaves) -> Leaves:
        """In the dtypes of the carry."""
        width = len(gradients) // self.layers
        return [
            leaf
            for k, layer in enumerate(self.stack)
            for leaf in layer.of_carry(gradients[k * width : (k + 1) * width])
        ]

    def totals(self, wanted: list[bool]) -> list[Totals]:
        return [layer.totals(own) for layer, own in zip(self.stack, self._of_layers(wanted))]

    def gradients(self, totals: list[Totals]) -> list[Tensor | None]:
        """Of the weights, in their dtype."""
        return [found for layer, own in zip(self.stack, totals) for found in layer.gradients(own)]


class GatedBlocks(Segments):
    """A sequence in chunks that say their derivative themselves: they are `Explicit`."""

    recalls = False
    made = grows = 0

    def __init__(
        self, name: str, kernel: GatedKernel, x: Tensor, batch_sizes: Tensor | None, chunk: int, backwards: bool
    ):
        super().__init__(name, kernel, x, batch_sizes, chunk, backwards)
        self._gated = kernel
        self._given = x.detach().flatten(0, -2)
        self._layouts: Layouts = (
            Even(self.length, x.shape[1], chunk, backwards)
            if batch_sizes is None
            else Packed(batch_sizes, chunk, backwards, x.device)
        )
        self._totals: list[Totals] = []
        self._filled: Tensor | None = None  # the output as rows
        self._of_given: Tensor | None = None  # the gradient of the inputs as rows
        self._of_inputs: Sequence[Tensor] = []  # the same in chunks, where their rows lie in order
        self._ones: Tensor | None = None  # for sums over rows
        self.params = kernel.weights
        # Sums for weights in float32 that are the caller's are handed out as they are, those for others are not.
        own = kernel.made
        ours = {id(weight) for weight in own}
        summed = [w for w in kernel.weights if w.requires_grad and (id(w) in ours or w.dtype != torch.float32)]
        self.beside = sum(rounded(4 * weight.numel(), x.device) for weight in summed)
        self.beside += sum(rounded(weight.nbytes, x.device) for weight in own)
        self.beside += sum(rounded(tensor.nbytes, x.device) for tensor in (*kernel.own, *self._layouts.held))
        if self._sums_biases():
            self.beside += rounded(self._layouts.rows_at_most * x.element_size(), x.device)

    @property
    def explicit(self) -> GatedBlocks:
        return self

    def trial(self) -> tuple[GatedBlocks, list[Tensor]]:
        return (self, [self._x]) if self._sizes is None else self._trial(*self._longest())

    def _longest(self) -> tuple[Tensor, Tensor]:
        """Packed sequences of a chunk that all last as long as it, which is the most there can be, and their sizes."""
        steps, batch = self.steps(0), self._layouts.batch
        x = self._x.new_zeros(steps * batch, self._x.shape[1])
        return x.requires_grad_(self._x.requires_grad), torch.full((steps,), batch)

    def _trial(self, x: Tensor, sizes: Tensor) -> tuple[GatedBlocks, list[Tensor]]:
        return GatedBlocks(self.name, self._gated, x, sizes, len(sizes), self._backwards), [x]

    def _sums_biases(self) -> bool:
        return any(weight.requires_grad and weight.dim() == 1 for weight in self.params)

    def running(self) -> contextlib.AbstractContextManager[None]:
        return self._gated.running(self._x)

    def _parts(self, rows: Tensor) -> Sequence[Tensor]:
        """One for each chunk whose rows lie in order, all views at once."""
        counts = [self._layouts.rows(block) for block in range(self.count)]
        return rows.split(counts[::-1])[::-1] if self._backwards else rows.split(counts)

    @functools.cached_property
    def _inputs(self) -> Sequence[Tensor]:
        return self._parts(self._given)

    def _rows_of(self, block: int) -> Tensor:
        """The inputs of a chunk."""
        order = self._layouts.order(block)
        return self._inputs[block] if order is None else self._given.index_select(0, order)

    def begin(self) -> None:
        self._output = self._x.new_empty(*self._x.shape[:-1], self._gated.hidden)
        self._filled = self._output.view(self._given.shape[0], -1)

    def results(self) -> list[Tensor]:
        self._filled = None
        return super().results()

    def recall(self, ys: list[Tensor]) -> None:
        """Nothing is."""

    def kept(self, carry: Leaves) -> Leaves:
        return carry

    def _outputs(self, block: int) -> Tensor:
        """Of a chunk whose rows lie in order."""
        assert self._filled is not None
        return self._filled.narrow(0, self._layouts.first(block), self._layouts.rows(block))

    def advance(self, block: int, carry: Leaves, first: bool) -> Leaves:
        layout, order = self._layouts.layout(block), self._layouts.order(block)
        x = self._rows_of(block)
        if not first or (order is None and not self._gated.widens):
            return self._gated.advance(x, layout, carry, self._outputs(block) if first else None)
        outputs = x.new_empty(layout.rows, self._gated.units)
        after = self._gated.advance(x, layout, carry, outputs)
        self._put(block, self._filled, outputs)
        return after

    def record(self, block: int, carry: Leaves, first: bool) -> tuple[Leaves, Any]:
        after, outputs, tapes = self._gated.record(self._rows_of(block), self._layouts.layout(block), carry)
        if first:
            self._put(block, self._filled, outputs)  # which the caller may change
        return after, tapes

    def _put(self, block: int, rows: Tensor | None, part: Tensor) -> None:
        """A chunk's rows in their places among all, as far as they are the layer's."""
        assert rows is not None
        part = part.narrow(1, 0, rows.shape[1])
        order = self._layouts.order(block)
        if order is None:
            rows.narrow(0, self._layouts.first(block), part.shape[0]).copy_(part)
        else:
            rows.index_copy_(0, order, part)

    def held(self, tape: Any) -> list[Tensor]:
        return [tensor for layer in tape for tensor in (layer.x, layer.hs, *layer.gates) if tensor is not None]

    def begin_backward(self, gradients: list[Tensor | None]) -> None:
        super().begin_backward(gradients)
        of_x = self._input_gradient
        self._of_given = None if of_x is None else of_x.view(self._given.shape)
        if self._of_given is not None and self._layouts.order(0) is None:
            self._of_inputs = self._parts(self._of_given)
        self._totals = self._gated.totals([weight.requires_grad for weight in self.params])
        self._ones = self._x.new_ones(1, self._layouts.rows_at_most) if self._sums_biases() else None

    def adjoint(self, gradients: list[Tensor | None]) -> Leaves:
        layer, width = self._gated.stack[0], len(gradients) // self._gated.layers
        return [
            self._x.new_zeros(layer.shape_of_leaf(k % width, self._layouts.batch), dtype=torch.float32)
            if gradient is None
            else gradient.to(torch.float32, copy=True, memory_format=torch.contiguous_format)
            for k, gradient in enumerate(gradients)
        ]

    def of_carry(self, gradients: Leaves) -> Leaves:
        return self._gated.of_carry(gradients)

    def reverse(self, block: int, tape: Any, gradients: Leaves) -> Leaves:
        of_outputs, address = self._of_outputs(block)
        of_x, ones = self._beside(block)
        self._gated.reverse(tape, self._layouts.layout(block), address, gradients, self._totals, of_x, ones)
        if of_x is not None and not self._of_inputs:
            self._put(block, self._of_given, of_x)
        return gradients

    def _of_outputs(self, block: int) -> tuple[Tensor | None, int]:
        """The gradient of a chunk's outputs, or what it is a part of, and its address."""
        found, order = self._output_gradient, self._layouts.order(block)
        if found is None:
            return None, 0
        if order is None and found.is_contiguous() and not self._gated.widens:
            return found, found.data_ptr() + self._layouts.first(block) * found.shape[-1] * found.element_size()
        part = found[self._span(block)].contiguous() if order is None else found.index_select(0, order)
        part = self._gated.wide(part)
        return part, part.data_ptr()

    def _beside(self, block: int) -> tuple[Tensor | None, Tensor | None]:
        """What the gradient of a chunk's inputs goes to, and a one for each of its rows."""
        ones, rows = self._ones, self._layouts.rows(block)
        if ones is not None and rows < self._layouts.rows_at_most:
            ones = ones.narrow(1, 0, rows)
        if self._of_given is None:
            return None, ones
        return self._of_inputs[block] if self._of_inputs else self._of_given.new_empty(rows, self._given.shape[1]), ones

    def of_params(self) -> list[Tensor | None]:
        return self._gated.gradients(self._totals)

    def forget(self) -> None:
        self._totals, self._of_given, self._of_inputs, self._ones = [], None, [], None
        self.end_backward()


def stream_of(x: Tensor) -> int:
    return torch.cuda.current_stream(x.device).cuda_stream

# SPDX-License-Identifier: Apache-2.0
"""Recurrent layers on a GPU by the library's own kernels: a chunk of time steps of a layer is one of them and a few large products."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import Any

import torch
from torch import Tensor

from ebb import _core
from ebb._tensor.trees import rounded
from ebb.nn._gated_layer import DTYPES, GatedLayer, Leaves, Taped, Totals
from ebb.nn._segments import Segments

# Time steps that are run at once where nothing is planned: enough that a call's own time does not count, so few that what inputs add
# takes little memory.
_WITHOUT_GRADIENTS = 256


def why_not(layer: Any, x: Tensor, others: list[Tensor], sizes: Tensor | None) -> str | None:
    """What keeps the kernels from running this layer; None: nothing does. `others`: its states and parameters."""
    if x.device.type != "cuda":
        return f"a tensor is on {x.device}"
    dtype = cast_to(x) or x.dtype
    if dtype not in DTYPES:
        return f"a tensor has dtype {dtype}"
    if any((cast_to(other) or other.dtype) != dtype or other.device != x.device for other in others):
        return "inputs, states and parameters differ in dtype or device"
    if dtype == torch.float32 and not _tf32():
        return "products in float32 are asked for"
    if sizes is not None:
        return "sequences are packed"
    with torch.cuda.device(x.device):
        shape = _core.GatedShape(layer.mode, DTYPES[dtype], 1, x.shape[1], layer.hidden_size, False)
        return _core.gated_unfit(shape) or None


def cast_to(tensor: Tensor) -> torch.dtype | None:
    """What autocast makes of it, as of all that torch's own recurrent kernels are given; None: it is off, or leaves it alone."""
    kind = tensor.device.type
    if not torch.is_autocast_enabled(kind) or tensor.dtype not in DTYPES:
        return None
    return torch.get_autocast_dtype(kind)


def _tf32() -> bool:
    """Whether recurrent layers may multiply so. Where precisions differ between operations, the old name of the setting is an error."""
    rnn = getattr(torch.backends.cudnn, "rnn", None)
    if rnn is None:
        return bool(torch.backends.cudnn.allow_tf32)
    return bool(rnn.fp32_precision == "tf32")


class GatedKernel:
    """A stack of layers in one direction over a chunk of time steps. Its carry has the leaves of each layer, the lowest first. Inputs
    and outputs of `advance`, `record` and `reverse`, which are called inside of `running`, are rows."""

    alike = False
    dtypes: list[torch.dtype] = []

    def __init__(self, layer: Any, weights: list[Tensor], layers: int, backwards: bool):
        self._mode = layer.mode
        self._each = len(weights) // layers
        self.weights, self.layers, self._backwards = weights, layers, backwards
        self._layers = [GatedLayer(layer.mode, own, backwards) for own in self._of_layers(weights)]
        self._stream = 0

    @property
    def own(self) -> list[Tensor]:
        """What it holds beside the weights."""
        return [tensor for layer in self._layers for tensor in layer.own]

    def _of_layers(self, of_weights: list[Any]) -> list[list[Any]]:
        return [of_weights[k * self._each : (k + 1) * self._each] for k in range(self.layers)]

    def start(self, states: list[Tensor]) -> list[Tensor]:
        """What an LSTM calls c and a GRU h goes on in float32."""
        if self._mode in ("LSTM", "GRU"):
            states = [*states[:-1], states[-1].float()]
        return [state[k] for k in range(self.layers) for state in states]

    def end(self, states: list[Tensor]) -> list[Tensor]:
        width, dtype = len(states) // self.layers, self.weights[0].dtype
        return [torch.stack(states[k::width]).to(dtype) for k in range(width)]

    def __call__(self, x: Tensor, carry: Leaves, batch_sizes: Tensor | None) -> tuple[Leaves, Tensor]:
        """A whole sequence, without gradients."""
        blocks = GatedBlocks("", self, x, _WITHOUT_GRADIENTS, self._backwards)
        with torch.no_grad(), self.running(x):
            blocks.begin()
            for block in range(blocks.count):
                carry = blocks.advance(block, carry, True)
        return carry, blocks.results()[0]

    @contextlib.contextmanager
    def running(self, x: Tensor) -> Iterator[None]:
        """On the device and the stream that x is on. Products are of the dtype that they are given in, whatever autocast wants."""
        with torch.cuda.device(x.device), torch.autocast(x.device.type, enabled=False):
            self._stream = _stream(x)
            yield

    def advance(self, x: Tensor, carry: Leaves, outputs: Tensor | None) -> Leaves:
        """The carry after. Fills the outputs, if somebody wants them."""
        after: Leaves = []
        width = len(carry) // self.layers
        for k, layer in enumerate(self._layers):
            filled = outputs if k == self.layers - 1 else None
            if filled is None:
                filled = x.new_empty(x.shape[0], layer.hidden)
            after += layer.advance(x, carry[k * width : (k + 1) * width], filled, self._stream)
            x = filled
        return after

    def record(self, x: Tensor, carry: Leaves) -> tuple[Leaves, Tensor, list[Taped]]:
        """The carry after, the outputs, which are a part of the tape, and the tape of each layer."""
        after: Leaves = []
        tapes = []
        width = len(carry) // self.layers
        for k, layer in enumerate(self._layers):
            own, x, tape = layer.record(x, carry[k * width : (k + 1) * width], self._stream)
            after += own
            tapes.append(tape)
        return after, x, tapes

    def reverse(
        self,
        tapes: list[Taped],
        of_outputs: Tensor | None,
        of_carry: Leaves,
        totals: list[Totals],
        of_x: Tensor | None,
        ones: Tensor | None,
    ) -> Leaves:
        """The gradients of the carry before. Uses up the tapes, fills of_x, if somebody wants it, and adds to the totals."""
        before: Leaves = []
        width = len(of_carry) // self.layers
        for k in reversed(range(self.layers)):
            tape = tapes.pop()
            of_inputs = of_x if k == 0 else torch.empty_like(tape.x)
            own = of_carry[k * width : (k + 1) * width]
            before = self._layers[k].reverse(tape, of_outputs, own, totals[k], of_inputs, ones, self._stream) + before
            of_outputs = of_inputs
        return before

    def totals(self, wanted: list[bool]) -> list[Totals]:
        return [layer.totals(own) for layer, own in zip(self._layers, self._of_layers(wanted))]

    def gradients(self, totals: list[Totals]) -> list[Tensor | None]:
        """Of the weights, in their dtype."""
        return [found for layer, own in zip(self._layers, totals) for found in layer.gradients(own)]


class GatedBlocks(Segments):
    """A sequence in chunks that say their derivative themselves: they are `Explicit`."""

    def __init__(self, name: str, kernel: GatedKernel, x: Tensor, chunk: int, backwards: bool):
        super().__init__(name, kernel, x, None, chunk, backwards)
        self._gated = kernel
        self._given = x.detach().flatten(0, 1)
        self._batch = x.shape[1]
        self._totals: list[Totals] = []
        self._filled: Tensor | None = None  # the output as rows
        self._of_given: Tensor | None = None  # the gradient of the inputs as rows
        self._ones: Tensor | None = None  # for sums over rows
        self.params = kernel.weights
        # Sums for weights in float32 are handed out as they are, those for others are not.
        summed = [w for w in kernel.weights if w.requires_grad and w.dtype != torch.float32]
        self.beside = sum(rounded(4 * weight.numel(), x.device) for weight in summed)
        self.beside += sum(rounded(tensor.nbytes, x.device) for tensor in kernel.own)
        if self._sums_biases():
            self.beside += rounded(self._rows_at_most * x.element_size(), x.device)

    @property
    def explicit(self) -> GatedBlocks:
        return self

    @property
    def _rows_at_most(self) -> int:
        return self._chunk * self._batch

    def _sums_biases(self) -> bool:
        return any(weight.requires_grad and weight.dim() == 1 for weight in self.params)

    def running(self) -> contextlib.AbstractContextManager[None]:
        return self._gated.running(self._x)

    def _part(self, rows: Tensor, block: int) -> Tensor:
        start, steps = block * self._chunk, self.steps(block)
        if self._backwards:
            start = self.length - start - steps
        return rows.narrow(0, start * self._batch, steps * self._batch)

    def begin(self) -> None:
        self._output = self._x.new_empty(self._x.shape[0], self._batch, self.params[1].shape[1])
        self._filled = self._output.view(self._given.shape[0], -1)

    def results(self) -> list[Tensor]:
        self._filled = None
        return super().results()

    def _outputs(self, block: int) -> Tensor:
        assert self._filled is not None
        return self._part(self._filled, block)

    def advance(self, block: int, carry: Leaves, first: bool) -> Leaves:
        return self._gated.advance(self._part(self._given, block), carry, self._outputs(block) if first else None)

    def record(self, block: int, carry: Leaves, first: bool) -> tuple[Leaves, list[Taped]]:
        after, outputs, tapes = self._gated.record(self._part(self._given, block), carry)
        if first:
            self._outputs(block).copy_(outputs)  # which the caller may change
        return after, tapes

    def held(self, tape: list[Taped]) -> list[Tensor]:
        return [tensor for layer in tape for tensor in layer if tensor is not None]

    def begin_backward(self, gradients: list[Tensor | None]) -> None:
        super().begin_backward(gradients)
        self._of_given = None if self._input_gradient is None else self._input_gradient.view(self._given.shape)
        self._totals = self._gated.totals([weight.requires_grad for weight in self.params])
        self._ones = self._x.new_ones(1, self._rows_at_most) if self._sums_biases() else None

    def reverse(self, block: int, tape: list[Taped], gradients: Leaves) -> Leaves:
        of_outputs, of_x = self._output_gradient, self._of_given
        if of_outputs is not None:
            of_outputs = of_outputs[self._span(block)].contiguous()
        if of_x is not None:
            of_x = self._part(of_x, block)
        return self._gated.reverse(tape, of_outputs, gradients, self._totals, of_x, self._ones)

    def of_params(self) -> list[Tensor | None]:
        return self._gated.gradients(self._totals)

    def forget(self) -> None:
        self._totals, self._of_given, self._ones = [], None, None
        self.end_backward()


def _stream(x: Tensor) -> int:
    return torch.cuda.current_stream(x.device).cuda_stream

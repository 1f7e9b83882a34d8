# SPDX-License-Identifier: Apache-2.0
"""A sequence of a recurrent layer in chunks of time steps, each a call of a kernel."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Protocol

import torch
from torch import Tensor

from ebb._loop.blocks import Leaves, OutputsApart


class Kernel(Protocol):
    """A stack of layers in one direction over a chunk of time steps."""

    weights: list[Tensor]
    layers: int
    kin: tuple[Any, ...]  # what costs depend on beside sizes
    alike: bool  # with and without gradients
    dtypes: list[torch.dtype]  # of the output and of the states; none: as they come

    def start(self, states: list[Tensor]) -> list[Tensor]:
        """The caller's states as it carries them on."""

    def end(self, states: list[Tensor]) -> list[Tensor]:
        """And back."""

    def __call__(self, x: Tensor, carry: Leaves, batch_sizes: Tensor | None) -> tuple[Leaves, Tensor]: ...


class Rows:
    """Where the time steps of packed sequences lie."""

    def __init__(self, batch_sizes: Tensor):
        self._first = torch.cat([batch_sizes.new_zeros(1), batch_sizes.cumsum(0)])  # row of each time step
        samples = torch.arange(int(batch_sizes[0]))
        self._last = (batch_sizes[:, None] > samples).sum(0) - 1  # time step of each sample
        self._samples = samples

    def of(self, start: int, end: int) -> slice:
        """Of time steps."""
        return slice(int(self._first[start]), int(self._first[end]))

    def from_the_end(self, start: int, end: int, device: torch.device) -> Tensor:
        """Of time steps counted from each sample's last one."""
        steps = self._last - torch.arange(start, end)[:, None]
        return (self._first[steps.clamp(min=0)] + self._samples)[steps >= 0].to(device)


class Segments(OutputsApart):
    """A sequence in chunks, each a call of a kernel. Of packed sequences that are run backwards the first rows are all last time
    steps, then all that come before those, and so on: chunks become smaller, as they do forwards."""

    advice = ""
    divisible = False

    def __init__(
        self,
        name: str,
        kernel: Kernel,
        x: Tensor,
        batch_sizes: Tensor | None,
        chunk: int,
        backwards: bool,
    ):
        self.name = name
        self._kernel, self._x, self._sizes, self._backwards = kernel, x, batch_sizes, backwards
        self._chunk = chunk
        self.length = x.shape[0] if batch_sizes is None else len(batch_sizes)
        self._rows = None if batch_sizes is None else Rows(batch_sizes)
        self.count = -(-self.length // chunk)
        self._output: Tensor | None = None
        self._output_gradient: Tensor | None = None
        self._input_gradient: Tensor | None = None

    def _span(self, block: int) -> slice | Tensor:
        """In time, or in the rows of a packed sequence."""
        start, end = block * self._chunk, min(self.length, (block + 1) * self._chunk)
        if self._rows is not None:
            return self._rows.from_the_end(start, end, self._x.device) if self._backwards else self._rows.of(start, end)
        return slice(self.length - end, self.length - start) if self._backwards else slice(start, end)

    def steps(self, block: int) -> int:
        return min(self.length, (block + 1) * self._chunk) - block * self._chunk

    def inputs_with_gradient(self) -> list[bool]:
        return [self._x.requires_grad]

    def between(self, look: Callable[[], None] | None) -> None:
        """A chunk is one call."""

    def inputs(self, block: int, gradients: bool) -> list[Tensor]:
        part = self._x.detach()[self._span(block)]
        return [part.requires_grad_() if gradients and self._x.requires_grad else part]

    def run(self, block: int, carry: Leaves, inputs: list[Tensor]) -> tuple[Leaves, list[Tensor]]:
        sizes = None
        if self._sizes is not None:
            sizes = self._sizes[block * self._chunk : (block + 1) * self._chunk]
        out, y = self._kernel(inputs[0], carry, sizes)
        return out, [y]

    def output_flags(self, ys: list[Tensor]) -> list[bool]:
        return [ys[0].requires_grad]

    def begin(self) -> None:
        self._output = None

    def keep(self, block: int, ys: list[Tensor]) -> None:
        if self._output is None:
            self._output = ys[0].new_empty((self._x.shape[0], *ys[0].shape[1:]))
        self._output[self._span(block)] = ys[0]

    def results(self) -> list[Tensor]:
        found, self._output = self._output, None
        return [] if found is None else [found]

    def begin_backward(self, gradients: list[Tensor | None]) -> None:
        self._output_gradient = gradients[0]
        self._input_gradient = torch.empty_like(self._x) if self._x.requires_grad else None

    def output_gradients(self, block: int) -> list[Tensor | None]:
        return [None if self._output_gradient is None else self._output_gradient[self._span(block)]]

    def take_input_gradients(self, block: int, gradients: list[Tensor | None]) -> None:
        assert self._input_gradient is not None
        self._input_gradient[self._span(block)] = 0 if gradients[0] is None else gradients[0]

    def end_backward(self) -> list[Tensor | None]:
        found, self._input_gradient, self._output_gradient = self._input_gradient, None, None
        return [found]

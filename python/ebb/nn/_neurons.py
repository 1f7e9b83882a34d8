# SPDX-License-Identifier: Apache-2.0
"""Spiking layers on a GPU by the library's own kernels, in chunks of time steps as gated layers are. Spikes are the caller's outputs,
and tell all that the backward pass needs but the membranes before a chunk."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from ebb import _core
from ebb._base.budget import allowance_of
from ebb._loop.arguments import transform_of
from ebb.nn import _apart, _products
from ebb.nn._chunks import in_chunks
from ebb.nn._gated import GatedKernel, units_of, widened
from ebb.nn._gated_layer import GatedLayer, Gates, Leaves, Steps, Totals
from ebb.nn._layout import Layout

_FIELDS = {"LIF": 1, "ALIF": 2, "ADLIF": 2}  # numbers of a unit in a state, and those that are kept of a time step
_DTYPES = (torch.bfloat16, torch.float16, torch.float32)


def why_not(layer: Any, x: Tensor, others: list[Tensor]) -> str | None:
    """What keeps the kernels from running this layer; None: nothing does. `others`: its states and parameters."""
    if layer.mode not in _FIELDS:
        return f"there are no kernels for {type(layer).__name__}"
    if x.device.type != "cuda":
        return f"a tensor is on {x.device}"
    if torch.is_autocast_enabled("cuda"):
        return "autocast is on"
    if (reason := transform_of([x, *others])) is not None:
        return reason
    if x.dtype not in _DTYPES or any(other.dtype != x.dtype or other.device != x.device for other in others):
        return "inputs, states and parameters differ in dtype or device, or are of no dtype that kernels take"
    if (reason := _products.why_not(x.dtype)) is not None:
        return reason
    units = _units(layer, x.dtype)
    if layer.input_size is None and units != layer.hidden_size:
        return f"{layer.hidden_size} units with recurrent weights, and none for inputs, are not a multiple of {units_of(1, x.dtype)}"
    with torch.cuda.device(x.device):
        return _core.spiking_unfit(_how(layer, x.dtype)(1, x.shape[1], units)) or None


def _units(layer: Any, dtype: torch.dtype) -> int:
    """As many as kernels take."""
    return units_of(layer.hidden_size, dtype) if layer.recurrent else layer.hidden_size


def _tf32() -> bool:
    """Whether torch's own products, of which its loops are made, round so."""
    matmul = torch.backends.cuda.matmul
    precision = getattr(matmul, "fp32_precision", None)
    return bool(matmul.allow_tf32) if precision is None else bool(precision == "tf32")


def _number(dtype: torch.dtype) -> str:
    return "tf32" if dtype == torch.float32 and _tf32() else str(dtype).removeprefix("torch.")


def _how(layer: Any, dtype: torch.dtype) -> Callable[[int, int, int], Any]:
    """Shapes of that many time steps, samples and units, as the layer and torch are set now."""
    first = layer.mode, _number(dtype)
    then = (
        layer.reset == "hard",
        layer.attached_reset,
        layer.normalised,
        layer.surrogate,
        layer.sharpness,
        layer.recurrent,
    )
    return lambda steps, batch, units: _core.SpikingShape(*first, steps, batch, units, *then)


def run(layer: Any, x: Tensor, state: tuple[Tensor, ...]) -> tuple[Tensor, tuple[Tensor, ...], Any]:
    """Spikes, the last state and the report. x is [T,B,I]."""
    *weights, numbers = layer.for_kernels()
    if layer.needs_no_plan:
        *fields, before = state
        shape = _how(layer, x.dtype)(x.shape[0], x.shape[1], layer.hidden_size)
        spikes, after = _apart.run(shape, x, numbers, before, torch.stack(fields).float())
        return spikes, (*(field.to(x.dtype) for field in after), spikes[-1].clone()), None
    kernel = SpikingKernel(layer, weights, numbers)
    allowed = allowance_of("speed" if layer.budget is None else layer.budget)
    final, spikes, report = in_chunks(
        layer, kernel, x.contiguous(), None, kernel.start(list(state)), allowed, False, True
    )
    return spikes, tuple(kernel.end(final)), report


class SpikingKernel(GatedKernel):
    """One layer. Its weights: w_ih, w_hh and the bias, as far as they are there, and the numbers of each unit in float32, [P,H]. Its
    carry: the last spikes, and all else of a state as one tensor in float32, [F,B,H]."""

    def __init__(self, layer: Any, weights: list[Tensor], numbers: Tensor):
        dtype = layer.dtype
        beyond = _units(layer, dtype) - layer.hidden_size
        if beyond > 0:
            weights = widened(layer.hidden_size, weights)
            # A unit without weights stays at 0, below any threshold above it.
            numbers = torch.nn.functional.pad(numbers, (0, beyond), value=0.5)
        self._dtype, self.kin = dtype, (layer.input_size is None, layer.recurrent)
        super().__init__(layer, [*weights, numbers], 1, False)

    def _layers(self, layer: Any) -> list[GatedLayer]:
        return [SpikingLayer(layer, self.weights)]

    @property
    def made(self) -> list[Tensor]:
        return super().made or self.weights[-1:]

    @property
    def units(self) -> int:
        return self.weights[-1].shape[1]

    def start(self, states: list[Tensor]) -> list[Tensor]:
        *fields, spikes = states
        beyond = self.units - self.hidden
        found = [spikes.to(self._dtype), torch.stack(fields).float()]
        return [torch.nn.functional.pad(leaf, (0, beyond)) for leaf in found] if beyond > 0 else found

    def end(self, states: list[Tensor]) -> list[Tensor]:
        spikes, fields = [state[..., : self.hidden] for state in states]
        return [*(field.to(spikes.dtype).contiguous() for field in fields), spikes.contiguous()]


class SpikingLayer(GatedLayer):
    """Weights that are not there are empty."""

    def __init__(self, layer: Any, weights: list[Tensor]):
        *weights, numbers = weights
        dtype = layer.dtype
        self._reads, self._recurs = layer.input_size is not None, layer.recurrent
        empty = numbers.new_empty(0, numbers.shape[1], dtype=dtype)
        own = [weights.pop(0) if there else empty for there in (self._reads, self._recurs)]
        super().__init__(layer.mode, _number(dtype), [*own, *weights], layer.hidden_size, False)
        self._numbers = numbers.detach().contiguous()
        self._fields = _FIELDS[layer.mode]
        self._how = _how(layer, dtype)

    @functools.cached_property
    def _both(self) -> Tensor | None:
        return self._biases[0] if self._biases else None

    def _shape(self, rows: int, batch: int) -> Any:
        found = self._shapes.get((rows, batch))
        if found is None:
            found = self._shapes[rows, batch] = self._how(rows // batch, batch, self.hidden)
        return found

    def shape_of_leaf(self, leaf: int, batch: int) -> tuple[int, ...]:
        return (batch, self.hidden) if leaf == 0 else (self._fields, batch, self.hidden)

    @property
    def has_field(self) -> bool:
        return True

    def field_of(self, carry: Leaves) -> Tensor | None:
        return carry[1]

    def sums(self, x: Tensor) -> Tensor:
        if self._reads:
            return super().sums(x)
        return x if self._both is None else x + self._both

    def run(
        self,
        sums: Tensor | None,
        layout: Layout,
        before: int,
        field: Tensor | None,
        outputs: int,
        stream: int,
        recorded: Gates | None = None,
    ) -> Tensor | None:
        assert sums is not None and field is not None and recorded is None
        after = torch.empty_like(field)
        _core.spiking_forward(
            self._shape(layout.rows, layout.stretches[0].batch),
            self._w_hh.data_ptr(),
            self._numbers.data_ptr(),
            sums.data_ptr(),
            before,
            field.data_ptr(),
            outputs,
            after.data_ptr(),
            stream,
        )
        return after

    def recall(self, x: Tensor, layout: Layout, field: Tensor | None, steps: Steps, stream: int) -> Gates:
        assert field is not None
        shape = self._shape(layout.rows, layout.stretches[0].batch)
        sums = self.sums(x)
        kept = torch.empty(_core.spiking_kept(shape), dtype=torch.float32, device=x.device)
        if not self._recurs:
            return Gates(sums, field, kept)
        if sums is x:
            sums = x.clone()
        first = 0
        for h in steps.hs:
            self._products.add(sums.narrow(0, first, h.shape[0]) if len(steps.hs) > 1 else sums, h, self._recurrent)
            first += h.shape[0]
        _core.spiking_recall(
            shape,
            self._numbers.data_ptr(),
            sums.data_ptr(),
            steps.before,
            steps.outputs,
            field.data_ptr(),
            kept.data_ptr(),
            stream,
        )
        return Gates(sums, field, kept)

    def pull_back(
        self,
        x: Tensor,
        layout: Layout,
        recorded: Gates,
        steps: Steps,
        of_outputs: int,
        of_carry: Leaves,
        totals: Totals,
        of_x: Tensor | None,
        ones: Tensor | None,
        stream: int,
    ) -> None:
        sums, field, kept, _ = recorded
        assert sums is not None and field is not None and kept is not None
        of_sums = sums  # which are not read again
        if not self._reads and of_x is not None:
            of_sums = of_x
        elif sums.data_ptr() == x.data_ptr():
            of_sums = torch.empty_like(x)
        batch = layout.stretches[0].batch
        of_h, of_fields = of_carry
        of_numbers = None if totals[3] is None else kept.new_empty(len(self._numbers), batch, self.hidden)
        _core.spiking_backward(
            self._shape(layout.rows, batch),
            self._w_hh.data_ptr(),
            self._numbers.data_ptr(),
            sums.data_ptr(),
            kept.data_ptr(),
            steps.outputs,
            steps.before,
            field.data_ptr(),
            of_outputs,
            of_h.data_ptr(),
            of_fields.data_ptr(),
            of_sums.data_ptr(),
            of_h.data_ptr(),
            of_fields.data_ptr(),
            0 if of_numbers is None else of_numbers.data_ptr(),
            stream,
        )
        if of_numbers is not None:
            assert totals[3] is not None
            totals[3].add_(of_numbers.sum(1))
        if self._reads and of_x is not None:
            self._products.fill(of_x, of_sums, self._w_ih)
        self._add_up([*totals[:3], None], x, steps.hs, of_sums, of_sums, ones)

    @property
    def _there(self) -> list[bool]:
        """Of w_ih, w_hh, the bias and the numbers of units."""
        return [self._reads, self._recurs, bool(self._biases), True]

    def totals(self, wanted: list[bool]) -> Totals:
        flags = iter(wanted)
        weights = [self._w_ih, self._w_hh, self._both, self._numbers]
        return [
            torch.zeros(
                weight.shape if weight.dim() == 2 else (1, *weight.shape), dtype=torch.float32, device=weight.device
            )
            if there and next(flags) and weight is not None
            else None
            for weight, there in zip(weights, self._there)
        ]

    def gradients(self, totals: Totals) -> list[Tensor | None]:
        w_ih, w_hh, bias, numbers = totals
        totals[:] = [None] * 4
        found = [None if total is None else total.to(self._dtype) for total in (w_ih, w_hh)]
        found.append(None if bias is None else bias.squeeze_(0).to(self._dtype))
        return [total for total, there in zip([*found, numbers], self._there) if there]

    def recorded_bytes(self, rows: int) -> tuple[int, int]:
        sums = rows * self.hidden * self._size
        kept = 4 * self._fields * self.hidden * (rows if self._recurs else rows // 16)
        return sums + kept, 0

    def of_carry(self, gradients: Leaves) -> Leaves:
        return [gradients[0].to(self._dtype), gradients[1]]

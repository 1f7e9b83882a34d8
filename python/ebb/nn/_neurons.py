# SPDX-License-Identifier: Apache-2.0
"""Recurrent spiking layers on a GPU by the library's own kernels, in chunks of time steps as gated layers are. Spikes are the caller's
outputs, and tell all that the backward pass needs but the membranes before a chunk."""

from __future__ import annotations

import functools
from typing import Any

import torch
from torch import Tensor

from ebb import _core
from ebb._base.budget import allowance_of
from ebb.nn import _products
from ebb.nn._chunks import in_chunks
from ebb.nn._gated import GatedKernel, units_of, widened
from ebb.nn._gated_layer import GatedLayer, Gates, Leaves, Steps, Totals
from ebb.nn._layout import Layout

_FIELDS = {"LIF": 1, "ALIF": 2}  # numbers of a unit in a state, and those that are kept of a time step
_DTYPES = (torch.bfloat16, torch.float16, torch.float32)


def why_not(layer: Any, x: Tensor, others: list[Tensor]) -> str | None:
    """What keeps the kernels from running this layer; None: nothing does. `others`: its states and parameters."""
    if x.device.type != "cuda":
        return f"a tensor is on {x.device}"
    if torch.is_autocast_enabled("cuda"):
        return "autocast is on"
    if not layer.recurrent:
        return "there are no recurrent weights"
    if x.dtype not in _DTYPES or any(other.dtype != x.dtype or other.device != x.device for other in others):
        return "inputs, states and parameters differ in dtype or device, or are of no dtype that kernels take"
    if (reason := _products.why_not(x.dtype)) is not None:
        return reason
    with torch.cuda.device(x.device):
        return _core.spiking_unfit(_shape(layer, x.dtype, 1, x.shape[1], units_of(layer.hidden_size, x.dtype))) or None


def _tf32() -> bool:
    """Whether torch's own products, of which its loops are made, round so."""
    matmul = torch.backends.cuda.matmul
    precision = getattr(matmul, "fp32_precision", None)
    return bool(matmul.allow_tf32) if precision is None else bool(precision == "tf32")


def _number(dtype: torch.dtype) -> str:
    return "tf32" if dtype == torch.float32 and _tf32() else str(dtype).removeprefix("torch.")


def _shape(layer: Any, dtype: torch.dtype, steps: int, batch: int, units: int) -> Any:
    return _core.SpikingShape(
        layer.mode,
        _number(dtype),
        steps,
        batch,
        units,
        layer.reset == "hard",
        layer.attached_reset,
        layer.normalised,
        layer.surrogate,
        layer.sharpness,
    )


def run(layer: Any, x: Tensor, state: tuple[Tensor, ...]) -> tuple[Tensor, tuple[Tensor, ...], Any]:
    """Spikes, the last state and the report. x is [T,B,I]."""
    *weights, numbers = layer.for_kernels()
    kernel = SpikingKernel(layer, weights, numbers)
    allowed = allowance_of("speed" if layer.budget is None else layer.budget)
    final, spikes, report = in_chunks(
        layer, kernel, x.contiguous(), None, kernel.start(list(state)), allowed, False, True
    )
    return spikes, tuple(kernel.end(final)), report


class SpikingKernel(GatedKernel):
    """One layer. Its weights: w_ih, w_hh, the bias if there is one, and the numbers of each unit in float32, [P,H]. Its carry: the last
    spikes, and all else of a state as one tensor in float32, [F,B,H]."""

    def __init__(self, layer: Any, weights: list[Tensor], numbers: Tensor):
        found = widened(layer.hidden_size, weights)
        beyond = found[1].shape[1] - layer.hidden_size
        # A unit without weights stays at 0, below any threshold above it.
        found.append(torch.nn.functional.pad(numbers, (0, beyond), value=1.0) if beyond > 0 else numbers)
        self._layer = layer
        super().__init__(layer, found, 1, False)

    def _layers(self, layer: Any) -> list[GatedLayer]:
        return [SpikingLayer(layer, self.weights)]

    def start(self, states: list[Tensor]) -> list[Tensor]:
        *fields, spikes = states
        beyond = self.units - self.hidden
        found = [spikes.to(self.weights[0].dtype), torch.stack(fields).float()]
        return [torch.nn.functional.pad(leaf, (0, beyond)) for leaf in found] if beyond > 0 else found

    def end(self, states: list[Tensor]) -> list[Tensor]:
        spikes, fields = [state[..., : self.hidden] for state in states]
        return [*(field.to(spikes.dtype).contiguous() for field in fields), spikes.contiguous()]


class SpikingLayer(GatedLayer):
    def __init__(self, layer: Any, weights: list[Tensor]):
        *weights, numbers = weights
        dtype = weights[0].dtype
        super().__init__(layer.mode, _number(dtype), weights, layer.hidden_size, False)
        self._numbers = numbers.detach().contiguous()
        self._fields = _FIELDS[layer.mode]
        self._shape_of = functools.cache(lambda rows, batch: _shape(layer, dtype, rows // batch, batch, self.hidden))

    @functools.cached_property
    def _both(self) -> Tensor | None:
        return self._biases[0] if self._biases else None

    def shape_of_leaf(self, leaf: int, batch: int) -> tuple[int, ...]:
        return (batch, self.hidden) if leaf == 0 else (self._fields, batch, self.hidden)

    def field_of(self, carry: Leaves) -> Tensor | None:
        return carry[1]

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
            self._shape_of(layout.rows, layout.stretches[0].batch),
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
        sums, first = self.sums(x), 0
        for h in steps.hs:
            self._products.add(sums.narrow(0, first, h.shape[0]) if len(steps.hs) > 1 else sums, h, self._recurrent)
            first += h.shape[0]
        kept = torch.empty(self._fields, layout.rows, self.hidden, dtype=torch.float32, device=x.device)
        _core.spiking_recall(
            self._shape_of(layout.rows, layout.stretches[0].batch),
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
        of_sums, field, kept, _ = recorded  # where the sums were
        assert of_sums is not None and field is not None and kept is not None
        batch = layout.stretches[0].batch
        of_h, of_fields = of_carry
        of_numbers = None if totals[3] is None else kept.new_empty(len(self._numbers), batch, self.hidden)
        _core.spiking_backward(
            self._shape_of(layout.rows, batch),
            self._w_hh.data_ptr(),
            self._numbers.data_ptr(),
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
        if of_x is not None:
            self._products.fill(of_x, of_sums, self._w_ih)
        self._add_up([*totals[:3], None], x, steps.hs, of_sums, of_sums, ones)

    def totals(self, wanted: list[bool]) -> Totals:
        """Of w_ih, w_hh, the bias and the numbers of units."""
        bias = self._biases[0] if self._biases else None
        weights = [self._w_ih, self._w_hh, bias, self._numbers]
        flags = wanted if self._biases else [*wanted[:2], False, wanted[2]]
        return [
            None
            if weight is None or not yes
            else torch.zeros(
                weight.shape if weight.dim() == 2 else (1, *weight.shape), dtype=torch.float32, device=weight.device
            )
            for weight, yes in zip(weights, flags)
        ]

    def gradients(self, totals: Totals) -> list[Tensor | None]:
        w_ih, w_hh, bias, numbers = totals
        totals[:] = [None] * 4
        found = [None if total is None else total.to(self._dtype) for total in (w_ih, w_hh)]
        if self._biases:
            found.append(None if bias is None else bias.squeeze_(0).to(self._dtype))
        return [*found, numbers]

    def recorded_bytes(self, rows: int) -> tuple[int, int]:
        return rows * self.hidden * (self._size + 4 * self._fields), 0

    def of_carry(self, gradients: Leaves) -> Leaves:
        return [gradients[0].to(self._dtype), gradients[1]]

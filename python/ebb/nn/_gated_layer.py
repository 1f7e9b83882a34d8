# SPDX-License-Identifier: Apache-2.0
"""One recurrent layer over a chunk of time steps by the library's own kernels, forward and back, without autograd.

Inputs and outputs are rows, which a `Layout` describes. A carry is h, and c of an LSTM, [B,H] each, of all samples: those that have
ended keep theirs. What an LSTM calls c and a GRU h is float32. Nothing here waits for the GPU."""

from __future__ import annotations

import functools
from typing import Any, NamedTuple

import torch
from torch import Tensor

from ebb import _core
from ebb._tensor.trees import addresses
from ebb.nn._layout import Layout
from ebb.nn._products import products_of

Leaves = list[Any]
Totals = list[Tensor | None]  # sums of gradients in float32, of w_ih, w_hh, b_ih and b_hh; None: not wanted

AT_ONCE = 16  # bytes that kernels read, at addresses that are multiples of it


class Gates(NamedTuple):
    """What the derivative of a chunk needs beside inputs and outputs."""

    gates: Tensor | None
    field: Tensor | None  # what is float32 of the carry before
    fields: Tensor | None = None
    products: Tensor | None = None


class Taped(NamedTuple):
    """What the derivative of a chunk needs."""

    x: Tensor
    hs: Tensor  # h before the first time step beside the outputs: all that products are made with is then one piece
    gates: Gates


class Steps(NamedTuple):
    """Where the outputs of a chunk are and those before: addresses, and the h before each row, in one piece or more."""

    outputs: int
    before: int
    hs: list[Tensor]


class GatedLayer:
    """`number`: what is multiplied, as a GatedShape calls it. `weights`: w_ih, w_hh and, if there are any, b_ih and b_hh. Units from
    `real` on have none. `backwards`: time runs from the last step to the first."""

    def __init__(self, mode: str, number: str, weights: list[Tensor], real: int, backwards: bool):
        self.mode, self.backwards, self._number = mode, backwards, number
        self._w_ih, w_hh, *self._biases = [weight.detach() for weight in weights]
        self._given, self._w_hh = w_hh, w_hh.contiguous()
        if self._w_hh.data_ptr() % AT_ONCE != 0:
            self._w_hh = self._w_hh.clone()
        self.hidden, self._real = w_hh.shape[1], real
        self._columns, self._recurrent = self._w_ih.t(), self._w_hh.t()
        self._dtype, self._size = w_hh.dtype, w_hh.element_size()
        self._products = products_of(number, w_hh.device)
        self._bias = self._biases[1][2 * self.hidden :].contiguous() if mode == "GRU" and self._biases else None
        self._shapes: dict[tuple[int, int], Any] = {}

    @property
    def own(self) -> list[Tensor]:
        """What it holds beside the weights."""
        kept = [self._both, self._w_hh, self._bias]
        theirs = addresses([self._w_ih, self._given, *self._biases])
        return [t for t in kept if t is not None and not addresses([t]) & theirs]

    @property
    def has_field(self) -> bool:
        """Whether a carry has more than its outputs tell."""
        return self.mode == "LSTM"

    def advance(self, x: Tensor, layout: Layout, carry: Leaves, outputs: Tensor, stream: int) -> Leaves:
        """Fills the outputs. Returns the carry after."""
        h = self.aligned(carry[0])
        field = self.run(self.sums(x), layout, h.data_ptr(), self.field_of(carry), outputs.data_ptr(), stream)
        return self._after(field, outputs, layout, carry[0])

    def record(self, x: Tensor, layout: Layout, carry: Leaves, stream: int) -> tuple[Leaves, Tensor, Taped]:
        """The carry after, the outputs, which are a part of the tape, and the tape."""
        rows, batch = layout.rows, layout.stretches[0].batch
        hs = x.new_empty(rows + batch, self.hidden)
        before, outputs = self._parts(hs, layout)
        before.copy_(carry[0].narrow(0, 0, batch))
        gates = Gates(self.sums(x), self.field_of(carry), *self._empty(x, rows))
        field = self.run(gates.gates, layout, before.data_ptr(), gates.field, outputs.data_ptr(), stream, gates)
        return self._after(field, outputs, layout, carry[0]), outputs, Taped(x, hs, gates)

    def reverse(
        self,
        tape: Taped,
        layout: Layout,
        of_outputs: int,
        of_carry: Leaves,
        totals: Totals,
        of_x: Tensor | None,
        ones: Tensor | None,
        stream: int,
    ) -> None:
        """Turns the gradients of the carry after, which are float32, into those of the carry before, with those of the outputs, of
        which this is the address. Uses up the tape, fills of_x where it is there, and adds to the totals. `ones`: [1,n], one for each
        row, where there are totals of biases."""
        before, outputs = self._parts(tape.hs, layout)
        if layout.earlier is None:
            hs = tape.hs.narrow(0, before.shape[0] if self.backwards else 0, layout.rows)
        else:
            hs = self.before_each(before, outputs, layout)
        steps = Steps(outputs.data_ptr(), before.data_ptr(), [hs])
        self.pull_back(tape.x, layout, tape.gates, steps, of_outputs, of_carry, totals, of_x, ones, stream)

    def before_each(self, before: Tensor, outputs: Tensor, layout: Layout) -> Tensor:
        """The h before each row, by those before the first time step of packed sequences and all outputs."""
        assert layout.earlier is not None
        batch = layout.stretches[0].batch
        hs = outputs.new_empty(layout.rows, self.hidden)
        hs.narrow(0, 0, batch).copy_(before.narrow(0, 0, batch))
        if layout.rows > batch:
            torch.index_select(outputs, 0, layout.earlier, out=hs.narrow(0, batch, layout.rows - batch))
        return hs

    def aligned(self, h: Tensor) -> Tensor:
        """As the kernels read it."""
        h = h.to(self._dtype)
        return h if h.data_ptr() % AT_ONCE == 0 else h.clone()

    def sums(self, x: Tensor) -> Tensor:
        """What inputs and biases add."""
        found = self._products.biased(self._both, x, self._columns)
        if self._real < self.hidden:  # an infinite input times nothing would be no number
            found.view(x.shape[0], -1, self.hidden)[..., self._real :] = 0
        return found

    def recall(self, x: Tensor, layout: Layout, field: Tensor | None, steps: Steps, stream: int) -> Gates:
        """What `record` would have kept, to within rounding, by the h before each row. Nothing runs step by step."""
        if self.mode.startswith("RNN"):
            return Gates(None, None)  # outputs are all that its derivative needs
        gates = Gates(self.sums(x), field, *self._empty(x, x.shape[0]))
        assert gates.gates is not None
        first = 0
        for h in steps.hs:
            sums, products = gates.gates, gates.products
            if len(steps.hs) > 1:
                sums = sums.narrow(0, first, h.shape[0])
                products = None if products is None else products.narrow(0, first, h.shape[0])
            self._add_recurrent(sums, products, h)
            first += h.shape[0]
        for k, (first, rows, batch) in enumerate(layout.stretches):
            _core.gated_recall(
                self._shape(rows, batch),
                _row(gates.gates, first),
                _row(gates.products, first),
                _address(field) if k == 0 else _row(gates.fields, first - layout.stretches[k - 1].batch),
                _row(gates.fields, first),
                stream,
            )
        return gates

    def _add_recurrent(self, sums: Tensor, products: Tensor | None, h: Tensor) -> None:
        if products is None:
            self._products.add(sums, h, self._recurrent)
            return
        both, last = self._apart
        self._products.add(sums.narrow(1, 0, 2 * self.hidden), h, both)
        self._products.biased(self._bias, h, last, out=products)

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
        """All steps, from what inputs and biases add, which become the gates where it is recorded. `before`: the address of h before
        them, `outputs`: of where theirs go. Returns what is float32 of the carry after."""
        assert sums is not None
        after, row = None, self.hidden * self._size
        if field is not None:
            # Samples that have ended keep theirs.
            after = torch.empty_like(field) if layout.earlier is None else field.clone()
        for k, (first, rows, batch) in enumerate(layout.stretches):
            if k > 0:
                before = outputs + (first - layout.stretches[k - 1].batch) * row
            _core.gated_forward(
                self._shape(rows, batch),
                self._w_hh.data_ptr(),
                _address(self._bias),
                _row(sums, first),
                before,
                _address(field if layout.earlier is None else after),
                outputs + first * row,
                _address(after),
                0 if recorded is None else _row(recorded.fields, first),
                0 if recorded is None else _row(recorded.products, first),
                recorded is not None,
                stream,
            )
        return after

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
        """As `reverse`."""
        gates, field, fields, products = recorded
        of_h, row = of_carry[0].data_ptr(), self.hidden * self._size
        of_field = _address(of_carry[1]) if self.mode == "LSTM" else 0
        of_sums = x.new_empty(layout.rows, self._w_hh.shape[0])
        # A gate is read before its gradient is written.
        of_inputs = gates if self.mode == "GRU" and gates is not None else of_sums
        for k in reversed(range(len(layout.stretches))):
            first, rows, batch = layout.stretches[k]
            earlier = first - layout.stretches[k - 1].batch  # with k > 0, the first row of the time step before
            _core.gated_backward(
                self._shape(rows, batch),
                self._w_hh.data_ptr(),
                _row(gates, first),
                _row(fields, first),
                _row(products, first),
                steps.outputs + first * row,
                steps.before if k == 0 else steps.outputs + earlier * row,
                _address(field) if k == 0 else _row(fields, earlier),
                of_outputs + first * row if of_outputs != 0 else 0,
                of_h,
                of_field,
                _row(of_sums, first),
                _row(of_inputs, first),
                of_h,
                of_field,
                stream,
            )
        if of_x is not None:
            self._products.fill(of_x, of_inputs, self._w_ih)
        self._add_up(totals, x, steps.hs, of_sums, of_inputs, ones)

    def _add_up(
        self, totals: Totals, x: Tensor, hs: list[Tensor], of_sums: Tensor, of_inputs: Tensor, ones: Tensor | None
    ) -> None:
        w_ih, w_hh, b_ih, b_hh = totals
        columns, add = of_sums.t(), self._products.add_up
        if w_ih is not None:
            add(w_ih, columns if of_inputs is of_sums else of_inputs.t(), x)
        if w_hh is not None:
            first = 0
            for h in hs:
                add(w_hh, columns if len(hs) == 1 else columns.narrow(1, first, h.shape[0]), h)
                first += h.shape[0]
        # Sums over rows as products: torch.sum would take twice the memory of the gates for itself.
        for total, of_total in ((b_hh, of_sums), (None if b_ih is b_hh else b_ih, of_inputs)):
            if total is not None:
                assert ones is not None
                self._products.add_rows(total, ones, of_total)

    def of_carry(self, gradients: Leaves) -> Leaves:
        """As the carry is."""
        return gradients if self.mode == "GRU" else [gradients[0].to(self._dtype), *gradients[1:]]

    def totals(self, wanted: list[bool]) -> Totals:
        """Where gradients of the weights are added up. Where both biases have the same they are one."""
        weights = [self._w_ih, self._w_hh, *self._biases]
        found: Totals = [
            torch.zeros(
                weight.shape if weight.dim() == 2 else (1, *weight.shape), dtype=torch.float32, device=weight.device
            )
            if yes
            else None
            for weight, yes in zip(weights, wanted)
        ]
        found += [None] * (4 - len(found))
        if self.mode != "GRU" and found[2] is not None and found[3] is not None:
            found[2] = found[3]
        return found

    def gradients(self, totals: Totals) -> list[Tensor | None]:
        """Of the weights, in their dtype. Nothing else must use the totals."""
        if totals[2] is not None and totals[2] is totals[3]:
            totals[3] = totals[2].clone()
        found: list[Tensor | None] = []
        for k in range(2 + len(self._biases)):
            total, totals[k] = totals[k], None
            if total is not None:
                total = (total if k < 2 else total.squeeze_(0)).to(self._dtype)
            found.append(total)
        return found

    def _empty(self, x: Tensor, rows: int) -> tuple[Tensor | None, Tensor | None]:
        """Where fields and products go."""
        lstm, gru = self.mode == "LSTM", self.mode == "GRU"
        fields = torch.empty(rows, self.hidden, dtype=torch.float32, device=x.device) if lstm else None
        return fields, x.new_empty(rows, self.hidden) if gru else None

    def recorded_bytes(self, rows: int) -> tuple[int, int]:
        """Of what `record` keeps of that many rows beside inputs, and of the gradients of their sums."""
        sums = rows * self._w_hh.shape[0] * self._size
        beside = {"LSTM": 4, "GRU": self._size}.get(self.mode, 0)
        return sums + rows * self.hidden * (self._size + beside), sums

    def shape_of_leaf(self, leaf: int, batch: int) -> tuple[int, ...]:
        """Of the carry."""
        return batch, self.hidden

    def field_of(self, carry: Leaves) -> Tensor | None:
        """What is float32 of it."""
        return carry[-1] if self.mode in ("LSTM", "GRU") else None

    def _parts(self, hs: Tensor, layout: Layout) -> tuple[Tensor, Tensor]:
        """Of h before the first time step and all outputs in one piece."""
        batch = layout.stretches[0].batch
        if self.backwards:
            return hs.narrow(0, layout.rows, batch), hs.narrow(0, 0, layout.rows)
        return hs.narrow(0, 0, batch), hs.narrow(0, batch, layout.rows)

    def _after(self, field: Tensor | None, outputs: Tensor, layout: Layout, before: Tensor) -> Leaves:
        """`before`: h as it was."""
        if self.mode == "GRU":
            return [field]
        if layout.earlier is None:
            batch = layout.stretches[0].batch
            last = 0 if self.backwards else layout.rows - batch
            h = outputs.narrow(0, last, batch).clone()  # the outputs are the caller's, or are gone soon
        else:
            h = before.clone()
            for first, rows, batch in layout.stretches:
                h.narrow(0, 0, batch).copy_(outputs.narrow(0, first + rows - batch, batch))
        return [h] if field is None else [h, field]

    @functools.cached_property
    def _apart(self) -> tuple[Tensor, ...]:
        """The recurrent weights of a GRU, whose last product stands apart."""
        return self._recurrent.split([2 * self.hidden, self.hidden], 1)

    @functools.cached_property
    def _both(self) -> Tensor | None:
        """Biases, as far as they can be added beforehand."""
        if not self._biases:
            return None
        b_ih, b_hh = self._biases
        if self.mode != "GRU":
            return b_ih + b_hh
        found = b_ih.clone()  # its last third stands apart
        found[: 2 * self.hidden] += b_hh[: 2 * self.hidden]
        return found

    def _shape(self, rows: int, batch: int) -> Any:
        found = self._shapes.get((rows, batch))
        if found is None:
            found = _core.GatedShape(self.mode, self._number, rows // batch, batch, self.hidden, self.backwards)
            self._shapes[rows, batch] = found
        return found


def _address(tensor: Tensor | None) -> int:
    return 0 if tensor is None else tensor.data_ptr()


def _row(tensor: Tensor | None, row: int) -> int:
    """Its address."""
    if tensor is None:
        return 0
    return tensor.data_ptr() + (row * tensor.stride(0) * tensor.element_size() if row > 0 else 0)

# SPDX-License-Identifier: Apache-2.0
"""One recurrent layer over a chunk of time steps by the library's own kernels, forward and back, without autograd.

Inputs and outputs are rows: a time step after the other, in each its samples. A carry is h, and c of an LSTM, [B,H] each; what an
LSTM calls c and a GRU h is float32. Nothing here waits for the GPU."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any, NamedTuple

import torch
from torch import Tensor

from ebb import _core
from ebb._tensor.trees import addresses

Leaves = list[Any]
Totals = list[Tensor | None]  # sums of gradients in float32, of w_ih, w_hh, b_ih and b_hh; None: not wanted

DTYPES = {torch.bfloat16: "bfloat16", torch.float16: "float16", torch.float32: "float32"}
_AT_ONCE = 16  # bytes that kernels read, at addresses that are multiples of it


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
    """`weights`: w_ih, w_hh and, if there are any, b_ih and b_hh. `backwards`: time runs from the last step to the first."""

    def __init__(self, mode: str, weights: list[Tensor], backwards: bool):
        self.mode, self.backwards = mode, backwards
        self._w_ih, w_hh, *self._biases = [weight.detach() for weight in weights]
        self._given, self._w_hh = w_hh, w_hh.contiguous()
        if self._w_hh.data_ptr() % _AT_ONCE != 0:
            self._w_hh = self._w_hh.clone()
        self.hidden = w_hh.shape[1]
        self._columns, self._recurrent = self._w_ih.t(), self._w_hh.t()
        self._dtype, self._size = w_hh.dtype, w_hh.element_size()
        self._bias = self._biases[1][2 * self.hidden :].contiguous() if mode == "GRU" and self._biases else None
        self._shapes: dict[tuple[int, int], Any] = {}

    @property
    def own(self) -> list[Tensor]:
        """What it holds beside the weights."""
        kept = [self._both, self._w_hh, self._bias]
        theirs = addresses([self._w_ih, self._given, *self._biases])
        return [t for t in kept if t is not None and not addresses([t]) & theirs]

    def advance(self, x: Tensor, carry: Leaves, outputs: Tensor, stream: int) -> Leaves:
        """Fills the outputs. Returns the carry after."""
        h = self.aligned(carry[0])
        field = self.run(self.sums(x), h.shape[0], h.data_ptr(), self.field_of(carry), outputs.data_ptr(), stream)
        return self._after(field, outputs, h.shape[0])

    def record(self, x: Tensor, carry: Leaves, stream: int) -> tuple[Leaves, Tensor, Taped]:
        """The carry after, the outputs, which are a part of the tape, and the tape."""
        rows, batch = x.shape[0], carry[0].shape[0]
        hs = x.new_empty(rows + batch, self.hidden)
        hs.narrow(0, rows if self.backwards else 0, batch).copy_(carry[0])
        gates = Gates(self.sums(x), self.field_of(carry), *self._empty(x, rows))
        steps = self._steps(hs, rows, batch)
        field = self.run(gates.gates, batch, steps.before, gates.field, steps.outputs, stream, gates)
        outputs = hs.narrow(0, 0 if self.backwards else batch, rows)
        return self._after(field, outputs, batch), outputs, Taped(x, hs, gates)

    def reverse(
        self,
        tape: Taped,
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
        steps = self._steps(tape.hs, tape.x.shape[0], of_carry[0].shape[0])
        self.pull_back(tape.x, tape.gates, steps, of_outputs, of_carry, totals, of_x, ones, stream)

    def aligned(self, h: Tensor) -> Tensor:
        """As the kernels read it."""
        h = h.to(self._dtype)
        return h if h.data_ptr() % _AT_ONCE == 0 else h.clone()

    def sums(self, x: Tensor) -> Tensor:
        """What inputs and biases add."""
        both = self._both
        return torch.mm(x, self._columns) if both is None else torch.addmm(both, x, self._columns)

    def recall(self, x: Tensor, field: Tensor | None, hs: list[Tensor], batch: int, stream: int) -> Gates:
        """What `record` would have kept, to within rounding, by the h before each row. Nothing runs step by step."""
        if self.mode.startswith("RNN"):
            return Gates(None, None)  # outputs are all that its derivative needs
        gates = Gates(self.sums(x), field, *self._empty(x, x.shape[0]))
        assert gates.gates is not None
        first = 0
        for h in hs:
            sums, products = gates.gates, gates.products
            if len(hs) > 1:
                sums = sums.narrow(0, first, h.shape[0])
                products = None if products is None else products.narrow(0, first, h.shape[0])
            self._add_recurrent(sums, products, h)
            first += h.shape[0]
        shape = self._shape(x.shape[0], batch)
        _core.gated_recall(
            shape, gates.gates.data_ptr(), _address(gates.products), _address(field), _address(gates.fields), stream
        )
        return gates

    def _add_recurrent(self, sums: Tensor, products: Tensor | None, h: Tensor) -> None:
        if products is None:
            sums.addmm_(h, self._recurrent)
            return
        both, last = self._apart
        sums.narrow(1, 0, 2 * self.hidden).addmm_(h, both)
        if self._bias is None:
            torch.mm(h, last, out=products)
        else:
            torch.addmm(self._bias, h, last, out=products)

    def run(
        self,
        sums: Tensor | None,
        batch: int,
        before: int,
        field: Tensor | None,
        outputs: int,
        stream: int,
        recorded: Gates | None = None,
    ) -> Tensor | None:
        """All steps, from what inputs and biases add, which become the gates where it is recorded. `before`: the address of h before
        them, `outputs`: of where theirs go. Returns what is float32 of the carry after."""
        assert sums is not None
        after = None if field is None else torch.empty_like(field)
        _core.gated_forward(
            self._shape(sums.shape[0], batch),
            self._w_hh.data_ptr(),
            _address(self._bias),
            sums.data_ptr(),
            before,
            _address(field),
            outputs,
            _address(after),
            0 if recorded is None else _address(recorded.fields),
            0 if recorded is None else _address(recorded.products),
            recorded is not None,
            stream,
        )
        return after

    def pull_back(
        self,
        x: Tensor,
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
        rows, of_h = x.shape[0], of_carry[0].data_ptr()
        of_field = _address(of_carry[1]) if self.mode == "LSTM" else 0
        of_sums = x.new_empty(rows, self._w_hh.shape[0])
        # A gate is read before its gradient is written.
        of_inputs = gates if self.mode == "GRU" and gates is not None else of_sums
        _core.gated_backward(
            self._shape(rows, of_carry[0].shape[0]),
            self._w_hh.data_ptr(),
            _address(gates),
            _address(fields),
            _address(products),
            steps.outputs,
            steps.before,
            _address(field),
            of_outputs,
            of_h,
            of_field,
            of_sums.data_ptr(),
            of_inputs.data_ptr(),
            of_h,
            of_field,
            stream,
        )
        if of_x is not None:
            torch.mm(of_inputs, self._w_ih, out=of_x)
        self._add_up(totals, x, steps.hs, of_sums, of_inputs, ones)

    def _add_up(
        self, totals: Totals, x: Tensor, hs: list[Tensor], of_sums: Tensor, of_inputs: Tensor, ones: Tensor | None
    ) -> None:
        w_ih, w_hh, b_ih, b_hh = totals
        add = adding(self._dtype, x.device)
        columns = of_sums.t()
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
                add(total, ones, of_total)

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
        """Of what `record` keeps of so many rows beside inputs, and of the gradients of their sums."""
        sums = rows * self._w_hh.shape[0] * self._size
        beside = {"LSTM": 4, "GRU": self._size}.get(self.mode, 0)
        return sums + rows * self.hidden * (self._size + beside), sums

    def field_of(self, carry: Leaves) -> Tensor | None:
        """What is float32 of it."""
        return carry[-1] if self.mode in ("LSTM", "GRU") else None

    def _steps(self, hs: Tensor, rows: int, batch: int) -> Steps:
        """Of h before the first time step and all outputs in one piece."""
        start, row = hs.data_ptr(), self.hidden * self._size
        if self.backwards:
            return Steps(start, start + rows * row, [hs.narrow(0, batch, rows)])
        return Steps(start + batch * row, start, [hs.narrow(0, 0, rows)])

    def _after(self, field: Tensor | None, outputs: Tensor, batch: int) -> Leaves:
        if self.mode == "GRU":
            return [field]
        last = 0 if self.backwards else outputs.shape[0] - batch
        h = outputs.narrow(0, last, batch).clone()  # the outputs are the caller's, or are gone soon
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
            found = _core.GatedShape(self.mode, DTYPES[self._dtype], rows // batch, batch, self.hidden, self.backwards)
            self._shapes[rows, batch] = found
        return found


def _address(tensor: Tensor | None) -> int:
    return 0 if tensor is None else tensor.data_ptr()


Adds = Callable[[Tensor, Tensor, Tensor], object]


@functools.cache
def adding(dtype: torch.dtype, device: torch.device) -> Adds:
    """The best way to add the product of two matrices of the dtype to a sum in float32."""
    if dtype == torch.float32:
        return _add_alike
    small, total = torch.zeros(16, 16, dtype=dtype, device=device), torch.zeros(16, 16, device=device)
    for way in (_add_at_once, _add_wide):
        try:
            way(total, small, small)
        except (RuntimeError, TypeError) as error:  # before PyTorch 2.8, or no GPU
            if isinstance(error, torch.cuda.OutOfMemoryError) or "CUDA error" in str(error):
                raise  # which says nothing about the way
            continue
        return way
    return _add_narrow


def _add_alike(total: Tensor, a: Tensor, b: Tensor) -> object:
    return total.addmm_(a, b)


def _add_at_once(total: Tensor, a: Tensor, b: Tensor) -> object:
    return torch.addmm(total, a, b, out_dtype=torch.float32, out=total)


def _add_wide(total: Tensor, a: Tensor, b: Tensor) -> object:
    return total.add_(torch.mm(a, b, out_dtype=torch.float32))


def _add_narrow(total: Tensor, a: Tensor, b: Tensor) -> object:
    return total.add_(a @ b)

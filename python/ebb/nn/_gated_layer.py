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


class Taped(NamedTuple):
    """What the derivative of a chunk needs."""

    x: Tensor
    gates: Tensor
    hs: Tensor  # h before the first time step beside the outputs: all that products are made with is then one piece
    field: Tensor | None  # what is float32 of the carry before
    fields: Tensor | None
    products: Tensor | None


class GatedLayer:
    """`weights`: w_ih, w_hh and, if there are any, b_ih and b_hh. `backwards`: time runs from the last step to the first."""

    def __init__(self, mode: str, weights: list[Tensor], backwards: bool):
        self.mode, self.backwards = mode, backwards
        self._w_ih, w_hh, *self._biases = [weight.detach() for weight in weights]
        self._given, self._w_hh = w_hh, w_hh.contiguous()
        if self._w_hh.data_ptr() % _AT_ONCE != 0:
            self._w_hh = self._w_hh.clone()
        self.hidden = w_hh.shape[1]
        self._columns = self._w_ih.t()
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
        h = carry[0].to(self._dtype)
        if h.data_ptr() % _AT_ONCE != 0:
            h = h.clone()
        _, field = self._forward(x, carry, h.data_ptr(), outputs.data_ptr(), None, None, False, stream)
        return self._after(field, outputs, h.shape[0])

    def record(self, x: Tensor, carry: Leaves, stream: int) -> tuple[Leaves, Tensor, Taped]:
        """The carry after, the outputs, which are a part of the tape, and the tape."""
        rows, batch, hidden = x.shape[0], carry[0].shape[0], self.hidden
        hs = x.new_empty(rows + batch, hidden)
        first, second = (0, rows) if self.backwards else (batch, 0)
        hs.narrow(0, second, batch).copy_(carry[0])
        lstm, gru = self.mode == "LSTM", self.mode == "GRU"
        fields = x.new_empty(rows, hidden, dtype=torch.float32) if lstm else None
        products = x.new_empty(rows, hidden) if gru else None
        row, start = hidden * self._size, hs.data_ptr()
        gates, field = self._forward(
            x, carry, start + second * row, start + first * row, fields, products, True, stream
        )
        outputs = hs.narrow(0, first, rows)
        tape = Taped(x, gates, hs, carry[-1] if lstm or gru else None, fields, products)
        return self._after(field, outputs, batch), outputs, tape

    def reverse(
        self,
        tape: Taped,
        of_outputs: Tensor | None,
        of_carry: Leaves,
        totals: Totals,
        of_x: Tensor | None,
        ones: Tensor | None,
        stream: int,
    ) -> Leaves:
        """The gradients of the carry before, from those of the carry after and of the outputs. Uses up the tape, fills of_x where it
        is there, and adds to the totals. `ones`: [1,n], one for each row or more, where there are totals of biases."""
        x, gates, hs, field, fields, products = tape
        lstm, batch = self.mode == "LSTM", of_carry[0].shape[0]
        of_after = of_carry[0].float()
        of_field = of_carry[1] if lstm else None
        of_before = torch.empty_like(of_after)
        of_field_before = torch.empty_like(of_after) if lstm else None
        of_sums = torch.empty_like(gates)
        of_inputs = gates if self.mode == "GRU" else of_sums  # a gate is read before its gradient is written
        rows, row, start = x.shape[0], self.hidden * self._size, hs.data_ptr()
        first, second = (0, rows) if self.backwards else (batch, 0)
        _core.gated_backward(
            self._shape(rows, batch),
            weights=self._w_hh.data_ptr(),
            gates=gates.data_ptr(),
            fields=_address(fields),
            products=_address(products),
            outputs=start + first * row,
            before=start + second * row,
            field_before=_address(field),
            outputs_gradient=_address(of_outputs),
            after_gradient=of_after.data_ptr(),
            field_gradient=_address(of_field),
            sums_gradient=of_sums.data_ptr(),
            inputs_gradient=of_inputs.data_ptr(),
            before_gradient=of_before.data_ptr(),
            field_before_gradient=_address(of_field_before),
            stream=stream,
        )
        if of_x is not None:
            torch.mm(of_inputs, self._w_ih, out=of_x)
        w_ih, w_hh, b_ih, b_hh = totals
        add = adding(self._dtype, x.device)
        if w_ih is not None:
            add(w_ih, of_inputs.t(), x)
        if w_hh is not None:
            add(w_hh, of_sums.t(), hs.narrow(0, batch if self.backwards else 0, rows))
        # Sums over rows as products: torch.sum would take twice the memory of the gates for itself.
        for total, of_total in ((b_hh, of_sums), (None if b_ih is b_hh else b_ih, of_inputs)):
            if total is not None:
                assert ones is not None
                add(total.view(1, -1), ones.narrow(1, 0, rows), of_total)
        if of_field_before is not None:
            return [of_before.to(self._dtype), of_field_before]
        return [of_before if self.mode == "GRU" else of_before.to(self._dtype)]

    def totals(self, wanted: list[bool]) -> Totals:
        """Where gradients of the weights are added up. Where both biases have the same they are one."""
        weights = [self._w_ih, self._w_hh, *self._biases]
        found: Totals = [
            torch.zeros_like(weight, dtype=torch.float32) if yes else None for weight, yes in zip(weights, wanted)
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
            found.append(None if total is None else total.to(self._dtype))
        return found

    def _forward(
        self,
        x: Tensor,
        carry: Leaves,
        before: int,
        outputs: int,
        fields: Tensor | None,
        products: Tensor | None,
        record: bool,
        stream: int,
    ) -> tuple[Tensor, Tensor | None]:
        """What inputs and biases add, or the gates where it is recorded, and what is float32 of the carry after."""
        both = self._both
        sums = x @ self._columns if both is None else torch.addmm(both, x, self._columns)
        field = carry[-1] if self.mode in ("LSTM", "GRU") else None
        after = None if field is None else torch.empty_like(field)
        _core.gated_forward(
            self._shape(x.shape[0], carry[0].shape[0]),
            weights=self._w_hh.data_ptr(),
            bias=_address(self._bias),
            sums=sums.data_ptr(),
            before=before,
            field_before=_address(field),
            outputs=outputs,
            field_after=_address(after),
            fields=_address(fields),
            products=_address(products),
            record=record,
            stream=stream,
        )
        return sums, after

    def _after(self, field: Tensor | None, outputs: Tensor, batch: int) -> Leaves:
        if self.mode == "GRU":
            return [field]
        last = 0 if self.backwards else outputs.shape[0] - batch
        h = outputs.narrow(0, last, batch).clone()  # the outputs are the caller's, or are gone soon
        return [h] if field is None else [h, field]

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

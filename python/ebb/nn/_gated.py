# SPDX-License-Identifier: Apache-2.0
"""Recurrent layers on a GPU by the library's own kernels: a chunk of time steps of a layer is one of them and a few large products."""

from __future__ import annotations

import inspect
from functools import cached_property
from typing import Any

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable

from ebb import _core

Leaves = list[Tensor]

_DTYPES = {torch.bfloat16: "bfloat16", torch.float16: "float16", torch.float32: "float32"}
_GATES = {"LSTM": 4, "GRU": 3, "RNN_TANH": 1, "RNN_RELU": 1}
# Since PyTorch 2.8 products of 16-bit numbers can be had as they are summed up.
_WIDE = "out_dtype" in (inspect.getdoc(torch.mm) or "")


def why_not(layer: Any, x: Tensor, others: list[Tensor], sizes: Tensor | None) -> str | None:
    """What keeps the kernels from running this layer; None: nothing does. `others`: its states and parameters."""
    if x.device.type != "cuda":
        return f"a tensor is on {x.device}"
    if x.dtype not in _DTYPES:
        return f"a tensor has dtype {x.dtype}"
    if any(other.dtype != x.dtype or other.device != x.device for other in others):
        return "inputs, states and parameters differ in dtype or device"
    if x.dtype == torch.float32 and not _tf32():
        return "products in float32 are asked for"
    if torch.is_autocast_enabled("cuda"):
        return "autocast is on"
    if sizes is not None:
        return "sequences are packed"
    with torch.cuda.device(x.device):
        shape = _core.GatedShape(layer.mode, _DTYPES[x.dtype], 1, x.shape[1], layer.hidden_size, False)
        return _core.gated_unfit(shape) or None


def _tf32() -> bool:
    """Whether recurrent layers may multiply so. Where precisions differ between operations, the old name of the setting is an error."""
    rnn = getattr(torch.backends.cudnn, "rnn", None)
    if rnn is None:
        return bool(torch.backends.cudnn.allow_tf32)
    return bool(rnn.fp32_precision == "tf32")


class _Shadow(torch.autograd.Function):
    """Stands for a parameter where its gradient is added up: it has its shape, no memory, and float32."""

    @staticmethod
    def forward(ctx: Any, parameter: Tensor) -> Tensor:
        ctx.dtype = parameter.dtype
        return parameter.new_zeros((), dtype=torch.float32).expand(parameter.shape)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, *gradients: Any) -> Any:
        return gradients[0].to(ctx.dtype)


class GatedKernel:
    """A stack of layers in one direction over a chunk of time steps. Carries are h, and c of an LSTM, in the form of `start`."""

    alike = False
    dtypes: list[torch.dtype] = []

    def __init__(self, layer: Any, weights: list[Tensor], layers: int, backwards: bool):
        self._mode = layer.mode
        each = len(weights) // layers
        self._calls = [_Call(layer.mode, weights[k * each : (k + 1) * each], backwards) for k in range(layers)]
        self.weights = [_Shadow.apply(weight) for weight in weights]
        self._shadows = [self.weights[k * each : (k + 1) * each] for k in range(layers)]
        self._dtype, self.layers = weights[0].dtype, layers

    def start(self, states: list[Tensor]) -> list[Tensor]:
        """What an LSTM calls c and a GRU h goes on in float32."""
        if self._mode == "LSTM":
            return [states[0], states[1].float()]
        return [states[0].float()] if self._mode == "GRU" else states

    def end(self, states: list[Tensor]) -> list[Tensor]:
        return [state.to(self._dtype) for state in states]

    def __call__(self, x: Tensor, carry: Leaves, batch_sizes: Tensor | None) -> tuple[Leaves, Tensor]:
        after: list[list[Tensor]] = [[] for _ in carry]
        for k, (call, shadows) in enumerate(zip(self._calls, self._shadows)):
            given = [x, *[state[k] for state in carry], *shadows]
            records = torch.is_grad_enabled() and any(tensor.requires_grad for tensor in given)
            x, *states = _Segment.apply(call, records, *given)
            for column, state in zip(after, states):
                column.append(state)
        return [column[0][None] if self.layers == 1 else torch.stack(column) for column in after], x


class _Call:
    """What a segment is run with beside the tensors that have gradients."""

    def __init__(self, mode: str, weights: list[Tensor], backwards: bool):
        self.mode, self.backwards = mode, backwards
        self.w_ih, self.w_hh, *self.biases = [weight.detach() for weight in weights]
        self.hidden = self.w_hh.shape[1]
        self.w_hh = self.w_hh.contiguous()
        if self.w_hh.data_ptr() % 16 != 0:  # which kernels read at once
            self.w_hh = self.w_hh.clone()

    @cached_property
    def _both(self) -> Tensor | None:
        """Biases, as far as they can be added beforehand."""
        if not self.biases:
            return None
        b_ih, b_hh = self.biases
        if self.mode != "GRU":
            return b_ih + b_hh
        found = b_ih.clone()  # its last third stands apart
        found[: 2 * self.hidden] += b_hh[: 2 * self.hidden]
        return found

    def sums(self, x: Tensor) -> Tensor:
        """What inputs and biases add."""
        rows, weights = x.reshape(-1, x.shape[-1]), self.w_ih.t()
        found = rows @ weights if self._both is None else torch.addmm(self._both, rows, weights)
        return found.view(*x.shape[:-1], -1)

    def bias(self) -> Tensor | None:
        """Of what a GRU's r multiplies."""
        return self.biases[1][2 * self.hidden :] if self.mode == "GRU" and self.biases else None

    def shape(self, x: Tensor) -> Any:
        return _core.GatedShape(self.mode, _DTYPES[x.dtype], x.shape[0], x.shape[1], self.hidden, self.backwards)


class _Segment(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, call: _Call, records: bool, x: Tensor, *rest: Tensor) -> Any:
        mode, (steps, batch) = call.mode, x.shape[:2]
        states = rest[: 2 if mode == "LSTM" else 1]
        sums = call.sums(x)
        # h before the first time step lies beside the outputs: all that products are made with are then one piece.
        hs = x.new_empty(steps + 1, batch, call.hidden)
        outputs, before = (hs[:-1], hs[-1]) if call.backwards else (hs[1:], hs[0])
        before.copy_(states[0])
        field = states[-1].contiguous() if mode in ("LSTM", "GRU") else None
        after = torch.empty_like(field) if field is not None else None
        fields = _recorded(records and mode == "LSTM", outputs, torch.float32)
        products = _recorded(records and mode == "GRU", outputs, x.dtype)
        with torch.cuda.device(x.device):
            _core.gated_forward(
                call.shape(x),
                weights=_address(call.w_hh),
                bias=_address(call.bias()),
                sums=_address(sums),
                before=_address(before),
                field_before=_address(field),
                outputs=_address(outputs),
                field_after=_address(after),
                fields=_address(fields),
                products=_address(products),
                record=records,
                stream=_stream(x),
            )
        if records:
            ctx.call = call
            ctx.save_for_backward(x, sums, hs, field, fields, products)
        last = outputs[0] if call.backwards else outputs[-1]
        if mode == "LSTM":
            return outputs, last.clone(), after
        return outputs, after if mode == "GRU" else last.clone()

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, of_outputs: Any, *of_states: Any) -> Any:
        call: _Call = ctx.call
        x, gates, hs, field, fields, products = ctx.saved_tensors
        outputs, before = (hs[:-1], hs[-1]) if call.backwards else (hs[1:], hs[0])
        lstm = call.mode == "LSTM"
        of_after = of_states[0].float().contiguous()
        of_field = of_states[1].contiguous() if lstm else None
        of_before = torch.empty_like(of_after)
        of_field_before = torch.empty_like(of_after) if lstm else None
        of_sums = torch.empty_like(gates)
        of_inputs = torch.empty_like(gates) if call.mode == "GRU" else of_sums
        given = of_outputs.contiguous()
        with torch.cuda.device(x.device):
            _core.gated_backward(
                call.shape(x),
                weights=_address(call.w_hh),
                gates=_address(gates),
                fields=_address(fields),
                products=_address(products),
                outputs=_address(outputs),
                before=_address(before),
                field_before=_address(field),
                outputs_gradient=_address(given),
                after_gradient=_address(of_after),
                field_gradient=_address(of_field),
                sums_gradient=_address(of_sums),
                inputs_gradient=_address(of_inputs),
                before_gradient=_address(of_before),
                field_before_gradient=_address(of_field_before),
                stream=_stream(x),
            )
        rows, own = of_inputs.flatten(0, 1), of_sums.flatten(0, 1)
        needs = ctx.needs_input_grad
        of_x = (rows @ call.w_ih).view(x.shape) if needs[2] else None
        earlier = hs[1:] if call.backwards else hs[:-1]
        found: list[Tensor | None] = [
            _product(rows, x.flatten(0, 1)) if needs[-len(call.biases) - 2] else None,
            _product(own, earlier.flatten(0, 1)) if needs[-len(call.biases) - 1] else None,
        ]
        if call.biases:
            of_bias = own.sum(0, dtype=torch.float32)
            found += [of_bias.clone() if of_inputs is of_sums else rows.sum(0, dtype=torch.float32), of_bias]
        if lstm:
            return None, None, of_x, of_before.to(x.dtype), of_field_before, *found
        return None, None, of_x, of_before.to(x.dtype) if field is None else of_before, *found


def _recorded(yes: bool, like: Tensor, dtype: torch.dtype) -> Tensor | None:
    return torch.empty_like(like, dtype=dtype, memory_format=torch.contiguous_format) if yes else None


def _product(rows: Tensor, columns: Tensor) -> Tensor:
    """A gradient of weights in float32."""
    if rows.dtype == torch.float32:
        return rows.t() @ columns
    if _WIDE:
        return torch.mm(rows.t(), columns, out_dtype=torch.float32)
    return (rows.t() @ columns).float()


def _address(tensor: Tensor | None) -> int:
    return 0 if tensor is None else tensor.data_ptr()


def _stream(x: Tensor) -> int:
    return torch.cuda.current_stream(x.device).cuda_stream

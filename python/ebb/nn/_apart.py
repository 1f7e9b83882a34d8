# SPDX-License-Identifier: Apache-2.0
"""Spiking neurons without weights on a GPU, whose inputs are their currents: one kernel over all time steps, and one back. It keeps
nothing but its inputs and outputs, which are the caller's, so that there is nothing to plan."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from ebb import _core
from ebb._base.errors import Error
from ebb.nn import _gated


def run(shape: Any, x: Tensor, numbers: Tensor, spikes: Tensor, fields: Tensor) -> tuple[Tensor, Tensor]:
    """Spikes [T,B,H], and the fields after, [F,B,H]. `numbers`: of each unit in float32, [P,H]; `spikes`: those before, [B,H]."""
    return _Apart.apply(shape, x.contiguous(), numbers, spikes.contiguous(), fields.contiguous())


class _Apart(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any, shape: Any, x: Tensor, numbers: Tensor, spikes: Tensor, fields: Tensor
    ) -> tuple[Tensor, Tensor]:
        outputs, after = torch.empty_like(x), torch.empty_like(fields)
        with torch.cuda.device(x.device):
            _core.spiking_forward(
                shape,
                0,
                numbers.data_ptr(),
                x.data_ptr(),
                spikes.data_ptr(),
                fields.data_ptr(),
                outputs.data_ptr(),
                after.data_ptr(),
                _gated.stream_of(x),
            )
        ctx.shape = shape
        ctx.save_for_backward(x, numbers, spikes, fields, outputs)
        ctx.set_materialize_grads(False)
        return outputs, after

    @staticmethod
    def backward(ctx: Any, of_outputs: Tensor | None, of_after: Tensor | None) -> tuple[Tensor | None, ...]:
        if torch.is_grad_enabled():
            raise Error(
                "gradients of gradients (create_graph=True) do not go through kernels; pass native=False", "unavailable"
            )
        # Hooks of others may have packed them and return them in any order.
        x, numbers, spikes, fields, outputs = (tensor.contiguous() for tensor in ctx.saved_tensors)
        of_x = torch.empty_like(x)
        of_spikes = torch.zeros(spikes.shape, dtype=torch.float32, device=x.device)
        of_fields = (
            torch.zeros_like(fields) if of_after is None else of_after.clone(memory_format=torch.contiguous_format)
        )
        of_numbers = fields.new_empty(len(numbers), *spikes.shape) if ctx.needs_input_grad[2] else None
        kept = fields.new_empty(_core.spiking_kept(ctx.shape))
        if of_outputs is not None:
            of_outputs = of_outputs.contiguous()
        with torch.cuda.device(x.device):
            _core.spiking_backward(
                ctx.shape,
                0,
                numbers.data_ptr(),
                x.data_ptr(),
                kept.data_ptr(),
                outputs.data_ptr(),
                spikes.data_ptr(),
                fields.data_ptr(),
                0 if of_outputs is None else of_outputs.data_ptr(),
                of_spikes.data_ptr(),
                of_fields.data_ptr(),
                of_x.data_ptr(),
                of_spikes.data_ptr(),
                of_fields.data_ptr(),
                0 if of_numbers is None else of_numbers.data_ptr(),
                _gated.stream_of(x),
            )
        return None, of_x, None if of_numbers is None else of_numbers.sum(1), of_spikes.to(spikes.dtype), of_fields

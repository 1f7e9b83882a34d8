# SPDX-License-Identifier: Apache-2.0
"""Torch's own recurrent kernels in a budget, where the native cells do not apply: a chunk of time steps is one call of them."""

from __future__ import annotations

import contextlib
import copy
import warnings
from collections.abc import Callable
from typing import Any

import torch
from torch import _VF, Tensor

from ebb._base.budget import Allowance, allowance_of
from ebb._base.errors import Error
from ebb._loop.arguments import Options, refuse_transforms, surroundings_key
from ebb._loop.blocks import Leaves
from ebb._loop.chunking import Chunking, longest_of
from ebb._loop.engine import NOTHING, in_budget
from ebb._loop.fits import Fits
from ebb._loop.last_report import running_report, set_report
from ebb.nn import _gated
from ebb.nn._recalled import RecalledBlocks
from ebb.nn._report import LayerReport
from ebb.nn._segments import Kernel, Rows, Segments
from ebb.tiers import listed

# The longer chunk that is measured, in time steps, and the length at which half of a call's time is what every call takes. Bits depend
# on the chunk, so that it follows from bytes and these alone: no clock has a say, and all processes choose the same.
_CHUNK = {"cuda": (128, 20.0), "cpu": (32, 2.0)}
_GATED = (128, 16.0)
_LONGEST = 65_535  # time steps that cuDNN takes at once
_KERNELS: dict[str, Callable[..., Any]] = {
    "LSTM": _VF.lstm,
    "GRU": _VF.gru,
    "RNN_TANH": _VF.rnn_tanh,
    "RNN_RELU": _VF.rnn_relu,
}


class _Kernel:
    """A stack of layers in one direction over a chunk of time steps."""

    def __init__(self, layer: Any, weights: list[Tensor], layers: int, backwards: bool):
        self.weights = weights
        self.alike = False  # with and without gradients
        self.kin: tuple[Any, ...] = ()
        self.dtypes: list[torch.dtype] = []  # of the output and of the states; none: as they come
        self._mode, self._bias, self.layers, self._backwards = layer.mode, layer.bias, layers, backwards

    def start(self, states: list[Tensor]) -> list[Tensor]:
        return states

    def end(self, states: list[Tensor]) -> list[Tensor]:
        return states

    def __call__(self, x: Tensor, carry: Leaves, batch_sizes: Tensor | None) -> tuple[Leaves, Tensor]:
        after, y = self._run(x, carry, batch_sizes)
        if self.dtypes:
            y, *after = [tensor.to(dtype) for tensor, dtype in zip([y, *after], self.dtypes)]
        return after, y

    def _run(self, x: Tensor, carry: Leaves, batch_sizes: Tensor | None) -> tuple[Leaves, Tensor]:
        lstm = self._mode == "LSTM"
        if lstm and self.alike and not torch.is_grad_enabled():
            # oneDNN's LSTM rounds otherwise where nothing can be differentiated: a step that is only passed must end in the
            # state that it ends in when it is recorded.
            kernel = copy.copy(self)
            kernel.weights = [weight.detach() for weight in self.weights]
            with torch.enable_grad():
                return kernel._run(x, carry, batch_sizes)
        # cuDNN goes back only where it was told to train, and keeps more then; its results have the same bits.
        rest = (self.weights, self._bias, self.layers, 0.0, torch.is_grad_enabled(), False)
        with warnings.catch_warnings():
            # Weights of one direction are a part of the memory that torch has laid out for both.
            warnings.filterwarnings("ignore", message=".*single contiguous chunk.*")
            if batch_sizes is not None:
                running = int(batch_sizes[0])
                now = [state[:, :running].contiguous() for state in carry]
                try:
                    y, *after = _KERNELS[self._mode](x, batch_sizes, now if lstm else now[0], *rest)
                except RuntimeError as error:
                    if "primitive descriptor" not in str(error):
                        raise
                    # Torch hands sequences of one length to oneDNN, and those of a chunk may be of one where not all are.
                    raise Error(
                        "LSTM with a budget: packed sequences in float16 need a oneDNN that has float16 for this processor; "
                        "take bfloat16, or leave budget= out",
                        "unavailable",
                    ) from error
                # Who has ended keeps the last state.
                return [torch.cat([new, old[:, running:].to(new.dtype)], 1) for new, old in zip(after, carry)], y
            y, *after = _KERNELS[self._mode](
                x.flip(0) if self._backwards else x, carry if lstm else carry[0], *rest, False
            )
            return after, y.flip(0) if self._backwards else y


class ChunkReport:
    """What the chunked runs of a layer took, once their backwards have run."""

    def __init__(self, budget: int, kept: int, runs: list[Any]):
        self._budget, self._kept, self._runs = budget, kept, runs

    def report(self) -> LayerReport:
        peak = sum(run.predicted["peak"]["fast"] for run in self._runs)
        return LayerReport(self._budget, peak, self._kept, tuple(self._runs))


def run(call: Any) -> Any:
    """What the layer gives, in its budget. `call` is the layer's call in one form: x, states and sizes."""
    layer = call.layer
    states, x = call.states(), call.x.contiguous()
    tensors = [x, *states, *call.parameters()]
    refuse_transforms(type(layer).__name__, tensors)
    dropout = layer.dropout if layer.training and layer.num_layers > 1 else 0.0
    apart = layer.bidirectional or dropout > 0
    groups = layer.num_layers if apart else 1
    directions = 2 if layer.bidirectional else 1
    sizes = call.given.batch_sizes if call.packed else None
    share = groups * directions
    allowed = allowance_of(layer.budget)
    each = len(call.parameters()) // (groups * directions)
    output, finals, reports, kept, needed = x, [], [], 0, 0
    for group in range(groups):
        if group > 0:
            output = torch.nn.functional.dropout(output, dropout, training=True) if dropout > 0 else output
            kept += output.numel() * output.element_size()
        parts = []
        for direction in range(directions):
            index = group * directions + direction
            weights = call.parameters()[index * each : (index + 1) * each]
            own = states if not apart else [state[index : index + 1] for state in states]
            ours = layer.native and _gated.why_not(layer, output, [*own, *weights], sizes) is None
            kind: type[_gated.GatedKernel] | type[_Kernel] = _gated.GatedKernel if ours else _Kernel
            given = output
            with contextlib.ExitStack() as around:
                if ours and (dtype := _gated.cast_to(output)) is not None:
                    given, *rest = [tensor.to(dtype) for tensor in (output, *own, *weights)]
                    own, weights = rest[: len(own)], rest[len(own) :]
                    del rest
                    around.enter_context(torch.autocast(output.device.type, enabled=False))
                # It gets the rows of packed sequences in the order in which they run.
                layers = 1 if apart else layer.num_layers
                if ours:
                    weights = _gated.widened(layer.hidden_size, weights)
                kernel = kind(layer, weights, layers, direction == 1 and sizes is None)
                own = kernel.start(own)
                try:
                    handed_out = directions == 1 and group == groups - 1
                    final, y, report = in_chunks(
                        layer, kernel, given, sizes, own, allowed.part(share), direction == 1, handed_out
                    )
                except Error as error:
                    if share == 1 or error.least_budget is None or allowed.shared:
                        raise
                    needed = max(needed, error.least_budget)  # others may need more
                    final, y, report = *_output_alone(kernel, given, own, sizes, direction == 1), None
                finals.append(kernel.end(final))
            parts.append(y)
            reports.append(report)
        output = torch.cat(parts, -1) if directions == 2 else parts[0]
    if needed > 0:
        raise Error(
            f"{type(layer).__name__}: its {share} runs over the sequence share the budget of {layer.budget} equally, and "
            f"one needs at least {needed} bytes",
            "infeasible_budget",
            share * needed,
            f"allow {share * needed}",
        )
    own = [report for report in reports if report is not None]
    set_report(None)
    if own:
        total = allowed.total if allowed.wish is None else sum(report.budget for report in own)
        layer.chunk_report = ChunkReport(total, kept, own)
        set_report(layer.chunk_report.report)
    return call.results(output, [torch.cat(column) for column in zip(*finals)] if apart else finals[0])


def in_chunks(
    layer: Any,
    kernel: Kernel,
    x: Tensor,
    sizes: Tensor | None,
    states: list[Tensor],
    budget: Allowance,
    backwards: bool,
    handed_out: bool,
) -> tuple[list[Tensor], Tensor, Any]:
    """`handed_out`: the outputs are the caller's as they are."""
    states = [state.contiguous() for state in states]
    if torch.is_autocast_enabled(x.device.type):
        kernel.dtypes = _dtypes_of(kernel, x, sizes, states)
        states = [state.to(dtype) for state, dtype in zip(states, kernel.dtypes[1:])]
    length = x.shape[0] if sizes is None else len(sizes)
    kernel.alike = torch.is_grad_enabled() and x.device.type == "cpu"
    results = None
    set_report(None)
    if torch.is_grad_enabled():
        ours = isinstance(kernel, _gated.GatedKernel)  # draws nothing and sees nothing but its weights
        options = Options(
            budget,
            listed(layer.tiers),
            layer.strategy,
            preserve_rng_state=not ours,
            params=kernel.weights,
            modules=() if ours else (layer,),
            graph=False,
        )
        recalled = handed_out and kernel.layers == 1 and ours
        kin: Any = (
            "nn",
            layer.mode,
            layer.hidden_size,
            layer.bias,
            kernel.layers,
            sizes is not None,
            backwards,
            type(kernel),
            kernel.kin,
            recalled,
            len(kernel.weights),
            *surroundings_key([*states, *kernel.weights], [x[: sizes is None]], x.device),
        )
        key: Any = kin, length, x.shape[0]
        if sizes is not None and not isinstance(kernel, _gated.GatedKernel):
            # As many rows may be spread otherwise over time, with more of them in the first chunk.
            kin = key = key, hash(tuple(sizes.tolist()))

        def blocks(chunk: int) -> Segments:
            name, steps = type(layer).__name__, min(chunk, length)
            if isinstance(kernel, _gated.GatedKernel):
                if recalled:
                    return RecalledBlocks(name, kernel, x, sizes, steps, states)
                return _gated.GatedBlocks(name, kernel, x, sizes, steps, backwards)
            return Segments(name, kernel, x, sizes, steps, backwards)

        if layer.chunk is not None:
            own = blocks(layer.chunk)
            key, kin = ((each, own.steps(0)) for each in (key, kin))
            results = in_budget(own, _names_nothing, states, [x], x.device, options, key, kin=kin)
        else:
            most, knee = _GATED if isinstance(kernel, _gated.GatedKernel) else _CHUNK.get(x.device.type, _CHUNK["cpu"])
            longest = longest_of(length, most, 1)
            try:
                _, results = Chunking(
                    blocks, length, _names_nothing, states, [x], x.device, options, key, longest, knee, kin
                ).run()
            except Error as error:
                if error.code != "unavailable":
                    raise
                # Packed sequences of a short chunk are of one length, those of a long one need not be.
                results = in_budget(blocks(most), _names_nothing, states, [x], x.device, options, (key, most))
    if results is None or isinstance(results, Fits) or results is NOTHING:
        final, y = _whole(kernel, x, states, sizes, backwards)
        return list(final), y, running_report()
    return list(results[0]), results[1][0], running_report()


def _output_alone(
    kernel: Kernel, x: Tensor, states: Leaves, sizes: Tensor | None, backwards: bool
) -> tuple[Leaves, Tensor]:
    """What the runs above read, of a run that does not fit."""
    with torch.no_grad():
        final, y = _whole(kernel, x, [state.contiguous() for state in states], sizes, backwards)
    return final, y.requires_grad_()


def _dtypes_of(kernel: Kernel, x: Tensor, sizes: Tensor | None, states: list[Tensor]) -> list[torch.dtype]:
    """What autocast makes of the output and the states of the whole sequence, seen on its shortest like. Of packed sequences it
    depends on whether all are of one length, which those of a chunk may be where not all of the whole are."""
    few = sizes if sizes is None or len(sizes) == 1 else sizes[[0, -1]]
    with torch.no_grad():
        after, y = kernel(x[: 1 if few is None else int(few.sum())], states, few)
    return [tensor.dtype for tensor in (y, *after) if tensor is not None]


def _whole(kernel: Kernel, x: Tensor, states: Leaves, sizes: Tensor | None, backwards: bool) -> tuple[Leaves, Tensor]:
    """Without a plan, in as few calls as cuDNN takes."""
    if sizes is not None and backwards:
        rows = Rows(sizes).from_the_end(0, len(sizes), x.device)
        states, y = kernel(x[rows], states, sizes)
        return states, y[rows]  # the same rows: from the end of the end is from the beginning
    if sizes is not None or x.shape[0] <= _LONGEST or isinstance(kernel, _gated.GatedKernel):
        return kernel(x, states, sizes)
    parts = list(x.split(_LONGEST))
    ys = []
    for part in reversed(parts) if backwards else parts:
        states, y = kernel(part, states, None)
        ys.append(y)
    return states, torch.cat(ys[::-1] if backwards else ys)


def _names_nothing() -> None:
    """Kernels get their weights by name, so that nothing needs to be looked for."""

# SPDX-License-Identifier: Apache-2.0
"""torch's recurrent layers in bounded memory."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch.nn.utils.rnn import PackedSequence

from ebb._base.budget import Budget, BudgetLike
from ebb._base.errors import Error
from ebb._loop.last_report import reported, set_report
from ebb._tensor.eager import eager
from ebb.nn import _chunks, _native
from ebb.nn._report import LayerReport
from ebb.tiers import Tier, listed

_ABOUT = """{what}, in the memory you have.

    torch.nn.{name} with the same constructor, call, parameters and ``state_dict``, and five more arguments:

    budget: bytes, or text such as ``"64MiB"``, that one call may hold between forward and backward, excluding
        inputs, outputs and parameters, for any length; or ``"20%"`` of what keeping everything takes; or ``"memory"``, the least that
        works, ``"speed"``, enough to keep everything, or ``"balanced"``, where bytes x time are least, as for `ebb.scan`; each with the
        chunk that the layer takes. None: torch's own code, which keeps every time step.
    tiers: slower memories that may be used too, nearest first.
    chunk: time steps that are one step of the plan; None: chosen from the sizes. Gradients are the same bits for every
        budget, but not for every chunk.
    strategy: how to plan; ``"auto"`` takes the fastest.
    native: False runs torch's own kernels chunk by chunk where the library's own cells could run too.

    If the budget is too small, raises :class:`ebb.Error`, whose ``least_budget`` works. ``report`` describes the last backward
    pass. Between calls the module keeps its memory; ``release()`` frees it.

    >>> import torch, ebb.nn
    >>> layer = ebb.nn.{name}(2, 16, budget="256KiB")
    >>> output, state = layer(torch.randn(1000, 4, 2))
    >>> output.sum().backward()
    >>> layer.report.peak <= 256 * 1024
    True
    """


class Bounded(torch.nn.RNNBase):
    """What the three layers share. A class beside torch's own in the bases of each."""

    budget: Budget | float | str | None
    tiers: Tier | Sequence[Tier] | None
    chunk: int | None
    strategy: str
    native: bool

    def __init__(
        self,
        *args: Any,
        budget: Budget | float | str | None = None,
        tiers: Tier | Sequence[Tier] | None = None,
        chunk: int | None = None,
        strategy: str = "auto",
        native: bool = True,
        **kwargs: Any,
    ) -> None:
        _native.refuse_codec(self, kwargs)
        super().__init__(*args, **kwargs)
        if self.proj_size:
            raise Error(
                f"{type(self).__name__}: proj_size is {self.proj_size}; there are no projections: leave it out and put "
                "a torch.nn.Linear behind the layer"
            )
        self.bind(budget, tiers, chunk, strategy, native)

    def bind(
        self,
        budget: BudgetLike | None,
        tiers: Tier | Sequence[Tier] | None,
        chunk: int | None,
        strategy: str,
        native: bool,
    ) -> None:
        """Sets all that torch's layer does not have."""
        _native.allowed(budget)
        if chunk is not None and (isinstance(chunk, bool) or not isinstance(chunk, int) or chunk < 1):
            raise Error(f"{type(self).__name__}: chunk is {chunk!r}; it must be 1 or more, or None")
        self.budget, self.tiers, self.chunk, self.strategy, self.native = budget, tiers, chunk, strategy, native
        self._runs = _native.Runs()
        self.chunk_report: _chunks.ChunkReport | None = None

    def unbind(self) -> None:
        """Removes what `bind` has set."""
        for name in ("budget", "tiers", "chunk", "strategy", "native", "_runs", "chunk_report"):
            delattr(self, name)

    def extra_repr(self) -> str:
        return super().extra_repr() + ("" if self.budget is None else f", budget={self.budget!r}")

    @property
    def report(self) -> LayerReport | None:
        """What the last backward took; None before the first."""
        return self.chunk_report.report() if self.chunk_report is not None else self._runs.report()

    def release(self) -> None:
        """Gives back the memory that the module holds between calls."""
        self._runs.clear()

    @eager
    @reported
    def forward(self, input: Any, hx: Any = None) -> Any:
        if self.budget is None:
            return super().forward(input, hx)
        call = _Call(self, input, hx)
        if call.is_empty:
            return super().forward(input, hx)
        if not self.native or call.why_not() is not None:
            return _chunks.run(call)
        self.chunk_report = None
        return call.run()


class _Call:
    """One call of a layer: its arguments in one form, and its results back in theirs."""

    def __init__(self, layer: Bounded, given: Any, hx: Any):
        self.layer, self.given, self.hx = layer, given, hx
        self.packed = isinstance(given, PackedSequence)
        self.x: torch.Tensor = given.data if self.packed else given
        self.batched = self.packed or self.x.dim() == 3
        if not self.packed and self.x.dim() not in (2, 3):
            raise ValueError(f"{layer._get_name()}: Expected input to be 2D or 3D, got {self.x.dim()}D instead")
        if self.packed:
            self.batch_sizes = tuple(given.batch_sizes.tolist())
            self.time_steps, self.batch = len(self.batch_sizes), self.batch_sizes[0]
        else:
            self.batch_sizes = ()
            if not self.batched:
                self.x = self.x.unsqueeze(1)
            elif layer.batch_first:
                self.x = self.x.transpose(0, 1)
            self.time_steps, self.batch = self.x.size(0), self.x.size(1)

    @property
    def is_empty(self) -> bool:
        return self.time_steps == 0 or self.batch == 0

    @property
    def directions(self) -> int:
        return 2 if self.layer.bidirectional else 1

    def parameters(self) -> list[torch.Tensor]:
        return [getattr(self.layer, name) for name in self.layer._flat_weights_names]

    def _given_states(self) -> list[torch.Tensor]:
        if self.hx is None:
            return []
        return list(self.hx) if isinstance(self.hx, tuple) else [self.hx]

    def why_not(self) -> str | None:
        tensors = [self.x, *self.parameters(), *self._given_states()]
        return _native.why_not(*tensors) or _native.fits(self.batch)

    def states(self) -> list[torch.Tensor]:
        """[D*L,B,H] each, checked as torch checks them."""
        layer = self.layer
        count = 2 if layer.mode == "LSTM" else 1
        shape = (layer.num_layers * self.directions, self.batch, layer.hidden_size)
        states = self._given_states() or [self.x.new_zeros(shape) for _ in range(count)]
        if self.hx is not None:
            wanted = 3 if self.batched else 2
            for state in states:
                if state.dim() != wanted:
                    kind = "batched" if self.batched else "unbatched"
                    raise RuntimeError(
                        f"For {kind} {wanted}-D input, hx should also be {wanted}-D but got {state.dim()}-D tensor"
                    )
            if not self.batched:
                states = [state.unsqueeze(1) for state in states]
            if self.packed and self.given.sorted_indices is not None:
                states = [state.index_select(1, self.given.sorted_indices) for state in states]
        self._check(states)
        return states

    def _check(self, states: list[torch.Tensor]) -> None:
        """By torch's own words: it looks at sizes alone, and at the batch where its layout has it."""
        layer = self.layer
        sizes = torch.tensor(self.batch_sizes) if self.packed else None
        as_given = self.x.transpose(0, 1) if layer.batch_first and not self.packed else self.x
        hidden: Any = tuple(states) if layer.mode == "LSTM" else states[0]
        layer.check_forward_args(as_given, hidden, sizes)

    def _groups(self, dropout: bool) -> tuple[tuple[_native.Pass, ...], ...]:
        layer = self.layer
        cell = {"RNN_TANH": "rnn", "RNN_RELU": "rnn_relu", "LSTM": "lstm", "GRU": "gru"}[layer.mode]
        common = {"cell": cell, "hidden": layer.hidden_size, "bias": layer.bias}
        if layer.bidirectional or dropout:
            widths = [layer.input_size] + [layer.hidden_size * self.directions] * (layer.num_layers - 1)
            reverses = [False, True][: self.directions]
            return tuple(
                tuple(_native.Pass(({**common, "input": width},), reverse) for reverse in reverses) for width in widths
            )
        lowest = {**common, "input": layer.input_size}
        return ((_native.Pass((lowest, *[common] * (layer.num_layers - 1))),),)

    def run(self) -> Any:
        layer = self.layer
        states, parameters = self.states(), self.parameters()
        dropout = layer.dropout if layer.training and layer.num_layers > 1 else 0.0
        keeps = _native.needs_gradient(self.x, *states, *parameters)
        setting = _native.Setting(
            groups=self._groups(dropout > 0),
            dtype=self.x.dtype,
            time_steps=self.time_steps,
            batch=self.batch,
            batch_sizes=self.batch_sizes,
            keeps=keeps,
            input_gradient=keeps and self.x.requires_grad,
            budget=_native.allowed(layer.budget),
            tiers=listed(layer.tiers),
            strategy=layer.strategy,
            chunk=layer.chunk or 0,
            threads=torch.get_num_threads(),
        )
        lease = layer._runs.lease(setting)
        output, finals, kept = self.x, [], 0
        for index in range(len(setting.groups)):
            if index > 0 and dropout > 0:
                output = torch.nn.functional.dropout(output, dropout, training=True)
                kept += output.numel()  # the mask is a byte a number
            if index > 0:
                kept += output.numel() * output.element_size()
            own_states, own_parameters = self._of_group(states, parameters, index, len(setting.groups))
            group = _native.Group(layer._runs, setting, index, layer.batch_first and self.batched)
            output, own = _native.run_group(group, lease, output, own_states, own_parameters)
            finals.append(own)
        if keeps:
            layer._runs.begin(kept)
            set_report(layer._runs.told.report)
        return self.results(output, [torch.cat(parts) if len(parts) > 1 else parts[0] for parts in zip(*finals)])

    def _of_group(
        self, states: list[torch.Tensor], parameters: list[torch.Tensor], index: int, groups: int
    ) -> tuple[list[torch.Tensor], list[torch.Tensor]]:
        rows, each = states[0].size(0) // groups, len(parameters) // groups
        return (
            [state[index * rows : (index + 1) * rows] for state in states],
            parameters[index * each : (index + 1) * each],
        )

    def results(self, output: torch.Tensor, finals: list[torch.Tensor]) -> Any:
        given = self.given
        if self.packed:
            if given.unsorted_indices is not None:
                finals = [final.index_select(1, given.unsorted_indices) for final in finals]
            found: Any = PackedSequence(output, given.batch_sizes, given.sorted_indices, given.unsorted_indices)
        elif not self.batched:
            found, finals = output.squeeze(1), [final.squeeze(1) for final in finals]
        else:
            found = output.transpose(0, 1) if self.layer.batch_first else output
        return found, tuple(finals) if len(finals) > 1 else finals[0]


class RNN(Bounded, torch.nn.RNN):
    __doc__ = _ABOUT.format(what="Elman's recurrent layer, tanh or relu", name="RNN")


class LSTM(Bounded, torch.nn.LSTM):
    __doc__ = _ABOUT.format(what="Long short-term memory", name="LSTM")


class GRU(Bounded, torch.nn.GRU):
    __doc__ = _ABOUT.format(what="Gated recurrent units", name="GRU")

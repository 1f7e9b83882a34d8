# SPDX-License-Identifier: Apache-2.0
"""Spiking layers, and the same as cells of plain torch for one time step."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch

from ebb._base.budget import Budget
from ebb._base.errors import Error
from ebb._loop.arguments import checked_graph
from ebb._loop.last_report import last_report, reported, set_report
from ebb._loop.scan import scan
from ebb._tensor.eager import eager
from ebb.nn import _native, _neurons
from ebb.nn._chunks import ChunkReport
from ebb.nn._report import LayerReport
from ebb.nn._spiking_steps import AdLIFStep, ALIFStep, EGRUStep, LIFStep, Spiking, State
from ebb.tiers import Tier, listed


class _Cell(Spiking):
    def forward(self, carry: State | None, x: torch.Tensor) -> tuple[State, torch.Tensor]:
        return self.step(self.zero_state(x.size(0)) if carry is None else carry, x)


class _Layer(Spiking):
    _ending = "_l0"

    def __init__(
        self,
        input_size: int | None,
        hidden_size: int,
        *,
        batch_first: bool = False,
        budget: Budget | float | str | None = None,
        tiers: Tier | Sequence[Tier] | None = None,
        chunk: int | None = None,
        strategy: str = "auto",
        graph: bool | None = None,
        native: bool = True,
        **options: Any,
    ) -> None:
        _native.refuse_codec(self, options)
        super().__init__(input_size, hidden_size, **options)
        _native.allowed(budget)
        if chunk is not None and (isinstance(chunk, bool) or not isinstance(chunk, int) or chunk < 1):
            raise Error(f"{type(self).__name__}: chunk is {chunk!r}; it must be 1 or more, or None")
        self.batch_first, self.budget, self.tiers = batch_first, budget, tiers
        self.chunk, self.strategy, self.native = chunk, strategy, native
        self.graph = checked_graph(type(self).__name__, graph)
        self._runs = _native.Runs()
        self._kernels_report: ChunkReport | None = None

    def extra_repr(self) -> str:
        return super().extra_repr() + ("" if self.budget is None else f", budget={self.budget!r}")

    @property
    def report(self) -> LayerReport | None:
        """What the last backward took; None before the first, and where plain torch ran."""
        return self._runs.report() if self._kernels_report is None else self._kernels_report.report()

    @property
    def needs_no_plan(self) -> bool:
        """Neurons alone, whose kernels keep nothing of a time step, without a limit."""
        apart = self.input_size is None and not self.recurrent and not self.bias
        return apart and self.budget is None and self.tiers is None and self.chunk is None

    def release(self) -> None:
        """Gives back the memory that the module holds between calls."""
        self._runs.clear()

    @eager
    @reported
    def forward(self, input: torch.Tensor, state: State | None = None) -> tuple[torch.Tensor, State]:
        self._kernels_report = None
        x = self._time_first(input)
        state = self.zero_state(x.size(1)) if state is None else tuple(state)
        self._check(x, state)
        if x.size(0) == 0 or x.size(1) == 0:
            spikes = x.new_zeros(x.size(0), x.size(1), self.hidden_size)
        else:
            reason = _native.why_not(x, *self._in_order(), *state) or _native.fits(x.size(1))
            if self.input_size is None or not self.native:
                reason = reason or "there are no weights for inputs, or plain torch is asked for"
            kernels = self.native and _neurons.why_not(self, x, [*self._in_order(), *state]) is None
            if reason is not None and kernels:
                spikes, state, report = _neurons.run(self, x, state)
                set_report(None)
                if report is not None:
                    self._kernels_report = ChunkReport(report.budget, 0, [report])
                    set_report(self._kernels_report.report)
                return spikes.transpose(0, 1) if self.batch_first else spikes, state
            if reason is not None and self.budget is not None:
                state, spikes = scan(
                    self.step,
                    state,
                    x,
                    budget=self.budget,
                    tiers=self.tiers,
                    chunk=self.chunk,
                    strategy=self.strategy,
                    graph=self.graph,
                )
                set_report(last_report())
                return spikes.transpose(0, 1) if self.batch_first else spikes, state
            spikes, state = self._loop(x, state) if reason is not None else self._native(x, state)
        return spikes.transpose(0, 1) if self.batch_first else spikes, state

    def _time_first(self, given: torch.Tensor) -> torch.Tensor:
        width = self.hidden_size if self.input_size is None else self.input_size
        if given.dim() != 3 or given.size(2) != width:
            order = "batch, time, " if self.batch_first else "time, batch, "
            raise Error(
                f"{type(self).__name__}: the input has the shape {tuple(given.shape)}; it must be ({order}{width})"
            )
        return given.transpose(0, 1) if self.batch_first else given

    def _check(self, x: torch.Tensor, state: State) -> None:
        shape = (x.size(1), self.hidden_size)
        if len(state) != self._fields + 1 or any(tuple(own.shape) != shape for own in state):
            raise Error(
                f"{type(self).__name__}: the state has the shapes {[tuple(own.shape) for own in state]}; "
                f"it must have {self._fields + 1} of {shape}, the spikes last"
            )

    def _loop(self, x: torch.Tensor, state: State) -> tuple[torch.Tensor, State]:
        outputs = []
        for one in x:
            state, spikes = self.step(state, one)
            outputs.append(spikes)
        return torch.stack(outputs), state

    def _native(self, x: torch.Tensor, state: State) -> tuple[torch.Tensor, State]:
        units = [name for name in self._units if name != "threshold"]
        layer = {
            "cell": self._kind,
            "input": self.input_size,
            "hidden": self.hidden_size,
            "bias": self.bias,
            "recurrent": self.recurrent,
            "hard_reset": self.reset == "hard",
            "attached_reset": self.attached_reset,
            "normalised": self.normalised,
            "surrogate": self.surrogate,
            "sharpness": self.sharpness,
            "train_tau": any(self._own(name).requires_grad for name in units),
            "train_threshold": self._own("threshold").requires_grad,
        }
        parameters = self._in_order()
        keeps = _native.needs_gradient(x, *state, *parameters)
        setting = _native.Setting(
            groups=((_native.Pass((layer,)),),),
            dtype=x.dtype,
            time_steps=x.size(0),
            batch=x.size(1),
            batch_sizes=(),
            keeps=keeps,
            input_gradient=keeps and x.requires_grad,
            budget=_native.allowed(self.budget),
            tiers=listed(self.tiers),
            strategy=self.strategy,
            chunk=self.chunk or 0,
            threads=torch.get_num_threads(),
        )
        group = _native.Group(self._runs, setting, 0, self.batch_first)
        states = [own.unsqueeze(0) for own in (reversed(state) if self._output_first else state)]
        lease = self._runs.lease(setting)
        output, finals = _native.run_group(group, lease, x, states, parameters)
        if keeps:
            self._runs.begin(0)
            set_report(self._runs.told.report)
        # The last spikes are outputs, and their gradient goes that way.
        fields = finals[1:] if self._output_first else finals[:-1]
        return output, (*(own.squeeze(0) for own in fields), output[-1])


_ARGUMENTS = """
    input_size: None leaves out the weights for inputs: inputs are the currents of the units, one for each.
    bias, recurrent: whether there are biases (by default where inputs have weights), and weights among the units.
    surrogate: what stands in for the derivative of a spike: ``fast_sigmoid``, ``superspike``, ``arctan``,
        ``triangular``, ``boxcar``, ``multi_gaussian``; ``sharpness`` is its k, each has a value of its own.
    reset: ``"soft"`` takes the threshold off, ``"hard"`` sets the membrane to 0.
    attached_reset: gradients go through the reset.
    normalised: the input counts by 1 - exp(-1 / tau_mem).
    threshold, {units}: to begin with, the same for each unit; time constants are in time steps.
    train_tau, train_threshold: whether they learn; train_tau stands for all but the threshold.
"""
_LAYER = """{what}, over a sequence, in the memory you have.

    ``layer(input, state=None) -> (spikes, state)``; input [T,B,I], spikes [T,B,H], {spikes}, or batch first; the state
    is a tuple of [B,H]: {state}.
{arguments}
    budget, tiers, chunk, strategy: as of :class:`ebb.nn.LSTM`; None is no limit.
    native: False runs plain torch, step by step, where the library's own code could run too.
    graph: as of :func:`ebb.scan`, which runs what the library's own code does not; that takes no notice of it.

    {runs} All else runs in plain torch, step by step, on a GPU as CUDA graphs in a budget.

    >>> import torch, ebb.nn
    >>> layer = ebb.nn.{name}(20, 32, budget="1MiB")
    >>> spikes, state = layer(torch.randn(500, 4, 20))
    >>> spikes.sum().backward()
    >>> layer.report.peak <= 2**20
    True
    """
_CELL = """{what}, one time step in plain torch.

    ``cell(carry, x) -> (carry, spikes)``, as :func:`ebb.scan` calls it; carry is None or a tuple of [B,H]: {state}.
{arguments}
    >>> import torch, ebb.nn
    >>> cell = ebb.nn.{name}Cell(20, 32)
    >>> carry, spikes = cell(None, torch.randn(4, 20))
    >>> spikes.shape
    torch.Size([4, 32])
    """
_OF_SPIKES = {
    "spikes": "of 0 and 1",
    "runs": """float32 and float64 on the CPU run in native code if inputs have weights; bfloat16, float16 and float32 on a GPU in
    ebb's own kernels.""",
}
_WORDS: dict[str, dict[str, str]] = {
    "LIF": {
        **_OF_SPIKES,
        "what": "Leaky integrate-and-fire neurons",
        "state": "membrane, spikes",
        "arguments": _ARGUMENTS.format(units="tau_mem"),
    },
    "ALIF": {
        **_OF_SPIKES,
        "what": "Neurons with an adaptive threshold",
        "state": "membrane, adaptation, spikes",
        "arguments": _ARGUMENTS.format(units="tau_mem, tau_adp, beta (how far a spike lifts the threshold)"),
    },
    "AdLIF": {
        **_OF_SPIKES,
        "what": "Neurons with an adaptation current (Bittar and Garner 2022)",
        "state": "membrane, adaptation, spikes",
        "arguments": _ARGUMENTS.format(
            units="tau_mem, tau_adp, a and b (how far the membrane and a spike drive the adaptation)"
        ),
    },
    "EGRU": {
        "spikes": "0 or a number above the threshold",
        "runs": "float32 and float64 on the CPU run in native code.",
        "what": "Event-based gated recurrent units (Subramoney et al. 2022), which give out 0 below their threshold",
        "state": "cell, outputs",
        "arguments": """
    bias, recurrent: whether there are biases, and weights among the units.
    surrogate: what stands in for the derivative of an event, as of :class:`ebb.nn.LIF`; ``triangular`` if left out.
    threshold: to begin with, the same for each unit; train_threshold: whether it learns.
""",
    },
}


class LIFCell(_Cell, LIFStep):
    __doc__ = _CELL.format(name="LIF", **_WORDS["LIF"])


class ALIFCell(_Cell, ALIFStep):
    __doc__ = _CELL.format(name="ALIF", **_WORDS["ALIF"])


class AdLIFCell(_Cell, AdLIFStep):
    __doc__ = _CELL.format(name="AdLIF", **_WORDS["AdLIF"])


class EGRUCell(_Cell, EGRUStep):
    __doc__ = _CELL.format(name="EGRU", **_WORDS["EGRU"])


class LIF(_Layer, LIFStep):
    __doc__ = _LAYER.format(name="LIF", **_WORDS["LIF"])


class ALIF(_Layer, ALIFStep):
    __doc__ = _LAYER.format(name="ALIF", **_WORDS["ALIF"])


class AdLIF(_Layer, AdLIFStep):
    __doc__ = _LAYER.format(name="AdLIF", **_WORDS["AdLIF"])


class EGRU(_Layer, EGRUStep):
    __doc__ = _LAYER.format(name="EGRU", **_WORDS["EGRU"])

# SPDX-License-Identifier: Apache-2.0
"""Spiking layers, and the same as cells of plain torch for one time step."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any, ClassVar

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
from ebb.nn._surrogate import Spike, sharpness_of
from ebb.tiers import Tier, listed

_LONGEST_TAU = 1e6  # as in the native cells: 1 - decay divides
State = tuple[torch.Tensor, ...]


def _decay(tau: torch.Tensor) -> torch.Tensor:
    """What is left after a time step; a time constant of 0 or less forgets at once."""
    safe = torch.where(tau > 0, tau, torch.ones_like(tau)).clamp(max=_LONGEST_TAU)
    return torch.where(tau > 0, torch.exp(-1 / safe), torch.zeros_like(tau))


class _Spiking(torch.nn.Module):
    """What layers and cells share: parameters, whose names end in ``_ending``, and one time step."""

    _kind: ClassVar[str]
    _fields: ClassVar[int]  # arrays of a state beside the spikes
    _units: ClassVar[dict[str, float]]  # numbers that each unit has, and their value if left out
    _ending: ClassVar[str] = ""
    _gates: ClassVar[int] = 1
    _biases: ClassVar[tuple[str, ...]] = ("bias_ih",)
    _surrogate: ClassVar[str] = "fast_sigmoid"

    def __init__(
        self,
        input_size: int | None,
        hidden_size: int,
        *,
        bias: bool | None = None,
        recurrent: bool = True,
        surrogate: str | None = None,
        sharpness: float | None = None,
        reset: str = "soft",
        attached_reset: bool = False,
        normalised: bool = True,
        train_tau: bool = False,
        train_threshold: bool = False,
        device: Any = None,
        dtype: torch.dtype | None = None,
        **units: float,
    ) -> None:
        super().__init__()
        name = type(self).__name__
        for unit in units:
            if unit not in self._units:
                raise TypeError(f"{name} has no argument {unit!r}; its units have {', '.join(self._units)}")
        for what, size in (("input_size", input_size), ("hidden_size", hidden_size)):
            if size is None and what == "input_size":
                continue
            if isinstance(size, bool) or not isinstance(size, int) or size < 1:
                allowed = "1 or more, or None" if what == "input_size" else "1 or more"
                raise Error(f"{name}: {what} is {size!r}; it must be {allowed}")
        for what, flag in (("bias", bias), ("recurrent", recurrent)):
            if not isinstance(flag, bool) and not (flag is None and what == "bias"):
                raise Error(f"{name}: {what} is {flag!r}; it must be True or False")
        if reset not in ("soft", "hard"):
            raise Error(f"{name}: reset is {reset!r}; it must be 'soft' (the threshold is taken off) or 'hard' (to 0)")
        bias = input_size is not None if bias is None else bias
        self.input_size, self.hidden_size, self.bias, self.recurrent = input_size, hidden_size, bias, recurrent
        self.surrogate = self._surrogate if surrogate is None else surrogate
        self.sharpness = sharpness_of(self.surrogate, sharpness)
        self.reset, self.attached_reset, self.normalised = reset, attached_reset, normalised
        options: dict[str, Any] = {"device": device, "dtype": dtype}
        rows = self._gates * hidden_size
        if input_size is not None:
            self._add("weight_ih", torch.empty(rows, input_size, **options))
        if recurrent:
            self._add("weight_hh", torch.empty(rows, hidden_size, **options))
        for name in self._own_biases():
            self._add(name, torch.empty(rows, **options))
        for unit, value in {**self._units, **units}.items():
            learns = train_threshold if unit == "threshold" else train_tau
            self._add(unit, torch.full((hidden_size,), float(value), **options), learns)
        self.reset_parameters()

    def _add(self, name: str, tensor: torch.Tensor, learns: bool = True) -> None:
        self.register_parameter(name + self._ending, torch.nn.Parameter(tensor, requires_grad=learns))

    def _own(self, name: str) -> torch.Tensor:
        return getattr(self, name + self._ending)

    def _in_order(self) -> list[torch.Tensor]:
        """Parameters in the order of the native layout."""
        there = {"weight_ih": self.input_size is not None, "weight_hh": self.recurrent}
        weights = [name for name, yes in there.items() if yes]
        return [self._own(name) for name in (*weights, *self._own_biases(), *self._units)]

    def _own_biases(self) -> list[str]:
        return [name for name in self._biases if self.bias and (self.recurrent or name != "bias_hh")]

    @property
    def dtype(self) -> torch.dtype:
        """Of its parameters."""
        return self._own("threshold").dtype

    @property
    def mode(self) -> str:
        """What kernels call it."""
        return self._kind.upper()

    def for_kernels(self) -> list[torch.Tensor]:
        """Weights and bias, and the numbers of units in float32, [P,H], with decays for time constants."""
        weights = self._in_order()[: -len(self._units)]
        numbers = [(name, self._own(name).float()) for name in self._units]
        return [*weights, torch.stack([_decay(own) if name.startswith("tau") else own for name, own in numbers])]

    def reset_parameters(self) -> None:
        """Weights of mean 0 and variance 1 / inputs, biases 0; thresholds and time constants stay as they are."""
        with torch.no_grad():
            inputs = {"weight_ih": self.input_size, "weight_hh": self.hidden_size if self.recurrent else None}
            for name, count in inputs.items():
                if count is not None:
                    bound = math.sqrt(3 / count)
                    self._own(name).uniform_(-bound, bound)
            for name in self._own_biases():
                self._own(name).zero_()

    def extra_repr(self) -> str:
        return f"{self.input_size}, {self.hidden_size}, surrogate={self.surrogate!r}, reset={self.reset!r}"

    def zero_state(self, batch: int) -> State:
        """A state of zeros: the fields, then the spikes, [B,H] each."""
        return tuple(self._own("threshold").new_zeros(batch, self.hidden_size) for _ in range(self._fields + 1))

    def _sums(self, x: torch.Tensor, spikes: torch.Tensor) -> torch.Tensor:
        bias = self._own("bias_ih") if self.bias else None
        if self.input_size is None:
            sums = x if bias is None else x + bias
        else:
            sums = torch.nn.functional.linear(x, self._own("weight_ih"), bias)
        return torch.nn.functional.linear(spikes, self._own("weight_hh")) + sums if self.recurrent else sums

    def _spike(self, distance: torch.Tensor) -> torch.Tensor:
        return Spike.apply(distance, self.surrogate, self.sharpness)

    def _resetting(self, spikes: torch.Tensor) -> torch.Tensor:
        return spikes if self.attached_reset else spikes.detach()

    def step(self, carry: State, x: torch.Tensor) -> tuple[State, torch.Tensor]:
        """One time step in plain torch: ``f(carry, x)`` as :func:`ebb.scan` takes it; x is [B,I]."""
        raise NotImplementedError


class _LIF(_Spiking):
    _kind, _fields, _units = "lif", 1, {"threshold": 1.0, "tau_mem": 20.0}

    def step(self, carry: State, x: torch.Tensor) -> tuple[State, torch.Tensor]:
        membrane, spikes = carry
        threshold, alpha = self._own("threshold"), _decay(self._own("tau_mem"))
        current = (1 - alpha if self.normalised else 1) * self._sums(x, spikes)
        membrane = alpha * membrane + current
        spikes = self._spike(membrane - threshold)
        off = membrane if self.reset == "hard" else threshold
        return (membrane - self._resetting(spikes) * off, spikes), spikes


class _ALIF(_Spiking):
    _kind, _fields = "alif", 2
    _units = {"threshold": 1.0, "tau_mem": 20.0, "tau_adp": 150.0, "beta": 1.8}

    def step(self, carry: State, x: torch.Tensor) -> tuple[State, torch.Tensor]:
        membrane, adaptation, spikes = carry
        alpha, rho = _decay(self._own("tau_mem")), _decay(self._own("tau_adp"))
        current = (1 - alpha if self.normalised else 1) * self._sums(x, spikes)
        adaptation = rho * adaptation + (1 - rho) * spikes
        level = self._own("threshold") + self._own("beta") * adaptation
        reset = self._resetting(spikes)
        if self.reset == "hard":
            membrane = alpha * membrane * (1 - reset) + current
        else:
            membrane = alpha * membrane + current - level * reset
        spikes = self._spike(membrane - level)
        return (membrane, adaptation, spikes), spikes


class _AdLIF(_Spiking):
    _kind, _fields = "adlif", 2
    _units = {"threshold": 1.0, "tau_mem": 20.0, "tau_adp": 100.0, "a": 0.5, "b": 1.0}

    def step(self, carry: State, x: torch.Tensor) -> tuple[State, torch.Tensor]:
        membrane, adaptation, spikes = carry
        alpha, beta = _decay(self._own("tau_mem")), _decay(self._own("tau_adp"))
        threshold, reset = self._own("threshold"), self._resetting(spikes)
        adaptation = beta * adaptation + self._own("a") * membrane + self._own("b") * spikes
        kept = membrane - reset * (membrane if self.reset == "hard" else threshold)
        current = (1 - alpha if self.normalised else 1) * (self._sums(x, carry[-1]) - adaptation)
        membrane = alpha * kept + current
        spikes = self._spike(membrane - threshold)
        return (membrane, adaptation, spikes), spikes


class _EGRU(_Spiking):
    _kind, _fields, _units, _gates = "egru", 1, {"threshold": 0.1}, 3
    _biases, _surrogate = ("bias_ih", "bias_hh"), "triangular"

    def __init__(self, input_size: int, hidden_size: int, **options: Any) -> None:
        name = type(self).__name__
        for option in ("reset", "attached_reset", "normalised", "train_tau"):
            if option in options:
                raise TypeError(f"{name} has no argument {option!r}")
        if input_size is None:
            raise Error(f"{name}: input_size is None; it must be 1 or more")
        super().__init__(input_size, hidden_size, **options)

    def extra_repr(self) -> str:
        return f"{self.input_size}, {self.hidden_size}, surrogate={self.surrogate!r}"

    def step(self, carry: State, x: torch.Tensor) -> tuple[State, torch.Tensor]:
        cell, output = carry
        bias, own_bias = (self._own(name) if name in self._own_biases() else None for name in self._biases)
        update, reset, given = torch.nn.functional.linear(x, self._own("weight_ih"), bias).chunk(3, -1)
        if self.recurrent:
            own = torch.nn.functional.linear(output, self._own("weight_hh"), own_bias).chunk(3, -1)
            update, given = update + own[0], given + torch.sigmoid(reset + own[1]) * own[2]
        update = torch.sigmoid(update)
        cell = update * torch.tanh(given) + (1 - update) * cell - output
        output = cell * self._spike(cell - self._own("threshold"))
        return (cell, output), output


class _Cell(_Spiking):
    def forward(self, carry: State | None, x: torch.Tensor) -> tuple[State, torch.Tensor]:
        return self.step(self.zero_state(x.size(0)) if carry is None else carry, x)


class _Layer(_Spiking):
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
        # Native cells have what they give out first among the fields where it is one.
        first = self._kind == "egru"
        states = [own.unsqueeze(0) for own in (reversed(state) if first else state)]
        lease = self._runs.lease(setting)
        output, finals = _native.run_group(group, lease, x, states, parameters)
        if keeps:
            self._runs.begin(0)
            set_report(self._runs.told.report)
        # The last spikes are outputs, and their gradient goes that way.
        fields = finals[1:] if first else finals[:-1]
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


class LIFCell(_Cell, _LIF):
    __doc__ = _CELL.format(name="LIF", **_WORDS["LIF"])


class ALIFCell(_Cell, _ALIF):
    __doc__ = _CELL.format(name="ALIF", **_WORDS["ALIF"])


class AdLIFCell(_Cell, _AdLIF):
    __doc__ = _CELL.format(name="AdLIF", **_WORDS["AdLIF"])


class EGRUCell(_Cell, _EGRU):
    __doc__ = _CELL.format(name="EGRU", **_WORDS["EGRU"])


class LIF(_Layer, _LIF):
    __doc__ = _LAYER.format(name="LIF", **_WORDS["LIF"])


class ALIF(_Layer, _ALIF):
    __doc__ = _LAYER.format(name="ALIF", **_WORDS["ALIF"])


class AdLIF(_Layer, _AdLIF):
    __doc__ = _LAYER.format(name="AdLIF", **_WORDS["AdLIF"])


class EGRU(_Layer, _EGRU):
    __doc__ = _LAYER.format(name="EGRU", **_WORDS["EGRU"])

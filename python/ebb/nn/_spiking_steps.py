# SPDX-License-Identifier: Apache-2.0
"""Spiking cells in plain torch: their parameters, and one time step of each."""

from __future__ import annotations

import math
from typing import Any, ClassVar

import torch

from ebb._base.errors import Error
from ebb.nn._surrogate import Spike, sharpness_of

LONGEST_TAU = 1e6  # as in the native cells: 1 - decay divides
State = tuple[torch.Tensor, ...]


def decay(tau: torch.Tensor) -> torch.Tensor:
    """What is left after a time step; a time constant of 0 or less forgets at once."""
    longest = min(LONGEST_TAU, torch.finfo(tau.dtype).max)
    safe = torch.where(tau > 0, tau, torch.ones_like(tau)).clamp(max=longest)
    return torch.where(tau > 0, torch.exp(-1 / safe), torch.zeros_like(tau))


class Spiking(torch.nn.Module):
    """What layers and cells share: parameters, whose names end in ``_ending``, and one time step."""

    _kind: ClassVar[str]
    _fields: ClassVar[int]  # arrays of a state beside the spikes
    _units: ClassVar[dict[str, float]]  # numbers that each unit has, and their value if left out
    _ending: ClassVar[str] = ""
    _gates: ClassVar[int] = 1
    _output_first: ClassVar[bool] = False  # among the fields of the native cell, which has no spikes then
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
            may_be_none = what == "input_size" and self._gates == 1
            if size is None and may_be_none:
                continue
            if isinstance(size, bool) or not isinstance(size, int) or size < 1:
                allowed = "1 or more, or None" if may_be_none else "1 or more"
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
        return [*weights, torch.stack([decay(own) if name.startswith("tau") else own for name, own in numbers])]

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


class LIFStep(Spiking):
    _kind, _fields, _units = "lif", 1, {"threshold": 1.0, "tau_mem": 20.0}

    def step(self, carry: State, x: torch.Tensor) -> tuple[State, torch.Tensor]:
        membrane, spikes = carry
        threshold, alpha = self._own("threshold"), decay(self._own("tau_mem"))
        current = (1 - alpha if self.normalised else 1) * self._sums(x, spikes)
        membrane = alpha * membrane + current
        spikes = self._spike(membrane - threshold)
        off = membrane if self.reset == "hard" else threshold
        return (membrane - self._resetting(spikes) * off, spikes), spikes


class ALIFStep(Spiking):
    _kind, _fields = "alif", 2
    _units = {"threshold": 1.0, "tau_mem": 20.0, "tau_adp": 150.0, "beta": 1.8}

    def step(self, carry: State, x: torch.Tensor) -> tuple[State, torch.Tensor]:
        membrane, adaptation, spikes = carry
        alpha, rho = decay(self._own("tau_mem")), decay(self._own("tau_adp"))
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


class AdLIFStep(Spiking):
    _kind, _fields = "adlif", 2
    _units = {"threshold": 1.0, "tau_mem": 20.0, "tau_adp": 100.0, "a": 0.5, "b": 1.0}

    def step(self, carry: State, x: torch.Tensor) -> tuple[State, torch.Tensor]:
        membrane, adaptation, spikes = carry
        alpha, beta = decay(self._own("tau_mem")), decay(self._own("tau_adp"))
        threshold, reset = self._own("threshold"), self._resetting(spikes)
        adaptation = beta * adaptation + self._own("a") * membrane + self._own("b") * spikes
        kept = membrane - reset * (membrane if self.reset == "hard" else threshold)
        current = (1 - alpha if self.normalised else 1) * (self._sums(x, carry[-1]) - adaptation)
        membrane = alpha * kept + current
        spikes = self._spike(membrane - threshold)
        return (membrane, adaptation, spikes), spikes


class EGRUStep(Spiking):
    _kind, _fields, _units, _gates = "egru", 1, {"threshold": 0.1}, 3
    _biases, _surrogate, _output_first = ("bias_ih", "bias_hh"), "triangular", True

    def __init__(self, input_size: int, hidden_size: int, **options: Any) -> None:
        for option in ("reset", "attached_reset", "normalised", "train_tau"):
            if option in options:
                raise TypeError(f"{type(self).__name__} has no argument {option!r}")
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

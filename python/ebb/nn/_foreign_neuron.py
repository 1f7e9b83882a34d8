# SPDX-License-Identifier: Apache-2.0
"""A neuron of another package in the numbers of ebb's layers, and the layer that computes the same."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any, NoReturn

import torch
from torch import Tensor, nn

from ebb._base.errors import Error
from ebb.nn._spiking_steps import LONGEST_TAU, decay
from ebb.nn.spiking import ALIF, LIF

_MOST = math.exp(-1 / LONGEST_TAU)  # that a time step may leave of a membrane


def refuse(name: str, why: str, instead: str = "") -> NoReturn:
    """`why` says what the neuron has, and what ebb's layers have."""
    loop = "run it in a loop with ebb.scan, as docs/recipes.md does"
    raise Error(f"convert: {name} {why}", remedy=f"{instead}, or {loop}" if instead else loop)


@dataclass(frozen=True)
class Neuron:
    """What it computes. Decay and threshold are one number, or one for each unit."""

    name: str
    decay: Tensor  # what a time step leaves of the membrane
    threshold: Tensor
    at_threshold: bool  # whether a membrane at the threshold spikes, as ebb's do; else it has to be above
    at_once: bool  # whether the reset comes with the spike; else the next time step has it, after the decay
    options: dict[str, Any]  # of the layer: reset, attached_reset, normalised, surrogate, sharpness
    learns: tuple[str, ...] = ()  # of tau_mem and threshold
    recurrent: nn.Linear | None = None

    def layer(self, units: int | None, **how: Any) -> LIF | ALIF:
        """`how`: budget and all else that does not change what is computed."""
        self._check_decay()
        dtype = torch.promote_types(self.decay.dtype, self.threshold.dtype)
        linear = self.recurrent
        options = {
            **self.options,
            **how,
            "recurrent": linear is not None,
            "bias": linear is not None and linear.bias is not None,
            "dtype": dtype,
            "device": self.decay.device,
        }
        count = self._units(units)
        # An ALIF whose threshold no spike lifts is a LIF that is reset by the next time step.
        layer = LIF(None, count, **options) if self.at_once else ALIF(None, count, beta=0.0, **options)
        numbers: dict[str, Tensor] = {"tau_mem": nearest_tau(self.decay.to(dtype)), "threshold": self._threshold(dtype)}
        if linear is not None:
            numbers["weight_hh"] = linear.weight
            if linear.bias is not None:
                numbers["bias_ih"] = linear.bias
        for name, value in numbers.items():
            own = getattr(layer, f"{name}_l0")
            with torch.no_grad():
                own.copy_(value)
            own.requires_grad_(name in self.learns or value.requires_grad)
        return layer

    def _threshold(self, dtype: torch.dtype) -> Tensor:
        own = self.threshold.detach().to(dtype)
        return own if self.at_threshold else torch.nextafter(own, torch.full_like(own, math.inf))

    def _check_decay(self) -> None:
        if "tau_mem" in self.learns and not bool((self.decay > 0).all()):
            refuse(self.name, "learns a decay that is 0 for a unit; ebb learns time constants, which are above 0")
        if not bool((self.decay <= _MOST).all()):
            refuse(
                self.name,
                f"has a membrane that keeps {float(self.decay.max()):.9g} of itself in a time step; ebb's leak, and keep "
                f"{_MOST:.6f} (a time constant of {LONGEST_TAU:.0e} time steps) at most",
            )

    def _units(self, units: int | None) -> int:
        if units is not None and (isinstance(units, bool) or not isinstance(units, int) or units < 1):
            raise Error(f"convert: units is {units!r}; it must be 1 or more")
        found = {} if self.recurrent is None else {"recurrent weights": self.recurrent.out_features}
        for what, own in (("decay", self.decay), ("threshold", self.threshold)):
            if own.dim() > 1:
                refuse(
                    self.name,
                    f"has the shape {tuple(own.shape)} for its {what}; ebb's layers have one number for each unit",
                )
            if own.numel() > 1:
                found[what] = own.numel()
        sizes = {*found.values(), *(() if units is None else (units,))}
        if not sizes:
            raise Error(
                f"convert: {self.name} does not say how many units it has",
                remedy="pass units=, the features of one sample in one time step",
            )
        if len(sizes) > 1:
            told = ", ".join(f"{what} for {count}" for what, count in found.items())
            raise Error(f"convert: {self.name} has {told}" + ("" if units is None else f", and units is {units}"))
        return sizes.pop()


def nearest_tau(wanted: Tensor) -> Tensor:
    """The time constants, in the same dtype, whose decays are nearest."""
    tau = (-1 / torch.log(wanted.detach().double())).to(wanted.dtype)
    tried = torch.stack([tau, *(torch.nextafter(tau, torch.full_like(tau, end)) for end in (0.0, math.inf))])
    best = (decay(tried).double() - wanted.detach().double()).abs().argmin(0, keepdim=True)
    return tried.gather(0, best).squeeze(0)

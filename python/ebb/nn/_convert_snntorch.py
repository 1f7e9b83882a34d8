# SPDX-License-Identifier: Apache-2.0
"""snnTorch's neurons in the numbers of ebb's layers. A spike is reset by the time step behind it, without a gradient."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn

from ebb.nn._foreign_neuron import Neuron, refuse

# What their functions are called here, and the name of the argument that is its sharpness.
_SURROGATES = {"atan": ("arctan", "alpha"), "fast_sigmoid": ("fast_sigmoid", "slope")}
_UPDATES = {"subtract": "_base_sub", "zero": "_base_zero", "none": "_base_int"}


def _leaky(name: str, lif: Any) -> Neuron:
    return _neuron(name, lif)


def _rleaky(name: str, lif: Any) -> Neuron:
    if type(lif.recurrent) is not nn.Linear:
        refuse(
            name,
            f"has recurrent connections by {type(lif.recurrent).__name__}; ebb's layers have weights among all units",
            "make it with linear_features=",
        )
    if lif.reset_mechanism == "zero" and lif.reset_delay:
        refuse(
            name,
            "has reset_mechanism='zero' with reset_delay=True, which drops the input after a spike too; ebb's layers do not",
            "make it with reset_delay=False",
        )
    return _neuron(name, lif, lif.recurrent)


READERS: dict[str, Callable[[str, Any], Neuron]] = {"Leaky": _leaky, "RLeaky": _rleaky}


def _neuron(name: str, lif: Any, recurrent: nn.Linear | None = None) -> Neuron:
    for option in ("inhibition", "state_quant", "surrogate_disable"):
        if getattr(lif, option):
            refuse(name, f"has {option}={getattr(lif, option)!r}; ebb's layers have nothing like it")
    factor = lif.graded_spikes_factor
    if factor.requires_grad or not bool((factor == 1).all()):
        refuse(
            name,
            "has a graded_spikes_factor that is not 1, or learns; ebb's spikes are 0 and 1",
            "multiply the layer's spikes by it",
        )
    at_once = not lif.reset_delay
    surrogate, sharpness = _surrogate(name, lif.spike_grad)
    return Neuron(
        name,
        decay=_floating(lif.beta).clamp(0, 1),
        threshold=_floating(lif.threshold),
        at_threshold=False,
        at_once=at_once,
        options={
            "reset": _reset(name, lif, at_once),
            "attached_reset": at_once,
            "normalised": False,
            "surrogate": surrogate,
            "sharpness": sharpness,
        },
        learns=tuple(ours for ours, own in (("tau_mem", lif.beta), ("threshold", lif.threshold)) if own.requires_grad),
        recurrent=recurrent,
    )


def _floating(number: Tensor) -> Tensor:
    number = number.detach()
    return number if number.is_floating_point() else number.to(torch.get_default_dtype())


def _reset(name: str, lif: Any, at_once: bool) -> str:
    how = lif.reset_mechanism
    # What runs was chosen when it was made, and, at once, by the number that a state_dict has.
    if lif.state_function.__name__ != _UPDATES[how] or list(_UPDATES)[int(lif.reset_mechanism_val)] != how:
        refuse(
            name,
            f"has reset_mechanism={how!r}, which it got after it was made and does not follow",
            f"make it with reset_mechanism={how!r}",
        )
    if how == "none":
        refuse(name, "has reset_mechanism='none'; ebb's layers have a reset, as by 'subtract' and 'zero'")
    if at_once and how == "subtract":
        refuse(
            name,
            "has reset_mechanism='subtract' with reset_delay=False, which treats membranes that are above the threshold "
            "after a reset in a way of its own",
            "make it with reset_delay=True or reset_mechanism='zero'",
        )
    if (at_once or how == "subtract") and not bool((lif.threshold >= 0).all()):
        refuse(
            name,
            "has a threshold below 0: snnTorch resets the membrane of 0 that it begins with, although nothing has fired; "
            "ebb's layers do not",
        )
    return "hard" if how == "zero" else "soft"


def _surrogate(name: str, function: Any) -> tuple[str, float]:
    made_by = getattr(function, "__qualname__", "").removesuffix(".<locals>.inner")
    if getattr(function, "__module__", "") != "snntorch.surrogate" or made_by not in _SURROGATES:
        refuse(
            name,
            f"has the spike_grad {made_by or type(function).__name__}; of snntorch.surrogate ebb has atan and fast_sigmoid",
        )
    ours, argument = _SURROGATES[made_by]
    return ours, float(inspect.getclosurevars(function).nonlocals[argument])

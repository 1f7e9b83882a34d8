# SPDX-License-Identifier: Apache-2.0
"""SpikingJelly's neurons in the numbers of ebb's layers. Membranes count from v_reset, so that resets are to 0."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from ebb.nn._foreign_neuron import Neuron, refuse

# What their classes are called here. Two of them are ours at one sharpness only: alpha, and what it is here.
_SURROGATES = {"ATan": "arctan", "SuperSpike": "superspike"}
_AT_ONE = {"SoftSign": (2.0, "fast_sigmoid", 2.0), "PiecewiseQuadratic": (1.0, "triangular", 1.0)}


def _lif(name: str, node: Any) -> Neuron:
    return _neuron(name, node, torch.tensor(1 - 1 / node.tau, dtype=torch.get_default_dtype()))


def _parametric_lif(name: str, node: Any) -> Neuron:
    return _neuron(name, node, torch.sigmoid(-node.w.detach()), ("tau_mem",) if node.w.requires_grad else ())


READERS: dict[str, Callable[[str, Any], Neuron]] = {"LIFNode": _lif, "ParametricLIFNode": _parametric_lif}


def _neuron(name: str, node: Any, decay: Tensor, learns: tuple[str, ...] = ()) -> Neuron:
    if node.store_v_seq:
        refuse(
            name,
            "has store_v_seq=True; ebb's layers give back the last membranes only",
            "make it with store_v_seq=False",
        )
    surrogate, sharpness = _surrogate(name, node.surrogate_function)
    soft = node.v_reset is None
    return Neuron(
        name,
        decay=decay,
        threshold=decay.new_tensor(node.v_threshold if soft else node.v_threshold - node.v_reset),
        at_threshold=True,
        at_once=True,
        options={
            "reset": "soft" if soft else "hard",
            "attached_reset": not node.detach_reset,
            "normalised": node.decay_input,
            "surrogate": surrogate,
            "sharpness": sharpness,
        },
        learns=learns,
    )


def _surrogate(name: str, function: Any) -> tuple[str, float]:
    kind = type(function).__name__
    known = type(function).__module__ == "spikingjelly.activation_based.surrogate"
    if known and not function.spiking:
        refuse(name, f"has {kind}(spiking=False), which gives no spikes", "make it with spiking=True")
    if known and kind in _SURROGATES:
        return _SURROGATES[kind], float(function.alpha)
    if known and kind in _AT_ONE and function.alpha == _AT_ONE[kind][0]:
        return _AT_ONE[kind][1:]
    at_one = " and ".join(f"{other}(alpha={alpha})" for other, (alpha, *_) in _AT_ONE.items())
    refuse(
        name,
        f"has the surrogate_function {function!r}; of SpikingJelly's ebb has ATan and SuperSpike, and {at_one}",
        "make it with one of these",
    )

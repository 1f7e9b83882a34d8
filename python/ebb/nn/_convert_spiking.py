# SPDX-License-Identifier: Apache-2.0
"""Neurons of other packages, known without importing these: a neuron is there only if its package was imported."""

from __future__ import annotations

import sys
from typing import Any

from torch import nn

from ebb.nn import _convert_snntorch, _convert_spikingjelly
from ebb.nn._foreign_neuron import refuse
from ebb.nn.spiking import ALIF, LIF

# Where neurons are defined, where users find them, and who reads them.
_PACKAGES = {
    "snntorch._neurons": ("snntorch", _convert_snntorch.READERS),
    "spikingjelly.activation_based.neuron": (
        "spikingjelly.activation_based.neuron",
        _convert_spikingjelly.READERS,
    ),
}


def is_foreign(module: nn.Module) -> bool:
    """Whether it is a neuron of one of these packages, or derived from one, and not built on torch's recurrent layers."""
    return _origin(module) is not None and not any(isinstance(part, nn.RNNBase) for part in module.modules())


def as_layer(module: Any, units: int | None, **how: Any) -> LIF | ALIF:
    """The layer that computes the same; `how`: its budget and so on."""
    origin, kind = _origin(module), type(module)
    assert origin is not None
    base, place = origin
    public, readers = _PACKAGES[place]
    name = f"{public}.{base.__name__}"
    if base is not kind:
        refuse(f"{kind.__module__}.{kind.__qualname__}", f"is derived from {name}, and may compute something else")
    if getattr(sys.modules.get(public), base.__name__, None) is not base or base.__name__ not in readers:
        refuse(name, f"has equations of its own; of {public} ebb has {' and '.join(readers)}")
    return readers[base.__name__](name, module).layer(units, **how).train(module.training)


def _origin(module: nn.Module) -> tuple[type, str] | None:
    """The nearest class of such a package, and where it is defined."""
    for base in type(module).__mro__:
        for place in _PACKAGES:
            if base.__module__ == place or base.__module__.startswith(place + "."):
                return base, place
    return None

# SPDX-License-Identifier: Apache-2.0
"""The ways of training a net that the compression benchmarks compare, by name."""

from __future__ import annotations

from collections.abc import Callable

from published import published
from torch import Tensor, nn

import ebb

LOSSY = [("pool", 4), "int8"]

# Each changes the model, which the sample goes through.
VARIANTS: dict[str, Callable[[nn.Module, Tensor], nn.Module]] = {
    "stock": lambda model, sample: model,
    "published2": lambda model, sample: published(model, 2),
    "published4": lambda model, sample: published(model, 4),
    "exact": lambda model, sample: ebb.compress(model),
    "recompute": lambda model, sample: ebb.compress(model, norm="recompute"),
    "pool2": lambda model, sample: ebb.compress(model, 2),
    # Also what can be computed again from a norm's input: less to compute, more to keep.
    "pool2-all": lambda model, sample: ebb.compress(
        model, {name: 2 for name, layer in model.named_modules() if isinstance(layer, nn.Conv2d)}
    ),
    "pool4": lambda model, sample: ebb.compress(model, 4),
    "int8": lambda model, sample: ebb.compress(model, norm="int8"),
    "pool2-int8": lambda model, sample: ebb.compress(model, 2, norm="int8"),
    "pool4-int8": lambda model, sample: ebb.compress(model, 4, norm="int8"),
    "fit50": lambda model, sample: ebb.fit(model, sample, "50%", lossy=()),
    "fit25": lambda model, sample: ebb.fit(model, sample, "25%", lossy=()),
    "fit50-lossy": lambda model, sample: ebb.fit(model, sample, "50%", lossy=LOSSY),
    "fit25-lossy": lambda model, sample: ebb.fit(model, sample, "25%", lossy=LOSSY),
}

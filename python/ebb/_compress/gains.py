# SPDX-License-Identifier: Apache-2.0
"""Which layers of a model gain something by being compressed: as far as their options tell, and in a step on a sample."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Any

from torch import nn

from ebb._compress.kinds import CONVS, DROPOUTS, GATES, NORMS, POOLS, RELUS, SQUASHES, is_compressed, stock
from ebb._compress.layers.maxpool import small_windows
from ebb._compress.record import Event
from ebb._compress.settings import Settings, settings_of


def without_gain(chosen: Mapping[nn.Module, Settings], functions: Collection[str] = ()) -> set[nn.Module]:
    """Layers that cannot keep less, whatever the model does with them.

    A ReLU, a max-pooling and a dropout keep less by themselves. Others do where their input can be computed again: from what
    a norm keeps, or an activation that does not overwrite its input. Where no layer of the model is such a one, they keep what
    torch's own layers keep. `functions` are kinds of layers that the model calls as functions."""
    sources = leave_recipes(functions) or any(
        stock(layer) in NORMS or (stock(layer) in GATES and not getattr(layer, "inplace", False)) for layer in chosen
    )
    return {layer for layer, settings in chosen.items() if not _may_gain(layer, settings, sources)}


def leave_recipes(functions: Collection[str]) -> bool:
    """Whether one of these kinds keeps what its output can be computed from."""
    return any(kind.__name__ in functions for kind in (*GATES, *NORMS))


def _may_gain(layer: Any, settings: Settings, sources: bool) -> bool:
    kind = stock(layer)
    if settings.way == "compress":
        return True
    if kind in DROPOUTS:
        return 0 < layer.p < 1
    if kind in POOLS:
        return small_windows(layer)
    if kind is nn.LeakyReLU:
        return bool(layer.negative_slope != 0)
    return kind in RELUS or sources


class Gains:
    """What a step keeps, by the layers that keep it: before, with stock layers, and now."""

    def __init__(self, before: list[Event], now: list[Event]):
        self._before, self._now, self._events = _sums(before), _sums(now), now
        self._kept = {one.storage for event in now for one in event.kept}
        self.stock_kept, self.kept = sum(self._before.values()), sum(self._now.values())

    def layers(self) -> set[nn.Module]:
        """Those that keep less, and those from whose recipes others do."""
        found: set[nn.Module] = set()
        wanted = {one.tensor for event in self._events for one in event.saved if one.storage not in self._kept}
        for event in reversed(self._events):
            layer = event.layer
            if layer is None or not is_compressed(layer):
                continue
            gives = _leaves_recipe(layer) and event.y_tensor in wanted
            if gives or self._keeps_less(event, layer):
                found.add(layer)
                if event.x_tensor is not None and event.x_storage not in self._kept and _reads_recipe(layer, gives):
                    wanted.add(event.x_tensor)
        return found

    def _keeps_less(self, event: Event, layer: nn.Module) -> bool:
        """Of what another one keeps all the same, less is nothing saved."""
        if self._now.get(event.name, 0) >= self._before.get(event.name, 0):
            return False
        kind = stock(layer)
        if kind in POOLS or kind in DROPOUTS or settings_of(layer).way == "compress":
            return True
        return (event.y_storage if kind in RELUS or kind in SQUASHES else event.x_storage) not in self._kept


def _sums(events: list[Event]) -> dict[str, int]:
    found: dict[str, int] = {}
    for event in events:
        found[event.name] = found.get(event.name, 0) + event.bytes
    return found


def _leaves_recipe(layer: nn.Module) -> bool:
    kind = stock(layer)
    if kind in CONVS:
        return settings_of(layer).offers
    return kind is nn.ReLU or any(kind in kinds for kinds in (NORMS, GATES, SQUASHES, DROPOUTS))


def _reads_recipe(layer: nn.Module, gives: bool) -> bool:
    """Whether it keeps less because of what the layer before it left; a dropout hands that on."""
    kind = stock(layer)
    return gives if kind in DROPOUTS else kind not in POOLS and (kind is nn.ReLU or kind not in RELUS)

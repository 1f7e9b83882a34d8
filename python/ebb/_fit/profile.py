# SPDX-License-Identifier: Apache-2.0
"""What the options of every layer cost, measured on a sample."""

from __future__ import annotations

import math
import os
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import nn

from ebb._base.errors import Error
from ebb._base.sizes import UNLIMITED
from ebb._compress.compress import compressed_layers
from ebb._compress.record import Event, record_bytes, record_times
from ebb._compress.sample_step import SampleStep
from ebb._compress.settings import settings_of, weight_of
from ebb._fit.plan import KEEP, FitPlan, LayerCall, Option, Planner
from ebb._tensor.tier_speed import speed_of
from ebb._tensor.trees import rounded
from ebb.tiers import file_tier, memory_tier

ROUNDS = 3  # of which the fastest counts
CONVOLUTIONS = (nn.Conv1d, nn.Conv2d, nn.Conv3d)
_KINDS: dict[Any, str] = {
    **dict.fromkeys(CONVOLUTIONS, "conv"),
    nn.ReLU: "relu",
    nn.Linear: "linear",
    **dict.fromkeys((nn.BatchNorm1d, nn.BatchNorm2d, nn.BatchNorm3d, nn.LayerNorm, nn.GroupNorm), "norm"),
    **dict.fromkeys((nn.SiLU, nn.GELU, nn.Hardswish, nn.Mish), "gate"),
    **dict.fromkeys((nn.Dropout, nn.Dropout1d, nn.Dropout2d, nn.Dropout3d), "dropout"),
}
_BLOCKS = (2, 4, 8)
_LINEAR = {"linear": "int8", "project": "project"}
_PROBED = 4 << 20  # bytes, of an item that is moved to see how fast that is


@dataclass(frozen=True)
class Allowed:
    """What may be used besides keeping and computing again."""

    blocks: tuple[int, ...] = ()
    norm: bool = False
    linear: tuple[str, ...] = ()
    disk: str | os.PathLike[str] | None = None

    @classmethod
    def of(cls, lossy: Any, disk: Any) -> Allowed:
        blocks, norm, linear = 0, False, set()
        for word in _words(lossy):
            if word == "pool":
                blocks = max(blocks, 2)
            elif _is_pair(word) and word[0] == "pool" and word[1] in _BLOCKS:
                blocks = max(blocks, word[1])
            elif word == "int8":
                norm = True
            elif word in list(_LINEAR):  # it may be something without a hash
                linear.add(word)
            else:
                raise Error(
                    f"fit: lossy has {word!r}; it may have 'pool' (blocks of 2), ('pool', 4), ('pool', 8), 'int8' (norms), "
                    "'linear' (8 bits) and 'project' (linear layers, a quarter as many rows)"
                )
        if disk is not None and not isinstance(disk, (str, os.PathLike)):
            raise Error(f"fit: disk is {disk!r}; it must be a directory, or None")
        return cls(
            tuple(block for block in _BLOCKS if block <= blocks),
            norm,
            tuple(codec for word, codec in _LINEAR.items() if word in linear),
            disk,
        )


def _words(lossy: Any) -> Iterable[Any]:
    if isinstance(lossy, str) or _is_pair(lossy):
        return (lossy,)
    if not isinstance(lossy, Iterable) or isinstance(lossy, Mapping):
        raise Error(
            f"fit: lossy is {lossy!r}; it must be 'pool', ('pool', 4), ('pool', 8), 'int8', 'linear' or 'project', or a list "
            "of them"
        )
    return lossy


def _is_pair(word: Any) -> bool:
    return isinstance(word, tuple) and len(word) == 2 and isinstance(word[0], str) and isinstance(word[1], int)


class Profile:
    """Of a model, compressed with exact options, on a sample. `measured` are the plans that have been tried, with their peak."""

    def __init__(self, step: SampleStep, stock_peak: int | None, stock_seconds: float | None, allowed: Allowed):
        self.stock_peak, self.stock_seconds = stock_peak, stock_seconds
        self.measured: dict[Any, tuple[int, FitPlan]] = {}
        for layer in compressed_layers(step.model).values():
            settings_of(layer).offers = True
        events = record_bytes(step)
        self.largest = max((event.x_bytes for event in events), default=0)  # of what could be moved
        times = record_times(step, ROUNDS)
        self.seconds = step.seconds(ROUNDS)
        transfer = _transfer(step, allowed, events, times)
        self.moves = transfer is not None
        steps = _Steps(step.device, times, _Variants(step, compressed_layers(step.model), allowed), transfer)
        self.steps = [steps.of(event) for event in events]
        self.under_way = 2 if step.device.type == "cuda" else 1  # copies out at once
        # One more is read ahead.
        self.planner = Planner(self.steps, (self.under_way + 1) * self.largest)


class _Steps:
    """Makes numbers of events."""

    def __init__(
        self, device: torch.device, times: dict[str, tuple[float, float]], variants: _Variants, transfer: float | None
    ):
        self._device = device
        self._times, self._variants, self._transfer = times, variants, transfer

    def of(self, event: Event) -> LayerCall:
        layer = event.layer
        kind = _KINDS.get(getattr(layer, "stock", None), "other")
        if not event.works and layer is not None:
            return LayerCall(event.name, "other", scratch=event.scratch)
        if kind == "other":
            saved: tuple[tuple[int | None, int, int], ...]
            if event.saved:
                saved = tuple((one.tensor, one.storage, one.bytes) for one in event.saved)
            else:
                saved = tuple((None, one.storage, one.bytes) for one in event.kept if one.bytes)
            return LayerCall(event.name, kind, saved=saved, scratch=event.scratch)
        own = sum(kept.bytes for kept in event.kept if kept.storage != event.x_storage)
        weight = weight_of(layer)
        needs_x = kind not in ("conv", "linear") or weight is None or weight.requires_grad
        forward = self._times[event.name][0]
        bits = rounded(-(-math.prod(event.x_shape) // 8), self._device)
        step = LayerCall(
            event.name,
            kind,
            event.x_tensor,
            event.y_tensor,
            event.x_storage,
            event.x_bytes,
            own,
            (),
            needs_x,
            event.offers,
            bits,
            forward,
            event.scratch,
        )
        options = [KEEP]
        if event.x_bytes > 0 and needs_x:
            before = sum(self._times[event.name])
            options += self._variants.options(event, kind, before)
            if kind == "norm":
                options.append(Option("recompute"))
            elif kind == "relu":
                options.append(Option("bits"))
            if self._transfer is not None and kind in ("conv", "norm", "linear", "gate"):
                options.append(Option("offload", seconds=self._transfer * event.x_bytes))
        return replace(step, options=tuple(options))


class _Variants:
    """The model with every lossy option that is allowed, several at once: each concerns other layers."""

    def __init__(self, step: SampleStep, layers: dict[str, nn.Module], allowed: Allowed):
        self._layers, self._step, self._allowed = layers, step, allowed
        self._pooled: dict[int, dict[str, tuple[float, float]]] = {}
        self._linear: dict[str, tuple[dict[str, int], dict[str, tuple[float, float]]]] = {}
        self._norm: tuple[dict[str, int], dict[str, tuple[float, float]]] | None = None
        before = {layer: replace(settings_of(layer)) for layer in layers.values()}
        runs = max(len(allowed.blocks), len(allowed.linear), int(allowed.norm))
        try:
            for k in range(runs):
                self._run(k)
        finally:
            for layer, settings in before.items():
                layer.ebb_settings = settings  # type: ignore[assignment]

    def _run(self, k: int) -> None:
        allowed = self._allowed
        block = allowed.blocks[k] if k < len(allowed.blocks) else None
        codec = allowed.linear[k] if k < len(allowed.linear) else None
        for layer in self._layers.values():
            kind, settings = _KINDS.get(layer.stock), settings_of(layer)
            if kind == "conv" and block is not None:
                settings.way, settings.block = "compress", (block,) * len(layer.stride)  # type: ignore[arg-type]
                settings.always = True
            elif kind == "linear" and codec is not None:
                settings.way, settings.codec = "compress", codec
            elif kind == "norm" and k == 0 and allowed.norm:
                settings.way = "compress"
            else:
                settings.way = "keep"
        sizes = {event.name: event.bytes for event in record_bytes(self._step)}
        times = record_times(self._step, ROUNDS)
        if block is not None:
            self._pooled[block] = times
        if codec is not None:
            self._linear[codec] = sizes, times
        if k == 0 and allowed.norm:
            self._norm = sizes, times

    def options(self, event: Event, kind: str, before: float) -> list[Option]:
        found = []
        if kind == "conv":
            for block, times in self._pooled.items():
                size = (
                    math.prod(event.x_shape[:2]) * math.prod(-(-n // block) for n in event.x_shape[2:]) * event.x_item
                )
                found.append(_lossy("compress", times, event, before, rounded(size, self._step.device), block=block))
        elif kind == "norm" and self._norm is not None:
            found.append(_lossy("compress", self._norm[1], event, before, self._norm[0][event.name]))
        elif kind == "linear":
            for codec, (sizes, times) in self._linear.items():
                found.append(_lossy("compress", times, event, before, sizes[event.name], codec=codec))
        return found


def _lossy(way: str, times: Any, event: Event, before: float, size: int, **rest: Any) -> Option:
    # Never for speed alone: what is lossy is used where the budget asks for it.
    return Option(way, bytes=size, seconds=max(1e-7, sum(times[event.name]) - before), **rest)


def _transfer(
    step: SampleStep, allowed: Allowed, events: list[Event], times: dict[str, tuple[float, float]]
) -> float | None:
    """Seconds that a byte takes on its way out and back and that computation does not hide, were everything moved; None where
    there is no place for it."""
    if step.device.type == "cuda":
        speed = speed_of(memory_tier(UNLIMITED), _PROBED, step.device)
    elif allowed.disk is not None:
        speed = speed_of(file_tier(allowed.disk, 8 * _PROBED), _PROBED, step.device)
    else:
        return None
    whole = max(1, sum(kept.bytes for event in events for kept in event.kept))
    forward, backward = (sum(pair[way] for pair in times.values()) for way in (0, 1))
    return max(0.0, 1 / speed.write_rate - forward / whole) + max(0.0, 1 / speed.read_rate - backward / whole) + 1e-13

# SPDX-License-Identifier: Apache-2.0
"""One net, trained one way: what a step of it keeps, holds phase by phase, and takes."""

from __future__ import annotations

import itertools
import time
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from typing import Any

import torch
import torch.nn.functional as F
from kept import Kept
from nets import build_for
from torch import Tensor
from variants import VARIANTS

from ebb._tensor.memory import LiveBytes

PHASES = ("input", "forward", "loss", "backward", "optimiser")
OPTIMISERS: dict[str, Callable[..., torch.optim.Optimizer]] = {
    "adam": torch.optim.Adam,
    "sgd": lambda parameters: torch.optim.SGD(parameters, 0.01, momentum=0.9),
}


@dataclass(frozen=True)
class Setting:
    """What all variants of one table share."""

    net: str
    batch: int
    pixels: int
    device: torch.device
    channels_last: bool = False
    amp: torch.dtype | None = None
    optimiser: str = "adam"

    @property
    def layout(self) -> torch.memory_format:
        return torch.channels_last if self.channels_last else torch.contiguous_format

    def images(self) -> Tensor:
        drawn = torch.randn(self.batch, 3, self.pixels, self.pixels, device=self.device)
        return drawn.contiguous(memory_format=self.layout)

    def autocast(self) -> AbstractContextManager[Any]:
        return nullcontext() if self.amp is None else torch.autocast(self.device.type, self.amp)


class Held:
    """Bytes held beyond those at the start: after each phase, and at most during it. Tracked tensors on a CPU, the
    allocator on a GPU."""

    def __init__(self, device: torch.device):
        self._device = device
        self.after: dict[str, int] = {}
        self.most: dict[str, int] = {}
        self._live = None if device.type == "cuda" else LiveBytes()

    def __enter__(self) -> Held:
        if self._live is None:
            torch.cuda.synchronize(self._device)
            self._before = torch.cuda.memory_allocated(self._device)
            torch.cuda.reset_peak_memory_stats(self._device)
        else:
            self._live.__enter__()
        return self

    def __exit__(self, *error: object) -> None:
        if self._live is not None:
            self._live.__exit__(*error)

    def end(self, phase: str) -> None:
        if self._live is None:
            torch.cuda.synchronize(self._device)
            self.after[phase] = torch.cuda.memory_allocated(self._device) - self._before
            self.most[phase] = torch.cuda.max_memory_allocated(self._device) - self._before
            torch.cuda.reset_peak_memory_stats(self._device)
        else:
            self.after[phase], self.most[phase] = self._live.live, self._live.peak
            self._live.peak = self._live.live


class Trial:
    """The net from the same weights for every variant, and the same images and labels."""

    def __init__(self, setting: Setting, variant: str):
        self.setting = setting
        torch.manual_seed(1)
        self.images = setting.images()
        self.labels = torch.randint(0, 10, (setting.batch,), device=setting.device)
        with setting.device:
            model = build_for(setting.net, setting.pixels).to(memory_format=setting.layout)
        with setting.autocast():  # what ebb.fit measures is what is run
            self.model = VARIANTS[variant](model, self.images)
        self._optimiser = OPTIMISERS[setting.optimiser](self.model.parameters())

    def loss(self, images: Tensor) -> Tensor:
        with self.setting.autocast():
            return F.cross_entropy(self.model(images), self.labels)

    def kept(self) -> tuple[float, int, int]:
        """A loss, for which random layers draw the same numbers every time, and the bytes kept for its backward pass:
        with the images if they are among them, and without."""
        torch.manual_seed(2)
        kept = Kept(lambda: self.loss(self.images))
        weights = [*self.model.parameters(), *self.model.buffers()]
        return kept.result.item(), kept.bytes(weights), kept.bytes([*weights, self.images])

    def step(self) -> None:
        self._optimiser.zero_grad(set_to_none=True)
        self.loss(self.images).backward()
        self._optimiser.step()

    def own_bytes(self) -> int:
        """Of weights, buffers and the optimiser's state."""
        state = (
            value for entry in self._optimiser.state.values() for value in entry.values() if isinstance(value, Tensor)
        )
        storages = {
            tensor.untyped_storage()._cdata: tensor.untyped_storage().nbytes()
            for tensor in itertools.chain(self.model.parameters(), self.model.buffers(), state)
        }
        return sum(storages.values())

    def phases(self) -> tuple[dict[str, int], dict[str, int]]:
        """Bytes held after each phase of a step that is not the first, and at most during it: own bytes and more."""
        self.step()
        self._optimiser.zero_grad(set_to_none=True)
        with Held(self.setting.device) as held:
            images = self.setting.images()
            held.end("input")
            with self.setting.autocast():
                scores = self.model(images)
                held.end("forward")
                loss = F.cross_entropy(scores, self.labels)
            del scores
            held.end("loss")
            loss.backward()
            del loss
            held.end("backward")
            self._optimiser.step()
            held.end("optimiser")
        own = self.own_bytes()
        return (
            {"model": own} | {phase: own + held.after[phase] for phase in PHASES},
            {"model": own} | {phase: own + held.most[phase] for phase in PHASES},
        )

    def seconds(self, steps: int) -> float:
        """Of one step, over that many in a row."""
        self._wait()
        start = time.perf_counter()
        for _ in range(steps):
            self.step()
        self._wait()
        return (time.perf_counter() - start) / steps

    def _wait(self) -> None:
        if self.setting.device.type == "cuda":
            torch.cuda.synchronize(self.setting.device)

# SPDX-License-Identifier: Apache-2.0
"""Nets of other packages, left out where a package is not installed: building one raises ImportError."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import torch
from loop import Loop, Setting
from torch import Tensor
from torch.nn.functional import cross_entropy

_CLASSES = 20


class _Spiking(Loop):
    @classmethod
    def data(cls, setting: Setting) -> Tensor:
        return super().data(replace(setting, inputs=setting.spiking_inputs))

    def classes(self) -> Tensor:
        return (torch.arange(self.setting.batch) % _CLASSES).to(self.setting.device)


class SnnTorchLoop(_Spiking):
    """Two layers of Leaky neurons, their membranes in the carry."""

    name = "snnTorch Leaky net"
    ways = ("plain", "5", "15", "5-eager", "captured")

    def __init__(self, setting: Setting, xs: Tensor):
        super().__init__(setting, xs)
        import snntorch

        self.module = torch.nn.ModuleDict(
            {
                "into": torch.nn.Linear(setting.spiking_inputs, setting.hidden),
                "hidden": snntorch.Leaky(beta=0.9, learn_beta=True),
                "out": torch.nn.Linear(setting.hidden, _CLASSES),
                "last": snntorch.Leaky(beta=0.8, learn_beta=True),
            }
        )
        setting.moved(self.module)
        into, hidden, out, last = self.module.values()
        classes = self.classes()

        def f(carry: tuple, x: Tensor) -> tuple:
            spikes, first = hidden(into(x), carry[0])
            _, second = last(out(spikes), carry[1])
            return (first, second), cross_entropy(second.float(), classes)

        self.f = f

    def start(self) -> tuple[Tensor, Tensor]:
        return self.zeros(), self.zeros().new_zeros(self.setting.batch, _CLASSES)


class NorseLoop(_Spiking):
    """LIFRecurrentCell, its named tuple in the carry."""

    name = "Norse LIFRecurrentCell"
    ways = ("plain", "5", "15", "5-eager", "captured")

    def __init__(self, setting: Setting, xs: Tensor):
        super().__init__(setting, xs)
        import norse.torch

        self.module = cell = setting.moved(norse.torch.LIFRecurrentCell(setting.spiking_inputs, setting.hidden))

        def f(state: Any, x: Tensor) -> tuple:
            spikes, state = cell(x, state)
            return state, spikes.float().mean()

        self.f = f

    def start(self) -> Any:
        # Norse's own start has a leaf that requires a gradient, which would be thrown away.
        found = self.module.initial_state(self.xs[0])
        return type(found)(*(one.detach().to(self.xs.dtype) for one in found))


class SpikingJellyLoop(_Spiking):
    """Two layers of LIFNodes, which keep their state in themselves."""

    name = "SpikingJelly LIFNode net"
    ways = ("plain", "5", "15", "5-eager", "captured", "spikingjelly")

    def __init__(self, setting: Setting, xs: Tensor):
        super().__init__(setting, xs)
        from spikingjelly.activation_based import functional, neuron

        self.module = net = setting.moved(
            torch.nn.Sequential(
                torch.nn.Linear(setting.spiking_inputs, setting.hidden),
                neuron.LIFNode(),
                torch.nn.Linear(setting.hidden, _CLASSES),
                neuron.LIFNode(),
            )
        )
        self._reset = functional.reset_net
        classes = self.classes()

        def f(carry: None, x: Tensor) -> tuple:
            return carry, cross_entropy(net(x).float(), classes)

        self.f = f

    def start(self) -> None:
        self._reset(self.module)

    def graphed(self) -> Callable[[], None]:
        """SpikingJelly's own CUDA graph, as its trainer uses it: a training step, forward and backward, captured whole."""
        from spikingjelly.activation_based._cuda_graph import StaticCudaGraph

        def step(xs: Tensor) -> Tensor:
            loss = self.loss(xs)
            loss.backward()
            return loss

        training = StaticCudaGraph(step, 3)
        xs = self.xs
        return lambda: training(xs)

# SPDX-License-Identifier: Apache-2.0
"""Neurons that keep their state in themselves, each in another way."""

from __future__ import annotations

import collections

import torch

BATCH, INPUTS, WIDTH = 2, 3, 5


class Neuron(torch.nn.Module):
    """A membrane that leaks, and its spikes."""

    def __init__(self):
        super().__init__()
        self.into = torch.nn.Linear(INPUTS, WIDTH, bias=False)
        self.reset()

    def reset(self):
        self.membrane = torch.zeros(BATCH, WIDTH)

    def spikes(self, membrane):
        return torch.sigmoid(4 * (membrane - 0.2))

    def forward(self, x):
        self.membrane = 0.9 * self.membrane + self.into(x)
        return self.spikes(self.membrane)


class Buffer(Neuron):
    def reset(self):
        self.register_buffer("membrane", torch.zeros(BATCH, WIDTH), persistent=False)


class Number(Neuron):
    """As SpikingJelly's: a number until the first input."""

    def reset(self):
        self.memories = {"membrane": 0.0}

    def forward(self, x):
        self.memories["membrane"] = 0.9 * self.memories["membrane"] + self.into(x)
        return self.spikes(self.memories["membrane"])


class Nothing(Neuron):
    def reset(self):
        self.__dict__.pop("membrane", None)

    def forward(self, x):
        before = getattr(self, "membrane", torch.zeros(BATCH, WIDTH))
        self.membrane = 0.9 * before + self.into(x)
        return self.spikes(self.membrane)


class Counter(Neuron):
    """Its threshold depends on how often it was called."""

    def reset(self):
        super().reset()
        self.calls = 0

    def forward(self, x):
        self.calls += 1
        return super().forward(x) * (1 + 0.01 * self.calls)


class DelayLine(Neuron):
    def reset(self):
        super().reset()
        self.line = collections.deque([torch.zeros(BATCH, WIDTH)] * 4, maxlen=4)

    def forward(self, x):
        self.line.append(super().forward(x))
        return self.line[0] + self.line[-1]


class Shifted(Neuron):
    """A list that is made anew."""

    def reset(self):
        super().reset()
        self.line = [torch.zeros(BATCH, WIDTH)] * 3

    def forward(self, x):
        self.line = self.line[1:] + [super().forward(x)]
        return self.line[0] * self.line[-1]


class Pair(Neuron):
    """A named tuple, one of whose tensors has no gradient."""

    State = collections.namedtuple("State", "membrane trace")

    def reset(self):
        self.state = None

    def forward(self, x):
        zeros = torch.zeros(BATCH, WIDTH)
        before = self.State(zeros, zeros) if self.state is None else self.state
        membrane = 0.9 * before.membrane + self.into(x)
        self.state = self.State(membrane, 0.5 * before.trace + membrane.detach().abs())
        return self.spikes(membrane - 0.1 * self.state.trace)


class InPlace(Neuron):
    """A trace that is changed in place, beside a membrane that is bound anew."""

    def reset(self):
        super().reset()
        self.trace = torch.zeros(BATCH, WIDTH)

    def follow(self, spikes):
        with torch.no_grad():
            self.trace.mul_(0.8).add_(spikes)

    def forward(self, x):
        found = super().forward(x)
        self.follow(found)
        return found - 0.1 * self.trace.clone()


class Behind(InPlace):
    """In place where autograd does not look."""

    def follow(self, spikes):
        self.trace.data.mul_(0.8).add_(spikes.data)


class Slotted:
    __slots__ = ("membrane",)


class Elsewhere(Neuron):
    """In an object that is no module and has no __dict__."""

    def reset(self):
        self.keeper = Slotted()
        self.keeper.membrane = torch.zeros(BATCH, WIDTH)

    def forward(self, x):
        self.keeper.membrane = 0.9 * self.keeper.membrane + self.into(x)
        return self.spikes(self.keeper.membrane)


class OnlyEvents(Neuron):
    """Silent inputs leave it alone."""

    def forward(self, x):
        if bool(x.any()):
            return super().forward(x)
        return self.spikes(self.membrane + self.into(x))


NEURONS = [
    Neuron,
    Buffer,
    Number,
    Nothing,
    Counter,
    DelayLine,
    Shifted,
    Pair,
    InPlace,
    Behind,
    Elsewhere,
    OnlyEvents,
]

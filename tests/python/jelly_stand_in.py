# SPDX-License-Identifier: Apache-2.0
"""What ebb.nn.convert reads of SpikingJelly, where that is not installed: modules of its names, whose nodes are loops of the equations
that its documentation has, written for these tests."""

import math
import sys
import types

import torch
from spiking_reference import Spike

PACKAGE = "spikingjelly.activation_based"
PSI = {
    "ATan": lambda x, a: a / 2 / (1 + (math.pi / 2 * a * x) ** 2),
    "SuperSpike": lambda x, a: a / (1 + x.abs()) ** 2,
    "SoftSign": lambda x, a: 1 / (2 * a * (1 / a + x.abs()) ** 2),
    "PiecewiseQuadratic": lambda x, a: (a - a**2 * x.abs()).clamp(min=0),
    "Sigmoid": lambda x, a: a * torch.sigmoid(a * x) * (1 - torch.sigmoid(a * x)),
}


class Surrogate(torch.nn.Module):
    def __init__(self, alpha=2.0, spiking=True):
        super().__init__()
        self.alpha, self.spiking = alpha, spiking

    def forward(self, x):
        return Spike.apply(x, PSI[type(self).__name__](x.detach(), self.alpha))


class Node(torch.nn.Module):
    def __init__(self, surrogate_function, v_threshold=1.0, v_reset=0.0, detach_reset=False, store_v_seq=False, **own):
        super().__init__()
        self.surrogate_function, self.v_threshold, self.v_reset = surrogate_function, v_threshold, v_reset
        self.detach_reset, self.store_v_seq = detach_reset, store_v_seq
        self.decay_input, self.step_mode = own.pop("decay_input", True), own.pop("step_mode", "s")
        self.charges(**own)

    def forward(self, xs):
        rest = self.v_reset or 0.0
        v, spikes = torch.full_like(xs[0], rest), []
        for x in xs:
            v = v + (x - (v - rest)) * self.rate() if self.decay_input else v - (v - rest) * self.rate() + x
            spikes.append(self.surrogate_function(v - self.v_threshold))
            reset = spikes[-1].detach() if self.detach_reset else spikes[-1]
            v = v - reset * self.v_threshold if self.v_reset is None else reset * rest + (1 - reset) * v
        return torch.stack(spikes)


class LIFNode(Node):
    def charges(self, tau=2.0):
        self.tau = tau

    def rate(self):
        return 1 / self.tau


class ParametricLIFNode(Node):
    def charges(self, init_tau=2.0):
        self.w = torch.nn.Parameter(torch.tensor(-math.log(init_tau - 1)))

    def rate(self):
        return self.w.sigmoid()


class IFNode(Node):
    def charges(self):
        pass


def installed(monkeypatch):
    """Puts the modules in place until the test ends; returns (neuron, surrogate)."""
    neuron, surrogate = types.ModuleType(f"{PACKAGE}.neuron"), types.ModuleType(f"{PACKAGE}.surrogate")
    for kind in (LIFNode, ParametricLIFNode, IFNode):
        monkeypatch.setattr(kind, "__module__", f"{PACKAGE}.neuron")
        setattr(neuron, kind.__name__, kind)
    for name in PSI:
        setattr(surrogate, name, type(name, (Surrogate,), {"__module__": f"{PACKAGE}.surrogate"}))
    monkeypatch.setitem(sys.modules, neuron.__name__, neuron)
    monkeypatch.setitem(sys.modules, surrogate.__name__, surrogate)
    return neuron, surrogate

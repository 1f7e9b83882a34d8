# SPDX-License-Identifier: Apache-2.0
"""Layers over stand-ins for the library's own GPU kernels, beside torch's own in float64."""

from __future__ import annotations

import gated_stand_in
import pytest
import torch

import ebb.nn

NAMES = ["LSTM", "GRU", "RNN"]


@pytest.fixture(autouse=True)
def on_a_gpu(monkeypatch):
    """For every test of a file that imports it."""
    gated_stand_in.use(monkeypatch)


class Case:
    """A layer, what it is given, and torch's own in float64 with the same weights."""

    def __init__(self, name, dtype=torch.float32, steps=60, batch=3, inputs=5, hidden=8, budget="60%", chunk=7, **how):
        torch.manual_seed(0)
        self.net = getattr(ebb.nn, name)(inputs, hidden, budget=budget, chunk=chunk, **how).to(dtype)
        self.exact = getattr(torch.nn, name)(inputs, hidden, **how).double()
        self.exact.load_state_dict(self.net.state_dict())
        self.x = torch.randn(steps, batch, inputs).to(dtype)
        layers = self.net.num_layers * (2 if self.net.bidirectional else 1)
        self.states = [torch.randn(layers, batch, hidden).to(dtype) for _ in range(2 if name == "LSTM" else 1)]

    def freeze(self, parts):
        for net in (self.net, self.exact):
            for name, parameter in net.named_parameters():
                parameter.requires_grad_(not any(part in name for part in parts))

    def results(self, net=None, of_x=True, of_states=True, uses="ys"):
        net = net or self.net
        dtype = next(net.parameters()).dtype
        x = self.x.to(dtype, copy=True).requires_grad_(of_x)
        states = [state.detach().to(dtype).requires_grad_(of_states) for state in self.states]  # where they lie
        y, last = net(x, tuple(states) if len(states) == 2 else states[0])
        last = last if isinstance(last, tuple) else (last,)
        loss = y.double().pow(2).mean() if "y" in uses else 0
        if "s" in uses:
            loss = loss + sum(state.double().sin().mean() for state in last)
        assert loss.requires_grad
        loss.backward()
        found = [y, *last, x.grad, *[state.grad for state in states], *[p.grad for p in net.parameters()]]
        net.zero_grad()
        return [None if tensor is None else tensor.detach() for tensor in found]

    def check(self, tolerance=1e-5, **how):
        for right, found in zip(self.results(self.exact, **how), self.results(**how)):
            assert (right is None) == (found is None)
            if right is not None:
                assert float((right - found.double()).abs().max()) <= tolerance * max(1e-4, float(right.abs().max()))


def same(one, other):
    return all((a is None and b is None) or torch.equal(a, b) for a, b in zip(one, other))

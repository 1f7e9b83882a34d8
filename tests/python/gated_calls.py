# SPDX-License-Identifier: Apache-2.0
"""Layers that the kernels for gated cells run, beside the same layers in float64; and random calls of them."""

from __future__ import annotations

import random
from dataclasses import dataclass

import torch
from torch.nn.utils.rnn import pack_padded_sequence, pad_packed_sequence

import ebb
import ebb.nn

# Errors that are allowed, as a share of the largest number of a tensor.
DTYPES = {torch.float32: 5e-3, torch.bfloat16: 5e-2, torch.float16: 1e-2}
MULTIPLE = {torch.float32: 16, torch.bfloat16: 32, torch.float16: 32}  # of units that kernels take
CALLS = 8  # of one layer


def results(net, x, states, weights, x_gradient=True, lengths=None):
    """Outputs and gradients of the parameters, of the states, if there are any, and of the inputs, if that is wanted. With `lengths`
    sequences are packed."""
    dtype = next(net.parameters()).dtype
    x = x.detach().to(dtype, copy=True).requires_grad_(x_gradient)
    states = [state.detach().to(dtype, copy=True).requires_grad_() for state in states]
    given = x
    if lengths is not None:
        given = pack_padded_sequence(x, lengths, batch_first=net.batch_first, enforce_sorted=False)
    y, last = net(given, tuple(states) if len(states) == 2 else states[0] if states else None)
    if lengths is not None:
        y, _ = pad_packed_sequence(y, batch_first=net.batch_first)
    last = last if isinstance(last, tuple) else (last,)
    (y * weights.to(dtype)).sum().add(sum(state.sin().sum() for state in last)).backward()
    leaves = [*([x] if x_gradient else []), *states, *net.parameters()]
    found = [y, *last, *[leaf.grad for leaf in leaves]]
    net.zero_grad()
    return [tensor.detach().double() for tensor in found]


def farthest(right, found):
    """The largest error of all tensors, each as a share of the tensor's largest number."""
    shares = [(a - b).abs().max() / a.abs().max().clamp(min=1e-4) for a, b in zip(right, found, strict=True)]
    return float(torch.stack(shares).max())


def farthest_whole(right, found):
    """The same of each tensor as a whole, not number by number."""
    shares = [(a - b).norm() / a.norm().clamp(min=1e-4) for a, b in zip(right, found, strict=True)]
    return float(torch.stack(shares).max())


@dataclass
class Layer:
    name: str
    dtype: torch.dtype
    inputs: int
    hidden: int
    how: dict

    def off_by(self, right, found):
        """Errors in units of what is allowed."""
        if self.how.get("nonlinearity") != "relu":
            return farthest(right, found) / DTYPES[self.dtype]
        # A sum near 0 may be rounded to the other side of it, and a unit's gradient be there or not.
        return max(farthest(right[:2], found[:2]) / DTYPES[self.dtype], farthest_whole(right, found) / 0.5)


@dataclass
class Call:
    steps: int
    batch: int
    budget: str
    chunk: int | None
    batch_first: bool
    states: bool
    x_gradient: bool
    lengths: list[int] | None


def random_layer(rng):
    name, dtype = rng.choice(["LSTM", "GRU", "RNN"]), rng.choice(list(DTYPES))
    each = MULTIPLE[dtype]
    hidden = each * rng.choice([1, 2, 3, 4, 6, 8, 11, 16, rng.randint(17, 1024 // each)])
    if rng.random() < 0.4:
        hidden = each * rng.randint(0, 8) + rng.randint(1, each - 1)
    how = {"num_layers": rng.randint(1, 2), "bidirectional": rng.random() < 0.3, "bias": rng.random() < 0.7}
    if name == "RNN":
        how["nonlinearity"] = rng.choice(["tanh", "tanh", "relu"])
    return Layer(name, dtype, rng.randint(1, 80), hidden, how)


def random_calls(rng):
    """A few sizes, each in several ways, so that not every call has to be measured first."""
    sizes = [(rng.randint(1, 40), rng.choice([1, 2, 5, 16, 33, rng.randint(1, 140)])) for _ in range(3)]
    for _ in range(CALLS):
        steps, batch = rng.choice(sizes)
        yield Call(
            steps,
            batch,
            rng.choice(["memory", "40%", "70%", "speed"]),
            rng.randint(1, steps) if rng.random() < 0.2 else None,
            batch_first=rng.random() < 0.3,
            states=rng.random() < 0.6,
            x_gradient=rng.random() < 0.8,
            lengths=random_lengths(rng, steps, batch) if rng.random() < 0.3 else None,
        )


def random_lengths(rng, steps, batch):
    """As long as the longest is `steps`."""
    found = [rng.choice([1, steps, rng.randint(1, steps)]) for _ in range(batch)]
    found[rng.randrange(batch)] = steps
    return found


def in_budget(ours, *given):
    """In the least budget, where the layer's own is less than that."""
    try:
        return results(ours, *given)
    except ebb.Error as error:
        if error.least_budget is None:
            raise
        ours.budget = error.least_budget
        return results(ours, *given)


def check_calls(seed, device, why_not):
    """A random layer in random calls. `why_not(layer, x)` says what keeps the kernels from running one."""
    rng = random.Random(seed)
    torch.manual_seed(seed)
    layer = random_layer(rng)
    ours = getattr(ebb.nn, layer.name)(layer.inputs, layer.hidden, device=device, dtype=layer.dtype, **layer.how)
    exact = getattr(torch.nn, layer.name)(layer.inputs, layer.hidden, device=device, dtype=torch.float64, **layer.how)
    exact.load_state_dict(ours.state_dict())
    directions = 2 if layer.how["bidirectional"] else 1
    for number, call in enumerate(random_calls(rng)):
        what = f"seed {seed}, call {number}: {layer} {call}"

        def randn(*shape):
            return torch.randn(*shape, device=device, dtype=layer.dtype)

        rows = (call.batch, call.steps) if call.batch_first else (call.steps, call.batch)
        x = randn(*rows, layer.inputs)
        states = [randn(layer.how["num_layers"] * directions, call.batch, layer.hidden) for _ in range(2)]
        states = states[: (2 if layer.name == "LSTM" else 1) if call.states else 0]
        weights = randn(*rows, layer.hidden * directions) / (call.steps * call.batch)
        ours.batch_first = exact.batch_first = call.batch_first
        ours.budget, ours.chunk = call.budget, call.chunk
        reason = why_not(ours, x.transpose(0, 1) if call.batch_first else x)
        if layer.hidden <= 256:  # more units may be too many for a smaller GPU
            assert reason is None, f"{what}: {reason}"
        given = x, states, weights, call.x_gradient, call.lengths
        error = layer.off_by(results(exact, *given), in_budget(ours, *given))
        assert error <= 1, f"{what}: errors are {error:.3g} times what is allowed"

# SPDX-License-Identifier: Apache-2.0
"""A recurrent layer of torch.nn and ebb.nn's in its place, and how their results compare.

Tolerances: native cells and torch add the same products in another order and have their own exponentials. A result is a
chain of T steps of sums of n = I + H + 2 products, each within n + 4 roundings (a few for the activation); gradients
add up T * B such terms. Steps here do not amplify errors (weights of 1 / sqrt(H)), so (n + 4) * sqrt(T * B) units of
rounding of the largest number bound what is seen, and a factor of 8 is for chains that do amplify a little.
"""

import pytest
import torch
from torch.nn.utils.rnn import PackedSequence

import ebb
import ebb.nn

torch.set_num_threads(1)
KINDS = ["RNN", "LSTM", "GRU"]
DTYPES = [torch.float64, torch.float32]


def pair(kind, *args, budget="1MiB", dtype=torch.float64, seed=0, tiers=None, chunk=None, strategy="auto", **kwargs):
    """torch's layer and ours with the same parameters."""
    torch.manual_seed(seed)
    theirs = getattr(torch.nn, kind)(*args, dtype=dtype, **kwargs)
    own = {"budget": budget, "tiers": tiers, "chunk": chunk, "strategy": strategy}
    ours = getattr(ebb.nn, kind)(*args, dtype=dtype, **kwargs, **own)
    ours.load_state_dict(theirs.state_dict())
    return theirs, ours


def tensors_of(result):
    """All tensors of what a layer gives."""
    if isinstance(result, PackedSequence):
        return [result.data]
    if torch.is_tensor(result):
        return [result]
    return [tensor for part in result for tensor in tensors_of(part)]


def loss_of(result, seed=1):
    generator = torch.Generator().manual_seed(seed)
    weights = [torch.randn(t.shape, generator=generator, dtype=t.dtype) for t in tensors_of(result)]
    return sum((tensor * weight).sum() for tensor, weight in zip(tensors_of(result), weights))


def gradients(layer, leaves, call):
    """Outputs and the gradients of leaves and parameters."""
    layer.zero_grad()
    leaves = [leaf.detach().clone().requires_grad_() for leaf in leaves]
    result = call(layer, *leaves)
    loss_of(result).backward()
    outputs = [tensor.detach() for tensor in tensors_of(result)]
    return outputs + [leaf.grad for leaf in leaves] + [p.grad.clone() for p in layer.parameters()]


def tolerance(layer, dtype, terms):
    n = layer.input_size + layer.hidden_size * (2 if layer.bidirectional else 1) + 2
    return 8 * (n + 4) * terms**0.5 * torch.finfo(dtype).eps


def assert_close(found, expected, relative):
    assert len(found) == len(expected)
    for i, (own, other) in enumerate(zip(found, expected)):
        assert own.shape == other.shape and own.dtype == other.dtype
        largest = max(other.abs().max().item(), 1e-3)
        error = (own - other).abs().max().item() / largest
        assert error <= relative, f"tensor {i} of {len(found)}: {error:.2e} of the largest, allowed {relative:.2e}"


def assert_same(kind, x, call, terms, **options):
    theirs, ours = pair(kind, **options)
    leaves = x if isinstance(x, list) else [x]
    expected, found = gradients(theirs, leaves, call), gradients(ours, leaves, call)
    assert_close(found, expected, tolerance(ours, expected[0].dtype, terms))
    return ours


def states_for(layer, batch, dtype, seed=3):
    generator = torch.Generator().manual_seed(seed)
    rows = layer["num_layers"] * (2 if layer["bidirectional"] else 1)
    shape = (rows, batch, layer["hidden_size"]) if batch else (rows, layer["hidden_size"])
    return [torch.randn(shape, generator=generator, dtype=dtype) * 0.5 for _ in range(2)]


def with_state(layer, x, h, c):
    return layer(x, (h, c) if layer.mode == "LSTM" else h)


def least_budget(module, kind, steps, **options):
    """What the error of an impossible budget says."""
    layer = getattr(module, kind)(3, 8, 2, budget=1, **options)
    with pytest.raises(ebb.Error) as raised:
        layer(torch.randn(steps, 2, 3, requires_grad=True))
    assert raised.value.code == "infeasible_budget"
    assert raised.value.least_budget > 1
    return raised.value.least_budget

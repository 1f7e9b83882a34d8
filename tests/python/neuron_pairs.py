# SPDX-License-Identifier: Apache-2.0
"""A neuron of another package beside the layer that ebb.nn.convert makes of it: spikes to the bit, gradients within rounding."""

import torch

UNITS = 40
TOLERANCE = {torch.float32: {"rtol": 2e-4, "atol": 2e-5}, torch.float64: {"rtol": 1e-9, "atol": 1e-11}}


def currents(dtype, most=2.0):
    made = torch.Generator().manual_seed(3)
    return most * torch.rand(60, 3, UNITS, dtype=dtype, generator=made) - 0.2 * most


def trained(net, parameters, x):
    """Spikes, the gradient of the input, and those of the parameters."""
    x = x.clone().requires_grad_()
    spikes = net(x)
    spikes = spikes.to(x.dtype)
    weights = torch.linspace(-1, 1, spikes.numel(), dtype=x.dtype).view(spikes.shape)
    (spikes * weights).sum().backward()
    return [spikes.detach(), x.grad, *(p.grad for p in parameters)]


def same(theirs, layer, parameters, x, chained=lambda layer: []):
    """`chained`: gradients of the layer in terms of their parameters, in their order. Returns the layer's."""
    wanted = trained(theirs, parameters, x)
    found = trained(lambda x: layer(x)[0], [], x) + chained(layer)
    assert torch.equal(found[0], wanted[0]) and 0.02 < float(wanted[0].mean()) < 0.9
    assert len(found) == len(wanted) and all(bool(one.any()) for one in wanted)
    for ours, own in zip(found[1:], wanted[1:]):
        scale = float(own.abs().max())
        how = TOLERANCE[x.dtype]
        torch.testing.assert_close(ours, own, rtol=how["rtol"], atol=how["atol"] * scale)


def by_tau(layer, slope):
    """The gradient of one number that all time constants follow from; slope: d tau_mem / d number."""
    return (layer.tau_mem_l0.grad * slope).sum()

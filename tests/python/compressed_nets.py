# SPDX-License-Identifier: Apache-2.0
"""Small nets for the tests of compressed layers, and what a step of them holds, by a way of its own."""

import pytest
import torch
from torch import nn

import ebb
from ebb._tensor.memory import LiveBytes


class Residual(nn.Module):
    """A basic block, with one ReLU for both places as torchvision has it."""

    def __init__(self, inputs, outputs, stride=1):
        super().__init__()
        self.conv1 = nn.Conv2d(inputs, outputs, 3, stride, 1, bias=False)
        self.norm1 = nn.BatchNorm2d(outputs)
        self.relu = nn.ReLU(inplace=True)
        self.conv2 = nn.Conv2d(outputs, outputs, 3, 1, 1, bias=False)
        self.norm2 = nn.BatchNorm2d(outputs)
        self.side = None
        if stride != 1 or inputs != outputs:
            self.side = nn.Sequential(nn.Conv2d(inputs, outputs, 1, stride, bias=False), nn.BatchNorm2d(outputs))

    def forward(self, x):
        y = self.norm2(self.conv2(self.relu(self.norm1(self.conv1(x)))))
        return self.relu(y + (x if self.side is None else self.side(x)))


def residual_net():
    torch.manual_seed(1)
    return nn.Sequential(
        nn.Conv2d(3, 8, 3, 1, 1, bias=False),
        nn.BatchNorm2d(8),
        nn.ReLU(inplace=True),
        Residual(8, 8),
        Residual(8, 16, 2),
        Residual(16, 16),
        nn.AdaptiveAvgPool2d(1),
        nn.Flatten(),
        nn.Linear(16, 10),
    )


def plain_net():
    """One long chain: everything after the first convolution can be computed again from its input."""
    torch.manual_seed(2)
    layers = [nn.Conv2d(3, 8, 3, padding=1)]
    for _ in range(5):
        layers += [nn.BatchNorm2d(8), nn.ReLU(), nn.Conv2d(8, 8, 3, padding=1)]
    return nn.Sequential(*layers)


class Feed(nn.Module):
    def __init__(self):
        super().__init__()
        self.norm, self.up, self.act, self.drop, self.down = (
            nn.LayerNorm(32),
            nn.Linear(32, 128),
            nn.GELU(),
            nn.Dropout(0.1),
            nn.Linear(128, 32),
        )

    def forward(self, x):
        return x + self.down(self.drop(self.act(self.up(self.norm(x)))))


def transformer_net():
    torch.manual_seed(3)
    return nn.Sequential(nn.Linear(8, 32), *[Feed() for _ in range(4)], nn.LayerNorm(32))


NETS = {
    "residual": (residual_net, (4, 3, 16, 16)),
    "plain": (plain_net, (4, 3, 16, 16)),
    "transformer": (transformer_net, (8, 8, 8)),
}


def net_and_sample(name):
    make, shape = NETS[name]
    return make(), torch.randn(shape, generator=torch.Generator().manual_seed(0))


def training_peak(model, sample):
    """Bytes that a step holds beyond what was there before it: gradients are there, and are added to."""
    buffers, generator = [buffer.clone() for buffer in model.buffers()], torch.get_rng_state()
    for parameter in model.parameters():
        parameter.grad = torch.zeros_like(parameter)
    factors = torch.randn(model(sample).shape)
    with LiveBytes() as live:
        (model(sample) * factors).sum().backward()
    for parameter in model.parameters():
        parameter.grad = None
    _put_back(model, buffers, generator)
    return live.peak


def _put_back(model, buffers, generator):
    for buffer, old in zip(model.buffers(), buffers):
        buffer.copy_(old)
    torch.set_rng_state(generator)


def training_gradients(model, sample):
    """From the same buffers and random numbers in every call."""
    buffers, generator = [buffer.clone() for buffer in model.buffers()], torch.get_rng_state()
    torch.manual_seed(7)
    out = model(sample)
    out.square().sum().backward()
    found = [parameter.grad for parameter in model.parameters()]
    for parameter in model.parameters():
        parameter.grad = None
    _put_back(model, buffers, generator)
    return out.detach(), found


def everything(model):
    """All that measuring must leave alone."""
    return (
        {name: value.clone() for name, value in model.state_dict().items()},
        {name: None if p.grad is None else p.grad.clone() for name, p in model.named_parameters()},
        {
            name: (type(layer), layer.training, len(layer._forward_hooks), len(layer._forward_pre_hooks))
            for name, layer in model.named_modules()
        },
        torch.get_rng_state(),
    )


def same(one, other):
    if isinstance(one, dict):
        return one.keys() == other.keys() and all(same(one[key], other[key]) for key in one)
    if isinstance(one, (tuple, list)):
        return len(one) == len(other) and all(map(same, one, other))
    if isinstance(one, torch.Tensor):
        return isinstance(other, torch.Tensor) and torch.equal(one, other)
    return one == other


def chain(*layers):
    torch.manual_seed(0)
    return nn.Sequential(*[layer() for layer in layers])


def ways(model):
    """Those that fit chose."""
    return {row.way for row in model.ebb_fit.rows}


def least_of(model, sample, **options):
    """The least budget that fit names."""
    with pytest.raises(ebb.Error) as error:
        ebb.fit(model, sample, 1, **options)
    assert error.value.code == "infeasible_budget"
    return error.value.least_budget

# SPDX-License-Identifier: Apache-2.0
"""Small nets of many kinds, ways to move what they save, and the bits of their gradients."""

from __future__ import annotations

import os

import pytest
import torch
from torch import nn

from ebb._tensor.saved import KNOWS_HOLDERS

torch.set_num_threads(1)
if torch.cuda.is_available():  # bits are compared: the same kernels, adding in the same order
    os.environ.setdefault("CUBLAS_WORKSPACE_CONFIG", ":4096:8")
    torch.backends.cudnn.deterministic = True
    torch.backends.cuda.enable_flash_sdp(False)
    torch.backends.cuda.enable_mem_efficient_sdp(False)
needs_holders = pytest.mark.skipif(not KNOWS_HOLDERS, reason="this torch does not say who holds a storage")
DEVICES = ["cpu", *(["cuda"] if torch.cuda.is_available() else [])]
# Ways of moving. CPU tensors take the pool's way like a device's only where they are told to.
WAYS = {
    "pool": {"cpu_as_device": True, "pool": "16MiB"},
    "growing": {"cpu_as_device": True},
    "pageable": {"cpu_as_device": True, "pool": 0, "use_pin_memory": False},
    "in turn": {"cpu_as_device": True, "pool": "16MiB", "use_streams": False},
    "budget": {"cpu_as_device": True, "pool": "16MiB", "budget": "24KiB"},
    "on demand": {"cpu_as_device": True, "pool": "16MiB", "read_ahead": 0, "max_fwd_stash_size": 1},
    "disk": {"disk": ".", "max_fwd_stash_size": 1},
    "pool and disk": {"cpu_as_device": True, "pool": "32KiB", "disk": "."},
    "disk behind no pool": {"cpu_as_device": True, "pool": 0, "disk": "."},
}


def way_in(name, folder):
    """Its options; what goes to disk goes to this folder."""
    options = dict(WAYS[name])
    if "disk" in options:
        options["disk"] = str(folder)
    return options


class Attention(nn.Module):
    """Transposes, one storage in three views, a mask and a softmax."""

    def __init__(self):
        super().__init__()
        self.all = nn.Linear(16, 48)

    def forward(self, x):
        q, k, v = (part.unflatten(-1, (4, 4)).transpose(1, 2) for part in self.all(x).chunk(3, -1))
        weights = (q @ k.transpose(-1, -2)).softmax(-1)
        return (weights @ v).transpose(1, 2).flatten(2)


class Convolution(nn.Module):
    def __init__(self):
        super().__init__()
        self.layers = nn.Sequential(
            nn.Conv2d(1, 8, 3, padding=1), nn.BatchNorm2d(8), nn.ReLU(inplace=True), nn.MaxPool2d(2), nn.Flatten()
        )

    def forward(self, x):
        return self.layers(x.unsqueeze(1))


class Recurrent(nn.Module):
    def __init__(self):
        super().__init__()
        self.cell = nn.LSTMCell(16, 24)

    def forward(self, x):
        state = None
        for step in x.unbind(1):
            state = self.cell(step, state)
        return state[0]


MODELS = {
    "mlp": lambda: nn.Sequential(nn.Linear(16, 64), nn.GELU(), nn.Dropout(0.3), nn.Linear(64, 64), nn.Tanh()),
    "transformer": lambda: nn.TransformerEncoderLayer(16, 4, 32, dropout=0.1, batch_first=True),
    "attention": Attention,
    "convolution": Convolution,
    "lstm": lambda: nn.LSTM(16, 24, 2, batch_first=True),
    "recurrent": Recurrent,
    "complex": lambda: Complex(),
}


class Complex(nn.Module):
    def __init__(self):
        super().__init__()
        self.angle = nn.Parameter(torch.randn(16))

    def forward(self, x):
        turned = torch.fft.fft(x, dim=1) * torch.polar(torch.ones_like(self.angle), self.angle)
        return torch.view_as_real(turned.conj() * turned.mT.contiguous().mT * turned).sum(-1)


def loss_of(model, x):
    out = model(x)
    return (out[0] if isinstance(out, tuple) else out).square().mean()


def gradients(make, device, off=None, iterations=1):
    """Of everything, after some iterations that accumulate."""
    torch.manual_seed(3)
    model = make().to(device)
    x = torch.randn(8, 12, 16, device=device, requires_grad=True)
    for _ in range(iterations):
        if off is None:
            loss = loss_of(model, x)
        else:
            with off:
                loss = loss_of(model, x)
        loss.backward()
    return [loss.detach(), x.grad, *(parameter.grad for parameter in model.parameters())]


def same_bits(left, right):
    return len(left) == len(right) and all(
        a.dtype == b.dtype and a.stride() == b.stride() and torch.equal(bits(a), bits(b))
        for a, b in zip(left, right, strict=True)
    )


def bits(tensor):
    return tensor.reshape(-1).view(torch.uint8)


def settled(off, device):
    """The report when no copy is under way any more, so that counts do not depend on how fast they were."""
    if device == "cuda":
        torch.cuda.synchronize()
    return off.report

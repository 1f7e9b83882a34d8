# SPDX-License-Identifier: Apache-2.0
"""What the tests of compressed layers share: layers with inputs for them, and comparisons with torch's own."""

from __future__ import annotations

import copy
from collections.abc import Callable

import torch
from torch import Tensor, nn
from torch.multiprocessing.reductions import StorageWeakRef
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

import ebb
from ebb._compress.compress import compress_all


def ran(model: nn.Module, x: Tensor, seed: int = 5) -> dict[str, Tensor]:
    """Output, gradients, buffers and the generator's state after one forward and backward pass."""
    torch.manual_seed(seed)
    x = x.detach().clone(memory_format=torch.preserve_format).requires_grad_(x.requires_grad)
    inner = x * 1 if x.requires_grad else x  # layers that work in place may not touch a leaf
    out = model(inner)
    found = {"out": out.detach().clone(), "random": torch.get_rng_state()}
    if out.requires_grad:
        weights = torch.randn(out.shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float32).to(
            out.dtype
        )
        out.backward(weights)
    if x.requires_grad:
        found["x"] = x.grad
    for name, parameter in model.named_parameters():
        if parameter.grad is not None:
            found[f"parameter {name}"] = parameter.grad.clone()
    for name, buffer in model.named_buffers():
        found[f"buffer {name}"] = buffer.clone()
    model.zero_grad(set_to_none=True)
    return found


def same_bits(one: Tensor, other: Tensor) -> bool:
    return (
        one.dtype == other.dtype
        and one.shape == other.shape
        and torch.equal(one.isnan(), other.isnan())
        and torch.equal(one.nan_to_num(123.0), other.nan_to_num(123.0))
    )


def check_same(
    ours: dict[str, Tensor], stock: dict[str, Tensor], but: Callable[[str], bool] = lambda name: False
) -> None:
    assert ours.keys() == stock.keys()
    for name in stock:
        assert but(name) or same_bits(ours[name], stock[name]), name


def compressed(model: nn.Module, **options) -> nn.Module:
    """A copy with every layer compressed that can be, also what would gain nothing where only defaults are asked for."""
    other = copy.deepcopy(model)
    if options:
        return ebb.compress(other, **options)
    compress_all(other, ())
    return other


def check_exact(model: nn.Module, x: Tensor, **options) -> nn.Module:
    """A compressed copy of the model gives the bits of the model itself, twice over."""
    other = compressed(model, **options)
    for seed in (5, 6):
        check_same(ran(other, x, seed), ran(model, x, seed))
    return other


class Live(TorchDispatchMode):
    """The bytes of all that is computed inside of it and is still there, and the most there were."""

    def __init__(self) -> None:
        super().__init__()
        self._seen: dict[int, tuple[StorageWeakRef, int]] = {}
        self.peak = 0

    def __torch_dispatch__(self, function, types, args=(), kwargs=None):
        out = function(*args, **(kwargs or {}))
        given = {one.untyped_storage()._cdata for one in tree_leaves((args, kwargs)) if isinstance(one, Tensor)}
        for one in tree_leaves(out):
            if isinstance(one, Tensor) and (storage := one.untyped_storage())._cdata not in given:
                self._seen[storage._cdata] = (StorageWeakRef(storage), storage.nbytes())
        self.peak = max(self.peak, self.bytes())
        return out

    def bytes(self) -> int:
        self._seen = {name: each for name, each in self._seen.items() if not each[0].expired()}
        return sum(size for _, size in self._seen.values())


def kept_bytes(model: nn.Module, x: Tensor) -> int:
    """What a forward pass leaves in memory besides its output."""
    with Live() as live:
        out = model(x)
        found = live.bytes() - out.untyped_storage().nbytes()
    return found


def given(*shape, dtype=torch.float32, grad=True):
    x = torch.randn(shape).to(dtype)
    return x.requires_grad_(grad)


CONVS = {
    "1d": (lambda: nn.Conv1d(4, 6, 3), (2, 4, 11)),
    "2d": (lambda: nn.Conv2d(4, 6, 3, padding=1), (2, 4, 9, 8)),
    "3d": (lambda: nn.Conv3d(4, 2, 2), (2, 4, 5, 4, 6)),
    "groups": (lambda: nn.Conv2d(4, 8, 3, groups=2), (2, 4, 9, 8)),
    "depthwise": (lambda: nn.Conv2d(4, 4, 3, groups=4, padding=1), (2, 4, 9, 8)),
    "stride": (lambda: nn.Conv2d(4, 6, 3, stride=2, padding=1), (2, 4, 9, 8)),
    "dilation": (lambda: nn.Conv2d(4, 6, 3, dilation=2), (2, 4, 9, 8)),
    "same": (lambda: nn.Conv2d(4, 6, (4, 3), padding="same", dilation=(1, 2)), (2, 4, 9, 8)),
    "valid": (lambda: nn.Conv1d(4, 6, 4, padding="valid"), (2, 4, 9)),
    "no bias": (lambda: nn.Conv2d(4, 6, (1, 5), (2, 1), (0, 2), bias=False), (2, 4, 9, 8)),
    "one": (lambda: nn.Conv2d(4, 6, 3), (1, 4, 9, 8)),
    "none": (lambda: nn.Conv2d(4, 6, 3), (0, 4, 9, 8)),
    "unbatched": (lambda: nn.Conv2d(4, 6, 3), (4, 9, 8)),
}
NORMS = {
    "batch 1d": (lambda: nn.BatchNorm1d(4), (6, 4)),
    "batch 1d long": (lambda: nn.BatchNorm1d(4), (6, 4, 5)),
    "batch 2d": (lambda: nn.BatchNorm2d(4), (3, 4, 5, 6)),
    "batch 3d": (lambda: nn.BatchNorm3d(4), (3, 4, 2, 3, 4)),
    "no affine": (lambda: nn.BatchNorm2d(4, affine=False), (3, 4, 5, 6)),
    "no momentum": (lambda: nn.BatchNorm2d(4, momentum=None), (3, 4, 5, 6)),
    "no statistics": (lambda: nn.BatchNorm2d(4, track_running_stats=False), (3, 4, 5, 6)),
    "layer": (lambda: nn.LayerNorm(6), (3, 5, 6)),
    "layer 2": (lambda: nn.LayerNorm((5, 6)), (3, 5, 6)),
    "layer bare": (lambda: nn.LayerNorm(6, elementwise_affine=False), (3, 5, 6)),
    "layer no bias": (lambda: nn.LayerNorm(6, bias=False), (3, 5, 6)),
    "group": (lambda: nn.GroupNorm(2, 4), (3, 4, 5, 6)),
    "group bare": (lambda: nn.GroupNorm(2, 4, affine=False), (3, 4, 7)),
}


class Residual(nn.Module):
    """relu(norm(conv(x))) has two readers, the sum is overwritten by a ReLU."""

    def __init__(self, width=4):
        super().__init__()
        self.one, self.two = nn.Conv2d(width, width, 3, padding=1), nn.Conv2d(width, width, 3, padding=1, bias=False)
        self.norm1, self.norm2 = nn.BatchNorm2d(width), nn.BatchNorm2d(width)
        self.side = nn.Conv2d(width, width, 1)
        self.relu = nn.ReLU(inplace=True)

    def forward(self, x):
        y = self.relu(self.norm1(self.one(x)))
        z = self.norm2(self.two(y))
        z += self.side(y)
        return self.relu(z)


def model(depth=3, width=4):
    return nn.Sequential(
        nn.Conv2d(3, width, 3),
        nn.BatchNorm2d(width),
        nn.SiLU(),
        *[Residual(width) for _ in range(depth)],
        nn.MaxPool2d(2),
        nn.Dropout(0.2),
        nn.Flatten(1, 2),
        nn.LayerNorm(3),
        nn.GELU(),
        nn.Linear(3, 5),
    )


def image(n=2, grad=True):
    return torch.randn(n, 3, 8, 8).requires_grad_(grad)


EXACT = [dict(), dict(norm="recompute"), dict(relu="exact")]
EVERY = [*EXACT, dict(pool=2), dict(norm="int8", linear="int8"), dict(linear="project")]

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


def ran(model: nn.Module, x: Tensor, seed: int = 5) -> dict[str, Tensor]:
    """Output, gradients, buffers and the generator's state after one forward and backward pass."""
    torch.manual_seed(seed)
    x = x.detach().clone(memory_format=torch.preserve_format).requires_grad_(x.requires_grad)
    inner = x * 1 if x.requires_grad else x  # layers that work in place may not touch a leaf
    out = model(inner)
    found = {"out": out.detach().clone(), "random": torch.get_rng_state()}
    if out.requires_grad:
        weights = torch.randn(out.shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float32).to(out.dtype)
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
    return one.dtype == other.dtype and one.shape == other.shape and torch.equal(one.isnan(), other.isnan()) \
        and torch.equal(one.nan_to_num(123.0), other.nan_to_num(123.0))


def check_same(ours: dict[str, Tensor], stock: dict[str, Tensor], but: Callable[[str], bool] = lambda name: False) -> None:
    assert ours.keys() == stock.keys()
    for name in stock:
        assert but(name) or same_bits(ours[name], stock[name]), name


def check_exact(model: nn.Module, x: Tensor, **options) -> nn.Module:
    """A compressed copy of the model gives the bits of the model itself, twice over."""
    other = ebb.compress(copy.deepcopy(model), **options)
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

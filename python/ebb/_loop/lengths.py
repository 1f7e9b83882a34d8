# SPDX-License-Identifier: Apache-2.0
"""Sequences of different lengths in one batch: a sample's carry stays as it is after its own last step."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor
from torch.nn.utils.rnn import PackedSequence, pad_packed_sequence

from ebb._base.errors import Error
from ebb._loop.scan_blocks import pair_of
from ebb._tensor.trees import Structure, check_alike, leaves_of, mapped


class Lengths:
    """One for each sample."""

    def __init__(self, given: Tensor | Sequence[int]):
        self._counts = _counts(given)

    @property
    def longest(self) -> int:
        return int(self._counts.max())

    def inputs(self, xs: Any, steps: int) -> Any:
        """xs, and for each time step which samples have it."""
        alive = torch.arange(steps)[:, None] < self._counts
        if callable(xs):
            return lambda t: (xs(t), alive[t])
        device = next((leaf.device for leaf in leaves_of(xs) if isinstance(leaf, Tensor)), alive.device)
        return xs, alive.to(device)

    def taking(self, f: Callable[..., Any], steps: int, reverse: bool) -> Callable[..., Any]:
        """f over such inputs, of which that many time steps are run."""
        if self.longest > steps or int(self._counts.min()) < 0:
            raise Error(
                f"scan: lengths are from {int(self._counts.min())} to {self.longest}; they must be from 0 to {steps}, the time steps"
            )
        samples = len(self._counts)
        together = bool((self._counts >= (steps if reverse else 1)).all())  # all are there when the loop begins

        def masked(carry: Any, x: Any) -> tuple[Any, Any]:
            x, alive = x
            # What is behind a sequence may be anything: with a gradient of zero a NaN would still be one.
            new, y = pair_of(f(carry, mapped(lambda leaf: _blank(leaf, alive, samples, "x"), x)))
            return _chosen(alive, carry, new, together), mapped(lambda leaf: _blank(leaf, alive, samples, "y"), y)

        return masked

    def mean(self, ys: Any) -> Any:
        """Of sums over time."""

        def over(total: Tensor | None) -> Tensor | None:
            if total is None:
                return None
            exact = torch.promote_types(total.dtype, torch.float32)
            counts = self._counts.clamp(min=1).to(total.device, exact)
            mean = total / _shaped(counts, total)
            return mean.to(total.dtype) if total.is_floating_point() else mean

        return mapped(over, ys)


class Packed:
    """A PackedSequence as padded inputs, and outputs as it has its inputs."""

    def __init__(self, xs: PackedSequence):
        self._like = xs
        self.xs, self.lengths = pad_packed_sequence(xs)

    def pack(self, ys: Any) -> Any:
        like = self._like
        there = torch.arange(int(like.batch_sizes[0])) < like.batch_sizes[:, None]

        def one(y: Tensor | None) -> PackedSequence | None:
            if y is None:
                return None
            if like.sorted_indices is not None:
                y = y.index_select(1, like.sorted_indices.to(y.device))
            data = y[there.to(y.device)]
            return PackedSequence(data, like.batch_sizes, like.sorted_indices, like.unsorted_indices)

        return mapped(one, ys)


def _counts(given: Any) -> Tensor:
    try:
        counts = torch.as_tensor(given).cpu()
    except (TypeError, ValueError, RuntimeError):
        counts = torch.empty(0)
    if (
        counts.dim() != 1
        or counts.numel() == 0
        or counts.is_floating_point()
        or counts.is_complex()
        or counts.dtype is torch.bool
    ):
        said = (
            f"a tensor of {counts.dtype} and shape {list(counts.shape)}" if isinstance(given, Tensor) else repr(given)
        )
        raise Error(f"scan: lengths is {said}; it is a list or a tensor of whole numbers, one for each sample")
    return counts.to(torch.int64)


def _shaped(of_samples: Tensor, like: Tensor) -> Tensor:
    return of_samples.reshape(-1, *[1] * (like.dim() - 1))


def _checked(leaf: Tensor, samples: int, what: str) -> Tensor:
    if leaf.dim() == 0 or leaf.shape[0] != samples:
        raise Error(
            f"scan: lengths has {samples} samples and {what} holds a tensor of shape {list(leaf.shape)}; the samples are its first dimension"
        )
    return leaf


def _blank(leaf: Tensor | None, alive: Tensor, samples: int, what: str) -> Tensor | None:
    """Zeros for samples that are not alive. An x without dimensions is for all of them."""
    if not isinstance(leaf, Tensor) or (what == "x" and leaf.dim() == 0):
        return leaf
    return _checked(leaf, samples, what).masked_fill(_shaped(~alive.to(leaf.device), leaf), 0)


def _chosen(alive: Tensor, old: Any, new: Any, together: bool) -> Any:
    """The new carry of samples that are alive, the old one of the others."""
    structure = Structure(old, "init")
    before, after = structure.leaves(old), structure.parts(new)
    for k, (was, now) in enumerate(zip(before, after)):
        if was is None:
            if now is not None and not together:
                raise Error(
                    "scan: the carry starts as None and some samples begin later than others or have no step at all; give an init of tensors"
                )
            continue
        if now is not None and not isinstance(now, Tensor):
            structure.leaves(new)  # which says so
        check_alike("scan: the carry", [was], [now])
        _checked(now, len(alive), "the carry")
        after[k] = torch.where(_shaped(alive.to(now.device), now), now, was)
    return structure.tree(after)

# SPDX-License-Identifier: Apache-2.0
"""What a scan is given, as its blocks take it: time first, samples of one length, and a carry of tensors."""

from __future__ import annotations

import operator
from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor
from torch.nn.utils.rnn import PackedSequence

from ebb._base.errors import Error
from ebb._loop.arguments import Options, surroundings_key
from ebb._loop.chunking import Chunking, longest_of
from ebb._loop.codec.codec import Codecs
from ebb._loop.lengths import Lengths, Packed
from ebb._loop.scan_blocks import Inputs, ScanBlocks, time_first
from ebb._loop.start import Start
from ebb._tensor.function_key import function_key
from ebb._tensor.trees import leaves_of

_BLOCKS, _LONGEST = 64, 32  # of the longer blocks that are measured
_KNEE = 1.0  # time steps, of loops over cells of PyTorch, where it is not measured


class Given:
    """f over blocks' carries and inputs, and what it gives as the caller wants it."""

    def __init__(
        self,
        f: Callable[..., Any],
        init: Any,
        xs: Any,
        *,
        length: int | None = None,
        dim: int = 0,
        lengths: Tensor | Sequence[int] | None = None,
        reverse: bool = False,
        reduce: str | None = None,
    ):
        if reduce not in (None, "sum", "mean"):
            raise Error(f'scan: reduce is {reduce!r}; it is None, "sum" or "mean"')
        if not callable(f):
            raise Error(f"scan: f is {f!r}; it is a function of the carry and x that returns the next carry and y")
        self._own = f
        self.dim = _whole(dim)
        self.reverse, self.reduce = reverse, reduce
        self._packed: Packed | None = None
        if isinstance(xs, PackedSequence):
            if lengths is not None or self.dim != 0:
                raise Error(
                    "scan: xs is a PackedSequence, which has lengths and no dimension of time; leave lengths and dim out"
                )
            self._packed = Packed(xs)
            xs, lengths = self._packed.xs, self._packed.lengths
        xs = time_first(xs, self.dim)
        self._lengths = None if lengths is None else Lengths(lengths)
        self._mean = self._lengths is not None and reduce == "mean"
        if self._lengths is None:
            self.inputs = Inputs(xs, length)
        else:
            steps = _steps(xs, length, self._lengths.longest)
            self.inputs = Inputs(self._lengths.inputs(xs, steps), steps if callable(xs) else length)
            f = self._lengths.taking(f, self.inputs.length, reverse)
            self.reduce = reduce and "sum"
        self.start = Start(init, "scan")
        self.f = self.start.taking(f)

    def blocks(self, chunk: int, device: torch.device) -> ScanBlocks:
        carry, inputs = self.start.structure, self.inputs
        return ScanBlocks(self.f, carry, inputs, min(chunk, inputs.length), device, self.reverse, self.reduce, self.dim)

    def keys(self, device: torch.device, codecs: Codecs | None) -> tuple[Any, Any]:
        """What costs depend on, beside the chunk, and what those of a block depend on, in loops of any length. Where bits depend on the
        chunk these are the same: it must not depend on which lengths came before."""
        common = ("scan", function_key(self._own), self.reverse, self.reduce, self.dim, self._lengths is not None)
        steps = [leaf[:1] for leaf in self.inputs.leaves]
        kin = *common, codecs and codecs.key, *surroundings_key(self.start.known, steps, device)
        key = *kin, self.inputs.length, *(leaf.shape[0] for leaf in self.inputs.leaves)
        return key, kin if self._clock(device, codecs) else key

    @staticmethod
    def _clock(device: torch.device, codecs: Codecs | None) -> bool:
        """Whether measured times may choose the chunk. Under autocast the bits of gradients depend on it, and with a lossy codec."""
        exact = codecs is None or codecs.exact
        return exact and not any(torch.is_autocast_enabled(kind) for kind in {"cpu", device.type})

    def chunking(self, device: torch.device, options: Options) -> Chunking[ScanBlocks]:
        """Of which the chunk is to be chosen."""
        key, kin = self.keys(device, options.codecs)
        return Chunking(
            lambda length: self.blocks(length, device),
            self.inputs.length,
            self.f,
            self.start.leaves,
            self.inputs.leaves,
            device,
            options,
            key,
            longest_of(self.inputs.length, _LONGEST, _BLOCKS),
            None if kin != key else _KNEE,
            None if kin == key else kin,
        )

    def results(self, carry: Any, ys: Any) -> tuple[Any, Any]:
        if self._mean:
            assert self._lengths is not None
            ys = self._lengths.mean(ys)
        if self._packed is not None and self.reduce is None:
            ys = self._packed.pack(ys)
        return self.start.finished(carry), ys


def _whole(dim: Any) -> int:
    try:
        if isinstance(dim, bool):
            raise TypeError
        return operator.index(dim)
    except TypeError:
        raise Error(f"scan: dim is {dim!r}; it is the dimension of time, a whole number") from None


def _steps(xs: Any, length: Any, longest: int) -> int:
    """As many as xs has, or else as the caller says, or the longest sample has."""
    leaves = [] if callable(xs) else leaves_of(xs)
    sizes = [leaf.shape[0] for leaf in leaves if isinstance(leaf, Tensor) and leaf.dim() > 0]
    return next(iter(sizes), length if isinstance(length, int) else longest)

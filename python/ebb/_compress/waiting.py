# SPDX-License-Identifier: Apache-2.0
"""ReLUs that wait with what they keep. Their backward pass needs their output, or a bit of each element. What the next layer does with
that output decides which costs less: if it keeps it, as torch's convolutions do, or recomputes it, the ReLU reads the same, and bits
would come on top; if it does neither, as a pooling, bits are kept. That is known when the output is gone, or the forward pass ends.
Until then torch has the output, as it would without us."""

from __future__ import annotations

import threading
from typing import Any

import torch
from torch import Tensor

from ebb._compress.arithmetic.dispatch import masked, sign_bits
from ebb._compress.arithmetic.shapes import Order
from ebb._compress.packed import Packed, foreign, top_hooks
from ebb._compress.recipes import Recipe, Value
from ebb._compress.saving import Run, run_bare
from ebb._compress.sources import Source


class _Signs(Value):
    """Bits in the place of a ReLU's output, of which only the sign is asked."""

    __slots__ = ("_bits", "_like", "_order")

    def __init__(self, out: Tensor):
        super().__init__()
        self._order, self._like = Order(out), out.new_empty(0)
        self._bits = sign_bits(self._order.flat(out))

    def _make(self) -> tuple[Tensor, bool]:
        with torch.no_grad():
            return self._order.back(masked(self._bits, self._like.new_ones(self._order.count))), True


class _Waiting(threading.local):
    def __init__(self) -> None:
        self.them: list[tuple[Source, Any, Recipe | None]] = []


_waiting = _Waiting()


def can_wait(x: Tensor) -> bool:
    """Whether a ReLU of x may: if the forward pass of a compressed model is around, which will end, and no hooks of others, which want to
    have at once what is kept."""
    top = top_hooks()
    return top is not None and not foreign(top) and not x._is_view()


def run_waiting(run: Run, recipe: Recipe | None) -> Tensor:
    """What `run` gives, a ReLU; `recipe` is how that can be recomputed."""
    decide(at_the_end=False)
    out = run_bare(run)
    _waiting.them.append((Source.of(out), out.grad_fn, recipe))
    return out


def decide(at_the_end: bool) -> None:
    if _waiting.them:
        _waiting.them = [one for one in _waiting.them if not _is_decided(*one, at_the_end)]


def _is_decided(source: Source, node: Any, recipe: Recipe | None, at_the_end: bool) -> bool:
    value: Value
    if recipe is not None and recipe.readers > 0:
        value = recipe
    elif source.is_kept:
        return True
    elif not at_the_end and source() is not None:
        return False
    else:
        try:
            with torch.no_grad():
                value = _Signs(node._saved_result)
        except RuntimeError:  # changed in place since, or its backward pass has run: torch says so where it is needed
            return True
    node._raw_saved_result.register_hooks(Packed(value, recipe).instead, Packed.read)
    return True

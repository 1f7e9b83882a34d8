# SPDX-License-Identifier: Apache-2.0
"""Reading what is no longer as it was."""

from __future__ import annotations

from typing import Any, NamedTuple

import torch
from torch import Tensor
from torch.utils._pytree import tree_leaves

from ebb._base.errors import Error
from ebb._tensor.watching import Watching


class _Span(NamedTuple):
    """Of memory: where it begins and ends."""

    start: int
    end: int

    def meets(self, other: _Span) -> bool:
        return self.start < other.end and other.start < self.end


def _span(tensor: Tensor) -> _Span:
    """Nothing of tensors that have no memory of their own, and of empty ones."""
    if tensor.layout is not torch.strided or tensor.numel() == 0:
        return _Span(0, 0)
    try:
        start = tensor.data_ptr()
    except RuntimeError:
        return _Span(0, 0)
    numbers = 1 + sum((size - 1) * stride for size, stride in zip(tensor.shape, tensor.stride()))
    return _Span(start, start + numbers * tensor.element_size())


def _reads(operation: Any) -> bool:
    """Not what makes a view, whose reader is seen, or a tensor that is only of the same kind."""
    name = operation._schema.name
    return not (getattr(operation, "is_view", False) or name.startswith("aten::new_") or name.endswith("_like"))


class Reads(Watching):
    """Refuses to read memory of these tensors, which were changed since a loop ran forward, so that it cannot run again."""

    def __init__(self, changed: list[Tensor]):
        super().__init__()
        self._changed = [(_span(tensor), list(tensor.shape)) for tensor in changed]

    def __torch_dispatch__(self, operation: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if _reads(operation):
            for given in tree_leaves((args, kwargs)):
                if isinstance(given, Tensor):
                    self._check(_span(given))
        return operation(*args, **(kwargs or {}))

    def _check(self, span: _Span) -> None:
        for changed, shape in self._changed:
            if span.meets(changed):
                raise Error(
                    f"a tensor of shape {shape} that f reads was changed in place between forward and backward, where f is recomputed",
                    remedy="change it after the backward pass, give f a clone of it, or leave budget= out",
                )

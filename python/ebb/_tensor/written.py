# SPDX-License-Identifier: Apache-2.0
"""Which tensors an operation writes to."""

from __future__ import annotations

from typing import Any

from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

# Arguments that kernels update without their schema saying so.
_IN_SILENCE = ("running_mean", "running_var")


class Written(TorchDispatchMode):
    """`found`: the tensors written to inside that were there before."""

    def __init__(self) -> None:
        super().__init__()
        self.found: list[Tensor] = []
        self._made: set[int] = set()
        self._alive: list[Any] = []  # so that no memory takes the place of another

    def __torch_dispatch__(self, operation: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        for k, argument in enumerate(operation._schema.arguments):
            writes = argument.alias_info is not None and argument.alias_info.is_write
            if writes or argument.name in _IN_SILENCE:
                given = args[k] if k < len(args) else kwargs.get(argument.name)
                for tensor in tree_leaves(given):
                    if isinstance(tensor, Tensor) and tensor.untyped_storage()._cdata not in self._made:
                        self.found.append(tensor)
        result = operation(*args, **kwargs)
        given = {
            t.untyped_storage()._cdata for t in tree_leaves((args, kwargs)) if isinstance(t, Tensor) and not t.is_sparse
        }
        for tensor in tree_leaves(result):
            if isinstance(tensor, Tensor) and not tensor.is_sparse:
                memory = tensor.untyped_storage()
                if memory._cdata not in given:
                    self._made.add(memory._cdata)
                    self._alive.append(memory)
        return result

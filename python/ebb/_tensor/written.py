# SPDX-License-Identifier: Apache-2.0
"""Which tensors an operation writes to."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor
from torch.utils._pytree import tree_leaves

from ebb._tensor.watching import Watching

# Arguments that kernels update without their schema saying so.
_IN_SILENCE = ("running_mean", "running_var")
_COPYING = ("aten::_to_copy", "aten::copy_", "aten::_copy_from")


class Written(Watching):
    """`found`: the tensors written to inside that were there before. `copies`: something was copied from the host to a GPU."""

    def __init__(self) -> None:
        super().__init__()
        self.found: list[Tensor] = []
        self.copies = False
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
        tensors = [t for t in tree_leaves((args, kwargs)) if isinstance(t, Tensor)]
        given = {t.untyped_storage()._cdata for t in tensors if t.layout is torch.strided}
        if operation._schema.name in _COPYING and any(not t.is_cuda for t in tensors):
            self.copies |= any(isinstance(t, Tensor) and t.is_cuda for t in tree_leaves(result))
        for tensor in tree_leaves(result):
            if isinstance(tensor, Tensor) and tensor.layout is torch.strided:
                memory = tensor.untyped_storage()
                if memory._cdata not in given:
                    self._made.add(memory._cdata)
                    self._alive.append(memory)
        return result

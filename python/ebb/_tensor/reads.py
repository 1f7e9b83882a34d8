# SPDX-License-Identifier: Apache-2.0
"""Reading what is no longer as it was."""

from __future__ import annotations

from typing import Any

from torch import Tensor
from torch.utils._pytree import tree_leaves

from ebb._base.errors import Error
from ebb._tensor.trees import addresses
from ebb._tensor.watching import Watching


class Reads(Watching):
    """Refuses operations on memory of these tensors, which were changed since a loop ran forward, so that it cannot run again."""

    def __init__(self, changed: list[Tensor]):
        super().__init__()
        self._changed = {address: tensor for tensor in changed for address in addresses([tensor]) if address != 0}

    def __torch_dispatch__(self, operation: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        given = (leaf for leaf in tree_leaves((args, kwargs)) if isinstance(leaf, Tensor))
        for address in addresses(given) & self._changed.keys():
            raise Error(
                f"a tensor of shape {list(self._changed[address].shape)} that f reads was changed in place between forward and "
                "backward, where f runs again",
                remedy="change it after the backward pass, give f a clone of it, or leave budget= out",
            )
        return operation(*args, **(kwargs or {}))

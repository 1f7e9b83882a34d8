# SPDX-License-Identifier: Apache-2.0
"""States that are kept encoded: the leaves of a carry that a codec makes smaller. What f changes beside stays."""

from __future__ import annotations

from typing import Any

from torch import Tensor

from ebb._base.errors import Error
from ebb._loop.codec.codec import Codec

Leaves = list[Any]


class StateCodec:
    """For carries like `leaves`; where what a codec takes depends on the values, all states seen so far say which
    leaves it is for: those that it took, unless they were all zeros, which says nothing of what will come."""

    def __init__(self, codec: Codec, leaves: Leaves):
        self.codec = codec
        self._kinds = [None if leaf is None else (leaf.shape, leaf.dtype) for leaf in leaves]
        self._coded = [leaf is not None and codec.suits(leaf.dtype, leaf.numel()) for leaf in leaves]
        if codec.varies:
            self._shown = [False] * len(leaves)
            self.look(leaves)

    def look(self, leaves: Leaves) -> None:
        """At one more state."""
        if not self.codec.varies:
            return
        for k, leaf in enumerate(leaves):
            if self._coded[k]:
                self._coded[k] = bool(self.codec.encode(_flat(leaf))[1])
                self._shown[k] = self._shown[k] or bool(leaf.any())

    @property
    def coded(self) -> list[bool]:
        if not self.codec.varies:
            return self._coded
        return [coded and shown for coded, shown in zip(self._coded, self._shown)]

    def limit_to(self, coded: list[bool]) -> None:
        """What was found about states like these before."""
        self._coded = self._shown = list(coded)

    def encode(self, leaves: Leaves, name: str) -> Leaves:
        """The bytes of the leaves that are coded, the others as they are."""
        found = list(leaves)
        # The first carry has fewer where f keeps more outside of it.
        for k, coded in enumerate(self.coded[: len(leaves)]):
            if coded:
                found[k], taken = self.codec.encode(_flat(leaves[k]))
                if not bool(taken):
                    raise Error(
                        f"{name}: leaf {k} of the carry has a value that the codec {self.codec.words} does not "
                        "take, and in the first steps, for which the budget was planned, it had none; name "
                        "another codec for states"
                    )
        return found

    def decode(self, leaves: Leaves) -> Leaves:
        found = list(leaves)
        for k, (coded, kind, _) in enumerate(zip(self.coded, self._kinds, leaves)):
            if coded and kind is not None:
                shape, dtype = kind
                found[k] = self.codec.decode(leaves[k], dtype, shape.numel()).view(shape)
        return found


def _flat(leaf: Tensor) -> Tensor:
    return leaf.detach().contiguous().view(-1)

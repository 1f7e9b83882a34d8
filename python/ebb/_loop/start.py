# SPDX-License-Identifier: Apache-2.0
"""A carry as a loop begins with it: where it has None, f may put something at its first step."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import torch
from torch import Tensor

from ebb._loop.blocks import Leaves
from ebb._tensor.outside import Carried
from ebb._tensor.trees import Structure, check_alike


class _Kind(NamedTuple):
    """Of a tensor, as check_alike reads it."""

    shape: torch.Size
    dtype: torch.dtype
    device: torch.device


class _Gaps:
    """What f put at its first step where init has None. From then on it stays of that structure and kind."""

    def __init__(self, what: str):
        self._what = what
        self._structure: Structure | None = None
        self._kinds: list[_Kind | None] = []

    def check(self, values: list[Any]) -> None:
        if self._structure is None:
            self._structure = Structure(values, self._what)
            leaves = self._structure.leaves(values)
            self._kinds = [None if leaf is None else _Kind(leaf.shape, leaf.dtype, leaf.device) for leaf in leaves]
        else:
            check_alike(self._what, self._kinds, self._structure.leaves(values))


class Start:
    """init as blocks take it. What f puts where it has None is not in `leaves`: it is kept in a list beside them, where
    it is found as state that f keeps outside of its arguments is."""

    def __init__(self, init: Any, name: str):
        self._name = name
        self._whole = Structure(init, "init")
        self._init = self._whole.leaves(init)
        self._gaps = [k for k, leaf in enumerate(self._init) if leaf is None]
        self._beside = Carried([None] * len(self._gaps))
        self.leaves: Leaves = [leaf for leaf in self._init if leaf is not None]
        self.structure = self._whole if not self._gaps else Structure(tuple(self.leaves), "init")

    @property
    def known(self) -> Leaves:
        """All leaves of init, None too."""
        return self._init

    def taking(self, f: Callable[..., Any]) -> Callable[..., Any]:
        """f over `structure`. It takes the carry first and returns it first, or alone."""
        if not self._gaps:
            return f
        # By their names what lies outside of a function is called in errors.
        carry, whole, gaps, at = self._beside, self._whole, _Gaps(f"{self._name}: the carry"), self._gaps

        def filled(given: tuple[Tensor, ...], *x: Any) -> Any:
            result = f(_joined(whole, at, given, carry), *x)
            pair = bool(x) and type(result) is tuple and len(result) == 2
            if x and not pair:
                return result  # which is refused
            parts = whole.parts(result[0] if pair else result)
            found = [parts[k] for k in at]
            gaps.check(found)
            carry[:] = found
            rest = tuple(part for k, part in enumerate(parts) if k not in at)
            return (rest, result[1]) if pair else rest

        return filled

    def tree(self, leaves: Leaves) -> Any:
        """The carry as f has it, while the loop runs."""
        own = leaves[: len(self.leaves)]  # behind them is what f keeps elsewhere
        if not self._gaps:
            return self.structure.tree(own)
        return _joined(self._whole, self._gaps, own, self._beside)

    def finished(self, tree: Any) -> Any:
        """The carry as the caller gets it, after the loop. Nothing is kept beside any more: a graph that holds the loop
        must not be held by it."""
        if not self._gaps:
            return tree
        found = _joined(self._whole, self._gaps, tree, self._beside)
        self._beside[:] = [None] * len(self._gaps)
        return found


def _joined(whole: Structure, gaps: list[int], given: Any, beside: list[Any]) -> Any:
    rest, between = iter(given), iter(beside)
    return whole.tree([next(between) if k in gaps else next(rest) for k in range(whole.width)])

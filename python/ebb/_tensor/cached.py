# SPDX-License-Identifier: Apache-2.0
"""Weights that torch.nn.utils.parametrize.cached() keeps: computed once, and used by all steps.

Computed inside of a step they would belong to its graph, or to none; so those that f computes first are forgotten and
computed again before the loop, which then captures them as it does other tensors."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator

import torch
from torch import Tensor
from torch.nn.utils import parametrize

from ebb._base.errors import Error

_Key = tuple[int, str]


class Cached:
    """Of the modules that f uses."""

    def __init__(self, modules: list[torch.nn.Module]):
        self._owners = {id(part): part for module in modules for part in module.modules()}
        self._kept: dict[_Key, Tensor | None] = {}
        self._known: set[_Key] = set()
        self._missing: list[_Key] = []

    def begin(self) -> None:
        """A loop begins, with what is cached now."""
        kept = parametrize._cache if parametrize._cache_enabled else {}
        self._kept = {key: tensor for key, tensor in kept.items() if key[0] in self._owners}
        self._known = set(kept)

    def is_still(self) -> bool:
        return not parametrize._cache_enabled or len(parametrize._cache) == len(self._known)

    def learn(self) -> bool:
        """Whether f has computed some since, which are forgotten."""
        if self.is_still():
            return False
        new = [key for key in parametrize._cache if key not in self._known]
        for key in new:
            del parametrize._cache[key]
            if key[0] not in self._owners:
                raise Error(
                    f"f uses a parametrized {key[1]} of a module that cannot be found from f, inside of parametrize.cached()",
                    remedy="name the module in params=",
                )
        self._missing += new
        return True

    def fill(self) -> bool:
        """Computes what was forgotten. Whether there was something."""
        missing, self._missing = self._missing, []
        for owner, name in missing:
            getattr(self._owners[owner], name)
        return bool(missing)

    def tensors(self) -> list[Tensor]:
        """All of them, whichever steps use them."""
        return [tensor for tensor in self._kept.values() if tensor is not None]

    @contextlib.contextmanager
    def again(self) -> Iterator[None]:
        """Around a backward: the same are cached."""
        outer = parametrize._cache
        if self._kept:
            parametrize._cache_enabled += 1
            parametrize._cache = {**outer, **self._kept}
        try:
            yield
        finally:
            if self._kept:
                parametrize._cache_enabled -= 1
                parametrize._cache = outer


def refuse_cached(name: str, module: torch.nn.Module) -> None:
    if parametrize._cache_enabled and any(parametrize.is_parametrized(part) for part in module.modules()):
        raise Error(
            f"{name}: inside of parametrize.cached() its stages would share weights whose graph is none of theirs",
            remedy="leave cached() out: each stage computes its weights once for all that it does",
        )

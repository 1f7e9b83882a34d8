# SPDX-License-Identifier: Apache-2.0
"""A loop of which all fits the budget: plain autograd runs it, and what it saves is watched."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, TypeVar

import torch
from torch import Tensor

from ebb._loop.remembered import Remembered
from ebb._loop.surprises import TooHeavy
from ebb._tensor.context import Surroundings, View
from ebb._tensor.scale import Scale, hooks_around
from ebb._tensor.trees import addresses

Result = TypeVar("Result")

_WEIGHED = 16  # one time step in this many is weighed where all have been alike, since that takes time


class Fits:
    """`limit` holds that many blocks of what is known. `params`: what f uses, where it is not found from f."""

    def __init__(
        self,
        known: Remembered,
        blocks: int,
        limit: int,
        around: Surroundings,
        before: View,
        params: Sequence[Tensor] = (),
    ):
        self._known, self._around, self._before, self._params = known, around, before, list(params)
        tape, state = known.kept
        self._tapes = blocks * tape
        self._left = limit - state - known.costs.scratch

    def run(self, work: Callable[[Callable[[], None]], Result], steps: int, inputs: list[Tensor]) -> Result:
        """Does the work, which calls what it is given after each of its time steps. Where one takes what is saved beyond the
        limit, all is put back and TooHeavy raised. Inside of other hooks nothing is watched: they decide what is kept, or
        are those of a scan around this one, which watches."""
        if hooks_around() is not None or not _hooks_are_allowed():
            return work(_nothing)
        theirs = inputs + self._params
        watch = _Watch(self._known, self._tapes / steps, self._left, lambda: addresses(theirs + self._around.tensors()))
        self._around.cached.begin()
        try:
            with watch:
                result = work(watch.look)
        except TooHeavy:
            self._around.cached.learn()
            self._around.put_back(self._before)
            self._known.note_too_heavy()
            raise
        self._known.calls = 0 if watch.heavier else self._known.calls + 1
        return result


class _Watch:
    """Over the time steps of one loop."""

    def __init__(self, known: Remembered, share: float, left: float, callers: Callable[[], set[int]]):
        self.heavier = False  # one of them was than any before
        self._most, self._share, self._left = known.weight.step, share, left
        self._every = _WEIGHED if known.alike else 1
        self._scale = Scale(callers())
        self._hooks: Any = None
        self._t = known.calls  # others each time

    def __enter__(self) -> None:
        self._weigh_next()

    def __exit__(self, *_: object) -> None:
        self._stop()

    def _stop(self) -> None:
        if self._hooks is not None:
            self._hooks.__exit__()
            self._hooks = None

    def look(self) -> None:
        self._t += 1
        taken = self._share
        if self._hooks is not None:
            self._stop()
            found = self._scale.count()
            if found > self._most:
                self.heavier, self._every = True, 1
                taken = max(taken, found)
            self._scale.forget()
        self._left -= taken
        if self._left < -1:  # what was planned to fit does, but for roundings
            raise TooHeavy
        if self._t % self._every == 0:
            self._weigh_next()

    def _weigh_next(self) -> None:
        self._hooks = self._scale.hooks()
        self._hooks.__enter__()


def _nothing() -> None:
    pass


def _hooks_are_allowed() -> bool:
    allowed = getattr(torch._C._autograd, "_saved_tensors_hooks_is_enabled", None)
    return allowed is None or allowed()

# SPDX-License-Identifier: Apache-2.0
"""What every schedule is: an iterator of actions that says where forward and adjoint stand."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator
from typing import Any

from ebb._base.errors import Error
from ebb._base.request import as_count


class CheckpointSchedule(ABC):
    """An iterator of actions. ``max_n`` is the number of steps; None: :meth:`finalize` says it when the forward has ended.

    A schedule of your own has :meth:`uses_storage_type`, ``is_exhausted`` and ``_iterator``, a generator of actions
    that keeps ``_n`` and ``_r`` as it goes.
    """

    def __init__(self, max_n: int | None = None):
        self._max_n = None if max_n is None else as_count(max_n, "max_n", least=1)
        self._n = 0
        self._r = 0
        self._actions: Iterator[Any] | None = None

    def __iter__(self) -> Iterator[Any]:
        return self

    def __next__(self) -> Any:
        if self._actions is None:
            self._actions = self._iterator()
        return next(self._actions)

    @abstractmethod
    def _iterator(self) -> Iterator[Any]:
        """The actions, one at a time."""

    @property
    @abstractmethod
    def is_exhausted(self) -> bool:
        """Whether no action will follow; some schedules permit any number of adjoint calculations and never are."""

    @abstractmethod
    def uses_storage_type(self, storage_type: Any) -> bool:
        """Whether the schedule may use that storage."""

    @property
    def n(self) -> int:
        """Where the forward stands."""
        return self._n

    @property
    def r(self) -> int:
        """How many steps the adjoint has gone back."""
        return self._r

    @property
    def max_n(self) -> int | None:
        """The number of forward steps; None while it is unknown."""
        return self._max_n

    @property
    def is_running(self) -> bool:
        """Whether an action has been taken from it."""
        return self._actions is not None

    def finalize(self, n: int) -> None:
        """The forward calculation had ``n`` steps: to be said before the action after the last Forward is taken."""
        n = as_count(n, "finalize: n", least=1)
        if self._max_n is None and self._n >= n:
            self._n = self._max_n = n
        elif (self._n, self._max_n) != (n, n):
            planned = "an unknown number" if self._max_n is None else str(self._max_n)
            raise Error(
                f"finalize: n is {n}, but the forward stands at step {self._n} of {planned}; it must be called with the "
                "number of steps, when the forward has run them"
            )


class OwnSchedule(CheckpointSchedule):
    """One of the package's own, which knows beforehand what it uses."""

    def __init__(self, max_n: int | None = None):
        super().__init__(max_n)
        self._exhausted = False
        self._used: frozenset[Any] = frozenset()

    @property
    def is_exhausted(self) -> bool:
        """Whether no action will follow."""
        return self._exhausted

    def uses_storage_type(self, storage_type: Any) -> bool:
        """Whether the schedule may use that storage."""
        return storage_type in self._used

    def _length(self) -> int:
        """Of the forward, which has ended."""
        if self._max_n is None:
            raise Error(
                f"{type(self).__name__} does not know how many steps there are; call finalize(n) when the forward has run "
                "them, and only then take the next action"
            )
        return self._max_n

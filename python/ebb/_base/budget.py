# SPDX-License-Identifier: Apache-2.0
"""Budgets as callers say them, and as the rest of the package takes them: an Allowance."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Callable, Iterator
from typing import NoReturn, TypeVar

from ebb import _core
from ebb._base.errors import Error
from ebb._base.sizes import UNLIMITED
from ebb._base.wish import WORDS, Wish, bytes_of, wish_of

Result = TypeVar("Result")


class _Calls(threading.local):
    """That this thread is in, of all shared budgets, the outermost first."""

    def __init__(self) -> None:
        self.inside: list[_Nesting] = []


_calls = _Calls()


class Allowance:
    """Bytes that a call may hold, for itself alone."""

    shared = False  # with other calls
    ledger: _core.Ledger | None = None  # which all calls book in; None: each has its own

    def __init__(self, total: int, wish: Wish | None = None):
        self.total = total
        self.wish = wish  # what the bytes follow from once the costs of the call are known
        self.settled = wish is None
        self.whole = 0  # bytes that keeping everything takes, where a wish was settled

    def __repr__(self) -> str:
        return repr(self.total) if self.wish is None else repr(self.wish.said)

    def settle(self, total: int, whole: int) -> None:
        self.total, self.whole, self.settled = total, whole, True

    def unsettle(self) -> None:
        """The costs that a wish was settled for do not hold."""
        self.settled = self.wish is None

    @property
    def told(self) -> list[str]:
        """What became of a wish."""
        return [] if self.wish is None or not self.settled else [self.wish.told(self.total, self.whole)]

    @property
    def unlimited(self) -> bool:
        return self.total == UNLIMITED

    @property
    def nesting(self) -> tuple[object, ...]:
        """What else the costs of a call depend on that makes others in the same budget."""
        return ()

    def own_ledger(self) -> _core.Ledger:
        """What one call books in."""
        return _core.Ledger(self.total) if self.ledger is None else self.ledger

    def part(self, parts: int) -> Allowance:
        """For one of that many calls that get the same."""
        return Allowance(self.total // parts, self.wish)

    def take(self, needs: Callable[[], tuple[int, int]]) -> int:
        """Bytes for one more call, which gives them back by give_back. `needs`: what it cannot do without and what it takes
        to store all, asked for only where that matters."""
        return self.total

    def give_back(self) -> None:
        pass

    def cancel(self) -> None:
        """The last call has failed: as if it had not been."""

    def refuse(self, error: Error) -> NoReturn:
        """It is too small for the plan of a call, as the error says."""
        raise error from None

    def running(self) -> contextlib.AbstractContextManager[object]:
        """While a call runs: calls inside of it are a part of it."""
        return contextlib.nullcontext()

    def fitted(self, call: Callable[[], Result]) -> Result:
        """What `call` gives, which is made again where calls inside of it have too much or too little of the budget."""
        return call()


class _Parts:
    """What calls inside of other calls get of a shared budget. What they hold is a part of the graphs of the call around
    them, whose costs are measured with it: so it must be the same each time, however the budget is divided otherwise."""

    def __init__(self) -> None:
        self._halvings: dict[int, int] = {}  # by depth; 1 is inside of one call
        self._least: dict[int, int] = {}

    def of(self, depth: int, around: int) -> int:
        """Inside of a call that has so much."""
        return max(around >> self._halvings.get(depth, 1), self._least.get(depth, 0))

    def less(self, depth: int, given: int) -> bool:
        """The call around them does not fit: can they do with less?"""
        if given <= max(1, self._least.get(depth, 0)):
            return False
        self._halvings[depth] = self._halvings.get(depth, 1) + 1
        return True

    def more(self, depth: int, least: int | None) -> bool:
        """One of them cannot do with less than that: has it more to get?"""
        if least is None or least <= self._least.get(depth, 0):
            return False
        self._least[depth] = least
        return True

    @property
    def key(self) -> tuple[object, ...]:
        return tuple(self._halvings.items()), tuple(self._least.items())


class _Nesting(Allowance):
    """Of which calls may be made inside of calls."""

    def __init__(self, total: int, parts: _Parts, depth: int = 0):
        super().__init__(total)
        self.parts = parts
        self._depth = depth
        self._inner: int | None = None  # what the last call inside of this one has got
        self._refused = False  # the last error is about this one

    @property
    def nesting(self) -> tuple[object, ...]:
        return self._depth, *self.parts.key

    def inside(self) -> Allowance:
        """For a call inside of one of this."""
        self._inner = self.parts.of(self._depth + 1, self.total)
        return _Nesting(self._inner, self.parts, self._depth + 1)

    def refuse(self, error: Error) -> NoReturn:
        self._refused = True
        raise error from None

    @contextlib.contextmanager
    def running(self) -> Iterator[None]:
        _calls.inside.append(self)
        try:
            yield
        finally:
            _calls.inside.pop()

    def fitted(self, call: Callable[[], Result]) -> Result:
        while True:
            self._inner, self._refused = None, False
            try:
                with self.running():
                    return call()
            except Error as error:
                if error.code != "infeasible_budget" or not self._adapted(error):
                    raise

    def _adapted(self, error: Error) -> bool:
        if self._inner is None:
            return False
        below = self._depth + 1
        return self.parts.less(below, self._inner) if self._refused else self.parts.more(below, error.least_budget)


class _Shared(_Nesting):
    """Divided among the calls of an iteration."""

    shared = True

    def __init__(self, total: int):
        super().__init__(total, _Parts())
        self.booked = _core.Ledger(total)
        self.ledger = self.booked
        self._known: list[tuple[int, int]] = []  # least and wanted, of the calls of the last round
        self._round: list[tuple[int, int]] = []
        self._shares: list[int] = []
        self._given = 0
        self._open = 0

    def __repr__(self) -> str:
        return f"ebb.Budget({_core.format_bytes(self.total)!r})"

    def part(self, parts: int) -> Allowance:
        return self

    def take(self, needs: Callable[[], tuple[int, int]]) -> int:
        least, wanted = needs()
        if self._open == 0 and self._round:
            self._known, self._round, self._shares, self._given = self._round, [], [], 0
        index = len(self._round)
        left = self.total - self._given
        share = self._share(index) if index < len(self._known) and self._known[index] == (least, wanted) else left // 2
        share = min(max(share, least), wanted, left)
        if share < least:
            error = Error(
                f"{self!r}: call {index + 1} of this iteration needs at least {_core.format_bytes(least)}, and "
                f"{_core.format_bytes(left)} are left",
                "infeasible_budget",
                self._given + least,
                f"allow at least {_core.format_bytes(self._given + least)}",
            )
            self.refuse(error)
        self._round.append((least, wanted))
        self._shares.append(share)
        self._given += share
        self._open += 1
        return share

    def _share(self, index: int) -> int:
        least = [one for one, _ in self._known]
        more = [wanted - one for one, wanted in self._known]
        spare = self.total - sum(least)
        if spare < 0 or sum(more) == 0:
            return least[index]
        return least[index] + min(more[index], spare * more[index] // sum(more))

    def give_back(self) -> None:
        self._open -= 1

    def cancel(self) -> None:
        self._round.pop()
        self._given -= self._shares.pop()
        self._open -= 1


class _Wished(Allowance):
    """One call's of a budget that is a share or a word: its own part of it, booked with those of the others."""

    def __init__(self, wish: Wish, ledger: _core.Ledger):
        super().__init__(0, wish)
        self.ledger = ledger

    def part(self, parts: int) -> Allowance:
        assert self.wish is not None and self.ledger is not None
        return _Wished(self.wish, self.ledger)


class Budget:
    """One budget shared by all calls of a model whose forwards precede their backwards.

    Pass the same object to each call. In the first iteration, each call takes half of what is left. From the second on, the
    budget is divided in proportion to what the calls need to keep everything, and each call gets at least its minimum.

    ``"20%"`` gives each call 20 % of what keeping everything takes in that call; ``"memory"``, ``"balanced"`` and ``"speed"``
    work likewise. Each call's report says how many bytes that is.

    >>> budget = Budget("2GiB")
    >>> budget.total
    2147483648
    >>> Budget("20%").total is None
    True
    """

    def __init__(self, total: float | str):
        self._said = total
        self._wish = wish_of(total, "Budget")
        self.total = None if self._wish is not None else _bytes(total)  #: bytes; None where they follow from the calls
        self._shared = _Shared(UNLIMITED if self.total is None else self.total)

    # A copy of a model shares its budget; one that is loaded elsewhere has its own.
    def __deepcopy__(self, memo: dict[int, object]) -> Budget:
        return self

    def __reduce__(self) -> tuple[type[Budget], tuple[float | str]]:
        return Budget, (self._said,)

    def __repr__(self) -> str:
        return repr(self._shared) if self._wish is None else f"ebb.Budget({self._wish.said!r})"

    @property
    def held(self) -> int:
        """Bytes charged now."""
        return self._shared.booked.live

    @property
    def peak(self) -> int:
        """The most bytes ever charged at once."""
        return self._shared.booked.peak

    def _allowance(self) -> Allowance:
        """For one more call."""
        if self._wish is not None:
            return _Wished(self._wish, self._shared.booked)
        around = [one for one in _calls.inside if one.parts is self._shared.parts]
        return around[-1].inside() if around else self._shared


BudgetLike = float | str | Budget


def _bytes(budget: float | str) -> int:
    try:
        return bytes_of(budget, "budget")
    except Error as error:
        if not isinstance(budget, str) or "%" in str(error):
            raise
        raise Error(f"{error}, or a share such as '20%', or {', '.join(map(repr, WORDS))}") from None


def allowance_of(budget: BudgetLike) -> Allowance:
    """What the caller allows; raises for what is no budget.

    >>> allowance_of("64KiB").total, allowance_of(Budget(100)).shared, allowance_of("20%").settled
    (65536, True, False)
    """
    if not isinstance(budget, Budget):
        wish = wish_of(budget, "budget")
        return Allowance(_bytes(budget)) if wish is None else Allowance(0, wish)
    return budget._allowance()

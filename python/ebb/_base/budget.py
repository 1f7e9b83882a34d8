# SPDX-License-Identifier: Apache-2.0
"""One budget for several calls."""

from __future__ import annotations

from ebb import _core
from ebb._base.errors import Error
from ebb._base.sizes import as_bytes


class Budget:
    """One budget shared by all calls of a model whose forwards precede their backwards.

    Give the same object to each call. In the first iteration a call takes half of what is left; from the second on the
    budget is divided by what the calls need to store all, each getting at least what it cannot do without.

    >>> budget = Budget("2GiB")
    >>> budget.total
    2147483648
    """

    def __init__(self, total: int | str):
        self.total = as_bytes(total, "budget")
        self._ledger = _core.Ledger(self.total)
        self._known: list[tuple[int, int]] = []  # least and wanted, of the calls of the last round
        self._round: list[tuple[int, int]] = []
        self._shares: list[int] = []
        self._given = 0
        self._open = 0

    # A copy of a model shares its budget; one that is loaded elsewhere has its own.
    def __deepcopy__(self, memo: dict) -> Budget:
        return self

    def __reduce__(self) -> tuple:
        return Budget, (self.total,)

    def __repr__(self) -> str:
        return f"ebb.Budget({_core.format_bytes(self.total)!r})"

    @property
    def held(self) -> int:
        """Bytes charged now."""
        return self._ledger.live

    @property
    def peak(self) -> int:
        """The most bytes ever charged at once."""
        return self._ledger.peak

    def _take(self, least: int, wanted: int) -> int:
        """Bytes for one more call, which gives them back by _give_back."""
        if self._open == 0 and self._round:
            self._known, self._round, self._shares, self._given = self._round, [], [], 0
        index = len(self._round)
        left = self.total - self._given
        share = self._share(index) if index < len(self._known) and self._known[index] == (least, wanted) else left // 2
        share = min(max(share, least), wanted, left)
        if share < least:
            raise Error(
                f"{self!r}: call {index + 1} of this iteration needs at least {_core.format_bytes(least)}, and "
                f"{_core.format_bytes(left)} are left; allow at least {_core.format_bytes(self._given + least)}",
                "infeasible_budget",
                self._given + least,
            )
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

    def _give_back(self) -> None:
        self._open -= 1

    def _cancel(self) -> None:
        """The last call has failed: as if it had not been."""
        self._round.pop()
        self._given -= self._shares.pop()
        self._open -= 1

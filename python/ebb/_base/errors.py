# SPDX-License-Identifier: Apache-2.0
"""The one exception of the package."""

from __future__ import annotations


class Error(RuntimeError):
    """What ebb raises for every mistake it finds; what your own functions raise comes through unchanged.

    ``code`` says what kind: ``"invalid_argument"``, ``"infeasible_budget"`` (``least_budget`` says what would
    work, in bytes), ``"out_of_budget"``, ``"unavailable"``, ``"out_of_memory"``, ``"io"``, ``"device"``,
    ``"cancelled"``.

    The text is ``problem``, what is wrong, and behind it, where something can be done in words of its own,
    ``remedy``: code that calls ebb for its users can put its own remedy there.

    >>> import ebb
    >>> try:
    ...     ebb.plan(100, state="1MiB", tape="4MiB", budget="3MiB")
    ... except ebb.Error as error:
    ...     print(error.code, error.least_budget, error.remedy, sep=", ")
    infeasible_budget, 6291456, raise the budget, or take a smaller step
    """

    def __init__(self, problem: str, code: str = "invalid_argument", least_budget: int | None = None, remedy: str = ""):
        super().__init__(f"{problem}; {remedy}" if remedy else problem)
        self.problem = problem
        self.code = code
        self.least_budget = least_budget
        self.remedy = remedy

    def __reduce__(self) -> tuple[type[Error], tuple[str, str, int | None, str]]:
        return type(self), (self.problem, self.code, self.least_budget, self.remedy)

# SPDX-License-Identifier: Apache-2.0
"""The one exception of the package."""

from __future__ import annotations


class Error(RuntimeError):
    """Every error that ebb raises. Exceptions raised by your own functions are passed through unchanged.

    ``code`` says what kind: ``"invalid_argument"``, ``"infeasible_budget"`` (``least_budget`` says what would
    work, in bytes), ``"out_of_budget"``, ``"unavailable"``, ``"out_of_memory"``, ``"io"``, ``"device"``,
    ``"cancelled"``.

    The text is ``problem`` (what is wrong) followed by ``remedy`` (what to do about it), if there is one. A library that
    calls ebb can replace ``remedy`` with advice for its own users.

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

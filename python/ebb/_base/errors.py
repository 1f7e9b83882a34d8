# SPDX-License-Identifier: Apache-2.0
"""The one exception of the package."""

from __future__ import annotations


class Error(RuntimeError):
    """What ebb raises for every mistake it finds; what your own functions raise comes through unchanged.

    ``code`` says what kind: ``"invalid_argument"``, ``"infeasible_budget"`` (``least_budget`` says what would
    work, in bytes), ``"out_of_budget"``, ``"unavailable"``, ``"out_of_memory"``, ``"io"``, ``"device"``,
    ``"cancelled"``.
    """

    def __init__(self, message: str, code: str = "invalid_argument", least_budget: int | None = None):
        super().__init__(message)
        self.code = code
        self.least_budget = least_budget


Error.__module__ = "ebb"  # the name that users see in a traceback and write in an except clause

# SPDX-License-Identifier: Apache-2.0
"""Bytes as callers say them: whole numbers, or words such as "1.5GiB"."""

from __future__ import annotations

import operator

from ebb import _core
from ebb._base.errors import Error

UNLIMITED: int = _core.UNLIMITED


def as_bytes(value: float | str, what: str) -> int:
    """The bytes that ``value`` says; ``what`` names it in errors.

    >>> as_bytes("64KiB", "budget"), as_bytes(100, "budget"), as_bytes(2e9, "budget")
    (65536, 100, 2000000000)
    """
    if isinstance(value, str):
        try:
            return _core.parse_bytes(value)
        except Error as error:
            raise Error(f"{what}: {error}") from None
    try:
        number = int(value) if isinstance(value, float) and value.is_integer() else operator.index(value)  # type: ignore[arg-type]
    except TypeError:
        raise Error(f"{what} is {value!r}; it must be bytes as a whole number or a word such as '512MiB'") from None
    if isinstance(value, bool) or not 0 <= number <= UNLIMITED:
        raise Error(f"{what} is {value!r}; it must be bytes from 0 to {UNLIMITED}")
    return number

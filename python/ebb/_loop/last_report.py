# SPDX-License-Identifier: Apache-2.0
"""What the latest call says of itself."""

from __future__ import annotations

import functools
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, TypeVar

Function = TypeVar("Function", bound=Callable[..., Any])


class _Told(threading.local):
    latest: Any = None  # of the latest call that has ended: its report, or a function that gives it
    running: Any = None  # the same of the call that runs now


_told = _Told()


def _asked(kept: Any) -> Any:
    return kept() if callable(kept) else kept


def last_report() -> Any:
    """The report of the latest call of `scan`, `while_loop`, a Chain or a layer in this thread; of a layer it is `layer.report`.

    None before the first call, and after a call that planned nothing: one without a budget, without gradients, or that failed.
    Measured figures are filled in when the backward pass of the call has run."""
    return _asked(_told.latest)


def set_report(report: Any) -> None:
    """Of the call that runs now; a function is asked for it each time that somebody wants it."""
    _told.running = report


def running_report() -> Any:
    return _asked(_told.running)


def reported(call: Function) -> Function:
    """From its end on `last_report` tells about this call: what it has set by `set_report`, or None; never about calls that it
    makes itself, nor about earlier ones."""

    @functools.wraps(call)
    def told(*args: Any, **kwargs: Any) -> Any:
        outer, _told.running = _told.running, None
        try:
            return call(*args, **kwargs)
        finally:
            _told.latest, _told.running = _told.running, outer

    return told  # type: ignore[return-value]


@contextmanager
def untold() -> Iterator[None]:
    """Calls inside, which are parts of another one that runs again, are not told about."""
    latest = _told.latest
    try:
        yield
    finally:
        _told.latest = latest

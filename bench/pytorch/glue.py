# SPDX-License-Identifier: Apache-2.0
"""What ebb itself takes for each action of the executor."""

from __future__ import annotations

import time

import torch

import ebb


def glue() -> float:
    """Seconds: f does nothing, and what torch's engine takes is not counted."""
    state = torch.zeros(4, requires_grad=True)
    steps = 2000
    found = ebb.scan(
        lambda c, x: (c, None),
        state,
        None,
        length=steps,
        chunk=1,
        budget="16KiB",
        strategy="revolve",
        preserve_rng_state=False,
    )
    engine, inside = torch.autograd.grad, 0.0

    def timed_engine(*args: object, **options: object) -> object:
        nonlocal inside
        start = time.perf_counter()
        try:
            return engine(*args, **options)
        finally:
            inside += time.perf_counter() - start

    torch.autograd.grad = timed_engine
    start = time.perf_counter()
    found[0].sum().backward()
    seconds = time.perf_counter() - start
    torch.autograd.grad = engine
    return (seconds - inside) / ebb.last_report().measured["actions"]

# SPDX-License-Identifier: Apache-2.0
"""Loops for tests of codecs, and budgets for them."""

from __future__ import annotations

import torch
from scan_oracle import clones, least

import ebb
import ebb.nn

BATCH, WIDTH, STEPS = 8, 32, 36


def lstm(dtype=torch.float32):
    cell = torch.nn.LSTMCell(WIDTH, WIDTH, dtype=dtype)

    def f(carry, x):
        h, c = cell(x, carry)
        return (h, c), h

    zero = torch.zeros(BATCH, WIDTH, dtype=dtype)
    return f, (zero, zero.clone()), torch.randn(STEPS, BATCH, WIDTH, dtype=dtype), list(cell.parameters())


def lif(width: int = 64, dtype=torch.float32):
    cell = ebb.nn.LIFCell(WIDTH, width, recurrent=True).to(dtype)

    def f(carry, x):
        return cell.step(carry, x)

    return f, cell.zero_state(BATCH), 10 * torch.randn(STEPS, BATCH, WIDTH, dtype=dtype), list(cell.parameters())


def room(f, init, xs, share: float = 0.3, **options) -> int:
    """A budget between the least and what keeps everything, without codecs."""
    small = least(f, init, xs, **options)
    ebb.scan(f, clones(init), clones(xs), budget=small, **options)
    report = ebb.last_report()
    return small + int(share * report.costs.tape * report.steps)

# SPDX-License-Identifier: Apache-2.0
"""Loops for tests of codecs, budgets for them, and how far their gradients are from the loop's by hand."""

from __future__ import annotations

import torch
from scan_oracle import clones, gradients, least, loop, weighted

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


def both(f, init, xs, params, **options):
    """Outputs and gradients of a scan and of the loop by hand."""
    found = []
    for run in (lambda *own: loop(f, *own), lambda *own: ebb.scan(f, *own, **options)):
        own = clones(init), clones(xs).requires_grad_()
        carry, ys = run(*own)
        found.append((carry, ys, gradients(weighted(carry, ys), [own[1], *params])))
    return found


def worst(mine, exact) -> float:
    return max(float((a - b).norm() / b.norm()) for a, b in zip(mine, exact))

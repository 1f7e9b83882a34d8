# SPDX-License-Identifier: Apache-2.0
"""The sizes, numbers and cell of the tests of ebb.scan."""

from __future__ import annotations

import torch

torch.set_num_threads(1)
T, BATCH, WIDTH = 12, 2, 3


def numbers(*shape: int, grad: bool = True, dtype: torch.dtype = torch.float32) -> torch.Tensor:
    return torch.randn(*shape, dtype=dtype).requires_grad_(grad)


def rnn(width: int = WIDTH, dtype: torch.dtype = torch.float32):
    cell = torch.nn.RNNCell(WIDTH, width, dtype=dtype)

    def f(h, x):
        h = cell(x, h)
        return h, h

    return f, list(cell.parameters())

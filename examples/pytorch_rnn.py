# SPDX-License-Identifier: Apache-2.0
"""A whole training loop: a GRU learns to add two numbers far apart in a sequence, in an eighth of the memory.

Each sequence has a row of random numbers and a row of marks; the answer is the sum of the two marked numbers
(Hochreiter and Schmidhuber 1997). Replace `ebb.nn.GRU` by `torch.nn.GRU` and nothing changes but the memory.
"""

import sys

import torch

import ebb
import ebb.nn

STEPS, BATCH, HIDDEN = 100, 64, 32
ITERATIONS = int(sys.argv[1]) if len(sys.argv) > 1 else 500


def batch(generator):
    numbers = torch.rand(STEPS, BATCH, generator=generator)
    marks = torch.zeros(STEPS, BATCH)
    for half in range(2):
        where = torch.randint(half * STEPS // 2, (half + 1) * STEPS // 2, (BATCH,), generator=generator)
        marks[where, torch.arange(BATCH)] = 1
    return torch.stack([numbers, marks], 2), (numbers * marks).sum(0)


def main():
    torch.manual_seed(0)
    generator = torch.Generator().manual_seed(1)
    layer = ebb.nn.GRU(2, HIDDEN, budget="512KiB")
    readout = torch.nn.Linear(HIDDEN, 1)
    optimizer = torch.optim.Adam([*layer.parameters(), *readout.parameters()], lr=1e-2)
    losses = []
    for iteration in range(ITERATIONS):
        x, wanted = batch(generator)
        outputs, _ = layer(x)
        loss = torch.nn.functional.mse_loss(readout(outputs[-1]).squeeze(1), wanted)
        optimizer.zero_grad()
        loss.backward()
        torch.nn.utils.clip_grad_norm_(layer.parameters(), 1.0)
        optimizer.step()
        losses.append(loss.item())
        if iteration % 50 == 0:
            print(f"iteration {iteration:4}  loss {loss.item():.4f}")
    print(f"mean of the last 20 losses: {sum(losses[-20:]) / 20:.4f} (always answering 1 gives 0.167)")
    print(layer.report)


if __name__ == "__main__":
    main()

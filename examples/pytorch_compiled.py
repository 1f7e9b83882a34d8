# SPDX-License-Identifier: Apache-2.0
"""A deep net under torch.compile: trained as torch.compile would, with 60 % of the memory, and with what is kept in 8 bits."""

import torch
from torch import nn

import ebb

WIDTH, DEPTH, BATCH, ITERATIONS = 256, 6, 2048, 20


def net():
    torch.manual_seed(0)
    layers = [layer for _ in range(DEPTH) for layer in (nn.Linear(WIDTH, WIDTH), nn.LayerNorm(WIDTH), nn.GELU())]
    return nn.Sequential(*layers, nn.Linear(WIDTH, 10))


def train(backend):
    model = net()
    compiled = torch.compile(model, backend=backend)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    x, wanted = torch.randn(BATCH, WIDTH), torch.randint(0, 10, (BATCH,))
    for _ in range(ITERATIONS):
        loss = nn.functional.cross_entropy(compiled(x), wanted)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    return loss.item()


def main():
    print(f"torch.compile: loss {train('inductor'):.4f}")
    for words in ({"budget": "60%"}, {"keep": "int8"}):
        torch._dynamo.reset()  # each way compiles the net anew
        backend = ebb.compiled(**words)
        print(f"ebb.compiled({words}): loss {train(backend):.4f}, {backend.reports[0]}")


if __name__ == "__main__":
    main()

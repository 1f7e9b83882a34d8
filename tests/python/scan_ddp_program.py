# SPDX-License-Identifier: Apache-2.0
"""What test_scan_ddp.py runs in several processes: a recurrent model trained for two steps, whose parameters go to a file."""

from __future__ import annotations

import argparse
import os

import torch
import torch.distributed as dist

import ebb

STEPS, BATCH, INPUTS, WIDTH = 40, 12, 3, 8


class Model(torch.nn.Module):
    def __init__(self, budget: int | None, spare: bool):
        super().__init__()
        torch.manual_seed(1)
        self.cell = torch.nn.GRUCell(INPUTS, WIDTH, dtype=torch.float64)
        self.out = torch.nn.Linear(WIDTH, 1, dtype=torch.float64)
        self.spare = torch.nn.Linear(2, 2, dtype=torch.float64) if spare else None  # which nothing uses
        self.budget = budget

    def step(self, h, x):
        h = self.cell(x, h)
        return h, self.out(h)

    def forward(self, xs):
        h = xs.new_zeros(xs.shape[1], WIDTH)
        return ebb.scan(self.step, h, xs, budget=self.budget, chunk=2)[1]


def trained(wrap: str, unused: bool, budget: int | None, iterations: int, rank: int, world: int) -> dict:
    """The parameters after some steps, and how many forwards the last one took."""
    inner = Model(budget, unused)
    model: torch.nn.Module = inner
    if wrap == "ddp":
        model = torch.nn.parallel.DistributedDataParallel(inner, find_unused_parameters=unused)
    elif wrap == "fsdp":
        from torch.distributed.fsdp import fully_shard

        model = fully_shard(inner, mesh=dist.device_mesh.init_device_mesh("cpu", (world,)))
    torch.manual_seed(2)
    xs = torch.randn(STEPS, BATCH, INPUTS, dtype=torch.float64)
    target = torch.randn(STEPS, BATCH, 1, dtype=torch.float64)
    part = slice(rank * BATCH // world, (rank + 1) * BATCH // world)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
    for _ in range(iterations):
        optimizer.zero_grad()
        torch.nn.functional.mse_loss(model(xs[:, part]), target[:, part]).backward()
        optimizer.step()
    found = {name: p.full_tensor() if hasattr(p, "full_tensor") else p for name, p in inner.named_parameters()}
    forwards = ebb.last_report().predicted["forwards"] if budget else 0
    return {"params": {name: p.detach() for name, p in found.items()}, "forwards": forwards}


def main() -> None:
    options = argparse.ArgumentParser()
    options.add_argument("--file", required=True)
    options.add_argument("--budget", type=int, required=True)
    options.add_argument("--unused", action="store_true")
    options.add_argument("--wrap", choices=["ddp", "fsdp"], required=True)
    given = options.parse_args()
    torch.set_num_threads(1)
    dist.init_process_group("gloo")
    rank, world = dist.get_rank(), dist.get_world_size()
    found = {"alone": trained("none", given.unused, None, 2, 0, 1)}
    for iterations in (1, 2):
        for name, budget in (("plain", None), ("budget", given.budget)):
            found[name, iterations] = trained(given.wrap, given.unused, budget, iterations, rank, world)
    if rank == 0:
        torch.save(found, given.file)
    dist.barrier()
    dist.destroy_process_group()


if __name__ == "__main__":
    os.environ.setdefault("GLOO_SOCKET_IFNAME", "lo")
    main()

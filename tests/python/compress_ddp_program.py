# SPDX-License-Identifier: Apache-2.0
"""What test_compress_ddp.py runs in several processes: a convolutional net trained for two steps, whose parameters go to a file."""

from __future__ import annotations

import argparse
import os

import torch
import torch.distributed as dist
from torch import nn

import ebb


def net() -> nn.Sequential:
    torch.manual_seed(1)
    return nn.Sequential(
        nn.Conv2d(3, 4, 3),
        nn.GroupNorm(2, 4),
        nn.ReLU(),
        nn.Conv2d(4, 4, 3, padding=1),
        nn.BatchNorm2d(4),
        nn.SiLU(),
        nn.MaxPool2d(2),
        nn.Flatten(),
        nn.LayerNorm(36),
        nn.Dropout(0.2),
        nn.Linear(36, 5),
    )


def trained(wrap: str, options: dict | None, rank: int, world: int) -> dict:
    """The parameters and buffers after two steps, or the message of an error."""
    inner = net()
    if options is not None:
        ebb.compress(inner, **options)
    model: nn.Module = inner
    if wrap == "ddp":
        model = nn.parallel.DistributedDataParallel(inner)
    elif wrap.startswith("fsdp"):
        from torch.distributed.fsdp import fully_shard

        mesh = dist.device_mesh.init_device_mesh("cpu", (world,))
        if wrap == "fsdp each":  # the harshest: a layer's parameters are freed before the next one runs
            for layer in inner:
                if list(layer.parameters()):
                    fully_shard(layer, mesh=mesh, reshard_after_forward=True)
        model = fully_shard(inner, mesh=mesh)
    torch.manual_seed(2 + rank)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
    try:
        for _ in range(2):
            optimizer.zero_grad()
            model(torch.randn(4, 3, 8, 8)).square().mean().backward()
            optimizer.step()
    except ebb.Error as error:
        return {"error": str(error)}
    found = {name: p.full_tensor() if hasattr(p, "full_tensor") else p for name, p in inner.state_dict().items()}
    return {name: value.detach().clone() for name, value in found.items()}


def main() -> None:
    options = argparse.ArgumentParser()
    options.add_argument("--file", required=True)
    options.add_argument("--wraps", nargs="+", required=True)
    given = options.parse_args()
    torch.set_num_threads(1)
    dist.init_process_group("gloo")
    rank, world = dist.get_rank(), dist.get_world_size()
    found = {}
    ways = {"stock": None, "exact": {}, "recompute": dict(norm="recompute"), "pool": dict(pool=2, norm="int8")}
    for wrap in given.wraps:
        found[wrap] = {name: trained(wrap, wanted, rank, world) for name, wanted in ways.items()}
    if rank == 0:
        torch.save(found, given.file)
    dist.barrier()
    dist.destroy_process_group()


if __name__ == "__main__":
    os.environ.setdefault("GLOO_SOCKET_IFNAME", "lo")
    main()

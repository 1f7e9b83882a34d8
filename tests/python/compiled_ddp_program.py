# SPDX-License-Identifier: Apache-2.0
"""What test_compiled_ddp.py runs in several processes: a net trained for two steps under DDP, whose parameters go to a file."""

from __future__ import annotations

import argparse
import os
from typing import Any

import pytest
import torch
import torch.distributed as dist
from compiled_cases import Stock, by_operation, residual
from torch import nn

import ebb


def trained(backend: Any, rank: int) -> dict[str, Any]:
    torch._dynamo.reset()
    torch.manual_seed(1)
    model, _ = residual(3)
    # Small buckets, so that the graph of the model is cut at some of them.
    run = torch.compile(nn.parallel.DistributedDataParallel(model, bucket_cap_mb=0.005), backend=backend)
    torch.manual_seed(2 + rank)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
    for _ in range(2):
        optimizer.zero_grad()
        run(torch.randn(4, 3, 32, 32)).square().mean().backward()
        optimizer.step()
    return {name: value.detach().clone() for name, value in model.state_dict().items()}


def main() -> None:
    options = argparse.ArgumentParser()
    options.add_argument("--file", required=True)
    given = options.parse_args()
    torch.set_num_threads(1)
    dist.init_process_group("gloo")
    dist._DEFAULT_FIRST_BUCKET_BYTES = 2000
    rank, exact = dist.get_rank(), ebb.compiled(budget="70%")
    with pytest.MonkeyPatch.context() as patch:
        steps = by_operation(patch)
        next(steps)
        found = {
            "torch": trained(Stock(), rank),
            "exact": trained(exact, rank),
            "int8": trained(ebb.compiled(keep="int8"), rank),
        }
    torch.save(found | {"graphs": len(exact.reports)}, f"{given.file}.{rank}")
    dist.barrier()
    dist.destroy_process_group()


if __name__ == "__main__":
    os.environ.setdefault("GLOO_SOCKET_IFNAME", "lo")
    main()

# SPDX-License-Identifier: Apache-2.0
"""Several processes: torchrun --nproc-per-node 2 examples/pytorch_ddp.py

One cell runs hundreds of times inside `ebb.scan`; DistributedDataParallel sees each parameter's gradient once, as it wants to.
"""

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel

import ebb


class Model(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.cell = torch.nn.GRUCell(4, 16)
        self.out = torch.nn.Linear(16, 1)

    def forward(self, xs):
        def step(h, x):
            h = self.cell(x, h)
            return h, None

        h, _ = ebb.scan(step, xs.new_zeros(xs.shape[1], 16), xs, budget="256KiB")
        return self.out(h)


def main():
    dist.init_process_group("gloo")
    torch.manual_seed(0)
    model = DistributedDataParallel(Model())
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    torch.manual_seed(1 + dist.get_rank())  # each process its own data
    losses = []
    for _ in range(5):
        xs = torch.randn(400, 8, 4)
        loss = (model(xs) - xs.mean((0, 2))[:, None]).pow(2).mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        losses.append(loss.detach())
    mine = torch.cat([p.detach().flatten() for p in model.parameters()])
    others = [torch.empty_like(mine) for _ in range(dist.get_world_size())]
    dist.all_gather(others, mine)
    assert all(torch.equal(mine, other) for other in others)
    means = torch.stack(losses)
    dist.all_reduce(means)
    means /= dist.get_world_size()
    if dist.get_rank() == 0:
        print(f"{dist.get_world_size()} processes have the same parameters; {ebb.last_report().brief()}")
        print(f"mean loss {means[0]:.6f}, then {means[-1]:.6f}")
    dist.destroy_process_group()


if __name__ == "__main__":
    main()

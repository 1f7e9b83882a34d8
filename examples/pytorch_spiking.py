# SPDX-License-Identifier: Apache-2.0
"""A spiking net of your own in `ebb.scan`: leaky neurons with a surrogate gradient tell two rhythms apart.

The cell is plain PyTorch; states are a dict; the loss is summed inside the loop, so that no output is kept.
"""

import torch

import ebb

STEPS, BATCH, INPUTS, HIDDEN = 150, 32, 8, 32


class Spike(torch.autograd.Function):
    """A step forward, the derivative of a fast sigmoid backward (Zenke and Ganguli 2018)."""

    @staticmethod
    def forward(ctx, v):
        ctx.save_for_backward(v)
        return (v > 0).to(v.dtype)

    @staticmethod
    def backward(ctx, gradient):
        (v,) = ctx.saved_tensors
        return gradient / (1 + 10 * v.abs()) ** 2


class Net(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.into = torch.nn.Linear(INPUTS, HIDDEN)
        self.among = torch.nn.Linear(HIDDEN, HIDDEN, bias=False)
        self.out = torch.nn.Linear(HIDDEN, 2)

    def start(self):
        return {"v": torch.zeros(BATCH, HIDDEN), "spikes": torch.zeros(BATCH, HIDDEN), "votes": torch.zeros(BATCH, 2)}

    def step(self, state, x):
        v = 0.9 * state["v"] * (1 - state["spikes"]) + self.into(x) + self.among(state["spikes"])
        spikes = Spike.apply(v - 1)
        votes = 0.95 * state["votes"] + self.out(spikes)
        return {"v": v, "spikes": spikes, "votes": votes}, spikes.mean()


def batch():
    labels = torch.randint(0, 2, (BATCH,))
    time = torch.arange(STEPS)[:, None, None]
    period = torch.where(labels == 0, 12, 20)[None, :, None]
    phase = torch.randint(0, 20, (BATCH, INPUTS))[None]
    return ((time + phase) % period == 0).float() * 2, labels


def main():
    torch.manual_seed(0)
    net = Net()
    optimizer = torch.optim.Adam(net.parameters(), lr=5e-3)
    right, losses = [], []
    for _ in range(50):
        xs, labels = batch()
        state, activity = ebb.scan(net.step, net.start(), xs, budget="512KiB", reduce="mean")
        loss = torch.nn.functional.cross_entropy(state["votes"], labels) + 0.1 * activity
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        right.append((state["votes"].argmax(1) == labels).float().mean().item())
        losses.append(loss.item())
    print(
        f"right in the last 10 iterations: {100 * sum(right[-10:]) / 10:.0f} %; loss {losses[0]:.6f}, then {losses[-1]:.6f}"
    )
    print(ebb.last_report().brief())


if __name__ == "__main__":
    main()

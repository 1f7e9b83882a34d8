# SPDX-License-Identifier: Apache-2.0
"""A small ResNet learns in four ways that keep more or less for the backward pass: as it is, with exact savings alone, with
pooled inputs of convolutions, and within half the memory.

The first, the second and the last have the same losses, bit for bit; pooling changes weight gradients. Images are made here:
each class is a smooth pattern, and each image one of them in noise.
"""

import copy
import sys
import time

import torch
from torch import nn

import ebb

CLASSES, SIZE, BATCH, WIDTH = 4, 16, 16, 8
STEPS = int(sys.argv[1]) if len(sys.argv) > 1 else 12


class Block(nn.Module):
    """ReLUs are modules: what is called as a function is not seen."""

    def __init__(self, inputs, outputs, stride):
        super().__init__()
        self.conv1 = nn.Conv2d(inputs, outputs, 3, stride, 1, bias=False)
        self.norm1 = nn.BatchNorm2d(outputs)
        self.conv2 = nn.Conv2d(outputs, outputs, 3, 1, 1, bias=False)
        self.norm2 = nn.BatchNorm2d(outputs)
        self.relu = nn.ReLU(inplace=True)
        self.side = None
        if inputs != outputs:
            self.side = nn.Sequential(nn.Conv2d(inputs, outputs, 1, stride, bias=False), nn.BatchNorm2d(outputs))

    def forward(self, x):
        y = self.relu(self.norm1(self.conv1(x)))
        return self.relu(self.norm2(self.conv2(y)) + (x if self.side is None else self.side(x)))


def resnet():
    stem = nn.Sequential(nn.Conv2d(3, WIDTH, 3, padding=1, bias=False), nn.BatchNorm2d(WIDTH), nn.ReLU(inplace=True))
    stages = [
        nn.Sequential(Block(inputs, outputs, stride), Block(outputs, outputs, 1))
        for inputs, outputs, stride in ((WIDTH, WIDTH, 1), (WIDTH, 2 * WIDTH, 2), (2 * WIDTH, 4 * WIDTH, 2))
    ]
    return nn.Sequential(stem, *stages, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(4 * WIDTH, CLASSES))


class Images:
    """The same batches each time it is made."""

    def __init__(self):
        self._generator = torch.Generator().manual_seed(1)
        coarse = torch.randn(CLASSES, 3, 4, 4, generator=self._generator)
        self._patterns = nn.functional.interpolate(coarse, size=SIZE, mode="bicubic")

    def batch(self):
        labels = torch.randint(CLASSES, (BATCH,), generator=self._generator)
        noise = torch.randn(BATCH, 3, SIZE, SIZE, generator=self._generator)
        return self._patterns[labels] + noise, labels


def trained(net):
    """The losses, and the seconds that a step took: the median."""
    images, optimizer = Images(), torch.optim.SGD(net.parameters(), lr=0.05, momentum=0.9)
    losses, seconds = [], []
    for _ in range(STEPS):
        x, labels = images.batch()
        start = time.perf_counter()
        loss = nn.functional.cross_entropy(net(x), labels)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        seconds.append(time.perf_counter() - start)
        losses.append(loss.item())
    return losses, sorted(seconds)[len(seconds) // 2]


def main():
    torch.manual_seed(0)
    net = resnet()
    x, labels = Images().batch()

    def loss(out):
        return nn.functional.cross_entropy(out, labels)

    def size(count):
        return f"{count / 2**20:.1f} MiB"

    nets = {
        "exact": ebb.compress(copy.deepcopy(net)),
        "pool 2": ebb.compress(copy.deepcopy(net), pool=2),
        "fit 50%": ebb.fit(copy.deepcopy(net), x, "50%", loss=loss),
    }
    sizes = {way: ebb.compression_report(one, x, loss).totals for way, one in nets.items()}
    stock = sizes["exact"]
    rows = {"stock": (stock.stock_kept, stock.stock_peak)} | {
        way: (found.kept, found.peak) for way, found in sizes.items()
    }
    nets["stock"] = net
    print(f"{'':8}  {'kept':>9}  {'peak':>9}  {'time':>7}  {'first loss':>10}  {'last loss':>9}")
    losses = {}
    for way, (kept, peak) in rows.items():
        losses[way], seconds = trained(nets[way])
        print(
            f"{way:8}  {size(kept):>9}  {size(peak):>9}  {1000 * seconds:4.0f} ms  {losses[way][0]:10.4f}  {losses[way][-1]:9.4f}"
        )
    same = [way for way in ("exact", "fit 50%") if losses[way] == losses["stock"]]
    print(f"bit for bit stock's losses: {', '.join(same)}")
    print(f"fit 50%: {nets['fit 50%'].ebb_fit.brief()}")


if __name__ == "__main__":
    main()

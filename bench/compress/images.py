# SPDX-License-Identifier: Apache-2.0
"""CIFAR-10 and Fashion-MNIST as bytes on the device, and batches of them that are the same in every process."""

from __future__ import annotations

import gzip
import lzma
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor

FASHION = Path("/usr/share/datasets/fashion-mnist")  # of the Debian package dataset-fashion-mnist


@dataclass
class Images:
    """Pixels are uint8 [N, C, H, W], labels int64; mean and deviation are for pixels from 0 to 1, for each channel."""

    train: tuple[Tensor, Tensor]
    test: tuple[Tensor, Tensor]
    mean: tuple[float, ...]
    deviation: tuple[float, ...]
    padding: int

    def to(self, device: torch.device) -> Images:
        train, test = ((images.to(device), labels.to(device)) for images, labels in (self.train, self.test))
        return Images(train, test, self.mean, self.deviation, self.padding)

    def part(self, count: int, tests: int) -> Images:
        """The first ones."""
        train, test = (tuple(each[:most] for each in pair) for pair, most in ((self.train, count), (self.test, tests)))
        return Images(train, test, self.mean, self.deviation, self.padding)

    def floats(self, pixels: Tensor) -> Tensor:
        mean, deviation = (
            torch.tensor(values, device=pixels.device).view(1, -1, 1, 1) * 255 for values in (self.mean, self.deviation)
        )
        return (pixels - mean) / deviation

    def epoch(self, batch: int, seed: int) -> Iterator[tuple[Tensor, Tensor]]:
        """Whole batches in random order, each image shifted by up to `padding` and mirrored at random. Numbers are
        drawn on the CPU, so that they depend on the seed alone."""
        images, labels = self.train
        numbers = torch.Generator().manual_seed(seed)
        count = images.shape[0] - images.shape[0] % batch
        order = torch.randperm(images.shape[0], generator=numbers)[:count].to(images.device)
        shifts = torch.randint(0, 2 * self.padding + 1, (2, count), generator=numbers).to(images.device)
        mirrored = torch.randint(0, 2, (count,), generator=numbers).bool().to(images.device)
        for start in range(0, count, batch):
            part = slice(start, start + batch)
            yield self.floats(self._moved(images[order[part]], shifts[:, part], mirrored[part])), labels[order[part]]

    def _moved(self, images: Tensor, shifts: Tensor, mirrored: Tensor) -> Tensor:
        size, channels, height, width = images.shape
        device = images.device
        padded = F.pad(images, [self.padding] * 4)
        rows = shifts[0, :, None] + torch.arange(height, device=device)
        columns = shifts[1, :, None] + torch.arange(width, device=device)
        columns = torch.where(mirrored[:, None], columns.flip(1), columns)
        return padded[
            torch.arange(size, device=device)[:, None, None, None],
            torch.arange(channels, device=device)[None, :, None, None],
            rows[:, None, :, None],
            columns[:, None, None, :],
        ]


def _read(folder: Path, name: str) -> bytes:
    for opened, path in ((open, folder / name), (lzma.open, folder / f"{name}.xz"), (gzip.open, folder / f"{name}.gz")):
        if path.exists():
            with opened(path, "rb") as file:
                return file.read()
    sys.exit(f"no {name} (nor .xz, .gz) in {folder}")


def cifar10(folder: Path) -> Images:
    """The binary files of the data set: a label, then 32x32 of red, green and blue. Missing batches are left out."""

    def pair(names: list[str]) -> tuple[Tensor, Tensor]:
        records = np.concatenate([np.frombuffer(_read(folder, name), np.uint8).reshape(-1, 3073) for name in names])
        pixels = records[:, 1:].reshape(-1, 3, 32, 32).copy()
        return torch.from_numpy(pixels), torch.from_numpy(records[:, 0].astype(np.int64))

    there = sorted({path.name.removesuffix(".xz") for path in folder.glob("data_batch_*.bin*")})
    if not there:
        sys.exit(f"no data_batch_*.bin or .bin.xz in {folder}")
    return Images(pair(there), pair(["test_batch.bin"]), (0.4914, 0.48216, 0.44653), (0.24703, 0.24349, 0.26159), 4)


def fashion_mnist(folder: Path = FASHION) -> Images:
    def values(name: str, header: int) -> np.ndarray:
        return np.frombuffer(_read(folder, name), np.uint8)[header:]

    def pair(name: str) -> tuple[Tensor, Tensor]:
        pixels = values(f"{name}-images-idx3-ubyte", 16).reshape(-1, 1, 28, 28).copy()
        return torch.from_numpy(pixels), torch.from_numpy(values(f"{name}-labels-idx1-ubyte", 8).astype(np.int64))

    return Images(pair("train"), pair("t10k"), (0.286,), (0.353,), 2)


def load(folder: str | None) -> Images:
    """CIFAR-10 from a folder that has it, Fashion-MNIST from any other or where the Debian package puts it."""
    if folder and list(Path(folder).glob("data_batch_*.bin*")):
        return cifar10(Path(folder))
    if folder or FASHION.is_dir():
        return fashion_mnist(Path(folder) if folder else FASHION)
    sys.exit("no data: give the folder of CIFAR-10 as --data, or install the Debian package dataset-fashion-mnist")

# SPDX-License-Identifier: Apache-2.0
"""`./dev bench compress accuracy`: trains a net several ways from the same weights on the same batches.

Each variant and length writes NET-VARIANT-EPOCHSe.jsonl in --out: a line for each epoch with the test's accuracy, the
mean loss of training, seconds, memory at most beyond weights and optimiser, and for each convolution the cosine and the
relative error of its weight gradient against stock layers at the same weights on one batch; the last line has the
stem's filters.
"""

from __future__ import annotations

import argparse
import json
import math
import sys
import time
from contextlib import nullcontext
from pathlib import Path
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

sys.path.insert(0, str(Path(__file__).parent))

from gradients import cosines, errors, weight_gradients
from images import Images, load
from nets import NETS, build
from variants import VARIANTS

from ebb._tensor.memory import peak_of


class Training:
    """One net, one variant; `epochs` at most are trained, the rate of the schedule ends at 0."""

    def __init__(self, words: argparse.Namespace, images: Images, variant: str, epochs: int):
        self.words, self.images, self.epochs = words, images, epochs
        self.device = torch.device(words.device)
        self.layout = torch.channels_last if words.channels_last else torch.contiguous_format
        self.model, self._probe, self._stock = (self._build(each) for each in (variant, variant, "stock"))
        self._optimiser = torch.optim.SGD(
            self.model.parameters(), words.rate, momentum=0.9, nesterov=True, weight_decay=words.decay
        )
        self.per_epoch = images.train[0].shape[0] // words.batch
        self.done = 0
        self.peak: int | None = None
        pixels, labels = (each[: words.batch] for each in images.train)
        self._fixed = images.floats(pixels).contiguous(memory_format=self.layout), labels

    def _build(self, variant: str) -> nn.Module:
        torch.manual_seed(self.words.seed)
        with self.device:
            model = build(self.words.net, 10, "cifar").to(memory_format=self.layout)
        sample = self.images.floats(self.images.train[0][: self.words.batch])
        with self._autocast():  # what ebb.fit measures is what is run
            return VARIANTS[variant](model, sample.contiguous(memory_format=self.layout))

    def _autocast(self) -> Any:
        return torch.autocast(self.device.type, torch.bfloat16) if self.words.amp else nullcontext()

    def _loss(self, model: nn.Module, pixels: Tensor, labels: Tensor) -> Tensor:
        with self._autocast():
            return F.cross_entropy(model(pixels), labels, label_smoothing=self.words.smoothing)

    def _rate(self) -> float:
        """Rises in a straight line over `warm` of all steps, then falls to 0 as a cosine does."""
        progress, warm = (self.done + 1) / (self.per_epoch * self.epochs + 1), self.words.warm
        if progress < warm:
            return self.words.rate * progress / warm
        return self.words.rate * 0.5 * (1 + math.cos(math.pi * (progress - warm) / (1 - warm)))

    def _step(self, pixels: Tensor, labels: Tensor) -> Tensor:
        self._optimiser.zero_grad(set_to_none=True)
        loss = self._loss(self.model, pixels, labels)
        loss.backward()
        for group in self._optimiser.param_groups:
            group["lr"] = self._rate()
        self._optimiser.step()
        self.done += 1
        return loss.detach()

    def train(self, epoch: int, most: int | None = None) -> float:
        """The mean loss of an epoch, or of its first `most` steps."""
        self.model.train()
        total = torch.zeros((), device=self.device, dtype=torch.float64)
        steps = min(self.per_epoch, most or self.per_epoch)
        for index, (pixels, labels) in enumerate(self.images.epoch(self.words.batch, self.words.seed + epoch)):
            if index == steps:
                break
            pixels = pixels.contiguous(memory_format=self.layout)
            if self.done == 2:  # by then the optimiser has its state
                loss, self.peak = peak_of(lambda: self._step(pixels, labels), self.device)
            else:
                loss = self._step(pixels, labels)
            total += loss
        return total.item() / steps

    @torch.no_grad()
    def test(self) -> float:
        self.model.eval()
        right = torch.zeros((), device=self.device, dtype=torch.int64)
        pixels, labels = self.images.test
        for start in range(0, len(labels), 1000):
            part = slice(start, start + 1000)
            with self._autocast():
                scores = self.model(self.images.floats(pixels[part]).contiguous(memory_format=self.layout))
            right += (scores.argmax(1) == labels[part]).sum()
        return right.item() / len(labels)

    def compared(self) -> tuple[dict[str, float], dict[str, float]]:
        """Cosine and error of each convolution's weight gradient, at the weights as they are; by copies of the net,
        since a forward pass changes the running statistics of batch norms."""
        state = self.model.state_dict()
        found, exact = ({}, {})
        for model, into in ((self._probe, found), (self._stock, exact)):
            model.load_state_dict(state)
            into.update(weight_gradients(model.train(), lambda each: self._loss(each, *self._fixed)))
        return cosines(found, exact), errors(found, exact)


def epoch_line(training: Training, variant: str, epoch: int) -> dict[str, Any]:
    start = time.perf_counter()
    loss = training.train(epoch)
    seconds = time.perf_counter() - start
    cosine, error = training.compared()
    return {
        "net": training.words.net,
        "variant": variant,
        "epochs": training.epochs,
        "epoch": epoch + 1,
        "loss": loss,
        "accuracy": training.test(),
        "seconds": seconds,
        "peak": training.peak,
        "cosine": cosine,
        "error": error,
    }


def run(words: argparse.Namespace, images: Images, variant: str, epochs: int) -> None:
    training = Training(words, images, variant, epochs)
    path = Path(words.out) / f"{words.net}-{variant}-{epochs}e.jsonl"
    with open(path, "w") as file:

        def put(line: dict[str, Any]) -> None:
            file.write(json.dumps(line) + "\n")
            file.flush()

        for epoch in range(epochs):
            line = epoch_line(training, variant, epoch)
            put(line)
            print(
                f"{words.net} {variant} {epoch + 1}/{epochs}: loss {line['loss']:.6f}, "
                f"accuracy {100 * line['accuracy']:.2f} %, {line['seconds']:.1f} s, "
                f"peak {(line['peak'] or 0) / 2**20:.4g} MiB, "
                f"least cosine {min(line['cosine'].values()):.4f}",
                flush=True,
            )
        stem = next(layer for layer in training.model.modules() if isinstance(layer, nn.Conv2d))
        filters = stem.weight.detach().float().cpu().tolist()
        put({"net": words.net, "variant": variant, "epochs": epochs, "stem": filters})


def calibrate(words: argparse.Namespace, images: Images, variant: str) -> None:
    """Prints what an epoch takes with its test and comparison, from part of one."""
    training = Training(words, images, variant, 1)
    training.train(0, 10)
    training.compared()
    training.test()
    start = time.perf_counter()
    steps = 0
    while time.perf_counter() - start < words.calibrate:
        training.train(0, 20)
        steps += min(20, training.per_epoch)
    each = (time.perf_counter() - start) / steps
    start = time.perf_counter()
    training.compared()
    training.test()
    print(json.dumps({"epoch_seconds": each * training.per_epoch + time.perf_counter() - start}), flush=True)


def parser() -> argparse.ArgumentParser:
    found = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    found.add_argument("--data", metavar="DIR", help="CIFAR-10's .bin or .bin.xz files, or Fashion-MNIST's (default)")
    found.add_argument("--net", choices=NETS, help="default: resnet18 for CIFAR-10, small for Fashion-MNIST")
    found.add_argument(
        "--variants",
        nargs="+",
        choices=VARIANTS,
        metavar="VARIANT",
        default=["stock", "exact", "pool2", "pool4", "pool2-int8"],
        help=f"of {', '.join(VARIANTS)}",
    )
    found.add_argument("--epochs", type=int, nargs="+", default=[10], help="one or several lengths")
    found.add_argument("--batch", type=int, default=256)
    found.add_argument("--rate", type=float, default=0.2, help="the largest learning rate (default 0.2)")
    found.add_argument("--warm", type=float, default=0.2, help="share of all steps in which the rate rises")
    found.add_argument("--decay", type=float, default=5e-4)
    found.add_argument("--smoothing", type=float, default=0.0)
    found.add_argument("--seed", type=int, default=1)
    found.add_argument("--amp", action="store_true", help="autocast to bf16")
    found.add_argument("--channels-last", action="store_true")
    found.add_argument("--deterministic", action="store_true", help="algorithms that give the same bits every time")
    found.add_argument("--device", default="cuda" if torch.cuda.is_available() else "cpu")
    found.add_argument("--train-images", type=int, help="only the first ones")
    found.add_argument("--test-images", type=int, help="only the first ones")
    found.add_argument("--out", default="build/compress", help="folder for the lines (default build/compress)")
    found.add_argument("--calibrate", type=float, metavar="SECONDS", help="train so long, print what an epoch takes")
    return found


def main() -> None:
    words = parser().parse_args()
    if words.deterministic:
        torch.backends.cudnn.deterministic = True
    images = load(words.data).part(words.train_images, words.test_images).to(torch.device(words.device))
    channels = images.train[0].shape[1]
    words.net = words.net or ("resnet18" if channels == 3 else "small")
    if (words.net == "small") != (channels == 1):
        sys.exit(f"--net {words.net} does not take images of {channels} channels")
    Path(words.out).mkdir(parents=True, exist_ok=True)
    for variant in words.variants:
        if words.calibrate:
            calibrate(words, images, variant)
            continue
        for epochs in words.epochs:
            run(words, images, variant, epochs)


if __name__ == "__main__":
    main()

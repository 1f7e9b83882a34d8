# SPDX-License-Identifier: Apache-2.0
"""The nets of the compression benchmarks, on torch.nn alone: ResNets (He et al. 2015), EfficientNet-B0 (Tan and Le
2019) and a small one. In-place activations and additions, one ReLU used twice in a block: as most write them.

The stem is "imagenet" (7x7 with stride 2, then a max-pool) or "cifar" (3x3 with stride 1, nothing else) for ResNets;
for EfficientNet-B0 3x3 with stride 2 or 1.
"""

from __future__ import annotations

import math
from collections.abc import Callable

import torch
from torch import Tensor, nn


def _normed(inputs: int, outputs: int, kernel: int, stride: int = 1) -> tuple[nn.Conv2d, nn.BatchNorm2d]:
    conv = nn.Conv2d(inputs, outputs, kernel, stride, kernel // 2, bias=False)
    return conv, nn.BatchNorm2d(outputs)


class _Residual(nn.Module):
    """What both blocks share: the way around, and where the two ways meet."""

    def __init__(self, inputs: int, outputs: int, stride: int):
        super().__init__()
        self.relu = nn.ReLU(inplace=True)
        around = stride != 1 or inputs != outputs
        self.downsample = nn.Sequential(*_normed(inputs, outputs, 1, stride)) if around else None

    def main(self, x: Tensor) -> Tensor:
        raise NotImplementedError

    def forward(self, x: Tensor) -> Tensor:
        out = self.main(x)
        out += x if self.downsample is None else self.downsample(x)
        return self.relu(out)


class Basic(_Residual):
    expansion = 1

    def __init__(self, inputs: int, width: int, stride: int):
        super().__init__(inputs, width, stride)
        self.conv1, self.bn1 = _normed(inputs, width, 3, stride)
        self.conv2, self.bn2 = _normed(width, width, 3)

    def main(self, x: Tensor) -> Tensor:
        return self.bn2(self.conv2(self.relu(self.bn1(self.conv1(x)))))


class Bottleneck(_Residual):
    expansion = 4

    def __init__(self, inputs: int, width: int, stride: int):
        super().__init__(inputs, 4 * width, stride)
        self.conv1, self.bn1 = _normed(inputs, width, 1)
        self.conv2, self.bn2 = _normed(width, width, 3, stride)
        self.conv3, self.bn3 = _normed(width, 4 * width, 1)

    def main(self, x: Tensor) -> Tensor:
        out = self.relu(self.bn1(self.conv1(x)))
        out = self.relu(self.bn2(self.conv2(out)))
        return self.bn3(self.conv3(out))


class ResNet(nn.Module):
    """Stages `layer1`, `layer2`, ... of `blocks` blocks; the first is `width` wide, each twice as wide as the last."""

    def __init__(
        self, block: type[Basic] | type[Bottleneck], blocks: list[int], classes: int, stem: str, width: int = 64
    ):
        super().__init__()
        if stem == "imagenet":
            self.conv1 = nn.Conv2d(3, width, 7, 2, 3, bias=False)
        else:
            self.conv1 = nn.Conv2d(3, width, 3, 1, 1, bias=False)
        self.bn1 = nn.BatchNorm2d(width)
        self.relu = nn.ReLU(inplace=True)
        self.maxpool = nn.MaxPool2d(3, 2, 1) if stem == "imagenet" else nn.Identity()
        inputs, self.stages = width, []
        for stage, count in enumerate(blocks):
            layers = []
            for index in range(count):
                layers.append(block(inputs, width << stage, 2 if stage > 0 and index == 0 else 1))
                inputs = (width << stage) * block.expansion
            self.stages.append(f"layer{stage + 1}")
            self.add_module(self.stages[-1], nn.Sequential(*layers))
        self.avgpool = nn.AdaptiveAvgPool2d(1)
        self.fc = nn.Linear(inputs, classes)
        _initialise(self)

    def forward(self, x: Tensor) -> Tensor:
        x = self.maxpool(self.relu(self.bn1(self.conv1(x))))
        for stage in self.stages:
            x = self.get_submodule(stage)(x)
        return self.fc(torch.flatten(self.avgpool(x), 1))


class Squeeze(nn.Module):
    """Each channel times a gate that depends on the means of all (squeeze and excitation)."""

    def __init__(self, channels: int, squeezed: int):
        super().__init__()
        self.avgpool = nn.AdaptiveAvgPool2d(1)
        self.fc1 = nn.Conv2d(channels, squeezed, 1)
        self.activation = nn.SiLU(inplace=True)
        self.fc2 = nn.Conv2d(squeezed, channels, 1)
        self.gate = nn.Sigmoid()

    def forward(self, x: Tensor) -> Tensor:
        return x * self.gate(self.fc2(self.activation(self.fc1(self.avgpool(x)))))


class StochasticDepth(nn.Module):
    """In training leaves out a sample's branch with probability `p` (Huang et al. 2016)."""

    def __init__(self, p: float):
        super().__init__()
        self.p = p

    def forward(self, x: Tensor) -> Tensor:
        if not self.training or self.p == 0:
            return x
        kept = torch.empty(x.shape[0], 1, 1, 1, dtype=x.dtype, device=x.device).bernoulli_(1 - self.p)
        return x * kept.div_(1 - self.p)


class MBConv(nn.Module):
    def __init__(self, inputs: int, outputs: int, expand: int, kernel: int, stride: int, drop: float):
        super().__init__()
        wide = inputs * expand
        layers: list[nn.Module] = []
        if expand != 1:
            layers += [nn.Conv2d(inputs, wide, 1, bias=False), _norm(wide), nn.SiLU(inplace=True)]
        layers += [
            nn.Conv2d(wide, wide, kernel, stride, kernel // 2, groups=wide, bias=False),
            _norm(wide),
            nn.SiLU(inplace=True),
            Squeeze(wide, max(1, inputs // 4)),
            nn.Conv2d(wide, outputs, 1, bias=False),
            _norm(outputs),
        ]
        self.main = nn.Sequential(*layers)
        self.depth = StochasticDepth(drop) if stride == 1 and inputs == outputs else None

    def forward(self, x: Tensor) -> Tensor:
        out = self.main(x)
        if self.depth is not None:
            out = self.depth(out)
            out += x
        return out


class EfficientNet(nn.Module):
    """B0. Rows: expansion, kernel, stride, channels, blocks."""

    ROWS = [
        (1, 3, 1, 16, 1),
        (6, 3, 2, 24, 2),
        (6, 5, 2, 40, 2),
        (6, 3, 2, 80, 3),
        (6, 5, 1, 112, 3),
        (6, 5, 2, 192, 4),
        (6, 3, 1, 320, 1),
    ]

    def __init__(self, classes: int, stem: str):
        super().__init__()
        first = nn.Conv2d(3, 32, 3, 2 if stem == "imagenet" else 1, 1, bias=False)
        self.stem = nn.Sequential(first, _norm(32), nn.SiLU(inplace=True))
        inputs, index, total, stages = 32, 0, sum(row[4] for row in self.ROWS), []
        for expand, kernel, stride, outputs, count in self.ROWS:
            layers = []
            for place in range(count):
                layers.append(MBConv(inputs, outputs, expand, kernel, stride if place == 0 else 1, 0.2 * index / total))
                inputs, index = outputs, index + 1
            stages.append(nn.Sequential(*layers))
        self.stages = nn.Sequential(*stages)
        self.head = nn.Sequential(nn.Conv2d(inputs, 1280, 1, bias=False), _norm(1280), nn.SiLU(inplace=True))
        self.avgpool = nn.AdaptiveAvgPool2d(1)
        self.dropout = nn.Dropout(0.2, inplace=True)
        self.classifier = nn.Linear(1280, classes)
        _initialise(self)

    def forward(self, x: Tensor) -> Tensor:
        x = self.avgpool(self.head(self.stages(self.stem(x))))
        return self.classifier(self.dropout(torch.flatten(x, 1)))


def small(inputs: int, classes: int) -> nn.Module:
    """Three convolutions with all that a ResNet has but depth; for images from 8x8."""
    layers: list[nn.Module] = []
    for width, stride in ((8, 2), (16, 1), (16, 1)):
        layers += [nn.Conv2d(inputs, width, 3, stride, 1, bias=False), nn.BatchNorm2d(width), nn.ReLU(inplace=True)]
        inputs = width
    layers.insert(6, nn.MaxPool2d(2))
    net = nn.Sequential(*layers, nn.AdaptiveAvgPool2d(2), nn.Flatten(), nn.Linear(4 * inputs, classes))
    _initialise(net)
    return net


def _norm(channels: int) -> nn.BatchNorm2d:
    return nn.BatchNorm2d(channels, eps=1e-3, momentum=0.01)


def _initialise(net: nn.Module) -> None:
    """Kaiming's normal by fan-out, as Barley and Fröning have it; linear layers stay uniform with bias 0."""
    for module in net.modules():
        if isinstance(module, nn.Conv2d):
            nn.init.kaiming_normal_(module.weight, mode="fan_out", nonlinearity="relu")
            if module.bias is not None:
                nn.init.zeros_(module.bias)
        elif isinstance(module, nn.Linear):
            bound = 1 / math.sqrt(module.in_features)
            nn.init.uniform_(module.weight, -bound, bound)
            nn.init.zeros_(module.bias)


NETS: dict[str, Callable[[int, str], nn.Module]] = {
    "resnet18": lambda classes, stem: ResNet(Basic, [2, 2, 2, 2], classes, stem),
    "resnet34": lambda classes, stem: ResNet(Basic, [3, 4, 6, 3], classes, stem),
    "resnet50": lambda classes, stem: ResNet(Bottleneck, [3, 4, 6, 3], classes, stem),
    # As many layers with next to nothing to compute: what a step takes of the host.
    "resnet50_narrow": lambda classes, stem: ResNet(Bottleneck, [3, 4, 6, 3], classes, stem, 4),
    "resnet101": lambda classes, stem: ResNet(Bottleneck, [3, 4, 23, 3], classes, stem),
    "resnet152": lambda classes, stem: ResNet(Bottleneck, [3, 8, 36, 3], classes, stem),
    "resnet20": lambda classes, stem: ResNet(Basic, [3, 3, 3], classes, stem, 16),
    "efficientnet_b0": lambda classes, stem: EfficientNet(classes, stem),
    "small": lambda classes, stem: small(1, classes),
}


def build(name: str, classes: int = 1000, stem: str = "imagenet") -> nn.Module:
    """The net with weights from torch's generator."""
    return NETS[name](classes, stem)


def build_for(name: str, pixels: int) -> nn.Module:
    """For ImageNet's classes from 64 pixels, else for CIFAR's with its stem."""
    return build(name) if pixels >= 64 else build(name, 10, "cifar")

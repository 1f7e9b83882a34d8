# SPDX-License-Identifier: Apache-2.0
"""ebb.compress says what it did, and leaves alone what gains nothing."""

from __future__ import annotations

import copy
import pickle

import pytest

torch = pytest.importorskip("torch", reason="PyTorch is not installed")
from compress_cases import check_same, kept_bytes, ran  # noqa: E402
from torch import nn  # noqa: E402

import ebb  # noqa: E402
from ebb._compress.compress import compressed_layers  # noqa: E402

pytestmark = pytest.mark.usefixtures("one_thread")


class Scale(nn.Module):
    """Of channels, and an activation."""

    def __init__(self, width):
        super().__init__()
        self.weight, self.act = nn.Parameter(torch.ones(width, 1, 1)), nn.SiLU(inplace=True)

    def forward(self, x):
        return self.act(self.weight * x)


class Squeeze(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.reduce, self.act = nn.Conv2d(width, 2, 1), nn.SiLU(inplace=True)
        self.expand, self.gate = nn.Conv2d(2, width, 1), nn.Sigmoid()

    def forward(self, x):
        return x * self.gate(self.expand(self.act(self.reduce(x.mean((2, 3), keepdim=True)))))


def efficient():
    """Inverted bottlenecks."""
    layers = [nn.Conv2d(3, 8, 3, 2, 1), Scale(8)]
    for _ in range(2):
        layers += [nn.Conv2d(8, 16, 1), Scale(16), nn.Conv2d(16, 16, 3, padding=1, groups=16), Scale(16)]
        layers += [Squeeze(16), nn.Conv2d(16, 8, 1), Scale(8)]
    return nn.Sequential(*layers, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Dropout(0.0), nn.Linear(8, 4))


class LayerNorm2d(nn.LayerNorm):
    def forward(self, x):
        return super().forward(x.permute(0, 2, 3, 1)).permute(0, 3, 1, 2)


class ConvNext(nn.Module):
    def __init__(self, act):
        super().__init__()
        self.conv, self.norm = nn.Conv2d(8, 8, 7, padding=3, groups=8), LayerNorm2d(8)
        self.up, self.act, self.drop, self.down = nn.Conv2d(8, 32, 1), act(), nn.Dropout(0.0), nn.Conv2d(32, 8, 1)
        self.scale = nn.Parameter(torch.ones(8, 1, 1))

    def forward(self, x):
        return x + self.scale * self.down(self.drop(self.act(self.up(self.norm(self.conv(x))))))


def convnext(act):
    return nn.Sequential(nn.Conv2d(3, 8, 4, 4), ConvNext(act), ConvNext(act))


class RMSNorm(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.weight = nn.Parameter(torch.ones(width))

    def forward(self, x):
        return self.weight * x * torch.rsqrt(x.square().mean(-1, keepdim=True) + 1e-6)


class Gated(nn.Module):
    """A block of a language model: norm, gate, residual."""

    def __init__(self, act):
        super().__init__()
        self.norm, self.act = RMSNorm(8), act()
        self.gate, self.up = nn.Linear(8, 24, bias=False), nn.Linear(8, 24, bias=False)
        self.down = nn.Linear(24, 8, bias=False)

    def forward(self, x):
        y = self.norm(x)
        return x + self.down(self.act(self.gate(y)) * self.up(y))


class Logistic(nn.Module):
    """A SiLU in arithmetic."""

    def forward(self, x):
        return x / (1 + (-x).exp())


def llama(act=Logistic):
    return nn.Sequential(Gated(act), Gated(act))


def text():
    return torch.randn(2, 5, 8, requires_grad=True)


def image():
    return torch.randn(2, 3, 16, 16, requires_grad=True)


@pytest.mark.parametrize("make, x", [(efficient, image), (llama, text)])
def test_models_that_gain_nothing_stay_as_they_were(make, x):
    stock, x = make(), x()
    ours = ebb.compress(copy.deepcopy(stock))
    assert compressed_layers(ours) == {} and not ours._forward_pre_hooks
    found = ours.ebb_compress
    assert found.changed == {} and len(found.left) == sum(
        type(part) in (nn.Conv2d, nn.Linear, nn.SiLU, nn.Sigmoid, nn.Dropout) for part in stock.modules()
    )
    assert found.brief().startswith("0 layers compressed") and "save nothing" in found.brief()
    assert kept_bytes(ours, x) == kept_bytes(stock, x)
    check_same(ran(ours, x), ran(stock, x))
    with pytest.raises(ebb.Error, match="left all as they were"):
        ebb.compression_report(ours, x)


@pytest.mark.parametrize(
    "make, x, kept",
    [
        (lambda: convnext(nn.GELU), image, {"act", "down", "up"}),
        (lambda: llama(nn.SiLU), text, {"act"}),
    ],
)
def test_a_sample_tells_which_layers_gain(make, x, kept):
    """What a gate makes can be computed again: the layer, or the product, that reads it keeps nothing."""
    stock, x = make(), x()
    ours = ebb.compress(copy.deepcopy(stock), sample=x)
    assert {name.rpartition(".")[2] for name in ours.ebb_compress.changed} == kept
    assert ours.ebb_compress.kept < ours.ebb_compress.stock_kept
    report = ebb.compression_report(ours, x)
    assert (report.totals.kept, report.totals.stock_kept) == (ours.ebb_compress.kept, ours.ebb_compress.stock_kept)
    assert kept_bytes(ours, x) == kept_bytes(ebb.compress(copy.deepcopy(stock)), x) < kept_bytes(stock, x)
    check_same(ran(ours, x), ran(stock, x))


@pytest.mark.parametrize(
    "layers, changed",
    [
        (
            [nn.Conv2d(3, 4, 3), nn.BatchNorm2d(4), nn.ReLU(), nn.Conv2d(4, 4, 3)],
            {"1", "2"},
        ),
        ([nn.Conv2d(3, 4, 3), nn.BatchNorm2d(4), nn.ReLU(inplace=True), nn.Conv2d(4, 4, 3)], {"1", "2"}),
        ([nn.Conv2d(3, 4, 3), nn.ReLU(), nn.Conv2d(4, 4, 3)], set()),  # the second one keeps what the ReLU would
        ([nn.Conv2d(3, 4, 3), nn.ReLU(), nn.MaxPool2d(2), nn.Conv2d(4, 4, 3)], {"1", "2"}),
        ([nn.Conv2d(3, 4, 3), nn.BatchNorm2d(4), nn.Dropout(), nn.Flatten()], {"2"}),
        ([nn.Conv2d(3, 4, 3), nn.BatchNorm2d(4), nn.Dropout(), nn.Conv2d(4, 4, 3)], {"1", "2", "3"}),
        ([nn.Conv2d(3, 4, 3), nn.GroupNorm(2, 4), nn.SiLU(), nn.Conv2d(4, 4, 3)], {"1", "2", "3"}),
        ([nn.Conv2d(3, 4, 3), nn.GroupNorm(2, 4), nn.Flatten()], set()),
    ],
    ids=lambda given: (
        " ".join(sorted(given)) if isinstance(given, set) else " ".join(type(layer).__name__ for layer in given)
    ),
)
def test_with_a_sample_layers_stay_that_save_nothing_in_it(layers, changed):
    stock, x = nn.Sequential(*layers), image()
    all_of_them = ebb.compress(copy.deepcopy(stock))
    ours = ebb.compress(copy.deepcopy(stock), sample=x)
    assert set(ours.ebb_compress.changed) == set(compressed_layers(ours)) == changed
    assert kept_bytes(ours, x) == min(kept_bytes(all_of_them, x), kept_bytes(stock, x))
    check_same(ran(ours, x), ran(stock, x))


def test_layers_whose_options_tell_that_nothing_is_saved():
    layers = [
        nn.BatchNorm2d(3),
        nn.Dropout(0.0),
        nn.Dropout(0.5),
        nn.MaxPool2d(20, 1, 10),
        nn.MaxPool2d(2, return_indices=True),
    ]
    layers += [nn.LeakyReLU(0.0), nn.LeakyReLU()]
    found = ebb.compress(nn.Sequential(*layers)).ebb_compress
    assert found.changed == {"0": "keep", "2": "keep", "6": "keep"} and found.left == ["1", "3", "4", "5"]


def test_what_was_done_is_told_and_goes_with_it():
    net = nn.Sequential(nn.Conv2d(3, 4, 3), nn.ReLU(), nn.Conv2d(4, 4, 3))
    ebb.compress(net, pool=2)
    assert net.ebb_compress.changed == {"0": "pool 2x2", "1": "keep", "2": "pool 2x2"}
    assert "pool 2x2" in str(net.ebb_compress) and net.ebb_compress.to_dict()["kept"] is None
    assert pickle.loads(pickle.dumps(net)).ebb_compress == copy.deepcopy(net).ebb_compress == net.ebb_compress
    ebb.decompress(net)
    assert not hasattr(net, "ebb_compress")


def test_a_failed_sample_leaves_the_model_as_it_was():
    net = ebb.compress(nn.Sequential(nn.Conv2d(3, 4, 3), nn.ReLU(), nn.Conv2d(4, 4, 3)), pool=2)
    with pytest.raises(ebb.Error, match="sample is a int"):
        ebb.compress(net, sample=3)
    with pytest.raises(RuntimeError):
        ebb.compress(net, sample=torch.randn(2, 5, 8, 8))
    assert net.ebb_compress.changed == {"0": "pool 2x2", "1": "keep", "2": "pool 2x2"}
    assert net[0].ebb_settings.block == (2, 2) and len(net._forward_pre_hooks) == 1

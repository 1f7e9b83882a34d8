# SPDX-License-Identifier: Apache-2.0
"""What `./dev bench compress` measures with: nets, counted bytes, the published method, batches, a small training."""

from __future__ import annotations

import sys
import xml.etree.ElementTree as ElementTree
from pathlib import Path

import pytest

torch = pytest.importorskip("torch", reason="PyTorch is not installed")
import torch.nn.functional as F  # noqa: E402
from torch import nn  # noqa: E402

sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "bench" / "compress"))

import accuracy  # noqa: E402
import blocks  # noqa: E402
import compiled  # noqa: E402
import gradients  # noqa: E402
import images as data  # noqa: E402
import nets  # noqa: E402
import picture  # noqa: E402
from kept import Kept  # noqa: E402
from published import published  # noqa: E402
from trial import Setting, Trial  # noqa: E402

from ebb._tensor.memory import LiveBytes  # noqa: E402

torch.set_num_threads(1)
MIB = 2**20
CPU = torch.device("cpu")

PARAMETERS = {
    "resnet18": 11_689_512,
    "resnet34": 21_797_672,
    "resnet50": 25_557_032,
    "resnet101": 44_549_160,
    "resnet152": 60_192_808,
    "efficientnet_b0": 5_288_548,
}


@pytest.mark.parametrize("name", PARAMETERS)
@pytest.mark.sweep(3)
def test_nets_have_as_many_parameters_as_published(name):
    with torch.device("meta"):
        net = nets.build(name)
    assert sum(weight.numel() for weight in net.parameters()) == PARAMETERS[name]


def test_resnet20_has_a_quarter_of_a_million_parameters():
    assert 0.265e6 < sum(weight.numel() for weight in nets.build("resnet20", 10, "cifar").parameters()) < 0.275e6


def test_nets_without_batch_norms_have_as_many_parameters_as_published():
    """The twelve blocks of GPT-2 small have 85 million; a norm and a linear layer come on top here."""
    with torch.device("meta"):
        found = [sum(one.numel() for one in make().parameters()) for make in (blocks.ViT, blocks.convnext, blocks.GPT)]
    assert found == [22_050_664, 28_589_128, 85_054_464 + 2 * 768 + 769_000]


def test_rows_of_compiled_nets_are_measured_once(tmp_path, monkeypatch):
    """Those that the file has are shown, beside eager's, and ways that failed say why."""
    file, setting = (
        tmp_path / "rows.jsonl",
        {"net": "resnet18", "batch": 2, "numbers": "fp32", "channels_last": False},
    )
    eager = {"way": "eager", "peak": 100 * MIB, "rounds": [0.2, 0.1, 0.4], "compiled": 1.0}
    own = {
        "way": "ebb",
        "peak": 60 * MIB,
        "rounds": [0.1, 0.1, 0.1],
        "compiled": 9.0,
        "predicted": 54 * MIB,
        "again": 3,
    }
    compiled.keep(str(file), setting, [eager, own, {"way": "ebb:1%", "failed": "Error: too small"}])
    words = ["compiled", "--save", str(file), "--ways", "eager", "ebb", "ebb:1%"]
    monkeypatch.setattr(sys, "argv", words)
    table = compiled.Table(setting, compiled.asked())
    assert table.missing == []
    rows = {row["way"]: row for row in compiled.shown(table.rows)}
    assert list(rows) == ["eager", "ebb"]
    assert (rows["ebb"]["time"], rows["ebb"]["ms"], rows["ebb"]["peak MiB"]) == ("0.50", "100.0", "60 (-40 %)")
    assert rows["ebb"]["predicted"] == "54, 0.90"
    monkeypatch.setattr(sys, "argv", [*words, "torch"])
    assert compiled.Table(setting, compiled.asked()).missing == ["eager", "torch"]
    assert compiled.Table(setting | {"batch": 4}, compiled.asked()).missing == ["eager", "ebb", "ebb:1%", "torch"]


@pytest.mark.slow
@pytest.mark.parametrize("name", nets.NETS)
def test_nets_for_small_images(name):
    with torch.device("meta"):
        net = nets.build_for(name, 32)
        assert net(torch.randn(2, 1 if name == "small" else 3, 32, 32)).shape == (2, 10)


def test_the_stem_is_kaiming_normal_by_fan_out(one_thread):
    weight = nets.build("resnet18").conv1.weight
    assert weight.std().item() == pytest.approx((2 / (64 * 49)) ** 0.5, rel=0.05)


@pytest.mark.slow
# Of two images, MiB for each, as counted elsewhere on nets written apart from these; stock nets keep the image too.
@pytest.mark.parametrize(
    "name, block, expected",
    [
        ("resnet18", 0, 21.17),
        ("resnet18", 2, 21.89),
        ("resnet18", 4, 20.32),
        ("resnet50", 0, 82.03),
        ("resnet50", 2, 90.78),
    ],
)
def test_kept_bytes_of_resnets(one_thread, name, block, expected):
    net, x = nets.build(name), torch.randn(2, 3, 224, 224)
    if block:
        published(net, block)
    kept = Kept(lambda: net(x)).bytes([*net.parameters(), *net.buffers()])
    assert kept / 2 / MIB == pytest.approx(expected, abs=0.006)


@pytest.mark.parametrize("variant", ["stock", "exact", "pool2", "pool2-int8"])
@pytest.mark.parametrize("name", ["resnet20", "efficientnet_b0"])
@pytest.mark.sweep(4)
def test_kept_bytes_are_what_stays_alive(one_thread, name, variant):
    """After the forward pass nothing is alive but what autograd saved and the loss."""
    trial = Trial(Setting(name, 4, 32, CPU), variant)
    torch.manual_seed(2)
    with LiveBytes() as live:
        loss = trial.loss(trial.images)
    _, _, apart = trial.kept()
    norms = [layer for layer in trial.model.modules() if isinstance(layer, nn.BatchNorm2d)]
    running = sum(layer.num_batches_tracked.nbytes for layer in norms)
    assert abs(live.live - apart - loss.nbytes) <= running
    assert apart > MIB


def test_one_storage_counts_once_and_inputs_count_apart(one_thread):
    x = torch.randn(100, requires_grad=True)
    y = x.exp()
    kept = Kept(lambda: (y * y.view(10, 10).flatten()).sin())
    assert kept.bytes([]) == 400 + 400  # y, and what sin takes
    assert kept.bytes([y]) == 400


def test_phases_add_up(one_thread):
    trial = Trial(Setting("resnet20", 4, 32, CPU, optimiser="sgd"), "stock")
    after, most = trial.phases()
    weights = sum(weight.nbytes for weight in trial.model.parameters())
    buffers = sum(buffer.nbytes for buffer in trial.model.buffers())
    assert after["model"] == 2 * weights + buffers  # momentum
    assert after["input"] == after["model"] + trial.images.nbytes
    _, _, apart = trial.kept()
    assert after["forward"] >= after["input"] + apart - 1000
    assert abs(after["optimiser"] - after["input"] - weights) < 1000  # gradients
    assert max(most.values()) == most["backward"] > after["loss"]
    assert most["optimiser"] < most["backward"]


@pytest.mark.parametrize(
    "size, block, kernel, stride, groups", [(8, 2, 3, 1, 1), (7, 2, 3, 2, 1), (9, 4, 1, 1, 2), (3, 4, 3, 1, 3)]
)
def test_the_published_method(one_thread, size, block, kernel, stride, groups):
    """Weight gradients are those for the input with whole blocks at their means and zeros beyond; all else is exact."""
    layer = nn.Conv2d(6, 6, kernel, stride, kernel // 2, groups=groups, dtype=torch.float64)
    x = torch.randn(2, 6, size, size, dtype=torch.float64, requires_grad=True)
    layer(x).sin().sum().backward()
    exact, plain = x.grad, layer.bias.grad
    gy = layer(x).cos().detach()
    flat, p = torch.zeros_like(x), min(block, size)
    for i in range(0, size - p + 1, p):
        for j in range(0, size - p + 1, p):
            flat[:, :, i : i + p, j : j + p] = x[:, :, i : i + p, j : j + p].mean((2, 3), keepdim=True).detach()
    (expected,) = torch.autograd.grad(layer(flat.detach()), layer.weight, gy)
    stock = layer(x)
    x.grad = layer.weight.grad = layer.bias.grad = None
    assert torch.equal(published(layer, block)(x), stock)
    layer(x).sin().sum().backward()
    torch.testing.assert_close(x.grad, exact)
    torch.testing.assert_close(layer.bias.grad, plain)
    torch.testing.assert_close(layer.weight.grad, expected)


def some_images(count: int = 40) -> data.Images:
    pixels = torch.randint(0, 256, (count, 3, 8, 8), dtype=torch.uint8, generator=torch.Generator().manual_seed(5))
    return data.Images((pixels, torch.arange(count)), (pixels[:4], torch.arange(4)), (0.5,) * 3, (0.25,) * 3, 2)


def test_batches_are_the_same_for_the_same_seed():
    one, same, other = (list(some_images().epoch(16, seed)) for seed in (1, 1, 2))
    assert len(one) == 2 and one[0][0].shape == (16, 3, 8, 8)
    assert all(torch.equal(a, b) and torch.equal(c, d) for (a, c), (b, d) in zip(one, same))
    assert not torch.equal(one[0][1], other[0][1])


def test_images_are_shifted_and_mirrored():
    """Each image of a batch is one of its 2 x 5 x 5 shifted and mirrored versions, cut out one by one here."""
    given = some_images()
    padded = F.pad(given.train[0], [2] * 4)
    seen = set()
    for pixels, labels in given.epoch(20, 3):
        for image, label in zip(pixels, labels.tolist()):
            cuts = {
                (dy, dx, flip): given.floats((cut.flip(2) if flip else cut)[None])[0]
                for dy in range(5)
                for dx in range(5)
                for cut in [padded[label, :, dy : dy + 8, dx : dx + 8]]
                for flip in (False, True)
            }
            found = [key for key, cut in cuts.items() if torch.equal(cut, image)]
            assert len(found) == 1
            seen.add(found[0])
    assert [{key[axis] for key in seen} for axis in range(3)] == [set(range(5)), set(range(5)), {False, True}]


def test_cifar10_is_read(tmp_path):
    import lzma

    records = torch.randint(0, 256, (3, 3073), dtype=torch.uint8)
    records[:, 0] = torch.tensor([6, 9, 1])
    (tmp_path / "data_batch_1.bin.xz").write_bytes(lzma.compress(records.numpy().tobytes()))
    (tmp_path / "test_batch.bin").write_bytes(records[:2].numpy().tobytes())
    found = data.load(str(tmp_path))
    assert found.train[1].tolist() == [6, 9, 1] and found.test[1].tolist() == [6, 9]
    assert torch.equal(found.train[0][2, 1, 0], records[2, 1 + 1024 : 1 + 1024 + 32])


def test_cosine_and_error_of_gradients():
    exact = {"a": torch.tensor([3.0, 4.0]), "b": torch.tensor([1.0, 0.0])}
    found = {"a": torch.tensor([3.0, 4.0]), "b": torch.tensor([0.0, 2.0])}
    assert gradients.cosines(found, exact) == {"a": 1.0, "b": 0.0}
    assert gradients.errors(found, exact) == {"a": 0.0, "b": pytest.approx(5**0.5)}


def trained(folder: Path, words: list[str], given: data.Images, variants: list[str]) -> dict[str, list[dict]]:
    """Lines of each variant."""
    import json

    asked = accuracy.parser().parse_args(["--net", "small", "--device", "cpu", "--out", str(folder), *words])
    found = {}
    for variant in variants:
        accuracy.run(asked, given, variant, asked.epochs[0])
        path = folder / f"small-{variant}-{asked.epochs[0]}e.jsonl"
        found[variant] = [json.loads(text) for text in path.read_text().splitlines()]
    return found


@pytest.mark.slow
def test_training_on_fashion_mnist(one_thread, tmp_path):
    """Exact savings train as stock layers do, bit for bit; lossy ones learn as well, to a few points."""
    if not data.FASHION.is_dir():
        pytest.skip("no Fashion-MNIST here: install the Debian package dataset-fashion-mnist")
    given = data.fashion_mnist().part(2048, 1000)
    variants = ["stock", "exact", "pool2", "pool4", "int8"]
    lines = trained(tmp_path, ["--epochs", "3", "--batch", "32", "--rate", "0.1"], given, variants)
    accuracies = {variant: found[2]["accuracy"] for variant, found in lines.items()}
    assert accuracies["stock"] > 0.65
    for stock, exact in zip(lines["stock"][:3], lines["exact"][:3]):
        assert stock["loss"] == exact["loss"] and stock["accuracy"] == exact["accuracy"]
        assert set(exact["cosine"].values()) == {1.0}
    assert lines["stock"][3]["stem"] == lines["exact"][3]["stem"]
    for variant in ("pool2", "pool4", "int8"):
        assert accuracies[variant] > accuracies["stock"] - 0.06
        assert lines[variant][2]["loss"] != lines["stock"][2]["loss"]
    least = {variant: min(min(line["cosine"].values()) for line in found[:3]) for variant, found in lines.items()}
    assert 0.3 < least["pool4"] < least["pool2"] < least["int8"] < 1.0

    runs = [picture.Run(tmp_path / f"small-{variant}-3e.jsonl") for variant in lines]
    for name, drawing in (("cosine", picture.draw_cosines(runs)), ("stem", picture.draw_stems(runs))):
        drawing.write(tmp_path / f"{name}.svg")
        marks = list(ElementTree.parse(tmp_path / f"{name}.svg").getroot())
        count = len([mark for mark in marks if mark.tag.endswith("rect")])
        assert count == 1 + (51 + 5 * 3 * 3 if name == "cosine" else 5 * 8 * 9)

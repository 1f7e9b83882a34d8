# SPDX-License-Identifier: Apache-2.0
"""Where a ReLU keeps bits though its input can be recomputed, and what that saves at the worst moment of a step."""

import copy

import pytest

torch = pytest.importorskip("torch", reason="PyTorch is not installed")
from compress_cases import check_same, kept_bytes, ran  # noqa: E402
from compressed_nets import same, training_gradients, training_peak  # noqa: E402
from torch import nn  # noqa: E402

import ebb  # noqa: E402
from ebb._compress.layers import norm  # noqa: E402

pytestmark = pytest.mark.usefixtures("one_thread")

SIDE = 64
MAP = 4 * 8 * SIDE * SIDE * 4  # bytes of what comes out of a convolution


def image():
    return torch.randn(4, 3, SIDE, SIDE, generator=torch.Generator().manual_seed(3))


def stem(pool=nn.MaxPool2d):
    torch.manual_seed(0)
    first = [nn.Conv2d(3, 8, 3, padding=1, bias=False), nn.BatchNorm2d(8), nn.ReLU(inplace=True), pool(2)]
    return nn.Sequential(*first, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(8, 2))


def test_a_stem_whose_norm_is_recomputed_takes_three_maps():
    """A gradient on either side of the norm, and the norm's input; reading the ReLU's signs from its output would take a fourth."""
    stock = stem()
    net = ebb.compress(copy.deepcopy(stock), norm="recompute")
    assert net[2].ebb_settings.way == "bits"
    assert 3 * MAP <= training_peak(net, image()) < 3.3 * MAP
    assert training_peak(stock, image()) > 4 * MAP
    check_same(ran(net, image()), ran(stock, image()))


def test_an_output_of_which_only_signs_are_asked_is_not_recomputed(monkeypatch):
    net = ebb.compress(stem(), norm="recompute")
    again = []
    monkeypatch.setattr(norm._BatchAgain, "__call__", lambda self, x, mine: again.append(self))
    net(image()).sum().backward()
    assert again == []


def test_only_before_a_max_pooling():
    """Elsewhere the next layer recomputes the output, which then has the signs, too."""
    net = ebb.compress(stem(nn.AvgPool2d), norm="recompute")
    assert net[2].ebb_settings.way == "keep"
    net = ebb.compress(stem())
    assert net[2].ebb_settings.way == "keep"


def test_fit_chooses_bits_where_nothing_else_is_small_enough():
    net = stem()
    wanted = training_gradients(net, image())
    found = ebb.fit(net, image(), int(3.4 * MAP)).ebb_fit
    assert found.peak <= found.budget and "bits" in str(found)
    assert abs(found.predicted_peak / found.peak - 1) < 0.05
    assert net[2].ebb_settings.way == "bits"
    assert same(training_gradients(net, image()), wanted)


def test_bits_are_counted():
    net = ebb.compress(stem(), norm="recompute")
    bits = kept_bytes(net, image())
    net[2].ebb_settings.way = "keep"
    assert bits - kept_bytes(net, image()) == MAP // 32


@pytest.mark.parametrize("order", ["permuted", "channels last"])
def test_gradients_lie_as_torchs(order):
    """Sums of them round differently in another order of memory."""

    class Net(nn.Module):
        def __init__(self):
            super().__init__()
            self.first, self.scale, self.relu = nn.Linear(16, 33), nn.Parameter(torch.ones(33, 1)), nn.ReLU()

        def forward(self, x):
            y = self.first(x).transpose(1, 2) * self.scale
            return self.relu(y) + 1

    torch.manual_seed(0)
    stock, x, factors = Net(), torch.randn(7, 29, 16), torch.randn(1, 33, 29)
    if order == "channels last":
        stock = nn.Sequential(nn.Conv2d(3, 8, 3), nn.ReLU()).to(memory_format=torch.channels_last)
        x, factors = torch.randn(3, 3, 9, 8).to(memory_format=torch.channels_last), torch.randn(1, 8, 7, 6)
    net = ebb.compress(copy.deepcopy(stock))
    for model in (stock, net):
        (model(x).sum(0, keepdim=True) * factors).sum().backward()
    assert same([one.grad for one in net.parameters()], [one.grad for one in stock.parameters()])


def test_a_backward_pass_inside_the_forward_pass():
    class Net(nn.Module):
        def __init__(self):
            super().__init__()
            self.conv, self.norm, self.relu = nn.Conv2d(3, 8, 3), nn.BatchNorm2d(8), nn.ReLU()
            self.scale = nn.Parameter(torch.ones(()))

        def forward(self, x):
            y = self.relu(self.norm(self.conv(x)))
            branch = y * self.scale
            y.sum().backward(retain_graph=True)
            return branch

    torch.manual_seed(0)
    stock = Net()
    net = ebb.compress(copy.deepcopy(stock))
    for model in (stock, net):
        model(image()).square().sum().backward()
    assert same([one.grad for one in net.parameters()], [one.grad for one in stock.parameters()])

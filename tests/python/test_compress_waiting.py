# SPDX-License-Identifier: Apache-2.0
"""What a ReLU keeps depends on what the next layer does with its output."""

import copy

import pytest

torch = pytest.importorskip("torch", reason="PyTorch is not installed")
from compress_cases import Live, check_same, kept_bytes, ran  # noqa: E402
from compressed_nets import same, training_gradients, training_peak  # noqa: E402
from torch import nn  # noqa: E402

import ebb  # noqa: E402
from ebb._compress.compress import compress_all  # noqa: E402
from ebb._compress.layers import norm  # noqa: E402

pytestmark = pytest.mark.usefixtures("one_thread")

MAP = 4 * 8 * 16 * 16 * 4  # bytes of what comes out of a convolution
BITS = MAP // 32


def conv(inputs=8):
    return nn.Conv2d(inputs, 8, 3, padding=1)


def image():
    return torch.randn(4, 3, 16, 16, generator=torch.Generator().manual_seed(3))


def made(*layers, **options):
    """A net, and its compressed copy."""
    torch.manual_seed(0)
    stock = nn.Sequential(*layers)
    net = copy.deepcopy(stock)
    if options:
        return stock, ebb.compress(net, **options)
    compress_all(net, ())
    return stock, net


class Sum(nn.Module):
    """Keeps nothing."""

    def forward(self, x):
        return x + x.mean()


CASES = {
    # The convolution keeps it in any case.
    "conv": (lambda: [conv(3), nn.ReLU(), conv(), Sum()], MAP),
    "conv, in place": (lambda: [conv(3), nn.ReLU(inplace=True), conv(), Sum()], MAP),
    # It is no layer of a compressed kind, and keeps it.
    "another": (lambda: [conv(3), nn.ReLU(), nn.ConvTranspose2d(8, 8, 3, padding=1), Sum()], MAP),
    "sum": (lambda: [conv(3), nn.ReLU(), Sum(), Sum()], BITS),
    "end": (lambda: [conv(3), nn.ReLU()], BITS),
    "pool": (lambda: [conv(3), nn.ReLU(), nn.AvgPool2d(16), Sum()], BITS + MAP),  # torch's pooling keeps its input
    "small windows": (lambda: [conv(3), nn.ReLU(), nn.MaxPool2d(2), Sum()], BITS + MAP // 32),
    "two": (lambda: [conv(3), nn.ReLU(), Sum(), nn.ReLU(), Sum()], 2 * BITS),
}


@pytest.mark.parametrize("name", CASES)
def test_bits_or_what_the_next_layer_keeps(name):
    layers, wanted = CASES[name]
    stock, net = made(*layers())
    if name == "pool":
        wanted = MAP
    assert kept_bytes(net, image()) == wanted
    check_same(ran(net, image()), ran(stock, image()))


def test_frozen_weights_of_a_linear_layer_need_no_input():
    for frozen in (True, False):
        layers = [conv(3), nn.ReLU(), nn.Linear(16, 16), Sum()]
        layers[2].weight.requires_grad_(not frozen)
        stock, net = made(*layers)
        assert kept_bytes(net, image()) == (BITS if frozen else MAP)
        check_same(ran(net, image()), ran(stock, image()))


def test_a_convolution_that_pools_leaves_bits():
    _, net = made(conv(3), nn.ReLU(), conv(), Sum(), pool={"2": 2})
    assert kept_bytes(net, image()) == BITS + MAP // 4


@pytest.mark.parametrize("after", [lambda: nn.MaxPool2d(2), Sum], ids=["pool", "sum"])
def test_what_nobody_else_recomputes_is_kept_in_bits(after, monkeypatch):
    """And not recomputed for its signs."""
    stock, net = made(conv(3), nn.BatchNorm2d(8), nn.ReLU(inplace=True), after())
    check_same(ran(net, image()), ran(stock, image()))
    assert kept_bytes(net, image()) >= MAP + BITS
    again = []
    monkeypatch.setattr(norm._BatchAgain, "__call__", lambda self, x, mine: again.append(self))
    net(image()).sum().backward()
    assert again == []


def test_the_stem_of_a_residual_net_takes_three_maps():
    """Where all norms are recomputed the worst moment is the stem's: a gradient on either side of the norm, and the norm's input."""
    stem = [nn.Conv2d(3, 8, 3, padding=1, bias=False), nn.BatchNorm2d(8), nn.ReLU(inplace=True), nn.MaxPool2d(2)]
    head = [nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(8, 2)]
    stock, net = made(*stem, *head, norm="recompute")
    x = torch.randn(4, 3, 64, 64)
    size = 4 * 8 * 64 * 64 * 4
    assert 3 * size <= training_peak(net, x) < 3.4 * size
    assert training_peak(stock, x) > 4 * size
    found = ebb.fit(copy.deepcopy(stock), x, int(3.4 * size)).ebb_fit
    assert found.peak <= found.budget


def test_fit_may_choose_bits():
    stem = [nn.Conv2d(3, 8, 3, padding=1, bias=False), nn.BatchNorm2d(8), nn.ReLU(inplace=True), nn.MaxPool2d(2)]
    torch.manual_seed(0)
    net, x = nn.Sequential(*stem, nn.Flatten(), nn.Linear(8 * 32 * 32, 2)), torch.randn(4, 3, 64, 64)
    wanted = training_gradients(net, x)
    size = 4 * 8 * 64 * 64 * 4
    ebb.fit(net, x, int(3.5 * size))
    assert net[2].ebb_settings.way == "bits" and "bits" in str(net.ebb_fit)
    assert same(training_gradients(net, x), wanted)


def test_an_output_may_change_after_the_forward_pass():
    """Bits are there by then."""
    stock, net = made(conv(3), nn.ReLU())
    out = net(image())
    with torch.no_grad():
        out.mul_(2)
    out.sum().backward()
    stock(image()).sum().backward()
    assert torch.equal(net[0].weight.grad, stock[0].weight.grad)


def test_an_output_that_the_forward_pass_changes_is_refused_as_torch_does():
    class Changes(nn.Module):
        def __init__(self):
            super().__init__()
            self.conv, self.relu = conv(3), nn.ReLU()

        def forward(self, x):
            y = self.relu(self.conv(x))
            y += 1
            return y

    for net in (Changes(), made(Changes())[1]):
        with pytest.raises(RuntimeError, match="modified by an inplace operation"):
            net(image()).sum().backward()


def test_a_forward_pass_that_fails_leaves_nothing():
    class Fails(nn.Module):
        def forward(self, x):
            raise ValueError("as asked")

    _, net = made(conv(3), nn.ReLU(), Fails())
    with Live() as live:
        with pytest.raises(ValueError, match="as asked"):
            net(image())
        assert live.bytes() == 0


@pytest.mark.parametrize("after", [Sum, conv], ids=["bits", "kept"])
def test_twice_and_second_derivatives(after):
    stock, net = made(nn.Conv2d(3, 8, 3, padding=1), nn.ReLU(), after())
    found = []
    for model in (stock, net):
        x = image().requires_grad_()
        out = model(x).square().sum()
        (first,) = torch.autograd.grad(out, x, create_graph=True)
        (second,) = torch.autograd.grad(first.square().sum(), x)
        (again,) = torch.autograd.grad(model(x).square().sum(), x)
        found.append((first.detach(), second, again))
    for ours, theirs in zip(*found):
        assert torch.equal(ours, theirs)


def test_a_model_inside_another():
    _, inner = made(conv(3), nn.ReLU(), Sum())
    outer = nn.Sequential(conv(8), nn.ReLU(), Sum())
    net = nn.Sequential(nn.Identity(), outer)
    compress_all(net, ())

    class Both(nn.Module):
        def forward(self, x):
            return net(inner(x))

    assert kept_bytes(Both(), image()) == 2 * BITS + MAP

# SPDX-License-Identifier: Apache-2.0
"""Compressed layers and autograd: who reads what is kept, when it is freed, what changes in place do."""

from __future__ import annotations

import copy
import gc

import pytest

torch = pytest.importorskip("torch", reason="PyTorch is not installed")
from compress_cases import (  # noqa: E402
    EVERY,
    EXACT,
    Live,
    Residual,
    check_exact,
    check_same,
    image,
    kept_bytes,
    model,
    ran,
    same_bits,
)
from torch import nn  # noqa: E402

import ebb  # noqa: E402

pytestmark = pytest.mark.usefixtures("one_thread")


@pytest.mark.parametrize("options", EXACT, ids=str)
@pytest.mark.sweep(2)
def test_models(options):
    check_exact(model(), image(), **options)
    check_exact(model().eval(), image(), **options)
    check_exact(model().double(), image().detach().double().requires_grad_(), **options)
    check_exact(model().bfloat16(), image(1).detach().bfloat16().requires_grad_(), **options)


@pytest.mark.parametrize("options", EVERY, ids=str)
def test_outputs_and_buffers_are_torchs(options):
    stock = model()
    ours = ebb.compress(copy.deepcopy(stock), **options)
    for x in (image(), image(grad=False)):
        check_same(ran(ours, x), ran(stock, x), but=lambda name: name.startswith(("x", "parameter")))


def test_training_stays_on_the_same_bits():
    def trained(net):
        torch.manual_seed(1)
        optimizer = torch.optim.SGD(net.parameters(), lr=0.1, momentum=0.9)
        for step in range(4):
            for _ in range(2):  # gradients add up
                net(image()).square().mean().backward()
            if step % 2:
                optimizer.step()
                optimizer.zero_grad()
        return net.state_dict()

    stock = model()
    ours = trained(ebb.compress(copy.deepcopy(stock)))
    for name, value in trained(stock).items():
        assert torch.equal(value, ours[name]), name


def test_less_is_kept():
    x = torch.randn(4, 3, 32, 32)
    sizes = {}
    for name, options in (
        ("stock", None),
        ("exact", {}),
        ("pool", dict(pool=2)),
        ("again", dict(norm="recompute")),
        ("int8", dict(pool=2, norm="int8")),
    ):
        net = nn.Sequential(nn.Conv2d(3, 8, 3), nn.BatchNorm2d(8), nn.ReLU(), *[Residual(8) for _ in range(3)])
        sizes[name] = kept_bytes(net if options is None else ebb.compress(net, **options), x)
    assert sizes["exact"] < 0.8 * sizes["stock"]
    assert sizes["pool"] < 0.7 * sizes["stock"]
    assert sizes["again"] < 0.6 * sizes["stock"]
    assert sizes["int8"] < 0.4 * sizes["stock"]


# Who reads


@pytest.mark.parametrize("options", EVERY, ids=str)
def test_a_second_backward_pass(options):
    net, x = ebb.compress(model(), **options), image()
    out = net(x).square().sum()
    names = list(net.parameters()) + [x]
    first = torch.autograd.grad(out, names, retain_graph=True)
    second = torch.autograd.grad(out, names, retain_graph=True)
    part = torch.autograd.grad(out, names[:2], retain_graph=True)
    last = torch.autograd.grad(out, names)
    for one, two, three in zip(first, second, last):
        assert same_bits(one, two) and same_bits(one, three)
    assert all(same_bits(one, two) for one, two in zip(first, part))
    with pytest.raises(RuntimeError, match="backward through the graph a second time"):
        torch.autograd.grad(out, names)


@pytest.mark.parametrize("options", EXACT, ids=str)
def test_gradients_of_some(options):
    stock, x = model().eval(), image()
    ours = ebb.compress(copy.deepcopy(stock), **options)
    for only in ("0.weight", "3.two.weight", "5.norm1.bias", "4.side.bias", "x"):
        found = []
        for net in (ours, stock):
            wanted = x if only == "x" else dict(net.named_parameters())[only]
            net(x).square().sum().backward(inputs=[wanted])
            found.append(wanted.grad)
            wanted.grad = None
        assert same_bits(*found), only


def test_layers_that_are_used_twice():
    shared = nn.Sequential(nn.Conv2d(4, 4, 3, padding=1), nn.BatchNorm2d(4), nn.ReLU())

    class Twice(nn.Module):
        def __init__(self):
            super().__init__()
            self.a = self.b = shared

        def forward(self, x):
            return self.b(self.a(x) + self.a(x * 2))

    for options in EXACT:
        check_exact(Twice(), torch.randn(2, 4, 6, 6, requires_grad=True), **options)
    check_exact(nn.Sequential(shared, shared), torch.randn(2, 4, 6, 6, requires_grad=True))


def test_an_exception_in_the_backward_pass():
    stock, x = model().eval(), image()
    ours = ebb.compress(copy.deepcopy(stock))
    expected = ran(stock, x)

    class Refused(Exception):
        pass

    def refuse(*_):
        raise Refused

    hook = ours[4].one.register_full_backward_hook(refuse)
    out = ours(x)
    for _ in range(2):
        with pytest.raises(Refused):
            out.sum().backward(retain_graph=True)
    hook.remove()
    ours.zero_grad()
    check_same(ran(ours, x), expected)

    def left(net):
        with Live() as live:
            inner = net(x)
            weights = torch.ones_like(inner)
            handle = net[4].one.weight.register_hook(refuse)
            with pytest.raises(Refused):
                inner.backward(weights)
            handle.remove()
            net.zero_grad()
            x.grad = None
        return live.bytes()

    assert left(ours) <= left(stock)


def test_an_exception_in_the_forward_pass_leaves_nothing_behind():
    class Refused(Exception):
        pass

    def refuse(*_):
        raise Refused

    net, x = ebb.compress(model()), image()
    handle = net[4].norm2.register_forward_pre_hook(refuse)
    with pytest.raises(Refused):
        net(x)
    handle.remove()
    assert torch._C._autograd._top_saved_tensors_default_hooks(True) is None
    assert len(ran(net, x)) > 10


@pytest.mark.parametrize(
    "layer",
    [
        nn.Conv2d(3, 3, 3),
        nn.SiLU(),
        nn.GELU(),
        nn.BatchNorm2d(3).eval(),
        nn.LayerNorm(6),
        nn.GroupNorm(1, 3),
        nn.Linear(6, 4),
    ],
    ids=str,
)
def test_derivatives_of_derivatives(layer):
    stock = nn.Sequential(nn.LayerNorm(6), layer).double()
    x = torch.randn(2, 3, 6, 6, dtype=torch.float64, requires_grad=True)

    def twice(net):
        (gx,) = torch.autograd.grad(net(x).square().sum(), x, create_graph=True)
        return torch.autograd.grad(gx.square().sum(), [x, *net.parameters()], allow_unused=True)

    for one, two in zip(twice(ebb.compress(copy.deepcopy(stock))), twice(stock)):
        assert (one is None and two is None) or same_bits(one, two)


@pytest.mark.parametrize(
    "layer",
    [
        nn.ReLU(),
        nn.ReLU(inplace=True),
        nn.ReLU6(),
        nn.Hardtanh(),
        nn.LeakyReLU(),
        nn.MaxPool1d(2),
        nn.MaxPool2d(3, 2, 1),
        nn.MaxPool3d(2),
        nn.Dropout(),
        nn.Dropout2d(),
    ],
    ids=str,
)
def test_a_gradient_penalty_through_layers_that_keep_bits(layer):
    dims = {nn.MaxPool1d: 1, nn.MaxPool3d: 3}.get(type(layer), 2)
    conv = (nn.Conv1d, nn.Conv2d, nn.Conv3d)[dims - 1]
    plain = nn.Sequential(conv(2, 3, 3, padding=1), layer, conv(3, 2, 2))
    x = torch.randn(2, 2, *[6] * dims)
    check_penalty(plain, x.requires_grad_())
    if dims == 2:
        check_penalty(
            plain.to(memory_format=torch.channels_last),
            x.detach().to(memory_format=torch.channels_last).requires_grad_(),
        )


def check_penalty(stock, x):
    def penalty(net):
        torch.manual_seed(3)
        (gx,) = torch.autograd.grad(net(x).square().sum(), x, create_graph=True)
        penalty = (gx.flatten(1).norm(dim=1) - 1).square().mean()
        (third,) = torch.autograd.grad(penalty, x, create_graph=True)
        return torch.autograd.grad(penalty + third.square().sum(), [x, *net.parameters()], allow_unused=True)

    for one, two in zip(penalty(ebb.compress(copy.deepcopy(stock))), penalty(stock)):
        assert (one is None and two is None) or same_bits(one, two)


LOSSY = [(nn.Conv2d(3, 3, 1), {"pool": {"0": 2}}), (nn.Linear(6, 6), dict(linear="int8"))]


@pytest.mark.parametrize("layer, options", LOSSY, ids=str)
@pytest.mark.parametrize("linear", [False, True])
def test_where_there_are_none_that_is_an_error(layer, options, linear):
    """Also where the gradient that comes in is a constant: what goes out depends on the weight."""
    x = torch.randn(2, 3, 6, 6, requires_grad=True)
    out = ebb.compress(nn.Sequential(layer), **options)(x)
    (gx,) = torch.autograd.grad((out if linear else out.square()).sum(), x, create_graph=True)
    with pytest.raises(ebb.Error, match="second derivative.*ebb.decompress"):
        (gx.square().sum() + layer.weight.sum()).backward()


# Changes in place


@pytest.mark.parametrize("options", EVERY, ids=str)
@pytest.mark.parametrize("place", ["x", "conv", "norm", "relu", "weight", "norm weight", "norm bias"])
@pytest.mark.sweep(14)
def test_what_is_changed_in_place_is_noticed_or_does_not_matter(place, options):
    """Never silently wrong: an error, or the gradients without the change."""

    class Net(nn.Module):
        def __init__(self):
            super().__init__()
            self.one, self.norm, self.relu, self.two = (
                nn.Conv2d(3, 4, 3),
                nn.BatchNorm2d(4),
                nn.ReLU(),
                nn.Conv2d(4, 4, 3),
            )

        def forward(self, x):
            self.seen = {"x": x, "conv": self.one(x)}
            self.seen["norm"] = self.norm(self.seen["conv"])
            self.seen["relu"] = self.relu(self.seen["norm"])
            return self.two(self.seen["relu"])

    net = ebb.compress(Net(), **options)

    def gradients(change):
        torch.manual_seed(1)
        x = image(grad=False)
        out = net(x)
        net.seen |= {"weight": net.one.weight, "norm weight": net.norm.weight, "norm bias": net.norm.bias}
        kept = net.seen[place].detach().clone()
        loss = out.square().sum()
        if change:
            net.seen[place].detach().mul_(1.5)
        try:
            return torch.autograd.grad(loss, list(net.parameters()))
        except RuntimeError as error:
            assert "in place" in str(error) or "inplace" in str(error)
            return None
        finally:
            net.seen[place].detach().copy_(kept)

    expected, found = gradients(False), gradients(True)
    assert expected is not None
    if found is not None:
        assert all(same_bits(one, two) for one, two in zip(found, expected))


def test_an_optimizer_between_forward_and_backward():
    for options in (dict(), dict(norm="recompute")):
        net = ebb.compress(model(), **options)
        loss = net(image()).sum()
        torch.autograd.grad(loss, list(net.parameters()), retain_graph=True)
        torch.optim.SGD(net.parameters(), lr=0.1).step()
        for p in net.parameters():
            p.grad = torch.ones_like(p)
        torch.optim.SGD(net.parameters(), lr=0.1).step()
        with pytest.raises(RuntimeError, match="in ?place"):
            loss.backward()


@pytest.mark.parametrize(
    "layer", [nn.ReLU(True), nn.LeakyReLU(0.1, True), nn.Dropout(0.3, True), nn.Hardtanh(inplace=True)], ids=str
)
def test_in_place_on_a_view(layer):
    class Net(nn.Module):
        def __init__(self):
            super().__init__()
            self.conv, self.inplace = nn.Conv2d(3, 4, 3), layer

        def forward(self, x):
            y = self.conv(x)
            self.inplace(y[:, :2])
            return y * 2

    check_exact(Net(), image())


def test_a_tensor_whose_data_is_replaced():
    norm, conv = nn.BatchNorm2d(3), nn.Conv2d(3, 3, 1)
    for layer in (norm, conv):
        ebb.compress(layer)
    y = norm(image())
    y.data = torch.full_like(y, 2.0)
    conv(y).sum().backward()
    torch.testing.assert_close(conv.weight.grad, torch.full_like(conv.weight, 2.0 * 2 * 64))


# What is freed


@pytest.mark.slow
@pytest.mark.parametrize("options", EVERY, ids=str)
def test_nothing_is_left_without_the_garbage_collector(options):
    net = ebb.compress(model(), **options)
    net(image()).sum().backward()
    gc.collect()
    gc.disable()
    try:
        with Live() as live:
            for _ in range(5):
                x = image()
                net(x).sum().backward()
                net(x)  # and without a backward pass
                net.zero_grad()
                del x
                assert live.bytes() == 0
        from ebb._compress.sources import _SOURCES

        assert not _SOURCES
    finally:
        gc.enable()


@pytest.mark.parametrize("options", EVERY, ids=str)
def test_tensors_that_the_caller_keeps_hold_nothing_else(options):
    torch.manual_seed(0)
    net = ebb.compress(
        nn.Sequential(
            nn.Conv2d(3, 4, 3),
            nn.BatchNorm2d(4),
            nn.SiLU(),
            nn.Dropout(0.2),
            nn.Conv2d(4, 4, 3),
            nn.GroupNorm(2, 4),
            nn.ReLU(),
            nn.Linear(4, 4),
        ),
        **options,
    )
    gc.disable()
    try:
        with Live() as live:
            x = image(grad=False)
            features = [x]
            for layer in net:
                features.append(layer(features[-1]))
            features[-1].sum().backward()
            for p in net.parameters():
                p.grad = None
            held = {one.untyped_storage().data_ptr(): one.untyped_storage().nbytes() for one in features[1:]}
            assert live.bytes() - x.untyped_storage().nbytes() == sum(held.values())
    finally:
        gc.enable()


@pytest.mark.parametrize("options", EXACT, ids=str)
def test_memory_falls_while_the_backward_pass_goes_on(options):
    """As with torch's layers: what a layer kept goes when it has run."""

    def course(net):
        seen = []
        x = torch.randn(4, 8, 24, 24)
        for block in net:
            block.one.register_full_backward_hook(lambda *_: seen.append(live.bytes()))
        with Live() as live:
            out = net(x.requires_grad_())
            start = live.bytes()
            out.sum().backward(inputs=[x])
        return start, seen, live.peak

    stock = nn.Sequential(*[Residual(8) for _ in range(8)])
    ours = ebb.compress(copy.deepcopy(stock), **options)
    start, seen, peak = course(ours)
    _, _, most = course(stock)
    assert seen[-1] < 0.35 * start
    assert all(later < earlier for earlier, later in zip(seen, seen[1:]))
    assert peak < (most if options != dict(relu="exact") else 1.02 * most)

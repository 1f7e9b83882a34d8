# SPDX-License-Identifier: Apache-2.0
"""Compressed layers one by one: torch's bits where nothing lossy was asked for, the gradient of the kept copy where it was."""

from __future__ import annotations

import copy
import io
import pickle

import pytest

torch = pytest.importorskip("torch", reason="PyTorch is not installed")
import torch.nn.functional as F  # noqa: E402
from compress_cases import Live, check_exact, check_same, kept_bytes, ran, same_bits  # noqa: E402
from torch import nn  # noqa: E402
from torch.nn.utils import parametrizations, prune  # noqa: E402

import ebb  # noqa: E402

pytestmark = pytest.mark.usefixtures("one_thread")


def given(*shape, dtype=torch.float32, grad=True):
    x = torch.randn(shape).to(dtype)
    return x.requires_grad_(grad)


CONVS = {
    "1d": (lambda: nn.Conv1d(4, 6, 3), (2, 4, 11)),
    "2d": (lambda: nn.Conv2d(4, 6, 3, padding=1), (2, 4, 9, 8)),
    "3d": (lambda: nn.Conv3d(4, 2, 2), (2, 4, 5, 4, 6)),
    "groups": (lambda: nn.Conv2d(4, 8, 3, groups=2), (2, 4, 9, 8)),
    "depthwise": (lambda: nn.Conv2d(4, 4, 3, groups=4, padding=1), (2, 4, 9, 8)),
    "stride": (lambda: nn.Conv2d(4, 6, 3, stride=2, padding=1), (2, 4, 9, 8)),
    "dilation": (lambda: nn.Conv2d(4, 6, 3, dilation=2), (2, 4, 9, 8)),
    "same": (lambda: nn.Conv2d(4, 6, (4, 3), padding="same", dilation=(1, 2)), (2, 4, 9, 8)),
    "valid": (lambda: nn.Conv1d(4, 6, 4, padding="valid"), (2, 4, 9)),
    "no bias": (lambda: nn.Conv2d(4, 6, (1, 5), (2, 1), (0, 2), bias=False), (2, 4, 9, 8)),
    "one": (lambda: nn.Conv2d(4, 6, 3), (1, 4, 9, 8)),
    "none": (lambda: nn.Conv2d(4, 6, 3), (0, 4, 9, 8)),
    "unbatched": (lambda: nn.Conv2d(4, 6, 3), (4, 9, 8)),
}
NORMS = {
    "batch 1d": (lambda: nn.BatchNorm1d(4), (6, 4)),
    "batch 1d long": (lambda: nn.BatchNorm1d(4), (6, 4, 5)),
    "batch 2d": (lambda: nn.BatchNorm2d(4), (3, 4, 5, 6)),
    "batch 3d": (lambda: nn.BatchNorm3d(4), (3, 4, 2, 3, 4)),
    "no affine": (lambda: nn.BatchNorm2d(4, affine=False), (3, 4, 5, 6)),
    "no momentum": (lambda: nn.BatchNorm2d(4, momentum=None), (3, 4, 5, 6)),
    "no statistics": (lambda: nn.BatchNorm2d(4, track_running_stats=False), (3, 4, 5, 6)),
    "layer": (lambda: nn.LayerNorm(6), (3, 5, 6)),
    "layer 2": (lambda: nn.LayerNorm((5, 6)), (3, 5, 6)),
    "layer bare": (lambda: nn.LayerNorm(6, elementwise_affine=False), (3, 5, 6)),
    "layer no bias": (lambda: nn.LayerNorm(6, bias=False), (3, 5, 6)),
    "group": (lambda: nn.GroupNorm(2, 4), (3, 4, 5, 6)),
    "group bare": (lambda: nn.GroupNorm(2, 4, affine=False), (3, 4, 7)),
}
ACTIVATIONS = {
    "relu": nn.ReLU, "relu in place": lambda: nn.ReLU(True), "relu6": nn.ReLU6, "relu6 in place": lambda: nn.ReLU6(True),
    "hardtanh": lambda: nn.Hardtanh(-0.5, 0.7), "leaky": lambda: nn.LeakyReLU(0.1), "leaky in place": lambda: nn.LeakyReLU(0.1, True),
    "leaky 0": lambda: nn.LeakyReLU(0.0), "silu": nn.SiLU, "silu in place": lambda: nn.SiLU(True), "gelu": nn.GELU,
    "gelu tanh": lambda: nn.GELU(approximate="tanh"), "hardswish": nn.Hardswish, "mish": nn.Mish, "sigmoid": nn.Sigmoid, "tanh": nn.Tanh,
}
POOLS = {
    "1d": (lambda: nn.MaxPool1d(3, 2, 1), (2, 3, 11)),
    "2d": (lambda: nn.MaxPool2d(2), (2, 3, 8, 9)),
    "overlap": (lambda: nn.MaxPool2d(3, 2, 1), (2, 3, 8, 9)),
    "ceil": (lambda: nn.MaxPool2d(3, 2, ceil_mode=True), (2, 3, 8, 9)),
    "dilation": (lambda: nn.MaxPool2d((2, 3), 1, dilation=(2, 1)), (2, 3, 8, 9)),
    "large": (lambda: nn.MaxPool2d(5, 1, 2), (2, 3, 8, 9)),
    "too large": (lambda: nn.MaxPool1d(300, 1), (2, 3, 310)),
    "3d": (lambda: nn.MaxPool3d((2, 3, 1), 1, (1, 1, 0), ceil_mode=True), (2, 3, 4, 5, 6)),
    "none": (lambda: nn.MaxPool2d(2), (0, 3, 8, 8)),
    "unbatched": (lambda: nn.MaxPool2d(2), (3, 8, 8)),
}
DROPOUTS = {
    "0d": (lambda: nn.Dropout(0.3), (7, 5)), "in place": (lambda: nn.Dropout(0.3, True), (7, 5)),
    "1d": (lambda: nn.Dropout1d(0.3), (4, 5, 6)), "2d": (lambda: nn.Dropout2d(0.3, True), (4, 5, 6, 2)),
    "3d": (lambda: nn.Dropout3d(0.3), (4, 5, 6, 2, 3)), "1d unbatched": (lambda: nn.Dropout1d(0.3), (5, 6)),
    "never": (lambda: nn.Dropout(0.0), (7, 5)), "always": (lambda: nn.Dropout(1.0), (7, 5)), "none": (lambda: nn.Dropout(), (0, 3)),
}


@pytest.mark.parametrize("case", CONVS)
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.bfloat16])
def test_convolutions(case, dtype):
    make, shape = CONVS[case]
    model = nn.Sequential(make().to(dtype))
    other = check_exact(model, given(*shape, dtype=dtype))
    assert type(other[0]).__module__.startswith("ebb.")


@pytest.mark.parametrize("case", NORMS)
@pytest.mark.parametrize("norm", ["exact", "recompute"])
@pytest.mark.parametrize("training", [True, False])
def test_norms(case, norm, training):
    make, shape = NORMS[case]
    check_exact(nn.Sequential(make(), nn.ReLU(), nn.SiLU()).train(training), given(*shape), norm=norm)


@pytest.mark.parametrize("case", ACTIVATIONS)
@pytest.mark.parametrize("shape", [(3, 5), (2, 3, 4, 5), (0, 4), ()])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_activations(case, shape, dtype):
    check_exact(nn.Sequential(ACTIVATIONS[case]()), given(*shape, dtype=dtype))


@pytest.mark.parametrize("case", ACTIVATIONS)
def test_activations_of_special_numbers(case):
    numbers = [float("inf"), -float("inf"), 0.0, -0.0, 6.0, 0.7, -0.5, 1e-45, -1e-45, 7.0]
    if case not in ("hardtanh", "relu6", "relu6 in place"):  # torch gives 0 or 1, depending on where it stands
        numbers.append(float("nan"))
    check_exact(nn.Sequential(ACTIVATIONS[case]()), torch.tensor(numbers, requires_grad=True))


@pytest.mark.parametrize("case", ACTIVATIONS)
@pytest.mark.parametrize("norm", [lambda: nn.BatchNorm2d(4), lambda: nn.GroupNorm(2, 4)], ids=["batch", "group"])
def test_activations_after_a_norm(case, norm):
    model = nn.Sequential(nn.Conv2d(4, 4, 3), norm(), ACTIVATIONS[case](), nn.Conv2d(4, 4, 1), nn.Dropout(0.2), ACTIVATIONS[case]())
    for way in ("exact", "recompute"):
        check_exact(model, given(2, 4, 7, 6), norm=way)


@pytest.mark.parametrize("case", POOLS)
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.bfloat16])
def test_max_pooling(case, dtype):
    make, shape = POOLS[case]
    check_exact(nn.Sequential(make()), given(*shape, dtype=dtype))


def test_max_pooling_of_ties_and_of_what_is_no_number():
    x = torch.randint(0, 2, (2, 3, 8, 8)).float()
    x[0, 0, 2:4, 2] = float("nan")
    x[1, 1] = -float("inf")
    for layer in (nn.MaxPool2d(3, 2, 1), nn.MaxPool2d(2, ceil_mode=True)):
        check_exact(nn.Sequential(layer), x.requires_grad_())


@pytest.mark.parametrize("case", DROPOUTS)
def test_dropout(case):
    make, shape = DROPOUTS[case]
    check_exact(nn.Sequential(make()), given(*shape))
    check_exact(nn.Sequential(make()).eval(), given(*shape))
    check_exact(nn.Sequential(nn.LayerNorm(shape[-1]), make(), nn.ReLU(), nn.Linear(shape[-1], 3)), given(*shape))


def test_a_dropout_that_drops_nothing_is_not_overwritten():
    """relu(norm(x)) and norm(x) itself both are read again; the one must not become the other."""
    class Two(nn.Module):
        def __init__(self):
            super().__init__()
            self.norm, self.drop, self.relu, self.one, self.two = (
                nn.LayerNorm(6), nn.Dropout(0.0), nn.ReLU(), nn.Linear(6, 6), nn.Linear(6, 6))

        def forward(self, x):
            n = self.norm(x)
            return self.one(n) + self.two(self.relu(self.drop(n)))

    check_exact(Two(), given(5, 6))


@pytest.mark.parametrize("layer", [nn.AlphaDropout(0.2), nn.FeatureAlphaDropout(0.2), nn.ConvTranspose2d(3, 3, 2), nn.SyncBatchNorm(3),
                                   nn.Softmax(1), nn.LazyConv2d(3, 2), nn.ELU(), nn.AvgPool2d(2), nn.Bilinear(3, 3, 3)], ids=str)
def test_other_layers_are_left_alone(layer):
    kind = type(layer)
    assert type(ebb.compress(nn.Sequential(layer))[0]) is kind


def test_classes_of_somebodys_own_are_left_alone():
    class Mine(nn.Conv2d):
        pass

    assert type(ebb.compress(nn.Sequential(Mine(3, 3, 1)))[0]) is Mine


@pytest.mark.parametrize("shape, layers", [
    ((2, 4, 9, 8), [nn.Conv2d(4, 6, 3), nn.BatchNorm2d(6), nn.ReLU(), nn.MaxPool2d(2), nn.Dropout(0.3), nn.GroupNorm(2, 6), nn.SiLU()]),
    ((2, 4, 5, 6, 7), [nn.Conv3d(4, 6, 3), nn.BatchNorm3d(6), nn.LeakyReLU(), nn.MaxPool3d(2), nn.Dropout3d(0.3), nn.GELU()]),
])
@pytest.mark.parametrize("pool", [1, 2])
def test_channels_last(shape, layers, pool):
    order = torch.channels_last if len(shape) == 4 else torch.channels_last_3d
    model = nn.Sequential(*copy.deepcopy(layers)).to(memory_format=order)
    x = given(*shape).detach().contiguous(memory_format=order).requires_grad_()
    if pool == 1:
        check_exact(model, x)
    else:
        other = ebb.compress(copy.deepcopy(model), pool)
        ours, stock = ran(other, x), ran(model, x)
        check_same(ours, stock, but=lambda name: name in ("parameter 0.weight", "parameter 0.bias", "x"))
        for name in ("x", "parameter 0.bias"):
            torch.testing.assert_close(ours[name], stock[name], rtol=1e-5, atol=1e-5)
    other = ebb.compress(copy.deepcopy(model), pool)
    for i in range(1, 8):
        if i <= len(layers):
            assert other[:i](x).stride() == model[:i](x).stride()


@pytest.mark.parametrize("order", ["transposed", "expanded", "sliced"])
def test_other_orders_in_memory(order):
    x = {"transposed": torch.randn(2, 4, 8, 9).transpose(2, 3), "expanded": torch.randn(2, 4, 1, 1).expand(2, 4, 9, 8),
         "sliced": torch.randn(4, 8, 18, 8)[::2, ::2, ::2]}[order].requires_grad_()
    for layers in ([nn.Conv2d(4, 4, 3)], [nn.ReLU()], [nn.Dropout(0.3)], [nn.MaxPool2d(2)], [nn.GroupNorm(2, 4)],
                   [nn.BatchNorm2d(4), nn.SiLU(), nn.Conv2d(4, 4, 3), nn.GroupNorm(2, 4), nn.ReLU(), nn.Dropout(0.2), nn.Conv2d(4, 4, 1)]):
        check_exact(nn.Sequential(*layers), x)
        check_exact(nn.Sequential(*layers), x, norm="recompute")


@pytest.mark.parametrize("layer", [nn.ReLU(), nn.LeakyReLU(), nn.Hardtanh(), nn.ReLU6()], ids=str)
@pytest.mark.parametrize("shape", [(2, 4, 1, 1), (2, 1, 5, 6), (2, 4, 5, 6)], ids=str)
def test_gradients_lie_in_memory_as_torchs_do(layer, shape):
    """Operations before it may round differently where they do not."""
    x = torch.randn(2, 4, 5, 6).contiguous(memory_format=torch.channels_last).requires_grad_()
    gy, found = torch.randn(shape).expand(2, 4, 5, 6), []
    for one in (copy.deepcopy(layer), ebb.compress(copy.deepcopy(layer))):
        inner = x * 1
        inner.register_hook(lambda gradient: found.append(gradient.stride()))
        one(inner).backward(gy)
    assert found[0] == found[1]


@pytest.mark.skipif(not torch.cuda.is_available(), reason="no GPU")
@pytest.mark.parametrize("p", [0.15, 0.3])
def test_dropout_on_a_gpu(p):
    """Torch's kernel rounds 1 - p, its backward pass does not; 0.15 tells them apart."""
    stock = nn.Sequential(nn.LayerNorm(64), nn.Dropout(p), nn.Linear(64, 8)).cuda()
    ours, x, found = ebb.compress(copy.deepcopy(stock)), torch.randn(50, 64, device="cuda", requires_grad=True), []
    for net in (ours, stock):
        torch.manual_seed(1)
        out = net(x)
        found.append([out, *torch.autograd.grad(out.square().sum(), [x, *net.parameters()])])
    assert all(torch.equal(one, two) for one, two in zip(*found))


# Lossy ones


def spread(pooled, block, size):
    for axis, (p, n) in enumerate(zip(block, size)):
        pooled = pooled.repeat_interleave(p, 2 + axis).narrow(2 + axis, 0, n)
    return pooled


def pooled_input(x, block, kind):
    """Blocks one by one."""
    out = x.detach().clone()
    for at in torch.cartesian_prod(*[torch.arange(0, n, p) for n, p in zip(x.shape[2:], block)]).reshape(-1, len(block)).tolist():
        place = (..., *[slice(i, i + p) for i, p in zip(at, block)])
        dims = list(range(2, x.dim()))
        out[place] = x[place].detach().mean(dims, keepdim=True) if kind == "average" else x[place].detach().amax(dims, keepdim=True)
    return out


@pytest.mark.parametrize("case", [name for name in CONVS if name not in ("none", "unbatched")])
@pytest.mark.parametrize("pool, pooling", [(2, "average"), (3, "max"), (4, "average")])
def test_pooled_convolutions(case, pool, pooling):
    make, shape = CONVS[case]
    model, x = nn.Sequential(make().double()), given(*shape, dtype=torch.float64)
    ours = ran(ebb.compress(copy.deepcopy(model), pool, pooling=pooling), x)
    stock = ran(model, x)
    assert same_bits(ours["out"], stock["out"])
    for name in ("x", "parameter 0.bias"):
        if name in stock:
            torch.testing.assert_close(ours[name], stock[name], rtol=1e-12, atol=1e-12)
    expected = ran(model, pooled_input(x, (pool,) * (x.dim() - 2), pooling))["parameter 0.weight"]
    torch.testing.assert_close(ours["parameter 0.weight"], expected, rtol=1e-11, atol=1e-11)
    assert not torch.allclose(expected, stock["parameter 0.weight"], rtol=1e-3)


def test_a_pooled_convolution_of_no_samples_or_of_one_without_a_batch():
    for shape in ((0, 4, 9, 8), (4, 9, 8)):
        check_exact(nn.Sequential(nn.Conv2d(4, 6, 3)), given(*shape), pool=2)


def test_two_consumers_share_one_pooled_copy():
    one, two = nn.Conv2d(8, 8, 3, padding=1), nn.Conv2d(8, 8, 1)
    x = given(4, 8, 16, 16)
    for layer in (one, two):
        ebb.compress(layer, 2)
    with Live() as live:
        first = one(x)
        middle = live.bytes()
        second = two(x)
        assert middle == first.numel() * 4 + x.numel() * 4 // 4
        assert live.bytes() == middle + second.numel() * 4
        (first.sum() + second.sum()).backward()
        del first, second
        grads = [p.grad for layer in (one, two) for p in layer.parameters()] + [x.grad]
        assert live.bytes() == sum(g.numel() * 4 for g in grads)  # though x is still there


def test_a_pooled_copy_is_not_used_for_a_changed_tensor():
    layer = ebb.compress(nn.Conv2d(3, 3, 3).double(), {"": 2})
    x = torch.randn(2, 3, 8, 8, dtype=torch.float64)
    first = layer(x)
    x.mul_(-3)
    second = layer(x)
    (gone,) = torch.autograd.grad(first.sum(), layer.weight)
    (found,) = torch.autograd.grad(second.sum(), layer.weight)
    torch.testing.assert_close(found, -3 * gone)


def test_data_is_pooled_only_where_its_layer_is_named():
    for pool, exact in ((2, True), ({"0": 2}, False)):
        model, x = nn.Sequential(nn.Conv2d(3, 3, 3)), torch.randn(2, 3, 9, 9)
        ours, stock = (ran(each, x) for each in (ebb.compress(copy.deepcopy(model), pool), model))
        assert torch.equal(ours["parameter 0.weight"], stock["parameter 0.weight"]) == exact


@pytest.mark.parametrize("shape", [(6, 10), (2, 3, 10), (0, 10), (10,)])
def test_int8_linear(shape):
    model, x = nn.Sequential(nn.Linear(10, 7).double()), given(*shape, dtype=torch.float64)
    ours, stock = ran(ebb.compress(copy.deepcopy(model), linear="int8"), x), ran(model, x)
    check_same(ours, stock, but=lambda name: name == "parameter 0.weight")
    flat = F.pad(x.detach().flatten().float(), (0, -x.numel() % 64)).view(-1, 64)
    scale = flat.abs().amax(1, keepdim=True) / 127
    near = ((flat / scale).round() * scale).flatten()[: x.numel()].view(x.shape).double() if x.dim() > 1 else x.detach()
    expected = ran(model, near)["parameter 0.weight"]
    torch.testing.assert_close(ours["parameter 0.weight"], expected, rtol=1e-5, atol=1e-6)


def test_projected_linear_is_right_in_the_mean():
    model, x = nn.Linear(10, 7).double(), given(40, 10, dtype=torch.float64)
    stock = ran(model, x)
    other = ebb.compress(copy.deepcopy(model), linear="project")
    found = [ran(other, x) for _ in range(300)]
    for one in found[:3]:
        check_same(one, stock, but=lambda name: name == "parameter weight")
    every = torch.stack([one["parameter weight"] for one in found])
    error = (every.mean(0) - stock["parameter weight"]).norm() / stock["parameter weight"].norm()
    spread_out = (every[0] - stock["parameter weight"]).norm() / stock["parameter weight"].norm()
    assert error < 0.15 * spread_out  # the mean of 300 is expected at 0.06
    assert kept_bytes(other, x) == 10 * 10 * 8


@pytest.mark.parametrize("case", NORMS)
@pytest.mark.parametrize("training", [True, False])
def test_int8_norms(case, training):
    make, shape = NORMS[case]
    model, x = nn.Sequential(make()).train(training), given(*shape)
    ours, stock = ran(ebb.compress(copy.deepcopy(model), norm="int8"), x), ran(model, x)
    exact = ("out", "random", "parameter 0.bias")
    check_same(ours, stock, but=lambda name: name not in exact and not name.startswith("buffer"))
    for name in ours:
        if not name.startswith("buffer"):
            error = (ours[name].float() - stock[name].float()).norm()
            assert error <= 0.03 * stock[name].float().norm(), (name, error)


def test_an_int8_batch_norm_refuses_what_torch_refuses():
    model = ebb.compress(nn.BatchNorm1d(4), norm="int8")
    with pytest.raises(ValueError, match="more than 1 value"):
        model(given(1, 4))
    with pytest.raises(ValueError, match="expected 2D or 3D"):
        model(given(1, 4, 2, 2))


def test_an_int8_batch_norm_of_no_samples():
    for training in (True, False):
        model = nn.BatchNorm2d(4).train(training)
        x = given(0, 4, 3, 3)
        try:
            expected = ran(copy.deepcopy(model), x)
        except ValueError:
            with pytest.raises(ValueError):
                ran(ebb.compress(model, norm="int8"), x)
        else:
            check_same(ran(ebb.compress(model, norm="int8"), x), expected)


# Who learns


@pytest.mark.parametrize("frozen", ["weight", "bias", "weight bias", "x", "x weight", "x bias"])
@pytest.mark.parametrize("options", [{}, dict(pool=2), dict(norm="int8", linear="int8"), dict(norm="recompute")], ids=str)
def test_frozen(frozen, options):
    layers = [nn.Conv2d(4, 4, 3), nn.BatchNorm2d(4), nn.ReLU(), nn.GroupNorm(2, 4), nn.SiLU(), nn.Linear(6, 6), nn.LayerNorm(6)]
    for model in [nn.Sequential(layer) for layer in layers] + [nn.Sequential(*layers)]:
        for name, p in model.named_parameters():
            p.requires_grad_(name.split(".")[1] not in frozen.split())
        x = given(2, 4, 8, 8, grad="x" not in frozen.split()) if len(model) > 1 or isinstance(model[0], nn.Conv2d) \
            else given(2, 4, 6, 6, grad="x" not in frozen.split())
        if not x.requires_grad and not any(p.requires_grad for p in model.parameters()):
            continue
        if not options or options == dict(norm="recompute"):
            check_exact(model, x, **options)
            continue
        ours, stock = ran(ebb.compress(copy.deepcopy(model), **options), x), ran(model, x)
        assert ours.keys() == stock.keys()
        assert same_bits(ours["out"], stock["out"])


def test_without_gradients_layers_are_torchs_own():
    model = nn.Sequential(nn.Conv2d(4, 4, 3), nn.BatchNorm2d(4), nn.ReLU(True), nn.Dropout(0.2), nn.MaxPool2d(2), nn.SiLU())
    other, x = ebb.compress(copy.deepcopy(model), 2, norm="int8"), given(2, 4, 9, 9)
    for context in (torch.no_grad, torch.inference_mode):
        with context():
            torch.manual_seed(0)
            expected = model(x)
            torch.manual_seed(0)
            assert same_bits(other(x), expected)


def test_an_inference_tensor_is_refused_as_torch_does():
    with torch.inference_mode():
        x = torch.randn(2, 4, 8, 8)
    with pytest.raises(RuntimeError, match="[Ii]nference tensors cannot be saved"):
        ebb.compress(nn.Conv2d(4, 4, 3))(x)


@pytest.mark.parametrize("inside", [False, True], ids=["backward outside", "backward inside"])
def test_autocast(inside):
    layers = [nn.Conv2d(4, 4, 3), nn.BatchNorm2d(4), nn.ReLU(), nn.Conv2d(4, 6, 3), nn.GroupNorm(2, 6), nn.SiLU(), nn.MaxPool2d(2),
              nn.Flatten(), nn.LayerNorm(24), nn.GELU(), nn.Dropout(0.2), nn.Linear(24, 5), nn.Hardswish(), nn.Mish(), nn.Linear(5, 5)]
    model, x = nn.Sequential(*layers), given(2, 4, 8, 8)

    def found(model):
        torch.manual_seed(3)
        with torch.autocast("cpu", torch.bfloat16):
            out = model(x)
            if inside:
                out.float().square().sum().backward()
        if not inside:
            out.float().square().sum().backward()
        grads = {name: p.grad.clone() for name, p in model.named_parameters()}
        model.zero_grad()
        return {"out": out.detach(), **grads}

    stock = found(model)
    for options in (dict(), dict(norm="recompute")):
        check_same(found(ebb.compress(copy.deepcopy(model), **options)), stock)
    lossy = found(ebb.compress(copy.deepcopy(model), 2, norm="int8", linear="int8"))
    assert same_bits(lossy["out"], stock["out"])
    for name in stock:
        assert lossy[name].dtype == stock[name].dtype


# The model around the layers


def net():
    return nn.Sequential(nn.Conv2d(3, 4, 3), nn.BatchNorm2d(4), nn.ReLU(), nn.MaxPool2d(2), nn.Dropout(0.2), nn.Flatten(), nn.Linear(36, 5))


def test_names_values_parameters_and_hooks_stay():
    model = net()
    before, parameters, types = copy.deepcopy(model.state_dict()), list(model.parameters()), [type(m) for m in model.modules()]
    calls = []
    model[0].register_forward_hook(lambda *_: calls.append("forward"))
    model[0].register_full_backward_hook(lambda *_: calls.append("backward"))
    model[0].weight.register_hook(lambda g: calls.append("weight"))
    other = ebb.compress(model, 2)
    assert other is model
    assert all(one is two for one, two in zip(model.parameters(), parameters, strict=True))
    after = model.state_dict()
    assert list(after) == list(before) and all(torch.equal(after[name], before[name]) for name in before)
    assert after._metadata == before._metadata
    model(given(2, 3, 8, 8)).sum().backward()
    assert sorted(calls) == ["backward", "forward", "weight"]
    assert all(isinstance(m, t) for m, t in zip(model.modules(), types, strict=True))
    assert ebb.decompress(model) is model
    assert [type(m) for m in model.modules()] == types
    assert not any("ebb" in name for m in model.modules() for name in vars(m))
    ebb.decompress(model)


def test_once_more_with_other_options():
    model = net()
    for options in (dict(pool=2), dict(pool=1), dict(norm="int8"), dict(relu="exact"), dict(skip=["0", nn.ReLU])):
        ebb.compress(model, **options)
    assert type(model[0]) is nn.Conv2d and type(model[2]) is nn.ReLU and type(model[1]) is not nn.BatchNorm2d
    check_exact(ebb.decompress(model), given(2, 3, 8, 8))


def test_the_root_can_be_a_layer():
    layer = nn.Conv2d(3, 3, 3)
    check_exact(layer, given(2, 3, 8, 8))
    assert type(ebb.decompress(ebb.compress(layer, (2, 4)))) is nn.Conv2d
    with pytest.raises(ebb.Error, match="pool is 0 for the model itself"):
        ebb.compress(layer, 0)


def test_copies_and_files():
    model = ebb.compress(net(), 2, norm="int8", linear="int8")
    x = given(2, 3, 8, 8)
    expected = ran(model, x)
    file = io.BytesIO()
    torch.save(model, file)
    file.seek(0)
    for other in (copy.deepcopy(model), pickle.loads(pickle.dumps(model)), torch.load(file, weights_only=False)):
        found = ran(other, x)
        check_same(found, expected, but=lambda name: name.startswith("buffer"))
        assert [type(m) for m in other.modules()] == [type(m) for m in model.modules()]
        ebb.decompress(other)
        assert type(model[0]) is not nn.Conv2d, "a copy is another model"


def test_tensors_can_be_written_and_copied_as_before():
    model, x = ebb.compress(nn.Sequential(nn.Conv2d(3, 3, 1), nn.BatchNorm2d(3), nn.SiLU()), 2), given(2, 3, 8, 8)
    out = model(x)
    for tensor in (x, out):
        assert not vars(tensor)
        file = io.BytesIO()
        torch.save(tensor, file)
        file.seek(0)
        assert torch.equal(torch.load(file, weights_only=True), tensor)
    copy.deepcopy(x)


@pytest.mark.parametrize("before", [True, False], ids=["before", "after"])
@pytest.mark.parametrize("what", [parametrizations.weight_norm, parametrizations.spectral_norm, lambda m: prune.l1_unstructured(m, "weight", 0.3)],
                         ids=["weight norm", "spectral norm", "pruned"])
def test_parametrised_layers(what, before):
    """A parametrisation changes the class of a layer, too; reading a spectrally normed weight changes it."""
    torch.manual_seed(1)
    stock = nn.Sequential(nn.Conv2d(3, 4, 3), nn.BatchNorm2d(4), nn.ReLU(), nn.Conv2d(4, 4, 1), nn.Linear(6, 5), nn.LayerNorm((6, 5)))
    ours = copy.deepcopy(stock)
    if before:
        ebb.compress(ours)
    for model in (ours, stock):
        torch.manual_seed(2)
        for place in (0, 4):
            what(model[place])
    if not before:
        ebb.compress(ours)
    x = given(2, 3, 8, 8)
    for _ in range(2):
        check_same(ran(ours, x), ran(stock, x))
    ebb.decompress(ours)
    check_same(ran(ours, x), ran(stock, x))


def test_lossy_layers_with_a_parametrisation():
    torch.manual_seed(1)
    stock = nn.Sequential(parametrizations.spectral_norm(nn.Conv2d(3, 4, 3)), nn.Flatten(), nn.Linear(144, 5))
    ours = ebb.compress(copy.deepcopy(stock), 2, linear="int8")
    torch.manual_seed(4)
    parametrizations.spectral_norm(ours[2])
    torch.manual_seed(4)
    parametrizations.spectral_norm(stock[2])
    ours(given(2, 3, 8, 8)), ran(stock, given(2, 3, 8, 8))
    for one, two in zip(ours.state_dict().values(), stock.state_dict().values(), strict=True):
        assert torch.equal(one, two)


# Errors


@pytest.mark.parametrize("options, message", [
    (dict(pool=0), "pool is 0 for 0; a block is a whole number from 1 on"),
    (dict(pool=True), "pool is True"), (dict(pool=1.5), "pool is 1.5"), (dict(pool="2"), "pool is '2'"),
    (dict(pool=(2, 2, 2)), "0, which has 2 spatial axes; give 2 numbers"),
    (dict(pool=[2]), "no child of the model contains convolutions of its own"),
    (dict(pool={"7": 2}), "pool names '7', which the model does not have"),
    (dict(pool={"1": 2}), "pool names '1', which has no convolution"),
    (dict(relu="int8"), "relu is 'int8'; it must be 'bits' or 'exact'"),
    (dict(norm="bits"), "norm is 'bits'"), (dict(linear="pool"), "linear is 'pool'"), (dict(pooling="mean"), "pooling is 'mean'"),
    (dict(skip=["nine"]), "skip names 'nine', which the model does not have; its layers are 0, 1"),
    (dict(skip=[3]), "skip has 3; it must be a layer's name, a type or a module"),
], ids=str)
def test_errors_change_nothing(options, message):
    model = ebb.compress(net(), 2)
    kinds, settings = [type(m) for m in model], copy.deepcopy(model[0].ebb_settings)
    with pytest.raises(ebb.Error, match=message.replace("(", r"\(")):
        ebb.compress(model, **options)
    assert [type(m) for m in model] == kinds and model[0].ebb_settings == settings


def test_errors_about_the_model():
    for function in (ebb.compress, ebb.decompress):
        with pytest.raises(ebb.Error, match="model is a int; it must be a torch.nn.Module"):
            function(3)


@pytest.mark.parametrize("mode", ["circular", "reflect", "replicate"])
def test_other_paddings_are_refused(mode):
    model = nn.Sequential(nn.Conv2d(3, 3, 3, padding=1, padding_mode=mode), nn.ReLU())
    with pytest.raises(ebb.Error, match=rf"0 pads with padding_mode='{mode}'; only 'zeros' can be compressed.*skip=\['0'\]"):
        ebb.compress(model, 2)
    check_exact(model, given(2, 3, 8, 8), skip=["0"])


def test_blocks_by_stage_by_name_and_by_axis():
    model = nn.Sequential(nn.Conv2d(3, 4, 3), nn.Sequential(nn.Conv2d(4, 4, 1), nn.Conv2d(4, 4, 1)), nn.Sequential(nn.Conv2d(4, 4, 1)))

    def blocks(pool):
        ebb.compress(model, pool)
        return [m.ebb_settings.block for m in model.modules() if isinstance(m, nn.Conv2d)]

    assert blocks([2, (4, 1)]) == [(2, 2), (2, 2), (2, 2), (4, 1)]
    assert blocks({"": 3, "1": 2, "1.1": (1, 2)}) == [(3, 3), (2, 2), (1, 2), (3, 3)]
    assert blocks((1, 4)) == [(1, 4)] * 4


def test_a_layer_with_two_names_goes_by_both():
    shared = nn.Conv2d(3, 3, 1)
    model = nn.ModuleDict({"one": shared, "two": shared})
    ebb.compress(model, {"two": 2})
    assert shared.ebb_settings.block == (2, 2)
    ebb.compress(model, 2, skip=["two"])
    assert type(shared) is nn.Conv2d


@pytest.mark.parametrize("missing", ["weight", "bias"])
@pytest.mark.parametrize("training", [True, False])
def test_batch_norm_with_half_of_its_parameters(missing, training):
    norm = nn.BatchNorm2d(4)
    setattr(norm, missing, None)
    check_exact(nn.Sequential(nn.Conv2d(3, 4, 3), norm, nn.ReLU(), nn.Conv2d(4, 2, 3)).train(training), given(2, 3, 9, 9))


@pytest.mark.parametrize("pool, says", [([], "no child of the model"), ({0: 2}, "keys are names"), ({nn.Conv2d: 2}, "keys are names")])
def test_pool_of_a_wrong_form(pool, says):
    with pytest.raises(ebb.Error, match=says):
        ebb.compress(nn.Sequential(nn.Conv2d(3, 4, 3)), pool)


def test_a_layer_that_was_parametrised_later_is_undone_too():
    model = ebb.compress(nn.Sequential(nn.Conv2d(3, 4, 3)), {"0": 2})
    torch.nn.utils.parametrizations.weight_norm(model[0])
    assert type(ebb.decompress(model)[0]).__mro__[1] is nn.Conv2d
    nn.utils.parametrize.remove_parametrizations(model[0], "weight")
    assert type(model[0]) is nn.Conv2d and not hasattr(model[0], "ebb_settings")


def test_a_layer_that_has_become_another_is_not_undone_in_silence():
    model = ebb.compress(nn.Sequential(nn.Conv2d(3, 4, 3)))
    model[0].__class__ = type("Own", (type(model[0]),), {})
    with pytest.raises(ebb.Error, match="has become Own"):
        ebb.decompress(model)


def test_scripted_models_are_refused():
    with pytest.raises(ebb.Error, match="torch.jit"):
        ebb.compress(torch.jit.script(nn.Sequential(nn.ReLU())))


@pytest.mark.parametrize("act", [nn.SiLU(), nn.SiLU(True), nn.Hardswish(True), nn.Mish(True), nn.Sigmoid(), nn.Tanh(), nn.GELU()], ids=str)
@pytest.mark.parametrize("norm", [nn.BatchNorm2d(4), nn.GroupNorm(2, 4)], ids=["batch", "group"])
def test_between_a_norm_and_a_convolution_only_the_norm_keeps_its_input(act, norm):
    stock = nn.Sequential(nn.Conv2d(3, 4, 3), norm, act, nn.Conv2d(4, 2, 3))
    x = given(2, 3, 18, 18)
    ours = check_exact(stock, x)
    maps = 4 * 2 * 4 * 16 * 16
    assert kept_bytes(ours, x) <= kept_bytes(stock, x) - maps

# SPDX-License-Identifier: Apache-2.0
"""Compressed layers one by one: torch's bits where nothing lossy was asked for."""

from __future__ import annotations

import copy

import pytest

torch = pytest.importorskip("torch", reason="PyTorch is not installed")
from compress_cases import CONVS, NORMS, check_exact, check_same, given, kept_bytes, ran, same_bits  # noqa: E402
from torch import nn  # noqa: E402

import ebb  # noqa: E402

pytestmark = pytest.mark.usefixtures("one_thread")


ACTIVATIONS = {
    "relu": nn.ReLU,
    "relu in place": lambda: nn.ReLU(True),
    "relu6": nn.ReLU6,
    "relu6 in place": lambda: nn.ReLU6(True),
    "hardtanh": lambda: nn.Hardtanh(-0.5, 0.7),
    "leaky": lambda: nn.LeakyReLU(0.1),
    "leaky in place": lambda: nn.LeakyReLU(0.1, True),
    "leaky 0": lambda: nn.LeakyReLU(0.0),
    "silu": nn.SiLU,
    "silu in place": lambda: nn.SiLU(True),
    "gelu": nn.GELU,
    "gelu tanh": lambda: nn.GELU(approximate="tanh"),
    "hardswish": nn.Hardswish,
    "mish": nn.Mish,
    "sigmoid": nn.Sigmoid,
    "tanh": nn.Tanh,
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
    "0d": (lambda: nn.Dropout(0.3), (7, 5)),
    "in place": (lambda: nn.Dropout(0.3, True), (7, 5)),
    "1d": (lambda: nn.Dropout1d(0.3), (4, 5, 6)),
    "2d": (lambda: nn.Dropout2d(0.3, True), (4, 5, 6, 2)),
    "3d": (lambda: nn.Dropout3d(0.3), (4, 5, 6, 2, 3)),
    "1d unbatched": (lambda: nn.Dropout1d(0.3), (5, 6)),
    "never": (lambda: nn.Dropout(0.0), (7, 5)),
    "always": (lambda: nn.Dropout(1.0), (7, 5)),
    "none": (lambda: nn.Dropout(), (0, 3)),
}


@pytest.mark.parametrize("case", CONVS)
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.bfloat16])
@pytest.mark.sweep(20)
def test_convolutions(case, dtype):
    make, shape = CONVS[case]
    model = nn.Sequential(make().to(dtype))
    other = check_exact(model, given(*shape, dtype=dtype))
    assert type(other[0]).__module__.startswith("ebb.")


@pytest.mark.parametrize("case", NORMS)
@pytest.mark.parametrize("norm", ["exact", "recompute"])
@pytest.mark.parametrize("training", [True, False])
@pytest.mark.sweep(18)
def test_norms(case, norm, training):
    make, shape = NORMS[case]
    check_exact(nn.Sequential(make(), nn.ReLU(), nn.SiLU()).train(training), given(*shape), norm=norm)


@pytest.mark.parametrize("case", ACTIVATIONS)
@pytest.mark.parametrize("shape", [(3, 5), (2, 3, 4, 5), (0, 4), ()])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.sweep(16)
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
@pytest.mark.sweep(8)
def test_activations_after_a_norm(case, norm):
    model = nn.Sequential(
        nn.Conv2d(4, 4, 3), norm(), ACTIVATIONS[case](), nn.Conv2d(4, 4, 1), nn.Dropout(0.2), ACTIVATIONS[case]()
    )
    for way in ("exact", "recompute"):
        check_exact(model, given(2, 4, 7, 6), norm=way)


@pytest.mark.parametrize("case", POOLS)
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.bfloat16])
@pytest.mark.sweep(15)
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
                nn.LayerNorm(6),
                nn.Dropout(0.0),
                nn.ReLU(),
                nn.Linear(6, 6),
                nn.Linear(6, 6),
            )

        def forward(self, x):
            n = self.norm(x)
            return self.one(n) + self.two(self.relu(self.drop(n)))

    check_exact(Two(), given(5, 6))


@pytest.mark.parametrize(
    "layer",
    [
        nn.AlphaDropout(0.2),
        nn.FeatureAlphaDropout(0.2),
        nn.ConvTranspose2d(3, 3, 2),
        nn.SyncBatchNorm(3),
        nn.Softmax(1),
        nn.LazyConv2d(3, 2),
        nn.ELU(),
        nn.AvgPool2d(2),
        nn.Bilinear(3, 3, 3),
    ],
    ids=str,
)
def test_other_layers_are_left_alone(layer):
    kind = type(layer)
    assert type(ebb.compress(nn.Sequential(layer))[0]) is kind


def test_classes_of_somebodys_own_are_left_alone():
    class Mine(nn.Conv2d):
        pass

    assert type(ebb.compress(nn.Sequential(Mine(3, 3, 1)))[0]) is Mine


@pytest.mark.parametrize(
    "shape, layers",
    [
        (
            (2, 4, 9, 8),
            [
                nn.Conv2d(4, 6, 3),
                nn.BatchNorm2d(6),
                nn.ReLU(),
                nn.MaxPool2d(2),
                nn.Dropout(0.3),
                nn.GroupNorm(2, 6),
                nn.SiLU(),
            ],
        ),
        (
            (2, 4, 5, 6, 7),
            [nn.Conv3d(4, 6, 3), nn.BatchNorm3d(6), nn.LeakyReLU(), nn.MaxPool3d(2), nn.Dropout3d(0.3), nn.GELU()],
        ),
    ],
)
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
    x = {
        "transposed": torch.randn(2, 4, 8, 9).transpose(2, 3),
        "expanded": torch.randn(2, 4, 1, 1).expand(2, 4, 9, 8),
        "sliced": torch.randn(4, 8, 18, 8)[::2, ::2, ::2],
    }[order].requires_grad_()
    for layers in (
        [nn.Conv2d(4, 4, 3)],
        [nn.ReLU()],
        [nn.Dropout(0.3)],
        [nn.MaxPool2d(2)],
        [nn.GroupNorm(2, 4)],
        [
            nn.BatchNorm2d(4),
            nn.SiLU(),
            nn.Conv2d(4, 4, 3),
            nn.GroupNorm(2, 4),
            nn.ReLU(),
            nn.Dropout(0.2),
            nn.Conv2d(4, 4, 1),
        ],
    ):
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


# Who learns


@pytest.mark.parametrize("frozen", ["weight", "bias", "weight bias", "x", "x weight", "x bias"])
@pytest.mark.parametrize(
    "options", [{}, dict(pool=2), dict(norm="int8", linear="int8"), dict(norm="recompute")], ids=str
)
@pytest.mark.sweep(9)
def test_frozen(frozen, options):
    layers = [
        nn.Conv2d(4, 4, 3),
        nn.BatchNorm2d(4),
        nn.ReLU(),
        nn.GroupNorm(2, 4),
        nn.SiLU(),
        nn.Linear(6, 6),
        nn.LayerNorm(6),
    ]
    for model in [nn.Sequential(layer) for layer in layers] + [nn.Sequential(*layers)]:
        for name, p in model.named_parameters():
            p.requires_grad_(name.split(".")[1] not in frozen.split())
        x = (
            given(2, 4, 8, 8, grad="x" not in frozen.split())
            if len(model) > 1 or isinstance(model[0], nn.Conv2d)
            else given(2, 4, 6, 6, grad="x" not in frozen.split())
        )
        if not x.requires_grad and not any(p.requires_grad for p in model.parameters()):
            continue
        if not options or options == dict(norm="recompute"):
            check_exact(model, x, **options)
            continue
        ours, stock = ran(ebb.compress(copy.deepcopy(model), **options), x), ran(model, x)
        assert ours.keys() == stock.keys()
        assert same_bits(ours["out"], stock["out"])


def test_without_gradients_layers_are_torchs_own():
    model = nn.Sequential(
        nn.Conv2d(4, 4, 3), nn.BatchNorm2d(4), nn.ReLU(True), nn.Dropout(0.2), nn.MaxPool2d(2), nn.SiLU()
    )
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
    layers = [
        nn.Conv2d(4, 4, 3),
        nn.BatchNorm2d(4),
        nn.ReLU(),
        nn.Conv2d(4, 6, 3),
        nn.GroupNorm(2, 6),
        nn.SiLU(),
        nn.MaxPool2d(2),
        nn.Flatten(),
        nn.LayerNorm(24),
        nn.GELU(),
        nn.Dropout(0.2),
        nn.Linear(24, 5),
        nn.Hardswish(),
        nn.Mish(),
        nn.Linear(5, 5),
    ]
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


@pytest.mark.parametrize("missing", ["weight", "bias"])
@pytest.mark.parametrize("training", [True, False])
def test_batch_norm_with_half_of_its_parameters(missing, training):
    norm = nn.BatchNorm2d(4)
    setattr(norm, missing, None)
    check_exact(
        nn.Sequential(nn.Conv2d(3, 4, 3), norm, nn.ReLU(), nn.Conv2d(4, 2, 3)).train(training), given(2, 3, 9, 9)
    )


@pytest.mark.parametrize(
    "act", [nn.SiLU(), nn.SiLU(True), nn.Hardswish(True), nn.Mish(True), nn.Sigmoid(), nn.Tanh(), nn.GELU()], ids=str
)
@pytest.mark.parametrize("norm", [nn.BatchNorm2d(4), nn.GroupNorm(2, 4)], ids=["batch", "group"])
def test_between_a_norm_and_a_convolution_only_the_norm_keeps_its_input(act, norm):
    stock = nn.Sequential(nn.Conv2d(3, 4, 3), norm, act, nn.Conv2d(4, 2, 3))
    x = given(2, 3, 18, 18)
    ours = check_exact(stock, x)
    maps = 4 * 2 * 4 * 16 * 16
    assert kept_bytes(ours, x) <= kept_bytes(stock, x) - maps

# SPDX-License-Identifier: Apache-2.0
"""Functions that a compressed model calls, and classes derived from torch's layers: they keep what the layers of their kind keep."""

from __future__ import annotations

import copy
import io
import pickle
from functools import partial

import pytest

torch = pytest.importorskip("torch", reason="PyTorch is not installed")
import torch.nn.functional as F  # noqa: E402
from compress_cases import check_same, kept_bytes, ran  # noqa: E402
from torch import nn  # noqa: E402
from torch.utils.checkpoint import checkpoint  # noqa: E402

import ebb  # noqa: E402
from ebb._compress.compiled import running  # noqa: E402

pytestmark = pytest.mark.skipif(
    not hasattr(torch._C._autograd, "_top_saved_tensors_default_hooks"), reason="this torch does not say who hooks"
)


class Block(nn.Module):
    """As many write it: its activation is a function."""

    def __init__(self, act, channels=8):
        super().__init__()
        self.conv1, self.norm1 = nn.Conv2d(channels, channels, 3, padding=1), nn.BatchNorm2d(channels)
        self.conv2, self.norm2 = nn.Conv2d(channels, channels, 3, padding=1), nn.BatchNorm2d(channels)
        self.act = act

    def forward(self, x):
        y = self.act(self.norm1(self.conv1(x)))
        y = self.norm2(self.conv2(y))
        y += x
        return self.act(y)


def net(act, blocks=3):
    torch.manual_seed(0)
    return nn.Sequential(*[Block(act) for _ in range(blocks)])


def image(channels=8):
    return torch.randn(2, channels, 16, 16, generator=torch.Generator().manual_seed(1), requires_grad=True)


def check(model, x, **options):
    ours = ebb.compress(copy.deepcopy(model), **options)
    for seed in (5, 6):
        check_same(ran(ours, x, seed), ran(model, x, seed))
    assert running.seen is None
    return ours


CALLS = {
    "relu": (F.relu, nn.ReLU()),
    "torch.relu": (torch.relu, nn.ReLU()),
    "x.relu": (torch.Tensor.relu, nn.ReLU()),
    "relu, in place": (partial(F.relu, inplace=True), nn.ReLU(True)),
    "relu_": (torch.Tensor.relu_, nn.ReLU(True)),
    "relu6": (F.relu6, nn.ReLU6()),
    "hardtanh": (partial(F.hardtanh, min_val=-0.5, max_val=2.0), nn.Hardtanh(-0.5, 2.0)),
    "leaky_relu": (partial(F.leaky_relu, negative_slope=0.2), nn.LeakyReLU(0.2)),
    "silu": (F.silu, nn.SiLU()),
    "hardswish": (F.hardswish, nn.Hardswish()),
    "mish": (F.mish, nn.Mish()),
    "gelu": (F.gelu, nn.GELU()),
    "gelu, tanh": (partial(F.gelu, approximate="tanh"), nn.GELU("tanh")),
    "sigmoid": (torch.sigmoid, nn.Sigmoid()),
    "x.tanh": (torch.Tensor.tanh, nn.Tanh()),
    "dropout": (partial(F.dropout, p=0.3), nn.Dropout(0.3)),
    "max_pool2d": (
        lambda x: F.max_pool2d(x, kernel_size=3, stride=[1, 1], padding=1),
        nn.MaxPool2d(3, 1, 1),
    ),
}


class Calls(nn.Module):
    def __init__(self, call):
        super().__init__()
        self.norm, self.conv, self.after = nn.BatchNorm2d(8), nn.Conv2d(8, 8, 3), nn.BatchNorm2d(8)
        self.call = call

    def forward(self, x):
        return self.after(self.conv(self.call(self.norm(x * 1))))


class CallsPool(Calls):
    def forward(self, x):
        return self.after(self.conv(F.max_pool2d(self.norm(x * 1), kernel_size=3, stride=[1, 1], padding=1)))


@pytest.mark.parametrize("name", CALLS)
def test_a_function_keeps_what_its_layer_keeps(name):
    function, layer = CALLS[name]
    make = CallsPool if name == "max_pool2d" else Calls
    torch.manual_seed(0)
    stock = make(function)
    as_layer = Calls(layer)
    as_layer.load_state_dict(stock.state_dict())
    x = image()
    ours = check(stock, x)
    assert ours.ebb_compress.functions == [type(layer).__name__]
    assert kept_bytes(ours, x) == kept_bytes(ebb.compress(as_layer), x) < kept_bytes(stock, x)


@pytest.mark.parametrize("options", [{}, {"norm": "recompute"}, {"pool": 2}, {"pool": 2, "norm": "int8"}], ids=str)
def test_blocks_keep_what_blocks_of_layers_keep(options):
    x, stock, layers = image(), net(F.relu), net(nn.ReLU())
    ours, theirs = ebb.compress(copy.deepcopy(stock), **options), ebb.compress(layers, **options)
    assert kept_bytes(ours, x) == kept_bytes(theirs, x) < kept_bytes(stock, x)
    check_same(ran(ours, x), ran(theirs, x))


class NormAct(nn.BatchNorm2d):
    """As timm's BatchNormAct2d: the norm's function, then the activation."""

    def __init__(self, channels):
        super().__init__(channels)
        self.act = nn.ReLU(inplace=True)

    def forward(self, x):
        self.num_batches_tracked.add_(1)
        y = F.batch_norm(
            x, self.running_mean, self.running_var, self.weight, self.bias, self.training, self.momentum, self.eps
        )
        return self.act(y)


class NormThen(nn.BatchNorm2d):
    """Another way to write it."""

    def __init__(self, channels):
        super().__init__(channels)
        self.act = nn.ReLU(inplace=True)

    def forward(self, x):
        return self.act(super().forward(x))


class ChannelNorm(nn.LayerNorm):
    def forward(self, x):
        x = F.layer_norm(x.permute(0, 2, 3, 1), self.normalized_shape, self.weight, self.bias, self.eps)
        return x.permute(0, 3, 1, 2)


class GroupedNorm(nn.Module):
    def __init__(self, channels):
        super().__init__()
        self.scale, self.shift = nn.Parameter(torch.rand(channels)), nn.Parameter(torch.rand(channels))

    def forward(self, x):
        return F.group_norm(x, 2, self.scale, self.shift)


def of_norms(make):
    torch.manual_seed(0)
    layers = [layer for _ in range(3) for layer in (nn.Conv2d(8, 8, 3, padding=1), make(8))]
    return nn.Sequential(*layers, nn.Conv2d(8, 8, 1))


@pytest.mark.parametrize("norm", ["exact", "recompute", "int8"])
@pytest.mark.parametrize("make", [NormAct, NormThen])
def test_norms_with_an_activation_keep_what_layers_keep(make, norm):
    def separate(channels):
        return nn.Sequential(nn.BatchNorm2d(channels), nn.ReLU(inplace=True))

    x, stock = image(), of_norms(make)
    ours, theirs = ebb.compress(copy.deepcopy(stock), norm=norm), ebb.compress(of_norms(separate), norm=norm)
    assert ours.ebb_compress.functions == ["BatchNorm2d"]
    assert kept_bytes(ours, x) == kept_bytes(theirs, x) < kept_bytes(stock, x)
    if norm != "int8":
        for training in (True, False):
            check_same(ran(ours.train(training), x), ran(stock.train(training), x), lambda name: "buffer" in name)


@pytest.mark.parametrize("norm", ["exact", "recompute"])
@pytest.mark.parametrize("make", [ChannelNorm, GroupedNorm])
def test_functions_of_norms(make, norm):
    x, stock = image(), of_norms(make)
    ours = check(stock, x, norm=norm)
    coded = ebb.compress(copy.deepcopy(stock), norm="int8")
    assert max(kept_bytes(one, x) for one in (ours, coded)) < kept_bytes(stock, x)


def test_a_product_over_rows_of_a_norm():
    """As GPT-2's Conv1D, which is a product of matrices."""

    class Rows(nn.Module):
        def __init__(self):
            super().__init__()
            self.norm, self.bias = nn.LayerNorm(16), nn.Parameter(torch.zeros(24))
            self.weight = nn.Parameter(torch.randn(16, 24))

        def forward(self, x):
            x = self.norm(x)
            return torch.addmm(self.bias, x.view(-1, x.size(-1)), self.weight).view(*x.shape[:-1], 24)

    stock, x = Rows(), image()
    ours = check(stock, x)
    assert kept_bytes(ours, x) == kept_bytes(stock, x) - x.numel() * x.element_size()


def test_only_where_the_code_calls_one():
    class Named(nn.Module):
        """`relu` is a layer here."""

        def __init__(self):
            super().__init__()
            self.norm, self.relu = nn.BatchNorm2d(8), nn.ReLU()

        def forward(self, x):
            return self.relu(self.norm(x))

    assert ebb.compress(Named()).ebb_compress.functions == []
    assert ebb.compress(nn.Sequential(nn.BatchNorm2d(8), nn.ReLU(), nn.Dropout(0.2))).ebb_compress.functions == []
    assert "functions of ReLU too" in ebb.compress(net(F.relu)).ebb_compress.brief()


def _helper(x):
    return torch.relu(x)


class Indirect(Calls):
    def forward(self, x):
        return self.conv(_helper(self.norm(x * 1)))


def test_functions_that_call_functions_are_looked_into():
    ours = check(Indirect(None), image())
    assert ours.ebb_compress.functions == ["ReLU"]


@pytest.mark.parametrize("options", [{"relu": "exact"}, {"skip": [nn.ReLU]}], ids=str)
def test_functions_that_are_to_stay(options):
    stock, x = net(F.relu), image()
    ours = check(stock, x, **options)
    assert ours.ebb_compress.functions == []
    assert kept_bytes(ours, x) > kept_bytes(ebb.compress(copy.deepcopy(stock)), x)


def test_layers_of_torchs_that_were_left_out_are_not_functions():
    class Both(nn.Module):
        def __init__(self):
            super().__init__()
            self.norm1, self.plain, self.conv = nn.BatchNorm2d(8), nn.ReLU(), nn.Conv2d(8, 8, 1)
            self.norm2 = nn.BatchNorm2d(8)

        def forward(self, x):
            return F.relu(self.norm2(self.conv(self.plain(self.norm1(x)))))

    stock, x = Both(), image()
    without, with_ = check(stock, x, skip=["plain"]), check(stock, x)
    assert kept_bytes(without, x) > kept_bytes(with_, x)


@pytest.mark.parametrize("reentrant", [False, True])
def test_checkpoints_inside(reentrant):
    class Model(nn.Module):
        def __init__(self):
            super().__init__()
            self.first, self.second, self.third = (Block(F.relu) for _ in range(3))

        def forward(self, x):
            return self.third(checkpoint(self.second, self.first(x), use_reentrant=reentrant))

    check(Model(), image())


def test_views_hand_on_what_is_known():
    class Model(nn.Module):
        def __init__(self):
            super().__init__()
            self.norm, self.conv = nn.LayerNorm(8), nn.Conv2d(8, 8, 1)
            self.out = nn.Linear(8 * 256, 3)

        def forward(self, x):
            x = self.norm(x.permute(0, 2, 3, 1)).permute(0, 3, 1, 2)
            return self.out(F.silu(self.conv(x)).flatten(1))

    stock, x = Model(), image()
    ours = check(stock, x)
    numbers = x.numel() * x.element_size()
    assert kept_bytes(ours, x) <= kept_bytes(stock, x) - 2 * numbers


def test_a_view_of_what_was_changed_is_kept_as_it_is():
    class Model(nn.Module):
        def __init__(self):
            super().__init__()
            self.norm, self.conv = nn.BatchNorm2d(8), nn.Conv2d(8, 8, 1)

        def forward(self, x):
            y = F.silu(self.norm(x * 1))
            flat = y.flatten(2)
            flat.add_(1.0)
            return self.conv(flat.view(y.shape))

    check(Model(), image())


def test_an_exception_leaves_nothing_behind():
    class Fails(nn.Module):
        def forward(self, x):
            raise ValueError("as asked")

    model = ebb.compress(nn.Sequential(Block(F.relu), Fails()))
    with pytest.raises(ValueError, match="as asked"):
        model(image())
    assert running.seen is None and torch._C._len_torch_function_stack() == 0


def test_copies_files_and_back():
    stock, x = net(F.relu), image()
    ours = ebb.compress(copy.deepcopy(stock))
    kept = kept_bytes(ours, x)
    buffer = io.BytesIO()
    torch.save(ours, buffer)
    buffer.seek(0)
    for again in (copy.deepcopy(ours), torch.load(buffer, weights_only=False)):
        assert kept_bytes(again, x) == kept
    back = ebb.decompress(ours)
    assert not hasattr(back, "ebb_functions")
    assert kept_bytes(back, x) == kept_bytes(stock, x)


def test_models_inside_of_models():
    inner = ebb.compress(net(F.relu, 1))
    outer = ebb.compress(nn.Sequential(inner, *net(F.relu, 2)))
    x = image()
    assert kept_bytes(outer, x) == kept_bytes(ebb.compress(net(F.relu)), x)


def test_with_a_sample():
    stock, x = net(F.relu), image()
    ours = ebb.compress(copy.deepcopy(stock), sample=x)
    assert ours.ebb_compress.kept < ours.ebb_compress.stock_kept
    assert kept_bytes(ours, x) == kept_bytes(ebb.compress(copy.deepcopy(stock)), x)


def test_a_model_of_functions_alone():
    class Alone(nn.Module):
        def __init__(self):
            super().__init__()
            self.kernel, self.last = nn.Parameter(torch.randn(8, 8, 3, 3)), nn.Parameter(torch.randn(8, 8, 1, 1))

        def forward(self, x):
            return F.conv2d(F.silu(F.conv2d(x, self.kernel)), self.last)

    stock, x = Alone(), image()
    ours = check(stock, x)
    assert ours.ebb_compress.changed == {} and ours.ebb_compress.functions == ["SiLU"]
    assert kept_bytes(ours, x) < kept_bytes(stock, x)
    report = ebb.compression_report(ours, x)
    assert report.totals.kept < report.totals.stock_kept
    assert kept_bytes(ours, x) < kept_bytes(stock, x)


def test_where_nothing_is_known_of_any_tensor_nothing_is_seen():
    class Plain(nn.Module):
        def __init__(self):
            super().__init__()
            self.conv1, self.conv2 = nn.Conv2d(8, 8, 3), nn.Conv2d(8, 8, 3)

        def forward(self, x):
            return self.conv2(F.relu(self.conv1(x)))

    assert not ebb.compress(Plain())._forward_pre_hooks


def test_without_gradients_and_in_evaluation():
    stock, x = net(F.relu), image()
    ours = ebb.compress(copy.deepcopy(stock))
    with torch.no_grad():
        assert torch.equal(ours(x), stock(x))
    check_same(ran(ours.eval(), x), ran(stock.eval(), x))


def test_torch_compile():
    stock, x = net(F.relu, 1), image()
    run = torch.compile(ebb.compress(copy.deepcopy(stock)), backend="aot_eager")
    check_same(ran(run, x), ran(torch.compile(stock, backend="aot_eager"), x))


class Padded(nn.Conv2d):
    """Another constructor, torch's forward pass."""

    def __init__(self, ins, outs):
        super().__init__(ins, outs, 3, padding=1)


class Named(nn.BatchNorm2d):
    def extra_repr(self):
        return "named"


class Scaled(nn.Conv2d):
    def forward(self, x):
        return 2 * super().forward(x)


class Standardised(nn.Conv2d):
    def _conv_forward(self, x, weight, bias):
        return super()._conv_forward(x, weight - weight.mean(), bias)


class Signed(nn.Linear):
    def __getattr__(self, name):
        found = super().__getattr__(name)
        return found.sign() if name == "weight" else found


def derived():
    torch.manual_seed(0)
    return nn.Sequential(Padded(8, 8), Named(8), nn.ReLU(), Padded(8, 8), Named(8), nn.ReLU(), Padded(8, 8))


@pytest.mark.parametrize("options", [{}, {"norm": "recompute"}], ids=str)
def test_classes_that_compute_what_torchs_do(options):
    stock, x = derived(), image()
    ours = check(stock, x, **options)
    assert len(ours.ebb_compress.changed) == 7
    assert isinstance(ours[0], Padded) and "named" in repr(ours)
    assert kept_bytes(ours, x) < kept_bytes(stock, x)
    assert type(ebb.decompress(ours)[0]) is Padded


def test_their_copies_and_files():
    x, ours = image(), ebb.compress(derived())
    kept, wanted = kept_bytes(ours, x), ran(ours, x)
    for again in (copy.deepcopy(ours), pickle.loads(pickle.dumps(ours))):
        assert isinstance(again[0], Padded) and type(again[0]) is type(ours[0])
        again.load_state_dict(ours.state_dict())
        assert kept_bytes(again, x) == kept
    assert wanted.keys() == ran(ours, x).keys()
    assert type(ebb.decompress(pickle.loads(pickle.dumps(ours)))[1]) is Named


def test_their_names_in_skip_and_parametrisations():
    assert ebb.compress(derived(), skip=[Padded]).ebb_compress.changed.keys() == {"1", "2", "4", "5"}
    ours = ebb.compress(derived())
    nn.utils.parametrizations.weight_norm(ours[0])
    ours(image()).sum().backward()
    assert isinstance(ebb.decompress(ours)[0], Padded)


@pytest.mark.parametrize("kind", [Scaled, Standardised])
def test_classes_that_compute_something_else_stay(kind):
    stock = nn.Sequential(kind(8, 8, 1), nn.BatchNorm2d(8), nn.ReLU(), nn.Conv2d(8, 8, 1))
    ours = check(stock, image())
    assert type(ours[0]) is kind


def test_a_weight_that_is_computed_stays():
    stock = nn.Sequential(nn.LayerNorm(8), nn.GELU(), Signed(8, 8))
    assert type(ebb.compress(stock)[2]) is Signed

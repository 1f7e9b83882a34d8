# SPDX-License-Identifier: Apache-2.0
"""Functions that a compressed model calls, where something is around or unusual: torch's own do their work there."""

from __future__ import annotations

import copy
import gc
import threading
import weakref

import pytest

torch = pytest.importorskip("torch", reason="PyTorch is not installed")
import torch.nn.functional as F  # noqa: E402
from compress_cases import Live, check_same, kept_bytes, ran  # noqa: E402
from torch import nn  # noqa: E402
from torch.overrides import TorchFunctionMode  # noqa: E402

import ebb  # noqa: E402
from ebb._compress.compiled import running  # noqa: E402

pytestmark = pytest.mark.skipif(
    not hasattr(torch._C._autograd, "_top_saved_tensors_default_hooks"), reason="this torch does not say who hooks"
)


def image():
    return torch.randn(2, 8, 16, 16, generator=torch.Generator().manual_seed(1), requires_grad=True)


def check(model, x, **options):
    ours = ebb.compress(copy.deepcopy(model), **options)
    for seed in (5, 6):
        check_same(ran(ours, x, seed), ran(model, x, seed))
    assert running.seen is None and torch._C._len_torch_function_stack() == 0
    return ours


class Net(nn.Module):
    """A model that calls `what` between a norm and a convolution, and a ReLU at the end."""

    def __init__(self, what=None):
        super().__init__()
        torch.manual_seed(0)
        self.norm, self.conv = nn.BatchNorm2d(8), nn.Conv2d(8, 8, 1)
        self.what = what

    def forward(self, x):
        y = self.norm(x * 1)
        return F.relu(self.conv(self.what(y) if self.what is not None else y))


UNUSUAL = {
    "no keyword of the layer's": lambda y: torch.sigmoid(y.detach(), out=torch.empty(0)) + torch.sigmoid(y),
    "dropout's chance as a tensor": lambda y: F.dropout(y, torch.tensor(0.4)),
    "dropout of nothing": lambda y: F.dropout(y, 0.0) + F.dropout(y, 0.5, training=False),
    "hardtanh without a range": lambda y: F.hardtanh(y, 0.5, 0.5) + y,
    "slope -0.0": lambda y: F.leaky_relu(y, 0.0) + F.leaky_relu(y, -0.0),
    "pooling sizes of one number": lambda y: F.max_pool2d(y, (1,), (1,), (0,)),
    "input by name": lambda y: torch.flatten(input=F.relu(input=y), start_dim=2).view(y.shape),
    "permute by name": lambda y: torch.permute(input=y, dims=(0, 1, 3, 2)),
    "whole numbers": lambda y: y * F.relu((y > 0).long()),
    "sparse": lambda y: y + torch.relu(y.detach()[0, 0].to_sparse()).to_dense(),
    "without a batch": lambda y: torch.stack([F.max_pool2d(one, 1) for one in y]),
    "no gradient": lambda y: y + F.relu(y.detach()),
}


@pytest.mark.parametrize("name", UNUSUAL)
def test_unusual_arguments(name):
    check(Net(UNUSUAL[name]), image())


def test_a_stride_of_0_is_refused_as_torch_does():
    with pytest.raises(RuntimeError, match="stride should not be zero"):
        ebb.compress(Net(lambda y: F.max_pool2d(y, 2, 0)))(image())


def test_arguments_that_change_later():
    def permuted(y):
        order = [0, 1, 3, 2]
        out = y.permute(order)
        order[:] = [0, 1, 2, 3]
        return out

    def normed(y):
        shape = [16, 16]
        out = F.layer_norm(y, shape)
        shape[:] = [16]
        return out

    for what in (permuted, normed):
        check(Net(what), image())


class Doubling(TorchFunctionMode):
    """Of somebody else."""

    def __init__(self):
        super().__init__()
        self.calls = 0

    def __torch_function__(self, function, types, args=(), kwargs=None):
        out = function(*args, **(kwargs or {}))
        if function is F.relu:
            self.calls += 1
            return 2 * out
        return out


def test_a_mode_of_somebody_elses():
    stock, x = Net(), image()
    ours = ebb.compress(copy.deepcopy(stock))
    with Doubling() as theirs:
        found = ran(ours, x)
    with Doubling() as wanted:
        check_same(found, ran(stock, x))
    assert theirs.calls == wanted.calls == 1


@pytest.mark.parametrize("options", [{}, {"norm": "int8", "linear": "int8"}, {"linear": "project"}], ids=str)
def test_a_default_device(options):
    """Another one than the model's, too."""
    x = image()
    stock = nn.Sequential(Net(lambda y: F.dropout(y, 0.3)), nn.ReLU6(), nn.LayerNorm(16), nn.GELU(), nn.Linear(16, 4))
    ours = ebb.compress(copy.deepcopy(stock), **options)
    wanted, kept = ran(ours, x), kept_bytes(ours, x)
    for device in ("cpu", "meta"):
        with torch.device(device):
            assert kept_bytes(ours, x) == kept
            ours(x).sum().backward()
    ours.zero_grad()
    ours.load_state_dict(stock.state_dict())
    check_same(ran(ours, x), wanted, lambda name: options.get("linear") == "project" and "parameter 4" in name)


class Coded(torch.Tensor):
    """Says itself what a product with it is, as quantised weights do."""

    @classmethod
    def __torch_function__(cls, function, types, args=(), kwargs=None):
        if function is F.linear:
            with torch._C.DisableTorchFunctionSubclass():
                return 3 * F.linear(*args, **(kwargs or {}))
        return super().__torch_function__(function, types, args, kwargs)


def test_tensors_of_other_classes():
    class Model(nn.Module):
        def __init__(self):
            super().__init__()
            torch.manual_seed(0)
            self.norm, self.linear = nn.LayerNorm(16), nn.Linear(16, 16)
            weight = self.linear.weight.detach().as_subclass(Coded)
            self.linear.weight = nn.Parameter(weight, requires_grad=False)

        def forward(self, x):
            return F.relu(self.linear(F.gelu(self.norm(x))))

    x = image()
    ours, stock = ebb.compress(Model()), Model()
    assert torch.equal(torch.Tensor(ours(x)), torch.Tensor(stock(x)))
    assert type(F.relu(x.as_subclass(Coded))) is type(ebb.compress(Net())(x.as_subclass(Coded)))


class Head(nn.Module):
    def __init__(self):
        super().__init__()
        torch.manual_seed(2)
        self.weight = nn.Parameter(torch.randn(16))

    def forward(self, x):
        return F.layer_norm(x, (16,), self.weight)


class WithHead(nn.Module):
    def __init__(self):
        super().__init__()
        torch.manual_seed(0)
        self.body, self.norm, self.head = nn.Conv2d(8, 8, 1), nn.LayerNorm(16), Head()

    def forward(self, x):
        return self.head(F.gelu(self.body(self.norm(x))))


@pytest.mark.parametrize("how", ["name", "module", "type", "iterator"])
def test_functions_of_modules_that_are_left_out(how):
    stock, x = WithHead(), image()
    ours = copy.deepcopy(stock)
    skip = {"name": ["head"], "module": [ours.head], "type": [Head], "iterator": iter([Head])}[how]
    ebb.compress(ours, norm="int8", skip=skip)
    found, wanted = ran(ours, x), ran(stock, x)
    assert torch.equal(found["parameter head.weight"], wanted["parameter head.weight"])
    all_of_it = ran(ebb.compress(copy.deepcopy(stock), norm="int8"), x)
    assert not torch.equal(all_of_it["parameter head.weight"], wanted["parameter head.weight"])


def test_what_is_no_part_of_the_model():
    other = Head()

    class Calls(nn.Module):
        def __init__(self):
            super().__init__()
            self.norm = nn.LayerNorm(16)

        def forward(self, x):
            return other(F.layer_norm(self.norm(x), (16,)))

    model, x = ebb.compress(Calls(), norm="int8"), image()
    model(x).sum().backward()
    found, other.weight.grad = other.weight.grad, None
    ebb.decompress(model)(x).sum().backward()
    assert torch.equal(found, other.weight.grad)


def test_a_part_that_is_compressed_again():
    stock, x = WithHead(), image()
    ours = ebb.compress(copy.deepcopy(stock), norm="int8")
    ebb.compress(ours.head)
    assert torch.equal(ran(ours, x)["parameter head.weight"], ran(stock, x)["parameter head.weight"])


def test_compressed_twice():
    once = ebb.compress(WithHead())
    twice = ebb.compress(ebb.compress(WithHead()))
    assert once.ebb_compress == twice.ebb_compress


def test_transformers_of_torchs_own_keep_their_fast_path():
    class Model(nn.Module):
        def __init__(self):
            super().__init__()
            torch.manual_seed(0)
            layer = nn.TransformerEncoderLayer(16, 2, 32, batch_first=True)
            self.body = nn.TransformerEncoder(layer, 2).eval().requires_grad_(False)
            self.norm, self.head = nn.LayerNorm(16), nn.Linear(16, 4)

        def forward(self, x):
            return self.head(F.gelu(self.norm(self.body(x))))

    stock, x = Model(), torch.randn(2, 5, 16)
    ours = ebb.compress(copy.deepcopy(stock))
    assert torch.equal(ours(x), stock(x))


def test_scripted_parts():
    model = nn.Sequential(torch.jit.script(nn.Sequential(nn.Linear(16, 16), nn.ReLU())), WithHead())
    assert "1.norm" in ebb.compress(model).ebb_compress.changed


def test_a_part_that_is_compiled():
    child = ebb.compress(nn.Sequential(Net(), Plain(torch.compile(Plain(F.relu), backend="eager", fullgraph=True))))
    child(image()).sum().backward()


class Plain(nn.Module):
    def __init__(self, call):
        super().__init__()
        self.call = call

    def forward(self, x):
        return F.silu(self.call(x))


def test_an_interrupt():
    class Stops(nn.Module):
        stop = True

        def forward(self, x):
            if self.stop:
                raise KeyboardInterrupt
            return x

    stock, x = nn.Sequential(Net(), Stops()), image()
    ours = ebb.compress(copy.deepcopy(stock))
    for model in (stock, ours):
        for _ in range(2):
            with pytest.raises(KeyboardInterrupt):
                model(x)
        model[1].stop = False
    assert F.relu(x).grad_fn.name() == "ReluBackward0"
    check_same(ran(ours, x), ran(stock, x))
    assert running.seen is None and torch._C._len_torch_function_stack() == 0
    assert torch._C._autograd._top_saved_tensors_default_hooks(True) is None


class Interrupts(nn.Module):
    def __init__(self):
        super().__init__()
        self.net, self.stop = Net(), True

    def forward(self, x):
        y = self.net(x)
        if self.stop:
            raise KeyboardInterrupt
        return y


def test_what_others_have_around_after_an_interrupt_stays():
    model, x, packed = ebb.compress(Interrupts()), image(), []
    with pytest.raises(KeyboardInterrupt):
        model(x)
    model.stop = False
    hooks = torch.autograd.graph.saved_tensors_hooks(lambda one: (packed.append(1), one)[1], lambda one: one)
    with hooks, Doubling() as mode:
        model(x)
        before, calls = len(packed), mode.calls
        F.relu(x * x)
        assert len(packed) > before > 0 and mode.calls == calls + 1 > 1
    assert torch._C._len_torch_function_stack() == 0 and running.seen is None
    assert torch._C._autograd._top_saved_tensors_default_hooks(True) is None


def test_an_interrupt_that_a_model_catches():
    class Catches(Net):
        def __init__(self, inner):
            super().__init__()
            self.inner = [inner]

        def forward(self, x):
            try:
                self.inner[0](x)
            except KeyboardInterrupt:
                return super().forward(x)

    ebb.compress(Catches(ebb.compress(Interrupts())))(image()).sum().backward()
    assert torch._C._len_torch_function_stack() == 0 and running.seen is None
    assert torch._C._autograd._top_saved_tensors_default_hooks(True) is None


def test_the_locals_of_a_model_go_when_it_lets_them_go():
    class Lets(Net):
        def forward(self, x):
            large = torch.ones(1000, 1000)
            y = super().forward(x) + large.mean()
            del large
            self.bytes = live.bytes()
            return y

    ours, x = ebb.compress(Lets()), image()
    with Live() as live:
        ours(x)
    assert ours.bytes < 10**6


def test_parts_of_a_compressed_model_are_put_back():
    def model():
        return nn.Sequential(Net(), nn.Conv2d(8, 8, 1), nn.BatchNorm2d(8), nn.ReLU())

    def fails(out):
        raise ValueError("as asked")

    net, x = ebb.compress(model()), image()
    kept = kept_bytes(net, x)
    ebb.compression_report(net[0], x)
    assert kept_bytes(net, x) == kept
    ebb.compress(net[0], pool=2)
    kept = kept_bytes(net, x)
    ebb.compression_report(net, x)
    with pytest.raises(ValueError, match="as asked"):
        ebb.compress(net, sample=x, loss=fails)
    assert kept_bytes(net, x) == kept and len(net._forward_pre_hooks) == len(net[0]._forward_pre_hooks) == 1


class Words(dict):
    __getattr__ = dict.__getitem__


words = Words(slope=0.1)


def test_code_that_names_objects_of_any_kind():
    class Model(Net):
        def forward(self, x):
            return words.slope * super().forward(x)

    check(Model(), image())


def test_another_thread_sees_nothing():
    model, x, names = ebb.compress(Net(lambda y: (barrier.wait(5), barrier.wait(5), y)[2])), image(), []
    barrier = threading.Barrier(2)
    thread = threading.Thread(target=lambda: model(x))
    thread.start()
    barrier.wait(5)
    names.append(F.relu(x).grad_fn.name())
    barrier.wait(5)
    thread.join()
    assert names == ["ReluBackward0"]


class Tracked(nn.Conv2d):
    made: list = []

    def __init_subclass__(cls, *, name):
        cls.made.append(name)


class Registered:
    made: list = []

    def __init_subclass__(cls):
        cls.made.append(cls.__name__)


class Mixed(nn.Conv2d, Registered):
    pass


class Dims(nn.Dropout):
    def __init__(self):
        super().__init__(0.5)
        self.dims = 4


class Squash(nn.Sigmoid):
    def __init__(self):
        super().__init__()
        self.function = torch.tanh


class Again(nn.GELU):
    def _again(self, word):
        return word

    def extra_repr(self):
        return self._again("again")


class Lazy(nn.LazyLinear):
    pass


class Built(nn.Conv2d):
    def __new__(cls, *args):
        return super().__new__(cls)


@pytest.mark.parametrize(
    "make",
    [lambda: Tracked(8, 8, 1), lambda: Mixed(8, 8, 1), Dims, Squash, Again, lambda: Lazy(16), lambda: Built(8, 8, 1)],
    ids=["Tracked", "Mixed", "Dims", "Squash", "Again", "Lazy", "Built"],
)
def test_classes_whose_names_or_making_are_their_own_stay(make):
    stock = nn.Sequential(nn.BatchNorm2d(8), make(), nn.Conv2d(8, 8, 1))
    ours = ebb.compress(copy.deepcopy(stock))
    assert type(ours[1]) is type(stock[1])
    repr(ours)
    if not isinstance(stock[1], Lazy):
        check_same(ran(ours, image()), ran(stock, image()))


class Same(nn.Conv2d):
    def twin(self):
        return type(self)(self.in_channels, self.out_channels, self.kernel_size)


def test_a_layer_that_makes_another_of_its_class():
    ours = ebb.compress(nn.Sequential(nn.BatchNorm2d(8), Same(8, 8, 1)))
    ours.append(ours[1].twin())
    ours(image()).sum().backward()
    assert type(ebb.decompress(ours)[2]) is Same


def test_classes_go_when_nobody_uses_them():
    def local():
        class Own(nn.Conv2d):
            pass

        ours = ebb.compress(nn.Sequential(nn.BatchNorm2d(8), Own(8, 8, 1)))
        assert "1" in ours.ebb_compress.changed
        return weakref.ref(Own)

    found = local()
    gc.collect()
    assert found() is None

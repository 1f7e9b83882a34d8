# SPDX-License-Identifier: Apache-2.0
"""What is around compressed layers: checkpoints, hooks, threads, transforms, the compiler, ebb's own loops."""

from __future__ import annotations

import copy
import threading

import pytest

torch = pytest.importorskip("torch", reason="PyTorch is not installed")
from compress_cases import EVERY, EXACT, check_exact, check_same, image, model, ran, same_bits  # noqa: E402
from torch import nn  # noqa: E402
from torch.utils.checkpoint import checkpoint  # noqa: E402

import ebb  # noqa: E402

pytestmark = pytest.mark.usefixtures("one_thread")


@pytest.mark.parametrize("options", EVERY, ids=str)
@pytest.mark.parametrize("reentrant", [False, True])
@pytest.mark.parametrize("cuts", [(4,), (1, 2, 3), (5, 6, 9), (1, 6, 7, 10)], ids=str)
@pytest.mark.sweep(6)
def test_checkpoint(reentrant, options, cuts):
    stock = model().eval()  # so that running the layers twice changes no buffer
    stock[7].train()
    ours, x = ebb.compress(copy.deepcopy(stock), **options), image()
    plain = ebb.compress(copy.deepcopy(stock), **options)

    class Pieces(nn.Module):
        def __init__(self, net):
            super().__init__()
            self.net = net

        def forward(self, x):
            places = [0, *cuts, len(self.net)]
            for i, (begin, end) in enumerate(zip(places, places[1:])):
                part = self.net[begin:end]
                x = checkpoint(part, x, use_reentrant=reentrant) if i % 2 else part(x)
            return x

    expected = ran(plain, x)
    found = {name.replace("net.", ""): value for name, value in ran(Pieces(ours), x).items()}
    if "pool" in options or options.get("norm") == "int8":
        # What can be computed again is not known across a cut: there other inputs are pooled or kept in full.
        assert same_bits(found["out"], expected["out"])
        return
    # Random projections are others in another forward pass.
    check_same(found, expected, but=lambda name: options == dict(linear="project") and name == "parameter 11.weight")


@pytest.mark.parametrize("reentrant", [False, True])
@pytest.mark.parametrize("options", EXACT, ids=str)
def test_a_checkpoint_behind_a_norm(options, reentrant):
    """In the forward pass its input could be computed again, when it runs on its own it could not."""

    class Net(nn.Module):
        def __init__(self):
            super().__init__()
            self.norm, self.inner = nn.LayerNorm(8), nn.Sequential(nn.Linear(8, 8), nn.GELU(), nn.Linear(8, 8))
            self.conv, self.part = nn.Sequential(nn.Conv2d(1, 2, 3), nn.BatchNorm2d(2), nn.ReLU()), nn.Conv2d(2, 2, 3)

        def forward(self, x):
            x = checkpoint(self.inner, self.norm(x), use_reentrant=reentrant)
            return checkpoint(self.part, self.conv(x[:, None]), use_reentrant=reentrant)

    check_exact(Net(), torch.randn(3, 8, 8, requires_grad=True), **options)


def test_a_checkpoint_takes_its_own_projection():
    """The forward pass in the backward pass must not meet the seed of the first one."""
    layer = ebb.compress(nn.Linear(6, 6).double(), linear="project")
    x = torch.randn(1, 6, dtype=torch.float64, requires_grad=True)  # one row: its projection is the row
    checkpoint(layer, x, use_reentrant=False).square().sum().backward()
    found = layer.weight.grad.clone()
    ebb.decompress(layer).zero_grad()
    layer(x).square().sum().backward()
    torch.testing.assert_close(found, layer.weight.grad)


@pytest.mark.parametrize("options", EXACT + [dict(pool=2), dict(norm="int8", linear="int8")], ids=str)
@pytest.mark.parametrize("how", ["save_on_cpu", "counting"])
@pytest.mark.sweep(5)
def test_saved_tensor_hooks_around(options, how):
    ours, x = ebb.compress(model(), **options), image()
    expected = ran(copy.deepcopy(ours), x)
    packed = []

    def pack(tensor):
        packed.append(tensor.shape)
        return tensor.detach().clone()  # a change in place of the original is nothing to it

    class Around(nn.Module):
        def __init__(self):
            super().__init__()
            self.net = ours

        def forward(self, x):
            with (
                torch.autograd.graph.save_on_cpu()
                if how == "save_on_cpu"
                else torch.autograd.graph.saved_tensors_hooks(pack, lambda kept: kept)
            ):
                return self.net(x)

    found = {name.replace("net.", ""): value for name, value in ran(Around(), x).items()}
    check_same(found, expected)
    if how == "counting":
        packed.clear()
        Around()(x)
        ours_count = sum(1 for shape in packed if len(shape) == 4 and shape[0] == 2)
        packed.clear()
        ours_stock = ebb.decompress(ours)
        with torch.autograd.graph.saved_tensors_hooks(pack, lambda kept: kept):
            ours_stock(x)
        assert ours_count < sum(1 for shape in packed if len(shape) == 4 and shape[0] == 2) or options == dict(
            relu="exact"
        )


def test_offload_around(tmp_path):
    for options in EXACT + [dict(pool=2)]:
        ours, x = ebb.compress(model(), **options), image()
        expected = ran(copy.deepcopy(ours), x)

        class Around(nn.Module):
            def __init__(self, net):
                super().__init__()
                self.net = net

            def forward(self, x):
                with off:
                    return self.net(x)

        off = ebb.offload(min_offload_size=1, disk=tmp_path)
        found = {name.replace("net.", ""): value for name, value in ran(Around(ours), x).items()}
        check_same(found, expected)
        assert off.report.moved.tensors > 10


def test_two_threads():
    stocks = [model() for _ in range(2)]
    for one in stocks:
        one[7].p = 0.0  # torch's generator is one for all threads
    models, x = [ebb.compress(copy.deepcopy(one)) for one in stocks], image()
    expected = [ran(copy.deepcopy(one), x) for one in stocks]
    failed = []

    def work(mine, right):
        torch.set_num_threads(1)
        try:
            for _ in range(10):
                found = ran(mine, x)
                check_same(found, right, but=lambda name: name.startswith(("buffer", "random")))
        except BaseException as error:
            failed.append(error)

    threads = [threading.Thread(target=work, args=each) for each in zip(models, expected)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not failed, failed


def test_dropout_while_another_thread_draws():
    layer, stop = ebb.compress(nn.Dropout(0.4)), threading.Event()

    def draw():
        while not stop.is_set():
            torch.rand(100)

    thread = threading.Thread(target=draw)
    thread.start()
    try:
        for _ in range(50):
            x = torch.ones(20_000, requires_grad=True)
            out = layer(x)
            out.sum().backward()
            assert torch.equal(x.grad, out.detach())
    finally:
        stop.set()
        thread.join()


def test_transforms_of_torch_func_are_refused():
    net, x = ebb.compress(model()), image(grad=False)
    parameters = dict(net.named_parameters())

    def loss(parameters):
        return torch.func.functional_call(net, parameters, (x,)).sum()

    loss(parameters).backward()  # no transform
    with pytest.raises(ebb.Error, match=r"transform of torch.func.*ebb.decompress\(model\)"):
        torch.func.grad(loss)({name: p.detach() for name, p in parameters.items()})
    with pytest.raises(ebb.Error, match="transform of torch.func"):
        torch.func.vmap(net[0])(torch.randn(2, 2, 3, 8, 8))
    with torch.no_grad():
        torch.func.vmap(net[0])(torch.randn(2, 2, 3, 8, 8))
    torch.func.grad(loss)  # nothing has been left behind
    assert len(ran(net, x)) > 10


@pytest.mark.parametrize("options", [dict(), dict(pool=2, norm="int8")], ids=str)
def test_inside_chain_and_scan(options):
    stock = nn.Sequential(
        nn.Conv2d(3, 4, 3), nn.GroupNorm(2, 4), nn.ReLU(), nn.Conv2d(4, 4, 3), nn.SiLU(), nn.Conv2d(4, 4, 1)
    ).double()
    ours, x = ebb.compress(copy.deepcopy(stock), **options), image().detach().double().requires_grad_()
    expected = ran(ours, x)
    chain = ebb.Chain(ours, x, budget="1MiB")
    found = {name: value for name, value in ran(chain, x).items() if not name.startswith("buffer")}
    assert {"out", "x"} <= found.keys()
    for name in ("out", "x"):
        assert same_bits(found[name], expected[name])

    cell = ebb.compress(
        nn.Sequential(nn.Linear(6, 6), nn.LayerNorm(6), nn.ReLU(), nn.Linear(6, 6)), norm=options.get("norm", "exact")
    )
    xs = torch.randn(12, 3, 6, requires_grad=True)

    def swept(budget):
        h, ys = ebb.scan(lambda h, x: (cell(h + x), h), torch.zeros(3, 6), xs, budget=budget, chunk=2)
        return torch.autograd.grad(h.square().sum() + ys.sum(), [xs, *cell.parameters()])

    h, total = torch.zeros(3, 6), 0
    for x in xs:
        total = total + h.sum()
        h = cell(h + x)
    plain = torch.autograd.grad(h.square().sum() + total, [xs, *cell.parameters()])
    for one, two, three in zip(swept(None), swept(8_000), plain):
        assert same_bits(one, two)
        torch.testing.assert_close(one, three, rtol=1e-4, atol=1e-5)


@pytest.mark.slow
@pytest.mark.parametrize("options", [dict(), dict(norm="recompute"), dict(pool=2, norm="int8", linear="int8")], ids=str)
def test_compile(options):
    """Graphs end at compressed layers, and gradients are those without a compiler."""
    ours, x = ebb.compress(model(1), **options), image()
    expected = ran(copy.deepcopy(ours), x)
    torch._dynamo.reset()
    compiled = torch.compile(ours, backend="aot_eager")
    found = {name.replace("_orig_mod.", ""): value for name, value in ran(compiled, x).items()}
    check_same(found, expected)
    torch._dynamo.reset()
    whole = torch.compile(ours.eval(), backend="eager", fullgraph=True)
    with torch.no_grad():
        assert same_bits(whole(x), ours(x))
    torch._dynamo.reset()


class _Tracing(nn.Module):
    """Layers of every kind, in training: what a graph of them saves is the graph's own affair."""

    def __init__(self):
        super().__init__()
        self.head = nn.Sequential(nn.Conv2d(3, 4, 3), nn.BatchNorm2d(4), nn.ReLU(), nn.Conv2d(4, 4, 3), nn.SiLU())
        self.tail = nn.Sequential(nn.MaxPool2d(2), nn.ReLU6(), nn.Flatten(), nn.LayerNorm(16), nn.Linear(16, 4))

    def forward(self, x):
        return self.tail(self.head(x))


def _traced(net, x):
    return torch.jit.trace(net, x)


def _exported(net, x):
    return torch.export.export(net, (x,)).module()


def _exported_strictly(net, x):
    return torch.export.export(net, (x,), strict=True).module()


@pytest.mark.parametrize("graph_of", [_traced, _exported, pytest.param(_exported_strictly, marks=pytest.mark.slow)])
@pytest.mark.parametrize("options", [{}, {"pool": 2, "norm": "int8", "linear": "int8"}], ids=str)
def test_graphs_of_a_compressed_model_are_those_of_stock_layers(graph_of, options):
    stock = _Tracing()
    ours = ebb.compress(copy.deepcopy(stock), **options)
    x = torch.randn(2, 3, 8, 8)
    found = []
    for net in (stock, ours):
        out = graph_of(net, x)(x)
        out.square().sum().backward()
        found.append([out.detach(), *(parameter.grad for parameter in net.parameters())])
    assert all(same_bits(one, two) for one, two in zip(*found))
    assert type(ours.head[0]) is not nn.Conv2d  # as it was


@pytest.mark.parametrize(
    "graph_of, name",
    [(torch.fx.symbolic_trace, "torch.fx"), (torch.jit.script, "torch.jit.script")],
    ids=["fx", "script"],
)
def test_what_reads_the_source_of_layers_must_read_torchs(graph_of, name):
    net = ebb.compress(_Tracing())
    with pytest.raises(ebb.Error, match=f"{name}.*ebb.decompress"):
        graph_of(net)
    x = torch.randn(2, 3, 8, 8)
    net(x).sum().backward()
    assert graph_of(ebb.decompress(net))(x).shape == (2, 4)

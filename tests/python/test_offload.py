# SPDX-License-Identifier: Apache-2.0
"""ebb.offload against plain autograd: the same bits, whatever is moved where, and nothing left behind."""

from __future__ import annotations

import pytest

torch = pytest.importorskip("torch", reason="PyTorch is not installed")
from hypothesis import given, settings  # noqa: E402
from hypothesis import strategies as st  # noqa: E402
from offload_cases import DEVICES, MODELS, WAYS, gradients, loss_of, needs_holders, same_bits, settled, way_in  # noqa: E402
from torch import nn  # noqa: E402

import ebb  # noqa: E402


@pytest.fixture(params=DEVICES)
def device(request):
    return request.param


@pytest.fixture(params=WAYS)
def way(request, tmp_path):
    return way_in(request.param, tmp_path)


@pytest.mark.parametrize("model", MODELS)
@pytest.mark.sweep(9)
def test_gradients_have_the_same_bits(model, way, device):
    off = ebb.offload(min_offload_size=64, **{"max_fwd_stash_size": 1, **way})
    assert same_bits(gradients(MODELS[model], device, off, 2), gradients(MODELS[model], device, None, 2))
    report = off.report
    assert report.moved.tensors > 0
    assert report.hits + report.misses > 0
    if "read_ahead" in way:
        assert report.hits == 0
    elif way.get("pool") == "16MiB" and "budget" not in way:
        assert report.hits >= report.misses


@settings(max_examples=40, deadline=None)
@given(data=st.data())
def test_random_nets_have_the_same_bits(data, tmp_path_factory):
    device = data.draw(st.sampled_from(DEVICES))
    layers = data.draw(st.lists(st.sampled_from(LAYERS), max_size=12))
    options = {
        "budget": data.draw(st.sampled_from([None, 0, 2000, 10_000])),
        "pool": data.draw(st.sampled_from([None, 0, 4096, 20_000, "1MiB"])),
        "disk": data.draw(st.sampled_from([None, str(tmp_path_factory.getbasetemp())])),
        "read_ahead": data.draw(st.sampled_from([0, 3000, "1MiB"])),
        "min_offload_size": data.draw(st.sampled_from([0, 256, 1024])),
        "max_fwd_stash_size": data.draw(st.integers(1, 5)),
        "cpu_as_device": data.draw(st.booleans()),
    }
    dtype = data.draw(st.sampled_from([torch.float32, torch.float64, torch.bfloat16]))
    forwards = data.draw(st.integers(1, 3))
    newest_first = data.draw(st.booleans())

    def run(off):
        torch.manual_seed(0)
        weights = [torch.randn(12, 12, dtype=dtype, device=device, requires_grad=True) for _ in layers]
        xs = [torch.randn(5, 12, dtype=dtype, device=device, requires_grad=True) for _ in range(forwards)]
        losses = []
        for x in xs:
            if off is not None:
                with off:
                    losses.append(net(layers, weights, x))
            else:
                losses.append(net(layers, weights, x))
        for loss in reversed(losses) if newest_first else losses:
            loss.backward()
        return [leaf.grad for leaf in xs + weights if leaf.grad is not None]

    assert same_bits(run(ebb.offload(**options)), run(None))


LAYERS = ["linear", "relu", "tanh", "turn", "halves", "twice", "norm", "gate", "add_"]


def net(layers, weights, x):
    for layer, weight in zip(layers, weights, strict=True):
        if layer == "linear":
            x = x @ weight
        elif layer == "relu":
            x = x.relu()
        elif layer == "tanh":
            x = x.tanh()
        elif layer == "turn":
            x = (weight[:, : x.shape[0]].t() * x).t().exp().t().tanh()
        elif layer == "halves":
            a, b = x.chunk(2, 1)
            x = torch.cat([a * b, b.sin()], 1)
        elif layer == "twice":
            x = x * x.expand(2, *x.shape).sum(0).sigmoid()
        elif layer == "norm":
            x = nn.functional.layer_norm(x, (12,))
        elif layer == "gate":
            x = torch.where(x > 0, x.sqrt().nan_to_num(), x * 0.5) * x[:1]
        elif layer == "add_":
            x = (x @ weight).add_(1)
    return x.square().sum()


@needs_holders
def test_views_of_one_storage_move_once(device):
    x = torch.randn(64, 64, device=device, requires_grad=True)
    with ebb.offload(cpu_as_device=True) as off:
        y = x * 2
        loss = (y.t() * y[3:10, 5].sum()).sum() + (y.view(32, 128) * y.view(-1).flip(0).view(32, 128)).sum()
        loss = loss + y.exp().sum()
        del y
    report = settled(off, device)
    # y itself, what flip made, what exp gave.
    assert (report.moved.tensors, report.moved.bytes) == (3, 3 * 64 * 64 * 4)
    moved = torch.autograd.grad(loss, x)[0]
    y = (x.detach() * 2).requires_grad_()
    plain = (y.t() * y[3:10, 5].sum()).sum() + (y.view(32, 128) * y.view(-1).flip(0).view(32, 128)).sum()
    (plain + y.exp().sum()).backward()
    assert torch.equal(moved, y.grad * 2)
    assert off.report.hits + off.report.misses == 3


def test_only_the_part_that_was_saved_moves(device):
    x = torch.randn(100_000, device=device, requires_grad=True)
    with ebb.offload(cpu_as_device=True) as off:
        loss = (x * 2)[50_000:50_010].square().sum()
    # Ten numbers, but while they stay, so do the others.
    assert off.report.moved.tensors == 1
    assert 40 <= off.report.moved.bytes <= 40 + 512
    loss.backward()
    assert torch.equal(x.grad[50_000:50_010], 8 * x.detach()[50_000:50_010])


@needs_holders
def test_what_the_caller_holds_is_not_moved(device):
    model = nn.Sequential(nn.Linear(64, 64), nn.BatchNorm1d(64), nn.Linear(64, 64)).to(device)
    x = torch.randn(32, 64, device=device)
    scale = torch.randn(64, 64, device=device)
    seen = []
    with ebb.offload(cpu_as_device=True, keep=lambda tensor: seen.append(tensor.data_ptr())) as off:
        loss = ((model(x) @ scale.t()) @ model[0].weight.t()).sum()
    report = off.report
    # Moved: what the linear layers gave to the next operation. x and scale stay, weights never even ask.
    assert report.kept["held"].bytes == x.nbytes + scale.nbytes
    assert report.kept["parameter"].tensors >= 2
    assert model[0].weight.data_ptr() not in seen
    loss.backward()


@needs_holders
def test_what_the_caller_lets_go_later_is_moved(device):
    x = torch.randn(64, 64, device=device, requires_grad=True)
    off = ebb.offload(cpu_as_device=True)
    with off:
        y = x.exp()
        loss = y.sum()
    assert off.report.moved.tensors == 0
    assert off.report.kept["held"].tensors == 1
    del y
    with off:
        pass
    assert off.report.moved.tensors == 1
    assert off.report.kept["held"].tensors == 0
    loss.backward()
    assert torch.equal(x.grad, x.detach().exp())


@pytest.mark.parametrize("held", [True, False])
def test_a_change_in_place_raises_as_in_autograd(held, device):
    for context in (None, ebb.offload(cpu_as_device=True, min_offload_size=0)):
        x = torch.randn(64, device=device, requires_grad=True)
        if context is None:
            y = x.exp()
            view = y.view(8, 8)
            view.t().mul_(2)
        else:
            with context:
                y = x.exp()
                view = y.view(8, 8)
                if not held:
                    (y * 1).sin()
                view.t().mul_(2)
        with pytest.raises(RuntimeError, match="modified by an inplace operation") as raised:
            y.sum().backward()
        assert isinstance(raised.value, ebb.Error) == (context is not None)


def test_a_parameter_changed_in_place_raises(device):
    layer = nn.Linear(8, 8, device=device)
    with ebb.offload():
        loss = layer(torch.randn(2, 8, device=device, requires_grad=True)).sum()
    with torch.no_grad():
        layer.weight.add_(1)
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        loss.backward()


def test_graph_retained_and_used_again(way, device):
    off = ebb.offload(**way)
    x = torch.randn(8, 12, 16, device=device, requires_grad=True)
    torch.manual_seed(0)
    model = MODELS["transformer"]().to(device)
    with off:
        loss = loss_of(model, x)
    results = [torch.autograd.grad(loss, [x, *model.parameters()], retain_graph=keep) for keep in (True, True, False)]
    assert same_bits(results[0], results[1]) and same_bits(results[0], results[2])
    with pytest.raises(RuntimeError):
        loss.backward()


def test_double_backward(way, device):
    off = ebb.offload(min_offload_size=0, **way)
    results = []
    for context in (off, None):
        torch.manual_seed(0)
        x = torch.randn(16, 16, dtype=torch.float64, device=device, requires_grad=True)
        w = torch.randn(16, 16, dtype=torch.float64, device=device, requires_grad=True)
        if context is not None:
            with context:
                first = torch.autograd.grad((x @ w).tanh().exp().sum(), x, create_graph=True)[0]
        else:
            first = torch.autograd.grad((x @ w).tanh().exp().sum(), x, create_graph=True)[0]
        results.append(torch.autograd.grad(first.square().sum(), [x, w]))
    assert same_bits(*results)


@needs_holders
def test_nested_contexts(device):
    x = torch.randn(1000, device=device, requires_grad=True)
    outer, inner = ebb.offload(cpu_as_device=True), ebb.offload(cpu_as_device=True)
    with outer:
        y = x.exp()
        with inner:
            y = y.exp()
            with inner:
                y = y.tanh()
        loss = y.sigmoid().sum()
        del y
    assert (outer.report.saved, inner.report.saved) == (2, 2)
    # When the inner one ended, y was still held.
    assert (outer.report.moved.tensors, inner.report.moved.tensors) == (2, 1)
    loss.backward()
    y = x.detach().requires_grad_()
    y.exp().exp().tanh().sigmoid().sum().backward()
    assert torch.equal(x.grad, y.grad)


def test_an_exception_inside_comes_through_and_leaves_all_usable(way, device):
    off = ebb.offload(**way)

    class Stop(Exception):
        pass

    for _ in range(3):
        with pytest.raises(Stop):  # noqa: SIM117
            with off:
                y = torch.randn(4000, device=device, requires_grad=True).exp().tanh()
                raise Stop
        del y
    assert same_bits(gradients(MODELS["mlp"], device, off), gradients(MODELS["mlp"], device))
    assert torch.randn(1000, requires_grad=True).exp().grad_fn._saved_result is not None


def test_checkpoints_inside(way, device):
    from torch.utils.checkpoint import checkpoint

    class Checkpointed(nn.Module):
        def __init__(self):
            super().__init__()
            self.first, self.second = MODELS["mlp"](), nn.Sequential(nn.Linear(64, 64), nn.Tanh())

        def forward(self, x):
            return checkpoint(self.second, checkpoint(self.first, x, use_reentrant=False), use_reentrant=False)

    off = ebb.offload(**way)
    assert same_bits(gradients(Checkpointed, device, off, 2), gradients(Checkpointed, device, None, 2))


@pytest.mark.slow
def test_a_compiled_function_inside(way, device):
    class Compiled(nn.Module):
        def __init__(self):
            super().__init__()
            self.inner = MODELS["attention"]()
            self.compiled = torch.compile(self.inner, backend="aot_eager")

        def forward(self, x):
            return self.compiled(x.tanh())

    off = ebb.offload(min_offload_size=64, **way)
    assert same_bits(gradients(Compiled, device, off, 2), gradients(Compiled, device, None, 2))
    assert off.report.moved.tensors > 0

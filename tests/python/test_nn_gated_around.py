# SPDX-License-Identifier: Apache-2.0
"""Layers that the library's own GPU kernels run, in training as others do it: with a stand-in for the kernels on the CPU."""

from __future__ import annotations

import copy

import pytest

torch = pytest.importorskip("torch", reason="PyTorch is not installed")
from gated_cases import NAMES, on_a_gpu, same  # noqa: E402, F401

import ebb.nn  # noqa: E402

pytestmark = pytest.mark.usefixtures("one_thread")


class Net(torch.nn.Module):
    def __init__(self, name, **how):
        super().__init__()
        self.lower = getattr(ebb.nn, name)(5, 8, budget="60%", chunk=7, **how)
        self.upper = getattr(ebb.nn, name)(8, 8, budget="60%", chunk=7)
        self.out = torch.nn.Linear(8, 2)

    def forward(self, x):
        y, _ = self.lower(x)
        y, last = self.upper(y)
        return self.out(y).mean(0) + self.out(last[0] if isinstance(last, tuple) else last)


def trained(net, steps=3):
    torch.manual_seed(1)
    optimiser = torch.optim.Adam(net.parameters(), lr=1e-2)
    losses = []
    for _ in range(steps):
        optimiser.zero_grad()
        losses.append(net(torch.randn(30, 3, 5)).pow(2).mean())
        losses[-1].backward()
        optimiser.step()
    return [*[loss.detach() for loss in losses], *[p.detach().clone() for p in net.parameters()]]


@pytest.fixture
def group(tmp_path):
    if not torch.distributed.is_available() or not torch.distributed.is_gloo_available():
        pytest.skip("PyTorch was built without gloo")
    torch.distributed.init_process_group("gloo", init_method=f"file://{tmp_path}/group", rank=0, world_size=1)
    yield
    torch.distributed.destroy_process_group()


@pytest.mark.parametrize("name", NAMES)
def test_data_parallel(name, group):
    net = Net(name)
    parallel = torch.nn.parallel.DistributedDataParallel(copy.deepcopy(net))
    assert same(trained(net), trained(parallel))


@pytest.mark.parametrize("name", NAMES)
def test_gradients_add_up_over_calls(name):
    """As where a batch is run in parts."""
    torch.manual_seed(0)
    net = Net(name)
    parts = [torch.randn(30, 3, 5) for _ in range(2)]
    alone = []
    for part in parts:
        net.zero_grad()
        net(part).sum().backward()
        alone.append([p.grad.clone() for p in net.parameters()])
    net.zero_grad(set_to_none=False)
    kept = [p.grad for p in net.parameters()]
    for part in parts:
        net(part).sum().backward()
    assert all(p.grad is grad for p, grad in zip(net.parameters(), kept))
    for a, b, both in zip(*alone, kept):
        assert torch.allclose(a + b, both, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("name", NAMES)
def test_both_calls_before_either_backward(name):
    torch.manual_seed(0)
    net = Net(name)
    first, second = torch.randn(30, 3, 5), torch.randn(30, 3, 5)
    right = [torch.autograd.grad(net(x).sum(), list(net.parameters())) for x in (first, second)]
    losses = [net(x).sum() for x in (first, second)]
    for loss, wanted in zip(losses, right):  # the other order too
        assert same(torch.autograd.grad(loss, list(net.parameters()), retain_graph=True), wanted)
    for loss, wanted in zip(reversed(losses), reversed(right)):
        assert same(torch.autograd.grad(loss, list(net.parameters())), wanted)


def test_a_saved_model_goes_on_with_the_same_bits(tmp_path):
    torch.manual_seed(0)
    net = Net("LSTM", num_layers=2)
    torch.save(net.state_dict(), tmp_path / "model.pt")
    other = Net("LSTM", num_layers=2)
    other.load_state_dict(torch.load(tmp_path / "model.pt"))
    assert same(trained(net), trained(other))

# SPDX-License-Identifier: Apache-2.0
"""A layer whose outputs tell what its derivative needs: they are kept as saved tensors are, and no time step runs twice. With a
stand-in for the kernels on the CPU."""

from __future__ import annotations

import gc
import weakref

import pytest

torch = pytest.importorskip("torch", reason="PyTorch is not installed")
import gated_stand_in  # noqa: E402
from gated_cases import NAMES, Case, on_a_gpu, same  # noqa: E402, F401
from torch.utils._python_dispatch import TorchDispatchMode  # noqa: E402

pytestmark = pytest.mark.usefixtures("one_thread")


@pytest.mark.parametrize("budget", ["60%", "1GiB"])
@pytest.mark.parametrize("how", [{}, {"batch_first": True}])
@pytest.mark.parametrize("name", NAMES)
def test_outputs_that_are_recalled_must_not_be_changed(name, how, budget):
    """As torch.nn's on a GPU; the last states may."""
    case = Case(name, budget=budget, **how)
    x = case.x.transpose(0, 1) if how else case.x
    found = []
    for change in (False, True):
        y, last = case.net(x)
        last = last if isinstance(last, tuple) else (last,)
        loss = y.sum() + sum(state.sum() for state in last)
        if change:
            with torch.no_grad():
                for state in last:
                    state.fill_(float("nan"))
        loss.backward()
        found.append([p.grad for p in case.net.parameters()])
        case.net.zero_grad()
    assert same(*found)
    for change in (lambda: y.add_(1), lambda: y[1].zero_()):
        y, _ = case.net(x)
        loss = y.sum()
        with torch.no_grad():
            change()
        with pytest.raises(RuntimeError, match="modified by an inplace operation"):
            loss.backward()


@pytest.mark.parametrize("budget", ["60%", "1GiB"])
@pytest.mark.parametrize("name", NAMES)
def test_outputs_that_nobody_has_any_more(name, budget):
    case = Case(name, budget=budget)
    y, last = case.net(case.x)
    (last[0] if isinstance(last, tuple) else last).sum().backward(retain_graph=True)
    right = [p.grad.clone() for p in case.net.parameters()]
    case.net.zero_grad()
    memory = weakref.ref(y.untyped_storage())
    del y
    (last[0] if isinstance(last, tuple) else last).sum().backward()
    assert same(right, [p.grad for p in case.net.parameters()])
    gc.disable()
    try:
        del last
        assert memory() is None  # nothing waits for the collector
    finally:
        gc.enable()


@pytest.mark.parametrize("name", NAMES)
def test_outputs_are_gone_with_the_graph(name):
    """A call that nobody goes back through."""
    gc.collect()
    gc.disable()
    try:
        for budget in ("60%", "1GiB", "60%"):
            y, last = Case(name, budget=budget).net(torch.randn(60, 3, 5))
            memory = weakref.ref(y.untyped_storage())
            del y, last
            assert memory() is None
    finally:
        gc.enable()


class Calls(TorchDispatchMode):
    def __init__(self):
        super().__init__()
        self.count = 0

    def __torch_dispatch__(self, operation, types, args=(), kwargs=None):
        self.count += 1
        return operation(*args, **(kwargs or {}))


@pytest.mark.parametrize(("name", "most"), [("LSTM", 11), ("GRU", 15), ("RNN", 7)])
def test_a_chunk_takes_few_calls_of_torch(name, most):
    """Forward and backward: on a GPU each takes longer on the host than a time step there."""
    found = []
    for steps in (70, 210):
        case = Case(name, steps=steps, budget="speed")
        x = case.x.requires_grad_()
        for _ in range(2):  # the first one measures
            with Calls() as calls:
                y, _ = case.net(x)
                y.backward(torch.ones_like(y))
        found.append(calls.count)
    assert found[1] - found[0] <= most * (210 - 70) // 7


def test_hooks_around_see_the_outputs():
    """What is saved may be anywhere in the meantime."""
    case = Case("LSTM")
    right = case.results()
    seen = []

    def pack(tensor):
        seen.append(tensor.shape)
        return tensor.clone()

    with torch.autograd.graph.saved_tensors_hooks(pack, lambda packed: packed.clone()):
        y, last = case.net(case.x, tuple(case.states))
    assert y.shape in seen
    loss = y.double().pow(2).mean() + sum(state.double().sin().mean() for state in last)
    loss.backward()
    assert same(right[-4:], [p.grad for p in case.net.parameters()])


def test_outputs_that_others_kept_at_any_address(monkeypatch):
    """Kernels read states at multiples of 16."""
    case = Case("LSTM", budget="memory", chunk=7)
    case.net(case.x)[0].sum().backward()
    case.net.zero_grad()
    slab, seen, forward = torch.empty(1 << 22, dtype=torch.uint8), [], gated_stand_in.Core.gated_forward
    used = [0]

    def pack(tensor):
        start = used[0] + -used[0] % 16 + tensor.element_size()
        used[0] = start + tensor.nbytes
        kept = slab[start : used[0]].view(tensor.dtype).view(tensor.shape)
        kept.copy_(tensor)
        return kept

    def watched(shape, weights, bias, sums, before, *rest):
        seen.append(before % 16)
        forward(shape, weights, bias, sums, before, *rest)

    monkeypatch.setattr(gated_stand_in.Core, "gated_forward", staticmethod(watched))
    with torch.autograd.graph.saved_tensors_hooks(pack, lambda kept: kept):
        y, _ = case.net(case.x)
    first = len(seen)
    y.sum().backward()
    assert len(seen) > first and not any(seen)

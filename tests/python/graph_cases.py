# SPDX-License-Identifier: Apache-2.0
"""Loops for the tests of CUDA graphs: each is a module, a function over it, a first carry and inputs."""

from __future__ import annotations

import pathlib
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import pytest
import torch

import ebb
import ebb.nn

DEVICE = "cuda" if torch.cuda.is_available() else "cpu"  # without a GPU graph_stand_in.py acts as one
STEPS, BATCH, INPUTS, HIDDEN = 63, 4, 6, 16
CHUNK = 7
ROOM = "400MiB"  # for pools of graphs, whose segments are of 2 and 20 MiB, and for cuBLAS


@dataclass
class Case:
    module: torch.nn.Module
    f: Callable[..., Any]
    init: Any
    xs: Any
    words: dict[str, Any] = field(default_factory=dict)  # of scan


def zeros(*shape: int) -> torch.Tensor:
    return torch.zeros(*(shape or (BATCH, HIDDEN)), device=DEVICE)


def inputs(*shape: int) -> torch.Tensor:
    return torch.randn(STEPS, *(shape or (BATCH, INPUTS)), device=DEVICE)


def lstm(**words: Any) -> Case:
    cell = torch.nn.LSTMCell(INPUTS, HIDDEN).to(DEVICE)

    def f(carry, x):
        h, c = cell(x, carry)
        return (h, c), h * 2

    return Case(cell, f, (zeros(), zeros()), inputs(), words)


def gru_carry_as_y(**words: Any) -> Case:
    cell = torch.nn.GRUCell(INPUTS, HIDDEN).to(DEVICE)

    def f(h, x):
        h = cell(x, h)
        return h, h

    return Case(cell, f, zeros(), inputs(), words)


def carry_before_as_y(**words: Any) -> Case:
    cell = torch.nn.GRUCell(INPUTS, HIDDEN).to(DEVICE)
    return Case(cell, lambda h, x: (cell(x, h), h), zeros(), inputs(), words)


def raw_tensors(**words: Any) -> Case:
    module = torch.nn.ParameterDict(
        {"w": torch.randn(INPUTS, HIDDEN) * 0.3, "u": torch.randn(HIDDEN, HIDDEN) * 0.3}
    ).to(DEVICE)
    w, kept = module["w"], {"u": [module["u"]]}

    def f(h, x):
        h = torch.tanh(x @ w + h @ kept["u"][0])
        return h, {"a": h.sum(-1), "b": (h[:, :3], None)}

    return Case(module, f, zeros(), inputs(), words)


def dropout(**words: Any) -> Case:
    cell, drop = torch.nn.GRUCell(INPUTS, HIDDEN).to(DEVICE), torch.nn.Dropout(0.3)

    def f(h, x):
        h = cell(drop(x), h)
        return h, drop(h) + torch.rand_like(h)

    return Case(torch.nn.ModuleList([cell, drop]), f, zeros(), inputs(), words)


def batch_norm(**words: Any) -> Case:
    net = torch.nn.Sequential(
        torch.nn.Linear(INPUTS + HIDDEN, HIDDEN), torch.nn.BatchNorm1d(HIDDEN), torch.nn.Tanh()
    ).to(DEVICE)

    def f(h, x):
        h = net(torch.cat([x, h], -1))
        return h, h * 3

    return Case(net, f, zeros(), inputs(), words)


def autocast(**words: Any) -> Case:
    cell = torch.nn.LSTMCell(INPUTS, HIDDEN).to(DEVICE)

    def f(carry, x):
        with torch.autocast(DEVICE, dtype=torch.bfloat16):
            h, c = cell(x, carry)
        return (h.float(), c.float()), h

    return Case(cell, f, (zeros(), zeros()), inputs(), words)


def in_place(**words: Any) -> Case:
    cell = torch.nn.Linear(INPUTS, HIDDEN).to(DEVICE)

    def f(h, x):
        h.mul_(0.9).add_(cell(x))
        return h, torch.sigmoid(h)

    return Case(cell, f, zeros(), inputs(), words)


class Keeps(torch.nn.Module):
    """Has its state in an attribute, as spiking packages do."""

    def __init__(self):
        super().__init__()
        self.linear = torch.nn.Linear(INPUTS, HIDDEN)
        self.v: Any = 0.0

    def forward(self, x):
        self.v = 0.9 * self.v + self.linear(x)
        spikes = (self.v > 0.2).float() - self.v.detach() + self.v
        return spikes


def keeps_outside(**words: Any) -> Case:
    module = Keeps().to(DEVICE)

    return Case(module, lambda gain, x: (gain, module(x) * gain), zeros(1) + 1, inputs(), words)


def begins_with_none(**words: Any) -> Case:
    cell = torch.nn.LSTMCell(INPUTS, HIDDEN).to(DEVICE)

    def f(carry, x):
        carry = cell(x, carry)
        return carry, carry[0]

    return Case(cell, f, None, inputs(), words)


def spiking(**words: Any) -> Case:
    cell = ebb.nn.LIFCell(INPUTS, HIDDEN).to(DEVICE)
    return Case(cell, cell, None, inputs(), words)


def several_uses(**words: Any) -> Case:
    """A parameter that is used twice in a step, one that is never used, a carry of whole numbers."""
    module = torch.nn.ModuleDict(
        {"a": torch.nn.Linear(HIDDEN, HIDDEN), "b": torch.nn.Linear(INPUTS, HIDDEN), "c": torch.nn.Linear(2, 2)}
    ).to(DEVICE)

    def f(carry, x):
        h, n = carry
        h = torch.tanh(module["a"](h) + module["b"](x))
        return (torch.tanh(module["a"](h)), n + 1), (h.mean(), n)

    return Case(module, f, (zeros(), torch.zeros((), dtype=torch.int64, device=DEVICE)), inputs(), words)


KINDS: dict[str, Callable[[], Case]] = {
    "lstm": lstm,
    "gru, carry as y": gru_carry_as_y,
    "carry before as y": carry_before_as_y,
    "raw tensors": raw_tensors,
    "dropout": dropout,
    "batch norm": batch_norm,
    "autocast": autocast,
    "in place": in_place,
    "outside": keeps_outside,
    "init None": begins_with_none,
    "spiking": spiking,
    "several uses": several_uses,
    "sum": lambda: lstm(reduce="sum"),
    "mean": lambda: raw_tensors(reduce="mean"),
    "reverse": lambda: gru_carry_as_y(reverse=True),
    "lengths": lambda: lstm(lengths=[STEPS, 5, STEPS // 2, STEPS - 1]),
    "time second": lambda: Case(**{**vars(lstm(dim=1)), "xs": inputs().transpose(0, 1).contiguous()}),
    "chunk 1": lambda: lstm(chunk=1),
    "chunk 8": lambda: gru_carry_as_y(chunk=8),
}


def leaves_of(tree: Any) -> list[torch.Tensor]:
    return [t for t in torch.utils._pytree.tree_leaves(tree) if isinstance(t, torch.Tensor)]


def results(case: Case, *, only: str = "all", **words: Any) -> list[torch.Tensor | None]:
    """Everything that comes out of one call and its backward: results, all gradients, buffers, and a number drawn afterwards. `only`:
    what the loss is made of."""
    for p in case.module.parameters():
        p.grad = None
    if isinstance(case.module, Keeps):
        case.module.v = 0.0
    torch.manual_seed(3)
    buffers = [(b, b.clone()) for b in case.module.buffers()]
    init = torch.utils._pytree.tree_map(
        lambda t: t.detach().clone().requires_grad_() if isinstance(t, torch.Tensor) and t.is_floating_point() else t,
        case.init,
    )
    xs = case.xs.detach().clone().requires_grad_()
    used = torch.utils._pytree.tree_map(lambda t: t * 1 if isinstance(t, torch.Tensor) else t, init)
    # One chunk, or it might be another that is found to be better for graphs, whose first call is not captured.
    carry, ys = ebb.scan(case.f, used, xs, **{"chunk": CHUNK, **case.words, **words})
    parts = {"all": [carry, ys], "carry": [carry], "ys": [ys]}[only]
    loss = sum(t.double().sin().sum() for t in leaves_of(parts) if t.requires_grad)
    loss.backward()
    # A scan in a budget gives zeros where plain autograd has no gradient of xs.
    of_xs = torch.zeros_like(xs) if xs.grad is None else xs.grad
    found = [*leaves_of([carry, ys]), *(p.grad for p in case.module.parameters()), of_xs]
    found += [leaf.grad for leaf in leaves_of(init)] + [b.clone() for b, _ in buffers] + [torch.rand(2, device=DEVICE)]
    for b, old in buffers:
        b.copy_(old)
    return [None if t is None else t.detach().clone() for t in found]


def same(a: list[Any], b: list[Any]) -> bool:
    return len(a) == len(b) and all(
        (x is None and y is None) or (x is not None and y is not None and torch.equal(x, y)) for x, y in zip(a, b)
    )


def ran_as_graphs() -> bool:
    return ebb.last_report().graphs


def captured(case: Case, **words: Any) -> None:
    """Its next call replays graphs."""
    for _ in range(2):
        results(case, budget=ROOM, graph=True, **words)


def agree(case: Case, calls: int = 3, **words: Any) -> None:
    """With plain autograd, and as graphs from the second call on."""
    for call in range(calls):
        assert same(results(case, **words), results(case, budget=ROOM, graph=True, **words)), call
        assert ran_as_graphs() == (call > 0), ebb.last_report().remarks


def other_lengths(case: Case, lengths: list[int], first: bool = True) -> None:
    """With plain autograd, as graphs but for the first call, and within the budget that a block without a graph leaves."""
    for steps in lengths:
        xs = torch.randn(steps, *case.xs.shape[1:], device=DEVICE)
        ours = Case(case.module, case.f, case.init, xs, case.words)
        assert same(results(ours), results(ours, budget=ROOM, graph=True)), steps
        assert ran_as_graphs() != first, ebb.last_report().remarks
        first = False


def without(case: Case, reason: str, **words: Any) -> None:
    """As plain autograd, not captured, and the report says why."""
    for call in range(3):
        assert same(results(case, **words), results(case, budget="60%", **words)), call
        assert not ran_as_graphs()
    assert any(reason in remark for remark in ebb.last_report().remarks), ebb.last_report().remarks


def scaled(case: Case, by: Callable[[], float]) -> Case:
    """y times what `by` gives."""
    plain = case.f

    def f(carry, x):
        carry, y = plain(carry, x)
        return carry, y * by()

    case.f = f
    return case


def slope_read_from(path: pathlib.Path) -> Case:
    """Spikes whose surrogate gradient is in a file, which nothing that watches f can see."""
    cell = torch.nn.Linear(INPUTS, HIDDEN).to(DEVICE)

    class Spike(torch.autograd.Function):
        @staticmethod
        def forward(ctx, u):
            return (u > 0).float()

        @staticmethod
        def backward(ctx, gradient):
            return gradient * float(path.read_text())

    def f(h, x):
        h = 0.9 * h + cell(x)
        spikes = Spike.apply(h)
        return h - spikes, spikes

    return Case(cell, f, zeros(), inputs())


def weight_slope_read_from(path: pathlib.Path) -> Case:
    """A number in a file scales the gradient of a weight, and nothing else."""
    cell = torch.nn.GRUCell(INPUTS, HIDDEN).to(DEVICE)
    weight = torch.nn.Parameter(torch.ones(HIDDEN, device=DEVICE))

    class Scaled(torch.autograd.Function):
        @staticmethod
        def forward(ctx, w):
            return w * 1

        @staticmethod
        def backward(ctx, gradient):
            return gradient * float(path.read_text())

    def f(h, x):
        h = cell(x, h)
        return h, h * Scaled.apply(weight)

    return Case(torch.nn.ParameterList([weight, *cell.parameters()]), f, zeros(), inputs())


def statistics_read_from(path: pathlib.Path) -> Case:
    """A number in a file goes to a buffer, which nothing else is made of."""
    module = torch.nn.Linear(INPUTS, HIDDEN).to(DEVICE)
    module.register_buffer("mean", zeros(HIDDEN))

    def f(h, x):
        h = torch.tanh(module(x) + h)
        with torch.no_grad():
            module.mean.mul_(0.9).add_(h.mean(0), alpha=float(path.read_text()))
        return h, h

    return Case(module, f, zeros(), inputs())


READ_FROM_A_FILE = [slope_read_from, weight_slope_read_from, statistics_read_from]


def expect_forgotten(case: Case, path: pathlib.Path) -> None:
    """Another number in the file that f reads is an error at the next comparison, and then the graphs are captured anew."""
    captured(case)
    assert ran_as_graphs()
    path.write_text("2.0")
    with pytest.raises(ebb.Error, match="as a CUDA graph gives another result"):
        for _ in range(5):
            results(case, budget=ROOM, graph=True)
    doubled = results(case)
    for _ in range(2):
        ours = results(case, budget=ROOM, graph=True)
    assert ran_as_graphs() and same(doubled, ours)


def changed_before_backward(numbers: int, lengths: tuple[int, ...] = (), **words: Any) -> None:
    """Gradients of a loop with a gain of so many numbers, which is changed between forward and backward, are those of the forward;
    after it the gain is as it was changed. In turn with other lengths than usual."""
    cell, gain = torch.nn.GRUCell(INPUTS, HIDDEN).to(DEVICE), torch.ones(numbers, device=DEVICE)

    def f(h, x):
        h = cell(x, h * (2 * gain[:HIDDEN]))
        return h, h

    for steps in (STEPS, STEPS, STEPS, *lengths):
        found = []
        for change in (False, True):
            gain.fill_(0.7)
            _, ys = ebb.scan(f, zeros(), torch.ones(steps, BATCH, INPUTS, device=DEVICE), chunk=CHUNK, **words)
            if change:
                gain.fill_(3.0)
            found.append(torch.autograd.grad(ys.pow(2).mean(), list(cell.parameters())))
        assert same(*found)
        assert bool((gain == 3).all())


def expect_stale_refused(beyond: int) -> None:
    """Of so many numbers as this gain has there is no copy. `beyond`: time steps more than the loop had that was captured."""
    cell, gain = torch.nn.GRUCell(INPUTS, HIDDEN).to(DEVICE), torch.ones(300_000, device=DEVICE)

    def f(h, x):
        h = cell(x, h * (2 * gain[:HIDDEN]))
        return h, h

    def ran(steps: int) -> torch.Tensor:
        xs = torch.ones(steps, BATCH, INPUTS, device=DEVICE)
        return ebb.scan(f, zeros(), xs, chunk=CHUNK, budget=ROOM, graph=True)[1]

    for _ in range(3):
        ran(STEPS).sum().backward()
    ys = ran(STEPS + beyond)
    assert ran_as_graphs()
    gain.fill_(3)
    with pytest.raises(ebb.Error, match="changed in place between forward and backward"):
        ys.sum().backward()


@pytest.fixture(autouse=True)
def fresh():
    """For every test of a file that imports it: nothing is captured yet."""
    torch.manual_seed(0)
    yield
    ebb.clear_cache()


@pytest.fixture(autouse=True)
def short(monkeypatch):
    """For every test of a file that imports it: loops of three blocks and a part of one, and graphs are measured once."""
    monkeypatch.setitem(globals(), "STEPS", 10)
    monkeypatch.setitem(globals(), "CHUNK", 3)
    for name in ("_ROUNDS", "_TOGETHER"):
        monkeypatch.setattr(f"ebb._loop.capturing.{name}", 1)


@pytest.fixture
def always_tried(monkeypatch):
    """Loops are captured even where there is no room for graphs in their budget."""
    monkeypatch.setattr("ebb._loop.capturing._least", lambda loop, seen: 0)

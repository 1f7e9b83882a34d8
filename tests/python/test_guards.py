# SPDX-License-Identifier: Apache-2.0
"""What f reads beside its arguments is seen to change, without which a CUDA graph would repeat what was."""

from __future__ import annotations

import functools
import types
from collections import deque

import numpy as np
import pytest

torch = pytest.importorskip("torch")

from torch.utils._python_dispatch import TorchDispatchMode  # noqa: E402

import ebb  # noqa: E402
from ebb._loop.guards import guard_of, reason_against  # noqa: E402
from ebb._tensor.context import Surroundings  # noqa: E402

CPU = torch.device("cpu")


class Config:
    gain = 1.0

    def __init__(self):
        self.nested = {"a": [1.0, (2.0, 3.0)]}
        self.recent = deque([1, 2])


class Net(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.linear = torch.nn.Linear(2, 2)
        self.drop = torch.nn.Dropout(0.1)
        self.register_buffer("scale", torch.ones(2))
        self.factor = 1.0
        self.config = Config()

    def forward(self, x):
        return self.linear(x) * self.factor * settings.level


_forward = Net.forward
settings = types.ModuleType("settings_of_a_user")
settings.level = 1.0
net = Net()
array, limit = np.ones(3), 1.0


def f(h, x):
    return net(x) + h * limit * float(array[0]) * Config.gain, None


def now():
    around = Surroundings(f, CPU, True)
    return guard_of(around, around.changing(), CPU)


def _limit():
    global limit
    limit += 1.0


def _other_forward(self, x):
    return self.linear(x) * self.factor * settings.level * 2


_other_forward.__name__ = "forward"


def _method():
    forwards = (_forward, _other_forward)
    Net.forward = forwards[Net.forward is _forward]


def _default_dtype():
    torch.set_default_dtype(torch.float64)


CHANGES = {
    "number of a module": (lambda: setattr(net, "factor", net.factor + 1), "Net"),
    "dropout": (lambda: setattr(net.drop, "p", net.drop.p / 2), "Dropout"),
    "class": (lambda: setattr(Config, "gain", Config.gain + 1), "Config"),
    "list in a dict": (lambda: net.config.nested["a"].__setitem__(0, 7.5 + net.factor), "nested"),
    "tuple in a list": (lambda: net.config.nested["a"].__setitem__(1, (2.0, 4.0)), "nested"),
    "deque": (lambda: net.config.recent.append(3), "recent"),
    "global": (_limit, "global"),
    "module of settings": (lambda: setattr(settings, "level", settings.level + 1), "settings_of_a_user"),
    "array": (lambda: array.__setitem__(0, array[0] + 1), "global"),
    "sign of a zero": (lambda: setattr(net, "factor", -0.0 if str(net.factor) == "0.0" else 0.0), "Net"),
    "host tensor": (lambda: net.scale.add_(1), "Net"),
    "moved": (lambda: setattr(net.linear.weight, "data", net.linear.weight.data.clone()), "Linear"),
    "frozen": (lambda: net.linear.bias.requires_grad_(not net.linear.bias.requires_grad), "Linear"),
    "method of a class": (_method, "code"),
    "mode": (lambda: net.train(not net.training), "training"),
    "settings of torch": (_default_dtype, "dtype"),
}


@pytest.mark.parametrize("kind", CHANGES)
def test_a_change_is_seen_and_named(kind):
    change, name = CHANGES[kind]
    dtype = torch.get_default_dtype()
    try:
        before = now()
        assert before == now()
        change()
        assert before != now()
        assert name in now().difference(before) or name == "training"
    finally:
        torch.set_default_dtype(dtype)


def test_functions_that_are_made_anew_are_the_same():
    def make(k):
        def inner(h, x):
            return net(x) * k + h, None

        around = Surroundings(inner, CPU, True)
        return guard_of(around, around.changing(), CPU)

    assert make(2.0) == make(2.0) and make(2.0) != make(3.0)


def test_reasons():
    own = torch.nn.Linear(2, 2)
    around = Surroundings(lambda h, x: own(x), CPU, True)
    assert reason_against(around) is None
    handle = own.register_forward_hook(lambda *_: None)
    assert "hook" in reason_against(around)
    handle.remove()
    with torch.autograd.graph.save_on_cpu():
        assert "saved tensors" in reason_against(around)
    with torch.autograd.set_detect_anomaly(True, check_nan=False):
        assert "anomaly" in reason_against(around)
    with TorchDispatchMode():
        assert "mode" in reason_against(around)
    deep = leaf = []
    for _ in range(14):
        leaf.append([])
        leaf = leaf[0]
    leaf.append(object())
    assert "more objects" in reason_against(Surroundings(lambda h, x: (deep, h), CPU, True))
    assert reason_against(around) is None


@functools.lru_cache
def _table():
    return torch.ones(2)


def test_what_cannot_be_looked_into():
    values = {"a": torch.ones(2)}.values()
    for inner in (lambda h, x: (h + _table(), x), lambda h, x: (h + sum(values), x)):
        assert "cannot be looked into" in reason_against(Surroundings(inner, CPU, True))


class Trainer:
    """As one of Lightning's."""

    __module__ = "lightning.pytorch.trainer.trainer"
    global_step = 1


class Base(torch.nn.Module):
    """As Lightning's, whose properties read its trainer."""

    __module__ = "lightning.pytorch.core.module"

    @property
    def global_step(self):
        return self._trainer.global_step

    @property
    def device(self):
        return CPU


class Lit(Base):
    def __init__(self):
        super().__init__()
        self.linear = torch.nn.Linear(2, 2)
        self._trainer = Trainer()

    def forward(self, h, x):
        return self.linear(x) + h.to(self.device), None

    def gain(self):
        return self.global_step

    def scaled(self, h, x):
        return self.linear(x) * self.gain(), None

    def directly(self, h, x):
        return self.linear(x) * self._trainer.global_step, None

    def training_step(self, batch):
        self.log("loss", self.global_step)


def test_what_runs_a_model_is_not_read_by_its_steps():
    model, trainer = Lit(), Trainer()
    for good in (model, model.forward, lambda h, x: model(h, x)):
        assert reason_against(Surroundings(good, CPU, True)) is None
    for bad in (
        model.scaled,
        model.directly,
        lambda h, x: model.scaled(h, x),
        lambda h, x: (h * trainer.global_step, x),
    ):
        assert "cannot be looked into" in reason_against(Surroundings(bad, CPU, True))


def test_scripted_modules():
    cell = torch.jit.script(torch.nn.GRUCell(2, 3))
    xs = torch.randn(50, 1, 2)
    found = []
    for words in ({}, {"budget": "20KiB", "chunk": 5}):
        _, ys = ebb.scan(lambda h, x: (cell(x, h),) * 2, torch.zeros(1, 3), xs, **words)
        found.append(torch.autograd.grad(ys.sum(), list(cell.parameters())))
    assert all(torch.equal(a, b) for a, b in zip(*found, strict=True))


def test_graphs_need_a_gpu():
    cell = torch.nn.GRUCell(2, 3)
    arguments = lambda h, x: (cell(x, h), None), torch.zeros(1, 3), torch.randn(50, 1, 2)
    with pytest.raises(ebb.Error, match="the loop is on the cpu"):
        ebb.scan(*arguments, budget="20KiB", graph=True)
    with pytest.raises(ebb.Error, match="graph is 'yes'; it is True, False"):
        ebb.scan(*arguments, budget="20KiB", graph="yes")
    ebb.scan(*arguments, budget="20KiB", graph=False)
    assert ebb.last_report().graphs is False

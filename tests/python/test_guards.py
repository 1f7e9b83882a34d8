# SPDX-License-Identifier: Apache-2.0
"""What f reads beside its arguments is seen to change, without which a CUDA graph would repeat what was."""

from __future__ import annotations

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


def test_graphs_need_a_gpu():
    cell = torch.nn.GRUCell(2, 3)
    arguments = lambda h, x: (cell(x, h), None), torch.zeros(1, 3), torch.randn(50, 1, 2)
    with pytest.raises(ebb.Error, match="the loop is on the cpu"):
        ebb.scan(*arguments, budget="20KiB", graph=True)
    with pytest.raises(ebb.Error, match="graph is 'yes'; it is True, False"):
        ebb.scan(*arguments, budget="20KiB", graph="yes")
    ebb.scan(*arguments, budget="20KiB", graph=False)
    assert ebb.last_report().graphs is False

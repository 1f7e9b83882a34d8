# SPDX-License-Identifier: Apache-2.0
"""A Sequential in a budget against the module itself."""

from __future__ import annotations

import copy
import types

import pytest

torch = pytest.importorskip("torch")

import ebb  # noqa: E402
from ebb._tensor.memory import LiveBytes, peak_beside  # noqa: E402

pytestmark = pytest.mark.usefixtures("one_thread")


def images():
    def stage(width, out):
        return torch.nn.Sequential(
            torch.nn.Conv2d(width, out, 3, padding=1),
            torch.nn.BatchNorm2d(out),
            torch.nn.ReLU(inplace=True),
            torch.nn.Dropout(0.1),
        )

    widths = [3, 4, 8, 4, 4, 2, 8, 4, 4, 4]
    net = torch.nn.Sequential(
        *[stage(a, b) for a, b in zip(widths, widths[1:])],
        torch.nn.ReLU(inplace=True),
        torch.nn.MaxPool2d(2),
        torch.nn.Flatten(),
        torch.nn.Linear(4 * 16, 10),
    )
    return net, torch.randn(5, 3, 8, 8)


def trained(net, x, budget):
    net = copy.deepcopy(net)
    module = ebb.Chain(net, x, budget)
    torch.manual_seed(1)
    own = x.clone().requires_grad_(x.is_floating_point())
    for _ in range(2):
        module(own).pow(2).sum().backward()
    found = [p.grad for p in net.parameters()] + list(net.buffers()) + [torch.get_rng_state()]
    return found + ([own.grad] if own.requires_grad else []), module


def test_same_bits_in_every_budget():
    net, x = images()
    plain, _ = trained(net, x, None)
    least = pytest.raises(ebb.Error, ebb.Chain, net, x, 1000).value.least_budget
    whole, module = trained(net, x, "1GiB")
    assert all(torch.equal(a, b) for a, b in zip(plain, whole))
    seen = {module.report.measured.get("forwards", len(net))}
    # Times are measured, and scratch with them may differ a little from run to run.
    for budget in (int(1.05 * least), 2 * least, 3 * least):
        ours, module = trained(net, x, budget)
        assert all(torch.equal(a, b) for a, b in zip(plain, ours))
        assert module.report.predicted["peak"]["fast"] <= budget
        seen.add(module.report.measured.get("forwards", len(net)))
    assert len(seen) > 1  # the budget matters


def test_tokens_and_tuples():
    class Two(torch.nn.Module):
        def forward(self, x):
            return {"a": x, "b": (x * 2).tanh()}

    class One(torch.nn.Module):
        def forward(self, x):
            return x["a"] + x["b"]

    net = torch.nn.Sequential(torch.nn.Embedding(11, 16), Two(), One(), *[torch.nn.Linear(16, 16) for _ in range(6)])
    x = torch.randint(0, 11, (32, 20))
    plain, _ = trained(net, x, None)
    least = pytest.raises(ebb.Error, ebb.Chain, net, x, 1).value.least_budget
    ours, module = trained(net, x, int(1.1 * least))
    assert module.report.strategy != "store_all"
    assert all(torch.equal(a, b) for a, b in zip(plain, ours))


def test_another_shape_is_measured_when_it_comes():
    net = torch.nn.Sequential(*[torch.nn.Sequential(torch.nn.Linear(8, 8), torch.nn.Tanh()) for _ in range(8)])
    chain = ebb.Chain(net, torch.randn(64, 8), "24KiB")
    for batch in (64, 100):
        x = torch.randn(batch, 8)
        net.zero_grad()
        chain(x).sum().backward()
        ours = [p.grad.clone() for p in net.parameters()]
        net.zero_grad()
        net(x).sum().backward()
        assert all(torch.equal(a, p.grad) for a, p in zip(ours, net.parameters()))
    assert len(chain.stages) == 8


def test_frozen_stages_evaluation_and_no_gradients():
    net, x = images()
    chain = ebb.Chain(net, x, "1GiB")
    chain.eval()
    with torch.no_grad():
        assert torch.equal(chain(x), net(x))
    for p in net.parameters():
        p.requires_grad_(False)
    assert not chain(x).requires_grad
    net[-1].weight.requires_grad_(True)
    chain(x).sum().backward()
    assert net[-1].weight.grad is not None and net[0][0].weight.grad is None


def test_the_peak_is_what_was_predicted():
    net = torch.nn.Sequential(*[torch.nn.Sequential(torch.nn.Linear(64, 64), torch.nn.Tanh()) for _ in range(20)])
    x = torch.randn(2000, 64)
    whole = sum(cost.tape for cost in ebb.Chain(net, x, "1GiB").stages)
    chain = ebb.Chain(net, x, whole // 3)
    chain(x).mean().backward()
    with LiveBytes() as live:
        chain(x).mean().backward()
    callers = 2 * sum(p.numel() * 4 for p in net.parameters()) + x.numel() * 4  # gradients twice, the output
    assert live.peak <= chain.report.predicted["peak"]["fast"] * 1.01 + (1 << 20) + callers
    assert live.peak < whole


class Residual(torch.nn.Module):
    def __init__(self, width, out, stride=1):
        super().__init__()
        conv = torch.nn.Conv2d
        self.body = torch.nn.Sequential(
            conv(width, out, 3, stride, 1, bias=False),
            torch.nn.BatchNorm2d(out),
            torch.nn.ReLU(),
            conv(out, out, 3, 1, 1, bias=False),
            torch.nn.BatchNorm2d(out),
        )
        self.beside = torch.nn.Identity() if stride == 1 else conv(width, out, 1, stride, bias=False)

    def forward(self, x):
        return torch.relu(self.body(x) + self.beside(x))


def resnet(width=12):
    stages = [torch.nn.Conv2d(3, width, 3, 1, 1)]
    for factor in (1, 2, 4, 8):
        before = width if factor == 1 else width * factor // 2
        stages += [Residual(before, width * factor, 1 if factor == 1 else 2), Residual(width * factor, width * factor)]
    return torch.nn.Sequential(
        *stages, torch.nn.AdaptiveAvgPool2d(1), torch.nn.Flatten(), torch.nn.Linear(8 * width, 10)
    )


def peak_beside_gradients(net, module, x):
    """Of forward and backward, without the output's and the parameters' gradients, which are the caller's."""

    def work():
        module(x).sum().backward()
        return [param.grad for param in net.parameters()]

    net.zero_grad()
    work()
    net.zero_grad()
    return peak_beside(work, torch.device("cpu"))


def test_gradients_of_parameters_are_the_callers():
    """As of torchvision's ResNet-18: 44 MiB of parameters, most of them in the last stages, whose activations are small."""
    net, x = resnet(), torch.randn(2, 3, 16, 16)
    own = sum(param.numel() * 4 for param in net.parameters())
    plain = peak_beside_gradients(net, net, x)
    assert plain < own
    least = pytest.raises(ebb.Error, ebb.Chain, net, x, 1).value.least_budget
    assert least < 0.8 * plain < own / 2
    before = 0
    for budget in (int(1.02 * least), 2 * plain):
        peak = peak_beside_gradients(net, ebb.Chain(net, x, budget), x)
        assert before < peak <= min(budget, plain)
        before = peak


def test_a_weight_of_two_stages_is_added_up_in_the_budget():
    """The sum of its parts is a tensor beside them."""
    first, last = torch.nn.Linear(256, 256, bias=False), torch.nn.Linear(256, 256, bias=False)
    last.weight = first.weight
    apart = torch.nn.Sequential(first, torch.nn.Tanh(), torch.nn.Linear(256, 256, bias=False))
    x = torch.randn(2, 256)
    least = [
        pytest.raises(ebb.Error, ebb.Chain, net, x, 1).value.least_budget
        for net in (apart, torch.nn.Sequential(first, torch.nn.Tanh(), last))
    ]
    assert least[0] < 256 * 256 * 4 <= least[1]


def test_shares_and_words_are_of_what_the_stages_take():
    net = torch.nn.Sequential(*[torch.nn.Sequential(torch.nn.Linear(8, 8), torch.nn.Tanh()) for _ in range(8)])
    budgets = {}
    for said in ("speed", "60%", "balanced", "memory"):
        chain = ebb.Chain(net, torch.randn(64, 8), said)
        for batch in (64, 128):
            chain(torch.randn(batch, 8)).sum().backward()
            budgets[said, batch] = chain.report.budget
        assert chain.budget == said and f"budget '{said}' is" in str(chain.report)
    assert budgets["memory", 64] <= budgets["balanced", 64] <= budgets["speed", 64]
    assert budgets["memory", 64] < budgets["60%", 64] == int(0.6 * budgets["speed", 64])
    assert all(budgets[said, 128] > budgets[said, 64] for said in ("speed", "60%", "memory"))


@pytest.mark.parametrize("wrong", [torch.nn.Linear(2, 2), torch.nn.Sequential(), [torch.nn.Linear(2, 2)]])
def test_what_is_no_sequential_is_refused(wrong):
    with pytest.raises(ebb.Error, match="Sequential"):
        ebb.Chain(wrong, torch.zeros(1, 2), 100)


def test_an_exception_comes_through_and_leaves_all_usable():
    mood = types.ModuleType(
        "sys.mood"
    )  # as modules of Python itself are called, where ebb does not look, so that a backward sees it change
    mood.bad = ()

    class Moody(torch.nn.Module):
        def forward(self, x):
            if self in mood.bad:
                raise KeyError("mine")
            return x.tanh()

    net = torch.nn.Sequential(*[torch.nn.Sequential(torch.nn.Linear(8, 8), Moody()) for _ in range(8)])
    chain = ebb.Chain(net, torch.randn(64, 8), "24KiB")
    x = torch.randn(64, 8)
    out = chain(x)
    mood.bad = [stage[1] for stage in net[:5]]
    with pytest.raises(KeyError, match="mine"):
        chain(x)
    with pytest.raises(KeyError, match="mine"):
        out.sum().backward()
    mood.bad = ()
    net.zero_grad()
    chain(x).sum().backward()
    ours = net[0][0].weight.grad.clone()
    net.zero_grad()
    net(x).sum().backward()
    assert torch.equal(ours, net[0][0].weight.grad)


def test_modes_of_stages_copies_and_new_parameters():
    net = torch.nn.Sequential(
        *[torch.nn.Sequential(torch.nn.Linear(8, 8), torch.nn.Tanh(), torch.nn.Dropout(0.5)) for _ in range(8)]
    )
    x = torch.randn(64, 8)
    net.eval()
    chain = ebb.Chain(net, x, "40KiB")
    chain(x).sum().backward()
    net[3].train()
    torch.manual_seed(1)
    net.zero_grad()
    chain(x).sum().backward()
    ours = [p.grad.clone() for p in net.parameters()]
    torch.manual_seed(1)
    net.zero_grad()
    net(x).sum().backward()
    assert all(torch.equal(a, p.grad) for a, p in zip(ours, net.parameters()))
    other = copy.deepcopy(chain)
    other.sequential.load_state_dict({name: value + 1 for name, value in net.state_dict().items()}, assign=True)
    other(x).sum().backward()
    assert other.sequential[0][0].weight.grad is not None

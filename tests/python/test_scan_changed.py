# SPDX-License-Identifier: Apache-2.0
"""Tensors that a loop reads and that are changed in place between its forward and its backward, where it runs again."""

from __future__ import annotations

import pytest

torch = pytest.importorskip("torch")
import ebb  # noqa: E402

WIDTH, STEPS = 8, 60
MANY = 300_000  # numbers, of which no copy is kept


class Model(torch.nn.Module):
    def __init__(self, numbers):
        super().__init__()
        self.cell = torch.nn.Linear(2 * WIDTH, WIDTH)
        self.register_buffer("scale", torch.full((numbers,), 0.7))
        self.frozen = torch.nn.Parameter(torch.full((numbers,), 0.7), requires_grad=False)
        self.plain = [torch.full((numbers,), 0.7)]
        self.other = torch.nn.Linear(600, 600)  # that no step reads
        self.reads = lambda: 1.0

    def step(self, h, x):
        h = torch.tanh(self.cell(torch.cat([x, h * (2 * self.reads())], -1)))
        return h, h


READS = {
    "buffer": lambda model: lambda: model.scale[:WIDTH],
    "parameter": lambda model: lambda: model.frozen[:WIDTH],
    "plain": lambda model: lambda: model.plain[0][:WIDTH],
    "detached": lambda model: lambda: model.cell.weight.detach()[0, :WIDTH],
}


def least(model):
    with pytest.raises(ebb.Error) as refused:
        run(model, budget=1)
    return refused.value.least_budget


def run(model, **words):
    torch.manual_seed(0)
    xs = torch.randn(STEPS, 3, WIDTH)
    if not words:
        h, ys = torch.zeros(3, WIDTH), []
        for x in xs:
            h, y = model.step(h, x)
            ys.append(y)
        return torch.stack(ys)
    return ebb.scan(model.step, torch.zeros(3, WIDTH), xs, chunk=3, **words)[1]


def gradients(model, ys):
    return torch.autograd.grad(ys.pow(2).mean(), list(model.cell.parameters()))


def change(model, by=3.0):
    with torch.no_grad():
        for tensor in (model.scale, model.frozen, model.plain[0]):
            tensor.fill_(by)


@pytest.mark.parametrize("numbers", [WIDTH, MANY])
@pytest.mark.parametrize("what", ["buffer", "parameter", "plain"])
def test_gradients_are_those_of_the_forward(what, numbers):
    """Buffers, and small tensors outside of modules, are set back while the loop runs again. Of others there is no copy."""
    model = Model(numbers)
    model.reads = READS[what](model)
    right = gradients(model, run(model))
    ys = run(model, budget=least(model))
    change(model)
    if what == "parameter" or (numbers == MANY and what == "plain"):
        with pytest.raises(ebb.Error, match=rf"shape \[{numbers}\] that f reads was changed in place"):
            gradients(model, ys)
        change(model, 0.7)
        ys = run(model, budget=least(model))  # and the next call works
    now = [tensor.clone() for tensor in (model.scale, *model.plain)]
    for found, wanted in zip(gradients(model, ys), right, strict=True):
        assert torch.equal(found, wanted)
    assert all(torch.equal(a, b) for a, b in zip((model.scale, *model.plain), now, strict=True))


def test_a_parameter_that_is_read_without_a_gradient():
    model = Model(WIDTH)
    model.reads = READS["detached"](model)
    model.cell.requires_grad_(False)
    gain = torch.ones(WIDTH, requires_grad=True)
    xs = torch.randn(STEPS, 3, WIDTH)

    def f(h, x):
        return model.step(h * gain, x)

    with pytest.raises(ebb.Error) as refused:
        ebb.scan(f, torch.zeros(3, WIDTH), xs, chunk=3, budget=1)
    _, ys = ebb.scan(f, torch.zeros(3, WIDTH), xs, chunk=3, budget=refused.value.least_budget)
    with torch.no_grad():
        model.cell.weight.mul_(2)
    with pytest.raises(ebb.Error, match="in ?place"):  # or PyTorch's own, of what was kept
        ys.sum().backward()


def test_what_no_step_reads_may_change():
    """Two optimisers, say: one has stepped before the other's backward."""
    model = Model(WIDTH)
    right = gradients(model, run(model))
    ys = run(model, budget=least(model))
    with torch.no_grad():
        for parameter in model.other.parameters():
            parameter.mul_(2)
    for found, wanted in zip(gradients(model, ys), right, strict=True):
        assert torch.equal(found, wanted)


def test_what_shares_memory_with_a_changed_tensor_may_be_read():
    """Parameters in one piece of memory, as some optimisers have them; and tensors that are only made like it."""
    flat = torch.full((2 * WIDTH,), 0.7)
    mine, theirs = flat[:WIDTH].view(WIDTH), torch.nn.Parameter(flat[WIDTH:].detach(), requires_grad=False)
    model = Model(MANY)
    model.theirs = theirs
    model.reads = lambda: mine + model.theirs.new_zeros(WIDTH) + torch.zeros_like(model.plain[0])[:WIDTH]
    right = gradients(model, run(model))
    ys = run(model, budget=least(model))
    with torch.no_grad():
        theirs.fill_(3)
        model.plain[0].fill_(3)
    for found, wanted in zip(gradients(model, ys), right, strict=True):
        assert torch.equal(found, wanted)


@pytest.mark.parametrize("size", [2, 20])
def test_a_buffer_that_is_replaced_by_one_of_another_size(size):
    for read in (False, True):
        model = Model(WIDTH)
        model.reads = READS["buffer"](model) if read else model.reads
        ys = run(model, budget=least(model))
        model.scale.data = torch.ones(size)
        model.scale.add_(1)
        if read:
            with pytest.raises(ebb.Error, match="changed in place"):
                gradients(model, ys)
        else:
            gradients(model, ys)
        assert model.scale.shape == (size,) and bool((model.scale == 2).all())


def test_a_stage_of_a_chain():
    gain = torch.ones(WIDTH)

    class Stage(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.linear = torch.nn.Linear(WIDTH, WIDTH)

        def forward(self, x):
            return torch.tanh(self.linear(x) * (2 * gain))

    net = torch.nn.Sequential(*[Stage() for _ in range(12)])
    x = torch.randn(16, WIDTH)
    right = torch.autograd.grad(net(x).sum(), list(net.parameters()))
    with pytest.raises(ebb.Error) as refused:
        ebb.Chain(net, x, budget=1)(x)
    y = ebb.Chain(net, x, budget=refused.value.least_budget)(x).sum()
    gain.fill_(5)
    for found, wanted in zip(torch.autograd.grad(y, list(net.parameters())), right, strict=True):
        assert torch.equal(found, wanted)

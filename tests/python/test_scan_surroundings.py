# SPDX-License-Identifier: Apache-2.0
"""What f uses and changes beside tensors: random numbers, autocast, buffers, changes in place, hooks."""

from __future__ import annotations

import itertools

import pytest

torch = pytest.importorskip("torch", reason="PyTorch is not installed")
from scan_cases import numbers  # noqa: E402
from scan_oracle import clones, compare, gradients, least, loop, same, wanting, weighted  # noqa: E402

import ebb  # noqa: E402

torch.set_num_threads(1)

T, BATCH, WIDTH = 16, 2, 3


@pytest.fixture(autouse=True)
def seed() -> None:
    torch.manual_seed(1)


# ------------------------------------------------------------------------------------------------ random numbers


def with_dropout(first: int, chunk: int):
    weight = numbers(WIDTH)

    def f(h, t):
        h = h * weight
        if int(t) >= first:
            h = torch.nn.functional.dropout(h, 0.3) + torch.randn(WIDTH) * 0.1
        h = h.tanh()
        return h, h

    return f, weight


@pytest.mark.parametrize("first", [0, 5])
@pytest.mark.parametrize("chunk", [1, 3])
def test_random_numbers_are_drawn_again_alike(first, chunk):
    f, weight = with_dropout(first, chunk)
    init, ts = numbers(WIDTH), torch.arange(T)
    state = torch.get_rng_state().numel()

    def run(scan, **options):
        torch.manual_seed(7)
        own = clones(init)
        h, hs = scan(f, own, ts, **options)
        after = torch.rand(3)  # the caller's own stream goes on as if nothing had happened
        found = gradients(weighted(h, hs), [own, weight])
        return h, hs, after, found, torch.rand(3)

    wanted = run(loop)
    for budget in (least(f, init, ts, chunk=chunk) + state * 4, 6 * state, 10**8):
        same(run(ebb.scan, budget=budget, chunk=chunk), wanted)


def test_a_generator_of_its_own_is_seen_again_or_refused():
    weight = numbers(WIDTH)
    generator = torch.Generator()

    def f(h, x):
        h = (h * weight + torch.rand(WIDTH, generator=generator)).tanh()
        return h, h

    def run(scan, **options):
        generator.manual_seed(3)
        h, hs = scan(f, torch.ones(WIDTH), None, length=T, **options)
        return h, hs, gradients(weighted(h, hs), [weight]), torch.rand(1, generator=generator)

    wanted = run(loop)
    try:
        found = run(ebb.scan, budget=7 * torch.get_rng_state().numel(), chunk=1)
    except ebb.Error as error:
        assert "generator" in str(error).lower()
    else:
        same(found, wanted)


def test_verify_finds_a_function_that_is_not_one():
    weight = numbers(WIDTH)
    calls = itertools.count()  # which ebb cannot put back

    def f(h, x):
        h = (h * weight + (next(calls) > 20)).tanh()
        return h, h

    small = least(lambda h, x: ((h * weight + 1).tanh(),) * 2, torch.ones(WIDTH), None, length=T, chunk=1)
    with pytest.raises(ebb.Error, match="another state"):
        h, hs = ebb.scan(f, torch.ones(WIDTH), None, length=T, budget=small, chunk=1, verify=True)
        weighted(h, hs).backward()
    g = lambda h, x: ((h * weight).tanh(),) * 2
    compare(g, torch.ones(WIDTH), None, [weight], length=T, chunk=1, verify=True)


# ------------------------------------------------------------------------------------------------ autocast


@pytest.mark.parametrize("chunk", [1, 3])
@pytest.mark.parametrize("inside", [False, True])
def test_autocast(inside, chunk):
    cell = torch.nn.Linear(2 * WIDTH, WIDTH)

    def f(h, x):
        h = cell(torch.cat([h, x], -1)).float().tanh()
        return h, h

    def cast(h, x):
        with torch.autocast("cpu", dtype=torch.bfloat16):
            return f(h, x)

    init, xs = numbers(BATCH, WIDTH), numbers(T, BATCH, WIDTH)
    if inside:
        compare(cast, init, xs, cell.parameters(), chunk=chunk)
        return

    def run(scan, **options):
        own = clones([init, xs])
        with torch.autocast("cpu", dtype=torch.bfloat16):
            h, hs = scan(f, *own, **options)
        return h, hs, gradients(weighted(h, hs), [*wanting(own), *cell.parameters()])

    with torch.autocast("cpu", dtype=torch.bfloat16):
        small = least(f, init, xs, chunk=chunk)
    wanted = run(loop)
    assert not torch.equal(wanted[0], loop(f, init, xs)[0])
    for budget in (small, small + small // 2):  # with the larger one several blocks are recorded one after the other
        found = run(ebb.scan, budget=budget, chunk=chunk)
        assert ebb.last_report().strategy != "store_all"
        same(found[:2], wanted[:2])
        # A cast weight is one tensor for the whole loop: its gradients are added in bfloat16 there, and in float32 here.
        same(found[2][:2], wanted[2][:2])
        for ours, theirs in zip(found[2][2:], wanted[2][2:]):
            assert torch.allclose(ours, theirs, rtol=T * 2.0**-8, atol=float(theirs.abs().max()) * T * 2.0**-8)


@pytest.mark.parametrize("chunk", [1, 3])
def test_autocast_around_the_backward_alone(chunk):
    """Steps that run again have the bits of the forward, which was without it."""
    cell = torch.nn.Linear(2 * WIDTH, WIDTH)

    def f(h, x):
        h = cell(torch.cat([h, x], -1)).tanh()
        assert h.dtype == torch.float32
        return h, h

    init, xs = numbers(BATCH, WIDTH), numbers(T, BATCH, WIDTH)
    small, found = least(f, init, xs, chunk=chunk), []
    for around in (False, True):
        own = clones([init, xs])
        h, hs = ebb.scan(f, *own, budget=small, chunk=chunk)
        loss = weighted(h, hs)
        with torch.autocast("cpu", dtype=torch.bfloat16, enabled=around):
            found.append(gradients(loss, [*wanting(own), *cell.parameters()]))
    assert ebb.last_report().strategy != "store_all"
    same(*found)


@pytest.mark.parametrize("when", ["before", "after"])
def test_a_weight_that_autocast_has_cast_elsewhere(when):
    """It keeps the cast, a part of another graph, until it ends."""
    cell = torch.nn.Linear(WIDTH, WIDTH)

    def f(h, x):
        h = (cell(h) + x).float().tanh()
        return h, h

    init, xs = numbers(BATCH, WIDTH), numbers(T, BATCH, WIDTH)
    small = least(f, init, xs, chunk=3)

    def run(scan, **options):
        own = clones([init, xs])
        with torch.autocast("cpu", dtype=torch.bfloat16):
            start = cell(own[0]).float() if when == "before" else own[0]
            h, hs = scan(f, start, own[1], **options)
            h = cell(h).float() if when == "after" else h
        return gradients(weighted(h, hs), [*wanting(own), *cell.parameters()])

    for ours, theirs in zip(run(ebb.scan, budget=2 * small, chunk=3), run(loop)):
        assert float((ours - theirs).abs().max()) <= 0.05 * float(theirs.abs().max())


# ------------------------------------------------------------------------------------------------ buffers


@pytest.mark.parametrize("chunk", [1, 3])
@pytest.mark.parametrize("kind", ["batch norm", "spectral norm", "old spectral norm", "weight norm"])
def test_buffers_are_changed_once(kind, chunk):
    def module():
        torch.manual_seed(2)
        linear = torch.nn.Linear(WIDTH, WIDTH)
        if kind == "batch norm":
            return torch.nn.Sequential(linear, torch.nn.BatchNorm1d(WIDTH))
        if kind == "spectral norm":
            return torch.nn.utils.parametrizations.spectral_norm(linear)
        if kind == "old spectral norm":
            return torch.nn.utils.spectral_norm(linear)
        return torch.nn.utils.parametrizations.weight_norm(linear)

    init, xs = numbers(4, WIDTH), numbers(T, 4, WIDTH)

    def run(scan, model, **options):
        own = clones([init, xs])

        def f(h, x):
            h = (model(h) + x).tanh()
            return h, h

        if options:
            before = {name: b.clone() for name, b in model.named_buffers()}
            options["budget"] = 2 * least(f, init, xs, **options)
            same(dict(model.named_buffers()), before)
        h, hs = scan(f, *own, **options)
        after = {name: b.clone() for name, b in model.named_buffers()}
        found = gradients(weighted(h, hs), [*wanting(own), *model.parameters()])
        return h, hs, after, found, dict(model.named_buffers())

    same(run(ebb.scan, module(), chunk=chunk), run(loop, module()))


def test_captured_tensors_and_attributes_that_f_changes():
    weight = numbers(WIDTH)
    count = torch.zeros(())

    def counts(h, x):
        count.add_(1)
        h = (h * weight + count).tanh()
        return h, h

    class Stateful(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.linear = torch.nn.Linear(WIDTH, WIDTH)
            self.state = torch.zeros(WIDTH)

        def forward(self, x):
            self.state = (self.linear(self.state) + x).tanh()
            return self.state

    model = Stateful()

    def remembers(h, x):
        return h + 1, model(h)

    def start():
        count.zero_()
        model.state = torch.zeros(WIDTH)

    for f, params in ((counts, [weight]), (remembers, list(model.parameters()))):
        start()
        h, hs = loop(f, torch.ones(WIDTH), None, length=T)
        wanted = gradients(weighted(h, hs), params)
        cut = 0
        for budget in (350, 500, 700, 1000):
            start()
            try:
                h, hs = ebb.scan(f, torch.ones(WIDTH), None, length=T, budget=budget, chunk=1)
            except ebb.Error as error:
                assert error.code == "infeasible_budget", error
                continue
            cut += ebb.last_report().strategy != "store_all"
            same(gradients(weighted(h, hs), params), wanted)
        assert cut, "no budget made blocks of the steps"


# ------------------------------------------------------------------------------------------------ changes in place


@pytest.mark.parametrize("grad", [False, True])
@pytest.mark.parametrize("chunk", [1, 3])
def test_a_carry_changed_in_place(chunk, grad):
    weight = numbers(WIDTH)

    def f(h, x):
        h = h * weight if grad else h
        h.add_(x)
        h.mul_(0.5)
        return h, h.clone() * weight

    init = numbers(WIDTH, grad=grad)
    before = init.detach().clone()
    compare(f, init, numbers(T, WIDTH, grad=grad), [weight], chunk=chunk)
    assert torch.equal(init, before)


@pytest.mark.parametrize("chunk", [1, 3])
def test_an_input_changed_in_place_is_right_or_refused(chunk):
    weight = numbers(WIDTH)

    def f(h, x):
        x.mul_(2)
        h = (h * weight + x).tanh()
        return h, h

    xs = numbers(T, WIDTH, grad=False)
    before = xs.clone()
    h, hs = loop(f, torch.ones(WIDTH), xs)
    wanted = gradients(weighted(h, hs), [weight])
    changed = before.clone()
    try:
        found_h, found_hs = ebb.scan(f, torch.ones(WIDTH), changed, budget=600, chunk=chunk)
        found = gradients(weighted(found_h, found_hs), [weight])
    except ebb.Error as error:
        assert "in place" in str(error)
    else:
        same((found_h, found_hs, found), (h, hs, wanted))
        assert torch.equal(changed, xs) or torch.equal(changed, before)


def test_results_changed_in_place_by_the_caller():
    weight = numbers(WIDTH)

    def f(h, x):
        h = (h * weight + x).sin()
        return h, h * 2

    init, xs = numbers(WIDTH), numbers(T, WIDTH)

    def run(scan, **options):
        own = clones([init, xs])
        h, hs = scan(f, *own, **options)
        h.mul_(3)
        hs[2] = 0
        hs += 1
        return h, hs, gradients(weighted(h, hs), [*own, weight])

    same(run(ebb.scan, budget=least(f, init, xs, chunk=1), chunk=1), run(loop))


# ------------------------------------------------------------------------------------------------ hooks


def test_hooks_of_parameters_and_arguments_see_the_whole_gradient_once():
    cell = torch.nn.GRUCell(WIDTH, WIDTH)

    def f(h, x):
        h = cell(x, h)
        return h, h

    init, xs = numbers(BATCH, WIDTH), numbers(T, BATCH, WIDTH)
    small = least(f, init, xs, chunk=1)

    def run(scan, **options):
        own = clones([init, xs])
        seen = []
        handles = [
            tensor.register_hook(lambda g: seen.append(g.clone()) or g * 2) for tensor in [*own, *cell.parameters()]
        ]
        after = []
        handles += [
            p.register_post_accumulate_grad_hook(lambda p: after.append(p.grad.clone())) for p in cell.parameters()
        ]
        h, hs = scan(f, *own, **options)
        found = gradients(weighted(h, hs), [*own, *cell.parameters()])
        for handle in handles:
            handle.remove()
        key = lambda g: (g.numel(), float(g.sum()))
        return sorted(seen, key=key), sorted(after, key=key), found

    same(run(ebb.scan, budget=small, chunk=1), run(loop))


def test_hooks_inside_of_f_run_once_for_each_time_step():
    weight = numbers(WIDTH)
    seen = []

    def f(h, x):
        h = (h * weight + x).tanh()
        if h.requires_grad:
            h.register_hook(lambda g: seen.append(float(g.sum())) or g.clamp(-0.5, 0.5))
        return h, h.clone()

    init, xs = numbers(WIDTH), numbers(T, WIDTH)
    wanted = gradients(weighted(*loop(f, init, xs)), [init, xs, weight])
    calls, small = list(seen), least(f, init, xs, chunk=1)
    ebb.scan(f, init, xs, budget=small, chunk=1)
    h, hs = ebb.scan(f, init, xs, budget=small, chunk=1)
    seen.clear()
    same(gradients(weighted(h, hs), [init, xs, weight]), wanted)
    assert seen == calls


def test_hooks_of_modules():
    cell = torch.nn.RNNCell(WIDTH, WIDTH)
    handles = [
        cell.register_forward_hook(lambda module, given, out: out * 0.5),
        cell.register_forward_pre_hook(lambda module, given: (given[0] + 1, given[1])),
        cell.register_full_backward_hook(lambda module, into, out: (into[0] * 2, into[1])),
    ]

    def f(h, x):
        h = cell(x, h)
        return h, h

    for chunk in (1, 3):
        compare(f, numbers(BATCH, WIDTH), numbers(T, BATCH, WIDTH), cell.parameters(), chunk=chunk)
    for handle in handles:
        handle.remove()

# SPDX-License-Identifier: Apache-2.0
"""What callers do with the results of ebb.scan: parts of a loss, several backwards, other modes, failures."""

from __future__ import annotations

import itertools
import types

import pytest

torch = pytest.importorskip("torch", reason="PyTorch is not installed")
from scan_oracle import clones, compare, gradients, least, loop, same, wanting, weighted  # noqa: E402

import ebb  # noqa: E402

torch.set_num_threads(1)
T, BATCH, WIDTH = 20, 2, 3


@pytest.fixture(autouse=True)
def seed() -> None:
    torch.manual_seed(1)


def numbers(*shape: int, grad: bool = True) -> torch.Tensor:
    return torch.randn(*shape).requires_grad_(grad)


class Case:
    def __init__(self, chunk: int = 1):
        self.cell = torch.nn.GRUCell(WIDTH, WIDTH)
        self.params = list(self.cell.parameters())
        self.init, self.xs = numbers(BATCH, WIDTH), numbers(T, BATCH, WIDTH)
        self.leaves = [self.init, self.xs, *self.params]
        self.options = {"budget": least(self.f, self.init, self.xs, chunk=chunk), "chunk": chunk}

    def f(self, h, x):
        h = self.cell(x, h)
        return h, (h, h * 2)

    def run(self, scan, f=None):
        options = self.options if scan is ebb.scan else {}
        return scan(f or self.f, self.init, self.xs, **options)


@pytest.fixture(params=[1, 3])
def case(request) -> Case:
    return Case(request.param)


# ------------------------------------------------------------------------------------------------ losses


@pytest.mark.parametrize(
    "loss",
    [
        lambda h, ys: weighted(h),
        lambda h, ys: weighted(ys),
        lambda h, ys: weighted(ys[0]),
        lambda h, ys: weighted(ys[1]),
        lambda h, ys: ys[0][3].sum(),
        lambda h, ys: ys[1][::4].pow(2).sum(),
        lambda h, ys: ys[0][-1, 0, 0],
        lambda h, ys: ys[0][0].sum() + h.prod(),
        lambda h, ys: (ys[0] * ys[1]).mean() + ys[0].max(),
        lambda h, ys: ys[0].transpose(0, 1).reshape(BATCH, -1)[:, ::3].sin().sum(),
    ],
    ids=["carry", "ys", "first", "second", "a step", "some steps", "one number", "both ends", "products", "views"],
)
@pytest.mark.sweep(10)
def test_a_loss_on_a_part(case, loss):
    compare(case.f, case.init, case.xs, case.params, loss=loss, **case.options)


def test_a_second_backward_over_a_retained_graph(case):
    for scan in (loop, ebb.scan):
        h, ys = case.run(scan)
        loss = weighted(h, ys)
        for leaf in case.leaves:
            leaf.grad = None
        loss.backward(retain_graph=True)
        once = [leaf.grad.clone() for leaf in case.leaves]
        loss.backward(retain_graph=True)
        loss.backward()
        if scan is loop:
            wanted = once, [leaf.grad.clone() for leaf in case.leaves]
        with pytest.raises(RuntimeError, match="second time|freed"):
            loss.backward()
    same((once, [leaf.grad for leaf in case.leaves]), wanted)


def test_two_losses_over_one_scan(case):
    found = []
    for scan in (loop, ebb.scan):
        h, ys = case.run(scan)
        first = torch.autograd.grad(weighted(h), case.leaves, retain_graph=True)
        second = torch.autograd.grad(weighted(ys), case.leaves, retain_graph=True)
        found.append((first, second, torch.autograd.grad(weighted(h), case.params[:1])))
    same(found[1], found[0])


def test_a_retained_graph_with_dropout_and_buffers():
    norm = torch.nn.BatchNorm1d(WIDTH)
    steps = 100
    init, xs = numbers(4, WIDTH), numbers(steps, 4, WIDTH)

    def f(h, x):
        h = torch.nn.functional.dropout(norm(h + x), 0.3).tanh()
        return h, h

    found = []
    for scan in (loop, ebb.scan):
        norm.reset_running_stats()
        torch.manual_seed(3)
        options = {"budget": 6 * torch.get_rng_state().numel(), "chunk": 1} if scan is ebb.scan else {}
        h, hs = scan(f, init, xs, **options)
        stats = norm.running_mean.clone(), norm.num_batches_tracked.clone()
        loss = weighted(h, hs)
        first = torch.autograd.grad(loss, [init, xs], retain_graph=True)
        second = torch.autograd.grad(loss, [init, xs])
        found.append((first, second, stats, norm.running_mean.clone(), norm.num_batches_tracked.clone(), torch.rand(2)))
    same(found[1], found[0])
    assert ebb.last_report().predicted["forwards"] > steps


def test_a_parameter_changed_between_forward_and_backward_is_an_error(case):
    h, ys = case.run(ebb.scan)
    with torch.no_grad():
        case.params[0].add_(1)
    with pytest.raises(RuntimeError, match="inplace"):
        weighted(h, ys).backward()


def test_no_backward_at_all_leaves_nothing(case):
    budget = ebb.Budget(case.options["budget"] * 2)
    for _ in range(3):
        h, ys = ebb.scan(case.f, case.init, case.xs, budget=budget, chunk=case.options["chunk"])
        assert budget.held > 0 or case.options["chunk"] > 1
        del h, ys
        assert budget.held == 0


# ------------------------------------------------------------------------------------------------ modes


def test_without_gradients(case):
    wanted = case.run(loop)
    for mode in (torch.no_grad, torch.inference_mode):
        with mode():
            h, ys = case.run(ebb.scan)
        assert not h.requires_grad and not ys[0].requires_grad
        same((h.clone(), [y.clone() for y in ys]), wanted)
    with torch.set_grad_enabled(False):
        ebb.scan(case.f, case.init, case.xs, budget=0)


def test_second_derivatives_are_refused(case):
    h, ys = case.run(ebb.scan)
    with pytest.raises(ebb.Error, match="create_graph"):
        torch.autograd.grad(weighted(h, ys), case.params, create_graph=True)
    # Where all fits plain autograd ran, which has them.
    h, ys = ebb.scan(case.f, case.init, case.xs, budget="1GiB")
    first = torch.autograd.grad(weighted(h), case.init, create_graph=True)[0]
    assert torch.autograd.grad(first.sum(), case.init)[0].any()


def test_transforms_and_forward_mode_are_refused(case):
    scan = lambda init: ebb.scan(case.f, init, case.xs, **case.options)[0].sum()
    many = torch.stack([case.init.detach(), case.init.detach()])
    with pytest.raises(ebb.Error, match="vmap"):
        torch.func.vmap(scan)(many)
    with pytest.raises(ebb.Error, match="torch.func"):
        torch.func.grad(scan)(case.init.detach())
    with pytest.raises(ebb.Error, match="torch.func|forward-mode"):
        torch.func.jvp(scan, (case.init.detach(),), (torch.ones_like(case.init),))
    with torch.autograd.forward_ad.dual_level():
        with pytest.raises(ebb.Error, match="forward-mode"):
            scan(torch.autograd.forward_ad.make_dual(case.init.detach(), torch.ones_like(case.init)))
        weight = torch.autograd.forward_ad.make_dual(torch.ones(WIDTH), torch.ones(WIDTH))
        with pytest.raises((ebb.Error, RuntimeError), match="forward-mode|jvp"):
            ebb.scan(lambda h, x: ((h * weight).tanh() + x,) * 2, case.init, case.xs, **case.options)
    compare(case.f, case.init, case.xs, case.params, **case.options)


def test_derivatives_inside_of_f():
    weight = numbers(WIDTH)

    def f(h, x):
        with torch.enable_grad():
            given = h if h.requires_grad else h.detach().requires_grad_()
            energy = (given * weight).cos().sum()
            (force,) = torch.autograd.grad(energy, given, create_graph=True)
        h = h - 0.1 * force + x
        return h, h

    for chunk in (1, 3):
        compare(f, numbers(WIDTH), numbers(T, WIDTH), [weight], chunk=chunk)


def test_a_scan_inside_of_a_scan():
    cell = torch.nn.RNNCell(WIDTH, WIDTH)

    def inner(h, x):
        h = cell(x, h)
        return h, h

    def nested(scan, **options):
        def f(h, block):
            h, hs = scan(inner, h, block, **options)
            return h, hs.mean(0)

        return f

    init, xs = numbers(BATCH, WIDTH), numbers(8, 10, BATCH, WIDTH)
    small = least(inner, init, xs[0], chunk=1)
    wanted = gradients(weighted(*loop(nested(loop), init, xs)), [init, xs, *cell.parameters()])
    f = nested(ebb.scan, budget=small, chunk=1)
    h, ys = ebb.scan(f, init, xs, budget=2 * least(f, init, xs, chunk=1), chunk=1)
    found = gradients(weighted(h, ys), [init, xs, *cell.parameters()])
    same(found[:2], wanted[:2])
    # The inner scans hand the weights' gradients over as sums of ten.
    for ours, theirs in zip(found[2:], wanted[2:]):
        assert torch.allclose(ours, theirs, rtol=0, atol=float(theirs.abs().max()) * 80 * 2.0**-23)


@pytest.mark.parametrize("reentrant", [False, True])
@pytest.mark.sweep(2)
def test_a_scan_inside_of_a_checkpoint(case, reentrant):
    from torch.utils.checkpoint import checkpoint

    wanted = gradients(weighted(*case.run(loop)), case.leaves)
    for _ in range(2):
        h, first, second = checkpoint(
            lambda init, xs: (lambda h, ys: (h, *ys))(*ebb.scan(case.f, init, xs, **case.options)),
            case.init,
            case.xs,
            use_reentrant=reentrant,
        )
        same(gradients(weighted(h, (first, second)), case.leaves), wanted)


def test_a_checkpoint_sees_the_same_whether_tapes_are_weighed_or_watched(monkeypatch):
    from torch.utils.checkpoint import checkpoint

    case, turns = Case(), itertools.cycle([True, False])
    case.run(ebb.scan)[0].sum().backward()
    monkeypatch.setattr("ebb._loop.growth.Growth.serves", lambda *given: next(turns))
    for _ in range(2):
        h, ys = checkpoint(
            lambda init, xs: ebb.scan(case.f, init, xs, **case.options), case.init, case.xs, use_reentrant=False
        )
        weighted(h, ys).backward()


# ------------------------------------------------------------------------------------------------ failures


class Broken(Exception):
    pass


@pytest.mark.parametrize("where", [0, 1, 9, T - 1])
@pytest.mark.parametrize("kind", [Broken, KeyboardInterrupt, SystemExit, StopIteration, RuntimeError, ebb.Error])
@pytest.mark.sweep(7)
def test_what_f_raises_comes_through_and_harms_nothing(case, where, kind):
    error = kind("of the user's own")
    broken = torch.arange(T) == where

    def f(h, x):
        x, bad = x
        if bad:
            raise error
        return case.f(h, x)

    with pytest.raises(kind) as caught:
        ebb.scan(f, case.init, (case.xs, broken), **case.options)
    assert caught.value is error
    assert torch.is_grad_enabled() and not torch.is_inference_mode_enabled()
    compare(case.f, case.init, case.xs, case.params, **case.options)


def test_what_f_raises_when_it_runs_again_comes_through(case):
    # Counted where ebb does not put it back.
    calls, switch.breaks = itertools.count(), (0, 10**9)

    def f(h, x):
        if next(calls) - switch.breaks[0] == switch.breaks[1]:
            raise Broken
        return case.f(h, x)

    wanted = gradients(weighted(*case.run(loop)), case.leaves)
    budget = ebb.Budget(case.options["budget"] * 2)
    shared = {"budget": budget, "chunk": case.options["chunk"]}
    ebb.scan(f, case.init, case.xs, **shared)
    h, ys = ebb.scan(f, case.init, case.xs, **shared)
    loss = weighted(h, ys)
    for after in (1, 5):
        switch.breaks = next(calls), after
        with pytest.raises(Broken):
            loss.backward(retain_graph=True)
        for leaf in case.leaves:
            assert leaf.grad is None
    switch.breaks = 0, 10**9
    same(gradients(loss, case.leaves), wanted)
    del h, ys, loss
    assert budget.held == 0
    compare(case.f, case.init, case.xs, case.params, **case.options)


# Where ebb does not look: what a caller changes elsewhere after a forward is not seen by its backward.
switch = types.ModuleType("sys.switch")  # as modules of Python itself are called


class Fails(torch.autograd.Function):
    error = Broken("backward")

    @staticmethod
    def forward(ctx, x, t):
        ctx.t = int(t)
        return x.clone()

    @staticmethod
    def backward(ctx, gradient):
        if ctx.t == switch.at:
            raise Fails.error
        return gradient, None


@pytest.mark.parametrize("where", [0, 7, T - 1])
@pytest.mark.sweep(3)
def test_what_a_backward_raises_comes_through(case, where):
    def f(h, x):
        x, t = x
        return case.f(Fails.apply(h, t), x)

    switch.at = -1
    xs = (case.xs, torch.arange(T))
    small = least(f, case.init, xs, chunk=case.options["chunk"])
    options = {"budget": small, "chunk": case.options["chunk"]}
    ebb.scan(f, case.init, xs, **options)
    wanted = gradients(weighted(*loop(f, case.init, xs)), case.leaves)
    h, ys = ebb.scan(f, case.init, xs, **options)
    switch.at = where
    loss = weighted(h, ys)
    with pytest.raises(Broken) as caught:
        loss.backward(retain_graph=True)
    assert caught.value is Fails.error
    switch.at = -1
    same(gradients(loss, case.leaves), wanted)
    same(gradients(weighted(*ebb.scan(f, case.init, xs, **options)), case.leaves), wanted)


def test_hooks_are_there_after_a_failure(case):
    seen = []
    handle = case.params[0].register_hook(lambda g: seen.append(g))
    switch.at = -1
    xs = (case.xs, torch.arange(T))

    def f(h, x):
        x, t = x
        return case.f(Fails.apply(h, t), x)

    h, ys = ebb.scan(f, case.init, xs, budget=least(f, case.init, xs, chunk=1), chunk=1)
    switch.at = 3
    with pytest.raises(Broken):
        weighted(h, ys).backward(retain_graph=True)
    switch.at = -1
    assert not seen
    weighted(h, ys).backward()
    assert len(seen) == 1
    handle.remove()


def test_backward_in_another_thread(case):
    import threading

    wanted = gradients(weighted(*case.run(loop)), case.leaves)
    h, ys = case.run(ebb.scan)
    for leaf in case.leaves:
        leaf.grad = None
    thread = threading.Thread(target=weighted(h, ys).backward)
    thread.start()
    thread.join()
    same([leaf.grad for leaf in case.leaves], wanted)
    assert wanting(clones(case.leaves))


@pytest.mark.sweep(6)
@pytest.mark.parametrize("uses", [False, True])
@pytest.mark.parametrize("chunk", [1, 4, 5])
@pytest.mark.parametrize("every", [3, 7, 13, 1000])
def test_a_tensor_that_is_the_output_of_many_steps(every, chunk, uses):
    """It stays in the carry for a while; autograd adds up its gradients as outputs first, in the order of time."""
    torch.manual_seed(0)
    weight = torch.randn(5, 5, requires_grad=True)

    def f(carry, x):
        t, h, kept = carry
        h = torch.tanh(h @ weight + x)
        if int(t) % every == 0:
            kept = h * 1.5
        if uses:
            h = h + 0.1 * kept
        return (t + 1, h, kept), (kept, h)

    init = torch.tensor(0), torch.zeros(3, 5), torch.ones(3, 5, requires_grad=True)
    compare(f, init, torch.randn(40, 3, 5), [weight], chunk=chunk)


# ------------------------------------------------------------------------------------------------ hooks of tensors in f


def hooked(asked, into, out):
    """Gradients of the carry are changed on their way back: of what f gets, or of what it returns."""
    cell = torch.nn.GRUCell(WIDTH, WIDTH)

    def f(h, x):
        if into and (not asked or h.requires_grad):
            h.register_hook(lambda gradient: gradient.clamp(-0.1, 0.1))
        h = cell(x, h)
        if out and (not asked or h.requires_grad):
            h.register_hook(lambda gradient: gradient.clamp(-0.1, 0.1) * 0.9)
        return h, h

    return f, list(cell.parameters())


@pytest.mark.parametrize("chunk", [1, 3])
@pytest.mark.parametrize("into", [True, False])
def test_hooks_on_tensors_of_f(chunk, into):
    f, params = hooked(True, into, not into)
    compare(f, numbers(BATCH, WIDTH), numbers(40, BATCH, WIDTH), params, chunk=chunk)


def test_hooks_on_tensors_without_gradient_have_a_remedy():
    f, params = hooked(False, True, False)
    init, xs = numbers(BATCH, WIDTH), numbers(40, BATCH, WIDTH)
    with pytest.raises(ebb.Error, match="scan: f registers a hook.*if h.requires_grad: h.register_hook"):
        ebb.scan(f, init, xs, budget="4KiB", chunk=1)
    with pytest.raises(ebb.Error, match="while_loop: f registers a hook.*requires_grad"):
        ebb.while_loop(lambda h: True, lambda h: f(h, xs[0])[0], init, budget="4KiB")
    with pytest.raises(RuntimeError, match="cannot register a hook"):
        ebb.scan(f, init.detach(), xs.detach())

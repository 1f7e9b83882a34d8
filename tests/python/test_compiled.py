# SPDX-License-Identifier: Apache-2.0
"""`ebb.compiled`: what torch.compile keeps for the backward pass. Graphs run operation by operation here, so that the same operations
give the same bits wherever they run; test_compiled_inductor.py has them compiled."""

from __future__ import annotations

import copy
import itertools
import math
import random
from typing import Any

import pytest

torch = pytest.importorskip("torch")
from compiled_cases import MODELS, Stock, by_operation, gradients, residual  # noqa: E402
from torch import nn  # noqa: E402

import ebb  # noqa: E402
from ebb._compiled.choose import Chooser  # noqa: E402
from ebb._compiled.joint import Event, Value  # noqa: E402


@pytest.fixture(autouse=True)
def _by_operation(monkeypatch: pytest.MonkeyPatch) -> Any:
    yield from by_operation(monkeypatch)


def least_share(model: nn.Module, x: Any) -> float:
    with pytest.raises(Exception, match="holds at least") as refused:
        gradients(model, x, ebb.compiled(budget="1KiB"))
    return float(str(refused.value).split("holds at least")[1].split(", ")[1].split(" %")[0])


@pytest.mark.sweep(1)
@pytest.mark.parametrize("name", MODELS)
def test_gradients_have_the_same_bits_in_every_budget(name: str) -> None:
    torch.manual_seed(1)
    model, x = MODELS[name]()
    wanted = gradients(model, x, Stock())
    least = least_share(model, x)
    assert least < 80
    peaks = []
    for budget in (None, "100%", f"{(100 + least) / 2}%", f"{least + 5}%"):
        backend = ebb.compiled(budget=budget, options={"fallback_random": True})
        found = gradients(model, x, backend)
        assert all(map(torch.equal, found, wanted)), budget
        (report,) = backend.reports
        peaks.append(report.peak)
        if budget is not None:
            assert report.peak <= float(budget[:-1]) / 100 * report.stock_peak
    assert peaks[1] > peaks[2] > peaks[3]


@pytest.mark.sweep(2)
@pytest.mark.parametrize("name", MODELS)
@pytest.mark.parametrize("budget", [None, "100%", "70%"])
def test_what_is_kept_is_what_was_told(name: str, budget: str | None) -> None:
    model, x = MODELS[name]()
    known = {one.untyped_storage().data_ptr() for one in (*model.parameters(), *model.buffers(), x)}
    kept: dict[int, int] = {}

    def pack(tensor: Any) -> Any:
        storage = tensor.untyped_storage()
        if storage.data_ptr() not in known:
            kept[storage.data_ptr()] = storage.nbytes()
        return tensor

    backend = ebb.compiled(budget=budget, options={"fallback_random": True})
    run = torch.compile(model, backend=backend)
    with torch.autograd.graph.saved_tensors_hooks(pack, lambda tensor: tensor):
        out = run(x)
    (report,) = backend.reports
    small = 0.1 * report.stock_kept  # statistics of norms in so small a model
    assert report.kept <= sum(kept.values()) <= report.kept + small
    assert report.kept <= report.stock_kept
    del out


def test_random_numbers_are_not_drawn_again() -> None:
    """By the compiler's own generator, which runs outside of it from torch 2.7 on."""
    if tuple(map(int, torch.__version__.split(".")[:2])) < (2, 7):
        pytest.skip("this torch runs the compiler's random numbers in compiled graphs alone")
    x = torch.randn(4, 4096, requires_grad=True)
    backend = ebb.compiled()
    out = torch.compile(lambda x: nn.functional.dropout((2 * x).sin(), 0.5), backend=backend)(x)
    out.sum().backward()
    wanted = torch.where(out == 0, 0.0, 4 * (2 * x).cos())
    torch.testing.assert_close(x.grad, wanted)
    assert backend.reports[0].kept == x.numel() // 8  # a bit for each number


def test_heavy_operations_run_again_only_for_a_budget() -> None:
    model, x = residual()
    cheap, tight = ebb.compiled(), ebb.compiled(budget="55%")
    for backend in (cheap, tight):
        gradients(model, x, backend)
    assert cheap.reports[0].again == ()
    assert cheap.reports[0].kept < 0.7 * cheap.reports[0].stock_kept
    assert tight.reports[0].again
    assert "run again" in str(tight.reports[0])


@pytest.mark.slow
def test_a_larger_budget_never_runs_more_again() -> None:
    model, x = residual(5)
    counts = []
    for share in (45, 60, 75, 100):
        backend = ebb.compiled(budget=f"{share}%")
        gradients(model, x, backend)
        counts.append(len(backend.reports[0].again))
    assert counts == sorted(counts, reverse=True)
    assert counts[-1] == 0


def test_bytes_are_a_budget_too() -> None:
    model, x = residual()
    backend = ebb.compiled(budget="100MiB")
    gradients(model, x, backend)
    report = backend.reports[0]
    assert report.kept == report.stock_kept
    assert report.again == ()


@pytest.mark.slow
def test_sizes_that_change() -> None:
    model, x = residual()
    backend = ebb.compiled(budget="70%")
    run = torch.compile(model, backend=backend, dynamic=True)
    for batch in (4, 6, 3):
        own = torch.randn(batch, *x.shape[1:])
        model.zero_grad()
        run(own).square().mean().backward()
        found = [one.grad.clone() for one in model.parameters()]
        model.zero_grad()
        model(own).square().mean().backward()
        for one, two in zip(found, model.parameters(), strict=True):
            torch.testing.assert_close(one, two.grad, rtol=1e-3, atol=1e-5)
    assert len(backend.reports) == 1


@pytest.mark.slow
def test_graph_breaks_give_a_report_each() -> None:
    model, x = residual()

    def run(x: Any) -> Any:
        middle = model[:6](x)
        torch._dynamo.graph_break()
        return model[6:](middle)

    backend = ebb.compiled(budget="90%")
    torch.compile(run, backend=backend)(x).sum().backward()
    assert len(backend.reports) == 2


def test_checkpoints_are_left_to_torch() -> None:
    model, x = residual()

    def run(x: Any) -> Any:
        return torch.utils.checkpoint.checkpoint(model, x, use_reentrant=False)

    backend = ebb.compiled()
    torch.compile(run, backend=backend)(x).sum().backward()
    assert "checkpoint" in backend.reports[0].left or "calls" in backend.reports[0].left
    assert "left to torch" in str(backend.reports[0])


def test_without_gradients_there_is_nothing_to_report() -> None:
    model, x = residual()
    backend = ebb.compiled(budget="1%")
    run = torch.compile(model.eval(), backend=backend)
    with torch.no_grad():
        torch.testing.assert_close(run(x), model(x), rtol=1e-4, atol=1e-5)
    assert backend.reports == []


def test_a_budget_that_is_too_small_names_the_least() -> None:
    model, x = residual()
    with pytest.raises(Exception, match="compiled: the budget is") as refused:
        gradients(model, x, ebb.compiled(budget="1KiB"))
    error = getattr(refused.value, "inner_exception", refused.value)
    assert isinstance(error, ebb.Error)
    assert error.code == "infeasible_budget"
    backend = ebb.compiled(budget=error.least_budget)
    gradients(model, x, backend)
    assert backend.reports[0].peak <= error.least_budget


def test_a_tiny_graph_is_not_refused_because_of_a_share() -> None:
    model, x = residual()
    backend = ebb.compiled(budget="1%")
    gradients(model, x, backend)
    (report,) = backend.reports
    assert 0.01 * report.stock_peak < report.peak < 0.7 * report.stock_peak


def test_an_input_that_the_model_changes() -> None:
    """What reads it runs in the forward pass alone."""
    weight = torch.randn(64, 64, requires_grad=True)

    def run(x: Any, count: Any) -> Any:
        scaled = (x @ weight) * count.sin()
        count.add_(1)
        return scaled.relu()

    found = []
    for backend in (None, ebb.compiled(budget="70%")):
        weight.grad = None
        torch.manual_seed(0)
        torch._dynamo.reset()
        work = run if backend is None else torch.compile(run, backend=backend)
        count = torch.randn(64, 64)
        work(torch.randn(64, 64), count).sum().backward()
        found.append((weight.grad, count))
    for one, two in zip(*found, strict=True):
        torch.testing.assert_close(one, two)


@pytest.mark.parametrize("budget", [None, "70%"])
def test_statistics_of_an_input_that_the_model_changes(budget: str | None) -> None:
    """They are several results of one operation."""
    torch.manual_seed(0)
    weight = torch.randn(32, 32, requires_grad=True)
    x, start = torch.randn(512, 32), torch.randn(512, 32)

    def run(x: Any, count: Any) -> Any:
        norm = nn.functional.layer_norm(count, (32,))
        var, mean = torch.var_mean(count, 1, keepdim=True)
        h = (x @ weight) * norm * var * mean
        count.mul_(3)
        return h.tanh() * norm

    backend = ebb.compiled(budget=budget)
    found = []
    for work in (run, torch.compile(run, backend=backend)):
        found += torch.autograd.grad(work(x, start.clone()).sum(), weight)
    torch.testing.assert_close(*found)
    assert len(backend.reports) == 1


def test_words_of_torch_compile() -> None:
    model, x = residual()
    run = torch.compile(model, backend=ebb.compiled(), mode="reduce-overhead", options=None)
    run(x).sum().backward()
    run = torch.compile(model, backend=ebb.compiled(), options={"epilogue-fusion": True})
    run(x).sum().backward()
    torch._dynamo.reset()
    with pytest.raises(Exception, match="compiled: mode is 'fastest'; it is one of 'default', "):
        torch.compile(model, backend=ebb.compiled(), mode="fastest")(x)
    with pytest.raises(Exception, match="compiled: options has 'no_such_thing'"):
        torch.compile(model, backend=ebb.compiled(), options={"no_such_thing": 1})(x)


def test_a_deep_chain() -> None:
    """Of as many values as no recursion would take."""
    joint = Numbers(0)
    count = 3000
    joint.values = [
        Value(None, 1, (k - 1,) if k else (), 0.1, False, k, min(k + 1, count - 1), 1) for k in range(count)
    ]
    joint.events = [Event((k,)) for k in reversed(range(count))]
    assert Chooser(joint).run(()).peak == count


def test_ddp(monkeypatch: pytest.MonkeyPatch) -> None:
    """One process; its buckets are graphs of their own."""
    model, x = residual(5)
    monkeypatch.setattr(torch.distributed, "_DEFAULT_FIRST_BUCKET_BYTES", 2000)
    store = torch.distributed.HashStore()
    torch.distributed.init_process_group("gloo", store=store, rank=0, world_size=1)
    try:
        wanted = copy.deepcopy(model)
        wanted(x).square().mean().backward()
        backend = ebb.compiled(budget="70%")
        wrapped = nn.parallel.DistributedDataParallel(model, bucket_cap_mb=0.005)
        torch.compile(wrapped, backend=backend)(x).square().mean().backward()
        assert len(backend.reports) > 1
        for one, two in zip(model.parameters(), wanted.parameters(), strict=True):
            torch.testing.assert_close(one.grad, two.grad, rtol=1e-3, atol=1e-5)
    finally:
        torch.distributed.destroy_process_group()


@pytest.mark.parametrize("budget", ["lots", "0%", -1, "memory", 1.5, True])
def test_what_is_no_budget(budget: Any) -> None:
    with pytest.raises(ebb.Error, match="compiled: budget"):
        ebb.compiled(budget=budget)


def test_unknown_options_are_refused() -> None:
    with pytest.raises(ebb.Error, match="no_such_thing"):
        ebb.compiled(options={"no_such_thing": 1})


class Numbers:
    """A made-up step: each value is computed from the one before it, some from two; the backward pass reads them last first."""

    def __init__(self, seed: int):
        random.seed(seed)
        count = random.randint(3, 8)
        self.values = []
        for k in range(count):
            needs = {k - 1} if k else set()
            if k > 2 and random.random() < 0.4:
                needs.add(random.randrange(k))
            heavy = random.random() < 0.6
            seconds = math.inf if random.random() < 0.1 else random.uniform(1, 5) if heavy else 0.1
            size = random.randint(1, 9)
            self.values.append(Value(None, size, tuple(sorted(needs)), seconds, heavy, k, min(k + 1, count - 1), size))
        self.events = [
            Event(
                tuple(sorted({k, *(one for one in (k - 1,) if one >= 0 and random.random() < 0.5)})),
                random.randint(0, 4),
            )
            for k in reversed(range(count))
        ]


def peak_of(joint: Any, kept: set[int]) -> tuple[int, float] | None:
    """By hand: what is in memory at each moment of a step that keeps `kept`; None: something cannot be computed."""
    there: dict[int, int] = {}
    peak, seconds = 0, 0.0
    for k, value in enumerate(joint.values):
        there[k] = value.bytes
        peak = max(peak, sum(there.values()))
        there = {one: size for one, size in there.items() if one in kept or joint.values[one].gone > k}
    reads: list[list[int]] = []
    known = set(kept)
    for event in joint.events:
        order: list[int] = []

        def compute(k: int) -> bool:
            if k in known:
                order.append(k)
                return True
            if joint.values[k].seconds == math.inf or not all(compute(one) for one in joint.values[k].needs):
                return False
            known.add(k)
            order.append(k)
            return True

        if not all(compute(k) for k in event.needs):
            return None
        reads.append(order)
    last = {k: moment for moment, order in enumerate(reads) for k in order}
    if set(kept) - set(last):
        return None
    now = set(kept)
    for moment, (event, order) in enumerate(zip(joint.events, reads, strict=True)):
        seconds += sum(joint.values[k].seconds for k in set(order) - now)
        now |= set(order)
        peak = max(peak, sum(joint.values[k].bytes for k in now) + event.gradients)
        now = {k for k in now if last[k] > moment}
    return peak, seconds


@pytest.mark.sweep(10)
@pytest.mark.parametrize("seed", range(40))
def test_against_all_ways(seed: int) -> None:
    joint = Numbers(seed)
    chooser = Chooser(joint)
    ways = [
        set(kept) for n in range(len(joint.values) + 1) for kept in itertools.combinations(range(len(joint.values)), n)
    ]
    points = [(found, kept) for kept in ways if (found := peak_of(joint, kept)) is not None]
    lowest = min(found[0] for found, _ in points)
    for budget in range(lowest, chooser.stock.peak + 1):
        course = chooser.within(budget)
        best = min(found[1] for found, _ in points if found[0] <= budget)
        if course is None:
            assert budget < 1.35 * lowest
            continue
        assert peak_of(joint, set(course.kept)) == (course.peak, pytest.approx(course.seconds))
        assert course.peak <= budget
        assert course.seconds <= 2.5 * best + 2

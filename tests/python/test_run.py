# SPDX-License-Identifier: Apache-2.0
"""ebb.run over NumPy steps: the same bits as a plain loop that keeps everything, in any budget, tier and strategy."""

import json
import sys
import threading

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy_steps import RNG, WIDTH, Function, Range, check, plain, same_bits

import ebb


@settings(max_examples=60, deadline=None)
@given(
    kind=st.sampled_from([Function, Range]),
    steps=st.integers(0, 60),
    slots=st.integers(3, 40),
    strategy=st.sampled_from(
        ["auto", "revolve", "msm", "ism", "sqrt", "store_all", "constant", "levels", "mixed", "chain"]
    ),
)
def test_the_same_bits_in_any_budget(kind, steps, slots, strategy):
    budget = slots * 2 * 64 + 5 * 64
    initial = RNG.normal(size=WIDTH)
    try:
        found = check(kind(steps), initial, budget=budget, strategy=strategy)
    except ebb.Error as error:
        assert error.code == "infeasible_budget" and error.least_budget > budget
        found = check(kind(steps), initial, budget=error.least_budget, strategy=strategy)
        budget = error.least_budget
    assert found.report.booked <= budget


@pytest.mark.parametrize("kind", [Function, Range])
@pytest.mark.parametrize("tier", ["ram", "disk"])
@pytest.mark.parametrize(
    "strategy, steps", [("auto", 150), ("async", 100), ("disk_revolve", 60), ("single_remote", 80)]
)
@pytest.mark.sweep(6)
def test_the_same_bits_with_tiers(kind, tier, strategy, steps, tmp_path):
    tiers = ebb.memory_tier("64KiB") if tier == "ram" else [ebb.file_tier(tmp_path, "64KiB")]
    found = check(kind(steps), np.ones(WIDTH), budget=900, tiers=tiers, strategy=strategy)
    assert found.report.booked <= 900
    assert found.report.tiers == [tier]


class Swapping:
    """A state of two arrays, which forward gives back in another order: what it returns are views of what it got."""

    steps = 25

    def forward(self, i, state):
        u, v = state
        return 0.5 * u + v.astype(np.float64).sum(), v[::-1]

    def backward(self, i, before, after, adjoint):
        a, b = adjoint
        return 0.5 * a, (b[::-1] + np.float32(a.sum())).astype(np.float32)


class Rotating:
    """Arrays that only change places, forward and back."""

    steps = 7

    def forward(self, i, state):
        return state[2], state[0], state[1]

    def backward(self, i, before, after, adjoint):
        return adjoint[1], adjoint[2], adjoint[0]


@pytest.mark.parametrize("budget", [None, 2000])
@pytest.mark.parametrize("steps", [7, 8])
def test_states_of_several_arrays(budget, steps):
    step = Rotating()
    step.steps = steps
    initial = tuple(np.full(3, float(k)) for k in range(3))
    seed = tuple(np.full(3, 10.0 + k) for k in range(3))
    found = ebb.run(step, initial, adjoint=seed, budget=budget)
    expected, back = initial, seed
    for _ in range(steps):
        expected, back = step.forward(0, expected), step.backward(0, None, None, back)
    assert [a.tolist() for a in found.final] == [a.tolist() for a in expected]
    assert [a.tolist() for a in found.gradient] == [a.tolist() for a in back]


def test_types_and_shapes_are_kept():
    initial = (np.ones((2, 3)), np.ones(4, np.float32))
    found = ebb.run(Swapping(), initial, adjoint=lambda final: final, budget=3000)
    all_kept = ebb.run(Swapping(), initial, adjoint=lambda final: final)
    for one, other, start in zip(found.gradient, all_kept.gradient, initial):
        assert same_bits(one, other) and one.shape == start.shape and one.dtype == start.dtype


class Cubic:
    """u' = u - u^3/10, for numbers as for arrays."""

    steps = 20

    def forward(self, i, u):
        return u - 0.1 * u**3

    def backward(self, i, before, after, adjoint):
        return adjoint * (1 - 0.3 * before**2)


class CubicOfFloats(Cubic):
    """Returns Python's own numbers."""

    def forward(self, i, u):
        return float(super().forward(i, u))

    def backward(self, i, before, after, adjoint):
        return float(super().backward(i, before, after, adjoint))


class CubicRange:
    """The same, in place."""

    steps = 20
    tape = 0.0

    def advance(self, start, end, state, first):
        for _ in range(start, end):
            state -= 0.1 * state**3

    def record(self, start, end, state, tapes, after, first):
        for i in range(end - start):
            tapes[i] = state
            state -= 0.1 * state**3
            after[i] = state

    def reverse(self, start, end, tapes, after, adjoint):
        for i in reversed(range(end - start)):
            adjoint *= 1 - 0.3 * tapes[i] ** 2


@pytest.mark.parametrize("step", [Cubic(), CubicOfFloats(), CubicRange()], ids=lambda step: type(step).__name__)
@pytest.mark.parametrize("initial", [0.9, np.float64(0.9), np.array(0.9)], ids=repr)
@pytest.mark.parametrize("seed", [1.0, 1, np.ones_like], ids=["float", "int", "function"])
@pytest.mark.parametrize("budget", [None, 700])
def test_a_state_may_be_a_number(step, initial, seed, budget):
    found = ebb.run(step, initial, adjoint=seed, budget=budget)
    of_one = ebb.run(Cubic(), np.array([float(initial)]), adjoint=np.ones(1))
    assert found.final.shape == found.gradient.shape == ()
    assert same_bits(found.final, of_one.final[0]) and same_bits(found.gradient, of_one.gradient[0])


def test_numbers_beside_arrays():
    class Sum:
        steps = 5

        def forward(self, i, state):
            total, u = state
            return total + u.sum(), 0.5 * u

        def backward(self, i, before, after, adjoint):
            return adjoint[0], 0.5 * adjoint[1] + adjoint[0]

    found = ebb.run(Sum(), (0.0, np.ones(3)), adjoint=(1, np.zeros(3)))
    assert float(found.final[0]) == 3 * (2 - 2.0**-4)
    assert found.gradient[1].tolist() == [2 - 2.0**-4] * 3
    with pytest.raises(
        ebb.Error, match="forward of step 0, array 0, gave .*; begin with a floating-point number there"
    ):
        ebb.run(Sum(), (0, np.ones(3)), adjoint=(1, np.zeros(3)))


@pytest.mark.parametrize("step", [Cubic(), CubicRange()], ids=lambda step: type(step).__name__)
@pytest.mark.parametrize("initial", [1, True, np.array(1), np.ones(3, int), (1, 2)], ids=repr)
def test_whole_numbers_alone_are_refused(step, initial):
    with pytest.raises(ebb.Error, match="initial state has whole numbers only.*; begin with floating-point numbers"):
        ebb.run(step, initial, adjoint=np.ones_like)


class Until:
    """Halves until it is small: the length is known only when it is there."""

    steps = None

    def __init__(self):
        self.seen = []

    def begin(self):
        self.seen.clear()

    def forward(self, i, state):
        return state / 2

    def backward(self, i, before, after, adjoint):
        return adjoint / 2

    def ended(self, i, state):
        return bool(state[0] < 1)

    def first(self, i, state):
        self.seen.append(i)


@pytest.mark.parametrize("value, steps", [(0.5, 0), (1.5, 1), (100.0, 7), (2.0**400, 401)])
@pytest.mark.parametrize("tiers", [False, True])
def test_an_unknown_length(value, steps, tiers):
    step = Until()
    given = ebb.memory_tier("1MiB") if tiers else None
    found = ebb.run(step, np.array([value]), adjoint=np.ones(1), budget="4KiB", tiers=given, expected_steps=50)
    assert found.steps == steps and step.seen == list(range(steps))
    assert found.gradient[0] == 0.5**steps and found.final[0] == value / 2.0**steps


def test_only_forward_steps_run_before_the_run():
    """A step without begin that adds up gradients of its own gets them once."""

    class Counting(Function):
        begin = property()

    step = Counting(40)
    assert not hasattr(step, "begin")
    found = ebb.run(step, np.ones(WIDTH), adjoint=np.cos, budget=1200)
    _, adjoint, gradient = plain(40, np.ones(WIDTH), np.cos)
    assert same_bits(step.gradient, gradient) and same_bits(found.gradient, adjoint)
    assert len(step.firsts) == 40


def test_losses_of_the_steps_themselves():
    class Summing(Function):
        def backward(self, i, before, after, adjoint):
            return super().backward(i, before, after, adjoint + after)

    step = Summing(30)
    found = ebb.run(step, np.ones(WIDTH), adjoint=None, budget=1200)
    other = ebb.run(step, np.ones(WIDTH), adjoint=np.zeros(WIDTH))
    between = ebb.run(step, np.ones(WIDTH), adjoint=lambda final: None)
    assert same_bits(found.gradient, other.gradient) and np.any(found.gradient != 0)
    assert same_bits(found.gradient, between.gradient)


class Mine(Exception):
    pass


@pytest.mark.parametrize("where", ["forward", "backward", "begin", "first"])
@pytest.mark.parametrize("kind", [Mine, KeyboardInterrupt])
def test_what_a_step_raises_comes_through(where, kind):
    raised = kind("at step 13")

    class Broken(Function):
        armed = True

    def failing(self, *arguments):
        if self.armed and (where == "begin" or arguments[0] == 13):
            raise raised
        return getattr(Function, where)(self, *arguments)

    setattr(Broken, where, failing)
    step = Broken(40)
    before = sys.getrefcount(step)
    with pytest.raises(kind) as found:
        ebb.run(step, np.ones(WIDTH), adjoint=np.cos, budget=1200)
    assert found.value is raised
    step.armed = False
    found = None
    raised.__traceback__ = None
    check(step, np.ones(WIDTH), budget=1200)
    assert sys.getrefcount(step) == before


def test_inputs_are_not_touched_and_states_cannot_be_changed():
    class Careless(Function):
        def forward(self, i, state):
            state += 1
            return state

    initial = np.ones(WIDTH)
    with pytest.raises(ValueError, match="read-only"):
        ebb.run(Careless(3), initial, adjoint=np.cos)
    ebb.run(Function(20), initial, adjoint=np.cos, budget=1200)
    assert np.array_equal(initial, np.ones(WIDTH))


def test_other_threads_go_on():
    """Python's lock is free while a run waits; several runs at a time are none of each other's business."""
    results = {}

    def work(seed):
        initial = np.random.default_rng(seed).normal(size=WIDTH)
        found = ebb.run(Function(100), initial, adjoint=np.cos, budget=1000, tiers=ebb.memory_tier("64KiB"))
        results[seed] = same_bits(found.gradient, plain(100, initial, np.cos)[1])

    threads = [threading.Thread(target=work, args=(seed,)) for seed in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(600)
    assert results == {0: True, 1: True, 2: True}


def broken(**changes):
    step = Function(5)
    for name, value in changes.items():
        setattr(step, name, value)
    return step


class Forgetful(Range):
    def record(self, start, end, state, tapes, after, first):
        super().record(start, end, state, tapes, np.zeros_like(after), first)


@pytest.mark.parametrize(
    "step, words, part",
    [
        (object(), {}, "is no step"),
        (broken(steps=-1), {}, "steps is -1"),
        (broken(steps=None), {}, "neither steps nor ended"),
        (broken(forward=lambda i, u: None), {}, "forward of step 0 gave None"),
        (broken(forward=lambda i, u: u[:2]), {}, r"forward of step 0 gave float64 of shape \(2,\)"),
        (broken(forward=lambda i, u: u + 1j), {}, "complex128"),
        (broken(backward=lambda i, a, b, c: 1.0), {}, "backward of step 4 gave 1.0"),
        (Function(5), {"adjoint": np.ones(3)}, "adjoint gave"),
        (Function(5), {"budget": "much"}, "budget"),
        (Function(5), {"strategy": "luck"}, "luck"),
        (Function(5), {"tiers": ["disk"]}, "no tier"),
        (Forgetful(5), {}, "left another state"),
    ],
)
def test_mistakes_are_named(step, words, part):
    with pytest.raises(ebb.Error, match=part):
        ebb.run(step, np.ones(WIDTH), **{"adjoint": np.cos, **words})


def test_a_budget_that_cannot_work_says_the_least():
    with pytest.raises(ebb.Error) as found:
        ebb.run(Function(50), np.ones(WIDTH), adjoint=np.cos, budget=100)
    assert found.value.code == "infeasible_budget"
    check(Function(50), np.ones(WIDTH), budget=found.value.least_budget)
    with pytest.raises(ebb.Error):
        ebb.run(Function(50), np.ones(WIDTH), adjoint=np.cos, budget=found.value.least_budget - 1)


@pytest.mark.parametrize("initial", [np.array([], float), np.array([object()]), (), None, "0.5", (1.0, "x")])
def test_initial_states_that_cannot_be(initial):
    with pytest.raises(ebb.Error, match="initial state"):
        ebb.run(Function(5), initial, adjoint=np.cos)


def test_a_report_says_what_happened():
    found = ebb.run(Function(200), np.ones(WIDTH), adjoint=np.cos, budget=2000, strategy="revolve")
    text = str(found.report)
    assert "revolve" in text and found.report.strategy == "revolve"
    assert found.report.predicted.forwards > 200
    measured = found.report.measured
    written = json.loads(found.report.json())
    assert measured.steps == found.steps == 200
    for name in ("forwards", "advances", "records", "actions", "seconds", "stall_seconds"):
        assert getattr(measured, name) == written[name]["measured"], name
    assert measured.peak == [written["peak"]["fast"]["measured"]]
    assert measured.first_states == [written["first_states"]["fast"]]
    assert found.report.codec_error is None
    with pytest.raises(AttributeError):
        measured.steps = 3


def test_a_report_has_the_traffic_of_each_tier():
    found = ebb.run(
        Function(60),
        np.ones(WIDTH),
        adjoint=np.cos,
        budget=900,
        tiers=ebb.memory_tier("1MiB"),
        strategy="async",
        costs=ebb.Costs(forward=1.0),  # beside which any tier is fast
    )
    (traffic,) = found.report.measured.tiers
    written = json.loads(found.report.json())["moved"][found.report.tiers[0]]
    for way in ("written", "read"):
        for name in ("states", "tapes", "bytes", "stored"):
            assert getattr(getattr(traffic, way), name) == written[way][name], (way, name)
        assert getattr(traffic, way).busy_seconds == written[way]["seconds"]
    assert traffic.written.bytes > 0

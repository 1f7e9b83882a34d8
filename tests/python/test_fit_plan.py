# SPDX-License-Identifier: Apache-2.0
"""The search for plans against all plans there are, on small instances."""

import itertools
from dataclasses import replace

import pytest

pytest.importorskip("torch", reason="PyTorch is not installed")

from hypothesis import given, settings
from hypothesis import strategies as st

from ebb._fit.plan import KEEP, LayerCall, Option, Planner, evaluate


@st.composite
def nets(draw):
    """Convolutions, norms, ReLUs, gates, dropout and sums in random order, some layers twice, with other options where their
    input is another, some tensors read by two."""
    steps, newest, number = [], 0, 0
    sizes = {0: 0}
    for k in range(draw(st.integers(2, 7))):
        kind = draw(st.sampled_from(["conv", "norm", "relu", "gate", "dropout", "linear", "other"]))
        x = newest if draw(st.booleans()) else draw(st.integers(max(0, newest - 2), newest))
        number += 1
        sizes[number] = draw(st.integers(1, 50))
        seconds = draw(st.integers(0, 20))
        options = [KEEP]
        if kind == "conv":
            options += [Option("compress", 2, bytes=sizes[x] // 4, seconds=seconds)]
        elif kind == "norm":
            options += [Option("recompute"), Option("compress", bytes=sizes[x] // 4, seconds=seconds)]
        elif kind == "linear":
            options += [Option("compress", codec="project", bytes=sizes[x] // 4, seconds=seconds)]
        if kind in ("conv", "norm", "gate") and draw(st.booleans()):
            options += [Option("offload", seconds=draw(st.integers(1, 9)))]
        saved = ((x, x, sizes[x]),) if kind == "other" and draw(st.booleans()) else ()
        again = [step.name for step in steps if step.kind == kind]
        name = draw(st.sampled_from(again)) if again and draw(st.integers(0, 5)) == 0 else f"{kind}{k}"
        steps.append(
            LayerCall(
                name,
                kind,
                x,
                number,
                x,
                sizes[x],
                draw(st.integers(0, 2)),
                saved,
                True,
                kind == "conv" and draw(st.booleans()),
                sizes[x] // 8,
                draw(st.integers(1, 20)),
                draw(st.integers(0, 60)),
                tuple(options),
            )
        )
        newest = number
    return steps


def all_plans(steps, moving):
    ways = {}
    for step in steps:
        ways.setdefault(step.name, {}).update(dict.fromkeys(option.key for option in step.options))
    for keys in itertools.product(*ways.values()):
        yield evaluate(steps, dict(zip(ways, keys)), moving)


@settings(max_examples=150, deadline=None)
@given(nets(), st.floats(0, 1), st.integers(0, 30))
def test_no_plan_is_faster(steps, part, moving):
    plans = list(all_plans(steps, moving))
    peaks = sorted(plan.peak for plan in plans)
    limit = int(peaks[0] + part * (peaks[-1] - peaks[0]))
    best = min((plan.seconds for plan in plans if plan.peak <= limit), default=None)
    found = Planner(steps, moving).solve(limit)
    assert (found is None) == (best is None)
    if found is not None:
        assert found.peak <= limit
        assert found.seconds == pytest.approx(best, rel=1e-9)


@settings(max_examples=60, deadline=None)
@given(nets(), st.integers(0, 30))
def test_least_is_least(steps, moving):
    least = min(plan.peak for plan in all_plans(steps, moving))
    assert min(plan.peak for plan in Planner(steps, moving).least()) == least


def test_many_layers_within_one_percent():
    """Where pairs are put into buckets: against the bound of the relaxation that takes layers in parts."""
    steps = [LayerCall("start", "conv", 0, 1, 0, 0, offers=True)]
    for k in range(1, 301):
        size, seconds = 1000 + 37 * (k * k % 101), 1.0 + (k * 7919 % 97) / 10
        steps.append(
            LayerCall(
                f"a{k}",
                "linear",
                k,
                k + 1,
                k,
                size,
                options=(KEEP, Option("compress", seconds=seconds, bytes=size // 4)),
            )
        )
    whole = evaluate(steps, {}).peak
    limit = int(whole * 0.6)
    found = Planner(steps).solve(limit)
    saved, bound = 0.0, 0.0
    rates = sorted(
        (option.seconds / (step.x_bytes - option.bytes), step.x_bytes - option.bytes, option.seconds)
        for step in steps[1:]
        for option in step.options[1:]
    )
    for _, size, seconds in rates:
        part = min(1.0, (whole - limit - saved) / size)
        if part <= 0:
            break
        saved, bound = saved + part * size, bound + part * seconds
    assert found.peak <= limit and bound <= found.seconds <= 1.01 * bound


def test_a_layer_whose_first_call_reads_data_may_do_in_its_second_what_only_that_can():
    """And one whose last call reads data is still one that moves something."""
    small, moved = Option("compress", 2, bytes=10, seconds=1.0), Option("offload", seconds=1.0)
    first = LayerCall("conv", "conv", 0, 1, 0, 0)
    second = LayerCall("conv", "conv", 1, 2, 1, 100, options=(KEEP, small))
    found = Planner([first, second]).solve(50)
    assert found.options["conv"] == small and (found.peak, found.seconds) == (10, 1.0)
    steps = [replace(second, options=(KEEP, moved)), first]
    assert evaluate(steps, {"conv": moved.key}, 7).peak == 107
    assert evaluate(steps, {"conv": moved.key}, 7).options["conv"] == moved

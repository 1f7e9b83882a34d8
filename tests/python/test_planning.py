# SPDX-License-Identifier: Apache-2.0
"""The planner from Python: against closed forms, published numbers, replay, and the command."""

import json
import math
import os
import pickle
import re
import subprocess

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import ebb
from ebb import _core
from ebb.actions import Advance, Copy, Drop, Record, Reverse

EBB = os.environ.get("EBB_BINARY")


def revolve_forwards(n, s):
    """Griewank and Walther's closed form, the n recorded ones included."""
    r = 0
    while math.comb(s + r, s) < n:
        r += 1
    return n + r * n - math.comb(s + r, r - 1) if r > 0 else n


@pytest.mark.parametrize("n, s", [(10, 1), (10, 3), (50, 7), (100, 5), (1000, 20), (1000, 80)])
def test_revolve_has_the_forwards_of_the_closed_form(n, s):
    found = ebb.plan(n, strategy="revolve", slots=s)
    assert found.forwards == revolve_forwards(n, s)
    assert found.optimal


@pytest.mark.parametrize(
    "n, slots, uf, ub, transfer, cost",
    [
        (10, (1, 2), 1, 1, 2, 36),
        (10, (2, 2), 1, 1, 2, 30),
        (25, (2, 3), 1, 1, 2, 90),
        (25, (2, 3), 1, 2, 2, 115),
        (25, (2, 3), 1, 3, 20, 169),
        (25, (2, 3), 2, 1, 2, 143),
        (100, (5, 5), 1, 1, 2, 357),
        (100, (5, 5), 1, 2, 2, 457),
        (100, (5, 5), 1, 3, 20, 616),
        (100, (5, 5), 2, 1, 2, 594),
    ],
)
@pytest.mark.parametrize("as_words", [True, False])
def test_h_revolve_has_the_published_cost(n, slots, uf, ub, transfer, cost, as_words):
    tier = {"name": "disk", "slots": slots[1], "write_time": transfer, "read_time": transfer}
    if as_words:
        tier = f"disk:slots={slots[1]},write_time={transfer},read_time={transfer}"
    found = ebb.plan(n, strategy="h_revolve", slots=slots[0], forward=uf, backward=ub, tiers=[tier], sync=True)
    assert found.seconds == pytest.approx(cost + n * uf)


@settings(max_examples=60, deadline=None)
@given(
    steps=st.integers(0, 60),
    state=st.integers(1, 4),
    tape=st.integers(1, 9),
    budget=st.integers(0, 200),
    strategy=st.sampled_from([row.name for row in ebb.strategies()]),
    tier=st.sampled_from(
        [None, "disk:capacity=40,write=2,read=3,latency=0.5", "disk:write_time=3,read_time=2,duplex=no"]
    ),
)
def test_any_plan_replays_to_its_prediction(steps, state, tape, budget, strategy, tier):
    words = {"state": state, "tape": tape + state, "budget": budget, "tiers": [tier] if tier else []}
    try:
        found = ebb.plan(steps, strategy=strategy, **words)
    except ebb.Error as error:
        assert error.code in ("infeasible_budget", "invalid_argument")
        if error.least_budget is not None:
            assert error.least_budget > budget
            ebb.plan(steps, strategy=strategy, **{**words, "budget": error.least_budget})
        return
    again = ebb.replay(found.actions(), steps, start_charged=strategy == "mixed" or found.strategy == "mixed", **words)
    for name in ("forwards", "advances", "records", "action_count", "peak", "moved"):
        assert getattr(again, name) == getattr(found, name), name
    assert again.seconds == pytest.approx(found.seconds) and again.stall_seconds == pytest.approx(found.stall_seconds)
    assert found.peak["fast"] <= budget
    assert found.bound_seconds <= found.seconds * (1 + 1e-12) and found.gap >= 0
    assert found.forwards == found.advances + found.records and found.records >= steps
    assert sum(1 for _ in found.actions()) == found.action_count


def test_actions_are_plain_and_come_one_at_a_time():
    found = ebb.plan(5, strategy="revolve", slots=2)
    listed = list(found.actions())
    assert listed[:3] == [Copy("state", 0, "work", "fast"), Advance(0, 2), Copy("state", 2, "work", "fast")]
    assert Drop("state", 0, "fast") in listed and listed[-1] == Reverse(0, 1) and Record(4, 5) in listed
    long = ebb.plan(10**9, strategy="revolve", slots=100).actions()
    assert [next(long) for _ in range(3)][1].to > 0
    with pytest.raises(AttributeError):
        listed[1].to = 7


def test_replay_names_what_is_wrong():
    good = [Record(0, 3), Reverse(0, 3)]
    assert ebb.replay(good, 3).forwards == 3
    wrong = [
        ([Record(0, 3), Reverse(0, 2)], "reverse"),
        ([Record(0, 3)], "."),
        ([Advance(1, 2)], "advance 1..2"),
        ([Copy("state", 0, "work", "disk")], "'disk'"),
        ([Copy("soul", 0, "work", "fast")], "soul"),
        ([Drop("tape", 0, "fast")], "drop tape 0"),
        (["advance"], "is no action"),
    ]
    for actions, words in wrong:
        with pytest.raises(ebb.Error, match=words):
            ebb.replay(actions, 3)
    with pytest.raises(ebb.Error, match="4"):
        ebb.replay(good, 3, budget=4)


def test_what_an_iterator_raises_comes_through_replay():
    def broken():
        yield Record(0, 1)
        raise KeyError("mine")

    with pytest.raises(KeyError, match="mine"):
        ebb.replay(broken(), 3)


def test_a_chain_of_different_steps(tmp_path):
    steps = [{"forward": 1 + i % 3, "state": 4, "tape": 10 + i % 2} for i in range(12)]
    file = tmp_path / "chain.json"
    file.write_text(json.dumps({"steps": steps}))
    costs = [ebb.plan(chain=chain, budget=60).seconds for chain in (steps, {"steps": steps}, file, str(file))]
    core = _core.Chain.from_json(file.read_text())
    assert costs == [ebb.plan(chain=core, budget=60).seconds] * 4
    assert ebb.plan(chain={"repeat": 7, "step": {"state": 2}}).steps == 7


def test_platforms(tmp_path):
    words = {"state": "1MiB", "tape": "8MiB", "forward": 1e-2, "budget": "64MiB"}
    preset = ebb.plan(100, platform="laptop", **words)
    core = _core.Platform.preset("laptop")
    file = tmp_path / "mine.json"
    file.write_text(core.to_json())
    same = [ebb.plan(100, platform=platform, **words) for platform in (core, file, json.loads(file.read_text()))]
    assert {found.seconds for found in same} == {preset.seconds}
    assert list(preset.peak) == ["fast", *(tier.name for tier in core.tiers)]


def test_other_questions():
    words = {"state": "1MiB", "tape": "4MiB", "strategy": "revolve"}
    least = ebb.least_budget(1000, **words)
    assert ebb.plan(1000, budget=least, **words).least_budget == least
    with pytest.raises(ebb.Error) as found:
        ebb.plan(1000, budget=least - 1, **words)
    assert (found.value.code, found.value.least_budget) == ("infeasible_budget", least)
    longest = ebb.largest(state=1, tape=3, budget=100, strategy="store_all")
    ebb.plan(longest, state=1, tape=3, budget=100, strategy="store_all")
    with pytest.raises(ebb.Error):
        ebb.plan(longest + 1, state=1, tape=3, budget=100, strategy="store_all")
    assert ebb.largest(budget=100, strategy="revolve") is None
    assert ebb.least_budget(10, strategy="disk_revolve") is None
    swept = ebb.sweep(200, points=6)
    assert [found.budget for found in swept] == sorted({found.budget for found in swept})
    assert [found.seconds for found in swept] == sorted((found.seconds for found in swept), reverse=True)
    assert swept[0].budget == ebb.least_budget(200)


def test_a_summary_in_words():
    tier = "ssd:capacity=1MiB,write=1MB/s,read=1MB/s"
    plan = ebb.plan(100, state="1KiB", tape="4KiB", budget="20KiB", tiers=[tier])
    text = str(plan)
    for words in (
        r"fits in +20 KiB",
        rf"strategy +{plan.strategy} \(chosen by auto\)",
        rf"bound +no exact plan takes less than {plan.bound_seconds:.4g} s",
        rf"forwards +{plan.forwards} ",
        rf"fast: {plan.peak['fast'] / 1024:g} KiB, of 20 KiB",
        rf"ssd: {plan.peak['ssd'] / 1024:g} KiB, of 1 MiB",
        rf"least budget +{plan.least_budget / 1024:g} KiB",
    ):
        assert re.search(words, text), words
    assert "unlimited memory" in str(ebb.plan(3, strategy="store_all"))


@pytest.mark.parametrize(
    "words, part",
    [
        ({}, "steps is missing"),
        ({"steps": -1}, "steps is '-1'; it must be a whole number from 0"),
        ({"steps": True}, "steps is 'True'"),
        ({"steps": 2.5}, "2.5"),
        ({"steps": 5, "chain": [{}]}, "contradict"),
        ({"chain": [{}], "state": 4}, "chain and state"),
        ({"steps": 5, "forward": -1}, "forward is '-1'"),
        ({"steps": 5, "forward": "fast"}, "forward is 'fast'"),
        ({"steps": 5, "state": "big"}, "state"),
        ({"steps": 5, "budget": "lots"}, "budget"),
        ({"steps": 5, "budget": 4, "slots": 2}, "contradict"),
        ({"steps": 5, "working": 4, "slots": 2}, "contradict"),
        ({"steps": 5, "strategy": "best"}, "must be one of store_all"),
        ({"steps": 5, "strategy": "revolv"}, "did you mean revolve?"),
        ({"steps": 5, "state": 2.5}, "state is 2.5"),
        ({"steps": 5, "period": 0}, "period is '0'"),
        ({"steps": 5, "intervals": [0]}, "intervals is '0'"),
        ({"steps": 5, "platform": "mainframe"}, "presets"),
        ({"steps": 5, "platform": "./nowhere.json"}, "nowhere"),
        ({"steps": 5, "chain": None, "platform": {"speed": 3}}, "platform"),
        ({"steps": 5, "tiers": ["disk:speed=3"]}, "tier disk: cannot read 'speed=3'"),
        ({"steps": 5, "tiers": [{"name": "disk", "speed": 3}]}, "tier disk: cannot read 'speed=3'"),
        ({"steps": 5, "tiers": [{"name": "disk", "slots": 1, "capacity": 2}]}, "say the same"),
        ({"steps": 5, "tiers": [{"name": "disk", "capacity": -2}]}, "tier disk: capacity is -2"),
        ({"chain": [{"state": 1}, {"state": 2}], "tiers": ["disk:slots=3"]}, "differ in size"),
        ({"steps": 5, "tiers": ["disk:write"]}, "cannot read 'write'"),
        ({"steps": 5, "tiers": ["disk:write=1,write=2"]}, "given twice"),
        ({"steps": 5, "tiers": ["disk:write=1,write_time=2"]}, "say the same"),
        ({"steps": 5, "tiers": ["disk:write=-1"]}, "write is '-1'"),
        ({"steps": 5, "tiers": ["disk:latency=soon"]}, "latency"),
        ({"steps": 5, "tiers": ["disk:duplex=maybe"]}, "duplex"),
        ({"steps": 5, "tiers": ["fast:write=1"]}, "fast"),
        ({"steps": 5, "tiers": [{"capacity": 5}]}, "is no tier"),
        ({"steps": 5, "tiers": [ebb.memory_tier(10)]}, "no tier to plan for"),
        ({"chain": [{"state": 1}, {"state": 2}], "slots": 2}, "differ in size"),
        ({"chain": "no such file"}, "cannot be read"),
        ({"chain": [{"sate": 1}]}, "sate"),
    ],
)
def test_mistakes_are_named(words, part):
    with pytest.raises(ebb.Error) as found:
        ebb.plan(**words)
    assert part in str(found.value)


def test_numbers_and_words_say_the_same():
    words = {
        "state": "1KiB",
        "tape": "4KiB",
        "forward": "0.5",
        "period": "7",
        "strategy": "periodic_disk",
        "slots": "3",
    }
    numbers = {"state": 1024, "tape": 4096, "forward": 0.5, "period": 7, "strategy": "periodic_disk", "slots": 3}
    tiers = ("disk:capacity=1MiB,write=1e6,read=2MB/s,latency=0.5,duplex=no", "disk:capacity=1MiB")
    mappings = (
        {"name": "disk", "capacity": 2**20, "write": 1e6, "read": "2MB/s", "latency": 0.5, "duplex": False},
        {"name": "disk", "capacity": "1MiB"},
    )
    for word, mapping in zip(tiers, mappings):
        by_words, by_numbers = ebb.plan("1e2", tiers=[word], **words), ebb.plan(100, tiers=mapping, **numbers)
        assert by_words.seconds == by_numbers.seconds
        assert by_words.peak == by_numbers.peak and by_words.moved == by_numbers.moved


def test_an_error_has_its_remedy_apart():
    with pytest.raises(ebb.Error) as found:
        ebb.plan(100, budget=3, strategy="revolve", state=2)
    error = found.value
    assert error.remedy == "raise the budget, or take strategy auto or a smaller step"
    assert error.problem.startswith("strategy revolve does not fit: it needs at least")
    assert str(error) == f"{error.problem}; {error.remedy}"
    again = pickle.loads(pickle.dumps(error))
    assert (str(again), again.remedy, again.least_budget, again.code) == (
        str(error),
        error.remedy,
        error.least_budget,
        "infeasible_budget",
    )
    with pytest.raises(ebb.Error) as found:
        ebb.plan(-1)
    assert found.value.remedy == "" and found.value.problem == str(found.value)


@pytest.mark.skipif(not EBB, reason="EBB_BINARY does not name the program ebb")
@pytest.mark.parametrize(
    "words",
    [
        {"steps": 50, "budget": 12},
        {"steps": 100, "strategy": "revolve", "slots": 5},
        {"steps": 200, "state": "1MiB", "tape": "3MiB", "forward": 0.01, "budget": "40MiB", "platform": "laptop"},
        {"steps": 40, "strategy": "h_revolve", "slots": 2, "sync": True, "tier": "d:slots=9,write_time=2,read_time=2"},
    ],
)
def test_the_command_says_the_same(words):
    line = []
    for name, value in words.items():
        line += [f"--{name}"] if value is True else [f"--{name}", str(value)]
    theirs = json.loads(subprocess.run([EBB, "plan", *line, "--json"], check=True, capture_output=True).stdout)
    given_words = {("tiers" if name == "tier" else name): value for name, value in words.items()}
    ours = json.loads(ebb.plan(**given_words).to_json())
    theirs.pop("plan_seconds"), ours.pop("plan_seconds")
    assert ours == theirs

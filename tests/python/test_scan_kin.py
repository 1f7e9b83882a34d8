# SPDX-License-Identifier: Apache-2.0
"""Loops of other lengths with the same blocks: what was measured for one holds for all."""

from __future__ import annotations

import dataclasses

import pytest

torch = pytest.importorskip("torch", reason="PyTorch is not installed")
from scan_cases import BATCH, WIDTH, numbers, rnn  # noqa: E402
from scan_oracle import least, loop  # noqa: E402

import ebb  # noqa: E402
from ebb._loop import examine, law  # noqa: E402

torch.set_num_threads(1)
LENGTHS = [90, 200, 64, 91, 150, 199]


@pytest.fixture(autouse=True)
def fresh():
    torch.manual_seed(1)
    ebb.clear_cache()


@pytest.fixture(autouse=True)
def even_law(monkeypatch):
    """Seconds of blocks follow from their time steps."""

    def in_turns(seen, loop):
        steps = [each.recorder.blocks.steps(0) for each in seen]
        return [
            dataclasses.replace(each.known.costs, forward=n + 2.0, record=n + 2.0, backward=2 * n + 4.0)
            for each, n in zip(seen, steps)
        ]

    monkeypatch.setattr(law, "_in_turns", in_turns)


@pytest.fixture
def measured(monkeypatch):
    """How often blocks and laws were."""
    found = []
    for module, name in ((examine, "measure"), (law, "_in_turns")):
        own = getattr(module, name)
        monkeypatch.setattr(
            module, name, lambda *given, _own=own, _name=name, **words: found.append(_name) or _own(*given, **words)
        )
    return found


def gradients(scan, f, params, steps, **words):
    torch.manual_seed(steps)
    init, xs = numbers(BATCH, WIDTH), numbers(steps, BATCH, WIDTH)
    h, ys = scan(f, init, xs, **words)
    return torch.autograd.grad(
        h.sin().sum() + sum(y.cos().sum() for y in torch.utils._pytree.tree_leaves(ys)), [init, xs, *params]
    )


@pytest.mark.parametrize("words", [{"chunk": 4}, {}, {"chunk": 4, "reduce": "sum"}], ids=["given", "chosen", "sum"])
def test_a_loop_of_another_length_is_not_measured_again(words, measured):
    f, params = rnn()
    budget = least(f, numbers(BATCH, WIDTH), numbers(max(LENGTHS), BATCH, WIDTH), **words)
    ebb.clear_cache()
    gradients(ebb.scan, f, params, max(LENGTHS), budget=2 * budget, **words)
    first = len(measured)
    for steps in LENGTHS:
        found = gradients(ebb.scan, f, params, steps, budget=2 * budget, **words)
        report = ebb.last_report()
        assert report.predicted["peak"]["fast"] <= 2 * budget and report.length == steps
        plain = {key: word for key, word in words.items() if key != "chunk"}
        for a, b in zip(found, gradients(ebb.scan, f, params, steps, **plain), strict=True):
            assert torch.equal(a, b)
    # The chunk may be another one for another length.
    assert len(measured) <= first + (0 if "chunk" in words else 2)


def test_budgets_and_shares_are_of_each_length():
    f, params = rnn()
    found = {}
    for steps in (200, 64, 200, 64):
        gradients(ebb.scan, f, params, steps, budget="40%", chunk=4)
        found.setdefault(steps, []).append(ebb.last_report().budget)
    assert found[200][0] == found[200][1] and found[64][0] == found[64][1]
    assert 0.8 * 64 / 200 < found[64][0] / found[200][0] < 1.2 * 64 / 200
    # One holds all of the short loop, but not of the long one.
    short = int(2.5 * found[64][0]) + 4096
    for steps, fits in ((64, True), (200, False), (64, True), (200, False)):
        gradients(ebb.scan, f, params, steps, budget=short, chunk=4)
        assert (ebb.last_report().strategy == "store_all") == fits


@pytest.mark.parametrize("before", [1000, 3000])
def test_shares_do_not_depend_on_lengths_that_came_before(before):
    f, params = rnn()
    alone = {}
    for steps in (33, 40, 64, 129):
        ebb.clear_cache()
        gradients(ebb.scan, f, params, steps, budget="50%")
        alone[steps] = ebb.last_report().budget
    ebb.clear_cache()
    gradients(ebb.scan, f, params, before, budget="50%")
    for steps, budget in alone.items():
        gradients(ebb.scan, f, params, steps, budget="50%")
        assert abs(ebb.last_report().budget / budget - 1) < 0.05


def test_loops_of_other_lengths_prefer_the_same_blocks():
    f, params = rnn()
    found = set()
    for steps in (1000, 700, 950, 20, 813):
        gradients(ebb.scan, f, params, steps, budget="40%")
        if steps > 20:
            found.add(ebb.last_report().chunk)
    assert len(found) == 1


def test_a_loop_of_one_step_says_nothing_of_the_second():
    """Where f begins with nothing its first block has no gradient of the carry, and takes less than others."""
    weight = torch.randn(WIDTH, requires_grad=True)

    def f(h, x):
        h = torch.zeros(BATCH, WIDTH) if h is None else h
        h = torch.var(h.expand(50, BATCH, WIDTH) * weight, 0) + torch.tanh(weight * x)
        return h, h

    found = []
    for lengths in ((60,), (1, 60), (2, 60)):
        ebb.clear_cache()
        for steps in lengths:
            _, ys = ebb.scan(f, None, torch.randn(steps, BATCH, WIDTH), budget="memory")
            ys.sum().backward()
        found.append(ebb.last_report().costs.scratch)
    assert found[0] == found[1] == found[2]


def test_a_loop_shorter_than_a_block():
    f, params = rnn()
    for steps in (60, 3, 60, 1, 7):
        found = gradients(ebb.scan, f, params, steps, budget=200_000, chunk=8)
        for a, b in zip(found, gradients(loop, f, params, steps), strict=True):
            assert torch.equal(a, b)


def test_where_bits_depend_on_the_chunk_every_length_chooses_for_itself():
    """Which lengths came before must not matter."""
    own, params = rnn()

    def f(h, x):
        h = own(h, x)[0].float()
        return h, h

    def chunk(steps):
        with torch.autocast("cpu", dtype=torch.bfloat16):
            gradients(ebb.scan, f, params, steps, budget="30%")
        return ebb.last_report().chunk

    alone = {}
    for steps in LENGTHS:
        ebb.clear_cache()
        alone[steps] = chunk(steps)
    ebb.clear_cache()
    assert {steps: chunk(steps) for steps in LENGTHS} == alone

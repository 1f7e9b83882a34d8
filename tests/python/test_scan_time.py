# SPDX-License-Identifier: Apache-2.0
"""ebb.scan where time is another dimension than the first, and over lists of tensors."""

from __future__ import annotations

import numpy as np
import pytest

torch = pytest.importorskip("torch", reason="PyTorch is not installed")
from scan_cases import BATCH, WIDTH, T, numbers, rnn  # noqa: E402
from scan_oracle import clones, gradients, least, loop, same, weighted  # noqa: E402

import ebb  # noqa: E402

torch.set_num_threads(1)


@pytest.fixture(autouse=True)
def seed() -> None:
    torch.manual_seed(1)


def by_hand(f, carry, xs, dim, reverse=False, reduce=None):
    """As a user of batch_first writes it."""
    steps = range(xs.shape[dim])
    ys = []
    for t in reversed(steps) if reverse else steps:
        carry, y = f(carry, xs.select(dim, t))
        ys.append(y)
    if reduce is not None:
        return carry, sum(ys[1:], ys[0])
    return carry, torch.stack(ys[::-1] if reverse else ys, dim)


@pytest.mark.parametrize("dim", [1, -2, -1, 2])
@pytest.mark.parametrize("budget", ["least", 10**9, None], ids=["least", "ample", "none"])
@pytest.mark.parametrize("chunk, reverse, reduce", [(1, False, None), (3, True, None), (None, False, "sum")])
@pytest.mark.sweep(9)
def test_bits_are_those_of_the_loop(dim, budget, chunk, reverse, reduce):
    f, params = rnn()
    init = numbers(BATCH, WIDTH)
    xs = torch.randn(40, BATCH, WIDTH).movedim(0, dim).contiguous().requires_grad_()
    options = {"dim": dim, "chunk": chunk, "reverse": reverse, "reduce": reduce}
    wanted = by_hand(f, init, xs, dim, reverse, reduce)
    theirs = gradients(weighted(*wanted), [init, xs, *params])
    number = least(f, init, xs, **options) if budget == "least" else budget
    found = ebb.scan(f, init, xs, budget=number, **options)
    same(found, wanted)
    assert found[1].stride() == wanted[1].stride()
    found = gradients(weighted(*found), [init, xs, *params])
    same(found, theirs)
    assert found[1].stride() == theirs[1].stride()


def test_the_inputs_are_not_copied():
    f, params = rnn()
    xs = numbers(BATCH, 400, WIDTH)
    seen = []

    def look(h, x):
        seen.append((x.untyped_storage().data_ptr(), x.stride()))
        return f(h, x)

    found = ebb.scan(look, numbers(BATCH, WIDTH), xs, dim=1, budget="8KiB", chunk=10)
    found[1].sum().backward()
    assert ebb.last_report().strategy != "store_all"
    assert set(seen) == {(xs.untyped_storage().data_ptr(), xs[:, 0].stride())}


def test_a_budget_is_not_larger_than_with_time_first():
    f, params = rnn()
    init = numbers(BATCH, WIDTH)
    first, second = numbers(100, BATCH, WIDTH), numbers(BATCH, 100, WIDTH)
    for chunk in (1, 5):
        assert least(f, init, second, chunk=chunk, dim=1) == least(f, init, first, chunk=chunk)


def test_every_tensor_has_time_there():
    weight = numbers(WIDTH)
    xs = {"x": numbers(BATCH, T, WIDTH), "gate": np.random.default_rng(0).random((BATCH, T), dtype=np.float32)}

    def f(h, x):
        h = (h * weight + x["x"] * x["gate"][:, None]).tanh()
        return h, {"h": h, "mean": h.mean(-1)}

    def flipped(h, x):
        return f(h, x)

    wanted = loop(f, torch.zeros(BATCH, WIDTH), {"x": xs["x"].movedim(1, 0), "gate": xs["gate"].T})
    h, ys = ebb.scan(f, torch.zeros(BATCH, WIDTH), xs, dim=1, budget="2KiB", chunk=1)
    assert ys["h"].shape == (BATCH, T, WIDTH) and ys["mean"].shape == (BATCH, T)
    same((h, {name: y.movedim(1, 0) for name, y in ys.items()}), wanted)


@pytest.mark.parametrize("budget", [None, "1KiB"])
@pytest.mark.parametrize(
    "dim, xs, y, words",
    [
        (2, torch.zeros(BATCH, T), lambda h: h, "dim is 2 and xs holds a tensor of shape"),
        (-3, torch.zeros(BATCH, T), lambda h: h, "dim is -3"),
        (1, torch.zeros(BATCH, T), lambda h: h.sum(), "leaf 0 of y has 0 dimensions"),
        (1.5, torch.zeros(BATCH, T), lambda h: h, "dim is 1.5"),
        (True, torch.zeros(BATCH, T), lambda h: h, "dim is True"),
    ],
)
def test_dimensions_that_are_not_there(budget, dim, xs, y, words):
    weight = numbers(BATCH)

    def f(h, x):
        h = (h * weight + x).tanh()
        return h, y(h)

    with pytest.raises(ebb.Error, match=words):
        ebb.scan(f, torch.zeros(BATCH), xs, dim=dim, budget=budget, chunk=1)


# ------------------------------------------------------------------------------------------------ lists


@pytest.mark.parametrize("budget", [None, "4KiB"])
@pytest.mark.parametrize("kind", [list, tuple])
def test_a_list_of_the_time_steps_has_a_remedy(kind, budget):
    f, params = rnn()
    xs = kind(torch.randn(BATCH, WIDTH) for _ in range(100))
    for scanned in (f, lambda h, x: (h + x @ torch.eye(WIDTH),) * 2):
        with pytest.raises(ebb.Error, match=r"xs is a .* of 100 tensors.*did you mean torch.stack\(xs\)\?") as caught:
            ebb.scan(scanned, torch.zeros(BATCH, WIDTH, requires_grad=True), xs, budget=budget)
        assert isinstance(caught.value.__cause__, (TypeError, AttributeError))
    with pytest.raises(ebb.Error, match="torch.stack"):
        ebb.scan(f, torch.zeros(BATCH, WIDTH), kind(torch.zeros(()) for _ in range(5)), budget=budget)


def test_mistakes_of_f_come_through_where_xs_is_a_pair():
    xs = (numbers(T, WIDTH), numbers(T, WIDTH))

    def f(h, x):
        a, b = x
        return h + a.nothing, b

    with pytest.raises(AttributeError, match="nothing"):
        ebb.scan(f, torch.zeros(WIDTH), xs, budget="4KiB")
    same(ebb.scan(lambda h, x: (h + x[0], x[1]), torch.zeros(WIDTH), xs)[1], clones(xs[1]))

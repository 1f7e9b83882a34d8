# SPDX-License-Identifier: Apache-2.0
"""Tapes and states that are kept encoded: exact codecs keep every bit, lossy ones only the results; their bytes."""

from __future__ import annotations

import pytest

torch = pytest.importorskip("torch", reason="PyTorch is not installed")
from codec_loops import BATCH, STEPS, WIDTH, both, lif, lstm, room, worst  # noqa: E402
from scan_oracle import clones, compare, gradients, least, loop, same, weighted  # noqa: E402

import ebb  # noqa: E402
import ebb.nn  # noqa: E402

torch.set_num_threads(1)
LOSSY = ["bf16", "fp16", "int8", "pool:2"]


@pytest.fixture(autouse=True)
def seed() -> None:
    torch.manual_seed(3)


# What is exact.


@pytest.mark.parametrize("codec", [{"tape": "bits"}, ("bits", "bits")])
@pytest.mark.parametrize("chunk", [1, 6])
@pytest.mark.parametrize("model", [lif, lstm])
@pytest.mark.sweep(4)
def test_bits_keep_every_bit(codec, chunk, model):
    f, init, xs, params = model()
    budget = room(f, init, xs, chunk=chunk)
    report = compare(f, init, xs, params, budget=budget, chunk=chunk, codec=codec)
    assert report.coding is not None and not report.coding.approximate
    assert report.measured["forwards"] > report.steps


@pytest.mark.parametrize(
    "strategy, options", [("revolve", {}), ("sqrt", {"reverse": True}), ("msm", {"reduce": "mean"}), ("constant", {})]
)
@pytest.mark.sweep(3)
def test_bits_keep_every_bit_in_every_plan(strategy, options):
    f, init, xs, params = lif()
    budget = room(f, init, xs, chunk=4)
    compare(
        f,
        init,
        xs.requires_grad_(),
        params,
        budget=budget,
        chunk=4,
        codec=("bits", "bits"),
        strategy=strategy,
        **options,
    )


def test_outputs_that_are_used_in_several_places_keep_every_bit():
    weight = torch.randn(WIDTH, WIDTH).mul(0.2).requires_grad_()

    def f(carry, x):
        z = (carry @ weight + x > 0).to(x.dtype) + 0 * carry
        h = torch.tanh(carry @ weight) * z + x
        return h, (h, h * h, carry, z)

    xs = torch.randn(STEPS, BATCH, WIDTH, requires_grad=True)
    init = torch.randn(BATCH, WIDTH, requires_grad=True)
    for chunk in (1, 5):
        compare(f, init, xs, [weight], budget=room(f, init, xs, chunk=chunk), chunk=chunk, codec="bits")


def test_an_output_that_is_handed_out_several_times_keeps_the_bits_of_no_codec():
    weight = torch.randn(WIDTH, WIDTH).mul(0.2).requires_grad_()

    def f(carry, x):
        h = torch.tanh(carry @ weight + x)
        return h, (h, h, h)

    xs = torch.randn(STEPS, BATCH, WIDTH)
    budget = room(f, torch.zeros(BATCH, WIDTH), xs, chunk=4)
    found = []
    for codec in (None, "bits"):
        carry, ys = ebb.scan(f, torch.zeros(BATCH, WIDTH), xs, budget=budget, chunk=4, codec=codec)
        loss = sum((y * torch.linspace(a, 1, WIDTH)).sum() for y, a in zip(ys, (0.1, 0.37, 0.73)))
        found.append(gradients(loss, [weight]))
    same(*found)


def test_random_numbers_and_a_carry_changed_in_place_keep_every_bit():
    layer = torch.nn.Linear(WIDTH, WIDTH)

    def f(carry, x):
        z = torch.nn.functional.dropout((layer(carry) + x > 0).to(x.dtype) * layer(x), 0.5)
        carry += z
        return carry, z

    xs = torch.randn(STEPS, BATCH, WIDTH)
    budget = room(f, torch.zeros(BATCH, WIDTH), xs, chunk=4)

    def run(**options):
        torch.manual_seed(5)
        carry, ys = ebb.scan(f, torch.zeros(BATCH, WIDTH), xs, chunk=4, **options)
        return carry, ys, gradients(weighted(carry, ys), layer.parameters())

    same(run(budget=budget, codec="bits"), run(budget=budget))


@pytest.fixture(params=["holders are counted", "they are not"])
def counting(request, monkeypatch):
    """Some builds of torch do not tell how many hold a storage."""
    if request.param == "they are not":
        monkeypatch.setattr("ebb._tensor.saved._alone", -1)


def test_parameters_captured_tensors_and_inputs_are_never_encoded(counting):
    weight, other = torch.randn(WIDTH, requires_grad=True), torch.randn(BATCH, WIDTH, requires_grad=True)
    constant = torch.randn(BATCH, WIDTH)

    def f(carry, x):
        # Each gradient is made of what must be exact alone; the tanh is there to be encoded.
        return carry + weight * x + other * constant, torch.tanh(carry)

    xs = torch.randn(STEPS, BATCH, WIDTH, requires_grad=True)
    init = torch.zeros(BATCH, WIDTH)

    def of_carry(carry, ys):
        return weighted(carry)

    budget = room(f, init, xs, chunk=4)
    report = compare(f, init, xs, [weight, other], budget=budget, chunk=4, codec="int8", loss=of_carry)
    assert report.coding.tape < report.coding.raw_tape


# What is lossy.


@pytest.mark.parametrize("codec", ["fp16", "pool:2", ("int8", "bf16"), (None, "int8"), ("bf16", "pool:4")])
@pytest.mark.parametrize("strategy", ["auto", "revolve"])
@pytest.mark.sweep(5)
def test_results_have_every_bit_and_only_gradients_differ(codec, strategy):
    f, init, xs, params = lstm()
    budget = room(f, init, xs, chunk=4)
    plain, mine = both(f, init, xs, params, budget=budget, chunk=4, codec=codec, strategy=strategy)
    same(mine[:2], plain[:2])
    assert ebb.last_report().coding.approximate
    assert worst(mine[2], plain[2]) < (1.0 if "pool" in str(codec) else 0.05)


def test_lossy_tapes_make_other_gradients():
    f, init, xs, params = lstm()
    budget = room(f, init, xs, chunk=4)
    errors = {}
    for codec in LOSSY:
        plain, mine = both(f, init, xs, params, budget=budget, chunk=4, codec=codec)
        errors[codec] = worst(mine[2], plain[2])
    assert 0 < errors["fp16"] < errors["bf16"] < 2**-6
    assert 0 < errors["int8"] < 2**-5
    assert errors["bf16"] < errors["pool:2"]


# The relative error of one kept number, for numbers in [0.9, 1.1]: half a unit in the last of 8 and of 11 bits; half of
# the scale 1.1 / 127; the width of the interval.
ONE = {"bf16": 2**-9, "fp16": 2**-12, "int8": 1.1 / 254 / 0.9, "pool:4": 0.2 / 0.9}


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("where", ["tape", "state"])
@pytest.mark.parametrize("codec", list(ONE))
def test_errors_stay_within_what_follows_from_each_kept_number(codec, where, dtype):
    """The last carry is the product of exp(x) over time. Its gradient by one x is a product of the later factors, of
    that exp(x) and of the carry before it: at most steps + 1 kept numbers. From kept states the factors
    are exact, and the carry comes from at most as many restarts, one after the other, as there are steps."""
    steps = 8

    def f(carry, x):
        return carry * torch.exp(x), None

    xs = torch.rand(steps, 4, 64, dtype=dtype).mul(0.02).sub(0.01).requires_grad_()
    init = torch.ones(4, 64, dtype=dtype)
    exact, mine = clones(xs), clones(xs)
    how = {"chunk": 2, "strategy": "msm"} if where == "tape" else {"chunk": 1, "strategy": "revolve"}
    how["codec"] = {where: codec}
    budget = least(f, init, xs, **how) + 4 * init.numel() * init.element_size()
    carry = ebb.scan(f, init, mine, budget=budget, **how)[0]
    assert torch.equal(carry, loop(f, init, exact)[0])
    (wrong,), (right,) = gradients(carry.sum(), [mine]), gradients(loop(f, init, exact)[0].sum(), [exact])
    relative = float(((wrong - right).abs() / right).max())
    assert 0 < relative <= (1 + ONE[codec]) ** (steps + 1) - 1 + 1e-5


# Tiers, other loops, other calls.


@pytest.mark.parametrize("codec, part", [((None, "bf16"), 2), (("int8", "int8"), 3), ("bits", 1)])
@pytest.mark.sweep(2)
def test_tiers_get_what_is_encoded(codec, part, tmp_path):
    f, init, xs, params = lstm()
    remote = {"chunk": 1, "strategy": "single_remote"}  # which uses a tier however slow it is
    small = least(f, init, xs, tiers=[ebb.memory_tier("1MiB")], **remote)
    for tier in (ebb.memory_tier("1MiB"), ebb.file_tier(str(tmp_path), "1MiB")):
        plain, mine = both(f, init, xs, params, budget=small + 8192, tiers=[tier], codec=codec, **remote)
        same(mine[:2], plain[:2])
        report = ebb.last_report()
        moved = report.measured["moved"][tier.name]
        assert moved[0] > 0 and moved[1] > 0
        raw = 2 * BATCH * WIDTH * 4
        assert report.costs.state <= raw / part
        assert moved[0] % report.costs.state == 0
        assert worst(mine[2], plain[2]) < 0.05


def test_a_while_loop_keeps_its_tapes_encoded():
    weight = (0.1 * torch.randn(64, 64)).requires_grad_()
    found = []
    for codec in (None, "bits", "bf16", ("int8", "bf16")):
        x = ebb.while_loop(
            lambda x: x.norm() > 1e-3,
            lambda x: torch.tanh(torch.tanh(x @ weight) @ weight),
            torch.ones(4, 64),
            budget="64KiB",
            codec=codec,
        )
        found.append((x.detach(), gradients(x.sum(), [weight])[0]))
    for result, _ in found:
        assert torch.equal(result, found[0][0])
    assert torch.equal(found[1][1], found[0][1])
    assert 0 < worst([found[2][1]], [found[0][1]]) < 0.02
    assert 0 < worst([found[3][1]], [found[0][1]]) < 0.05


@pytest.mark.parametrize("codec", ["bf16", "int8", ("fp16", "fp16")])
@pytest.mark.sweep(1)
def test_double_precision(codec):
    f, init, xs, params = lstm(torch.float64)
    plain, mine = both(f, init, xs, params, budget=room(f, init, xs, chunk=4), chunk=4, codec=codec)
    same(mine[:2], plain[:2])
    assert 0 < worst(mine[2], plain[2]) < 2**-5


def test_autocast_keeps_the_casts_of_weights_exact(counting):
    layer = torch.nn.Linear(WIDTH, WIDTH, bias=False)
    with torch.no_grad():
        layer.weight.mul_(0.1)

    def f(carry, x):
        return carry, layer(x)

    xs = torch.randn(STEPS, BATCH, WIDTH)
    found = []
    for codec in (None, "int8"):
        own = clones(xs).requires_grad_()  # its gradient is made of the weight alone
        with torch.autocast("cpu", torch.bfloat16):
            ys = ebb.scan(f, torch.zeros(BATCH, WIDTH), own, budget=40_000, chunk=4, codec=codec)[1]
        found.append(gradients(ys.float().sum(), [own]))
    same(*found)


def test_a_graph_may_be_retained_and_goes_away():
    f, init, xs, params = lstm()
    ys = ebb.scan(f, init, xs, budget=room(f, init, xs, chunk=4), chunk=4, codec="int8")[1]
    loss = ys.pow(2).sum()
    first = torch.autograd.grad(loss, params, retain_graph=True)
    same(torch.autograd.grad(loss, params), first)


def test_where_all_fits_nothing_is_encoded():
    f, init, xs, params = lstm()
    report = compare(f, init, xs, params, budget="64MiB", codec="int8")
    assert report.strategy == "store_all" and report.coding is None
    assert "no codec was used" in str(report)


def test_what_fits_only_when_it_is_encoded_is_run_without_recomputation():
    f, init, xs, params = lstm()
    ebb.scan(f, init, xs, budget=least(f, init, xs, chunk=4), chunk=4)
    whole = ebb.last_report().costs.tape * ebb.last_report().steps
    ebb.scan(f, init, xs, budget=int(whole * 0.8), chunk=4, codec="int8")[1].sum().backward()
    report = ebb.last_report()
    assert report.measured["forwards"] == report.steps and report.coding.approximate


def test_a_change_in_place_is_found():
    def f(carry, x):
        kept = torch.exp(x)
        out = carry * kept
        kept.mul_(2)
        return out, None

    xs = torch.randn(STEPS, BATCH, WIDTH, requires_grad=True)
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        ebb.scan(f, torch.ones(BATCH, WIDTH), xs, budget=30_000, chunk=4, codec="bf16")[0].sum().backward()

# SPDX-License-Identifier: Apache-2.0
"""The arithmetic of convolutions over pooled maps against PyTorch's own operations, and what it refuses."""

from __future__ import annotations

import math
import threading

import numpy
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

torch = pytest.importorskip("torch")

import ebb  # noqa: E402
from ebb import _core  # noqa: E402

NAMES = {torch.float32: "float32", torch.float64: "float64", torch.int64: "int64", torch.uint8: "uint8"}
SPARE = numpy.zeros(64)
AT = SPARE.ctypes.data
POOLS = {
    ("average", 1): torch.nn.functional.avg_pool1d,
    ("average", 2): torch.nn.functional.avg_pool2d,
    ("average", 3): torch.nn.functional.avg_pool3d,
    ("max", 1): torch.nn.functional.max_pool1d,
    ("max", 2): torch.nn.functional.max_pool2d,
    ("max", 3): torch.nn.functional.max_pool3d,
}


@pytest.fixture(autouse=True)
def one_thread():
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


def pooled(x, block, kind="average", threads=1):
    sizes = list(x.shape[2:])
    to = x.new_full((*x.shape[:2], *(-(-n // b) for n, b in zip(sizes, block))), math.nan)
    planes = x.shape[0] * x.shape[1]
    _core.pool_blocks(NAMES[x.dtype], planes, sizes, list(block), kind, x.data_ptr(), to.data_ptr(), threads)
    return to


def upsampled(small, sizes, block):
    for axis, (size, b) in enumerate(zip(sizes, block), start=2):
        small = small.repeat_interleave(b, axis).narrow(axis, 0, size)
    return small


def weight_gradient(small, gy, weight, sizes, stride, padding, dilation, groups, block, threads=1):
    axes = list(zip(sizes, gy.shape[2:], weight.shape[2:], stride, padding, dilation, block))
    gw = torch.full_like(weight, math.nan)
    _core.pooled_weight_gradient(
        NAMES[gy.dtype], gy.shape[0], small.shape[1], gy.shape[1], groups, axes, small.data_ptr(), gy.data_ptr(),
        gw.data_ptr(), threads,
    )  # fmt: skip
    return gw


@st.composite
def convolutions(draw):
    """Sizes, strides, … of a convolution that has at least one output."""
    dims = draw(st.integers(1, 3))
    groups = draw(st.sampled_from([1, 1, 1, 2, 3]))
    case = {
        "batch": draw(st.integers(1, 3)),
        "channels": (groups * draw(st.integers(1, 14)), groups * draw(st.integers(1, 7))),
        "groups": groups,
        "kernel": [],
        "stride": [],
        "padding": [],
        "dilation": [],
        "block": [],
        "sizes": [],
    }
    for _ in range(dims):
        kernel, dilation, padding = draw(st.integers(1, 4)), draw(st.integers(1, 3)), draw(st.integers(0, 4))
        least = max(1, dilation * (kernel - 1) + 1 - 2 * padding)
        case["kernel"].append(kernel)
        case["dilation"].append(dilation)
        case["padding"].append(padding)
        case["stride"].append(draw(st.integers(1, 3)))
        case["block"].append(draw(st.integers(1, 7)))
        case["sizes"].append(draw(st.integers(least, least + (24, 14, 6)[dims - 1])))
    return case


def oracle(full, gy, weight, case):
    dims = len(case["sizes"])
    return torch.ops.aten.convolution_backward(
        gy, full, weight, None, case["stride"], case["padding"], case["dilation"], False, [0] * dims, case["groups"],
        [False, True, False],
    )[1]  # fmt: skip


def tensors(case, dtype):
    torch.manual_seed(0)
    c_in, c_out = case["channels"]
    x = torch.randn(case["batch"], c_in, *case["sizes"], dtype=dtype)
    weight = torch.randn(c_out, c_in // case["groups"], *case["kernel"], dtype=dtype)
    y = torch.convolution(
        x, weight, None, case["stride"], case["padding"], case["dilation"], False, [0] * len(case["sizes"]),
        case["groups"],
    )  # fmt: skip
    return x, torch.randn_like(y), weight


def ours(small, gy, weight, case, threads=1):
    return weight_gradient(
        small, gy, weight, case["sizes"], case["stride"], case["padding"], case["dilation"], case["groups"],
        case["block"], threads,
    )  # fmt: skip


@settings(max_examples=150, deadline=None)
@given(convolutions())
def test_weight_gradient_is_that_of_the_upsampled_map(case):
    x, gy, weight = tensors(case, torch.float64)
    small = pooled(x, case["block"])
    expected = oracle(upsampled(small, case["sizes"], case["block"]), gy, weight, case)
    got = ours(small, gy, weight, case)
    torch.testing.assert_close(got, expected, rtol=1e-10, atol=1e-10)
    # Less precision, the same sums.
    single = ours(small.float(), gy.float(), weight.float(), case)
    torch.testing.assert_close(single.double(), expected, rtol=1e-3, atol=1e-3)


LAYERS = {
    "3x3": (8, 64, 64, 14, 3, 1, 1),
    "3x3 stride 2": (3, 64, 40, 17, 3, 2, 1),
    "1x1": (4, 130, 90, 9, 1, 1, 1),
    "stem": (2, 3, 64, 37, 7, 2, 1),
    "depthwise": (4, 96, 96, 15, 5, 1, 96),
    "grouped": (4, 64, 64, 14, 3, 1, 8),
    "wide": (1, 500, 16, 7, 3, 1, 1),
}


def layer(name, block):
    batch, c_in, c_out, size, kernel, stride, groups = LAYERS[name]
    return {
        "batch": batch, "channels": (c_in, c_out), "groups": groups, "kernel": [kernel] * 2, "stride": [stride] * 2,
        "padding": [kernel // 2] * 2, "dilation": [1, 1], "block": [block] * 2, "sizes": [size] * 2,
    }  # fmt: skip


@pytest.mark.parametrize("block", [1, 2, 3, 4])
@pytest.mark.parametrize("name", LAYERS)
@pytest.mark.sweep(14)
def test_weight_gradient_of_real_layers(name, block):
    case = layer(name, block)
    x, gy, weight = tensors(case, torch.float32)
    small = pooled(x, case["block"])
    full = x if block == 1 else upsampled(small, case["sizes"], case["block"])
    expected = oracle(full.double(), gy.double(), weight.double(), case)
    alone = ours(small, gy, weight, case)
    terms = math.sqrt(gy.numel() / gy.shape[1])
    torch.testing.assert_close(alone.double(), expected, rtol=1e-5, atol=2e-6 * terms)
    for threads in (2, 3, 5):
        assert torch.equal(ours(small, gy, weight, case, threads), alone), threads


def test_same_padding_may_be_uneven():
    # kernel 4: one before and two behind, as PyTorch's "same" has it
    x, weight = torch.randn(2, 3, 9, dtype=torch.float64), torch.randn(5, 3, 4, dtype=torch.float64)
    small = pooled(x, (2,))
    full = upsampled(small, (9,), (2,)).requires_grad_()
    leaf = weight.clone().requires_grad_()
    y = torch.nn.functional.conv1d(full, leaf, padding="same")
    gy = torch.randn_like(y)
    (expected,) = torch.autograd.grad(y, leaf, gy)
    got = weight_gradient(small, gy, weight, (9,), (1,), (1,), (1,), 1, (2,))
    torch.testing.assert_close(got, expected, rtol=1e-12, atol=1e-12)


def test_callers_on_several_threads_do_not_disturb_each_other():
    case = layer("3x3", 2)
    x, gy, weight = tensors(case, torch.float32)
    small = pooled(x, case["block"])
    expected = ours(small, gy, weight, case)
    wrong = []

    def call():
        for _ in range(5):
            if not torch.equal(ours(small, gy, weight, case, 2), expected):
                wrong.append(threading.get_ident())

    callers = [threading.Thread(target=call) for _ in range(4)]
    for caller in callers:
        caller.start()
    for caller in callers:
        caller.join()
    assert not wrong


@settings(max_examples=100, deadline=None)
@given(
    st.sampled_from(["average", "max"]),
    st.lists(st.tuples(st.integers(1, 20), st.integers(1, 6)), min_size=1, max_size=3),
    st.sampled_from([torch.float32, torch.float64]),
    st.integers(1, 3),
)
def test_pooling_is_torchs_with_true_counts(kind, axes, dtype, threads):
    sizes, block = [n for n, _ in axes], [min(n, b) for n, b in axes]
    torch.manual_seed(1)
    x = torch.randn(2, 3, *sizes, dtype=dtype)
    more = {"count_include_pad": False} if kind == "average" else {}
    expected = POOLS[kind, len(axes)](x, block, ceil_mode=True, **more)
    tolerance = {"rtol": 0, "atol": 0} if kind == "max" else {}
    torch.testing.assert_close(pooled(x, block, kind, threads), expected, **tolerance)


def test_a_block_larger_than_the_map_is_the_whole_map():
    x = torch.randn(2, 3, 5, 7, dtype=torch.float64)
    torch.testing.assert_close(pooled(x, (9, 100)), x.mean((2, 3), keepdim=True))
    torch.testing.assert_close(pooled(x, (9, 100), "max"), x.amax((2, 3), keepdim=True))


@pytest.mark.parametrize("kind", ["average", "max"])
@pytest.mark.parametrize("at", range(4))
def test_a_nan_is_seen_in_its_block_alone(kind, at):
    x = torch.zeros(1, 1, 2, 4)
    x[0, 0, at // 2, at % 2] = math.nan
    got = pooled(x, (2, 2), kind)
    assert got[0, 0, 0, 0].isnan() and got[0, 0, 0, 1] == 0


def test_numpy_memory_serves_as_well():
    x = numpy.arange(12, dtype=numpy.float64).reshape(1, 1, 3, 4)
    to = numpy.empty((1, 1, 2, 2))
    _core.pool_blocks("float64", 1, [3, 4], [2, 2], "average", x.ctypes.data, to.ctypes.data)
    assert to.tolist() == [[[[2.5, 4.5], [8.5, 10.5]]]]


@pytest.mark.parametrize(
    "call, message",
    [
        (lambda: _core.pool_blocks("float16", 1, [4], [2], "average", AT, AT), "dtype is 'float16'"),
        (lambda: _core.pool_blocks("float32", 1, [4], [2], "mean", AT, AT), "kind is 'mean'; .*'average' or 'max'"),
        (lambda: _core.pool_blocks("float32", 1, [4, 4], [2], "max", AT, AT), "1 blocks for 2 axes"),
        (lambda: _core.pool_blocks("float32", 1, [4] * 4, [2] * 4, "max", AT, AT), "4 axes; there must be 1, 2 or 3"),
        (lambda: _core.pool_blocks("float32", 1, [4], [0], "max", AT, AT), "blocks of 0"),
        (lambda: _core.pool_blocks("float32", 1, [4], [1], "max", AT, AT, 0), "threads is 0"),
        (lambda: _core.sign_bits("float32", 1, 0, 0), "address is 0"),
        (lambda: _core.sign_bits("float32", -1, AT, AT), "count is -1"),
        (lambda: _core.sign_bits("float32", 1, AT, AT, rule="gelu"), "rule is 'gelu'"),
        (lambda: _core.pack_small("int64", 1, AT, 5, AT), "5 bits each; it must be 4 or 8"),
        (lambda: _core.pack_small("int32", 1, AT, 4, AT), "dtype is 'int32'"),
        (lambda: _core.int8_channels_encode("float32", 1, 0, 1, AT, 0, AT, AT), "each size must be at least 1"),
    ],
)
def test_what_cannot_be_is_refused(call, message):
    with pytest.raises(ebb.Error, match=message) as caught:
        call()
    assert caught.value.code == "invalid_argument"


@pytest.mark.parametrize(
    "channels, groups, axis, message",
    [
        ((4, 4), 3, (8, 8, 3, 1, 1, 1, 2), "3 groups of 4 and 4 channels"),
        ((4, 4), 1, (8, 10, 3, 1, 1, 1, 2), "output's size is 10; .* at most 9"),
        ((4, 4), 1, (2, 3, 3, 1, 0, 2, 2), "at most 2"),
        ((4, 4), 1, (8, 8, 3, 0, 1, 1, 2), "stride is 0"),
        ((4, 4), 1, (8, 8, 3, 1, -1, 1, 2), "padding is -1"),
        ((0, 4), 1, (8, 8, 3, 1, 1, 1, 2), "in_channels is 0"),
    ],
)
def test_a_shape_that_cannot_be_is_refused(channels, groups, axis, message):
    with pytest.raises(ebb.Error, match=message):
        _core.pooled_weight_gradient("float32", 1, *channels, groups, [axis], AT, AT, AT)

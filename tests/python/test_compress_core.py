# SPDX-License-Identifier: Apache-2.0
"""The arithmetic of compressed activations against PyTorch's own operations."""

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


def every_kind_of_number(count, dtype, seed=0):
    torch.manual_seed(seed)
    x = torch.randn(count, dtype=dtype) * 3
    tiny = torch.finfo(dtype).smallest_normal / 8
    special = [math.nan, -math.nan, 0.0, -0.0, math.inf, -math.inf, tiny, -tiny, 6.0, 1.0, -1.0]
    at = torch.randperm(count)[: len(special)]
    x[at] = torch.tensor(special, dtype=dtype)[: len(at)]
    return x


def bits_of(x, threads=1, **more):
    bits = torch.full(((x.numel() + 7) // 8,), 255, dtype=torch.uint8)
    _core.sign_bits(NAMES[x.dtype], x.numel(), x.data_ptr(), bits.data_ptr(), threads=threads, **more)
    return bits


def masked(bits, gy, threads=1, slope=None):
    gx = torch.full_like(gy, math.nan)
    _core.masked(NAMES[gy.dtype], gy.numel(), bits.data_ptr(), gy.data_ptr(), gx.data_ptr(), slope, threads)
    return gx


def same_bits(a, b):
    whole = torch.int32 if a.dtype == torch.float32 else torch.int64
    return torch.equal(a.view(whole), b.view(whole))


COUNTS = [1, 7, 8, 9, 63, 64, 65, 511, 513, 4096, 9001]


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("count", COUNTS)
def test_bits_have_the_bits_of_torchs_relus(count, dtype):
    x, gy = every_kind_of_number(count, dtype), every_kind_of_number(count, dtype, 1)
    aten = torch.ops.aten
    no_nan = x.nan_to_num(0.5)  # of a NaN torch's clamps make what its place in memory says
    for threads in (1, 2):
        bits = bits_of(x, threads, rule="relu")
        assert same_bits(masked(bits, gy, threads), aten.threshold_backward(gy, x, 0))
        assert same_bits(masked(bits, gy, threads), aten.threshold_backward(gy, torch.relu(x), 0))
        bits = bits_of(x, threads, rule="positive")
        expected = aten.leaky_relu_backward(gy, x, 0.01, False)
        assert same_bits(masked(bits, gy, threads, slope=0.01), expected)
        bits = bits_of(no_nan, threads, rule="between", low=0, high=6)
        assert same_bits(masked(bits, gy, threads), aten.hardtanh_backward(gy, no_nan, 0, 6))


def test_bits_are_lowest_first_and_padded_with_0():
    x = torch.tensor([1.0, -1, 0, 2, -1, -1, -1, -1, -1, 5])
    assert bits_of(x).tolist() == [0b1001, 0b10]
    assert bits_of(torch.full((3,), math.nan), rule="between").tolist() == [0]


def test_masking_may_be_in_place():
    x, gy = torch.randn(1000), torch.randn(1000)
    bits, expected = bits_of(x), torch.where(x > 0, gy, 0.0)
    _core.masked("float32", 1000, bits.data_ptr(), gy.data_ptr(), gy.data_ptr())
    assert torch.equal(gy, expected)


@pytest.mark.parametrize("dtype", [torch.int64, torch.uint8])
@pytest.mark.parametrize("bits", [4, 8])
@pytest.mark.parametrize("count", [0, 1, 2, 3, 4095, 4097, 9000])
def test_small_indices_come_back(count, bits, dtype):
    torch.manual_seed(count)
    indices = torch.randint(0, 2**bits, (count,)).to(dtype)
    packed = torch.full(((count * bits + 7) // 8 + 1,), 77, dtype=torch.uint8)
    back = torch.zeros_like(indices)
    for threads in (1, 2):
        _core.pack_small(NAMES[dtype], count, indices.data_ptr(), bits, packed.data_ptr(), threads)
        _core.unpack_small(NAMES[dtype], count, packed.data_ptr(), bits, back.data_ptr(), threads)
        assert torch.equal(back, indices) and packed[-1] == 77
    if bits == 4 and count >= 2:
        assert packed[0] == indices[0] + 16 * indices[1]


@pytest.mark.parametrize("bad, bits", [(16, 4), (-1, 4), (256, 8), (-1, 8), (2**40, 8)])
def test_an_index_too_large_is_refused(bad, bits):
    indices = torch.zeros(9, dtype=torch.int64)
    indices[6] = bad
    packed = torch.zeros(9, dtype=torch.uint8)
    with pytest.raises(ebb.Error, match=rf"element 6 is {bad}; .* 0 to {2**bits - 1}") as caught:
        _core.pack_small("int64", 9, indices.data_ptr(), bits, packed.data_ptr())
    assert caught.value.code == "invalid_argument"


def channels_round_trip(x, mean=None, threads=1):
    n, c, inner = x.shape[0], x.shape[1], x[0, 0].numel()
    codes, scales = torch.zeros(x.shape, dtype=torch.int8), torch.zeros(c)
    address = 0 if mean is None else mean.data_ptr()
    name, back = NAMES[x.dtype], torch.full_like(x, math.nan)
    _core.int8_channels_encode(name, n, c, inner, x.data_ptr(), address, codes.data_ptr(), scales.data_ptr(), threads)
    _core.int8_channels_decode(
        name, n, c, inner, codes.data_ptr(), scales.data_ptr(), address, back.data_ptr(), threads
    )
    return codes, scales, back


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("centred", [False, True])
def test_channels_come_back_within_half_a_scale(centred, dtype):
    torch.manual_seed(3)
    x = torch.randn(3, 5, 7, 9, dtype=dtype) * torch.tensor([1, 1e-3, 1e4, 0, 7]).view(1, 5, 1, 1) + 2
    mean = x.mean((0, 2, 3)) if centred else None
    centre = 0 if mean is None else mean.view(1, 5, 1, 1)
    codes, scales, back = channels_round_trip(x, mean)
    largest = (x - centre).abs().amax((0, 2, 3))
    torch.testing.assert_close(scales.to(dtype), (largest / 127).clamp(min=2.0**-126), rtol=1e-6, atol=0)
    own = scales.to(dtype).view(1, 5, 1, 1)
    expected = torch.round((x - centre) / own)
    assert (codes.to(dtype) - expected).abs().max() <= 1  # a tie may fall either way after a float's rounding
    assert ((back - x).abs() <= own * 0.5001 + x.abs() * 2.0**-22).all()
    for threads in (2, 3):
        again = channels_round_trip(x, mean, threads)
        assert all(torch.equal(a, b) for a, b in zip(again, (codes, scales, back)))


@pytest.mark.parametrize("bad", [math.nan, math.inf, -math.inf])
def test_what_is_not_finite_shows_in_its_channel(bad):
    x = torch.randn(2, 3, 4)
    x[1, 1, 2] = bad
    back = channels_round_trip(x)[2]
    assert back[:, 1].isnan().all() and back[:, [0, 2]].isfinite().all()


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("count", [1, 63, 64, 65, 1000, 70000])
def test_blocks_come_back_within_half_a_scale(count, dtype):
    torch.manual_seed(count)
    x = torch.randn(count, dtype=dtype) * torch.logspace(-6, 6, count, dtype=dtype)
    rows = -(-count // 64)
    padded = torch.nn.functional.pad(x, (0, rows * 64 - count)).view(rows, 64)
    for threads in (1, 2):
        codes, scales = torch.zeros(count, dtype=torch.int8), torch.zeros(rows)
        back = torch.full_like(x, math.nan)
        name = NAMES[dtype]
        _core.int8_blocks_encode(name, count, x.data_ptr(), codes.data_ptr(), scales.data_ptr(), threads)
        _core.int8_blocks_decode(name, count, codes.data_ptr(), scales.data_ptr(), back.data_ptr(), threads)
        torch.testing.assert_close(scales.to(dtype), padded.abs().amax(1) / 127, rtol=1e-6, atol=0)
        allowed = scales.to(dtype).repeat_interleave(64)[:count] * 0.5001
        assert ((back - x).abs() <= allowed).all()


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

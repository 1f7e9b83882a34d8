# SPDX-License-Identifier: Apache-2.0
"""The codecs in torch's operations against the library's: the same encoded bytes, the same numbers back."""

from __future__ import annotations

import numpy as np
import pytest

torch = pytest.importorskip("torch", reason="PyTorch is not installed")
from hypothesis import given, settings  # noqa: E402
from hypothesis import strategies as st  # noqa: E402
from hypothesis.extra.numpy import arrays  # noqa: E402

from ebb import _core  # noqa: E402
from ebb._loop.codec import formulas as formulas  # noqa: E402
from ebb._loop.codec.codec import Codec  # noqa: E402

torch.set_num_threads(1)
WORDS = ["bf16", "fp16", "int8", "pool:2", "pool:3", "pool:64"]
LARGEST = 3.4028234663852886e38
SPECIAL = [0.0, -0.0, 1.0, -1.0, 127.0, 1e-45, 1e-40, 65504.0, 65520.0, LARGEST, -LARGEST, 0.5, 2.5]


class Formulas(Codec):
    """Without the library's own code."""

    def __init__(self, words: str):
        super().__init__(words)
        self._native = {}


def fields(kind: type) -> st.SearchStrategy:
    width = 32 if kind is np.float32 else 64
    numbers = st.one_of(
        st.sampled_from(SPECIAL),
        st.floats(-2, 2, width=width),
        st.floats(-LARGEST, LARGEST, width=width, allow_nan=False),
    )
    return st.integers(1, 200).flatmap(lambda count: arrays(kind, count, elements=numbers))


@pytest.mark.parametrize("words", WORDS)
@pytest.mark.parametrize("kind", [np.float32, np.float64])
@settings(max_examples=60, deadline=None)
@given(data=st.data())
def test_same_bytes_and_same_numbers(words, kind, data):
    mine, library = Formulas(words), Codec(words)
    field = data.draw(fields(kind))
    flat = torch.from_numpy(field)
    encoded, taken = library.encode(flat)
    ours, ours_taken = mine.encode(flat)
    assert bool(taken) and bool(ours_taken)
    assert encoded.numel() == library.encoded_bytes(flat.dtype, flat.numel())
    assert encoded.numel() == _core.Codec(words, "f32" if kind is np.float32 else "f64").encoded_bytes(field.nbytes)
    assert torch.equal(ours, encoded)
    back, ours_back = (codec.decode(encoded, flat.dtype, flat.numel()) for codec in (library, mine))
    # By their bits: a zero has a sign, and sums beyond the range are no numbers.
    assert ours_back.numpy().tobytes() == back.numpy().tobytes()


@pytest.mark.parametrize("kind", [np.float32, np.float64])
@settings(max_examples=60, deadline=None)
@given(data=st.data())
def test_bits(kind, data):
    values = st.sampled_from([0.0, 1.0])
    field = data.draw(st.integers(1, 200).flatmap(lambda count: arrays(kind, count, elements=values)))
    odd = data.draw(st.sampled_from([None, -0.0, 0.5, 2.0, -1.0, float("nan")]))
    if odd is not None:
        field[data.draw(st.integers(0, len(field) - 1))] = odd
    flat = torch.from_numpy(field)
    mine, library = Formulas("bits"), Codec("bits")
    (encoded, taken), (ours, ours_taken) = library.encode(flat), mine.encode(flat)
    assert bool(taken) == bool(ours_taken) == (odd is None)
    if odd is None:
        assert torch.equal(ours, encoded)
        for codec in (mine, library):
            assert torch.equal(codec.decode(encoded, flat.dtype, flat.numel()), flat)


def test_ties_go_to_the_even_code():
    flat = torch.tensor([127.0, 0.5, 1.5, 2.5, -0.5, -1.5, -2.5])
    for codec in (Codec("int8"), Formulas("int8")):
        encoded = codec.encode(flat)[0]
        assert encoded[:4].view(torch.float32).tolist() == [1.0]
        assert encoded[4:].view(torch.int8).tolist() == [127, 0, 2, 2, 0, -2, -2]


@pytest.mark.parametrize("value", [float("inf"), float("-inf"), float("nan")])
def test_int8_does_not_take_what_is_not_finite(value):
    flat = torch.ones(100)
    flat[77] = value
    assert not bool(Codec("int8").encode(flat)[1])
    assert not bool(Formulas("int8").encode(flat)[1])


@pytest.mark.parametrize("words, most", [("int8", 1 / 254 + 2**-9), ("pool:1", 0.0), ("bits", 0.0)])
@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_two_byte_tensors(words, most, dtype):
    flat = (torch.rand(1000) > 0.5).to(dtype) if words == "bits" else torch.rand(1000).to(dtype)
    codec = Codec(words)
    encoded, taken = codec.encode(flat)
    assert bool(taken) and encoded.numel() == codec.encoded_bytes(dtype, 1000)
    assert float((codec.decode(encoded, dtype, 1000).float() - flat.float()).abs().max()) <= most


def test_what_does_not_become_smaller_does_not_suit():
    assert Codec("bf16").suits(torch.float32, 1024)
    assert not Codec("bf16").suits(torch.bfloat16, 1024)
    assert not Codec("bf16").suits(torch.float32, 16)
    assert not Codec("int8").suits(torch.int64, 1024)
    assert not Codec("pool:1").suits(torch.float32, 1024)


def test_addresses_and_sizes_are_checked():
    codec = _core.Codec("bf16", "f32")
    field, room = torch.ones(8), torch.empty(16, dtype=torch.uint8)
    with pytest.raises(RuntimeError, match="15 bytes for 16"):
        codec.encode(field.data_ptr(), 32, room.data_ptr(), 15)
    with pytest.raises(RuntimeError, match="no whole number"):
        codec.encode(field.data_ptr(), 31, room.data_ptr(), 16)
    with pytest.raises(RuntimeError, match="an address"):
        codec.encode(0, 32, room.data_ptr(), 16)
    with pytest.raises(RuntimeError, match="instead of 16"):
        codec.decode(room.data_ptr(), 14, field.data_ptr(), 32)
    with pytest.raises(RuntimeError, match="f32, f64 or byte"):
        _core.Codec("bf16", "f16")


def test_the_library_lists_its_codecs():
    rows = {row.name: row for row in _core.codecs()}
    assert rows["bits"].exact and not rows["bf16"].exact and not rows["events"].fixed
    assert formulas.encode_bits(torch.ones(3))[0].tolist() == [7]

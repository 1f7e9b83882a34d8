# SPDX-License-Identifier: Apache-2.0
"""The pool of host memory behind ebb.offload: blocks never overlap, and all of it comes back."""

from __future__ import annotations

import pytest

torch = pytest.importorskip("torch", reason="PyTorch is not installed")
from hypothesis import given, settings  # noqa: E402
from hypothesis import strategies as st  # noqa: E402

from ebb._tensor.host_pool import HostPool  # noqa: E402

MIB = 1 << 20


class Transfer:
    """An event that ends when it is told to."""

    def __init__(self):
        self.ended = False

    def query(self):
        return self.ended


@settings(max_examples=200, deadline=None)
@given(
    st.sampled_from([4096, 100_000, MIB, 3 * MIB]),
    st.sampled_from([512, 4096]),
    st.lists(st.tuples(st.booleans(), st.integers(0, 200_000), st.integers(0, 1000)), max_size=60),
)
def test_blocks_hold_what_was_written(capacity, granule, moves):
    pool = HostPool(capacity, pin=False, granule=granule)
    held = []
    for number, (takes, size, which) in enumerate(moves):
        if takes:
            block = pool.take(size)
            if block is None:
                continue
            assert block.size >= size and block.size % granule == 0
            assert block.bytes.data_ptr() % granule == 0
            block.bytes.fill_(number % 251)
            held.append((block, number % 251))
        elif held:
            block, value = held.pop(which % len(held))
            assert (block.bytes == value).all()
            pool.give(block)
        assert pool.used == sum(block.size for block, _ in held) <= pool.bytes <= capacity
        assert pool.used <= pool.peak
    for block, value in held:
        assert (block.bytes == value).all()
        pool.give(block)
    assert pool.used == 0
    # All ranges have grown together again.
    largest = pool.take(pool.largest // granule * granule)
    assert largest is not None


def test_a_pool_of_its_size_is_taken_once():
    pool = HostPool(3 * MIB, pin=False)
    assert pool.bytes == 0
    first = pool.take(1000)
    assert (pool.bytes, pool.largest) == (3 * MIB, 2 * MIB)
    assert pool.take(2 * MIB + 1) is None
    pool.give(first)
    assert pool.take(2 * MIB) is not None and pool.take(MIB) is not None
    assert pool.take(1) is None


def test_a_pool_without_a_size_grows_and_stays():
    pool = HostPool(None, pin=False)
    blocks = [pool.take(48 * MIB) for _ in range(3)]
    assert pool.bytes == 3 * 64 * MIB
    for block in blocks:
        pool.give(block)
    for block in [pool.take(48 * MIB) for _ in range(3)]:
        pool.give(block)
    assert (pool.bytes, pool.peak) == (3 * 64 * MIB, 3 * 48 * MIB)


def test_no_pool():
    assert HostPool(0, pin=False).take(1) is None


def test_who_takes_a_block_learns_what_still_uses_it():
    pool = HostPool(4096, pin=False)
    left, right = pool.take(2048), pool.take(2048)
    first, second = Transfer(), Transfer()
    left.events.append(first)
    right.events.append(second)
    pool.give(left)
    pool.give(right)
    both = pool.take(4096)
    assert set(both.events) == {first, second}
    pool.give(both)
    first.ended = True
    part = pool.take(512)
    assert part.events == [second]
    assert pool.take(512).events == [second]


@pytest.mark.skipif(torch.cuda.is_available(), reason="pinned memory can be had")
def test_pages_that_cannot_be_locked_are_ordinary_ones():
    pool = HostPool(MIB, pin=True)
    block = pool.take(1000)
    assert not block.pinned
    assert (pool.bytes, pool.pinned_bytes) == (MIB, 0)


@pytest.mark.skipif(not torch.cuda.is_available(), reason="no CUDA device")
def test_pages_are_locked():
    pool = HostPool(3 * MIB, pin=True)
    block = pool.take(2 * MIB)
    assert block.pinned and block.bytes.is_pinned() and block.bytes.data_ptr() % 4096 == 0
    assert pool.pinned_bytes == 3 * MIB

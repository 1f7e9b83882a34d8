# SPDX-License-Identifier: Apache-2.0
"""Tiers and the store from Python: what is put comes back, and mistakes are refused, not followed."""

import gc
import sys
import threading

import numpy as np
import pytest

import ebb
from ebb import _core
from ebb.tiers import slow_tiers


@pytest.fixture(params=["ram", "disk", "threads"])
def tier(request, tmp_path):
    if request.param == "ram":
        return ebb.memory_tier("1MiB")
    return ebb.file_tier(tmp_path, "1MiB", engine="any" if request.param == "disk" else "threads")


def opened(*tiers, peak=1 << 20, items=16):
    return _core.Store(slow_tiers(tiers), [(peak, peak, items)] * len(tiers))


def address_of(array):
    return array.ctypes.data, array.nbytes


@pytest.mark.parametrize("numbers", [1, 7, 1000, 8192, 30000])
def test_what_is_put_comes_back(tier, numbers):
    rng = np.random.default_rng(numbers)
    store = opened(tier)
    items = [rng.integers(0, 255, numbers, dtype=np.uint8) for _ in range(5)]
    slots = [store.add(0, item.nbytes) for item in items]
    assert store.held(0) >= sum(item.nbytes for item in items)
    tickets = [store.put(0, slot, *address_of(item)) for slot, item in zip(slots, items)]
    for ticket in tickets:
        start, end, moved = store.wait(ticket)
        assert start <= end and moved == numbers
    back = [np.zeros(numbers, np.uint8) for _ in items]
    for slot, array in reversed(list(zip(slots, back))):
        ticket = store.get(0, slot, *address_of(array))
        store.wait(ticket)
    for item, array in zip(items, back):
        assert np.array_equal(item, array)
    for slot in slots:
        store.drop(0, slot)
    assert store.held(0) == 0


def test_memory_at_odd_addresses(tier):
    room = np.arange(20000, dtype=np.uint16).view(np.uint8)
    item, back = room[3:30001], np.zeros(30001, np.uint8)[2:30000]
    store = opened(tier)
    slot = store.add(0, item.nbytes)
    store.wait(store.put(0, slot, *address_of(item)))
    store.wait(store.get(0, slot, *address_of(back)))
    assert np.array_equal(item, back)


def test_a_ticket_keeps_what_it_is_told_to_keep(tier):
    store = opened(tier)
    item = np.ones(1000)
    before = sys.getrefcount(item)
    slot = store.add(0, item.nbytes)
    ticket = store.put(0, slot, *address_of(item), keep=item)
    assert sys.getrefcount(item) == before + 1
    store.wait(ticket)
    assert sys.getrefcount(item) == before
    store.put(0, slot, *address_of(item), keep=item)
    del store
    gc.collect()
    assert sys.getrefcount(item) == before


def test_mistakes_are_refused(tier):
    store = opened(tier)
    item = np.zeros(100, np.uint8)
    slot = store.add(0, 100)
    refused = [
        (lambda: store.add(1, 10), "no tier 1"),
        (lambda: store.add(-1, 10), "no tier -1"),
        (lambda: store.add(0, -1), "0 or more"),
        (lambda: store.put(0, slot + 1, *address_of(item)), "no slot"),
        (lambda: store.put(0, slot, 0, 10), "address 0"),
        (lambda: store.put(0, slot, item.ctypes.data, -1), "-1 bytes"),
        (lambda: store.wait(0), "no transfer has ticket 0"),
        (lambda: store.done(1000), "no transfer has ticket 1000"),
    ]
    for call, words in refused:
        with pytest.raises(ebb.Error, match=words) as found:
            call()
        assert found.value.code == "invalid_argument"
    with pytest.raises(ebb.Error, match="slot of 100"):
        large = np.zeros(101, np.uint8)
        store.put(0, slot, *address_of(large))
    ticket = store.put(0, slot, *address_of(item))
    for call in (lambda: store.drop(0, slot), lambda: store.get(0, slot, *address_of(item))):
        with pytest.raises(ebb.Error, match="under way; wait for it"):
            call()
    store.wait(ticket)
    with pytest.raises(ebb.Error, match="waited for once"):
        store.wait(ticket)
    store.drop(0, slot)
    with pytest.raises(ebb.Error, match="no slot"):
        store.drop(0, slot)


def test_what_was_never_put_is_an_error_at_the_ticket(tier):
    store = opened(tier)
    slot = store.add(0, 8)
    back = np.zeros(8, np.uint8)
    ticket = store.get(0, slot, *address_of(back))
    with pytest.raises(ebb.Error, match="nothing has been written") as found:
        store.wait(ticket)
    assert found.value.code == "io"
    store.drop(0, slot)


def test_as_many_transfers_as_may_be(tier):
    store = opened(tier, items=128)
    item = np.zeros(8, np.uint8)
    tickets = []
    while not store.full:
        tickets.append(store.put(0, store.add(0, 8), *address_of(item)))
    with pytest.raises(ebb.Error, match="under way; wait for one"):
        store.put(0, store.add(0, 8), *address_of(item))
    for ticket in tickets:
        store.wait(ticket)
    assert not store.full


def test_more_than_was_reserved_is_refused(tier):
    store = opened(tier, peak=1000)
    store.add(0, 900)
    with pytest.raises(ebb.Error) as found:
        store.add(0, 200)
    assert found.value.code == "out_of_budget"
    with pytest.raises(ebb.Error, match="capacity") as found:
        opened(tier, peak=2 << 20)
    assert found.value.code == "out_of_budget"


def test_memory_is_charged_to_the_ledger():
    ledger = _core.Ledger(5000)
    store = _core.Store(slow_tiers(ebb.memory_tier("1MiB")), [(4096, 4096, 1)], ledger)
    assert ledger.live == 4096
    with pytest.raises(ebb.Error) as found:
        _core.Store(slow_tiers(ebb.memory_tier("1MiB")), [(4096, 4096, 1)], ledger)
    assert found.value.code == "out_of_budget"
    store.close()
    assert ledger.live == 0
    with pytest.raises(ebb.Error, match="closed"):
        store.add(0, 1)
    store.close()


def test_several_threads_take_turns(tier):
    store = opened(tier, items=64)
    wrong = []

    def work(seed):
        rng = np.random.default_rng(seed)
        for _ in range(50):
            item, back = rng.random(200), np.zeros(200)
            slot = store.add(0, item.nbytes)
            store.wait(store.put(0, slot, *address_of(item), keep=item))
            store.wait(store.get(0, slot, *address_of(back), keep=back))
            store.drop(0, slot)
            if not np.array_equal(item, back):
                wrong.append(seed)

    threads = [threading.Thread(target=work, args=(seed,)) for seed in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(600)
    assert not wrong and store.held(0) == 0


def test_tiers_as_callers_say_them(tmp_path):
    assert ebb.memory_tier("2KiB").capacity == 2048
    disk = ebb.file_tier(tmp_path, 4096, name="scratch")
    assert (disk.directory, disk.name) == (str(tmp_path), "scratch")
    core = slow_tiers([ebb.memory_tier(1024), disk])
    assert [(tier.name, tier.capacity) for tier in core] == [("ram", 1024), ("scratch", 4096)]
    assert slow_tiers(None) == [] and len(slow_tiers(disk)) == 1
    refused = [
        (lambda: ebb.memory_tier("2 bananas"), "capacity"),
        (lambda: ebb.memory_tier(-1), "-1"),
        (lambda: ebb.memory_tier(1.5), "1.5"),
        (lambda: ebb.memory_tier(True), "True"),
        (lambda: ebb.memory_tier(1, name="fast"), "fast"),
        (lambda: ebb.memory_tier(1, name="my disk"), "a tier is named 'my disk'; a name begins with a letter"),
        (lambda: ebb.memory_tier(1, name=7), "7; it is a word"),
        (lambda: ebb.file_tier(tmp_path / "nowhere", 1), "nowhere"),
        (lambda: ebb.file_tier(tmp_path, 1, engine="steam"), "steam"),
        (lambda: slow_tiers([disk, disk]), "two are called"),
        (lambda: slow_tiers(["/tmp"]), "no tier"),
    ]
    for call, words in refused:
        with pytest.raises(ebb.Error, match=words):
            call()

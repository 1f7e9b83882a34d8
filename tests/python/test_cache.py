# SPDX-License-Identifier: Apache-2.0
"""The one cache of costs, plans and speeds."""

from __future__ import annotations

import copy
import gc
import pickle
import threading
import weakref
from collections import namedtuple

import pytest

from ebb._base.cache import Cache, cache, clear_cache


class Thing:
    pass


def test_the_entry_longest_unused_goes_first_whatever_its_section():
    small = Cache(3)
    one, other = small.section(), small.section()
    one.put("a", 1)
    other.put("a", 2)
    one.put("b", 3)
    assert one.get("a") == 1  # asked for: now the last to go
    other.put("b", 4)
    assert (one.get("a"), other.get("a"), one.get("b"), other.get("b")) == (1, None, 3, 4)
    assert len(small) == 3
    one.put("a", 5)
    other.put("c", 6)
    assert (one.get("a"), one.get("b"), len(small)) == (5, None, 3)


def test_entries_are_made_once():
    made = []
    section = cache.section()
    for _ in range(3):
        assert section.get_or("key", lambda: made.append(1) or "value") == "value"
    assert made == [1]


def test_entries_go_with_their_section_and_free_its_room():
    small = Cache(2)
    gone, stays = small.section(), small.section()
    value = Thing()
    seen = weakref.ref(value)
    stays.put("first", 1)
    gone.put("own", value)
    del value, gone
    gc.collect()
    assert seen() is None and len(small) == 1
    stays.put("second", 2)  # takes the room of the dead, not that of the oldest
    assert (stays.get("first"), stays.get("second")) == (1, 2)


def test_a_section_of_a_holder_lives_as_long_as_that():
    holder = Thing()
    section = weakref.ref(cache.section_of(holder))
    assert cache.section_of(holder) is section()
    del holder
    gc.collect()
    assert section() is None


@pytest.mark.parametrize("copied", [copy.deepcopy, lambda one: pickle.loads(pickle.dumps(one))])
def test_copies_begin_empty(copied):
    section = cache.section()
    section.put("key", threading.Lock())  # which cannot be copied
    assert copied(section).get("key") is None and section.get("key") is not None


def test_threads_share_it():
    small, errors = Cache(16), []
    shared = small.section()

    def work(number):
        try:
            own = small.section()
            for turn in range(2000):
                shared.put(turn % 24, turn % 24)
                own.put(turn % 5, number)
                assert shared.get(turn % 7) in (None, turn % 7)
                assert own.get(turn % 5) in (None, number)
        except BaseException as error:
            errors.append(error)

    threads = [threading.Thread(target=work, args=(number,)) for number in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not errors and len(small) <= 16


class Slotted:
    __slots__ = ("net",)

    def __init__(self, net):
        self.net = net


def scans(torch, ebb):
    net = torch.nn.Linear(4, 4)
    pair = namedtuple("Pair", "net scale")(net, torch.ones(4))
    slotted = Slotted(net)
    ebb.scan(
        lambda h, x: (torch.tanh(pair.net(h) * pair.scale + slotted.net(x)), None),
        torch.zeros(2, 4),
        torch.randn(20, 2, 4),
        budget="1MiB",
        params=net,
    )[0].sum().backward()
    return net


def chains(torch, ebb):
    net = torch.nn.Sequential(*[torch.nn.Linear(8, 8) for _ in range(4)])
    chain = ebb.Chain(net, torch.randn(2, 8), "1MiB")
    chain(torch.randn(2, 8)).sum().backward()
    net[0].above = [chain]  # a ring
    return net


def fits(torch, ebb):
    net = torch.nn.Sequential(torch.nn.Linear(8, 8), torch.nn.ReLU())
    return ebb.fit(net, torch.randn(2, 8), "1MiB", loss=lambda y: net(y).sum() * 0 + y.sum())


@pytest.mark.parametrize("used", [scans, chains, fits])
def test_no_model_is_kept_alive(used):
    torch = pytest.importorskip("torch")
    import ebb

    net = used(torch, ebb)
    seen = [weakref.ref(net), *(weakref.ref(parameter) for parameter in net.parameters())]
    del net
    gc.collect()
    assert [ref() for ref in seen] == [None] * len(seen)


def test_entries_that_hold_memory_are_bounded_in_bytes():
    small = Cache(100, nbytes=1000)
    section = small.section()
    section.put("a", 1, 600)
    section.put("light", 2)
    section.put("b", 3, 300)
    assert section.get("a") == 1 and section.get("b") == 3
    section.put("c", 4, 400)  # b was asked for last: a goes
    assert section.get("a") is None and section.get("b") == 3 and section.get("c") == 4 and section.get("light") == 2
    section.put("d", 5, 5000)  # the newest stays, whatever it holds
    assert [section.get(key) for key in "abcd"] == [None, None, None, 5] and section.get("light") == 2
    section.drop("d")
    section.drop("d")
    assert section.get("d") is None and len(small) == 1


def test_all_of_it_can_be_forgotten():
    small = Cache(100)
    sections = [small.section(), small.section()]
    for section in sections:
        section.put("a", 1, 10)
    small.clear()
    assert len(small) == 0 and all(section.get("a") is None for section in sections)
    cache.section().put("a", 1)
    clear_cache()
    assert len(cache) == 0

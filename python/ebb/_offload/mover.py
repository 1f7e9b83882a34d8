# SPDX-License-Identifier: Apache-2.0
"""Moves items away from their device and back: host memory first, then disk."""

from __future__ import annotations

import collections
import weakref
from typing import Any

import torch

from ebb._offload.disk import Disk, Ticket
from ebb._offload.item import Item, Remains
from ebb._offload.lane import Lane
from ebb._offload.report import OffloadReport
from ebb._tensor.host_pool import HostBlock, HostPool, pageable_block


class _Written:
    """A host tensor on its way to disk."""

    nbytes = 0  # of a device

    def __init__(self, ticket: Ticket):
        self.ticket = ticket
        self.done = ticket.done

    def let_go(self) -> None:
        self.ticket.failed()


class _Read:
    """A host tensor on its way from disk."""

    def __init__(self, memory: torch.Tensor, ticket: Ticket):
        self.memory, self.ticket = memory, ticket

    def wait(self) -> torch.Tensor:
        self.ticket.wait()
        return self.memory


class _Staged:
    """On its way from disk through a block to the device."""

    def __init__(self, lane: Lane, block: HostBlock, size: int, ticket: Ticket):
        self.lane, self.block, self.size, self.ticket = lane, block, size, ticket
        self.second: Any = None

    def go_on(self) -> bool:
        """False while the disk is read."""
        if not self.ticket.done():
            return False
        if self.second is None and not self.ticket.failed():
            self.second = self.lane.back(self.block, self.size)
        return True

    def wait(self) -> torch.Tensor:
        self.ticket.wait()
        self.go_on()
        return self.second.wait()


class _Spill:
    """A block of the pool on its way to disk."""

    def __init__(self, item: Item, ticket: Ticket, place: Any):
        self.item = weakref.ref(item)
        self.block, self.ticket, self.place = item.block, ticket, place


class Mover:
    """Not safe for threads: its owner locks."""

    def __init__(self, pool: HostPool, disk: Disk | None, use_streams: bool, stash: int):
        self.pool, self.disk = pool, disk
        self.report = OffloadReport()
        self._use_streams = use_streams
        self._stash = stash
        self._lanes: dict[torch.device, Lane] = {}
        self._moving: collections.deque[tuple[weakref.ref[Item], Any]] = collections.deque()
        self._hosted: collections.deque[weakref.ref[Item]] = collections.deque()  # in the pool, oldest first
        self._hosted_limit = 64  # entries, then the dead ones are looked for
        self._spilling: collections.deque[_Spill] = collections.deque()
        self._staged: collections.deque[weakref.ref[_Staged]] = collections.deque()
        self._waiting: collections.deque[Remains] = collections.deque()  # dead, with transfers under way

    @property
    def _on_disk(self) -> Disk:
        """Where something is to go there, or lies there."""
        assert self.disk is not None
        return self.disk

    def lane(self, device: torch.device) -> Lane:
        if device not in self._lanes:
            self._lanes[device] = Lane(device, self._use_streams)
        return self._lanes[device]

    @property
    def overlaps(self) -> bool:
        """Copies from a device take place while it computes."""
        return any(lane.streams for lane in self._lanes.values())

    @property
    def leaving(self) -> int:
        """Bytes of a device that copies under way still read."""
        return sum(leaving.nbytes for _, leaving in self._moving)

    def hold(self, room: int) -> None:
        """Lets go of the oldest copies from a device until those under way have at most that many bytes there: what computes waits for
        them."""
        self.retire()
        while self._moving and self.leaving > max(0, room):
            self._let_go()

    def move(self, item: Item, through_host: bool) -> bool:
        """Starts the way out; False where there is no room. ``through_host``: by the pool, else straight to disk."""
        self.retire()
        while len(self._moving) >= self._stash:
            self._let_go()
        if through_host:
            leaving = self._to_host(item)
            if leaving is None:
                return False
        else:
            place = self._on_disk.add(item.size)
            if place is None:
                return False
            item.place = place
            leaving = _Written(self._on_disk.put(place, item.source()))
            item.tickets = [leaving.ticket]
            self.report.written.add(item.size)
        self._moving.append((weakref.ref(item), leaving))
        self.report.moved.add(item.size)
        return True

    def _to_host(self, item: Item) -> Any:
        block = self._room(item.size)
        too_large = block is None
        if block is None:
            try:
                block = pageable_block(item.size)
            except RuntimeError:  # the host has no memory left
                return None
            self.report.overflow.add(item.size)
        (self.report.pinned if block.pinned else self.report.pageable).add(item.size)
        item.block = block
        leaving = self.lane(item.device).out(item.source(), block, item.producers)
        if self.disk is not None:
            (self._hosted.appendleft if too_large else self._hosted.append)(weakref.ref(item))
            if len(self._hosted) > self._hosted_limit:
                self._hosted = collections.deque(ref for ref in self._hosted if ref() is not None)
                self._hosted_limit = max(64, 2 * len(self._hosted))
            if too_large:
                self._spill(wait=True)
            while self.pool.used - sum(spill.block.size for spill in self._spilling) > self.pool.limit // 2:
                if not self._spill(wait=False):
                    break
        return leaving

    def _room(self, size: int) -> HostBlock | None:
        block = self.pool.take(size)
        while block is None and self.disk is not None and size <= self.pool.largest:
            if not self._spilling and not self._spill(wait=True):
                break
            self._end_spill()
            block = self.pool.take(size)
        return block

    def _spill(self, wait: bool) -> bool:
        """Sends the oldest item of the pool on its way to disk, if it has arrived in the pool or ``wait``."""
        while self._hosted:
            item = self._hosted[0]()
            if item is None or item.block is None or item.arriving is not None:
                self._hosted.popleft()
                continue
            if not wait and not all(event.query() for event in item.block.events):
                return False
            place = self._on_disk.add(item.size)
            if place is None:
                return False
            for event in item.block.events:
                event.synchronize()
            self._hosted.popleft()
            item.spill = _Spill(item, self._on_disk.put(place, item.block.bytes.narrow(0, 0, item.size)), place)
            self._spilling.append(item.spill)
            self.report.written.add(item.size)
            return True
        return False

    def _end_spill(self) -> None:
        spill = self._spilling.popleft()
        failed = spill.ticket.failed()
        item = spill.item()
        if item is not None:
            item.spill = None
        if failed:
            self.report.failed_writes += 1
        if failed and item is not None:
            self._on_disk.drop(spill.place)
            return
        if item is None:
            self._on_disk.drop(spill.place)
        else:
            item.block, item.place = None, spill.place
        self.pool.give(spill.block)

    def retire(self) -> None:
        """Looks what has ended, and waits for nothing."""
        while self._moving and self._moving[0][1].done():
            self._let_go()
        while self._spilling and self._spilling[0].ticket.done():
            self._end_spill()
        for _ in range(len(self._staged)):
            staged = self._staged.popleft()
            if (way := staged()) is not None and not way.go_on():
                self._staged.append(staged)
        for _ in range(len(self._waiting)):
            self.bury(self._waiting.popleft())

    def _let_go(self) -> None:
        ref, leaving = self._moving.popleft()
        leaving.let_go()
        item = ref()
        if item is None:
            return
        if isinstance(leaving, _Written) and leaving.ticket.failed():
            self.report.failed_writes += 1
            self.report.moved.add(item.size, -1)
            self.report.keep("full", item.size)
            self._on_disk.drop(item.place)
            item.place = None
            return
        item.storage = None

    def load(self, item: Item) -> None:
        """Starts the way back: ``item.arriving``."""
        item.seen.clear()
        lane = self.lane(item.device)
        if item.block is not None:
            item.arriving = lane.back(item.block, item.size)
            return
        self.report.read.add(item.size)
        if item.device.type == "cpu":
            memory = pageable_block(item.size).bytes
            item.arriving = _Read(memory, self._on_disk.get(item.place, memory))
            item.tickets = [item.arriving.ticket]
            return
        block = self.pool.take(item.size) or pageable_block(item.size)
        for event in block.events:
            event.synchronize()
        item.block = block
        staged = _Staged(lane, block, item.size, self._on_disk.get(item.place, block.bytes.narrow(0, 0, item.size)))
        item.arriving = staged
        item.tickets = [staged.ticket]
        self._staged.append(weakref.ref(staged))

    def unload(self, item: Item) -> None:
        """Forgets what came back; it is still where it came from."""
        item.arriving = None
        item.seen.clear()
        if item.place is not None and item.block is not None:
            self.pool.give(item.block)
            item.block = None

    def bury(self, remains: Remains) -> None:
        """Takes back what a dead item held, once no transfer uses it."""
        if remains.spill is not None:
            return  # the end of the spill does it
        if not all(ticket.done() for ticket in remains.tickets):
            self._waiting.append(remains)
            return
        for ticket in remains.tickets:
            ticket.failed()
        remains.arriving = None
        if remains.block is not None:
            self.pool.give(remains.block)
        if remains.place is not None:
            self._on_disk.drop(remains.place)

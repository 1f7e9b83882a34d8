# SPDX-License-Identifier: Apache-2.0
"""What is packed and unpacked when autograd saves a tensor: who stays, who leaves first, who is read ahead.

One rule makes it safe: a storage is moved only when nothing but the autograd graph holds it. So nothing can change it
while it is copied, what the caller holds anyway (parameters, buffers, inputs, outputs) is never copied, and all views
of one storage leave and come back together.
"""

from __future__ import annotations

import collections
import copy
import heapq
import threading
import weakref
from collections.abc import Callable

import torch

from ebb._base.errors import Error
from ebb._offload.item import Item, Link, Remains
from ebb._offload.mover import Mover
from ebb._offload.report import OffloadReport
from ebb._tensor.saved import KeptTensor, SavedView, held_by_others

# How many of the storages that somebody else held are looked at again when another tensor is saved.
_LOOKS = 8
# The part of a budget that is left to what is being copied: so much can leave while more is computed.
_COPIES = 4
# How far a read ahead looks back for something to read.
_STEPS = 64


class Saver:
    """Safe for threads: the engine unpacks in threads of its own."""

    def __init__(
        self,
        mover: Mover,
        *,
        least: int,
        budget: int | None,
        read_ahead: int,
        keep: Callable[[torch.Tensor], bool] | None,
        cpu_as_device: bool,
    ):
        self._mover = mover
        self._least = least
        self._budget = budget
        self._read_ahead = read_ahead
        self._keep = keep
        self._cpu_as_device = cpu_as_device
        self._lock = threading.RLock()
        self._returned: collections.deque[Remains] = collections.deque()
        self._order = Link()
        self._age = 0
        self._items: dict[int, weakref.ref[Item]] = {}  # on the device, by storage
        self._queue: list[tuple[int, weakref.ref[Item]]] = []  # ours, a heap with the oldest on top
        self._held: collections.deque[weakref.ref[Item]] = collections.deque()  # somebody else's too
        self._queue_limit = 64  # entries, then the dead ones are looked for
        self._resident = 0  # bytes of the queue
        self._ahead = 0
        self._turn = 0  # a tensor that is asked for again begins another

    def report(self) -> OffloadReport:
        with self._lock:
            self._take_back()
            pool, report = self._mover.pool, self._mover.report
            report.pool_bytes = pool.bytes
            report.pool_pinned = pool.bytes > 0 and pool.pinned_bytes == pool.bytes
            report.pool_peak = pool.peak
            return copy.deepcopy(report)

    def end(self) -> None:
        """Of the context: whoever held something in there may have let it go."""
        with self._lock:
            self._settle(len(self._held))
            self._say_why()

    def pack(self, tensor: torch.Tensor) -> KeptTensor | SavedView:
        with self._lock:
            self._mover.report.saved += 1
            why = self._why_kept(tensor)
            if why is not None:
                self._mover.report.keep(why, tensor.numel() * tensor.element_size())
                return KeptTensor(tensor)
            item = self._item(tensor)
            saved = SavedView(tensor, item)
            self._settle(_LOOKS)
            return saved

    def _why_kept(self, tensor: torch.Tensor) -> str | None:
        if type(tensor) not in (torch.Tensor, torch.nn.Parameter):
            return "kind"
        if tensor.layout != torch.strided or tensor.is_neg() or tensor.device.type not in ("cpu", "cuda"):
            return "kind"
        root = tensor if tensor._base is None else tensor._base
        if root.is_leaf and root.requires_grad:
            return "parameter"
        # The storage counts: a small view of a large one would keep it all on the device.
        if tensor.numel() == 0 or tensor.untyped_storage().nbytes() < self._least:
            return "small"
        if tensor.device.type == "cpu" and self._mover.disk is None and not self._cpu_as_device:
            return "host"
        if self._keep is not None and self._keep(tensor):
            return "asked"
        return None

    def _item(self, tensor: torch.Tensor) -> Item:
        """The one of its storage."""
        storage = tensor.untyped_storage()
        known = self._items.get(storage._cdata)
        item = None if known is None else known()
        if item is None:
            item = Item(storage, self._age, self._order, self._returned)
            self._age += 1
            ref = weakref.ref(item)
            self._items[item.key] = ref
            self._held.append(ref)
        stream = self._mover.lane(item.device).producer()
        if stream is not None:
            item.producers.add(stream)
        return item

    def _settle(self, looks: int) -> None:
        """Moves what is ours alone, the oldest first, until the rest fits the budget."""
        self._take_back()
        for _ in range(min(looks, len(self._held))):
            ref = self._held.popleft()
            item = ref()
            if item is None:
                continue
            assert item.storage is not None
            if held_by_others(item.storage):
                self._held.append(ref)
                continue
            item.queued = item.storage.nbytes()
            self._resident += item.queued
            heapq.heappush(self._queue, (item.age, ref))
        if len(self._queue) > self._queue_limit:
            self._queue = [entry for entry in self._queue if entry[1]() is not None]
            heapq.heapify(self._queue)
            self._queue_limit = max(64, 2 * len(self._queue))
        while self._queue and self._resident > self._stays():
            item = heapq.heappop(self._queue)[1]()
            if item is not None:
                self._leave(item)
        if self._budget is not None:
            self._mover.hold(self._budget - self._resident)

    def _stays(self) -> int:
        """Bytes that do not leave: of a budget those that copies under way need no room for."""
        room = self._budget or 0
        return room - room // _COPIES if self._mover.overlaps else room

    def _leave(self, item: Item) -> None:
        self._resident -= item.queued
        item.queued = 0
        assert item.storage is not None
        if held_by_others(item.storage):
            self._held.append(weakref.ref(item))
            return
        del self._items[item.key]
        through_host = item.device.type != "cpu" or self._cpu_as_device
        moved = self._mover.move(item, through_host)
        if item.reason is not None:
            self._mover.report.keep(item.reason, item.size, -1)
            item.reason = None
        if not moved:
            self._mover.report.keep("full", item.size)

    def _say_why(self) -> None:
        """Counts what is still on the device at the end of the context."""
        for refs, reason in ((self._held, "held"), ([ref for _, ref in self._queue], "budget")):
            for ref in refs:
                item = ref()
                if item is not None and item.reason is None:
                    item.reason = reason
                    self._mover.report.keep(reason, item.size)

    def unpack(self, packed: KeptTensor | SavedView) -> torch.Tensor:
        with self._lock:
            if isinstance(packed, KeptTensor):
                return packed.tensor()
            packed.check_version()
            if packed.turn == self._turn:
                self._turn += 1
            packed.turn = self._turn
            self._take_back()
            item = packed.item
            if item.storage is not None:
                storage, start = item.storage, 0
            else:
                memory = self._bring(item)
                storage, start = memory.untyped_storage(), item.low - memory.storage_offset()
            view = packed.view(storage, start)
            item.seen.add(packed.index)
            if item.arriving is not None and len(item.seen) == item.views:
                self._mover.unload(item)
                item.turn = self._turn
            self._look_ahead(item.link)
            return view

    def _bring(self, item: Item) -> torch.Tensor:
        if item.arriving is None:
            self._mover.report.misses += 1
            self._mover.load(item)
        elif item.ahead:
            self._mover.report.hits += 1
        self._ahead -= item.ahead
        item.ahead = 0
        try:
            return item.arriving.wait()
        except Error:
            item.arriving = None
            raise

    def _look_ahead(self, link: Link) -> None:
        """Starts reading what the backward pass needs next: what was saved before."""
        room = self._read_ahead
        if self._budget is not None:
            room = min(room, self._budget - self._resident - self._mover.leaving)
        for _ in range(_STEPS):
            link = link.older
            if link.item is None or self._ahead >= room:
                break
            item = link.item()
            if item is None or item.storage is not None or item.arriving is not None or item.turn == self._turn:
                continue
            if self._ahead + item.size > room:
                break
            try:
                self._mover.load(item)
            except torch.cuda.OutOfMemoryError:
                break  # what is needed now may still fit
            item.ahead = item.size
            self._ahead += item.size

    def _take_back(self) -> None:
        """What dead items held."""
        while self._returned:
            remains = self._returned.popleft()
            remains.link.unlink()
            known = self._items.get(remains.key)
            if known is not None and known() is None:
                del self._items[remains.key]
            self._resident -= remains.queued
            self._ahead -= remains.ahead
            self._mover.bury(remains)
        self._mover.retire()

# SPDX-License-Identifier: Apache-2.0
"""What happens in a step, layer by layer: who keeps which bytes, how long each takes, how much memory passes by."""

from __future__ import annotations

import time
import weakref
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor, nn
from torch.utils._pytree import tree_leaves

from ebb._compress.packed import is_watched
from ebb._compress.sample_step import SampleStep
from ebb._compress.settings import Settings
from ebb._compress.sources import Source
from ebb._tensor.memory import LiveBytes
from ebb._tensor.trees import rounded

_top_hooks = getattr(torch._C._autograd, "_top_saved_tensors_default_hooks", None)  # an older torch does not say


@dataclass
class KeptStorage:
    """A storage that is kept for the backward pass, by its number; the bytes count where it is kept first."""

    storage: int
    bytes: int


@dataclass
class WantedTensor:
    """A tensor that torch wanted to save, by its number; what is kept for it may be something smaller."""

    tensor: int
    storage: int
    bytes: int


@dataclass
class Event:
    """A call of a layer, or what is kept between such calls: then `layer` is None and `name` is what contains it."""

    name: str
    kind: str
    layer: nn.Module | None = None
    x_shape: tuple[int, ...] = ()
    x_item: int = 0  # bytes of an element
    x_tensor: int | None = None
    x_storage: int | None = None
    x_bytes: int = 0  # 0 where they are the caller's
    y_tensor: int | None = None
    y_storage: int | None = None
    works: bool = False  # it has a backward pass
    offers: bool = False  # what comes out can be computed again
    kept: list[KeptStorage] = field(default_factory=list)
    saved: list[WantedTensor] = field(default_factory=list)
    total: int = 0  # bytes kept from the first event to this one
    moved: int = 0
    scratch: int = 0  # bytes beyond `total` while it runs, forward or back
    forward: float = 0.0
    backward: float = 0.0

    @property
    def bytes(self) -> int:
        return sum(kept.bytes for kept in self.kept)


class _Numbers:
    """Tensors and storages while they live: addresses are used again."""

    def __init__(self) -> None:
        self._known: dict[Any, tuple[Any, int]] = {}
        self._next = 0

    def of(self, key: Any, thing: Any) -> int:
        found = self._known.get(key)
        if found is None or found[0]() is not thing:
            self._next += 1
            found = self._known[key] = (weakref.ref(thing), self._next)
        return found[1]

    def tensor(self, tensor: Tensor) -> int:
        return self.of((id(tensor), tensor._version), tensor)

    def storage(self, tensor: Tensor) -> int:
        memory = tensor.untyped_storage()
        return self.of(memory._cdata, memory)


class _Meter:
    """The most bytes held since it was last asked."""

    def __init__(self, device: torch.device):
        self._device = device if device.type == "cuda" else None
        self._live = LiveBytes()
        self._before = 0

    def __enter__(self) -> _Meter:
        if self._device is None:
            self._live.__enter__()
        else:
            torch.cuda.synchronize(self._device)
            self._before = torch.cuda.memory_allocated(self._device)
            torch.cuda.reset_peak_memory_stats(self._device)
        return self

    def __exit__(self, *error: Any) -> None:
        if self._device is None:
            self._live.__exit__(*error)

    def peak(self) -> int:
        if self._device is None:
            found, self._live.peak = self._live.peak, self._live.live
            return found
        found = torch.cuda.max_memory_allocated(self._device)
        torch.cuda.reset_peak_memory_stats(self._device)
        return found - self._before


class _Clock:
    def __init__(self, device: torch.device):
        self._device = device

    def now(self) -> Any:
        if self._device.type != "cuda":
            return time.perf_counter()
        event = torch.cuda.Event(enable_timing=True)
        event.record(torch.cuda.current_stream(self._device))
        return event

    def between(self, start: Any, end: Any) -> float:
        if self._device.type != "cuda":
            return end - start
        end.synchronize()
        return start.elapsed_time(end) / 1000


class _Recording:
    """Hooks on every layer of a model while it runs one step. With a clock it takes times, else it looks at bytes."""

    def __init__(self, step: SampleStep, meter: _Meter | None, clock: _Clock | None):
        self._step, self._meter, self._clock = step, meter, clock
        self.events: list[Event] = []
        self._numbers = _Numbers()
        own = [*step.model.parameters(), *step.model.buffers(), *step.inputs]
        self._own = {tensor.untyped_storage()._cdata for tensor in own}
        self._open: list[Event | str] = []
        self._seen: set[int] = set()
        self._total = 0
        self._running: Event | None = None
        self._nodes: list[Any] = []  # only in the forward pass: they hold what is saved
        self._began: list[Any] = []
        self._marks: list[tuple[Event, str, Any, Any]] = []
        self._inner: list[Any] = []

    @contextmanager
    def hooked(self) -> Iterator[None]:
        model = self._step.model
        handles = []
        for name, part in model.named_modules():
            leaf = not any(True for _ in part.children())
            handles.append(part.register_forward_pre_hook(self._entering(name, leaf), with_kwargs=True))
            handles.append(part.register_forward_hook(self._leaving, always_call=True))
        if self._clock is None:
            handles.append(model.register_forward_pre_hook(self._look))
            handles.append(model.register_forward_hook(self._look_no_more, prepend=True, always_call=True))
        try:
            if self._clock is None:
                with torch.autograd.graph.saved_tensors_hooks(self._pack, _same):
                    yield
            else:
                yield
        finally:
            for handle in handles:
                handle.remove()

    def forward_done(self) -> None:
        self._nodes.clear()
        self._next(self._running)

    def done(self) -> None:
        self._next(None)
        for event, way, start, end in self._marks:
            setattr(event, way, getattr(event, way) + self._clock.between(start, end))  # type: ignore[union-attr]

    # Inside what a compressed model puts around itself: there tensors are still those that layers have seen.
    def _look(self, model: nn.Module, given: Any) -> None:
        pack, unpack = (_top_hooks(True) if _top_hooks is not None else None) or (_same, _same)

        def see(tensor: Tensor) -> Any:
            if tensor.untyped_storage()._cdata not in self._own:
                numbers = self._numbers
                self._event().saved.append(
                    WantedTensor(numbers.tensor(tensor), numbers.storage(tensor), _bytes(tensor))
                )
            return pack(tensor)

        see.looks_on = is_watched()  # type: ignore[attr-defined]
        hooks = torch.autograd.graph.saved_tensors_hooks(see, lambda packed: unpack(packed))
        hooks.__enter__()
        self._inner.append(hooks)

    def _look_no_more(self, model: nn.Module, given: Any, out: Any) -> None:
        self._inner.pop().__exit__(None, None, None)

    def _pack(self, tensor: Tensor) -> Tensor:
        if tensor.untyped_storage()._cdata not in self._own:
            number = self._numbers.storage(tensor)
            size = 0 if number in self._seen else _bytes(tensor)
            self._seen.add(number)
            event = self._event()
            event.kept.append(KeptStorage(number, size))
            self._total += size
            event.total = self._total
        return tensor.detach()  # itself would be a cycle where it is an output

    def _event(self) -> Event:
        place = self._open[-1] if self._open else "(loss)"
        if isinstance(place, Event):
            return place
        if not self.events or self.events[-1].layer is not None or self.events[-1].name != place:
            kind = "" if not self._open else type(self._step.model.get_submodule(place)).__name__
            self.events.append(Event(place, kind, total=self._total))
        return self.events[-1]

    def _entering(self, name: str, leaf: bool) -> Any:
        def enter(layer: nn.Module, args: Any, kwargs: Any) -> None:
            if not leaf:
                self._open.append(name)
                return
            event = Event(name, type(layer).__name__, layer, total=self._total)
            x = next((one for one in tree_leaves((args, kwargs)) if isinstance(one, Tensor)), None)
            if x is not None:
                event.x_shape, event.x_item = tuple(x.shape), x.element_size()
                event.x_tensor, event.x_storage = self._numbers.tensor(x), self._numbers.storage(x)
                event.x_bytes = 0 if x.untyped_storage()._cdata in self._own else _bytes(x)
            self._next(event)
            self.events.append(event)
            self._open.append(event)
            inputs = [one.grad_fn for one in tree_leaves((args, kwargs)) if isinstance(one, Tensor)]
            self._began.append((self._clock and self._clock.now(), inputs, _asked(layer)))

        return enter

    def _leaving(self, layer: nn.Module, given: Any, out: Any) -> None:
        event = self._open.pop()
        if not isinstance(event, Event):
            return
        start, inputs, asked = self._began.pop()
        if self._clock is not None:
            self._marks.append((event, "forward", start, self._clock.now()))
        event.total = self._total
        event.moved = _asked(layer) - asked
        outs = [one for one in tree_leaves(out) if isinstance(one, Tensor)]
        event.works = any(one.requires_grad for one in outs)
        if len(outs) == 1:
            source = Source.known(outs[0])
            event.offers = source is not None and source.offer is not None
            event.y_tensor, event.y_storage = self._numbers.tensor(outs[0]), self._numbers.storage(outs[0])
        self._hook_nodes(event, [one.grad_fn for one in outs], inputs)

    def _hook_nodes(self, event: Event, ends: list[Any], begins: list[Any]) -> None:
        """Those that the layer has made."""
        stop = [node for node in begins if node is not None]
        todo = [node for node in ends if node is not None]
        while todo:
            node = todo.pop()
            if any(node is one for one in stop) or node in self._nodes or node.name().endswith("AccumulateGrad"):
                continue
            self._nodes.append(node)
            starts: list[Any] = []
            node.register_prehook(self._node_begins(event, starts))
            if self._clock is not None:
                node.register_hook(self._node_ends(event, starts))
            todo.extend(before for before, _ in node.next_functions if before is not None)

    def _node_begins(self, event: Event, starts: list[Any]) -> Any:
        def begin(grads: Any) -> None:
            self._next(event)
            if self._clock is not None:
                starts.append(self._clock.now())

        return begin

    def _node_ends(self, event: Event, starts: list[Any]) -> Any:
        def end(before: Any, after: Any) -> None:
            self._marks.append((event, "backward", starts.pop(), self._clock.now()))  # type: ignore[union-attr]

        return end

    def _next(self, event: Event | None) -> None:
        """What happened since the last call belongs to the event that ran."""
        if self._meter is not None:
            peak = self._meter.peak()
            if self._running is not None:
                self._running.scratch = max(self._running.scratch, peak - self._running.total)
        self._running = event


def _same(tensor: Any) -> Any:
    return tensor


def _bytes(tensor: Tensor) -> int:
    return rounded(tensor.untyped_storage().nbytes(), tensor.device)


def _asked(layer: nn.Module) -> int:
    settings: Settings | None = getattr(layer, "ebb_settings", None)
    return settings.offloading.asked if settings is not None and settings.offloading is not None else 0


def record_bytes(step: SampleStep) -> list[Event]:
    """One step, with what every layer keeps and the memory that passes by."""
    with step.untouched(), _Meter(step.device) as meter:
        recording = _Recording(step, meter, None)
        with recording.hooked():
            step.run(recording.forward_done)
        recording.done()
    return recording.events


def record_times(step: SampleStep, rounds: int) -> dict[str, tuple[float, float]]:
    """Seconds of every layer, forward and back: the least of several steps, after one that does not count."""
    found: dict[str, tuple[float, float]] = {}
    with step.untouched():
        for k in range(rounds + 1):
            recording = _Recording(step, None, _Clock(step.device))
            with recording.hooked():
                step.run(recording.forward_done)
            recording.done()
            sums: dict[str, tuple[float, float]] = {}
            for event in recording.events:
                forward, backward = sums.get(event.name, (0.0, 0.0))
                sums[event.name] = (forward + event.forward, backward + event.backward)
            if k > 0:
                found = {
                    name: now if name not in found or sum(now) < sum(found[name]) else found[name]
                    for name, now in sums.items()
                }
    return found

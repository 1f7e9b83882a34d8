# SPDX-License-Identifier: Apache-2.0
"""A GPU that is not there: CUDA graphs, streams and memory of torch.cuda over tensors on the CPU, to test all that is around them.

A graph is the list of operations that ran while it was captured, and a replay runs them again over the same tensors. As on a GPU
nothing has happened after a capture: what was written to is as before, random numbers were not drawn, and what comes out holds
nothing. What lies in a pool is gone as soon as another graph of that pool runs. Streams do their work at once, but it is an error
where one graph could have run beside another."""

from __future__ import annotations

import contextlib
import importlib
import inspect
import itertools
import threading
import types
import weakref
from collections.abc import Iterator
from typing import Any

import pytest
import torch
from graph_recording import CAPTURING, Recording

import ebb
from ebb._tensor import capture

# Bytes. All are small, as the loops of the tests are.
TOTAL = 1 << 30
SEGMENT = 1 << 14  # of which the allocator takes memory
WORKSPACE = 1 << 16  # of a library on a stream
LAUNCHED = 1 << 12  # what a graph itself takes when it is launched first, beside PyTorch's allocator
BROKEN = "CUDA error: operation failed due to a previous error during capture"

# Where the words "cuda" and "cpu" change places.
MODULES = (
    "ebb._loop.capturing",
    "ebb._loop.chunking",
    "ebb._loop.engine",
    "ebb._loop.guards",
    "ebb._loop.tiers",
    "ebb._tensor.clock",
    "ebb._tensor.context",
    "ebb._tensor.tier_speed",
    "ebb._tensor.written",
)
WORDS = {"cuda": "cpu", "cpu": "cuda"}


class Stream:
    """`done`: by stream, how much of its work is done before whatever comes next here."""

    numbers = itertools.count()

    def __init__(self, device: Any = None, priority: int = 0):
        self.number = next(self.numbers)
        self.done = {self.number: 0}

    def takes(self) -> tuple[int, int]:
        """A piece of work: the stream's number, and how many it has with this one."""
        self.done[self.number] += 1
        return self.number, self.done[self.number]

    def comes_after(self, piece: tuple[int, int]) -> bool:
        return self.done.get(piece[0], 0) >= piece[1]

    def wait(self, done: dict[int, int]) -> None:
        self.done = {n: max(self.done.get(n, 0), done.get(n, 0)) for n in {**self.done, **done}}

    def wait_event(self, event: Event) -> None:
        self.wait(event.done)

    def wait_stream(self, stream: Stream) -> None:
        self.wait(stream.done)

    def synchronize(self) -> None:
        pass


class Event:
    def __init__(self, enable_timing: bool = False):
        self.done: dict[int, int] = {}

    def record(self, stream: Stream | None = None) -> None:
        self.done = dict((stream or torch.cuda.current_stream()).done)

    def synchronize(self) -> None:
        pass

    def elapsed_time(self, end: Event) -> float:
        return 1.0


class Gpu:
    """What torch.cuda has of one, and for tests what it has done and holds."""

    def __init__(self) -> None:
        self.usual = Stream()
        self.capturing: Stream | None = None
        self.captures = self.replays = 0
        self.total = TOTAL
        self._streams: list[Stream] = [self.usual]
        self._now = threading.local()
        self._taken = self._unused = 0  # bytes of PyTorch's allocator
        self._beside = 0  # and of others
        self._pools: dict[Any, weakref.WeakSet[Graph]] = {}
        self._last: tuple[int, int] | None = None  # piece of work that was a graph
        self._left_open = False  # the generator, by a capture that broke
        self._open: dict[Any, int] = {}  # by pool, bytes of a capture that broke

    def held(self) -> int:
        """Bytes that are in use."""
        return self._taken + self._beside

    def graphs(self) -> int:
        return sum(map(len, self._pools.values()))

    def take(self, nbytes: int) -> int:
        taken = -(-nbytes // SEGMENT) * SEGMENT
        if taken > self.mem_get_info()[0]:
            raise torch.cuda.OutOfMemoryError("CUDA out of memory")
        self._taken += taken
        return taken

    def give_back(self, nbytes: int, beside: list[int]) -> None:
        self._taken -= nbytes
        self._unused += nbytes
        self._beside -= sum(beside)

    def launched(self, graph: Graph) -> None:
        assert graph.recording is not None, "it was not captured"
        stream = self.current_stream()
        assert self._last is None or stream.comes_after(self._last), "two graphs could run at the same time"
        self._last = stream.takes()
        self.replays += 1
        if not graph.beside:
            graph.beside.append(LAUNCHED)
            self._beside += LAUNCHED
        for other in self._pools[graph.pool]:
            if other is not graph:
                other.recording.spoil()
        graph.recording.replay()

    def captured(self, graph: Graph, pool: Any, recording: Recording) -> None:
        taken = self.take(recording.nbytes)
        self.captures += 1
        graph.recording, graph.pool = recording, pool
        self._pools.setdefault(pool, weakref.WeakSet()).add(graph)
        weakref.finalize(graph, self.give_back, taken, graph.beside).atexit = False

    def end_allocate(self, index: int, pool: Any) -> None:
        if pool not in self._open:
            raise RuntimeError("nothing is allocated to that pool")

    def release_pool(self, index: int, pool: Any) -> None:
        self.give_back(self._open.pop(pool), [])

    # Of torch.cuda, by their names there.
    def Stream(self, device: Any = None, priority: int = 0) -> Stream:
        self._streams.append(Stream(device, priority))
        return self._streams[-1]

    def CUDAGraph(self) -> Graph:
        return Graph(self)

    def current_stream(self, device: Any = None) -> Stream:
        return getattr(self._now, "stream", self.usual)

    def set_stream(self, stream: Stream) -> None:
        self._now.stream = stream

    @contextlib.contextmanager
    def stream(self, stream: Stream) -> Iterator[None]:
        before = self.current_stream()
        self.set_stream(stream)
        try:
            yield
        finally:
            self.set_stream(before)

    @contextlib.contextmanager
    def graph(
        self, graph: Graph, pool: Any = None, stream: Stream | None = None, capture_error_mode: str = "global"
    ) -> Iterator[None]:
        self.synchronize()
        recording, before = Recording(), self.current_stream()
        self.set_stream(stream or self.Stream())
        self.capturing = self.current_stream()
        try:
            with recording:
                yield
        finally:
            self.capturing = None
            recording.undo()
            self._left_open = recording.broken
            if recording.broken:  # then the stream stays what it is, as in torch, and the pool takes all memory
                self._open[pool] = self.take(recording.nbytes)
                raise RuntimeError(BROKEN)
            self.set_stream(before)
        self.captured(graph, self.graph_pool_handle() if pool is None else pool, recording)

    def synchronize(self, device: Any = None) -> None:
        if self.is_current_stream_capturing():
            raise RuntimeError(CAPTURING)
        for stream in self._streams:
            self.usual.wait(stream.done)
        for stream in self._streams:
            stream.wait(self.usual.done)

    def is_current_stream_capturing(self) -> bool:
        return self.capturing is not None and self.capturing is self.current_stream()

    def graph_pool_handle(self) -> Any:
        return object()

    def MemPool(self) -> Any:
        return types.SimpleNamespace(workspace=0)

    @contextlib.contextmanager
    def use_mem_pool(self, pool: Any, device: Any = None) -> Iterator[None]:
        pool.workspace = pool.workspace or self.take(WORKSPACE)
        yield

    def memory_reserved(self, device: Any = None) -> int:
        return self._taken + self._unused

    def mem_get_info(self, device: Any = None) -> tuple[int, int]:
        return self.total - self.memory_reserved() - self._beside, self.total

    def empty_cache(self) -> None:
        self._unused = 0

    def _check_generator(self) -> None:
        if self._left_open or self.is_current_stream_capturing():
            raise RuntimeError("Cannot call CUDAGeneratorImpl::current_seed during CUDA graph capture.")

    def get_rng_state(self, device: Any = None) -> torch.Tensor:
        self._check_generator()
        return torch.default_generator.get_state()

    def set_rng_state(self, state: torch.Tensor, device: Any = None) -> None:
        self._check_generator()
        torch.default_generator.set_state(state)

    def is_available(self) -> bool:
        return True

    def is_initialized(self) -> bool:
        return True


class Graph:
    def __init__(self, gpu: Gpu):
        self._gpu = gpu
        self.recording: Recording | None = None
        self.pool: Any = None
        self.beside: list[int] = []

    def replay(self) -> None:
        self._gpu.launched(self)


# Of torch.cuda, which the package uses where there are graphs.
NAMES = [name for name in vars(Gpu) if not name.startswith("_") and hasattr(torch.cuda, name)]


def _functions(module: types.ModuleType) -> set[types.FunctionType]:
    """All that are written there, inside of properties and decorators too."""
    found = set()
    places = [module, *(thing for thing in vars(module).values() if inspect.isclass(thing))]
    for place in places:
        if getattr(place, "__module__", module.__name__) != module.__name__:
            continue
        for thing in vars(place).values():
            inner = thing.fget if isinstance(thing, property) else getattr(thing, "__func__", thing)
            inner = inspect.unwrap(inner) if callable(inner) else inner
            if isinstance(inner, types.FunctionType) and inner.__module__ == module.__name__:
                found.add(inner)
    return found


def _swapped(code: types.CodeType) -> types.CodeType:
    constants = [_swapped(c) if isinstance(c, types.CodeType) else c for c in code.co_consts]
    return code.replace(
        co_consts=tuple(WORDS.get(c, c) if isinstance(c, str) else c for c in constants),
        co_names=tuple("is_cpu" if name == "is_cuda" else name for name in code.co_names),
    )


@contextlib.contextmanager
def acting() -> Iterator[Gpu]:
    """The package takes the CPU for a GPU, and no other for one; nobody draws random numbers on the host."""
    gpu, host = Gpu(), torch.default_generator.get_state()
    with pytest.MonkeyPatch.context() as patch:
        for name in NAMES:
            patch.setattr(torch.cuda, name, getattr(gpu, name))
        patch.setattr(torch.cuda, "Event", Event)
        patch.setenv("CUBLAS_WORKSPACE_CONFIG", ":0:1")  # so that all that may fit is captured
        patch.setattr(torch._C, "_cuda_endAllocateToPool", gpu.end_allocate, raising=False)
        patch.setattr(torch._C, "_cuda_releasePool", gpu.release_pool, raising=False)
        patch.setattr(torch.Tensor, "record_stream", lambda tensor, stream: None)
        patch.setattr(torch, "get_rng_state", host.clone)
        patch.setattr(torch, "set_rng_state", lambda state: None)
        patch.setattr(capture, "_sides", {})
        patch.setattr(capture, "_orders", type(capture._orders)(capture._orders.default_factory))
        for name in MODULES:
            for function in _functions(importlib.import_module(name)):
                patch.setattr(function, "__code__", _swapped(function.__code__))
        ebb.clear_cache()  # of plans for another device
        try:
            yield gpu
        finally:
            ebb.clear_cache()


@pytest.fixture(autouse=True, name="gpu")
def stand_in() -> Iterator[Gpu]:
    """For every test of a file that imports it."""
    torch.manual_seed(0)
    with acting() as found:
        yield found

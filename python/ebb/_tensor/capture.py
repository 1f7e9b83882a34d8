# SPDX-License-Identifier: Apache-2.0
"""CUDA graphs of work on tensors. Where one cannot be captured all is as before: streams, generators, pools."""

from __future__ import annotations

import collections
import contextlib
import gc
import os
import re
import threading
from collections.abc import Callable, Iterator
from typing import Any, TypeVar

import torch

Result = TypeVar("Result")


class CannotCapture(Exception):
    """With the reason, in words."""


class _Side:
    """The stream of all captures on a device: cuBLAS has a workspace for each stream that it is used on. That lies in a pool of its
    own: graphs write to it, so its memory must not be reused when others clear the workspaces of all streams."""

    def __init__(self, device: torch.device):
        self._device = device
        # Streams of the usual priority are handed out in turn: this one might become somebody else's too.
        self.stream = torch.cuda.Stream(device, priority=-1)
        self._pool = torch.cuda.MemPool() if hasattr(torch.cuda, "MemPool") else None
        torch.cuda.synchronize(device)
        before = torch.cuda.memory_reserved(device)
        self.take_workspaces()
        torch.cuda.synchronize(device)
        self.workspaces = torch.cuda.memory_reserved(device) - before  # bytes

    def take_workspaces(self) -> None:
        """In the thread that captures, before each capture: since the last one somebody may have cleared them."""
        own = contextlib.nullcontext() if self._pool is None else torch.cuda.use_mem_pool(self._pool, self._device)
        with own, torch.cuda.stream(self.stream):
            for dtype in (torch.float32, torch.float16):
                square, row = (torch.zeros(*shape, device=self._device, dtype=dtype) for shape in ((64, 64), (64,)))
                torch.mm(square, square)
                torch.addmm(row, square, square)


class _Order:
    """Graphs of a device share what cuBLAS writes to and, before PyTorch 2.13, what random numbers are drawn by: on whichever streams
    they run, one comes after the other."""

    def __init__(self) -> None:
        self._lock = threading.RLock()
        self._event: torch.cuda.Event | None = None
        self._stream: torch.cuda.Stream | None = None

    @contextlib.contextmanager
    def turn(self, stream: torch.cuda.Stream) -> Iterator[None]:
        with self._lock:
            if self._event is not None and self._stream != stream:
                stream.wait_event(self._event)
            try:
                yield
            finally:
                if self._event is None:
                    self._event = torch.cuda.Event()
                self._event.record(stream)
                self._stream = stream


_orders: dict[torch.device, _Order] = collections.defaultdict(_Order)


_lock = threading.RLock()  # one capture at a time
_sides: dict[torch.device, _Side] = {}
_at_work: set[int] = set()  # threads that run what is tried or captured


def is_captured() -> bool:
    """The caller is part of work that is being captured or tried for it, by us or by anybody."""
    if threading.get_ident() in _at_work:
        return True
    return torch.cuda.is_available() and torch.cuda.is_initialized() and torch.cuda.is_current_stream_capturing()


def launch(graph: torch.cuda.CUDAGraph, device: torch.device) -> None:
    """On the current stream."""
    with _orders[device].turn(torch.cuda.current_stream(device)):
        graph.replay()


def workspace_bytes(device: torch.device) -> int:
    """What libraries hold for graphs, all of them together."""
    return _sides[device].workspaces if device in _sides else 0


def least_workspace(device: torch.device) -> int:
    """The same, or less, also where nothing was captured yet: what PyTorch gives cuBLAS on a stream."""
    if device in _sides:
        return _sides[device].workspaces
    sizes = [int(word) for word in re.findall(r"\d+", os.environ.get("CUBLAS_WORKSPACE_CONFIG", ""))]
    if len(sizes) < 2:
        sizes = [4096, 8 if torch.cuda.get_device_capability(device)[0] == 9 else 2]
    return 1024 * sum(size * count for size, count in zip(sizes[::2], sizes[1::2]))


class Pool:
    """Memory that several graphs share, of which one runs at a time."""

    def __init__(self, device: torch.device):
        self._device = device
        self._handle = torch.cuda.graph_pool_handle()
        self.bytes = 0  # of its segments, and of the graphs themselves
        self._before = 0, 0  # the last capture: memory of the device that was free, and reserved by PyTorch

    def capture(
        self, body: Callable[[bool], Any], between: Callable[[Any], None]
    ) -> tuple[torch.cuda.CUDAGraph, Any, Any]:
        """The graph, what is then in it, and what the body returned when it was tried before, with True: so libraries have their
        workspaces outside of the pool. `between` gets that, and makes undone what trying it changed.

        All of it runs in autograd's thread for the device, where the body's own backward runs too: cuBLAS has a workspace for
        each thread as well. What the caller's thread has of its own, like autocast, the body must bring along."""
        callers = torch.cuda.current_stream(self._device)

        def work() -> tuple[torch.cuda.CUDAGraph, Any, Any]:
            with _lock:  # of which the caller must hold nothing: this thread may be waiting for it
                try:
                    if self._device not in _sides:
                        _sides[self._device] = _Side(self._device)
                    _sides[self._device].take_workspaces()
                except RuntimeError as error:
                    raise CannotCapture(_said(error)) from error
                _at_work.add(threading.get_ident())
                try:
                    return self._captured(body, between, _sides[self._device], callers)
                finally:
                    _at_work.discard(threading.get_ident())

        return _in_thread_of(self._device, work)

    def _captured(
        self, body: Callable[[bool], Any], between: Callable[[Any], None], side: _Side, callers: Any
    ) -> tuple[torch.cuda.CUDAGraph, Any, Any]:
        side.stream.wait_stream(callers)
        try:
            with _orders[self._device].turn(side.stream), torch.cuda.stream(side.stream), _no_hooks():
                tried = body(True)
        except Exception as error:
            raise CannotCapture(_said(error)) from error
        finally:
            callers.wait_stream(side.stream)
        between(tried)
        torch.cuda.synchronize(self._device)
        torch.cuda.empty_cache()
        self._before = torch.cuda.mem_get_info(self._device)[0], torch.cuda.memory_reserved(self._device)
        graph = torch.cuda.CUDAGraph()
        try:
            # Whatever the collector destroys, other graphs among it, would be a part of the capture.
            with (
                _no_collection(),
                torch.cuda.graph(graph, self._handle, side.stream, capture_error_mode="thread_local"),
            ):
                found = body(False)
        except BaseException as error:
            torch.cuda.set_stream(callers)
            self._clean_up(side.stream)
            torch.cuda.set_stream(callers)
            if isinstance(error, Exception):
                raise CannotCapture(_said(error)) from error
            raise
        return graph, found, tried

    def launch_first(self, graph: torch.cuda.CUDAGraph) -> None:
        """The graph that was captured last: only now it has all its memory."""
        launch(graph, self._device)
        torch.cuda.synchronize(self._device)
        free, reserved = self._before
        taken = free - torch.cuda.mem_get_info(self._device)[0]
        self.bytes += max(taken, torch.cuda.memory_reserved(self._device) - reserved, 0)

    def _clean_up(self, stream: torch.cuda.Stream) -> None:
        """A capture that was broken off leaves the allocator and the generator as if it went on; one that ends well does not."""
        names = "_cuda_endAllocateToPool", "_cuda_endAllocateCurrentStreamToPool"  # since PyTorch 2.8, and before
        end = next((getattr(torch._C, name) for name in names if hasattr(torch._C, name)), None)
        with contextlib.suppress(RuntimeError):
            if end is not None:
                index = self._device.index or 0
                end(index, self._handle)  # an error where the capture had ended well: its graph gives the pool back
                torch._C._cuda_releasePool(index, self._handle)
        empty = torch.cuda.graph(torch.cuda.CUDAGraph(), stream=stream, capture_error_mode="thread_local")
        with contextlib.suppress(RuntimeError), empty:
            torch.zeros(1, device=self._device)
        torch.cuda.synchronize(self._device)
        torch.cuda.empty_cache()


_HOOKING = ("register_hook", "register_post_accumulate_grad_hook", "retain_grad")


@contextlib.contextmanager
def _no_hooks() -> Iterator[None]:
    """Who hooks a tensor in this thread is told so: a graph would not call it."""
    plain = {name: getattr(torch.Tensor, name) for name in _HOOKING}

    def refusing(name: str) -> Callable[..., Any]:
        def hook(tensor: torch.Tensor, *arguments: Any, **words: Any) -> Any:
            if threading.get_ident() in _at_work:
                raise CannotCapture(f"f hooks a tensor ({name}), and a graph calls no hook")
            return plain[name](tensor, *arguments, **words)

        return hook

    for name in plain:
        setattr(torch.Tensor, name, refusing(name))
    try:
        yield
    finally:
        for name, method in plain.items():
            setattr(torch.Tensor, name, method)


@contextlib.contextmanager
def _no_collection() -> Iterator[None]:
    collects = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if collects:
            gc.enable()


def _said(error: Exception) -> str:
    if isinstance(error, CannotCapture):
        return str(error)
    text = str(error).strip().partition("\n")[0]
    if isinstance(error, torch.cuda.OutOfMemoryError):
        return "the GPU has no memory for them"
    if "capture" in text or "synchronizing" in text:
        return f"f waits for the GPU, copies from the host or has shapes that depend on values ({text})"
    return f"{type(error).__name__}: {text}"


class _Inside(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, start: torch.Tensor, work: Callable[[], None]) -> torch.Tensor:
        ctx.work = work
        return start.clone()

    @staticmethod
    def backward(ctx: Any, *_: Any) -> Any:
        ctx.work()
        return None, None


def _in_thread_of(device: torch.device, work: Callable[[], Result]) -> Result:
    found: list[Result] = []
    raised: list[BaseException] = []

    def kept() -> None:
        try:
            found.append(work())
        except BaseException as error:  # autograd would lose what kind it was
            raised.append(error)

    with torch.enable_grad():
        start = torch.zeros((), device=device, requires_grad=True)
        torch.autograd.grad(_Inside.apply(start, kept), start, allow_unused=True)
    if raised:
        raise raised.pop()  # its traceback holds this list, and the tensors of the work
    return found.pop()

# SPDX-License-Identifier: Apache-2.0
"""CUDA graphs of work on tensors. Where one cannot be captured all is as before: streams, generators, pools."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Callable, Iterator
from typing import Any, TypeVar

import torch

Result = TypeVar("Result")


class CannotCapture(Exception):
    """With the reason, in words."""


class _Side:
    """The stream of all captures on a device: cuBLAS has a workspace for each stream that it is used on. That lies in a pool of its
    own: graphs write to it, so nobody else must get its memory when others clear the workspaces of all streams."""

    def __init__(self, device: torch.device):
        """In the thread that captures."""
        self.stream = torch.cuda.Stream(device)
        self._pool = torch.cuda.MemPool() if hasattr(torch.cuda, "MemPool") else None
        torch.cuda.synchronize(device)
        before = torch.cuda.memory_reserved(device)
        own = contextlib.nullcontext() if self._pool is None else torch.cuda.use_mem_pool(self._pool)
        with own, torch.cuda.stream(self.stream):
            for dtype in (torch.float32, torch.float16):
                square, row = (torch.zeros(*shape, device=device, dtype=dtype) for shape in ((64, 64), (64,)))
                torch.mm(square, square)
                torch.addmm(row, square, square)
        torch.cuda.synchronize(device)
        self.workspaces = torch.cuda.memory_reserved(device) - before  # bytes


_lock = threading.RLock()  # one capture at a time
_sides: dict[torch.device, _Side] = {}
_at_work: set[int] = set()  # threads that run what is tried or captured


def is_captured() -> bool:
    """The caller is part of work that is being captured or tried for it, by us or by anybody."""
    if threading.get_ident() in _at_work:
        return True
    return torch.cuda.is_available() and torch.cuda.is_initialized() and torch.cuda.is_current_stream_capturing()


def workspace_bytes(device: torch.device) -> int:
    """What libraries hold for graphs, all of them together."""
    return _sides[device].workspaces if device in _sides else 0


class Pool:
    """Memory that several graphs share, of which one runs at a time."""

    def __init__(self, device: torch.device):
        self._device = device
        self._handle = torch.cuda.graph_pool_handle()
        self.bytes = 0  # of its segments, and of the graphs themselves

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
                if self._device not in _sides:
                    _sides[self._device] = _Side(self._device)
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
            with torch.cuda.stream(side.stream), _no_hooks():
                tried = body(True)
        except Exception as error:
            raise CannotCapture(_said(error)) from error
        finally:
            callers.wait_stream(side.stream)
        between(tried)
        torch.cuda.synchronize(self._device)
        torch.cuda.empty_cache()
        free = torch.cuda.mem_get_info(self._device)[0]
        reserved = torch.cuda.memory_reserved(self._device)
        graph = torch.cuda.CUDAGraph()
        try:
            with torch.cuda.graph(graph, self._handle, side.stream, capture_error_mode="thread_local"):
                found = body(False)
        except BaseException as error:
            torch.cuda.set_stream(callers)
            self._clean_up(side.stream)
            if isinstance(error, Exception):
                raise CannotCapture(_said(error)) from error
            raise
        taken = free - torch.cuda.mem_get_info(self._device)[0]
        self.bytes += max(taken, torch.cuda.memory_reserved(self._device) - reserved, 0)
        return graph, found, tried

    def _clean_up(self, stream: torch.cuda.Stream) -> None:
        """A capture that was broken off leaves the allocator and the generator as if it went on; one that ends well does not."""
        names = "_cuda_endAllocateToPool", "_cuda_endAllocateCurrentStreamToPool"  # since PyTorch 2.8, and before
        end = next((getattr(torch._C, name) for name in names if hasattr(torch._C, name)), None)
        with contextlib.suppress(RuntimeError):
            if end is not None:
                end(self._device.index or 0, self._handle)
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
        def hook(tensor: torch.Tensor, *arguments: Any) -> Any:
            if threading.get_ident() in _at_work:
                raise CannotCapture(f"f hooks a tensor ({name}), and a graph calls no hook")
            return plain[name](tensor, *arguments)

        return hook

    for name in plain:
        setattr(torch.Tensor, name, refusing(name))
    try:
        yield
    finally:
        for name, method in plain.items():
            setattr(torch.Tensor, name, method)


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

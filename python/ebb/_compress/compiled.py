# SPDX-License-Identifier: Apache-2.0
"""Compressed layers where torch makes a graph of a model.

torch.compile's graph ends where one begins and goes on behind it: inside of a graph the compiler decides what is kept, and it
does not see saved-tensor hooks. Graphs that are made to leave Python (torch.jit.trace, torch.export) have torch's own layers
instead. What reads a layer's source (torch.fx, torch.jit.script) is told to read torch's.
"""

from __future__ import annotations

import functools
import threading
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor
from torch.fx import Proxy

from ebb._base.errors import Error
from ebb._compress.settings import Settings

_tracing_state = torch._C._get_tracing_state

Forward = Callable[[Any, Tensor], Tensor]


class _Running(threading.local):
    """What this thread does. seen: the mode of ours (seen.py) that is around."""

    seen: Any = None


running = _Running()


def _is_on_top(mode: Any) -> bool:
    count = torch._C._len_torch_function_stack()
    return count > 0 and torch._C._get_function_stack_at(count - 1) is mode


def _exporting() -> bool:
    # torch.compiler.is_exporting() is what one would ask, but inside of torch.compile some versions of torch say yes to it. One that has
    # no flag does not say; there a graph that is not dynamo's is torch.export's.
    return getattr(torch.compiler, "_is_exporting_flag", not torch.compiler.is_dynamo_compiling())


@torch.compiler.disable
def _run(forward: Forward, layer: Any, x: Tensor) -> Tensor:
    return forward(layer, x)


def never_compiled(forward: Forward) -> Forward:
    """For the forward of a compressed layer. Without gradients it keeps nothing: then it is torch's own, in one graph."""

    @functools.wraps(forward)
    def wrapper(self: Any, x: Any) -> Tensor:
        if torch.compiler.is_compiling():
            if torch.is_grad_enabled() and not _exporting():
                return _run(forward, self, x)
            return self.stock.forward(self, x)
        if _tracing_state() is not None:
            return self.stock.forward(self, x)
        if isinstance(x, Proxy):
            raise _unreadable("torch.fx")
        if (mode := running.seen) is None or not _is_on_top(mode):
            return forward(self, x)
        torch._C._pop_torch_function_stack()  # inside of a layer nothing is to be seen, and every look takes time
        try:
            return forward(self, x)
        finally:
            torch._C._push_on_torch_function_stack(mode)

    return wrapper


class NotScripted:
    """A mixin in front of torch's layers."""

    ebb_settings: Any = Settings(offers=False)  # for those that somebody makes by their class

    def __prepare_scriptable__(self) -> Any:
        raise _unreadable("torch.jit.script")


def _unreadable(reader: str) -> Error:
    return Error(
        f"{reader} cannot read a compressed layer; call ebb.decompress(model) first",
        "unavailable",
    )

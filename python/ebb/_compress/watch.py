# SPDX-License-Identifier: Apache-2.0
"""Hooks around the forward pass of a compressed model: what is no layer of it profits too, by `watching` and `Seen`."""

from __future__ import annotations

import sys
import threading
from typing import Any

import torch
from torch import nn

from ebb._compress.compiled import running
from ebb._compress.saving import watching
from ebb._compress.seen import CALL, Seen, may_be_around


class _Around:
    """What is around one forward pass. After an interrupt, what others have put on top since stays when this goes."""

    def __init__(self, model: nn.Module):
        self.model, self._hooks = model, watching()
        self._mode = Seen() if "ebb_functions" in vars(model) and may_be_around() else None
        self._hooks.__enter__()
        if self._mode is not None:
            running.seen = self._mode
            torch._C._push_on_torch_function_stack(self._mode)

    def end(self) -> None:
        self._hooks.take_off()
        if self._mode is None:
            return
        running.seen = None
        others = []
        while (
            torch._C._len_torch_function_stack() > 0 and (top := torch._C._pop_torch_function_stack()) is not self._mode
        ):
            others.append(top)
        for other in reversed(others):
            torch._C._push_on_torch_function_stack(other)


class _Open(threading.local):
    def __init__(self) -> None:
        self.arounds: list[_Around] = []


_open = _Open()


def watch(model: nn.Module, given: Any) -> None:
    """Before the forward pass."""
    if torch.compiler.is_compiling() or torch.jit.is_tracing() or not torch.is_grad_enabled():
        return
    if torch._C._are_functorch_transforms_active():
        return
    _end_interrupted(model)
    _open.arounds.append(_Around(model))


def unwatch(model: nn.Module, given: Any, out: Any) -> None:
    """After it; not where nothing was begun, in a compiled graph for one."""
    if torch.compiler.is_compiling() or all(around.model is not model for around in _open.arounds):
        return
    while _open.arounds and (around := _open.arounds.pop()):  # what an interrupt has left within it ends, too
        around.end()
        if around.model is model:
            return


def _end_interrupted(model: nn.Module) -> None:
    """torch does not call hooks after a KeyboardInterrupt: what it has left of forward passes on this thread ends here."""
    calls: list[Any] = []
    frame: Any = sys._getframe(1) if _open.arounds else None
    while frame is not None:
        if frame.f_code is CALL:
            calls.append(frame.f_locals.get("self"))
        frame = frame.f_back
    while _open.arounds:
        last = _open.arounds[-1].model
        begun = sum(one is last for one in calls) - (last is model)
        if sum(around.model is last for around in _open.arounds) <= begun:
            return
        _open.arounds.pop().end()

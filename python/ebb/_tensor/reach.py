# SPDX-License-Identifier: Apache-2.0
"""What a Python function can reach: the modules and tensors it closes over."""

from __future__ import annotations

import functools
import types
from collections.abc import Iterator
from typing import Any

import torch
from torch import Tensor

_DEEPEST = 6
_LONGEST = 1000  # containers with more are data, not models
_MOST = 20_000


def reach(function: Any) -> tuple[list[torch.nn.Module], list[Tensor]]:
    """Modules (outermost only) and tensors in closures, defaults, bound objects, partials, attributes, containers, and
    the globals that the code names. What is reached in other ways is not found."""
    modules: list[torch.nn.Module] = []
    tensors: list[Tensor] = []
    for value in _walk(function):
        if isinstance(value, Tensor):
            tensors.append(value)
        elif isinstance(value, torch.nn.Module):
            modules.append(value)
            tensors.extend(t for part in value.modules() for t in vars(part).values() if isinstance(t, Tensor))
    return modules, tensors


def reach_generators(function: Any) -> list[torch.Generator]:
    """Generators of random numbers, found in the same places and in the attributes of modules."""
    found: dict[int, torch.Generator] = {}
    for value in _walk(function):
        parts = [value]
        if isinstance(value, torch.nn.Module):
            parts = [inner for part in value.modules() for inner in vars(part).values()]
        found.update((id(part), part) for part in parts if isinstance(part, torch.Generator))
    return list(found.values())


def _walk(function: Any) -> Iterator[Any]:
    seen: set[int] = set()
    found = [(function, 0)]
    while found:
        value, depth = found.pop()
        if id(value) in seen or depth > _DEEPEST or len(seen) > _MOST:
            continue
        seen.add(id(value))
        yield value
        if not isinstance(value, (Tensor, torch.nn.Module)):
            found.extend((inner, depth + 1) for inner in _inside(value))


def _inside(value: Any) -> Iterator[Any]:
    if isinstance(value, (list, tuple, set, frozenset)):
        yield from value if len(value) <= _LONGEST else ()
    elif isinstance(value, dict):
        yield from value.values() if len(value) <= _LONGEST else ()
    elif isinstance(value, functools.partial):
        yield value.func
        yield value.args
        yield value.keywords
    elif isinstance(value, types.MethodType):
        yield value.__self__
        yield value.__func__
    elif isinstance(value, types.FunctionType):
        for cell in value.__closure__ or ():
            try:
                yield cell.cell_contents
            except ValueError:
                pass  # not assigned yet
        yield value.__defaults__ or ()
        yield value.__kwdefaults__ or {}
        yield value.__dict__
        for name in value.__code__.co_names:
            if name in value.__globals__:
                inner = value.__globals__[name]
                if not isinstance(inner, (types.ModuleType, type)):
                    yield inner
    elif not isinstance(value, (str, bytes, int, float, complex, type, types.ModuleType)):
        yield from getattr(value, "__dict__", {}).values()

# SPDX-License-Identifier: Apache-2.0
"""What a Python function can reach: modules, tensors and generators, and the places in which it may keep others."""

from __future__ import annotations

import collections
import functools
import sys
import types
from collections.abc import Iterable, Iterator
from typing import Any

import torch
from torch import Tensor

from ebb._tensor.places import Attributes, Cell, Entries, Items, Names, Place, Slots

_DEEPEST = 6
_LONGEST = 1000  # containers with more are data, not models
_MOST = 20_000
_OF_EVERY_MODULE = frozenset(vars(torch.nn.Module()))
# Their objects run a model, with loaders, loggers and thousands of values that no step changes. ebb's own are reports.
_RUNNERS = frozenset({"accelerate", "ebb", "lightning", "lightning_fabric", "pytorch_lightning"})
_LIBRARIES = frozenset(sys.stdlib_module_names) | {"numpy", "torch"} | _RUNNERS
_SIMPLE = (str, bytes, int, float, complex, types.ModuleType, types.BuiltinFunctionType)


class Reach:
    """Found in closures, defaults, bound objects, partials, attributes, containers, and the globals that the code names.
    What is reached in other ways is not found.

    modules: outermost only. tensors: those that are no parameters and no buffers. places: where a function may put a
    value. known: all that was found, by id."""

    def __init__(self, function: Any, modules: Iterable[torch.nn.Module] = ()):
        self.modules: list[torch.nn.Module] = []
        self.tensors: list[Tensor] = []
        self.generators: list[torch.Generator] = []
        self.places: list[Place] = []
        self.known: dict[int, Any] = {}
        self._classes: set[type] = set()
        self._found: collections.deque[tuple[Any, int, str]] = collections.deque()
        self._found.extend((module, 0, "") for module in modules)
        self._found.append((function, 0, getattr(function, "__name__", "f")))
        while self._found and len(self.known) <= _MOST:
            value, depth, name = self._found.popleft()
            if id(value) not in self.known and depth <= _DEEPEST:
                self.known[id(value)] = value
                self._take(value, depth, name)

    def _take(self, value: Any, depth: int, name: str) -> None:
        if isinstance(value, Tensor):
            self.tensors.append(value)
        elif isinstance(value, torch.Generator):
            self.generators.append(value)
        elif isinstance(value, torch.nn.Module):
            self.modules.append(value)
            self._take_module(value, depth)
        elif isinstance(value, type):
            self._take_class(value, depth)
        elif not isinstance(value, _SIMPLE):
            if not isinstance(value, types.FunctionType):
                self._take_class(type(value), depth)
            for inner, inner_name in self._inside(value, name):
                if not isinstance(inner, _SIMPLE):
                    self._found.append((inner, depth + 1, inner_name))

    def _take_module(self, module: torch.nn.Module, depth: int) -> None:
        for part in module.modules():
            self.known[id(part)] = part
            owner = type(part).__name__
            self.places += [Names(names, owner) for names in (part._parameters, part._buffers, part._modules)]
            if type(part).__module__.partition(".")[0] == "ebb":
                continue  # whose attributes are reports
            self.places.append(Names(vars(part), owner))
            self._take_class(type(part), depth)
            for key, inner in vars(part).items():
                if key not in _OF_EVERY_MODULE:
                    self._found.append((inner, depth + 1, f"{owner}.{key}"))

    def _take_class(self, kind: type, depth: int) -> None:
        """Its own attributes, and what its methods reach."""
        for each in kind.__mro__:
            if each.__module__.partition(".")[0] in _LIBRARIES or each in self._classes:
                continue
            self._classes.add(each)
            attributes = Attributes(each)
            self.places.append(attributes)
            for key, inner in zip(attributes.keys(), attributes.values()):
                self._found.append((inner, depth + 1, attributes.said(key)))
            for inner in vars(each).values():
                if isinstance(inner, types.FunctionType):
                    self._found.append((inner, depth + 1, inner.__name__))

    def _inside(self, value: Any, name: str) -> Iterator[tuple[Any, str]]:
        if isinstance(value, (list, collections.deque, set)):
            if len(value) <= _LONGEST:
                self.places.append(Items(value, name))
                yield from ((inner, f"{name}[{k}]") for k, inner in enumerate(value))
        elif isinstance(value, (tuple, frozenset)):
            yield from ((inner, name) for inner in (value if len(value) <= _LONGEST else ()))
        elif isinstance(value, dict):
            if len(value) <= _LONGEST:
                self.places.append(Entries(value, name))
                yield from ((inner, f"{name}[{key!r}]") for key, inner in value.items())
        elif isinstance(value, functools.partial):
            yield from ((inner, name) for inner in (value.func, value.args, value.keywords))
        elif isinstance(value, types.MethodType):
            yield from ((inner, name) for inner in (value.__self__, value.__func__))
        elif isinstance(value, types.FunctionType):
            yield from self._of_function(value)
        elif type(value).__module__.partition(".")[0] not in _RUNNERS:
            owner = type(value).__name__
            attributes = getattr(value, "__dict__", None)
            if isinstance(attributes, dict):
                self.places.append(Names(attributes, owner))
                yield from ((inner, f"{owner}.{key}") for key, inner in attributes.items())
            slots = Slots(value, owner)
            if slots.keys() and type(value).__module__.partition(".")[0] not in _LIBRARIES:
                self.places.append(slots)
                yield from zip(slots.values(), (slots.said(key) for key in slots.keys()))

    def _of_function(self, function: types.FunctionType) -> Iterator[tuple[Any, str]]:
        for key, cell in zip(function.__code__.co_freevars, function.__closure__ or ()):
            self.places.append(Cell(cell, key))
            try:
                yield cell.cell_contents, key
            except ValueError:
                pass  # not assigned yet
        yield function.__defaults__ or (), function.__name__
        yield function.__kwdefaults__ or {}, function.__name__
        self.places.append(Names(function.__dict__, function.__name__))
        yield from ((inner, f"{function.__name__}.{key}") for key, inner in function.__dict__.items())
        everywhere = function.__globals__
        if str(everywhere.get("__name__")).partition(".")[0] in _LIBRARIES:
            return
        names = [key for key in _names_of(function.__code__) if not isinstance(everywhere.get(key), types.ModuleType)]
        if names:
            self.places.append(Names(everywhere, "", tuple(names)))
        for key in names:
            if key in everywhere:
                yield everywhere[key], key


def _names_of(code: types.CodeType) -> Iterator[str]:
    """Also of functions that are made inside."""
    yield from code.co_names
    for constant in code.co_consts:
        if isinstance(constant, types.CodeType):
            yield from _names_of(constant)


def reach(function: Any) -> tuple[list[torch.nn.Module], list[Tensor]]:
    """Modules (outermost only) and tensors that are no parameters and no buffers."""
    found = Reach(function)
    return found.modules, found.tensors

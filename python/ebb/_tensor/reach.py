# SPDX-License-Identifier: Apache-2.0
"""What a Python function can reach: modules, tensors and generators, and the places in which it may keep others."""

from __future__ import annotations

import array
import collections
import contextvars
import ctypes
import dis
import functools
import inspect
import io
import itertools
import os
import sys
import types
import weakref
from collections.abc import Iterable, Iterator
from typing import Any

import torch
from torch import Tensor

from ebb._tensor.places import Attributes, Cell, Entries, Items, Names, Place, Slots

_DEEPEST = 10
_LONGEST = 1000  # containers with more are data, not models
_MOST = 20_000
_OF_EVERY_MODULE = frozenset(vars(torch.nn.Module()))
# Their objects run a model, with loaders, loggers and thousands of values that no step changes. ebb's own are reports.
_RUNNERS = frozenset({"accelerate", "ebb", "lightning", "lightning_fabric", "pytorch_lightning"})
_LIBRARIES = frozenset(sys.stdlib_module_names) | {"numpy", "torch"} | _RUNNERS
# What the modules of such packages have beside those of PyTorch and does not come from what runs them.
_OF_MODELS = frozenset(dir(torch.nn.Module)) | {"device", "dtype", "hparams"}
_SIMPLE = (str, bytes, int, float, complex, types.ModuleType, types.BuiltinFunctionType)
# Whose contents change and cannot be looked at.
_OPAQUE: tuple[type, ...] = (
    array.array,
    ctypes._SimpleCData.__base__ or ctypes._SimpleCData,
    contextvars.ContextVar,
    io.IOBase,
    itertools.count,
    itertools.cycle,
    memoryview,
    type({}.items()),
    type({}.keys()),
    type({}.values()),
    types.GeneratorType,
    types.MappingProxyType,
)
# What a cache returns lies in the cache alone.
_CACHE = type(functools.lru_cache(lambda: None))
# Functions through which code reaches what it does not name.
_ANYTHING = frozenset({"eval", "exec", "globals"})
_FIXED = (*_SIMPLE, type(None), torch.dtype, torch.device, torch.Size)


class Reach:
    """Found in closures, defaults, bound objects, partials, attributes, containers, and the globals that the code names.
    What is reached in other ways is not found.

    modules: outermost only. tensors: those that are no parameters and no buffers. places: where a function may put a
    value. known: all that was found, by id. names: that code uses, of attributes too. complete: nothing was left out that may be read,
    since it is too much, too deep, or cannot be looked into."""

    def __init__(self, function: Any, modules: Iterable[torch.nn.Module] = ()):
        self.modules: list[torch.nn.Module] = []
        self.tensors: list[Tensor] = []
        self.generators: list[torch.Generator] = []
        self.places: list[Place] = []
        self.known: dict[int, Any] = {}
        self.names: set[str] = set()
        self.complete = True
        self._classes: set[type] = set()
        self._files: dict[int, types.ModuleType] = {}  # modules of Python, by id
        self._methods: dict[int, str] = {}  # functions that were found in classes, by id, with their names there
        self._uses: dict[int, list[str]] = {}  # names in the code of a function, by its id
        self._called: set[int] = set()  # of those the ones that were found in another way too, by id
        self._runners: set[str] = set()  # attributes that are objects which run a model
        self._leads: set[str] = set()  # and those that may lead to one
        self._modules_seen: set[tuple[str, ...]] = set()
        self._found: collections.deque[tuple[Any, int, str]] = collections.deque()
        self._found.extend((module, 0, "") for module in modules)
        self._found.append((function, 0, getattr(function, "__name__", "f")))
        self._walk()
        for module in list(self._files.values()):
            for inner, name in self._of_module(module, sorted(self.names)):
                self._found.append((inner, 1, name))
        self._walk()
        self.complete = self.complete and not self._found and not self._reads_runners()

    def _walk(self) -> None:
        while self._found and len(self.known) <= _MOST:
            value, depth, name = self._found.popleft()
            if id(value) in self.known:
                continue
            if depth > _DEEPEST:
                self.complete = self.complete and isinstance(value, _FIXED)
                continue
            self.known[id(value)] = value
            self._take(value, depth, name)

    def _take(self, value: Any, depth: int, name: str) -> None:
        if isinstance(value, Tensor):
            self.tensors.append(value)
            self._take_attributes(value, depth)
        elif isinstance(value, torch.Generator):
            self.generators.append(value)
        elif isinstance(value, torch.nn.Module):
            self.modules.append(value)
            self._take_module(value, depth)
        elif isinstance(value, type):
            self._take_class(value, depth)
        elif isinstance(value, _OPAQUE) or _is_iterator(value):
            self.complete = False
        elif isinstance(value, _CACHE):
            self.complete = False
            self._found.append((value.__wrapped__, depth, name))
        elif not isinstance(value, _SIMPLE):
            if not isinstance(value, types.FunctionType):
                self._take_class(type(value), depth)
            # A function of ours around the caller's takes no depth away from it.
            deeper = depth + (not isinstance(value, types.FunctionType) or not _is_ours(value))
            for inner, inner_name in self._inside(value, name):
                if isinstance(inner, types.ModuleType):
                    self._files[id(inner)] = inner
                elif not isinstance(inner, _SIMPLE):
                    self._found.append((inner, deeper, inner_name))

    def _take_module(self, module: torch.nn.Module, depth: int) -> None:
        for part in module.modules():
            self.known[id(part)] = part
            owner = type(part).__name__
            # Those of torch.jit.script have none that can be put elsewhere.
            own = [names for names in (part._parameters, part._buffers, part._modules) if isinstance(names, dict)]
            self.places += [Names(names, owner) for names in own]
            for tensor in (*part._parameters.values(), *part._buffers.values()):
                self._take_attributes(tensor, depth)
            if _is_ours(type(part)) or type(part).__module__.startswith("torch._dynamo."):
                continue  # whose attributes are reports, or a compiler's
            self.places.append(Names(vars(part), owner))
            self._take_class(type(part), depth)
            for key, inner in vars(part).items():
                if key not in _OF_EVERY_MODULE:
                    self._found.append((inner, depth + 1, f"{owner}.{key}"))

    def _take_attributes(self, tensor: Tensor | None, depth: int) -> None:
        """That somebody has given a tensor."""
        if type(tensor) not in (Tensor, torch.nn.Parameter) or not vars(tensor):
            return
        self.places.append(Names(vars(tensor), "Tensor"))
        self._found.extend((inner, depth + 1, f"Tensor.{key}") for key, inner in vars(tensor).items())

    def _take_class(self, kind: type, depth: int) -> None:
        """Its own attributes, and what its methods reach."""
        for each in (*kind.__mro__, *inspect.getmro(type(kind))):
            # Of a metaclass that was made in C this may be a descriptor.
            module = each.__module__ if isinstance(each.__module__, str) else "builtins"
            root = module.partition(".")[0]
            if root in _RUNNERS and not _is_ours(each) and issubclass(each, torch.nn.Module):
                self._leads.update(vars(each).keys() - _OF_MODELS)
            if root in _LIBRARIES or each in self._classes:
                continue
            self._classes.add(each)
            attributes = Attributes(each)
            self.places.append(attributes)
            for key, inner in zip(attributes.keys(), attributes.values()):
                self._found.append((inner, depth + 1, attributes.said(key)))
            for key, inner in vars(each).items():
                inner = inner.fget if isinstance(inner, property) else getattr(inner, "__func__", inner)
                if isinstance(inner, (types.FunctionType, type)):
                    self._methods[id(inner)] = key
                    self._found.append((inner, depth + 1, inner.__name__))

    def _reads_runners(self) -> bool:
        """Whether code that may run names an object which runs the model, or what leads to one."""
        if not self._runners:
            return False
        names = {
            name for key, used in self._uses.items() if key in self._called or key not in self._methods for name in used
        }
        by_name: dict[str, set[str]] = {}
        for key, name in self._methods.items():
            by_name.setdefault(name, set()).update(self._uses.get(key, ()))
        found = collections.deque(["forward", *names])
        while found:
            new = by_name.pop(found.popleft(), set()) - names
            names |= new
            found.extend(new)
        return not names.isdisjoint(self._runners | self._leads)

    def _inside(self, value: Any, name: str) -> Iterator[tuple[Any, str]]:
        if type(value).__module__ != "builtins" and isinstance(value, (list, dict, set, tuple, collections.deque)):
            own = getattr(value, "__dict__", None)
            if own:
                self.places.append(Names(own, type(value).__name__))
                yield from ((inner, f"{type(value).__name__}.{key}") for key, inner in own.items())
        if isinstance(value, (list, collections.deque, set)):
            if self._is_short(value):
                self.places.append(Items(value, name))
                yield from ((inner, f"{name}[{k}]") for k, inner in enumerate(value))
        elif isinstance(value, (tuple, frozenset)):
            yield from ((inner, name) for inner in (value if self._is_short(value) else ()))
        elif isinstance(value, dict):
            if self._is_short(value):
                self.places.append(Entries(value, name))
                yield from ((inner, f"{name}[{key!r}]") for key, inner in value.items())
        elif isinstance(value, functools.partial):
            yield from ((inner, name) for inner in (value.func, value.args, value.keywords))
        elif isinstance(value, weakref.ReferenceType):
            yield value(), name
        elif isinstance(value, types.MethodType):
            self._called.add(id(value.__func__))
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
        elif not _is_ours(type(value)):
            own = name.rpartition(".")[2]
            self._runners |= {own, own.lstrip("_")}

    def _is_short(self, container: Any) -> bool:
        short = len(container) <= _LONGEST
        self.complete = self.complete and short
        return short

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
        used = list(_names_of(function.__code__))
        self._uses[id(function)] = [*used, *function.__code__.co_freevars]
        self.names.update(used)
        if _ANYTHING.intersection(used) and _calls_anything(function.__code__):
            self.complete = False
        if "environ" in used or "getenv" in used:
            yield os.environ, "os.environ"
        names = [key for key in used if not isinstance(everywhere.get(key), types.ModuleType)]
        if names:
            self.places.append(Names(everywhere, "", tuple(names)))
        for key in names:
            if key in everywhere:
                yield everywhere[key], key
        for key in used:
            # Imported at the top of the file, or in the function.
            module = everywhere.get(key, sys.modules.get(key))
            if isinstance(module, types.ModuleType):
                self._files[id(module)] = module
                yield from self._of_module(module, used)

    def _of_module(self, module: types.ModuleType, used: list[str]) -> Iterator[tuple[Any, str]]:
        """A file of settings, say: what the code may read of it, by the names that it has."""
        names = [key for key in dict.fromkeys(used) if key in vars(module)]
        seen = (module.__name__, *names)
        if module.__name__.partition(".")[0] in _LIBRARIES or seen in self._modules_seen:
            return
        self._modules_seen.add(seen)
        own = tuple(key for key in names if not isinstance(vars(module)[key], types.ModuleType))
        if own:
            self.places.append(Names(vars(module), module.__name__, own))
        for key in names:
            inner = vars(module)[key]
            if isinstance(inner, types.ModuleType):
                yield from self._of_module(inner, used)
            else:
                yield inner, f"{module.__name__}.{key}"


def _is_ours(value: Any) -> bool:
    return str(getattr(value, "__module__", "")).partition(".")[0] == "ebb"


def _is_iterator(value: Any) -> bool:
    """One of Python's own, which tells what comes next but once."""
    return type(value).__module__ in ("builtins", "itertools") and isinstance(value, Iterator)


def _calls_anything(code: types.CodeType) -> bool:
    """By its name as a function, not as a method."""
    if any(step.opname == "LOAD_GLOBAL" and step.argval in _ANYTHING for step in dis.get_instructions(code)):
        return True
    return any(_calls_anything(inner) for inner in code.co_consts if isinstance(inner, types.CodeType))


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

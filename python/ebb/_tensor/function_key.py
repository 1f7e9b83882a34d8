# SPDX-License-Identifier: Apache-2.0
"""When two functions may be taken for the same: what was measured for one holds for the other."""

from __future__ import annotations

import functools
import types
import weakref
from collections.abc import Callable
from typing import Any

_LONGEST = 100  # containers with more are told apart by their length


class _Same:
    """An object by its identity. It is not kept alive, and what takes its place later is another. What no weak reference can
    be had of, and has no parts, such as a dtype, is a small value that may live on."""

    __slots__ = ("_id", "_object")

    def __init__(self, value: Any):
        self._id = id(value)
        try:
            self._object: Callable[[], Any] = weakref.ref(value)
        except TypeError:
            self._object = lambda: value

    def __hash__(self) -> int:
        return self._id

    def __eq__(self, other: object) -> bool:
        mine = self._object()
        return mine is not None and isinstance(other, _Same) and mine is other._object()


def function_key(function: Any) -> Any:
    """Functions made again by the same code over the same objects are the same. What closures hold of tensors does not
    count: they are new in each iteration."""
    return _key(function, ())


def object_key(value: Any) -> Any:
    """Numbers and words by value, functions as above, others by their identity."""
    if isinstance(value, float):
        return (type(value), value.hex())  # which tells zeros apart, and NaNs not
    if value is None or isinstance(value, (bool, int, str, bytes)):
        return (type(value), value)
    if isinstance(value, (types.FunctionType, types.MethodType)):
        return function_key(value)
    if _slots(type(value)) and not hasattr(value, "__weakref__"):
        return type(value), id(value)  # which must not be kept alive: what it holds may be a model
    return _Same(value)


def _key(value: Any, outer: tuple[int, ...]) -> Any:
    if hasattr(value, "untyped_storage"):
        return (value.shape, value.dtype)
    if value is None or isinstance(value, (bool, int, float, str, bytes)):
        return (type(value), value)
    if id(value) in outer:
        return "itself", outer.index(id(value))
    outer = (*outer, id(value))
    if isinstance(value, types.FunctionType):
        return (
            value.__code__,
            tuple(_cell_key(cell, outer) for cell in value.__closure__ or ()),
            _key(value.__defaults__, outer),
            _key(value.__kwdefaults__, outer),
            _globals_key(value),
        )
    if isinstance(value, types.MethodType):
        return (_key(value.__func__, outer), _Same(value.__self__))
    if isinstance(value, functools.partial):
        return (_key(value.func, outer), _key(value.args, outer), _key(value.keywords, outer))
    if type(value) in (list, tuple, set, dict):
        if len(value) > _LONGEST or type(value) is set:
            return (type(value), len(value))
        items = value.items() if type(value) is dict else value
        return (type(value), tuple(_key(item, outer) for item in items))
    if isinstance(value, tuple):
        return (type(value), tuple(_key(item, outer) for item in value))
    slots = _slots(type(value))
    if slots and not hasattr(value, "__weakref__"):
        return (type(value), tuple(_key(getattr(value, name, None), outer) for name in slots))
    return _Same(value)


def _slots(kind: type) -> list[str]:
    found: list[str] = []
    for part in kind.__mro__:
        names = part.__dict__.get("__slots__", ())
        found += [names] if isinstance(names, str) else names
    return found


def _globals_key(function: types.FunctionType) -> Any:
    """What the code names of its module: objects by their identity, but functions by what they are called."""
    named = [function.__globals__.get(name) for name in function.__code__.co_names]
    return tuple(
        _Same(value)
        for value in named
        if isinstance(value, (types.MethodType, functools.partial))
        or not isinstance(
            value,
            (type(None), str, bytes, int, float, type, types.FunctionType, types.ModuleType, types.BuiltinFunctionType),
        )
    )


def _cell_key(cell: types.CellType, outer: tuple[int, ...]) -> Any:
    try:
        return _key(cell.cell_contents, outer)
    except ValueError:
        return None

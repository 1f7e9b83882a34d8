# SPDX-License-Identifier: Apache-2.0
"""When two functions may be taken for the same: what was measured for one holds for the other."""

from __future__ import annotations

import functools
import types
from typing import Any


class _Same:
    """An object by its identity; alive as long as the key is, so that no other takes its place."""

    __slots__ = ("_object",)

    def __init__(self, value: Any):
        self._object = value

    def __hash__(self) -> int:
        return id(self._object)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, _Same) and self._object is other._object


def function_key(function: Any) -> Any:
    """Functions made again by the same code over the same objects are the same. What closures hold of tensors does not
    count: they are new in each iteration."""
    if isinstance(function, types.FunctionType):
        return (function.__code__, tuple(_cell_key(cell) for cell in function.__closure__ or ()))
    if isinstance(function, types.MethodType):
        return (_Same(function.__self__), function.__func__.__code__)
    if isinstance(function, functools.partial):
        return (function_key(function.func), tuple(_value_key(v) for v in function.args),
                tuple((name, _value_key(v)) for name, v in sorted(function.keywords.items())))
    return _Same(function)


def _cell_key(cell: types.CellType) -> Any:
    try:
        return _value_key(cell.cell_contents)
    except ValueError:
        return None


def _value_key(value: Any) -> Any:
    if hasattr(value, "untyped_storage"):
        return (value.shape, value.dtype)
    if isinstance(value, (types.FunctionType, types.MethodType, functools.partial)):
        return function_key(value)
    if value is None or isinstance(value, (bool, int, float, str, bytes)):
        return (type(value), value)
    return _Same(value)

# SPDX-License-Identifier: Apache-2.0
"""Arrays side by side in one piece of memory: where each lies, and views of them at any address."""

from __future__ import annotations

import ctypes
from typing import Any

import numpy as np

from ebb._base.errors import Error

_ALIGNMENT = 64
_WHOLE = "biu"  # kinds of NumPy's types

Arrays = Any  # an array or a number, or a tuple of them


class ArrayLayout:
    """An array, or a tuple of arrays, as bytes. Only their types and shapes count; a number is an array without axes.

    >>> layout = ArrayLayout((np.zeros(3), np.zeros((2, 2), np.float32)), "state")
    >>> layout.bytes
    80
    """

    def __init__(self, sample: Arrays, what: str):
        self.what = what
        self.is_tuple = isinstance(sample, (tuple, list))
        self._fields: list[tuple[int, np.dtype[Any], tuple[int, ...]]] = []
        end = 0
        for array in sample if self.is_tuple else (sample,):
            array = np.asarray(array)
            if array.dtype.hasobject or array.dtype.kind in "SUMm":
                raise Error(f"{what}: {_described(array)}; it must be numbers")
            offset = self.follows(end)
            self._fields.append((offset, array.dtype, array.shape))
            end = offset + array.nbytes
        self.bytes = end
        if end == 0:
            raise Error(f"{what}: it has 0 bytes; it must have 1 or more")

    @property
    def is_whole(self) -> bool:
        """Whether there are whole numbers and truth values only, which have no gradient."""
        return all(dtype.kind in _WHOLE for _, dtype, _ in self._fields)

    def at(self, address: int, *, read_only: bool = False) -> Arrays:
        """Views of the memory there."""
        views = self._views(address)
        if read_only:
            for view in views:
                view.flags.writeable = False
        return views if self.is_tuple else views[0]

    def rows(self, address: int, count: int, stride: int) -> Arrays:
        """Views of ``count`` of them, ``stride`` bytes apart, along a new first axis."""
        memory = _memory(address, (count - 1) * stride + self.bytes)
        views = tuple(
            np.ndarray((count, *shape), dtype, memory, offset, (stride, *_steps(dtype, shape)))
            for offset, dtype, shape in self._fields
        )
        return views if self.is_tuple else views[0]

    def _views(self, address: int) -> tuple[np.ndarray[Any, Any], ...]:
        memory = _memory(address, self.bytes)
        return tuple(np.ndarray(shape, dtype, memory, offset) for offset, dtype, shape in self._fields)

    def move(self, given: int, wanted: int) -> None:
        """Copies the bytes at one address to another."""
        ctypes.memmove(wanted, given, self.bytes)

    def same(self, one: int, other: int) -> bool:
        """Whether the same numbers lie at both addresses; what lies between them does not count."""
        pairs = zip(self._views(one), self._views(other))
        return all(a.tobytes() == b.tobytes() for a, b in pairs)

    def offset_of(self, values: Arrays, memory: np.ndarray[Any, Any]) -> int | None:
        """Where in ``memory`` these arrays lie as they do here; None: not there, or not so."""
        given = values if self.is_tuple else (values,)
        if not isinstance(given, (tuple, list)) or len(given) != len(self._fields):
            return None
        starts = set()
        for array, (offset, dtype, shape) in zip(given, self._fields):
            if not isinstance(array, np.ndarray) or array.dtype != dtype or array.shape != shape:
                return None
            if not array.flags.c_contiguous:
                return None
            starts.add(array.ctypes.data - memory.ctypes.data - offset)
        start = starts.pop()
        return start if not starts and 0 <= start <= memory.size - self.bytes else None

    def described(self) -> str:
        """Types and shapes in words."""
        return ", ".join(f"{dtype} of shape {shape}" for _, dtype, shape in self._fields)

    @staticmethod
    def follows(end: int) -> int:
        """Where one begins behind ``end`` bytes of something else."""
        return -(-end // _ALIGNMENT) * _ALIGNMENT

    def empty(self) -> tuple[np.ndarray[Any, Any], Arrays]:
        """Memory of its own, all zeros: the bytes, and views of them."""
        room = np.zeros(self.bytes + _ALIGNMENT, np.uint8)
        start = -room.ctypes.data % _ALIGNMENT
        memory = room[start : start + self.bytes]
        views = tuple(np.ndarray(shape, dtype, memory, offset) for offset, dtype, shape in self._fields)
        return memory, views if self.is_tuple else views[0]

    def write(self, views: Arrays, values: Arrays, who: str) -> None:
        """Copies ``values`` to the views; ``who`` gave them."""
        if not self.is_tuple:
            _write(views, values, who)
            return
        if not isinstance(values, (tuple, list)) or len(values) != len(views):
            raise Error(f"{who} gave {_described(values)}; it must give {len(views)} arrays")
        for number, (view, value) in enumerate(zip(views, values)):
            _write(view, value, f"{who}, array {number},")


def _memory(address: int, size: int) -> Any:
    return (ctypes.c_char * size).from_address(address)


def _steps(dtype: np.dtype[Any], shape: tuple[int, ...]) -> list[int]:
    steps = [dtype.itemsize] * len(shape)
    for axis in range(len(shape) - 2, -1, -1):
        steps[axis] = steps[axis + 1] * shape[axis + 1]
    return steps


def _write(view: np.ndarray[Any, Any], value: Any, who: str) -> None:
    array = np.asarray(value)
    if array.shape != view.shape or not np.can_cast(array.dtype, view.dtype, "same_kind"):
        problem = f"{who} gave {_described(value)}; it must give {view.dtype} of shape {view.shape}"
        whole = view.dtype.kind in _WHOLE and array.shape == view.shape
        raise Error(problem, remedy="begin with a floating-point number there" if whole else "")
    np.copyto(view, array, casting="same_kind")


def _described(value: Any) -> str:
    if isinstance(value, np.ndarray):
        return f"{value.dtype} of shape {value.shape}"
    if isinstance(value, (tuple, list)):
        return f"{len(value)} values"
    return repr(value)

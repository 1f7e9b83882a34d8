# SPDX-License-Identifier: Apache-2.0
"""Objects that are no tensors and change in place: arrays, and Python's and NumPy's generators of random numbers."""

from __future__ import annotations

import random
from typing import Any, Protocol

import numpy as np

_SMALL = 1 << 20  # bytes of an array that is watched


class Value(Protocol):
    def read(self) -> Any:
        """A copy of what is in it."""

    def write(self, copy: Any) -> None: ...


class Array:
    def __init__(self, array: Any):
        self._array = array

    def read(self) -> Any:
        return self._array.copy()

    def write(self, copy: Any) -> None:
        self._array[:] = copy


class Generator:
    """random.Random, numpy.random.RandomState or numpy.random.Generator."""

    def __init__(self, generator: Any):
        self._generator = generator

    def read(self) -> Any:
        if isinstance(self._generator, random.Random):
            return self._generator.getstate()
        if isinstance(self._generator, np.random.Generator):
            return self._generator.bit_generator.state
        return self._generator.get_state(legacy=False)

    def write(self, copy: Any) -> None:
        if isinstance(self._generator, random.Random):
            self._generator.setstate(copy)
        elif isinstance(self._generator, np.random.Generator):
            self._generator.bit_generator.state = copy
        else:
            self._generator.set_state(copy)


def global_generators() -> list[Value]:
    """Those behind random.random() and numpy.random.rand()."""
    return [Generator(random._inst), Generator(np.random.mtrand._rand)]


def value_of(thing: Any, generators: bool) -> Value | None:
    """None for what is no such object, or a large array."""
    if isinstance(thing, (random.Random, np.random.RandomState, np.random.Generator)):
        return Generator(thing) if generators else None
    if isinstance(thing, bytearray):
        return Array(thing) if len(thing) <= _SMALL else None
    if isinstance(thing, np.ndarray) and thing.ndim > 0 and not thing.dtype.hasobject:
        return Array(thing) if thing.nbytes <= _SMALL and thing.flags.writeable else None
    return None


def same_value(a: Any, b: Any) -> bool:
    if isinstance(a, dict):
        return a.keys() == b.keys() and all(same_value(a[key], b[key]) for key in a)
    if isinstance(a, np.ndarray):
        return a.shape == b.shape and a.tobytes() == b.tobytes()
    return bool(a == b)

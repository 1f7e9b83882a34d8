# SPDX-License-Identifier: Apache-2.0
"""Bytes that this process has from what allocates tensors: malloc on a CPU, PyTorch's allocator on a GPU."""

from __future__ import annotations

import ctypes
import functools
import time
from collections.abc import Callable

import torch

_PROBE, _ASIDE = 1 << 20, 1 << 16


class _Info(ctypes.Structure):
    """struct mallinfo2 of glibc."""

    _names = "arena", "ordblks", "smblks", "hblks", "hblkhd", "usmblks", "fsmblks", "uordblks", "fordblks", "keepcost"
    _fields_ = [(name, ctypes.c_size_t) for name in _names]


@functools.cache
def allocated(device: torch.device) -> Callable[[], int] | None:
    """What reads them; None where nothing tells, or tensors do not come from it."""
    if device.type == "cpu":
        return _from_malloc()
    return functools.partial(_from_cuda, device) if device.type == "cuda" else None


def _from_cuda(device: torch.device) -> int:
    # torch.cuda.memory_allocated sorts all figures, which takes several times as long.
    return int(torch.cuda.memory_stats_as_nested_dict(device)["allocated_bytes"]["all"]["current"])


def _from_malloc() -> Callable[[], int] | None:
    try:
        info = ctypes.CDLL(None).mallinfo2
    except (AttributeError, OSError, TypeError):
        return None
    info.restype, info.argtypes = _Info, []

    def read() -> int:
        found = info()
        return found.uordblks + found.hblkhd

    for count in (1, 16):  # from a mapping of its own, and from among others
        before = read()
        probe = [torch.empty(_PROBE // count, dtype=torch.uint8) for _ in range(count)]
        if not 0 <= read() - before - _PROBE <= _ASIDE:
            return None
        del probe
    return read


def seconds_to_read(device: torch.device) -> float:
    """malloc goes through all that is free, which may be much."""
    read = allocated(device)
    if read is None:
        return float("inf")
    found = []
    for _ in range(3):
        start = time.perf_counter()
        read()
        found.append(time.perf_counter() - start)
    return min(found)

# SPDX-License-Identifier: Apache-2.0
"""Codecs for tensors that are kept for the way back: which the caller asked for, and one tensor encoded and decoded."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from ebb import _core
from ebb._base.errors import Error
from ebb._loop.codec import formulas as formulas

_ROWS = {row.name: row for row in _core.codecs()}
_NAMES = ("bf16", "fp16", "int8", "bits", "pool")
_FLOATS = (torch.float32, torch.float64, torch.float16, torch.bfloat16)
_HALVES = {"bf16": torch.bfloat16, "fp16": torch.float16}
_ELEMENTS = {torch.float32: "f32", torch.float64: "f64"}
_SMALL = 256  # bytes: smaller ones stay as they are


class Codec:
    """One codec of the library over flat tensors: its own code for float32 and float64 on a CPU, else the same formulas
    in torch's operations.

    >>> import torch
    >>> codec = Codec("int8")
    >>> codec.encoded_bytes(torch.float32, 1024)
    1088
    """

    def __init__(self, words: str):
        self.words = words
        self.name, _, parameter = words.partition(":")
        self.exact = _ROWS[self.name].exact
        self.varies = self.name == "bits"  # what it takes depends on the values
        self._block = int(parameter or 2) if self.name == "pool" else 1
        self._native = {dtype: _core.Codec(words, element) for dtype, element in _ELEMENTS.items()}

    def suits(self, dtype: torch.dtype, count: int) -> bool:
        """That many numbers become fewer bytes."""
        raw = count * dtype.itemsize
        return dtype in _FLOATS and raw >= _SMALL and self.encoded_bytes(dtype, count) < raw

    def encoded_bytes(self, dtype: torch.dtype, count: int) -> int:
        if self.name in _HALVES:
            return 2 * count
        if self.name == "int8":
            return 4 * -(-count // 64) + count
        if self.name == "bits":
            return -(-count // 8)
        return -(-count // self._block) * dtype.itemsize

    def encode(self, flat: Tensor) -> tuple[Tensor, Tensor | bool]:
        """Its bytes, and whether the codec takes all values; where it does not the bytes mean nothing."""
        native = self._native.get(flat.dtype) if flat.device.type == "cpu" else None
        if native is not None:
            encoded = torch.empty(self.encoded_bytes(flat.dtype, flat.numel()), dtype=torch.uint8)
            raw = flat.numel() * flat.element_size()
            return encoded, native.encode(flat.data_ptr(), raw, encoded.data_ptr(), encoded.numel())
        if self.name in _HALVES:
            encoded, taken = formulas.encode_half(flat, _HALVES[self.name])
        elif self.name == "int8":
            encoded, taken = formulas.encode_int8(flat)
        elif self.name == "bits":
            encoded, taken = formulas.encode_bits(flat)
        else:
            encoded, taken = formulas.encode_pool(flat, self._block)
        return encoded, True if taken is None else taken

    def decode(self, encoded: Tensor, dtype: torch.dtype, count: int) -> Tensor:
        native = self._native.get(dtype) if encoded.device.type == "cpu" else None
        if native is not None:
            flat = torch.empty(count, dtype=dtype)
            native.decode(encoded.data_ptr(), encoded.numel(), flat.data_ptr(), count * dtype.itemsize)
            return flat
        if self.name in _HALVES:
            return formulas.decode_half(encoded, _HALVES[self.name], dtype)
        if self.name == "int8":
            return formulas.decode_int8(encoded, dtype, count)
        if self.name == "bits":
            return formulas.decode_bits(encoded, dtype, count)
        return formulas.decode_pool(encoded, self._block, dtype, count)


@dataclass(frozen=True)
class Codecs:
    """As the caller named them; None: as it is."""

    tape: Codec | None
    state: Codec | None

    @property
    def exact(self) -> bool:
        return all(codec is None or codec.exact for codec in (self.tape, self.state))

    @property
    def key(self) -> tuple[str | None, str | None]:
        return None if self.tape is None else self.tape.words, None if self.state is None else self.state.words

    def words(self) -> dict[str, str]:
        return {what: words for what, words in zip(("tape", "state"), self.key) if words is not None}


def codecs_of(given: Any, who: str) -> Codecs | None:
    """What `codec=` says: a name is the tape's.

    >>> codecs_of(("int8", "bf16"), "scan").words()
    {'tape': 'int8', 'state': 'bf16'}
    """
    if given is None:
        return None
    if isinstance(given, str):
        named = {"tape": given}
    elif isinstance(given, Mapping):
        named = dict(given)
        unknown = [key for key in named if key not in ("tape", "state")]
        if unknown:
            raise Error(f'{who}: codec names {unknown[0]!r}; its keys are "tape" and "state"')
    elif isinstance(given, (tuple, list)) and len(given) == 2:
        named = {"tape": given[0], "state": given[1]}
    else:
        raise Error(
            f'{who}: codec is {given!r}; it is None, a name, a pair (tape, state) or {{"tape": ..., "state": ...}}'
        )
    found = Codecs(_codec(named.get("tape"), who), _codec(named.get("state"), who))
    return None if found.tape is None and found.state is None else found


def _codec(words: Any, who: str) -> Codec | None:
    if words is None:
        return None
    name = words.partition(":")[0] if isinstance(words, str) else None
    if name not in _NAMES:
        why = ""
        if name in _ROWS:
            varies = not _ROWS[name].fixed
            why = " (that one's bytes are not known before they are there)" if varies else " (leave it out)"
        raise Error(
            f"{who}: codec is {words!r}{why}; there are bf16, fp16, int8, bits and pool:N, means of N neighbours"
        )
    if name == "pool" and "x" in words:
        raise Error(f"{who}: codec is {words!r}; here it is pool:N, means of N neighbours")
    try:
        return Codec(words)
    except Error as error:
        raise Error(f"{who}: {error}", error.code) from None

# SPDX-License-Identifier: Apache-2.0
"""Operations that are recorded while they run, undone, and run again over the same tensors: a CUDA graph, but for CUDA."""

from __future__ import annotations

from typing import Any

import torch
from torch.utils._python_dispatch import TorchDispatchMode, _disable_current_modes

CAPTURING = "CUDA error: operation not permitted when stream is capturing"
# They hand values to Python, or have shapes that depend on them.
WAITING = {f"aten::{name}" for name in ("_local_scalar_dense", "equal", "masked_select", "nonzero", "_unique2")}
IN_SILENCE = ("running_mean", "running_var")  # written to without the schema saying so


def _memory(tensor: torch.Tensor) -> int:
    return tensor.untyped_storage()._cdata


def _leaves(value: Any) -> list[Any]:
    """Of what operations get and return, in which there is nothing but lists."""
    return [leaf for part in value for leaf in _leaves(part)] if isinstance(value, (list, tuple)) else [value]


def _tensors(value: Any) -> list[torch.Tensor]:
    return [leaf for leaf in _leaves(value) if isinstance(leaf, torch.Tensor)]


def _alias(value: Any) -> Any:
    """Without history, and with versions of its own: a replay tells autograd nothing."""
    if isinstance(value, (list, tuple)):
        return type(value)(map(_alias, value))
    return value.data if isinstance(value, torch.Tensor) else value


class Recording(TorchDispatchMode):
    def __init__(self) -> None:
        super().__init__()
        self.work: list[tuple[Any, Any, Any, list[tuple[int, torch.Tensor]]]] = []
        self.made: dict[int, torch.Tensor] = {}  # inside, as bytes
        self._before: dict[int, tuple[torch.Tensor, torch.Tensor]] = {}  # what is written to, and what it held
        self._random = torch.default_generator.get_state()
        self.broken = self._spoiled = False

    def __torch_dispatch__(self, operation: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        if operation._schema.name in WAITING:
            self.broken = True
            raise RuntimeError(CAPTURING)
        self._note_writes(operation, args, kwargs)
        result = operation(*args, **kwargs)
        given = {_memory(t) for t in _tensors([args, list(kwargs.values())])}
        own = [
            (k, leaf.data)
            for k, leaf in enumerate(_leaves(result))
            if isinstance(leaf, torch.Tensor) and _memory(leaf) not in given
        ]
        for _, tensor in own:
            self.made.setdefault(_memory(tensor), _bytes(tensor))
        # A view needs no work: it is where its base is.
        if own or operation._schema.is_mutable:
            self.work.append((operation, _alias(args), {k: _alias(v) for k, v in kwargs.items()}, own))
        return result

    def _note_writes(self, operation: Any, args: Any, kwargs: Any) -> None:
        for k, argument in enumerate(operation._schema.arguments):
            writes = argument.alias_info is not None and argument.alias_info.is_write
            if writes or argument.name in IN_SILENCE:
                for tensor in _tensors(args[k] if k < len(args) else kwargs.get(argument.name)):
                    if _memory(tensor) not in self.made and _memory(tensor) not in self._before:
                        held = _bytes(tensor)
                        self._before[_memory(tensor)] = held, held.clone()

    @property
    def nbytes(self) -> int:
        return sum(tensor.nbytes for tensor in self.made.values())

    def undo(self) -> None:
        torch.default_generator.set_state(self._random)
        for tensor, held in self._before.values():
            tensor.copy_(held)
        self.spoil()

    def spoil(self) -> None:
        """Whoever reads what was made inside gets no number."""
        if not self._spoiled:
            self._spoiled = True
            for tensor in self.made.values():
                tensor.fill_(255)

    def replay(self) -> None:
        self._spoiled = False
        with torch.no_grad(), _disable_current_modes(), torch._C._DisableAutocast():
            for operation, args, kwargs, own in self.work:
                leaves = _leaves(operation(*args, **kwargs))
                for k, tensor in own:
                    tensor.copy_(leaves[k])


def _bytes(tensor: torch.Tensor) -> torch.Tensor:
    """All of its storage."""
    return torch.empty(0, dtype=torch.uint8).set_(tensor.untyped_storage())

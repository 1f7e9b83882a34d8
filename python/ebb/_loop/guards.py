# SPDX-License-Identifier: Apache-2.0
"""What a captured block depends on beside its arguments. A replay runs no Python: where any of this changes, it would not notice."""

from __future__ import annotations

import collections
import zlib
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor
from torch.nn.modules import module as nn_module
from torch.utils._device import DeviceContext

from ebb._tensor.context import Changing, Surroundings
from ebb._tensor.function_key import object_key
from ebb._tensor.scale import hooks_around
from ebb._tensor.trees import leaves_of

_KINDS = (Tensor, torch.nn.Parameter, getattr(torch.nn, "Buffer", Tensor))
_GLOBAL = ("forward_", "forward_pre_", "backward_", "backward_pre_")
_SHORT = 4096  # bytes of a host tensor whose values are looked at

_LONG = 1 << 20  # and of an array; one that is longer counts as another each time


class Guard(NamedTuple):
    memory: tuple[Any, ...]  # of tensors
    values: dict[str, Any]  # by the names of their places
    flags: tuple[Any, ...]
    settings: dict[str, Any]

    def difference(self, other: Guard) -> str:
        """What another one has not as this one, in words."""
        for mine, theirs in ((self.values, other.values), (self.settings, other.settings)):
            for name in {**mine, **theirs}:
                if mine.get(name, _same_value) != theirs.get(name, _same_value):
                    return name
        if self.memory != other.memory:
            return "a tensor, or where it lies"
        return "training mode"


def _same_value() -> None:
    """Stands for what is not there."""


def guard_of(around: Surroundings, changing: Changing, device: torch.device) -> Guard:
    """Tensors with their memory, numbers by value, other objects by identity, modes and settings. What f itself changes is not
    looked at."""
    moving = set(changing.moving)
    whole = {k for k, _ in moving}
    values: dict[str, Any] = {}
    for k, place in enumerate(around.outside.places):
        if k not in whole:
            seen: Any = tuple(map(_value, place.values())), tuple(map(_value, place.keys()))
        else:
            seen = tuple(_value(place.get(key)) for key in place.keys() if (k, key) not in moving)
        values[f"{place.name or 'a global'} ({k})"] = seen
    # What lies where f puts its own is another tensor each time.
    lying = [around.outside.places[k].get(key) for k, key in changing.moving] + around.outside.start
    theirs = {id(t) for t in leaves_of(lying)}
    return Guard(
        tuple(_tensor(t) for t in around.tensors() if id(t) not in theirs),
        {**values, "the code of a function": around.code},
        tuple(_of_part(part) for module in around.modules for part in module.modules()),
        _settings(device),
    )


def _of_part(part: torch.nn.Module) -> Any:
    if type(part).__module__.partition(".")[0] != "ebb":
        return part.training
    # Whose other attributes are no places.
    return part.training, tuple((k, v) for k, v in vars(part).items() if isinstance(v, (bool, int, float, str)))


def reason_against(around: Surroundings) -> str | None:
    """Why blocks cannot be captured, in words."""
    if not around.complete:
        return "f can reach more objects than can be watched, or such that cannot be looked into"
    for module in around.modules:
        for part in module.modules():
            if part._forward_hooks or part._forward_pre_hooks or part._backward_hooks or part._backward_pre_hooks:
                return f"{type(part).__name__} has a hook, which a graph does not call"
    if any(getattr(nn_module, f"_global_{kind}hooks", None) for kind in _GLOBAL):
        return "a hook of all modules is set, which a graph does not call"
    for tensor in around.tensors():
        if tensor.layout is not torch.strided:
            return "f uses a sparse tensor"
        if tensor.is_cuda and tensor.device != around.device:
            return f"f can reach a tensor on {tensor.device}, and the loop is on {around.device}"
        if type(tensor) not in _KINDS:
            return f"f uses a {type(tensor).__name__}, whose memory is its own affair"
        if not tensor.is_cuda and tensor.nbytes > _SHORT:
            return f"f can reach a tensor on the {tensor.device.type}, whose values a graph would not see change"
    if around.draws_elsewhere:
        return "f draws random numbers from a generator that is not the GPU's own"
    if around.turns:
        return "f changes a NumPy array or draws from Python's random numbers"
    return _watched()


def _watched() -> str | None:
    around = torch.overrides._get_current_function_mode_stack()
    if torch._C._len_torch_dispatch_stack() > 0 or any(type(mode) is not DeviceContext for mode in around):
        return "a mode of PyTorch watches operations"
    if hooks_around() is not None:
        return "hooks for saved tensors are set around it"
    return "anomaly detection is on" if torch.is_anomaly_enabled() else None


def _tensor(t: Tensor) -> Any:
    # Bytes: of numbers some are equal that differ, and one differs from itself.
    values: Any = None if t.is_cuda else t._version
    if not t.is_cuda and t.nbytes <= _SHORT:
        values = t.detach().reshape(-1).contiguous().view(torch.uint8).tolist()
    return (id(t), t.data_ptr(), t.requires_grad, t.shape, t.stride(), t.dtype, t.device, values)


def _value(value: Any) -> Any:
    if isinstance(value, Tensor):
        return _tensor(value)
    if isinstance(value, tuple):
        return type(value), tuple(map(_value, value))
    if isinstance(value, bytearray):
        return bytes(value)
    if isinstance(value, np.ndarray):
        return id(value), zlib.crc32(np.ascontiguousarray(value).tobytes()) if value.nbytes <= _LONG else object()
    if isinstance(value, (list, dict, set, collections.deque)) or type(value).__module__.partition(".")[0] == "ebb":
        return type(value)  # what is in them are places of their own; ours are new for each call
    return object_key(value)


def _settings(device: torch.device) -> dict[str, Any]:
    backends = torch.backends
    return {
        "autocast": [
            (torch.is_autocast_enabled(kind), torch.get_autocast_dtype(kind)) for kind in ("cpu", device.type)
        ],
        "the precision of products": [
            _read(owner, "fp32_precision")
            for owner in (
                backends,
                backends.cuda.matmul,
                *(_read(backends.cudnn, part) for part in ("", "conv", "rnn")),
            )
        ]
        + [_old_precision()],
        "the default device": [str(torch.get_default_device())],
        "cuDNN's settings": [
            _read(backends.cudnn, name) for name in ("enabled", "allow_tf32", "benchmark", "deterministic")
        ],
        "cuBLAS's settings": [
            _read(backends.cuda.matmul, f"allow_{name}")
            for name in ("bf16_reduced_precision_reduction", "fp16_reduced_precision_reduction", "fp16_accumulation")
        ]
        + [str(_read(torch._C, "_get_blas_preferred_backend", call=True))],
        "attention's kernels": [
            _read(backends.cuda, f"{name}_sdp_enabled", call=True)
            for name in ("flash", "mem_efficient", "math", "cudnn")
        ],
        "deterministic algorithms": [
            torch.are_deterministic_algorithms_enabled(),
            _read(torch.utils.deterministic, "fill_uninitialized_memory"),
        ],
        "torch.backends.opt_einsum": [_read(backends.opt_einsum, name) for name in ("enabled", "strategy")],
        "the default dtype": torch.get_default_dtype(),
    }


def _read(owner: Any, name: str, call: bool = False) -> Any:
    """None where this PyTorch has no such setting, or will not tell since it was set by a newer name."""
    try:
        found = getattr(owner, name) if name else owner
        return found() if call else found
    except (AttributeError, RuntimeError):
        return None


def _old_precision() -> str | None:
    try:
        return torch.get_float32_matmul_precision()
    except RuntimeError:
        return None

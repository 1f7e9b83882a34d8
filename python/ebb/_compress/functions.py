# SPDX-License-Identifier: Apache-2.0
"""The table of torch's functions that do what a compressed layer does: activations, max-pooling, dropout and norms.

Where arguments are not what a layer takes (`out=`, tensors in the place of numbers, sparse or nested tensors, classes derived from Tensor),
`done` steps aside, and the function is torch's own.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from functools import lru_cache
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from ebb._compress.layers import activation, dropout, maxpool, norm
from ebb._compress.settings import Settings

Call = Callable[..., Any]


@lru_cache(maxsize=256)
def _known(kind: Any, _written: str, *options: Any) -> Any:
    layer = kind(*options)
    layer.ebb_settings = Settings()
    return layer


def _layer(kind: Any, *options: Any) -> Any:
    return _known(kind, repr(options), *options)  # 0.0 and -0.0 are one key, and two slopes


def _relu(input: Tensor, inplace: bool = False) -> Any:
    return _layer(activation.ReLU, inplace).forward(input)


def _relu_in_place(input: Tensor) -> Any:
    return _layer(activation.ReLU, True).forward(input)


def _relu6(input: Tensor, inplace: bool = False) -> Any:
    return _layer(activation.ReLU6, inplace).forward(input)


def _hardtanh(input: Tensor, min_val: float = -1.0, max_val: float = 1.0, inplace: bool = False) -> Any:
    return (
        _layer(activation.Hardtanh, min_val, max_val, inplace).forward(input) if min_val < max_val else NotImplemented
    )


def _leaky_relu(input: Tensor, negative_slope: float = 0.01, inplace: bool = False) -> Any:
    return _layer(activation.LeakyReLU, negative_slope, inplace).forward(input)


def _silu(input: Tensor, inplace: bool = False) -> Any:
    return _layer(activation.SiLU, inplace).forward(input)


def _hardswish(input: Tensor, inplace: bool = False) -> Any:
    return _layer(activation.Hardswish, inplace).forward(input)


def _mish(input: Tensor, inplace: bool = False) -> Any:
    return _layer(activation.Mish, inplace).forward(input)


def _gelu(input: Tensor, *, approximate: str = "none") -> Any:
    return _layer(activation.GELU, approximate).forward(input)


def _sigmoid(input: Tensor) -> Any:
    return _layer(activation.Sigmoid).forward(input)


def _tanh(input: Tensor) -> Any:
    return _layer(activation.Tanh).forward(input)


def _dropout(input: Tensor, p: float = 0.5, training: bool = True, inplace: bool = False) -> Any:
    if not training or not 0 < p < 1:
        return NotImplemented
    return _layer(dropout.Dropout, p, inplace).forward(input)


def _max_pool(kind: Any) -> Call:
    def call(
        input: Tensor,
        kernel_size: Any,
        stride: Any = None,
        padding: Any = 0,
        dilation: Any = 1,
        ceil_mode: bool = False,
        return_indices: bool = False,
    ) -> Any:
        sizes = [kernel_size, stride, padding, dilation]
        if not all(isinstance(one, int) or one is None or len(one) == kind.dims for one in sizes):
            return NotImplemented
        return _layer(kind, *sizes, return_indices, ceil_mode).forward(input)

    return call


def _batch_norm(
    settings: Settings,
    input: Tensor,
    running_mean: Tensor | None,
    running_var: Tensor | None,
    weight: Tensor | None = None,
    bias: Tensor | None = None,
    training: bool = False,
    momentum: float = 0.1,
    eps: float = 1e-5,
) -> Any:
    def run() -> Tensor:
        return F.batch_norm(input, running_mean, running_var, weight, bias, training, momentum, eps)

    return norm.batch_normed(input, (running_mean, running_var), (weight, bias), training, eps, settings, run)


def _layer_norm(
    settings: Settings,
    input: Tensor,
    normalized_shape: Any,
    weight: Tensor | None = None,
    bias: Tensor | None = None,
    eps: float = 1e-5,
) -> Any:
    return norm.sample_normed(F.layer_norm, input, normalized_shape, (weight, bias), eps, settings)


def _group_norm(
    settings: Settings,
    input: Tensor,
    num_groups: int,
    weight: Tensor | None = None,
    bias: Tensor | None = None,
    eps: float = 1e-5,
) -> Any:
    return norm.sample_normed(F.group_norm, input, num_groups, (weight, bias), eps, settings)


# A layer of torch's, what does the same, and the functions that a model may call in its place.
_ROWS: list[tuple[type[nn.Module], Call, list[Any]]] = [
    (nn.ReLU, _relu, [F.relu, torch.relu, Tensor.relu]),
    (nn.ReLU, _relu_in_place, [F.relu_, torch.relu_, Tensor.relu_]),
    (nn.ReLU6, _relu6, [F.relu6]),
    (nn.Hardtanh, _hardtanh, [F.hardtanh]),
    (nn.LeakyReLU, _leaky_relu, [F.leaky_relu]),
    (nn.SiLU, _silu, [F.silu]),
    (nn.Hardswish, _hardswish, [F.hardswish]),
    (nn.Mish, _mish, [F.mish]),
    (nn.GELU, _gelu, [F.gelu]),
    (nn.Sigmoid, _sigmoid, [F.sigmoid, torch.sigmoid, Tensor.sigmoid]),
    (nn.Tanh, _tanh, [F.tanh, torch.tanh, Tensor.tanh]),
    (nn.Dropout, _dropout, [F.dropout]),
    (nn.MaxPool1d, _max_pool(maxpool.MaxPool1d), [F.max_pool1d, torch.max_pool1d]),
    (nn.MaxPool2d, _max_pool(maxpool.MaxPool2d), [F.max_pool2d, torch.max_pool2d]),
    (nn.MaxPool3d, _max_pool(maxpool.MaxPool3d), [F.max_pool3d, torch.max_pool3d]),
    (nn.BatchNorm2d, _batch_norm, [F.batch_norm]),
    (nn.LayerNorm, _layer_norm, [F.layer_norm]),
    (nn.GroupNorm, _group_norm, [F.group_norm]),
]
_CALLS = {function: call for _, call, functions in _ROWS for function in functions}
# Of each call, the names of its arguments, and whether they are tensors.
_WORDS = {
    call: {
        name: "Tensor" in one.annotation
        for name, one in inspect.signature(call).parameters.items()
        if name != "settings"
    }
    for call in _CALLS.values()
}
_WITH_SETTINGS = {_batch_norm, _layer_norm, _group_norm}

# Kinds of layers, by the function that a model calls and by that function's name.
KIND_OF = {function: kind for kind, _, functions in _ROWS for function in functions}
KIND_NAMED = {function.__name__: kind for function, kind in KIND_OF.items()}


def done(function: Any, way: str, args: tuple[Any, ...], named: Mapping[str, Any]) -> Any:
    """What a function of the table gives, done as a layer would do it that keeps in this way. NotImplemented: it is to be torch's."""
    call = _CALLS[function]
    words = _WORDS[call]
    given = {**dict(zip(words, map(plain, args))), **{name: plain(one) for name, one in named.items()}}
    if not named.keys() <= words.keys() or len(given) < len(args) + len(named):
        return NotImplemented
    if any(one is NotImplemented or (isinstance(one, Tensor) and not words[name]) for name, one in given.items()):
        return NotImplemented
    if call in _WITH_SETTINGS:
        given["settings"] = Settings(way=way)
    return call(**given)


def plain(one: Any) -> Any:
    """An argument that nothing can change any more; NotImplemented for one that layers do not take."""
    if isinstance(one, (list, tuple)):
        return tuple(one) if all(type(each) is int for each in one) else NotImplemented
    if isinstance(one, Tensor):
        is_usual = type(one) in (Tensor, nn.Parameter) and one.layout is torch.strided and not one.is_nested
        return one if is_usual and one.device.type != "meta" else NotImplemented
    return one if one is None or type(one) in (bool, int, float, str) else NotImplemented

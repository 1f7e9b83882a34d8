# SPDX-License-Identifier: Apache-2.0
"""The recurrent layers of a model that is there already, made ebb's own, and torch's again."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any, TypeVar, cast

import torch
from torch import nn

from ebb._base.budget import Budget, BudgetLike
from ebb._base.errors import Error
from ebb._loop.arguments import checked_chunk
from ebb.nn._convert_spiking import as_layer, is_foreign
from ebb.nn.rnn import GRU, LSTM, RNN, Bounded
from ebb.tiers import Tier, listed

Model = TypeVar("Model", bound=nn.Module)

_OURS: dict[type[nn.Module], type[Bounded]] = {nn.RNN: RNN, nn.LSTM: LSTM, nn.GRU: GRU}
_THEIRS: dict[type[nn.Module], type[nn.Module]] = {ours: theirs for theirs, ours in _OURS.items()}


def convert(
    model: Model,
    budget: BudgetLike | None,
    *,
    units: int | None = None,
    tiers: Tier | Sequence[Tier] | None = None,
    chunk: int | None = None,
    strategy: str = "auto",
    native: bool = True,
    skip: Iterable[str | type | nn.Module] = (),
) -> Model:
    """Makes every torch.nn.RNN, LSTM and GRU of a model ebb's own, all in one budget. Changes the model in place and returns it.

    Layers remain the same objects, with their parameters, names, hooks, training mode, device and dtype: optimisers and
    the state_dict keep working. `ebb.nn.revert` undoes it. Gradients are those of :class:`ebb.nn.LSTM` and its like.

    budget: bytes, text such as ``"2GiB"`` or ``"20%"``, or an `ebb.Budget`, for all layers together. Layers that are already ebb's get it too.
    tiers, chunk, strategy, native: as of :class:`ebb.nn.LSTM`, for each layer.
    skip: layers that stay as they are: names (with all they contain), types or modules.

    A layer that cannot be converted is refused by name, before anything is changed, unless `skip` has it: one with ``proj_size``, and one
    of another class than torch's own (derived from it, or parametrised), which may compute something else. Cells, quantised and
    compiled layers are none of torch.nn.RNN, LSTM and GRU, and stay as they are.

    Given a single neuron of snnTorch (Leaky, RLeaky) or SpikingJelly (LIFNode, ParametricLIFNode), returns a new layer with its
    parameters and leaves the neuron unchanged: :class:`ebb.nn.LIF` or, where the reset waits for the next time step,
    :class:`ebb.nn.ALIF`. It is called with the currents of a whole sequence, [T,B,units], and starts at a state of zeros. A decay or threshold that learns does so for each unit.
    Refused by name, with the option: what ebb's layers do not compute. See docs/recipes.md.

    units: of such a neuron, where its numbers do not say. For neurons budget may be None, no limit.

    >>> import torch, ebb.nn
    >>> model = torch.nn.ModuleDict({"low": torch.nn.LSTM(3, 8), "high": torch.nn.GRU(8, 8)})
    >>> model = ebb.nn.convert(model, budget="64KiB")
    >>> model["high"](model["low"](torch.randn(500, 2, 3))[0])[0].sum().backward()
    >>> model["low"].budget is model["high"].budget, model["low"].budget.peak <= 64 * 1024
    (True, True)
    """
    _check_model("convert", model)
    if is_foreign(model) and model not in _left(model, skip):
        how = {"budget": budget, "tiers": tiers, "chunk": chunk, "strategy": strategy, "native": native}
        return cast("Model", as_layer(model, units, **how))
    if units is not None:
        raise Error(
            f"convert: units is {units!r}, which is for a neuron of snnTorch or SpikingJelly by itself; the model is a "
            f"{type(model).__name__}"
        )
    if budget is None:
        raise Error(
            "convert: budget is None; give bytes for all layers together, or call ebb.nn.revert(model) to undo it"
        )
    checked_chunk("convert", chunk)
    listed(tiers)
    layers = _convertible(model, skip)
    shared = budget if isinstance(budget, Budget) else Budget(budget)
    for layer in layers:
        layer.__class__ = _OURS.get(type(layer), type(layer))
        layer.bind(shared, tiers, chunk, strategy, native)
    return model


def revert(model: Model) -> Model:
    """Makes every ebb.nn.RNN, LSTM and GRU of a model torch's own, as before `ebb.nn.convert`; returns the model.

    >>> import torch, ebb.nn
    >>> type(ebb.nn.revert(ebb.nn.convert(torch.nn.LSTM(3, 8), "1MiB"))) is torch.nn.LSTM
    True
    """
    _check_model("revert", model)
    for name, layer in model.named_modules():
        if isinstance(layer, Bounded) and "parametrizations" in layer._modules:
            raise Error(
                f"revert: {name or 'the model'} has become {type(layer).__name__} since it was converted; remove its "
                "parametrizations first"
            )
    for layer in model.modules():
        if type(layer) in _THEIRS and isinstance(layer, Bounded):
            layer.unbind()
            layer.__class__ = _THEIRS[type(layer)]  # type: ignore[assignment]
    return model


def _check_model(what: str, model: Any) -> None:
    if not isinstance(model, nn.Module) or isinstance(model, torch.jit.ScriptModule):
        raise Error(
            f"{what}: model is a {type(model).__name__}; it must be a torch.nn.Module that is not compiled by torch.jit"
        )


def _convertible(model: nn.Module, skip: Iterable[str | type | nn.Module]) -> list[Any]:
    left = _left(model, skip)
    layers = {
        name: layer for name, layer in model.named_modules() if isinstance(layer, nn.RNNBase) and layer not in left
    }
    if not layers:
        neurons = [name for name, layer in model.named_modules() if name and is_foreign(layer)]
        raise Error(
            "convert: the model has no torch.nn.RNN, LSTM or GRU to convert; nothing of it would be in the budget",
            remedy=f"its neurons ({', '.join(neurons)}) are called by code of its own: convert each by itself, and call it with "
            "whole sequences, or run the model in a loop with ebb.scan"
            if neurons
            else "",
        )
    reasons = {name: reason for name, layer in layers.items() if (reason := _why_not(layer)) is not None}
    if reasons:
        name, reason = next(iter(reasons.items()))
        if not name:
            raise Error(f"convert: the model itself {reason}")
        raise Error(f"convert: {name} {reason}", remedy=f"leave it as it is with skip={list(reasons)!r}")
    return list(layers.values())


def _why_not(layer: nn.RNNBase) -> str | None:
    if type(layer) not in _OURS and type(layer) not in _THEIRS:
        return f"is a {type(layer).__name__}, not torch.nn's own class, and may compute something else"
    return f"has proj_size={layer.proj_size}, and ebb's layers have no projections" if layer.proj_size else None


def _left(model: nn.Module, skip: Any) -> set[nn.Module]:
    """All modules that are to stay as they are."""
    names = dict(model.named_modules(remove_duplicate=False))
    found: set[nn.Module] = set()
    alone = isinstance(skip, (str, type, nn.Module)) or not isinstance(skip, Iterable)
    for one in [skip] if alone else skip:
        if isinstance(one, str) and one in names:
            found.update(names[one].modules())
        elif isinstance(one, str):
            raise Error(f"convert: skip names {one!r}, which the model does not have; see model.named_modules()")
        elif isinstance(one, type):
            found.update(layer for layer in model.modules() if isinstance(layer, one))
        elif isinstance(one, nn.Module):
            found.update(one.modules())
        else:
            raise Error(f"convert: skip has {one!r}; it must be a layer's name, a type or a module")
    return found

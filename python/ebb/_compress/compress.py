# SPDX-License-Identifier: Apache-2.0
"""`compress`: the layers of a model keep less for the backward pass. `decompress` undoes it."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any, TypeVar

import torch
from torch import Tensor, nn

from ebb._base.errors import Error
from ebb._compress.blocks import Pool, blocks_of, names_of, some
from ebb._compress.changes import Changes
from ebb._compress.gains import Gains, leave_recipes, without_gain
from ebb._compress.kinds import (
    COMPRESSED,
    CONVS,
    LINEARS,
    NORMS,
    POOLS,
    RELUS,
    compressed_class,
    is_compressed,
    is_compressed_class,
    original_of,
    stock,
    stock_of,
)
from ebb._compress.record import record_bytes
from ebb._compress.sample_step import SampleStep
from ebb._compress.seen import mark, ways_called
from ebb._compress.settings import Settings, settings_of
from ebb._compress.watch import unwatch, watch

Model = TypeVar("Model", bound=nn.Module)

_NORM_WAYS = {"exact": "keep", "int8": "compress"}
# Attributes of a model that say what was done to it, and which functions do what layers do.
_TOLD = ("ebb_fit", "ebb_compress", "ebb_functions")


def compress(
    model: Model,
    pool: Pool = 1,
    *,
    relu: str = "bits",
    norm: str = "exact",
    linear: str = "exact",
    pooling: str = "average",
    skip: Iterable[str | type | nn.Module] = (),
    sample: Any = None,
    loss: Callable[[Any], Tensor] | None = None,
) -> Model:
    """Makes the layers of a model keep less for the backward pass. Changes the model in place and returns it; `model.ebb_compress`
    says which layers were changed, and which were left alone because compressing them saves nothing.

    Results of the forward pass, parameters and the state_dict do not change, and `ebb.decompress` undoes it. Without lossy
    options gradients are bit-identical to those of the original model: an activation is kept once where torch keeps it twice, a ReLU keeps
    bits, max-pooling keeps small indices, dropout keeps bits.

    pool: convolutions keep the means of blocks of their input for the weight gradient (Barley & Froening 2024): lossy from 2
        on. A number; a tuple, one for each spatial axis; a list, one for each stage (the children of the model that contain
        convolutions; those before them use the first); a dict from layers, or from what contains them, to blocks. An input that is
        available anyway, because it can be recomputed from what a norm keeps or the caller holds it, is not pooled, and its
        gradients are exact, unless a dict names the layer itself.
    relu: "bits": nothing if its input can be recomputed, else one bit per element; or "exact": as torch does it.
    norm: "exact"; "recompute": inputs that come from a convolution are recomputed; "int8": inputs are kept in 8 bits, with
        a scale for each channel of batch norms, for each 64 numbers of others, and layers behind the norm compute what they
        read from those (lossy; ReLUs keep their bits, which are exact).
    linear: "exact"; "int8"; "project": a quarter as many rows, random mixtures of the input's (both lossy).
    pooling: "average" or "max".
    skip: layers that stay as they are: names (with all they contain), types or modules.
    sample, loss: as in `ebb.compression_report`. A step on the sample is measured before and after: layers that keep no less there
        stay as they were, all of them if the step keeps no less, and `model.ebb_compress` says how much is kept. Without
        a sample layers stay as they were only where their options and the model's other layers tell that nothing can be saved.

    Pooling, and "int8" and "project" for linear layers, change weight gradients of those layers and nothing else; "int8" norms
    change their gradients and those of what comes before them, and weight gradients of what comes behind.
    `ebb.compression_report` measures by how much.

    >>> import torch, ebb
    >>> net = torch.nn.Sequential(torch.nn.Conv2d(3, 8, 3), torch.nn.BatchNorm2d(8), torch.nn.ReLU(), torch.nn.Conv2d(8, 8, 3))
    >>> net = ebb.compress(net, pool=2)
    >>> net(torch.randn(2, 3, 16, 16)).sum().backward()
    >>> isinstance(net[3], torch.nn.Conv2d), len(net.state_dict())
    (True, 9)
    >>> print(net.ebb_compress.brief())
    4 layers compressed
    """
    if not isinstance(model, nn.Module) or isinstance(model, torch.jit.ScriptModule):
        raise Error(
            f"compress: model is a {type(model).__name__}; it must be a torch.nn.Module that is not compiled by torch.jit"
        )
    _one_of("relu", relu, ("bits", "exact"))
    _one_of("norm", norm, ("exact", "recompute", "int8"))
    _one_of("linear", linear, ("exact", "int8", "project"))
    _one_of("pooling", pooling, ("average", "max"))
    step = None if sample is None else SampleStep("compress", model, sample, loss)
    skip = listed(skip)
    layers = compressible_layers(model, skip, "compress")
    left = (*(one for one in skip if isinstance(one, type)), *(RELUS if relu == "exact" else ()))
    functions = ways_called(model, left, _NORM_WAYS.get(norm, norm))
    if relu == "exact":
        layers = {name: layer for name, layer in layers.items() if stock(layer) not in RELUS}
    chosen = _chosen(model, layers, pool, norm, linear, pooling)
    idle, before = without_gain(chosen, functions), Compression(model)
    decompress(model)
    at_work = {layer: settings for layer, settings in chosen.items() if layer not in idle}
    if functions and (at_work or leave_recipes(functions)):
        mark(model, functions, _left(model, skip, "compress"))
    _install(model, at_work)
    try:
        kept = () if step is None else _settled(step)
    except BaseException:
        before.put_back(model)
        raise
    model.ebb_compress = Changes.of(model, layers, *kept)  # type: ignore[assignment]
    return model


def compress_all(model: nn.Module, skip: Iterable[str | type | nn.Module]) -> None:
    """Exactly, every layer that can be, whether that gains something or not: what each does is chosen later."""
    chosen = _chosen(model, compressible_layers(model, skip, "compress"), 1, "exact", "exact", "average")
    decompress(model)
    _install(model, chosen)


def _chosen(
    model: nn.Module, layers: Mapping[str, Any], pool: Pool, norm: str, linear: str, pooling: str
) -> dict[nn.Module, Settings]:
    blocks = blocks_of(model, {name: one for name, one in layers.items() if stock(one) in CONVS}, pool)
    for name, layer in layers.items():
        if name in blocks and layer.padding_mode != "zeros":
            raise Error(
                f"compress: {name or 'the model itself'} pads with padding_mode={layer.padding_mode!r}; only 'zeros' can "
                "be compressed. "
                f"Leave it as it is with skip=[{name!r}]"
            )
    alone = _before_pools(model) if norm == "recompute" else set()
    chosen: dict[nn.Module, Settings] = {}
    for name, layer in layers.items():
        kind = stock(layer)
        settings = Settings(pooling=pooling)
        if name in blocks:
            settings.block = blocks[name]
            settings.way = "compress" if max(settings.block) > 1 else "keep"
            settings.always = isinstance(pool, Mapping) and name in pool
            settings.offers = norm == "recompute"
        elif kind in NORMS:
            settings.way = _NORM_WAYS.get(norm, norm)
        elif layer in alone:
            settings.way = "bits"
        elif kind in LINEARS and linear != "exact":
            settings.way, settings.codec = "compress", linear
        chosen[layer] = settings
    return chosen


def _before_pools(model: nn.Module) -> set[nn.Module]:
    """ReLUs that the model lists before a max-pooling, as in the stem of a ResNet: nothing but their own backward pass would have their
    output recomputed, at the worst moment of a step in which all norms are."""
    pairs = [pair for part in model.modules() for pair in itertools.pairwise(part.children())]
    return {one for one, after in pairs if stock(one) in RELUS and stock(after) in POOLS}


def _settled(step: SampleStep) -> tuple[int, int]:
    """Makes layers that save nothing in the step what they were. Bytes that a step keeps, before and now."""
    model = step.model
    with as_stock(model):
        before = record_bytes(step)
    gains = Gains(before, record_bytes(step))
    if gains.kept >= gains.stock_kept:
        decompress(model)
        return gains.stock_kept, gains.stock_kept
    now = Compression(model)
    for layer in set(compressed_layers(model).values()) - gains.layers():
        _make_stock(layer)
    kept = sum(event.bytes for event in record_bytes(step))
    if kept > gains.kept:  # by something that was not seen, a layer was of use
        now.put_back(model)
    return gains.stock_kept, min(kept, gains.kept)


def _install(model: nn.Module, chosen: Mapping[nn.Module, Settings]) -> None:
    _compress_layers(chosen)
    if chosen or "ebb_functions" in vars(model):
        _hook(model)


def _compress_layers(chosen: Mapping[nn.Module, Settings]) -> None:
    for layer, settings in chosen.items():
        layer.ebb_settings = settings  # type: ignore[assignment]
        if not is_compressed(layer):
            layer.__class__ = compressed_class(layer)


def _hook(model: nn.Module) -> None:
    model.register_forward_pre_hook(watch, prepend=True)
    model.register_forward_hook(unwatch, always_call=True)


def decompress(model: Model) -> Model:
    """Undoes `ebb.compress` in place; returns the model.

    >>> import torch, ebb
    >>> net = ebb.decompress(ebb.compress(torch.nn.Sequential(torch.nn.Linear(4, 4), torch.nn.ReLU())))
    >>> type(net[1]) is torch.nn.ReLU
    True
    """
    if not isinstance(model, nn.Module):
        raise Error(f"decompress: model is a {type(model).__name__}; it must be a torch.nn.Module")
    for name, layer in model.named_modules():
        whole = is_compressed(layer) or _is_parametrised(layer)
        if isinstance(layer, tuple(COMPRESSED.values())) and not whole:
            raise Error(
                f"decompress: {name or 'the model'} has become {type(layer).__name__} since it was compressed; make it "
                f"what it was, a {stock_of(layer).__name__}, first"
            )
    for layer in model.modules():
        if is_compressed(layer):
            _make_stock(layer)
        elif _is_parametrised(layer):
            type(layer).__bases__ = (original_of(type(layer).__bases__[0]),)
            del layer.ebb_settings
        for told in _TOLD:
            vars(layer).pop(told, None)
        for hooks, own in ((layer._forward_pre_hooks, watch), (layer._forward_hooks, unwatch)):
            for key in [key for key, hook in hooks.items() if hook is own]:
                del hooks[key]
                layer._forward_hooks_always_called.pop(key, None)
    return model


def _make_stock(layer: nn.Module) -> None:
    layer.__class__ = original_of(type(layer))
    vars(layer).pop("ebb_settings", None)


class Compression:
    """How a model is compressed now, to be restored later."""

    def __init__(self, model: nn.Module):
        self.roots = [part for part in model.modules() if watch in part._forward_pre_hooks.values()]
        self.settings = {layer: settings_of(layer) for layer in compressed_layers(model).values()}
        self.told = [(part, name, vars(part)[name]) for part in model.modules() for name in _TOLD if name in vars(part)]

    def put_back(self, model: nn.Module) -> None:
        decompress(model)
        for part, name, value in self.told:
            setattr(part, name, value)
        _compress_layers(self.settings)
        for root in self.roots:
            _hook(root)


@contextmanager
def as_stock(model: nn.Module) -> Iterator[None]:
    """Inside, the model is what it was before `compress`."""
    now = Compression(model)
    decompress(model)
    try:
        yield
    finally:
        now.put_back(model)


def compressed_layers(model: nn.Module) -> dict[str, nn.Module]:
    return {name: layer for name, layer in model.named_modules() if is_compressed(layer)}


def _is_parametrised(layer: nn.Module) -> bool:
    """Since it was compressed: torch.nn.utils.parametrize gives a layer a class of its own, derived from the one it had."""
    bases = type(layer).__bases__
    return "parametrizations" in layer._modules and len(bases) == 1 and is_compressed_class(bases[0])


def _one_of(name: str, value: Any, allowed: Sequence[str]) -> None:
    if value not in allowed:
        raise Error(f"compress: {name} is {value!r}; it must be {' or '.join(map(repr, allowed))}")


def listed(skip: Any) -> list[Any]:
    return list(skip) if isinstance(skip, Iterable) and not isinstance(skip, (str, type, nn.Module)) else [skip]


def compressible_layers(model: nn.Module, skip: Iterable[str | type | nn.Module], what: str) -> dict[str, nn.Module]:
    """Those that can be compressed; errors speak of `what`. A class of somebody's own may compute something else, so types must be torch's
    or have its forward passes."""
    left = _left(model, listed(skip), what)
    return {name: layer for name, layer in model.named_modules() if stock(layer) in COMPRESSED and layer not in left}


def _left(model: nn.Module, skip: Iterable[str | type | nn.Module], what: str) -> set[nn.Module]:
    """Modules that are to stay as they are, by name or themselves, with all that they contain; those of a type among them."""
    names = names_of(model)
    found: set[nn.Module] = set()
    for one in skip:
        if isinstance(one, str):
            if one not in names:
                raise Error(f"{what}: skip names {one!r}, which the model does not have; its layers are {some(names)}")
            found.update(names[one].modules())
        elif isinstance(one, nn.Module):
            found.update(one.modules())
        elif isinstance(one, type):
            found.update(part for part in names.values() if isinstance(part, one))
        else:
            raise Error(f"{what}: skip has {one!r}; it must be a layer's name, a type or a module")
    return found

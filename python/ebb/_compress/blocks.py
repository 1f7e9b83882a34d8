# SPDX-License-Identifier: Apache-2.0
"""Names of layers, and the block in which each convolution pools its input: what `pool` of `ebb.compress` means."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from torch import nn

from ebb._base.errors import Error

Block = int | tuple[int, ...]
Pool = Block | list[Block] | Mapping[str, Block]


def names_of(model: nn.Module) -> dict[str, nn.Module]:
    """A layer that is used in two places has two."""
    return dict(model.named_modules(remove_duplicate=False))


def some(names: Iterable[str]) -> str:
    listed = [name for name in names if name]
    return ", ".join(listed[:8]) + (", ..." if len(listed) > 8 else "")


def blocks_of(model: nn.Module, convs: dict[str, nn.Module], pool: Pool) -> dict[str, tuple[int, ...]]:
    """The block of every convolution."""
    if isinstance(pool, Mapping):
        names = names_of(model)
        chosen: dict[nn.Module, Any] = {}
        for given in sorted(pool, key=lambda name: len(str(name))):  # the longest name is the closest
            if not isinstance(given, str):
                raise Error(f"compress: pool has the key {given!r}; keys are names of layers, such as {some(convs)}")
            if given not in names:
                raise Error(
                    f"compress: pool names {given!r}, which the model does not have; its layers are {some(names)}"
                )
            meant = set(names[given].modules()) & set(convs.values())
            if not meant:
                raise Error(f"compress: pool names {given!r}, which has no convolution that could be compressed")
            chosen.update(dict.fromkeys(meant, pool[given]))
        return {name: _block(chosen.get(layer, 1), name, layer) for name, layer in convs.items()}
    if isinstance(pool, list):
        stages = [
            name
            for name, child in model.named_children()
            if list(child.children()) and any(_within(each, name) for each in convs)
        ]
        if not stages:
            raise Error(
                f"compress: pool is the list {pool!r}, a block for each stage, but no child of the model contains "
                "convolutions of its own; give one block, or name layers in a dict"
            )
        if len(pool) != len(stages):
            raise Error(
                f"compress: pool has {len(pool)} blocks for {len(stages)} stages ({some(stages)}); give one for each, or "
                "name layers in a dict"
            )
        found = {}
        for name in convs:
            stage = next((i for i, each in enumerate(stages) if _within(name, each)), 0)
            found[name] = _block(pool[stage], name, convs[name])
        return found
    return {name: _block(pool, name, layer) for name, layer in convs.items()}


def _within(name: str, outer: str) -> bool:
    return outer == "" or name == outer or name.startswith(outer + ".")


def _block(block: Any, name: str, layer: Any) -> tuple[int, ...]:
    name = name or "the model itself"
    dims = len(layer.stride)
    given = (block,) * dims if isinstance(block, int) else block
    if not isinstance(given, tuple) or not all(
        isinstance(p, int) and not isinstance(p, bool) and p >= 1 for p in given
    ):
        raise Error(f"compress: pool is {block!r} for {name}; a block is a whole number from 1 on, or a tuple of them")
    if len(given) != dims:
        raise Error(
            f"compress: pool is {block!r} for {name}, which has {dims} spatial axes; give {dims} numbers, or one for all"
        )
    return given

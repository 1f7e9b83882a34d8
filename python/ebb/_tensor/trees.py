# SPDX-License-Identifier: Apache-2.0
"""Nested structures of tensors: whatever torch.utils._pytree knows, dataclasses and None, as lists of leaves and back."""

from __future__ import annotations

import contextlib
import dataclasses
from collections.abc import Callable, Iterable, Sequence
from typing import Any

import torch
from torch import Tensor
from torch.utils import _pytree

from ebb._base.errors import Error


def _kind(value: object) -> str:
    return type(value).__name__


class Fields:
    """Stands for an unregistered dataclass: a node of its fields, in their order."""

    def __init__(self, value: Any):
        self.value = value


def _parts_of(fields: Fields) -> tuple[list[Any], tuple[type, tuple[str, ...]]]:
    value = fields.value
    names = tuple(field.name for field in dataclasses.fields(value))
    return [_noded(getattr(value, name)) for name in names], (type(value), names)


def _dataclass(parts: Iterable[Any], kind: tuple[type, tuple[str, ...]]) -> Any:
    """Without __init__, which may check or compute; frozen ones and those with slots too."""
    value: Any = object.__new__(kind[0])
    for name, part in zip(kind[1], parts):
        object.__setattr__(value, name, part)
    return value


_pytree.register_pytree_node(Fields, _parts_of, _dataclass)


def _is_plain_dataclass(value: Any) -> bool:
    kind = type(value)
    return hasattr(kind, "__dataclass_fields__") and kind not in _pytree.SUPPORTED_NODES


def _noded(tree: Any) -> Any:
    """The tree with a node for each dataclass in it."""
    if _is_plain_dataclass(tree):
        return Fields(tree)
    return _pytree.tree_map(lambda leaf: Fields(leaf) if _is_plain_dataclass(leaf) else leaf, tree)


def flatten(tree: Any) -> tuple[list[Any], Any]:
    """Leaves and structure. _pytree.tree_unflatten makes dataclasses again."""
    leaves, spec = _pytree.tree_flatten(tree)
    if any(_is_plain_dataclass(leaf) for leaf in leaves):
        leaves, spec = _pytree.tree_flatten(_noded(tree))
    return leaves, spec


def leaves_of(tree: Any) -> list[Any]:
    return flatten(tree)[0]


def mapped(function: Callable[[Any], Any], tree: Any) -> Any:
    """The tree with what the function makes of each leaf."""
    if isinstance(tree, Tensor):
        return function(tree)
    leaves, spec = flatten(tree)
    return _pytree.tree_unflatten([function(leaf) for leaf in leaves], spec)


class Structure:
    """The structure of one tree. Leaves are tensors or None; anything else is refused by name."""

    def __init__(self, tree: Any, what: str):
        self._what = what
        self._alone = isinstance(tree, Tensor)
        self._tuple = type(tree) is tuple and all(isinstance(leaf, Tensor) for leaf in tree)
        leaves, self._spec = _pytree.tree_flatten(tree)
        self._noded = any(_is_plain_dataclass(leaf) for leaf in leaves)
        if self._noded:
            leaves, self._spec = _pytree.tree_flatten(_noded(tree))
        self.width = len(leaves)
        self._present = [leaf is not None for leaf in leaves]
        self._full = all(self._present)
        for leaf in leaves:
            if leaf is not None and not isinstance(leaf, Tensor):
                raise Error(
                    f"{what} holds a {_kind(leaf)}; it may hold tensors and None, in tuples, lists, dicts, dataclasses and what "
                    "torch.utils._pytree knows: make numbers tensors (torch.tensor(...)), or let f capture what does not "
                    "change"
                )

    def leaves(self, tree: Any) -> list[Tensor | None]:
        """Of another tree of the same structure; raises where it has another."""
        if self._alone:
            if isinstance(tree, Tensor):
                return [tree]
        elif self._tuple:
            # The common case of several states, without a walk.
            if type(tree) is tuple and len(tree) == self.width and all(isinstance(leaf, Tensor) for leaf in tree):
                return list(tree)
        leaves = self.parts(tree)
        for leaf in leaves:
            if leaf is not None and not isinstance(leaf, Tensor):
                if [id(part) for part in leaves_of(leaf)] != [id(leaf)]:
                    raise self._changed(tree)
                raise Error(f"{self._what} holds a {_kind(leaf)}; it may hold tensors and None")
        return leaves

    def parts(self, tree: Any) -> list[Any]:
        """Of another tree: what is where this one has leaves."""
        try:
            return list(self._spec.flatten_up_to(_noded(tree) if self._noded else tree))
        except ValueError:
            raise self._changed(tree) from None

    def _changed(self, tree: Any) -> Error:
        was, now = (" ".join(str(spec).split()) for spec in (self._spec, flatten(tree)[1]))
        return Error(
            f"{self._what} changes its structure: it was {was}, and is {now}; f must return the same structure at every step"
        )

    @property
    def tensors(self) -> int:
        """How many there are, without None."""
        return sum(self._present)

    def present(self, tree: Any) -> list[Tensor]:
        """The tensors of another tree; None is where it was."""
        if self._alone and isinstance(tree, Tensor):
            return [tree]
        leaves = self.leaves(tree)
        if [leaf is not None for leaf in leaves] != self._present:
            raise Error(
                f"{self._what} has None where it had a tensor, or a tensor where it had None; "
                "f must return the same structure at every step"
            )
        return [leaf for leaf in leaves if leaf is not None]

    def tree(self, leaves: Sequence[Any]) -> Any:
        if self._alone:
            return leaves[0]
        if self._tuple:
            return tuple(leaves)
        return _pytree.tree_unflatten(leaves, self._spec)

    def fill(self, tensors: Sequence[Tensor]) -> Any:
        """The tree with these tensors where it had tensors, and None where it had None."""
        if self._full:
            return self.tree(tensors)
        rest = iter(tensors)
        return self.tree([next(rest) if there else None for there in self._present])


def kind_of(tensor: Tensor) -> tuple[torch.Size, torch.dtype]:
    return tensor.shape, tensor.dtype


def check_outputs(leaf: int, kind: tuple[torch.Size, torch.dtype], column: Iterable[Tensor]) -> None:
    """One leaf of y at several steps: all of the same kind."""
    for y in column:
        if (y.shape, y.dtype) != kind:
            raise Error(
                f"scan: leaf {leaf} of y was {str(kind[1]).removeprefix('torch.')}{list(kind[0])} and is {_said(y)}; "
                "y keeps its shape and dtype from the first step on"
            )


def check_alike(what: str, before: Sequence[Any], after: Sequence[Any]) -> None:
    """Leaf by leaf the same shape, dtype and device, or None."""
    for k, (old, new) in enumerate(zip(before, after)):
        if old is None and new is None:
            continue
        if old is not None and new is not None:
            if old.shape == new.shape and old.dtype == new.dtype and old.device == new.device:
                continue
        raise Error(
            f"{what}: leaf {k} was {_said(old)} and f makes it {_said(new)}; a carry keeps its shape, dtype and "
            "device from the first step on, so give an init that f returns unchanged in kind"
        )


def _said(leaf: Any) -> str:
    return "None" if leaf is None else f"{str(leaf.dtype).removeprefix('torch.')}{list(leaf.shape)} on {leaf.device}"


def close(a: Tensor, b: Tensor) -> bool:
    """The same but for roundings."""
    if a.shape != b.shape or a.dtype != b.dtype:
        return False
    if not can_have_gradient(a):
        return torch.equal(a, b)
    if a.numel() == 0:
        return True
    whole = a.abs().nan_to_num(0, 0, 0).max()
    return torch.allclose(a, b, rtol=0, atol=float(whole) * torch.finfo(a.dtype).eps ** 0.5, equal_nan=True)


def same_bits(a: Tensor, b: Tensor) -> bool:
    """Also where they are no numbers."""
    if a.shape != b.shape or a.dtype != b.dtype:
        return False
    return torch.equal(*(t.contiguous().reshape(-1).view(torch.uint8) for t in (a, b)))


def can_have_gradient(leaf: Tensor | None) -> bool:
    return leaf is not None and (leaf.is_floating_point() or leaf.is_complex())


def storage_bytes(tensors: Any, without: set[int] | frozenset[int] = frozenset()) -> int:
    """Bytes of the tensors' memories, each counted once, but for those at the addresses in `without`."""
    seen = set(without)
    total = 0
    for tensor in tensors:
        if tensor is None:
            continue
        memory = tensor.untyped_storage()
        address = memory.data_ptr()
        if address in seen:
            continue
        seen.add(address)
        total += rounded(memory.nbytes(), tensor.device)
    return total


def rounded(nbytes: int, device: torch.device) -> int:
    """What an allocator takes for it."""
    return (nbytes + 511) // 512 * 512 if device.type == "cuda" else nbytes


def addresses(tensors: Any) -> set[int]:
    found = set()
    for tensor in tensors:
        if tensor is not None:
            with contextlib.suppress(
                NotImplementedError, RuntimeError
            ):  # sparse ones, and DTensors, have none of their own
                found.add(tensor.untyped_storage().data_ptr())
    return found

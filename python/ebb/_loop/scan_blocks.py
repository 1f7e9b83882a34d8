# SPDX-License-Identifier: Apache-2.0
"""The steps of a scan: `chunk` calls of f are one block."""

from __future__ import annotations

import contextlib
import itertools
import operator
from collections.abc import Callable, Iterable, Iterator
from typing import Any

import numpy as np
import torch
from torch import Tensor

from ebb._base.errors import Error
from ebb._loop.blocks import CarryOnly, Leaves
from ebb._tensor.trees import Structure, check_alike, check_outputs, kind_of, mapped


class Inputs:
    """xs: a structure of tensors whose first dimension is time, a function of t, or None."""

    def __init__(self, xs: Any, length: int | None):
        self.function: Callable[[int], Any] | None = xs if callable(xs) else None
        self.structure: Structure | None = None
        self.leaves: list[Tensor] = []
        if self.function is not None or xs is None:
            if length is None:
                raise Error("scan: how many steps there are cannot be seen from xs; give length=")
        else:
            self.structure = Structure(xs, "xs")
            self.leaves = [leaf for leaf in self.structure.leaves(xs) if leaf is not None]
            if not self.leaves and length is None:
                raise Error("scan: xs holds no tensor; give length=")
        sizes = set()
        for leaf in self.leaves:
            if leaf.dim() == 0:
                raise Error(
                    "scan: xs holds a tensor without dimensions; the first dimension is time (a list of tensors is a "
                    "structure of several inputs: torch.stack them if they are one sequence)"
                )
            sizes.add(leaf.shape[0])
        if len(sizes) > 1:
            raise Error(
                f"scan: the tensors of xs have {sorted(sizes)} time steps; they must have as many (a list of tensors is a "
                "structure of several inputs: torch.stack them if they are one sequence)"
            )
        if length is not None and not isinstance(length, bool) and hasattr(length, "__index__"):
            length = operator.index(length)
        known = next(iter(sizes), length)
        assert known is not None
        if length is not None and (type(length) is not int or length < 0 or length > known):
            raise Error(f"scan: length is {length!r}; it must be from 0 to {known}, the time steps of xs")
        self.length: int = known if length is None else length

    def versions(self) -> list[int]:
        """Which tell whether f has changed them; tensors of inference_mode have none."""
        return [0 if leaf.is_inference() else leaf._version for leaf in self.leaves]

    def each(self, times: range, columns: list[tuple[Tensor, ...]]) -> Iterable[Any]:
        """x at each of these times, one after the other. `columns`: the leaves at all of them, in the order of time."""
        if self.function is not None:
            return map(self.function, times)
        if self.structure is None:
            return itertools.repeat(None, len(times))
        if times.step < 0:
            columns = [column[::-1] for column in columns]
        rows = zip(*columns) if columns else itertools.repeat((), len(times))
        return map(self.structure.fill, rows)


def time_first(xs: Any, dim: int) -> Any:
    """xs with its arrays as tensors, and dimension `dim` of all of them the first: views."""
    if xs is None or callable(xs):
        return xs

    def moved(leaf: Any) -> Any:
        if isinstance(leaf, np.ndarray):
            leaf = _tensor(leaf)
        if dim == 0 or not isinstance(leaf, Tensor):
            return leaf
        if not -leaf.dim() <= dim < leaf.dim():
            raise Error(
                f"scan: dim is {dim} and xs holds a tensor of shape {list(leaf.shape)}; dim is the dimension of time in all of them"
            )
        return leaf.movedim(dim, 0)

    return mapped(moved, xs)


def stacked_shape(leaf: int, y: Tensor, length: int, dim: int) -> list[int]:
    """Of one leaf of all ys."""
    if not -y.dim() - 1 <= dim <= y.dim():
        raise Error(
            f"scan: dim is {dim} and leaf {leaf} of y has {y.dim()} dimensions, so that ys cannot be stacked along it; let f "
            "return a y with more of them"
        )
    shape = list(y.shape)
    shape.insert(dim % (y.dim() + 1), length)
    return shape


def pair_of(result: Any) -> tuple[Any, Any]:
    """What f returned."""
    if type(result) is not tuple or len(result) != 2:
        raise Error(f"scan: f returned a {type(result).__name__}; it must return (carry, y), y may be None")
    return result


def _tensor(array: np.ndarray) -> Tensor:
    try:
        # PyTorch has no negative strides.
        return torch.from_numpy(array if all(stride >= 0 for stride in array.strides) else array.copy())
    except TypeError as error:
        raise Error(f"scan: xs holds an array of {array.dtype}: {error}") from None


class ScanBlocks:
    name = "scan"
    advice = "call ebb.verify with the same arguments, which compares every gradient with plain autograd's"
    explicit = None

    def __init__(
        self,
        f: Callable,
        carry: Structure,
        inputs: Inputs,
        chunk: int,
        device: torch.device,
        backwards: bool,
        reduce: str | None,
        dim: int = 0,
    ):
        self._f = f
        self._carry = carry
        self._inputs = inputs
        self._chunk = chunk
        self._device = device
        self._backwards = backwards
        self._reduce = reduce
        self._look: Callable[[], None] | None = None
        self._dim = dim
        self.length = inputs.length
        self.count = -(-self.length // chunk)
        self.divisible = chunk > 1
        self.y: Structure | None = None
        self._y_leaves = 0
        self._y_kinds: list[Any] = []
        self.outputs: list[Tensor] = []
        self._output_gradients: list[Tensor | None] = []
        self.input_gradients: list[Tensor | None] = []

    @property
    def listed(self) -> bool:
        """All inputs are there before the loop begins."""
        return self._inputs.function is None

    def between(self, look: Callable[[], None] | None) -> None:
        self._look = look

    def span(self, block: int) -> tuple[int, int]:
        """Which of xs: with `reverse` blocks are counted from the end."""
        start, end = block * self._chunk, min(self.length, (block + 1) * self._chunk)
        return (self.length - end, self.length - start) if self._backwards else (start, end)

    def steps(self, block: int) -> int:
        start, end = self.span(block)
        return end - start

    @property
    def reduces(self) -> bool:
        return self._reduce is not None

    def sums(self) -> list[Tensor]:
        """Of the outputs by now, where they are added up."""
        return list(self.outputs) if self._reduce is not None else []

    @contextlib.contextmanager
    def going_on_from(self, sums: list[Tensor]) -> Iterator[None]:
        """A block that runs inside adds its outputs to these, where they are added up."""
        before = self.outputs
        if self._reduce is not None:
            self.outputs = sums
        try:
            yield
        finally:
            self.outputs = before

    def known_outputs(self) -> Any:
        """What the first block has shown of them, for `expect`."""
        return self.y, self._y_leaves, list(self._y_kinds)

    def expect(self, known: Any) -> None:
        """As other blocks of the same function were seen to have them."""
        self.y, self._y_leaves, kinds = known
        self._y_kinds = list(kinds)

    def _order(self, items: Any) -> Any:
        return items[::-1] if self._backwards else items

    def inputs(self, block: int, gradients: bool) -> list[Tensor]:
        start, end = self.span(block)
        found = []
        for leaf in self._inputs.leaves:
            part = leaf.detach()[start:end]
            if part.device != self._device:
                part = part.to(self._device, non_blocking=True)
            found.append(part.requires_grad_() if gradients and leaf.requires_grad else part)
        return found

    def inputs_with_gradient(self) -> list[bool]:
        return [leaf.requires_grad for leaf in self._inputs.leaves]

    def run(self, block: int, carry: Leaves, inputs: list[Tensor]) -> tuple[Leaves, list[Tensor]]:
        start, end = self.span(block)
        columns = [part.unbind(0) for part in inputs]
        versions = self._inputs.versions()
        tree = self._carry.tree(carry)
        ys: list[Tensor] = []
        # A sum goes on from where the block before left it; when the block runs again, from anywhere.
        sums: list[Tensor] | None = list(self.outputs) if self._reduce is not None and self.outputs else None
        f, look = self._f, self._look
        for x in self._inputs.each(self._order(range(start, end)), columns):
            tree, y = pair_of(f(tree, x))
            if look is not None:
                look()
            if self.y is None:
                self.y = Structure(y, "y")
                self._y_leaves = self.y.tensors
                check_alike("scan: the carry", carry, self._carry.leaves(tree))
            present = self.y.present(y)
            if self._reduce is None:
                ys += present
                continue
            if self._y_kinds != [kind_of(leaf) for leaf in present]:
                self._check_kinds([[leaf] for leaf in present])
            if sums is None and block > 0:
                sums = [torch.zeros_like(leaf) for leaf in present]
            sums = present if sums is None else [total + leaf for total, leaf in zip(sums, present)]
        out = self._carry.leaves(tree)
        check_alike("scan: the carry", carry, out)
        if self._inputs.versions() != versions:
            raise Error(
                "scan: f changes its x in place, and would do so again when it is recomputed; change a clone instead"
            )
        return out, sums or [] if self._reduce is not None else ys

    def output_flags(self, ys: list[Tensor]) -> list[bool]:
        """Which outputs have gradients, from one run."""
        width = self._y_leaves
        return [any(y.requires_grad for y in ys[k::width]) for k in range(width)]

    def begin(self) -> None:
        self.outputs = []

    def keep(self, block: int, ys: list[Tensor]) -> None:
        width = self._y_leaves
        if self._reduce is not None:
            self.outputs = ys
            return
        self._check_kinds([ys[k::width] for k in range(width)])
        start, end = self.span(block)
        if not self.outputs:
            shapes = [stacked_shape(k, y, self.length, self._dim) for k, y in enumerate(ys[:width])]
            self.outputs = [y.new_empty(shape) for y, shape in zip(ys, shapes)]
        for k, whole in enumerate(self.outputs):
            torch.stack(self._order(ys[k::width]), out=whole.movedim(self._dim, 0)[start:end])

    def _check_kinds(self, columns: list[list[Tensor]]) -> None:
        for k, column in enumerate(columns):
            if len(self._y_kinds) == k:
                self._y_kinds.append(kind_of(column[0]))
            check_outputs(k, self._y_kinds[k], column)

    def results(self) -> list[Tensor]:
        """The outputs, which are forgotten here."""
        found, self.outputs = self.outputs, []
        return [y / self.length for y in found] if self._reduce == "mean" else found

    def tree(self, ys: list[Tensor]) -> Any:
        assert self.y is not None
        return self.y.fill(ys)

    def begin_backward(self, gradients: list[Tensor | None]) -> None:
        if self._reduce == "mean":
            gradients = [None if g is None else g / self.length for g in gradients]
        self._output_gradients = gradients
        self.input_gradients = [torch.zeros_like(leaf) if leaf.requires_grad else None for leaf in self._inputs.leaves]

    def output_gradients(self, block: int) -> list[Tensor | None]:
        if self._reduce is not None:
            return list(self._output_gradients)
        start, end = self.span(block)
        columns: list[Any] = []
        for gradient in self._output_gradients:
            if gradient is None:
                columns.append([gradient] * (end - start))
            else:
                whole = gradient if self._dim == 0 else gradient.movedim(self._dim, 0)
                columns.append(self._order(whole[start:end].unbind(0)))
        return [g for row in zip(*columns) for g in row]

    def take_input_gradients(self, block: int, gradients: list[Tensor | None]) -> None:
        start, end = self.span(block)
        for whole, part in zip(self.input_gradients, gradients):
            if whole is not None and part is not None:
                whole[start:end].copy_(part)

    def end_backward(self) -> list[Tensor | None]:
        found, self.input_gradients = self.input_gradients, []
        self._output_gradients = []
        return found


class WhileBlocks(CarryOnly):
    """The steps of a while loop, one call of f each."""

    name = "while_loop"
    advice = "call it once with verify=True, which checks that recomputed steps give the same bits"

    def __init__(self, f: Callable, carry: Structure, expected: int):
        self._f = f
        self._carry = carry
        self.count = self.length = expected

    def run(self, block: int, carry: Leaves, inputs: list[Tensor]) -> tuple[Leaves, list[Tensor]]:
        out = self._carry.leaves(self._f(self._carry.tree(carry)))
        check_alike("while_loop: the carry", carry, out)
        return out, []

# SPDX-License-Identifier: Apache-2.0
"""The forward and backward pass of a model as one graph of torch's, seen as values that can be kept for the backward pass."""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import fx

from ebb._compiled.codes import EIGHT_BITS, Code, code_of
from ebb._compiled.costs import passes, seconds_of
from ebb._compiled.nodes import Kinds, Unseen, is_tuple, origin_of, reached_from_tangents, read_by, readers_of, size_of
from ebb._compiled.rounding import Places, bears_rounding

_SMALL = 256  # a tensor of so small a part of the largest one is kept whenever it is needed


@dataclass
class Value:
    """What a step computes and may keep. The forward pass has it in memory from `born`; `gone` is the last operation that reads it
    there. `needs` are the values from which it is computed again, `seconds` what that takes; inf: it never is. Keeping it takes
    `kept` bytes, in `code` if there is one. `whole` are those of its needs that must be in memory as they are."""

    node: fx.Node
    bytes: int
    needs: tuple[int, ...]
    seconds: float
    heavy: bool
    born: int
    gone: int
    kept: int
    code: Code | None = None
    whole: tuple[int, ...] = ()


@dataclass
class Event:
    """An operation of the backward pass: values that it reads and bytes of gradients that are there while it runs. `whole` are values
    that must be in memory as they are, since no kernel decodes them while it reads."""

    needs: tuple[int, ...]
    gradients: int = 0
    whole: tuple[int, ...] = ()


@dataclass
class Joint:
    """`codes` are those in which values may be kept; in 8 bits only where what reads them bears rounding."""

    graph: fx.Graph
    kinds: Kinds
    forward_outputs: int
    codes: tuple[Code, ...] = ()
    values: list[Value] = field(default_factory=list)
    events: list[Event] = field(default_factory=list)

    def __post_init__(self) -> None:
        self._order = {node: place for place, node in enumerate(self.graph.nodes)}
        self._backward = reached_from_tangents(self.graph)
        self._changed = {node.args[0] for node in self.graph.nodes if node.target is torch.ops.aten.copy_.default}
        self._forward = self._read_by_outputs()
        self._limit = max((size_of(node) for node in self.graph.nodes), default=0) // _SMALL
        self._index: dict[fx.Node, int] = {}
        self._read: dict[fx.Node, frozenset[int]] = {}
        self._find_values()
        self._find_events()

    def is_backward(self, node: fx.Node) -> bool:
        return node in self._backward

    def _big(self, node: fx.Node) -> bool:
        return size_of(node) > self._limit

    def base(self, node: fx.Node) -> fx.Node:
        """What a view is a view of."""
        while self.kinds.is_view(node) and node.op == "call_function":
            source = node.args[0]
            if not isinstance(source, fx.Node) or size_of(source) == 0:
                break
            node = source
        return node

    def _find_values(self) -> None:
        read_by_heavy: set[fx.Node] = set()
        for node in self.graph.nodes:
            if node.op == "call_function" and not self._is_cheap(node):
                read_by_heavy.update(self.base(one) for one in node.all_input_nodes)
        instead = self._smaller_than_random()
        masks = set(instead.values()) | (self._masks() if EIGHT_BITS in self.codes else set())
        for node in self.graph.nodes:
            if node.op != "call_function" or self.is_backward(node) or not self._big(node) or node in instead:
                continue
            if self.kinds.is_view(node) and self.base(node) is not node:
                continue
            if not node.all_input_nodes and not self._is_fixed(node):
                continue
            is_mask = node in masks
            if self._is_cheap(node) and node not in read_by_heavy and not is_mask and not self._is_shared_sum(node):
                continue
            needs, whole = self._sources(origin_of(node)), self._whole(origin_of(node))
            users = [self._order[user] for user in self._all_readers(node) if user in self._forward]
            self._index[node] = len(self.values)
            heavy = is_mask or not self._is_cheap(node)
            code = self._code(node)
            self.values.append(
                Value(
                    node,
                    size_of(node),
                    tuple(sorted(needs)),
                    self._seconds(node, is_mask) if heavy else passes(node),
                    heavy,
                    (born := self._born(node)),
                    max(users, default=born),
                    size_of(node) if code is None else code.size(node.meta["val"]),
                    code,
                    tuple(sorted(whole)),
                )
            )
        for value in self.values:  # in one kernel with what makes it
            for k in value.needs:
                self.values[k].gone = max(self.values[k].gone, value.born)

    def _born(self, node: fx.Node) -> int:
        """What only the backward pass reads is computed as soon as it can be."""
        if node in self._forward:
            return self._order[node]
        return max((self._order[one] for one in node.all_input_nodes), default=self._order[node])

    def _code(self, node: fx.Node) -> Code | None:
        code = code_of(node.meta["val"])
        if code not in self.codes:
            return None
        places = Places(self.is_backward, self._big, lambda one: self.base(one) in self._index)
        return code if code is not EIGHT_BITS or bears_rounding(node, self.kinds, places) else None

    def _masks(self) -> set[fx.Node]:
        """Comparisons: of rounded numbers some would come out differently."""
        return {
            node
            for node in self.graph.nodes
            if node.op == "call_function"
            and not self.is_backward(node)
            and isinstance(node.meta.get("val"), torch.Tensor)
            and node.meta["val"].dtype == torch.bool
            and not self.kinds.is_view(node)
        }

    def _is_shared_sum(self, node: fx.Node) -> bool:
        """What several operations read and is made of several tensors, such as the sum at the end of a residual block, is in memory."""
        if self.kinds.is_view(node) or len(node.users) < 2:
            return False
        return sum(self._big(one) for one in node.all_input_nodes) >= 2

    def _smaller_than_random(self) -> dict[fx.Node, fx.Node]:
        """Of what is never computed again, random numbers for one, and has one reader that gives less, as a dropout's comparison: that."""
        found: dict[fx.Node, fx.Node] = {}
        for node in self.graph.nodes:
            if node.op != "call_function" or self.is_backward(node) or not self._big(node):
                continue
            if not self._is_fixed(node):
                continue
            readers = list(node.users)
            if (
                len(readers) == 1
                and not self.kinds.is_view(readers[0])
                and self._is_cheap(readers[0])
                and 0 < size_of(readers[0]) < size_of(node)
            ):
                found[node] = readers[0]
        return found

    def _seconds(self, node: fx.Node, is_mask: bool) -> float:
        """Decisions, such as which number was the largest, would differ if they were made again of rounded numbers."""
        is_decision = EIGHT_BITS in self.codes and not node.meta["val"].is_floating_point()
        return math.inf if is_mask or is_decision or self._is_fixed(node) else seconds_of(origin_of(node))

    def _all_readers(self, node: fx.Node) -> Iterable[fx.Node]:
        """Of views of it, too."""
        for user in readers_of(node):
            yield user
            if self.kinds.is_view(user):
                yield from self._all_readers(user)

    def _read_by_outputs(self) -> set[fx.Node]:
        """What the forward pass runs: the backward pass has operations that read no gradient, too."""
        ends = [one for one in self._results()[: self.forward_outputs] if isinstance(one, fx.Node)]
        impure = [node for node in self.graph.nodes if node.op == "call_function" and node.is_impure()]
        return read_by([*ends, *(node for node in impure if not self.is_backward(node))])

    def _is_cheap(self, node: fx.Node) -> bool:
        return self.kinds.is_cheap(origin_of(node))

    def _is_fixed(self, node: fx.Node) -> bool:
        return self.kinds.is_fixed(origin_of(node))

    def _sources(self, node: fx.Node) -> frozenset[int]:
        """Values that an operation reads, through others that are computed within it."""
        found: set[int] = set()
        for one in node.all_input_nodes:
            found |= self._through(one)
        return frozenset(found)

    def _whole(self, node: fx.Node) -> set[int]:
        """Values that an operation that is not fused reads directly."""
        if self._is_cheap(node):
            return set()
        return {self._index[base] for one in node.all_input_nodes if (base := self.base(one)) in self._index}

    def _through(self, node: fx.Node) -> frozenset[int]:
        stack = [node]
        while stack:
            top = stack[-1]
            if top in self._read:
                stack.pop()
                continue
            if top.op != "call_function" or (not self._big(top) and not is_tuple(top)):
                self._read[top] = frozenset()
                continue
            source = self.base(top)
            if source in self._index:
                self._read[top] = frozenset((self._index[source],))
                continue
            missing = [one for one in top.all_input_nodes if one not in self._read]
            if missing:
                stack.extend(missing)
                continue
            self._read[top] = frozenset().union(*(self._read[one] for one in top.all_input_nodes))
        return self._read[node]

    def _find_events(self) -> None:
        steps = [node for node in self.graph.nodes if node.op == "call_function" and self.is_backward(node)]
        self.events = []
        for node, gradients in zip(steps, self._gradients(steps)):
            needs: set[int] = set()
            for one in node.all_input_nodes:
                if not self.is_backward(one) and one.op == "call_function":
                    needs |= self._through(one)
            self.events.append(Event(tuple(sorted(needs)), gradients, tuple(sorted(self._whole(origin_of(node))))))

    def _gradients(self, steps: list[fx.Node]) -> Iterator[int]:
        """Bytes of gradients while each operation runs. They are in memory where an operation that is not cheap makes or reads them, or one
        that adds them up, whose result others need beside them; until the last one has read them."""
        place = {node: k for k, node in enumerate(steps)}
        results = {self.base(one) for one in self._outputs()}
        last: dict[fx.Node, int] = {}
        for k, node in enumerate(steps):
            if node in results:
                last[node] = len(steps) - 1
            elif self._big(node) and not self.kinds.is_view(node):
                readers = [user for user in readers_of(node) if user in place]
                if not self._is_cheap(node) or any(not self._is_cheap(user) or not self._big(user) for user in readers):
                    last[node] = max((place[user] for user in readers), default=k)
        held = [0] * (len(steps) + 1)
        for node, end in last.items():
            held[place[node]] += size_of(node)
            held[end + 1] -= size_of(node)
        return itertools.accumulate(held[:-1])

    def _outputs(self) -> Iterable[fx.Node]:
        last = next(iter(reversed(self.graph.nodes)))
        return last.all_input_nodes

    def read_with(self, kept: Iterable[int]) -> tuple[list[fx.Node], list[fx.Node]]:
        """Where those values are kept: all nodes that are (those of the values, and what is small beside them), and inputs of the
        model that the backward pass reads."""
        chosen = {self.values[k].node for k in kept}
        nodes: dict[fx.Node, None] = {}
        inputs: dict[fx.Node, None] = {}
        seen: set[fx.Node] = set()
        stack: list[fx.Node] = []
        for node in self.graph.nodes:
            if self.is_backward(node) or node.op == "output":
                stack.extend(one for one in node.all_input_nodes if node.op != "output" and not self.is_backward(one))
        for one in self._backward_outputs():
            stack.append(one)
        while stack:
            node = stack.pop()
            if node in seen:
                continue
            seen.add(node)
            if node.op == "placeholder":
                if node in self._changed:
                    raise Unseen("the backward pass reads an input that the model changes")
                inputs[node] = None
            elif node.op == "get_attr":
                continue
            elif (
                node in chosen
                or (not self._big(node) and not is_tuple(node) and (node.all_input_nodes or self._is_fixed(node)))
                or self._reads_changed(node)
            ):
                nodes[node] = None
            else:
                stack.extend(node.all_input_nodes)
        return [n for n in self.graph.nodes if n in nodes], [n for n in self.graph.nodes if n in inputs]

    def _reads_changed(self, node: fx.Node) -> bool:
        """An operation on an input that the model changes in place cannot run again."""
        if node.op != "call_function" or self.kinds.is_view(node) or is_tuple(node):
            return False
        return any(self.base(one) in self._changed for one in origin_of(node).all_input_nodes)

    def _results(self) -> list[Any]:
        last = next(iter(reversed(self.graph.nodes)))
        return list(last.args[0])

    def _backward_outputs(self) -> list[fx.Node]:
        results = self._results()[self.forward_outputs :]
        return [one for one in results if isinstance(one, fx.Node) and not self.is_backward(one)]

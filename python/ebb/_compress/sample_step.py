# SPDX-License-Identifier: Apache-2.0
"""Steps of training on a sample, to measure them: forward, loss, backward. They leave no trace in the model."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor, nn
from torch.utils._pytree import tree_flatten, tree_leaves, tree_map

from ebb._base.errors import Error
from ebb._tensor.context import Surroundings
from ebb._tensor.memory import peak_of, seconds_of

Loss = Callable[[Any], Tensor]


class _Projection:
    """The default loss: the sum of all numbers that come out, each times a random number that is always the same."""

    def __init__(self) -> None:
        self._factors: dict[Any, Tensor] = {}

    def __call__(self, out: Any) -> Tensor:
        terms = [(leaf.float() * self._factor(k, leaf)).sum() for k, leaf in enumerate(_differentiable(out))]
        return torch.stack([term.to(terms[0].device) for term in terms]).sum()

    def _factor(self, k: int, leaf: Tensor) -> Tensor:
        key = (k, leaf.shape, leaf.device)
        if key not in self._factors:
            drawn = torch.randn(leaf.shape, generator=torch.Generator().manual_seed(k))
            self._factors[key] = drawn.to(leaf.device)
        return self._factors[key]


def _differentiable(out: Any) -> list[Tensor]:
    return [leaf for leaf in tree_leaves(out) if isinstance(leaf, Tensor) and leaf.requires_grad]


def _apart(leaf: Any) -> Any:
    """Nothing goes back into what somebody has computed it from."""
    if isinstance(leaf, Tensor) and leaf.requires_grad and not leaf.is_leaf:
        return leaf.detach().requires_grad_()
    return leaf


class SampleStep:
    """sample: what the model is called with: a tensor, a tuple of arguments or a dict of named ones. loss: a function of what
    comes out; None: a random projection."""

    def __init__(self, what: str, model: nn.Module, sample: Any, loss: Loss | None):
        if not isinstance(model, nn.Module):
            raise Error(f"{what}: model is a {type(model).__name__}; it must be a torch.nn.Module")
        if not isinstance(sample, (Tensor, tuple, list, dict)):
            raise Error(
                f"{what}: sample is a {type(sample).__name__}; it must be a tensor, a tuple of arguments or a dict of "
                "named ones"
            )
        if loss is not None and not callable(loss):
            raise Error(f"{what}: loss is {loss!r}; it must be a function of the model's output, or None")
        self._what, self.model = what, model
        self._sample = tree_map(_apart, sample)
        self.loss = loss
        self._loss: Loss = _Projection() if loss is None else loss
        leaves, shape = tree_flatten(self._sample)
        self.inputs = [leaf for leaf in leaves if isinstance(leaf, Tensor)]
        self.others = (
            repr(shape),
            repr([leaf for leaf in leaves if not isinstance(leaf, Tensor)]),
        )  # what else is given
        devices = [tensor.device for tensor in (*self.inputs, *model.parameters())]
        self.device = next((device for device in devices if device.type != "cpu"), torch.device("cpu"))

    def run(self, after_forward: Callable[[], None] | None = None) -> None:
        """One step; only inside `untouched`."""
        if isinstance(self._sample, Tensor):
            out = self.model(self._sample)
        elif isinstance(self._sample, dict):
            out = self.model(**self._sample)
        else:
            out = self.model(*self._sample)
        if self.loss is None and not _differentiable(out):
            raise Error(
                f"{self._what}: nothing that the model returns has a gradient (inside of torch.no_grad or inference_mode "
                "nothing has); there is no backward pass to make smaller. "
                "Of what is not a tensor, a tuple, a list or a dict of them, a loss must say what to do with it"
            )
        loss = self._loss(out)
        if not isinstance(loss, Tensor) or loss.numel() != 1 or not loss.requires_grad:
            raise Error(f"{self._what}: loss must return one number that depends on the model's output, as a tensor")
        del out
        if after_forward is not None:
            after_forward()
        loss.backward()

    def peak(self) -> int:
        """The most bytes that a step holds beyond what was held before, gradients of parameters not counted."""
        with self.untouched():
            return peak_of(self.run, self.device)[1]

    def seconds(self, rounds: int) -> float:
        with self.untouched():
            return min(seconds_of(self.run, self.device) for _ in range(rounds))

    def gradients(self) -> dict[int, Tensor]:
        """Of parameters, by their id."""
        found: dict[int, Tensor] = {}
        with self.untouched(found):
            self.run()
        return found

    @contextmanager
    def untouched(self, gradients: dict[int, Tensor] | None = None) -> Iterator[None]:
        """Afterwards gradients, buffers and generators are what they were. Inside, gradients of parameters vanish when they are
        complete, or go to `gradients`: so they never count as bytes of a step."""
        leaves = [t for t in [*self.model.parameters(), *self.inputs] if t.requires_grad and t.is_leaf]
        before = [leaf.grad for leaf in leaves]
        around = Surroundings(self.model, self.device, True)
        seen = around.look()

        def complete(leaf: Tensor) -> None:
            if gradients is not None and leaf.grad is not None:
                gradients[id(leaf)] = leaf.grad
            leaf.grad = None

        for leaf in leaves:
            leaf.grad = None
        hooks = [leaf.register_post_accumulate_grad_hook(complete) for leaf in leaves]
        try:
            with torch.enable_grad():
                yield
        finally:
            for hook in hooks:
                hook.remove()
            for leaf, grad in zip(leaves, before):
                leaf.grad = grad
            around.put_back(seen)

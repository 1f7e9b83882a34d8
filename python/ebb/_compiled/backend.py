# SPDX-License-Identifier: Apache-2.0
"""`compiled`: a backend for torch.compile that keeps less for the backward pass."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from torch import fx

from ebb import _core
from ebb._base.errors import Error
from ebb._base.sizes import as_bytes
from ebb._base.wish import Wish, wish_of
from ebb._compiled import torch_compiler
from ebb._compiled.choose import Chooser, Course
from ebb._compiled.codes import BITS, EIGHT_BITS
from ebb._compiled.joint import Joint
from ebb._compiled.nodes import Unseen

# A graph that holds so little is not refused because of a share: a break in a model's graph can leave a few operations by themselves.
_TINY = 2**24


@dataclass(frozen=True)
class GraphReport:
    """What was decided for one graph of a model. Bytes are predicted from the graph; `stock` is a step that computes nothing again,
    as without torch.compile.

    kept, stock_kept: what the forward pass keeps for the backward pass, beside parameters and inputs.
    peak, stock_peak: what is held at most beside parameters and inputs: gradients count, temporary memory of kernels does not.
    again: operations that take long and are recomputed in the backward pass, such as convolutions.
    left: why the graph was left to torch's own choice; empty: it was not.
    """

    kept: int = 0
    stock_kept: int = 0
    peak: int = 0
    stock_peak: int = 0
    again: tuple[str, ...] = ()
    left: str = ""

    def __str__(self) -> str:
        if self.left:
            return f"left to torch: {self.left}"
        size = _core.format_bytes
        runs = f", {len(self.again)} operations run again" if self.again else ""
        return f"keeps {size(self.kept)} of {size(self.stock_kept)}, peak {size(self.peak)} of {size(self.stock_peak)} (predicted){runs}"


class Compiled:
    """A backend for `torch.compile`; see `ebb.compiled`. `reports` has one for each graph that was compiled for training, in order."""

    def __init__(self, budget: Wish | int | None, rounded: bool, options: dict[str, Any]):
        self._budget, self._rounded, self._options = budget, rounded, options
        self.reports: list[GraphReport] = []

    def __repr__(self) -> str:
        """As errors of torch.compile name it."""
        return "ebb.compiled"

    def __call__(self, model: fx.GraphModule, inputs: Sequence[Any], **words: Any) -> Any:
        options = {**self._options, **torch_compiler.as_options(**words)}
        return torch_compiler.compile_with(self._partition, model, inputs, options)

    def _partition(
        self, graph: fx.GraphModule, inputs: Sequence[Any], **given: Any
    ) -> tuple[fx.GraphModule, fx.GraphModule]:
        left = torch_compiler.foreign(graph)
        if not left:
            try:
                torch_compiler.tidied(graph)
                return self._split(graph, given)
            except Unseen as seen:
                left = str(seen)
        self.reports.append(GraphReport(left=left))
        return torch_compiler.torchs_own(graph, inputs, **given)

    def _split(self, graph: fx.GraphModule, given: dict[str, Any]) -> tuple[fx.GraphModule, fx.GraphModule]:
        words = (graph.graph, torch_compiler.kinds(), given["num_fwd_outputs"])
        stock = Chooser(Joint(*words)).stock
        joint = Joint(*words, (BITS, EIGHT_BITS) if self._rounded else (BITS,))
        course = self._chosen(Chooser(joint), stock)
        again = tuple(joint.values[k].node.name for k in course.again if joint.values[k].heavy)
        coded = [joint.values[k].node.name for k in course.kept if joint.values[k].code is not None]
        nodes, primals = joint.read_with(course.kept)
        parts = torch_compiler.split(graph, nodes, primals, coded, given)
        self.reports.append(GraphReport(course.bytes, stock.bytes, course.peak, stock.peak, again))
        return parts

    def _chosen(self, chooser: Chooser, stock: Course) -> Course:
        if self._budget is None:
            return chooser.cheapest()
        whole = stock.peak
        budget = self._budget if isinstance(self._budget, int) else int((self._budget.share or 1) * whole)
        course = chooser.within(budget)
        if course is None and whole <= _TINY and not isinstance(self._budget, int):
            return chooser.least()
        if course is None:
            least = chooser.least(budget).peak
            size = _core.format_bytes
            raise Error(
                f"compiled: the budget is {size(budget)}, and a step of this graph holds at least {size(least)}, "
                f"{100 * least / whole:.0f} % of what it holds where nothing is recomputed",
                "infeasible_budget",
                least,
                "raise the budget",
            )
        return course


def compiled(
    *, budget: float | str | None = None, keep: str = "exact", options: dict[str, Any] | None = None
) -> Compiled:
    """A backend for `torch.compile` that keeps fewer activations for the backward pass. By default nothing is approximated: gradients
    are those of torch's own backend, to rounding.

    budget: what a training step may hold at its worst moment beside parameters and its inputs: bytes, `"2GiB"`, or a share such as
        `"50%"` of what it holds if nothing is recomputed, as without torch.compile. Gradients count, temporary memory of kernels
        does not. Convolutions and matrix products are recomputed in the backward pass where the budget requires it, those first that
        free the most bytes for their time. If the model has graph breaks, the budget is that of each graph; a graph that holds less
        than 16 MiB comes as close to a share as it can. Without a budget, only what is computed within other kernels is computed
        again, such as norms and activations.
    keep: `"exact"`, or `"int8"`: what is kept is kept in 8 bits, with a range for each channel of images and for each row of anything
        else. Outputs stay exact, gradients become approximate. What decides between two gradients, such as the sign of a ReLU's input,
        is kept exactly, in a bit. Tensors whose readers would make a large error of a small one, such as logarithms and attention,
        are kept as they are.
    options: settings of torch's compiler, as for `torch.compile`, whose own `options` and `mode` work too.

    The backend's `reports` say for each graph what is kept and what was predicted to be held. A budget in which a graph cannot run is
    an error when the graph is compiled; torch.compile wraps it in one of its own, as `inner_exception`.

    >>> import torch, ebb
    >>> backend = ebb.compiled(budget="50%")
    >>> model = torch.compile(torch.nn.Sequential(torch.nn.Linear(8, 8), torch.nn.ReLU()), backend=backend)
    >>> backend.reports  # one for each graph, when it has been compiled
    []
    """
    wish = None if budget is None else wish_of(budget, "compiled: budget")
    if wish is not None and wish.share is None:
        raise Error(f"compiled: budget is {budget!r}; it is bytes such as '2GiB', or a share such as '50%'")
    if keep not in ("exact", "int8"):
        raise Error(f"compiled: keep is {keep!r}; it is 'exact' or 'int8'")
    torch_compiler.check()
    return Compiled(
        as_bytes(budget, "compiled: budget") if budget is not None and wish is None else wish,
        keep == "int8",
        torch_compiler.as_options(options),
    )

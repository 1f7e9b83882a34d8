# SPDX-License-Identifier: Apache-2.0
"""What is called of torch's compiler beside its public names: all of it is in this file. torch 2.6 to 2.13."""

from __future__ import annotations

import inspect
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import torch
import torch._functorch.config as functorch_config
import torch._functorch.partitioners as partitioners
import torch._inductor.compile_fx as inductor
import torch._inductor.config as inductor_config
from torch import fx
from torch._functorch.compile_utils import fx_graph_cse
from torch.utils._ordered_set import OrderedSet

from ebb._base.errors import Error
from ebb._compiled.codes import write_codes
from ebb._compiled.nodes import Kinds, numbers_of, origin_of, reached_from_tangents

# Cuts the graph of a step into its forward and its backward pass.
Partition = Callable[..., tuple[fx.GraphModule, fx.GraphModule]]

_compile_fx: Callable[..., Any] = inductor.compile_fx
_turn = threading.RLock()


def check() -> None:
    names = [(partitioners, "_extract_fwd_bwd_modules"), (inductor, "min_cut_rematerialization_partition")]
    if not all(hasattr(*one) for one in [*names, (torch.ops._inductor_test, "realize")]):
        raise Error(
            f"compiled: this is torch {torch.__version__}; torch 2.6 to 2.13 have what it needs of torch's compiler",
            "unavailable",
        )


def as_options(options: dict[str, Any] | None = None, mode: str | None = None) -> dict[str, Any]:
    """Settings of torch's compiler from two arguments of torch.compile."""
    found: dict[str, Any] = {}
    if mode is not None:
        modes = torch._inductor.list_mode_options()
        if mode not in modes:
            raise Error(f"compiled: mode is {mode!r}; it is one of {', '.join(map(repr, modes))}")
        found |= modes[mode]
    known = inductor_config.get_config_copy() if options else {}
    for given, value in (options or {}).items():
        name = given.replace("-", "_")
        if name not in known:
            raise Error(
                f"compiled: options has {given!r}, which is no setting of torch's compiler (torch._inductor.config)"
            )
        found[name] = value
    return found


def kinds() -> Kinds:
    ops = partitioners.get_default_op_list()
    return Kinds(ops.is_recomputable, _is_fixed, ops.is_view)


def _is_fixed(node: fx.Node) -> bool:
    target = node.target
    if not isinstance(target, torch._ops.OpOverload) or target.namespace not in ("aten", "prims"):
        return True
    drawn = torch.Tag.nondeterministic_seeded in target.tags or "rand" in target.name() or "seed" in target.name()
    return drawn or node.is_impure()


def compile_with(partition: Partition, model: fx.GraphModule, inputs: Sequence[Any], options: dict[str, Any]) -> Any:
    """As torch.compile's own backend does, but for who cuts the graph. Nothing of it goes into torch's caches on disk, whose keys know
    of no partition but torch's."""
    patches = {**options, "fx_graph_cache": False, "fx_graph_remote_cache": False}
    with _uncached():
        if hasattr(inductor_config, "custom_partitioner_fn"):
            patches["custom_partitioner_fn"] = _as_custom(partition)
            return _compile_fx(model, inputs, config_patches=patches)
        with _turn, _instead_of_min_cut(partition):
            return _compile_fx(model, inputs, config_patches=patches)


def _as_custom(partition: Partition) -> Any:
    from torch._inductor.custom_graph_pass import CustomPartitionerFn

    class Custom(CustomPartitionerFn):
        def __call__(
            self, gm: fx.GraphModule, joint_inputs: Sequence[Any], **given: Any
        ) -> tuple[fx.GraphModule, fx.GraphModule]:
            return partition(gm, joint_inputs, **given)

        def uuid(self) -> None:
            return None  # not to be cached

    return Custom()


@contextmanager
def _instead_of_min_cut(partition: Partition) -> Iterator[None]:
    before = inductor.min_cut_rematerialization_partition
    inductor.min_cut_rematerialization_partition = partition
    try:
        yield
    finally:
        inductor.min_cut_rematerialization_partition = before


@contextmanager
def _uncached() -> Iterator[None]:
    names = [
        name for name in ("enable_autograd_cache", "enable_remote_autograd_cache") if hasattr(functorch_config, name)
    ]
    with functorch_config.patch(dict.fromkeys(names, False)):
        yield


def torchs_own(gm: fx.GraphModule, inputs: Sequence[Any], **given: Any) -> tuple[fx.GraphModule, fx.GraphModule]:
    return partitioners.min_cut_rematerialization_partition(gm, inputs, **given)


def tidied(gm: fx.GraphModule) -> None:
    """As torch's partition begins: without what is never read, and with what is computed twice once."""
    gm.graph.eliminate_dead_code()
    gm.recompile()
    if functorch_config.cse:
        gm.graph = fx_graph_cse(gm.graph)


def foreign(gm: fx.GraphModule) -> str:
    """Why a graph is left to torch's own partition; empty: it is not."""
    for node in gm.graph.nodes:
        if node.meta.get("recompute") is not None:
            return "torch.utils.checkpoint has its own say in it"
        if node.meta.get("partitioner_tag") == "must_be_in_backward":
            return "the backward pass changes tensors of the model"
        if node.op == "placeholder" and ("bwd_" in str(node.target) or "backward_state" in str(node.target)):
            return "it has random numbers or hooks that only the backward pass sees"
        if node.op == "call_function" and isinstance(node.target, torch._ops.HigherOrderOperator):
            return f"it calls {node.target}"
    return ""


def split(
    gm: fx.GraphModule, kept: Sequence[fx.Node], inputs: Sequence[fx.Node], coded: Sequence[str], given: dict[str, Any]
) -> tuple[fx.GraphModule, fx.GraphModule]:
    """The forward pass, which gives out `kept` too, those of them with names in `coded` in their code, and the backward pass, which
    computes what else it needs from them."""
    values = [node for node in (*inputs, *kept) if not _is_number(node)]
    numbers = [node for node in (*inputs, *kept) if _is_number(node)]
    extract = partitioners._extract_fwd_bwd_modules
    words: dict[str, Any] = {"num_fwd_outputs": given["num_fwd_outputs"]}
    static = given.get("static_lifetime_input_indices")
    if "static_lifetime_input_nodes" in inspect.signature(extract).parameters and static is not None:
        primals = [node for node in gm.graph.nodes if node.op == "placeholder" and "primals" in str(node.target)]
        words["static_lifetime_input_nodes"] = OrderedSet(primals[k] for k in static)
    forward, backward = extract(gm, values, saved_sym_nodes=numbers, **words)
    write_codes(forward, backward, given["num_fwd_outputs"], coded)
    _write_sums(backward)
    return forward, partitioners.reordering_to_mimic_autograd_engine(backward)


def _write_sums(backward: fx.GraphModule) -> None:
    """What is made of several tensors and read by several operations is in memory. Else torch's compiler computes the sum along a chain
    of residual blocks from its terms again and again, which keeps all of them there."""
    graph, ops = backward.graph, kinds()
    gradients = reached_from_tangents(graph)
    made_of: dict[fx.Node, frozenset[fx.Node]] = {}
    for node in list(graph.nodes):
        made_of[node] = frozenset((node,))
        value = node.meta.get("val")
        if node.op != "call_function" or not ops.is_cheap(origin_of(node)) or not isinstance(value, torch.Tensor):
            continue
        terms = frozenset().union(*(made_of[one] for one in node.all_input_nodes))
        made_of[node] = frozenset(
            one
            for one in terms
            if isinstance(one.meta.get("val"), torch.Tensor) and numbers_of(one.meta["val"]) >= numbers_of(value)
        )
        if node in gradients:
            is_sum = sum(one in gradients for one in made_of[node]) > 1 or any(_adds(user) for user in node.users)
        else:
            is_sum = len(made_of[node]) > 1
        if is_sum and len(node.users) > 1 and not ops.is_view(node):
            with graph.inserting_after(node):
                written = graph.call_function(torch.ops._inductor_test.realize.default, (node,))
            written.meta["val"] = value
            node.replace_all_uses_with(written, lambda user, written=written: user is not written)
            made_of[node] = made_of[written] = frozenset((written,))
            if node in gradients:
                gradients.add(written)
    backward.recompile()


def _adds(node: fx.Node) -> bool:
    """Two tensors of a size: what is read now stays for a term that comes later."""
    terms = [one.meta["val"] for one in node.all_input_nodes if isinstance(one.meta.get("val"), torch.Tensor)]
    return node.target is torch.ops.aten.add.Tensor and [*map(numbers_of, terms)] == [numbers_of(node.meta["val"])] * 2


def _is_number(node: fx.Node) -> bool:
    return isinstance(node.meta.get("val"), (torch.SymInt, torch.SymBool, torch.SymFloat))

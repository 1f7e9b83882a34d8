# SPDX-License-Identifier: Apache-2.0
"""torch's own cases for its recurrent modules (torch.testing's database of modules), on the layers that stand in for them."""

from __future__ import annotations

import copy

import pytest

torch = pytest.importorskip("torch")

import gated_stand_in  # noqa: E402

import ebb.nn  # noqa: E402
from ebb.nn import _native  # noqa: E402

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def cases():
    """Arguments by the name of the layer. Only here, since the database takes seconds to import."""
    modules = pytest.importorskip("torch.testing._internal.common_modules", reason="expecttest is not installed")
    of_torch = {
        info.module_cls.__name__: info
        for info in modules.module_db
        if info.module_cls.__module__.startswith("torch.nn")
    }

    def named(name, training, dtype):
        info = of_torch[name]
        return info.module_inputs_func(info, device="cpu", dtype=dtype, requires_grad=True, training=training)

    return named


def tensors(value):
    return [leaf for leaf in torch.utils._pytree.tree_leaves(value) if isinstance(leaf, torch.Tensor)]


def results(layer, given):
    args, options = copy.deepcopy((given.forward_input.args, given.forward_input.kwargs))
    torch.manual_seed(0)
    found = tensors(layer(*args, **options))
    sum(leaf.sin().sum() for leaf in found).backward()
    gradients = [p.grad for p in layer.parameters()] + [leaf.grad for leaf in tensors((args, options)) if leaf.is_leaf]
    return [leaf.detach() for leaf in found] + [g for g in gradients if g is not None]


@pytest.mark.parametrize("way", ["native", "chunks", "kernels for GPUs"])
@pytest.mark.parametrize("training", [True, False])
@pytest.mark.parametrize("name", ["RNN", "GRU", "LSTM"])
def test_as_torch(cases, name, training, way, monkeypatch):
    torch.set_num_threads(1)
    dtype, tolerance = torch.float64, 1e-12
    if way == "chunks":
        monkeypatch.setattr(_native, "why_not", lambda *tensors: "another device")
    elif way != "native":
        gated_stand_in.use(monkeypatch)
        dtype, tolerance = torch.float32, 1e-5
    given = cases(name, training, dtype)
    assert given
    for one in given:
        compare(name, one, training, dtype, tolerance)


def compare(name, given, training, dtype, tolerance):
    args, options = given.constructor_input.args, given.constructor_input.kwargs
    plain = getattr(torch.nn, name)(*args, **options).to(dtype).train(training)
    if options.get("proj_size"):
        with pytest.raises(ebb.Error, match="proj_size"):
            getattr(ebb.nn, name)(*args, **options)
        return
    ours = getattr(ebb.nn, name)(*args, **options, budget="4MiB", strategy="revolve", chunk=1).to(dtype).train(training)
    ours.load_state_dict(plain.state_dict())
    if training and options.get("dropout") and options.get("num_layers", 1) > 1:
        return  # other masks
    for a, b in zip(results(plain, given), results(ours, given), strict=True):
        assert a.shape == b.shape, given.desc
        largest = float(a.abs().max() if a.numel() else 0)
        error = float((a - b).abs().max() if a.numel() else 0)
        assert error <= tolerance * max(1.0, largest), given.desc

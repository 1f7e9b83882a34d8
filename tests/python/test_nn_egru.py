# SPDX-License-Identifier: Apache-2.0
"""ebb.nn.EGRU: the native layer against a loop of its cell in plain torch, and that against the loop that the C++ library is tested
with. In double precision no unit of these cases is nearer to its threshold than rounding."""

from __future__ import annotations

import copy

import pytest

torch = pytest.importorskip("torch", reason="PyTorch is not installed")
from spiking_reference import Layer  # noqa: E402

import ebb  # noqa: E402
import ebb.nn  # noqa: E402

pytestmark = pytest.mark.usefixtures("one_thread")
STEPS, BATCH, INPUTS, UNITS = 25, 3, 9, 21


def layer_and_cell(dtype=torch.float64, batch_first=False, budget=None, native=True, **how):
    torch.manual_seed(0)
    how = {"train_threshold": True, "dtype": dtype, **how}
    layer = ebb.nn.EGRU(INPUTS, UNITS, batch_first=batch_first, budget=budget, native=native, **how)
    cell = ebb.nn.EGRUCell(INPUTS, UNITS, **how)
    with torch.no_grad():
        for parameter in layer.parameters():
            parameter.add_(0.2 * torch.rand_like(parameter))
    cell.load_state_dict({name.removesuffix("_l0"): tensor for name, tensor in layer.state_dict().items()})
    return layer, cell


def leaves(dtype=torch.float64):
    torch.manual_seed(1)
    return [torch.randn(STEPS, BATCH, INPUTS, dtype=dtype), *(0.3 * torch.randn(2, BATCH, UNITS, dtype=dtype))]


def by_loop(cell, x, state):
    outputs = []
    for one in x:
        state, output = cell(state, one)
        outputs.append(output)
    return torch.stack(outputs), state


def results(module, given, call):
    module.zero_grad()
    x, *state = [leaf.detach().clone().requires_grad_() for leaf in given]
    y, last = call(module, x, tuple(state))
    weights = torch.linspace(-1, 1, y.numel(), dtype=y.dtype).view(y.shape)
    ((y * weights).sum() + sum((k + 1) * own.sin().sum() for k, own in enumerate(last))).backward()
    found = [y, *last, x.grad, *[own.grad for own in state], *[p.grad for p in module.parameters()]]
    return [tensor.detach() for tensor in found]


def run(layer, x, state):
    return layer(x, state)


@pytest.mark.parametrize(
    "how", [{}, {"bias": False}, {"recurrent": False}, {"surrogate": "arctan", "sharpness": 3.0}], ids=str
)
def test_native_layers_are_loops_of_cells(how):
    layer, cell = layer_and_cell(**how)
    found, wanted = results(layer, leaves(), run), results(cell, leaves(), by_loop)
    assert layer.report is not None, "plain torch ran"
    assert 0.1 < (wanted[0] != 0).double().mean() < 0.9
    assert torch.equal(found[0] != 0, wanted[0] != 0)
    for a, b in zip(wanted, found, strict=True):
        torch.testing.assert_close(b, a, rtol=1e-9, atol=1e-9)


def test_cells_are_those_of_the_equations():
    _, cell = layer_and_cell()
    x, memory, output = leaves()
    parameters = {name + "_l0": p.detach().clone().requires_grad_() for name, p in cell.named_parameters()}
    other = Layer({"cell": "egru"}, parameters, 0, [output, memory])
    y, _ = by_loop(cell, x, (memory, output))
    wanted = torch.stack([other.step(one) for one in x])
    y.square().sum().backward()
    wanted.square().sum().backward()
    torch.testing.assert_close(y, wanted)
    for name, p in cell.named_parameters():
        torch.testing.assert_close(p.grad, parameters[name + "_l0"].grad)


def test_bits_do_not_depend_on_the_budget():
    layer, _ = layer_and_cell(budget=1)
    with pytest.raises(ebb.Error) as raised:
        results(layer, leaves(), run)
    found = []
    for budget in (None, raised.value.least_budget):
        layer.budget = budget
        found.append(results(layer, leaves(), run))
    assert all(torch.equal(a, b) for a, b in zip(*found))


def test_batch_first_other_numbers_and_copies():
    layer, cell = layer_and_cell()
    x, *state = leaves()
    y, last = layer(x, tuple(state))
    assert torch.equal(y[-1], last[-1]) and repr(copy.deepcopy(layer)) == repr(layer)
    first, _ = layer_and_cell(batch_first=True)
    assert torch.equal(first(x.transpose(0, 1), tuple(state))[0], y.transpose(0, 1))
    plain, _ = layer_and_cell(native=False)
    assert torch.equal(plain(x, tuple(state))[0], by_loop(cell, x, tuple(state))[0])
    half, _ = layer_and_cell(torch.bfloat16)
    assert half(x.bfloat16())[0].dtype == torch.bfloat16 and half.report is None


def test_what_it_has_not():
    for option in ("reset", "attached_reset", "normalised", "train_tau", "tau_mem"):
        with pytest.raises(TypeError, match=f"EGRU has no argument '{option}'"):
            ebb.nn.EGRU(3, 4, **{option: 1})
    with pytest.raises(ebb.Error, match="input_size is None"):
        ebb.nn.EGRUCell(None, 4)

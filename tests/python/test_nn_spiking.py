# SPDX-License-Identifier: Apache-2.0
"""ebb.nn's spiking layers: native ones against the cells of plain torch, and those against a loop of the tests' own.

Spikes must be the same, every one: in double precision no membrane of these cases is nearer to its threshold than
rounding, which the tests see by the spikes being equal. Gradients are sums of T * B terms of products of n = I + H + 1
numbers in another order: within 8 * n * sqrt(T * B) units of rounding of the largest, times 8 since the steps near the
threshold amplify by the surrogate's slope.
"""

import copy
import pathlib
import pickle
import sys

import pytest

torch = pytest.importorskip("torch", reason="PyTorch is not installed")
sys.path.insert(0, str(pathlib.Path(__file__).parent))
from spiking_reference import SURROGATES, Layer  # noqa: E402

import ebb  # noqa: E402
import ebb.nn  # noqa: E402

torch.set_num_threads(1)
SIZES = (25, 3, 9, 53)  # time steps, batch, inputs, units: more than one word of spikes, more than a block of units
KINDS = ["LIF", "ALIF", "AdLIF"]
FIELDS = {"LIF": 1, "ALIF": 2, "AdLIF": 2}
OWN = {"LIF": {}, "ALIF": {"tau_adp": 12.0, "beta": 0.6}, "AdLIF": {"tau_adp": 12.0, "a": 0.2, "b": 0.3}}
UNITS = {"threshold": 0.4, "tau_mem": 6.0}


def layer_and_cell(kind, dtype=torch.float64, sizes=SIZES, seed=0, cell_options=None, **options):
    """A layer and the cell of plain torch with the same parameters, each unit with its own numbers."""
    torch.manual_seed(seed)
    of_cell = {**UNITS, "train_tau": True, "train_threshold": True, **(cell_options or {})}
    of_cell |= OWN[kind]
    layer = getattr(ebb.nn, kind)(*sizes[2:], dtype=dtype, **of_cell, **options)
    cell = getattr(ebb.nn, kind + "Cell")(*sizes[2:], dtype=dtype, **of_cell)
    with torch.no_grad():
        for name, parameter in layer.named_parameters():
            if name.startswith("weight"):
                parameter.mul_(4)
            elif name.startswith("bias"):
                parameter.uniform_(-0.3, 0.3)
            else:
                parameter.mul_(0.5 + torch.rand_like(parameter))
    cell.load_state_dict({name.removesuffix("_l0"): tensor for name, tensor in layer.state_dict().items()})
    return layer, cell


def case(kind, sizes=SIZES, dtype=torch.float64):
    steps, batch, inputs, hidden = sizes
    x = torch.randn(steps, batch, inputs, dtype=dtype)
    fields = [0.3 * torch.randn(batch, hidden, dtype=dtype) for _ in range(FIELDS[kind])]
    return [x, *fields, (torch.rand(batch, hidden) < 0.3).to(dtype)]


def by_loop(cell, x, state):
    outputs = []
    for one in x:
        state, spikes = cell(state, one)
        outputs.append(spikes)
    return torch.stack(outputs), state


def gradients(module, leaves, call):
    module.zero_grad()
    leaves = [leaf.detach().clone().requires_grad_() for leaf in leaves]
    spikes, state = call(module, leaves[0], tuple(leaves[1:]))
    generator = torch.Generator().manual_seed(9)
    loss = 0
    for tensor in (spikes, *state):
        loss = loss + (tensor * torch.randn(tensor.shape, generator=generator, dtype=tensor.dtype)).sum()
    loss.backward()
    found = [leaf.grad for leaf in leaves] + [p.grad for p in module.parameters() if p.requires_grad]
    return spikes.detach(), [own.detach() for own in state], found


def tolerance(sizes, dtype):
    steps, batch, inputs, hidden = sizes
    return 64 * (inputs + hidden + 1) * (steps * batch) ** 0.5 * torch.finfo(dtype).eps


def assert_close(found, expected, relative):
    assert len(found) == len(expected)
    for i, (own, other) in enumerate(zip(found, expected)):
        largest = max(other.abs().max().item(), 1e-3)
        error = (own - other).abs().max().item() / largest
        assert error <= relative, f"tensor {i} of {len(found)}: {error:.2e} of the largest, allowed {relative:.2e}"


OPTIONS = [
    {},
    {"reset": "hard"},
    {"attached_reset": True},
    {"reset": "hard", "attached_reset": True},
    {"normalised": False, "surrogate": "arctan", "sharpness": 3.0},
    {"bias": False},
    {"recurrent": False},
    *({"surrogate": surrogate} for surrogate in SURROGATES),
]


@pytest.mark.parametrize("options", OPTIONS, ids=str)
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.sweep(9)
def test_native_layers_are_loops_of_cells(kind, options):
    layer, cell = layer_and_cell(kind, cell_options=options)
    leaves = case(kind)
    spikes, state, found = gradients(layer, leaves, lambda layer, x, state: layer(x, state))
    expected_spikes, expected_state, expected = gradients(cell, leaves, by_loop)
    assert layer.report is not None, "plain torch ran"
    assert 0.02 < expected_spikes.mean() < 0.9
    assert torch.equal(spikes, expected_spikes)
    assert torch.equal(state[-1], spikes[-1])
    assert_close(state, expected_state, tolerance(SIZES, torch.float64))
    if options.get("recurrent") is False and kind == "LIF":  # nothing hears the initial spikes
        assert not found.pop(2).any()
        assert expected.pop(2) is None
    assert_close(found, expected, tolerance(SIZES, torch.float64))


@pytest.mark.parametrize("options", OPTIONS[:5], ids=str)
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.sweep(5)
def test_cells_are_those_of_the_equations(kind, options):
    """Against the loop that the native cells of the C++ library are tested with."""
    _, cell = layer_and_cell(kind, cell_options=options)
    x, *fields, _ = case(kind)
    words = {"cell": kind.lower(), "hard_reset": options.get("reset") == "hard", **options}
    parameters = {name + "_l0": p.detach().clone().requires_grad_() for name, p in cell.named_parameters()}
    other = Layer(words, parameters, 0, list(fields))
    spikes, state = by_loop(cell, x, (*fields, torch.zeros_like(fields[0])))
    expected = torch.stack([other.step(one) for one in x])
    assert torch.equal(spikes, expected)
    weights = torch.randn_like(spikes)
    ((spikes * weights).sum() + state[0].sum()).backward()
    ((expected * weights).sum() + other.fields[0].sum()).backward()
    found = [p.grad for p in cell.parameters()]
    assert_close(found, [p.grad for p in parameters.values()], tolerance(SIZES, torch.float64))


@pytest.mark.parametrize("kind", KINDS)
def test_single_precision(kind):
    """Where no membrane is near its threshold spikes are the same, and gradients within rounding."""
    sizes = (12, 2, 4, 6)
    layer, cell = layer_and_cell(kind, torch.float32, sizes)
    leaves = case(kind, sizes, torch.float32)
    spikes, _, found = gradients(layer, leaves, lambda layer, x, state: layer(x, state))
    expected_spikes, _, expected = gradients(cell, leaves, by_loop)
    assert torch.equal(spikes, expected_spikes)
    assert_close(found, expected, tolerance(sizes, torch.float32))


@pytest.mark.parametrize("kind", KINDS)
def test_bits_do_not_depend_on_the_budget(kind):
    sizes = (400, 2, 5, 20)
    leaves, plain = case(kind, sizes), None
    layer, _ = layer_and_cell(kind, sizes=sizes, budget=1)
    leaves[0].requires_grad_()
    with pytest.raises(ebb.Error) as raised:
        layer(leaves[0])
    least = raised.value.least_budget
    assert raised.value.code == "infeasible_budget"
    for budget in [None, 2 * least, least]:
        layer.budget = budget
        found = gradients(layer, leaves, lambda layer, x, state: layer(x, state))
        assert layer.report.peak <= layer.report.budget
        flat = [found[0], *found[1], *found[2]]
        plain = plain or [own.clone() for own in flat]
        assert all(torch.equal(a, b) for a, b in zip(flat, plain))
    assert layer.report.runs[0].strategy != "store_all"
    layer.budget = least - 1
    with pytest.raises(ebb.Error):
        layer(leaves[0])


@pytest.mark.parametrize("kind", KINDS)
def test_a_state_joins_two_calls(kind):
    """Backward through both is backward through one over all time steps."""
    layer, _ = layer_and_cell(kind)
    leaves = case(kind)

    def in_two(layer, x, state):
        first, state = layer(x[:10], state)
        second, state = layer(x[10:], state)
        return torch.cat([first, second]), state

    spikes, state, found = gradients(layer, leaves, in_two)
    expected_spikes, expected_state, expected = gradients(layer, leaves, lambda layer, x, state: layer(x, state))
    assert torch.equal(spikes, expected_spikes)
    assert_close(state, expected_state, 1e-14)
    assert_close(found, expected, tolerance(SIZES, torch.float64))


@pytest.mark.parametrize("kind", KINDS)
def test_batch_first_short_sequences_and_no_samples(kind):
    layer, _ = layer_and_cell(kind)
    first, _ = layer_and_cell(kind, batch_first=True)
    x = case(kind)[0]
    for steps in (1, 2, 25):
        spikes, _ = layer(x[:steps])
        assert torch.equal(first(x[:steps].transpose(0, 1))[0], spikes.transpose(0, 1))
    spikes, state = layer(x[:0])
    assert spikes.shape == (0, 3, 53) and len(state) == FIELDS[kind] + 1
    assert layer(x[:, :0])[0].shape == (25, 0, 53)


@pytest.mark.parametrize("kind", KINDS)
def test_other_numbers_run_in_plain_torch(kind):
    """bfloat16 has no native cell; the loop of plain torch gives the cell's own results."""
    layer, cell = layer_and_cell(kind, torch.bfloat16)
    x = case(kind, dtype=torch.bfloat16)[0]
    spikes, state = layer(x)
    expected, _ = by_loop(cell, x, None)
    assert torch.equal(spikes, expected) and spikes.dtype == torch.bfloat16
    spikes.sum().backward()
    assert layer.report is None and layer.weight_hh_l0.grad is not None


@pytest.mark.parametrize("kind", KINDS)
def test_native_code_can_be_declined(kind):
    layer, cell = layer_and_cell(kind, native=False)
    leaves = case(kind)
    found = gradients(layer, leaves, lambda layer, x, state: layer(x, state))
    wanted = gradients(cell, leaves, by_loop)
    assert all(torch.equal(a, b) for a, b in zip([found[0], *found[1], *found[2]], [wanted[0], *wanted[1], *wanted[2]]))
    assert layer.report is None


@pytest.mark.parametrize("recurrent", [False, True])
@pytest.mark.parametrize("kind", KINDS)
def test_currents_instead_of_inputs(kind, recurrent):
    """As a layer whose weights for inputs pass them on."""
    torch.manual_seed(0)
    how = {**UNITS, **OWN[kind], "recurrent": recurrent, "dtype": torch.float64}
    bare, whole = getattr(ebb.nn, kind)(None, 7, **how), getattr(ebb.nn, kind)(7, 7, bias=False, **how)
    assert not bare.bias and "weight_ih_l0" not in bare.state_dict()
    with torch.no_grad():
        whole.weight_ih_l0.copy_(torch.eye(7))
        if recurrent:
            whole.weight_hh_l0.copy_(bare.weight_hh_l0)
    leaves = [2 * torch.rand(30, 3, 7, dtype=torch.float64)]
    for budget in (None, "50%"):
        bare.budget = budget
        found = gradients(bare, leaves, lambda layer, x, state: layer(x))
        wanted = gradients(whole, leaves, lambda layer, x, state: layer(x))
        assert torch.equal(found[0], wanted[0]) and 0.02 < found[0].mean() < 0.98
        torch.testing.assert_close(found[2][0], wanted[2][0])
    with pytest.raises(ebb.Error, match=r"it must be \(time, batch, 7\)"):
        bare(torch.rand(30, 3, 6, dtype=torch.float64))
    with pytest.raises(ebb.Error, match="input_size is 0"):
        getattr(ebb.nn, kind)(0, 7)


@pytest.mark.parametrize("mode", [torch.no_grad, torch.inference_mode])
@pytest.mark.parametrize("kind", KINDS)
def test_without_gradients(kind, mode):
    layer, _ = layer_and_cell(kind)
    x = case(kind)[0]
    expected, state = layer(x)
    with mode():
        spikes, found = layer(x)
    assert torch.equal(spikes, expected) and not spikes.requires_grad
    assert all(torch.equal(a, b) for a, b in zip(found, state))


@pytest.mark.parametrize("kind", KINDS)
def test_names_copies_and_frozen_numbers(kind):
    layer, _ = layer_and_cell(kind, cell_options={"train_tau": False, "train_threshold": False})
    names = ["weight_ih_l0", "weight_hh_l0", "bias_ih_l0", "threshold_l0", "tau_mem_l0"]
    assert list(layer.state_dict()) == names + [f"{name}_l0" for name in OWN[kind]]
    x = case(kind)[0]
    layer(x)[0].sum().backward()
    assert layer.threshold_l0.grad is None and layer.tau_mem_l0.grad is None
    for other in (copy.deepcopy(layer), pickle.loads(pickle.dumps(layer))):
        assert torch.equal(other(x)[0], layer(x)[0])
    layer.tau_mem_l0.requires_grad_()
    layer(x)[0].sum().backward()
    assert layer.tau_mem_l0.grad.abs().sum() > 0


def test_time_constants_at_their_ends():
    """0 and less forget at once, in both; gradients stay finite."""
    layer, cell = layer_and_cell("LIF")
    for module, name in ((layer, "tau_mem_l0"), (cell, "tau_mem")):
        with torch.no_grad():
            getattr(module, name)[:3] = torch.tensor([0.0, -1.0, 1e9])
    leaves = case("LIF")
    spikes, _, found = gradients(layer, leaves, lambda layer, x, state: layer(x, state))
    expected_spikes, _, expected = gradients(cell, leaves, by_loop)
    assert torch.equal(spikes, expected_spikes)
    assert all(own.isfinite().all() for own in found + expected)


def test_mistakes():
    layer = ebb.nn.LIF(3, 5)
    with pytest.raises(ebb.Error, match="time, batch, 3"):
        layer(torch.randn(4, 2, 2))
    with pytest.raises(ebb.Error, match="2 of \\(2, 5\\)"):
        layer(torch.randn(4, 2, 3), (torch.zeros(2, 5),))
    with pytest.raises(ebb.Error, match="0 or 1"):
        layer(torch.randn(4, 2, 3), (torch.zeros(2, 5), torch.full((2, 5), 0.5)))
    with pytest.raises(ebb.Error, match="surrogate is 'relu'"):
        ebb.nn.LIF(3, 5, surrogate="relu")
    with pytest.raises(ebb.Error, match="reset is 'none'"):
        ebb.nn.LIF(3, 5, reset="none")
    with pytest.raises(ebb.Error, match="hidden_size is 0"):
        ebb.nn.LIF(3, 0)
    with pytest.raises(ebb.Error, match="sharpness"):
        ebb.nn.LIF(3, 5, sharpness=-1.0)
    with pytest.raises(TypeError, match="tau_adp"):
        ebb.nn.LIF(3, 5, tau_adp=3.0)

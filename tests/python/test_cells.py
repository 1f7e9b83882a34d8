# SPDX-License-Identifier: Apache-2.0
"""Cells of ebb against PyTorch: outputs, states, and the gradients of inputs, parameters and initial states.

Smooth cells against torch.nn, spiking ones against a loop over time steps (spiking_reference.py). What ebb gives comes
from the program tests/train/cell_program.
"""

import json
import os
import subprocess

import pytest

torch = pytest.importorskip("torch", reason="PyTorch is not installed")
safetensors = pytest.importorskip("safetensors.torch", reason="the package safetensors is not installed")
from spiking_reference import SURROGATES, reference, unit_parameters  # noqa: E402

PROGRAM = os.environ.get("EBB_CELL_PROGRAM", "")
pytestmark = pytest.mark.skipif(not os.path.exists(PROGRAM), reason="EBB_CELL_PROGRAM does not name the program")

torch.set_num_threads(1)  # nothing here is large
SMOOTH = {
    "rnn": lambda *sizes: torch.nn.RNN(*sizes, nonlinearity="tanh"),
    "rnn_relu": lambda *sizes: torch.nn.RNN(*sizes, nonlinearity="relu"),
    "lstm": torch.nn.LSTM,
    "gru": torch.nn.GRU,
}
DTYPES = {"double": (torch.float64, 1e-12), "float": (torch.float32, 1e-5)}
# Steps, batch, inputs, hidden: blocks of 48 units and parts of them, one of everything, more samples than units.
SHAPES = [(9, 3, 5, 48), (13, 2, 7, 53), (1, 1, 1, 1), (30, 17, 4, 6), (6, 4, 50, 101)]


def ours(folder, tensors, **options):
    options = {"threads": 1, "strategy": "store_all", **options}
    tensors = {name: tensor.detach().contiguous() for name, tensor in tensors.items()}
    safetensors.save_file(tensors, folder / "in.safetensors", {"options": json.dumps(options)})
    files = [folder / "in.safetensors", folder / "out.safetensors"]
    done = subprocess.run([PROGRAM, *files], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    with safetensors.safe_open(folder / "out.safetensors", "pt") as file:
        # Copies: the tensors look into the file, which the next call writes anew.
        return {name: file.get_tensor(name).clone() for name in file.keys()}, file.metadata()


def assert_close(found, expected, relative, what):
    """Relative to the largest number of each tensor, since sums of many numbers cancel."""
    largest = max(expected.abs().max().item(), 1e-3)
    error = (found.reshape(expected.shape) - expected).abs().max().item() / largest
    assert error <= relative, f"{what}: {error:.2e} of the largest, {largest:.2e}"


def smooth_case(cell, shape, layers, dtype):
    """A net of torch's with a readout, and numbers to run it on."""
    steps, batch, inputs, hidden = shape
    torch.manual_seed(hidden + 10 * layers)
    net = SMOOTH[cell](inputs, hidden, layers).to(dtype)
    readout = torch.nn.Linear(hidden, 3).to(dtype)
    fields = 2 if cell == "lstm" else 1
    tensors = dict(net.named_parameters())
    tensors[f"weight_ih_l{layers}"] = readout.weight
    tensors[f"bias_ih_l{layers}"] = readout.bias
    tensors["inputs"] = torch.randn(steps, batch, inputs, dtype=dtype)
    tensors["output_gradients"] = torch.randn(steps, batch, 3, dtype=dtype)
    for layer in range(layers):
        for name in ("state", "state_gradient"):
            tensors[f"{name}_l{layer}"] = 0.5 * torch.randn(batch, fields, hidden, dtype=dtype)
    return net, readout, tensors


def fields_of(tensors, name, layers):
    """[B,F,H] of each layer as torch has them: for each field [L,B,H]."""
    return list(torch.stack([tensors[f"{name}_l{layer}"] for layer in range(layers)]).unbind(2))


def torch_result(net, readout, tensors, layers, lengths=None):
    """What ebb's program gives, from torch's own backward."""
    names = [name for name in tensors if name.startswith(("inputs", "state_l"))]
    leaves = {name: tensors[name].detach().requires_grad_() for name in names}
    initial = fields_of(leaves, "state", layers)
    inputs = leaves["inputs"]
    if lengths is not None:
        inputs = torch.nn.utils.rnn.pack_padded_sequence(inputs, lengths, enforce_sorted=False)
    hidden, final = net(inputs, tuple(initial) if len(initial) == 2 else initial[0])
    if lengths is not None:
        hidden, _ = torch.nn.utils.rnn.pad_packed_sequence(hidden, total_length=len(tensors["inputs"]))
    final = list(final) if isinstance(final, tuple) else [final]
    outputs = readout(hidden)
    loss = (outputs * tensors["output_gradients"]).sum()
    for field, gradient in zip(final, fields_of(tensors, "state_gradient", layers)):
        loss = loss + (field * gradient).sum()
    loss.backward()
    result = {"outputs": outputs, "inputs.gradient": leaves["inputs"].grad}
    for name, parameter in net.named_parameters():
        result[name + ".gradient"] = parameter.grad
    result[f"weight_ih_l{layers}.gradient"] = readout.weight.grad
    result[f"bias_ih_l{layers}.gradient"] = readout.bias.grad
    for layer in range(layers):
        result[f"state_l{layer}"] = torch.stack([field[layer] for field in final], 1)
        result[f"state_l{layer}.gradient"] = leaves[f"state_l{layer}"].grad
    return {name: tensor.detach() for name, tensor in result.items()}


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("layers, shape", [(1 + i % 3, shape) for i, shape in enumerate(SHAPES)] + [(3, SHAPES[1])])
@pytest.mark.parametrize("cell", SMOOTH)
@pytest.mark.sweep(7)
def test_smooth_cells_are_those_of_torch(tmp_path, cell, layers, shape, dtype):
    number, relative = DTYPES[dtype]
    net, readout, tensors = smooth_case(cell, shape, layers, number)
    expected = torch_result(net, readout, tensors, layers)
    found, _ = ours(tmp_path, tensors, cell=cell, hidden=shape[3], layers=layers, dtype=dtype)
    for name, tensor in expected.items():
        assert found[name].dtype == number
        assert_close(found[name], tensor, relative, name)


@pytest.mark.parametrize("layers", [1, 2])
@pytest.mark.parametrize("cell", SMOOTH)
def test_lengths_are_packed_sequences(tmp_path, cell, layers):
    shape = (12, 5, 4, 53)
    lengths = torch.tensor([12, 7, 1, 12, 4])
    net, readout, tensors = smooth_case(cell, shape, layers, torch.float64)
    is_over = torch.arange(12)[:, None] >= lengths
    tensors["output_gradients"][is_over] = 0
    expected = torch_result(net, readout, tensors, layers, lengths)
    options = {"cell": cell, "hidden": 53, "layers": layers, "dtype": "double", "grain": 5}
    found, _ = ours(tmp_path, {**tensors, "lengths": lengths}, **options)
    for name, tensor in expected.items():
        if name == "outputs":
            assert_close(found[name][~is_over], tensor[~is_over], 1e-12, name)
        else:
            assert_close(found[name], tensor, 1e-12, name)
    assert not found["inputs.gradient"][is_over].any()


def test_a_stack_without_a_readout_gives_its_states(tmp_path):
    net, _, tensors = smooth_case("gru", (8, 2, 3, 5), 2, torch.float64)
    tensors = {name: tensor for name, tensor in tensors.items() if not name.endswith("_l2")}
    tensors["output_gradients"] = torch.randn(8, 2, 5, dtype=torch.float64)
    found, _ = ours(tmp_path, tensors, cell="gru", hidden=5, layers=2, readout="none", dtype="double")
    inputs = tensors["inputs"].requires_grad_()
    hidden, final = net(inputs, fields_of(tensors, "state", 2)[0])
    (hidden * tensors["output_gradients"]).sum().backward(retain_graph=True)
    (final * fields_of(tensors, "state_gradient", 2)[0]).sum().backward()
    assert_close(found["outputs"], hidden.detach(), 1e-12, "outputs")
    assert_close(found["inputs.gradient"], inputs.grad, 1e-12, "inputs.gradient")


def spiking_case(cell, layers, shape, spikes=True, seed=1, synaptic=False, readout="linear"):
    steps, batch, inputs, hidden = shape
    torch.manual_seed(seed)
    double = {"dtype": torch.float64}
    gates = 3 if cell == "egru" else 1
    fields = 1 if cell == "lif" and not synaptic else 2
    tensors = {"inputs": torch.randn(steps, batch, inputs, **double)}
    if spikes:
        tensors["inputs"] = (tensors["inputs"] > 0.3).to(torch.uint8)
    for layer in range(layers):
        width = inputs if layer == 0 else hidden
        scale = 1 if cell == "egru" else 4
        tensors[f"weight_ih_l{layer}"] = scale * torch.randn(gates * hidden, width, **double) / width**0.5
        tensors[f"weight_hh_l{layer}"] = scale * torch.randn(gates * hidden, hidden, **double) / hidden**0.5
        tensors[f"bias_ih_l{layer}"] = 0.3 * torch.randn(gates * hidden, **double)
        if cell == "egru":
            tensors[f"bias_hh_l{layer}"] = 0.3 * torch.randn(gates * hidden, **double)
        for name, value in unit_parameters(cell, synaptic).items():
            tensors[f"{name}_l{layer}"] = value * (0.4 + torch.rand(hidden, **double))
        for name in ("state", "state_gradient"):
            tensors[f"{name}_l{layer}"] = 0.3 * torch.randn(batch, fields, hidden, **double)
    tensors[f"weight_ih_l{layers}"] = torch.randn(3, hidden, **double)
    tensors[f"bias_ih_l{layers}"] = torch.randn(3, **double)
    if readout == "leaky":
        tensors[f"tau_mem_l{layers}"] = 5 * (0.4 + torch.rand(3, **double))
    tensors["output_gradients"] = torch.randn(steps, batch, 3, **double)
    return tensors


def assert_spiking(folder, tensors, options):
    options = {"train_tau": True, "train_threshold": True, "dtype": "double", **options}
    found, notes = ours(folder, tensors, **options)
    expected, activity = reference(tensors, options)
    assert activity > 0.02, "hardly a spike"
    if options["cell"] != "egru":
        assert float(notes["activity"]) == pytest.approx(activity, abs=1e-5)
    for name, tensor in expected.items():
        assert_close(found[name], tensor, 1e-12, name)
    return found


SHAPE = (17, 3, 9, 53)
CASES = [
    (cell, {"synaptic": synaptic, "hard_reset": hard, "attached_reset": attached})
    for cell, synaptic in [("lif", False), ("lif", True), ("alif", False), ("adlif", False)]
    for hard in (False, True)
    for attached in (False, True)
]
CASES += [
    (cell, {"surrogate": surrogate, "attached_reset": True})
    for cell in ("lif", "alif", "adlif", "egru")
    for surrogate in SURROGATES
]
CASES += [
    ("lif", {"synaptic": True, "hard_reset": True, "attached_reset": True, "rest": -0.2, "normalised": False}),
    ("alif", {"normalised": False, "surrogate": "arctan", "sharpness": 3.0}),
    ("adlif", {"normalised": False, "surrogate": "triangular", "sharpness": 0.7, "pipelined": True}),
    ("lif", {"gradient_threshold": 0.2, "surrogate": "superspike"}),
    ("egru", {"pipelined": True}),
    ("lif", {"readout": "leaky", "pipelined": True}),
    ("alif", {"readout": "leaky"}),
]


def name_of(value):
    return value if isinstance(value, str) else "-".join(f"{key}={own}" for key, own in value.items())


@pytest.mark.parametrize("layers", [1, 2])
@pytest.mark.parametrize("cell, options", CASES, ids=name_of)
@pytest.mark.sweep(16)
def test_spiking_cells_are_those_of_a_loop(tmp_path, cell, options, layers):
    own = {"synaptic": options.get("synaptic", False), "readout": options.get("readout", "linear")}
    tensors = spiking_case(cell, layers, SHAPE, spikes=layers == 1, **own)
    sizes = {"hidden": SHAPE[3], "layers": layers, "grain": 1 + 3 * layers}
    assert_spiking(tmp_path, tensors, {"cell": cell, **sizes, **options})


def dense(found, name, rows, columns):
    """A sparse tensor of ebb's as a matrix with zeros."""
    own = name.removesuffix(".gradient")
    starts, to = found[own + ".starts"], found[own + ".columns"]
    matrix = torch.zeros(rows, columns, dtype=found[name].dtype)
    row = torch.repeat_interleave(torch.arange(rows), starts[1:] - starts[:-1])
    matrix[row, to.long()] = found[name]
    return matrix


@pytest.mark.parametrize("cell", ["lif", "egru", "lstm"])
def test_sparse_weights_are_dense_ones_with_zeros(tmp_path, cell):
    hidden, gates = 53, {"lif": 1, "egru": 3, "lstm": 4}[cell]
    options = {"cell": cell, "hidden": hidden, "dtype": "double", "weight_scale": 5}
    options |= {"train_threshold": True, "train_tau": True}
    case = spiking_case("lif", 1, SHAPE)
    given = {name: case[name] for name in ("inputs", "output_gradients")}
    found, _ = ours(tmp_path, given, input_density=0.4, recurrent_density=0.2, **options)
    parameters = [name for name in found if f"{name}.gradient" in found and not name.startswith("state")]
    given |= {name: found[name] for name in parameters}
    widths = {"weight_ih_l0": 9, "weight_hh_l0": hidden}
    for name, width in widths.items():
        assert 0 < len(found[name]) < 0.5 * gates * hidden * width
        given[name] = dense(found, name, gates * hidden, width)
    full, _ = ours(tmp_path, given, **options)
    assert_close(found["outputs"], full["outputs"], 1e-12, "outputs")
    for name, tensor in full.items():
        if name.removesuffix(".gradient") in widths and name.endswith(".gradient"):
            own = dense(found, name, *tensor.shape)
            assert_close(own, tensor * (given[name.removesuffix(".gradient")] != 0), 1e-12, name)
        elif name.endswith(".gradient"):
            assert_close(found[name], tensor, 1e-12, name)


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("cell", ["lstm", "gru", "alif", "egru"])
@pytest.mark.sweep(4)
def test_a_budget_gives_the_same_bits(tmp_path, cell, dtype):
    if cell in SMOOTH:
        _, _, tensors = smooth_case(cell, (200, 2, 3, 20), 2, DTYPES[dtype][0])
    else:
        tensors = spiking_case(cell, 2, (200, 2, 3, 20), spikes=False)
        tensors = {name: tensor.to(DTYPES[dtype][0]) for name, tensor in tensors.items()}
    options = {"cell": cell, "hidden": 20, "layers": 2, "dtype": dtype, "grain": 2}
    options |= {"train_tau": True, "train_threshold": True}
    plain, notes = ours(tmp_path, tensors, **options)
    assert notes["strategy"] == "store_all"
    assert float(notes["activity"]) > 0.02 or cell != "alif"
    for budget in ("20%", "60%"):
        small, notes = ours(tmp_path, tensors, **{**options, "strategy": "auto", "budget": budget})
        assert notes["strategy"] != "store_all"
        assert small.keys() == plain.keys()
        for name, tensor in plain.items():
            assert torch.equal(small[name], tensor), (budget, name)

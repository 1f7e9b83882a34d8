# SPDX-License-Identifier: Apache-2.0
"""`ebb.nn.convert` of SpikingJelly's neurons, of the package where it is installed and of a stand-in everywhere: their spikes and
gradients, or a refusal that names what ebb does not have."""

import pytest

torch = pytest.importorskip("torch", reason="PyTorch is not installed")

import jelly_stand_in  # noqa: E402
from neuron_pairs import UNITS, by_tau, currents, same  # noqa: E402

import ebb  # noqa: E402
import ebb.nn  # noqa: E402

DTYPES = [torch.float32, torch.float64]


@pytest.fixture(params=["stand-in", "spikingjelly"])
def jelly(request, monkeypatch):
    """Its modules neuron and surrogate."""
    if request.param == "stand-in":
        return jelly_stand_in.installed(monkeypatch)
    pytest.importorskip("spikingjelly", reason="the package spikingjelly is not installed")
    from spikingjelly.activation_based import neuron, surrogate

    return neuron, surrogate


@pytest.fixture(params=DTYPES, ids=str)
def dtype(request):
    before = torch.get_default_dtype()
    torch.set_default_dtype(request.param)
    yield request.param
    torch.set_default_dtype(before)


@pytest.mark.parametrize("v_reset", [0.0, None, -0.3])
@pytest.mark.parametrize("detach_reset", [False, True])
@pytest.mark.parametrize("decay_input", [False, True])
def test_lif(jelly, dtype, v_reset, detach_reset, decay_input):
    neuron, surrogate = jelly
    node = neuron.LIFNode(
        tau=3.0,
        v_threshold=0.7,
        v_reset=v_reset,
        detach_reset=detach_reset,
        decay_input=decay_input,
        surrogate_function=surrogate.ATan(alpha=1.5),
        step_mode="m",
    )
    layer = ebb.nn.convert(node, "1MiB", units=UNITS)
    assert type(layer) is ebb.nn.LIF and not any(p.requires_grad for p in layer.parameters())
    same(node, layer, [], currents(dtype, 3.0 if decay_input else 1.0))


@pytest.mark.parametrize("v_reset", [0.0, None, 0.2])
@pytest.mark.parametrize("decay_input", [False, True])
def test_parametric_lif(jelly, dtype, v_reset, decay_input):
    neuron, surrogate = jelly
    node = neuron.ParametricLIFNode(
        init_tau=2.5, v_reset=v_reset, decay_input=decay_input, surrogate_function=surrogate.ATan(), step_mode="m"
    ).to(dtype)
    layer = ebb.nn.convert(node, "1MiB", units=UNITS)
    assert [name for name, p in layer.named_parameters() if p.requires_grad] == ["tau_mem_l0"]
    w = node.w.detach()
    slope = -torch.sigmoid(w) / torch.nn.functional.softplus(w) ** 2  # of 1 / softplus(w), which is tau_mem
    x = currents(dtype, 3.0 if decay_input else 1.0)
    same(node, layer, [node.w], x, lambda layer: [by_tau(layer, slope)])


@pytest.mark.parametrize(
    "kind, alpha",
    [("ATan", 4.0), ("SuperSpike", 1.0), ("SuperSpike", 0.5), ("SoftSign", 2.0), ("PiecewiseQuadratic", 1.0)],
)
def test_surrogates(jelly, kind, alpha):
    neuron, surrogate = jelly
    slope = getattr(surrogate, kind)(alpha=alpha)
    node = neuron.LIFNode(tau=2.0, surrogate_function=slope, step_mode="m", v_reset=None)
    same(node, ebb.nn.convert(node, "1MiB", units=UNITS), [], currents(torch.float32, 3.0))


@pytest.mark.parametrize(
    "make, said",
    [
        (
            lambda n, s: n.IFNode(surrogate_function=s.ATan()),
            "neuron.IFNode has equations of its own; .*LIFNode and Param",
        ),
        (
            lambda n, s: n.LIFNode(surrogate_function=s.Sigmoid()),
            "neuron.LIFNode has the surrogate_function Sigmoid.*ATan",
        ),
        (lambda n, s: n.LIFNode(surrogate_function=s.SoftSign(alpha=3.0)), r"SoftSign.*SoftSign\(alpha=2.0\)"),
        (lambda n, s: n.LIFNode(surrogate_function=torch.nn.Identity()), r"surrogate_function Identity\(\)"),
        (
            lambda n, s: n.LIFNode(surrogate_function=s.ATan(spiking=False)),
            r"ATan\(spiking=False\), which gives no spikes",
        ),
        (
            lambda n, s: n.LIFNode(surrogate_function=s.ATan(), store_v_seq=True),
            "store_v_seq=True; .*store_v_seq=False",
        ),
        (lambda n, s: n.LIFNode(surrogate_function=s.ATan(), tau=1e8), "keeps .* of itself in a time step"),
        (lambda n, s: type("Mine", (n.LIFNode,), {})(surrogate_function=s.ATan()), "Mine is derived from .*LIFNode"),
    ],
)
def test_refused(jelly, make, said):
    with pytest.raises(ebb.Error, match=said) as raised:
        ebb.nn.convert(make(*jelly), "1MiB", units=UNITS)
    assert "ebb.scan" in raised.value.remedy


def test_units_have_to_be_given(jelly):
    neuron, surrogate = jelly
    node = neuron.LIFNode(surrogate_function=surrogate.ATan())
    with pytest.raises(ebb.Error, match="LIFNode does not say how many units it has; pass units="):
        ebb.nn.convert(node, "1MiB")

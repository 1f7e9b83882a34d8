# SPDX-License-Identifier: Apache-2.0
"""`ebb.nn.convert` of snnTorch's neurons: their spikes and gradients, or a refusal that names what ebb does not have."""

import pytest

torch = pytest.importorskip("torch", reason="PyTorch is not installed")
snn = pytest.importorskip("snntorch", reason="the package snntorch is not installed")
from neuron_pairs import UNITS, currents, same  # noqa: E402
from snntorch import surrogate  # noqa: E402

import ebb  # noqa: E402
import ebb.nn  # noqa: E402

DTYPES = [torch.float32, torch.float64]
RESETS = [("subtract", True), ("zero", True), ("zero", False)]


def over_time(lif):
    """The neuron over a sequence. Its spikes are float32 whatever comes in, which rounds gradients of float64: here they are not."""

    def run(x):
        states, spikes = 2 if isinstance(lif, snn.RLeaky) else 1, []
        state = [x.new_zeros(x.shape[1:])] * states
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(torch.Tensor, "float", lambda own: own.to(x.dtype))
            for one in x:
                given = lif(one, *state)
                spikes.append(given[0])
                state = given[-states:]
        return torch.stack(spikes)

    return run


def learnt(lif):
    """Their beta and threshold, and these gradients from the layer's."""

    def chained(layer):
        beta = lif.beta.detach()
        slope = 1 / (beta * torch.log(beta) ** 2)
        one = lif.beta.dim() == 0
        of_beta, of_threshold = layer.tau_mem_l0.grad * slope, layer.threshold_l0.grad
        return [of_beta.sum(), of_threshold.sum()] if one else [of_beta, of_threshold]

    return [lif.beta, lif.threshold], chained


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("mechanism, delay", RESETS)
@pytest.mark.parametrize("slope", [None, surrogate.atan(3.0), surrogate.fast_sigmoid(10)])
def test_leaky(mechanism, delay, slope, dtype):
    lif = snn.Leaky(
        beta=torch.tensor(0.9, dtype=dtype),
        threshold=torch.tensor(0.7, dtype=dtype),
        learn_beta=True,
        learn_threshold=True,
        spike_grad=slope,
        reset_mechanism=mechanism,
        reset_delay=delay,
    )
    layer = ebb.nn.convert(lif, "1MiB", units=UNITS)
    assert type(layer) is (ebb.nn.ALIF if delay else ebb.nn.LIF) and layer.dtype == dtype
    parameters, chained = learnt(lif)
    same(over_time(lif), layer, parameters, currents(dtype, 1.0), chained)


@pytest.mark.parametrize("mechanism, delay", RESETS)
def test_units_with_numbers_of_their_own(mechanism, delay):
    made = torch.Generator().manual_seed(1)
    beta = 0.3 + 0.65 * torch.rand(UNITS, dtype=torch.float64, generator=made)
    threshold = 0.5 + torch.rand(UNITS, dtype=torch.float64, generator=made)
    lif = snn.Leaky(
        beta, threshold, learn_beta=True, learn_threshold=True, reset_mechanism=mechanism, reset_delay=delay
    )
    parameters, chained = learnt(lif)
    same(over_time(lif), ebb.nn.convert(lif, "1MiB"), parameters, currents(torch.float64), chained)


@pytest.mark.parametrize("mechanism, delay", [("subtract", True), ("zero", False)])
def test_rleaky(mechanism, delay):
    torch.manual_seed(0)
    lif = snn.RLeaky(
        beta=0.8,
        linear_features=UNITS,
        learn_beta=True,
        learn_threshold=True,
        reset_mechanism=mechanism,
        reset_delay=delay,
    ).double()
    layer = ebb.nn.convert(lif, "1MiB")
    (beta, threshold), chained = learnt(lif)
    parameters = [beta, threshold, lif.recurrent.weight, lif.recurrent.bias]
    same(
        over_time(lif),
        layer,
        parameters,
        currents(torch.float64, 1.0),
        lambda layer: [*chained(layer), layer.weight_hh_l0.grad, layer.bias_ih_l0.grad],
    )


def test_what_does_not_learn_there_does_not_here():
    lif = snn.RLeaky(beta=0.8, linear_features=UNITS, learn_recurrent=False)
    assert not any(p.requires_grad for p in ebb.nn.convert(lif, "1MiB").parameters())
    layer = ebb.nn.convert(snn.Leaky(0.9, learn_beta=True), "1MiB", units=UNITS)
    assert [name for name, p in layer.named_parameters() if p.requires_grad] == ["tau_mem_l0"]
    layer = ebb.nn.convert(snn.Leaky(0.9, learn_threshold=True), "1MiB", units=UNITS)
    assert [name for name, p in layer.named_parameters() if p.requires_grad] == ["threshold_l0"]


@pytest.mark.parametrize("mechanism, delay", RESETS)
def test_a_membrane_at_its_threshold_does_not_spike(mechanism, delay):
    lif = snn.Leaky(beta=0.5, reset_mechanism=mechanism, reset_delay=delay)
    made = torch.Generator().manual_seed(2)
    x = torch.randint(0, 7, (200, 3, UNITS), generator=made) / 4  # membranes are at 1 often
    theirs = over_time(lif)(x)
    assert torch.equal(ebb.nn.convert(lif, None, units=UNITS)(x)[0], theirs) and 0 < theirs.mean() < 1


def test_states_are_theirs():
    lif = snn.Leaky(beta=0.9)
    layer = ebb.nn.convert(lif, "1MiB", units=UNITS)
    mem = torch.zeros(3, UNITS)
    for one in currents(torch.float32):
        _, mem = lif(one, mem)
    _, state = layer(currents(torch.float32))
    torch.testing.assert_close(state[0], mem, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("beta", [0.0, -0.5, 0.01, 0.25, 0.5, 0.9, 0.99, 0.999, 0.999998])
def test_decays_are_theirs_to_a_few_last_bits(beta):
    layer = ebb.nn.convert(snn.Leaky(beta=beta), "1MiB", units=3)
    wanted = torch.tensor(max(beta, 0.0))
    found = torch.exp(-1 / layer.tau_mem_l0.detach())
    assert bool(((found - wanted).abs() <= 5 * torch.finfo(torch.float32).eps * wanted).all())
    if beta > 0.4:
        assert bool(((found - wanted).abs() <= torch.finfo(torch.float32).eps * wanted).all())


def test_options_that_change_no_equation():
    lif = snn.Leaky(beta=0.9, threshold=1, init_hidden=True, output=True).eval()
    layer = ebb.nn.convert(lif, "2MiB", units=UNITS, chunk=5, strategy="auto", native=False)
    assert layer.budget == "2MiB" and layer.chunk == 5 and not layer.native and not layer.training
    layer.train()(currents(torch.float32).requires_grad_())[0].sum().backward()
    assert layer.report is None or layer.report.peak <= 2 << 20


class Mine(snn.Leaky):
    pass


SYNAPTIC = "equations of its own; of snntorch ebb has Leaky and RLeaky"
REFUSED = {
    "Synaptic": (lambda: snn.Synaptic(alpha=0.9, beta=0.8), f"snntorch.Synaptic has {SYNAPTIC}"),
    "RSynaptic": (
        lambda: snn.RSynaptic(alpha=0.9, beta=0.8, linear_features=UNITS),
        "snntorch.RSynaptic has equations",
    ),
    "Alpha": (lambda: snn.Alpha(alpha=0.9, beta=0.8), "snntorch.Alpha has equations"),
    "Lapicque": (lambda: snn.Lapicque(beta=0.9), "snntorch.Lapicque has equations"),
    "SLSTM": (lambda: snn.SLSTM(UNITS, UNITS), "snntorch.SLSTM has equations"),
    "derived": (lambda: Mine(0.9), "Mine is derived from snntorch.Leaky, and may compute"),
    "none": (lambda: snn.Leaky(0.9, reset_mechanism="none"), "snntorch.Leaky has reset_mechanism='none'"),
    "subtract at once": (
        lambda: snn.Leaky(0.9, reset_delay=False),
        "'subtract' with reset_delay=False.*reset_delay=True",
    ),
    "below 0": (
        lambda: snn.Leaky(0.9, threshold=-1.0, reset_mechanism="zero", reset_delay=False),
        "has a threshold below 0",
    ),
    "below 0, subtract": (lambda: snn.Leaky(0.9, threshold=-0.5), "has a threshold below 0"),
    "below 0, recurrent": (lambda: snn.RLeaky(0.9, linear_features=UNITS, threshold=-0.5), "has a threshold below 0"),
    "recurrent zero": (
        lambda: snn.RLeaky(0.9, linear_features=UNITS, reset_mechanism="zero"),
        "snntorch.RLeaky has reset_mechanism='zero' with reset_delay=True",
    ),
    "one to one": (lambda: snn.RLeaky(0.9, all_to_all=False), "by RecurrentOneToOne; .*linear_features="),
    "convolution": (lambda: snn.RLeaky(0.9, conv2d_channels=2, kernel_size=3), "by Conv2d"),
    "inhibition": (lambda: snn.Leaky(0.9, inhibition=True), "has inhibition=True"),
    "state_quant": (lambda: snn.Leaky(0.9, state_quant=torch.round), "has state_quant=<"),
    "surrogate_disable": (lambda: snn.Leaky(0.9, surrogate_disable=True), "has surrogate_disable=True"),
    "graded": (lambda: snn.Leaky(0.9, graded_spikes_factor=2.0), "graded_spikes_factor that is not 1"),
    "graded, learns": (
        lambda: snn.Leaky(0.9, learn_graded_spikes_factor=True),
        "graded_spikes_factor that is not 1, or",
    ),
    "sigmoid": (lambda: snn.Leaky(0.9, spike_grad=surrogate.sigmoid()), "spike_grad sigmoid; .*atan and fast_sigmoid"),
    "triangular": (lambda: snn.Leaky(0.9, spike_grad=surrogate.triangular()), "spike_grad triangular"),
    "own slope": (lambda: snn.Leaky(0.9, spike_grad=torch.sigmoid), "spike_grad .*sigmoid; of snntorch"),
    "no leak": (lambda: snn.Leaky(1.0), "keeps 1 of itself in a time step; .*0.999999"),
    "learns from 0": (lambda: snn.Leaky(0.0, learn_beta=True), "learns a decay that is 0"),
    "shape": (lambda: snn.Leaky(torch.full((4, 1, 1), 0.9)), r"the shape \(4, 1, 1\) for its decay"),
}


@pytest.mark.filterwarnings("ignore:Inhibition is an unstable feature")
@pytest.mark.parametrize("which", REFUSED)
def test_refused(which):
    make, said = REFUSED[which]
    with pytest.raises(ebb.Error, match=said) as raised:
        ebb.nn.convert(make(), "1MiB", units=UNITS)
    assert "ebb.scan" in raised.value.remedy


def test_a_reset_that_was_set_later_is_refused():
    lif = snn.Leaky(0.9)
    lif.reset_mechanism = "zero"
    with pytest.raises(ebb.Error, match="got after it was made"):
        ebb.nn.convert(lif, "1MiB", units=UNITS)


def test_units():
    with pytest.raises(ebb.Error, match=r"snntorch.Leaky does not say how many units.*units="):
        ebb.nn.convert(snn.Leaky(0.9), "1MiB")
    with pytest.raises(ebb.Error, match="units is 0"):
        ebb.nn.convert(snn.Leaky(0.9), "1MiB", units=0)
    with pytest.raises(ebb.Error, match="decay for 4, and units is 5"):
        ebb.nn.convert(snn.Leaky(torch.full((4,), 0.9)), "1MiB", units=5)
    with pytest.raises(ebb.Error, match="recurrent weights for 3, decay for 4"):
        ebb.nn.convert(snn.RLeaky(torch.full((4,), 0.9), linear_features=3), "1MiB")
    with pytest.raises(ebb.Error, match="units is 4, which is for a neuron .*a LSTM"):
        ebb.nn.convert(torch.nn.LSTM(2, 2), "1MiB", units=4)


def test_neurons_of_a_model_stay_as_they_are():
    net = torch.nn.ModuleDict({"lif": snn.Leaky(0.9), "low": torch.nn.Linear(2, 2)})
    with pytest.raises(ebb.Error, match=r"its neurons \(lif\) are called by code of its own"):
        ebb.nn.convert(net, "1MiB")
    net["lstm"] = torch.nn.LSTM(2, 2)
    ebb.nn.convert(net, "1MiB")
    assert type(net["lif"]) is snn.Leaky and type(net["lstm"]) is ebb.nn.LSTM
    with pytest.raises(ebb.Error, match="no torch.nn.RNN"):
        ebb.nn.convert(snn.Leaky(0.9), "1MiB", skip=snn.Leaky)


def test_neurons_on_torchs_layers_are_converted_as_models():
    lif = snn.LeakyParallel(3, 5)
    ebb.nn.convert(lif, "1MiB")
    assert type(lif.rnn) is ebb.nn.RNN

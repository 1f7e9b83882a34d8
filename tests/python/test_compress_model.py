# SPDX-License-Identifier: Apache-2.0
"""The model around compressed layers: names, copies, parametrisations, blocks by name, errors."""

from __future__ import annotations

import copy
import io
import pickle

import pytest

torch = pytest.importorskip("torch", reason="PyTorch is not installed")
from compress_cases import check_exact, check_same, given, ran  # noqa: E402
from torch import nn  # noqa: E402
from torch.nn.utils import parametrizations, prune  # noqa: E402

import ebb  # noqa: E402

pytestmark = pytest.mark.usefixtures("one_thread")


def net():
    return nn.Sequential(
        nn.Conv2d(3, 4, 3),
        nn.BatchNorm2d(4),
        nn.ReLU(),
        nn.MaxPool2d(2),
        nn.Dropout(0.2),
        nn.Flatten(),
        nn.Linear(36, 5),
    )


def test_names_values_parameters_and_hooks_stay():
    model = net()
    before, parameters, types = (
        copy.deepcopy(model.state_dict()),
        list(model.parameters()),
        [type(m) for m in model.modules()],
    )
    calls = []
    model[0].register_forward_hook(lambda *_: calls.append("forward"))
    model[0].register_full_backward_hook(lambda *_: calls.append("backward"))
    model[0].weight.register_hook(lambda g: calls.append("weight"))
    other = ebb.compress(model, 2)
    assert other is model
    assert all(one is two for one, two in zip(model.parameters(), parameters, strict=True))
    after = model.state_dict()
    assert list(after) == list(before) and all(torch.equal(after[name], before[name]) for name in before)
    assert after._metadata == before._metadata
    model(given(2, 3, 8, 8)).sum().backward()
    assert sorted(calls) == ["backward", "forward", "weight"]
    assert all(isinstance(m, t) for m, t in zip(model.modules(), types, strict=True))
    assert ebb.decompress(model) is model
    assert [type(m) for m in model.modules()] == types
    assert not any("ebb" in name for m in model.modules() for name in vars(m))
    ebb.decompress(model)


def test_once_more_with_other_options():
    model = net()
    for options in (dict(pool=2), dict(pool=1), dict(norm="int8"), dict(relu="exact"), dict(skip=["0", nn.ReLU])):
        ebb.compress(model, **options)
    assert type(model[0]) is nn.Conv2d and type(model[2]) is nn.ReLU and type(model[1]) is not nn.BatchNorm2d
    check_exact(ebb.decompress(model), given(2, 3, 8, 8))


def test_the_root_can_be_a_layer():
    layer = nn.Conv2d(3, 3, 3)
    check_exact(layer, given(2, 3, 8, 8))
    assert type(ebb.decompress(ebb.compress(layer, (2, 4)))) is nn.Conv2d
    with pytest.raises(ebb.Error, match="pool is 0 for the model itself"):
        ebb.compress(layer, 0)


def test_copies_and_files():
    model = ebb.compress(net(), 2, norm="int8", linear="int8")
    x = given(2, 3, 8, 8)
    expected = ran(model, x)
    file = io.BytesIO()
    torch.save(model, file)
    file.seek(0)
    for other in (copy.deepcopy(model), pickle.loads(pickle.dumps(model)), torch.load(file, weights_only=False)):
        found = ran(other, x)
        check_same(found, expected, but=lambda name: name.startswith("buffer"))
        assert [type(m) for m in other.modules()] == [type(m) for m in model.modules()]
        ebb.decompress(other)
        assert type(model[0]) is not nn.Conv2d, "a copy is another model"


def test_tensors_can_be_written_and_copied_as_before():
    model, x = ebb.compress(nn.Sequential(nn.Conv2d(3, 3, 1), nn.BatchNorm2d(3), nn.SiLU()), 2), given(2, 3, 8, 8)
    out = model(x)
    for tensor in (x, out):
        assert not vars(tensor)
        file = io.BytesIO()
        torch.save(tensor, file)
        file.seek(0)
        assert torch.equal(torch.load(file, weights_only=True), tensor)
    copy.deepcopy(x)


@pytest.mark.parametrize("before", [True, False], ids=["before", "after"])
@pytest.mark.parametrize(
    "what",
    [parametrizations.weight_norm, parametrizations.spectral_norm, lambda m: prune.l1_unstructured(m, "weight", 0.3)],
    ids=["weight norm", "spectral norm", "pruned"],
)
def test_parametrised_layers(what, before):
    """A parametrisation changes the class of a layer, too; reading a spectrally normed weight changes it."""
    torch.manual_seed(1)
    stock = nn.Sequential(
        nn.Conv2d(3, 4, 3), nn.BatchNorm2d(4), nn.ReLU(), nn.Conv2d(4, 4, 1), nn.Linear(6, 5), nn.LayerNorm((6, 5))
    )
    ours = copy.deepcopy(stock)
    if before:
        ebb.compress(ours)
    for model in (ours, stock):
        torch.manual_seed(2)
        for place in (0, 4):
            what(model[place])
    if not before:
        ebb.compress(ours)
    x = given(2, 3, 8, 8)
    for _ in range(2):
        check_same(ran(ours, x), ran(stock, x))
    ebb.decompress(ours)
    check_same(ran(ours, x), ran(stock, x))


def test_lossy_layers_with_a_parametrisation():
    torch.manual_seed(1)
    stock = nn.Sequential(parametrizations.spectral_norm(nn.Conv2d(3, 4, 3)), nn.Flatten(), nn.Linear(144, 5))
    ours = ebb.compress(copy.deepcopy(stock), 2, linear="int8")
    torch.manual_seed(4)
    parametrizations.spectral_norm(ours[2])
    torch.manual_seed(4)
    parametrizations.spectral_norm(stock[2])
    ours(given(2, 3, 8, 8)), ran(stock, given(2, 3, 8, 8))
    for one, two in zip(ours.state_dict().values(), stock.state_dict().values(), strict=True):
        assert torch.equal(one, two)


# Errors


@pytest.mark.parametrize(
    "options, message",
    [
        (dict(pool=0), "pool is 0 for 0; a block is a whole number from 1 on"),
        (dict(pool=True), "pool is True"),
        (dict(pool=1.5), "pool is 1.5"),
        (dict(pool="2"), "pool is '2'"),
        (dict(pool=(2, 2, 2)), "0, which has 2 spatial axes; give 2 numbers"),
        (dict(pool=[2]), "no child of the model contains convolutions of its own"),
        (dict(pool={"7": 2}), "pool names '7', which the model does not have"),
        (dict(pool={"1": 2}), "pool names '1', which has no convolution"),
        (dict(relu="int8"), "relu is 'int8'; it must be 'bits' or 'exact'"),
        (dict(norm="bits"), "norm is 'bits'"),
        (dict(linear="pool"), "linear is 'pool'"),
        (dict(pooling="mean"), "pooling is 'mean'"),
        (dict(skip=["nine"]), "skip names 'nine', which the model does not have; its layers are 0, 1"),
        (dict(skip=[3]), "skip has 3; it must be a layer's name, a type or a module"),
    ],
    ids=str,
)
def test_errors_change_nothing(options, message):
    model = ebb.compress(net(), 2)
    kinds, settings = [type(m) for m in model], copy.deepcopy(model[0].ebb_settings)
    with pytest.raises(ebb.Error, match=message.replace("(", r"\(")):
        ebb.compress(model, **options)
    assert [type(m) for m in model] == kinds and model[0].ebb_settings == settings


def test_errors_about_the_model():
    for function in (ebb.compress, ebb.decompress):
        with pytest.raises(ebb.Error, match="model is a int; it must be a torch.nn.Module"):
            function(3)


@pytest.mark.parametrize("mode", ["circular", "reflect", "replicate"])
def test_other_paddings_are_refused(mode):
    model = nn.Sequential(nn.Conv2d(3, 3, 3, padding=1, padding_mode=mode), nn.ReLU())
    with pytest.raises(
        ebb.Error, match=rf"0 pads with padding_mode='{mode}'; only 'zeros' can be compressed.*skip=\['0'\]"
    ):
        ebb.compress(model, 2)
    check_exact(model, given(2, 3, 8, 8), skip=["0"])


def test_blocks_by_stage_by_name_and_by_axis():
    model = nn.Sequential(
        nn.Conv2d(3, 4, 3), nn.Sequential(nn.Conv2d(4, 4, 1), nn.Conv2d(4, 4, 1)), nn.Sequential(nn.Conv2d(4, 4, 1))
    )

    def blocks(pool):
        ebb.compress(model, pool)
        return [m.ebb_settings.block for m in model.modules() if isinstance(m, nn.Conv2d)]

    assert blocks([2, (4, 1)]) == [(2, 2), (2, 2), (2, 2), (4, 1)]
    assert blocks({"": 3, "1": 2, "1.1": (1, 2)}) == [(3, 3), (2, 2), (1, 2), (3, 3)]
    assert blocks((1, 4)) == [(1, 4)] * 4


def test_a_layer_with_two_names_goes_by_both():
    shared = nn.Conv2d(3, 3, 1)
    model = nn.ModuleDict({"one": shared, "two": shared})
    ebb.compress(model, {"two": 2})
    assert shared.ebb_settings.block == (2, 2)
    ebb.compress(model, 2, skip=["two"])
    assert type(shared) is nn.Conv2d


@pytest.mark.parametrize(
    "pool, says", [([], "no child of the model"), ({0: 2}, "keys are names"), ({nn.Conv2d: 2}, "keys are names")]
)
def test_pool_of_a_wrong_form(pool, says):
    with pytest.raises(ebb.Error, match=says):
        ebb.compress(nn.Sequential(nn.Conv2d(3, 4, 3)), pool)


def test_a_layer_that_was_parametrised_later_is_undone_too():
    model = ebb.compress(nn.Sequential(nn.Conv2d(3, 4, 3)), {"0": 2})
    torch.nn.utils.parametrizations.weight_norm(model[0])
    assert type(ebb.decompress(model)[0]).__mro__[1] is nn.Conv2d
    nn.utils.parametrize.remove_parametrizations(model[0], "weight")
    assert type(model[0]) is nn.Conv2d and not hasattr(model[0], "ebb_settings")


def test_a_layer_that_has_become_another_is_not_undone_in_silence():
    model = ebb.compress(nn.Sequential(nn.ReLU()))
    model[0].__class__ = type("Own", (type(model[0]),), {})
    with pytest.raises(ebb.Error, match="has become Own"):
        ebb.decompress(model)


def test_scripted_models_are_refused():
    with pytest.raises(ebb.Error, match="torch.jit"):
        ebb.compress(torch.jit.script(nn.Sequential(nn.ReLU())))

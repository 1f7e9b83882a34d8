# SPDX-License-Identifier: Apache-2.0
"""ebb.compression_report: its figures against ones made another way, and that it leaves no trace."""

import json

import pytest

torch = pytest.importorskip("torch", reason="PyTorch is not installed")

from compressed_nets import NETS, everything, net_and_sample, same, training_peak  # noqa: E402

import ebb  # noqa: E402

pytestmark = pytest.mark.usefixtures("one_thread")


def kept_by_torch(model, sample):
    """Bytes that the hooks of torch see, each memory once."""
    seen = {}

    def pack(tensor):
        seen[tensor.untyped_storage().data_ptr()] = tensor.untyped_storage().nbytes()
        return tensor.detach()

    with torch.autograd.graph.saved_tensors_hooks(pack, lambda tensor: tensor):
        out = model(sample)
    for own in [*model.parameters(), *model.buffers(), sample]:
        seen.pop(own.untyped_storage().data_ptr(), None)
    del out
    return sum(seen.values())


def gradients(model, sample, loss):
    before = {name: value.clone() for name, value in model.state_dict().items()}
    loss(model(sample)).backward()
    found = {name: parameter.grad for name, parameter in model.named_parameters()}
    model.load_state_dict(before)
    for parameter in model.parameters():
        parameter.grad = None
    return found


@pytest.mark.parametrize("name", NETS)
@pytest.mark.sweep(2)
def test_bytes_are_those_that_are_kept(name):
    model, sample = net_and_sample(name)
    model.eval()
    stock, peak = kept_by_torch(model, sample), training_peak(model, sample)
    ebb.compress(model, pool=2, norm="int8", linear="int8")
    report = ebb.compression_report(model, sample)
    loss = sum(row.kept for row in report.rows if row.layer == "(loss)")
    assert report.totals.stock_kept == stock + loss
    assert report.totals.kept == kept_by_torch(model, sample) + loss
    assert report.totals.stock_peak == peak
    assert report.totals.peak == training_peak(model, sample) < peak
    assert report.totals.kept == sum(row.kept for row in report.rows) < report.totals.stock_kept


def test_errors_are_those_of_the_weight_gradients():
    model, sample = net_and_sample("residual")

    def loss(out):
        return out.square().sum()

    exact = gradients(model, sample, loss)
    ebb.compress(model, pool={"3.conv1": 2, "3.conv2": 2})
    lossy = gradients(model, sample, loss)
    rows = {row.layer: row for row in ebb.compression_report(model, sample, loss).rows}
    for name in ("3.conv1", "3.conv2"):
        one, two = exact[f"{name}.weight"].double(), lossy[f"{name}.weight"].double()
        assert rows[name].error == pytest.approx(float((one - two).norm() / one.norm())) and rows[name].error > 0.01
        assert rows[name].cosine == pytest.approx(float(torch.cosine_similarity(one.flatten(), two.flatten(), dim=0)))
        assert rows[name].way == "pool 2x2"
    for name in ("0", "3.norm1", "4.conv1", "8"):
        assert (rows[name].cosine, rows[name].error) == (1.0, 0.0)
    assert rows["3.relu"].cosine is None


def test_nothing_else_changes():
    model, sample = net_and_sample("transformer")
    model(sample).sum().backward()
    ebb.compress(model, linear="project")
    before = everything(model), sample.clone()
    ebb.compression_report(model, sample)
    assert same((everything(model), sample), before)
    with pytest.raises(ZeroDivisionError):
        ebb.compression_report(model, sample, lambda out: 1 / 0)
    assert same((everything(model), sample), before)


def test_what_no_layer_keeps_has_a_row():
    class Scaled(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.one, self.two = torch.nn.Linear(8, 8), torch.nn.Linear(8, 8)

        def forward(self, x):
            return self.one(x) * self.two(x)

    model = torch.nn.Sequential(Scaled(), torch.nn.ReLU())
    rows = {row.layer: row for row in ebb.compression_report(ebb.compress(model), torch.randn(4, 8)).rows}
    assert rows["0"].kind == "Scaled" and rows["0"].kept == rows["0"].stock_kept == 2 * 4 * 8 * 4
    assert rows["0.one"].kept == 0


class Takes(torch.nn.Module):
    """A layer that takes so long on a clock that nothing else moves: one and a half times that in backward."""

    def __init__(self, clock, seconds):
        super().__init__()
        self.clock, self.seconds = clock, seconds

    def forward(self, x):
        class Waits(torch.autograd.Function):
            @staticmethod
            def forward(ctx, x):
                self.clock[0] += self.seconds
                return x * 2

            @staticmethod
            def backward(ctx, grad):
                self.clock[0] += 1.5 * self.seconds
                return grad * 2

        return Waits.apply(x)


def test_times_are_those_of_the_layers(monkeypatch):
    clock = [100.0]
    monkeypatch.setattr("time.perf_counter", lambda: clock[0])
    model = torch.nn.Sequential(Takes(clock, 2.0), torch.nn.Conv2d(3, 4, 3), Takes(clock, 3.0), torch.nn.ReLU())
    sample = torch.randn(2, 3, 8, 8, requires_grad=True)
    report = ebb.compression_report(ebb.compress(model), sample)
    for side in ("seconds", "stock_seconds"):
        assert getattr(report.totals, side) == 12.5
        assert {row.layer: getattr(row, side) for row in report.rows} == {
            "0": 5.0,
            "1": 0,
            "2": 7.5,
            "3": 0,
            "(loss)": 0,
        }


def test_text_and_json():
    model, sample = net_and_sample("residual")
    report = ebb.compression_report(ebb.compress(model, pool=2), sample)
    found = json.loads(report.to_json())
    assert found == report.to_dict() and found["totals"]["kept"] == report.totals.kept
    lines = str(report).splitlines()
    assert "instead of" in lines[0] and lines[2].split()[:3] == ["layer", "kind", "way"]
    assert len({len(line) for line in lines[3:] if line.endswith("-")}) == 1
    assert repr(report).startswith("<ebb compression report")


def test_mistakes_are_named():
    model, sample = net_and_sample("plain")
    with pytest.raises(ebb.Error, match="ebb.compress"):
        ebb.compression_report(model, sample)
    with pytest.raises(ebb.Error, match="sample"):
        ebb.compression_report(ebb.compress(model), None)

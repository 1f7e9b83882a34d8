# SPDX-License-Identifier: Apache-2.0
"""The Python examples print what the same computation prints without ebb, and stay within their budgets."""

import importlib.util
import os
import pathlib
import re
import subprocess
import sys
from types import SimpleNamespace

import pytest

import ebb

EXAMPLES = pathlib.Path(__file__).parents[2] / "examples"
THEN = r"loss ([\d.]+), then ([\d.]+)"


def shown_by(*words):
    one_thread = {**os.environ, "OMP_NUM_THREADS": "1"}
    done = subprocess.run(
        [sys.executable, *words], cwd=EXAMPLES, env=one_thread, capture_output=True, text=True, timeout=900
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


def module(name, monkeypatch, *words):
    """An example as a module, with the words of its command line."""
    monkeypatch.setattr(sys, "argv", [name, *words])
    spec = importlib.util.spec_from_file_location(name, EXAMPLES / f"{name}.py")
    found = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(found)
    return found


def numbers(pattern, text):
    """Those that the pattern has in its groups, in its only match."""
    (found,) = re.findall(pattern, text)
    return [float(number) for number in ([found] if isinstance(found, str) else found)]


def peak_and_budget(text):
    """In bytes, of every "so many of so many": the largest, and the only budget there is."""
    units = {"B": 1, "KiB": 1 << 10, "MiB": 1 << 20}
    found = re.findall(r"([\d.]+) (B|KiB|MiB) of ([\d.]+) (B|KiB|MiB)", text)
    (budget,) = {float(budget) * units[unit] for _, _, budget, unit in found}
    return max(float(peak) * units[unit] for peak, unit, _, _ in found), budget


def test_wave_adjoint(monkeypatch):
    np = pytest.importorskip("numpy")
    shown = shown_by("wave_adjoint.py")
    example = module("wave_adjoint", monkeypatch)
    truth = np.ones((example.POINTS, example.POINTS))
    truth[25:35, 20:40] = 0.6
    observed = example.misfit_of(truth, np.zeros((example.STEPS, 10))).seen
    plain = example.misfit_of(np.ones_like(truth), observed).misfit()
    (misfit,) = numbers(r"misfit ([\d.]+); the gradient is bit-identical to keeping everything", shown)
    assert misfit == pytest.approx(plain, abs=1e-6) and plain > 1e-3
    found, by_differences = numbers(r"along a direction: (-?[\d.]+), by finite differences (-?[\d.]+)", shown)
    assert found == pytest.approx(by_differences, rel=1e-5) and abs(found) > 1e-4


def test_pyadjoint_populations(monkeypatch):
    pytest.importorskip("pyadjoint", reason="the package pyadjoint-ad is not installed")
    shown = shown_by("pyadjoint_populations.py")
    example = module("pyadjoint_populations", monkeypatch)

    def misfit(hares, lynxes):
        for _ in range(example.STEPS):
            eaten = 0.05 * hares * lynxes
            hares, lynxes = hares + 0.05 * hares - eaten, lynxes + eaten - 0.05 * lynxes
        return (hares - example.COUNTED[0]) ** 2 + (lynxes - example.COUNTED[1]) ** 2

    around = [(misfit(1.4 + h, 0.7), misfit(1.4, 0.7 + h)) for h in (1e-5, -1e-5)]
    by_differences = [(up - down) / 2e-5 for up, down in zip(*around)]
    gradient = numbers(r"gradient (-?[\d.]+) (-?[\d.]+); without the schedule: the same", shown)
    assert gradient == pytest.approx(by_differences, abs=1e-5) and min(map(abs, gradient)) > 0.1
    forwards, slots, steps = numbers(r"(\d+) steps forward with (\d+) of (\d+) states kept", shown)
    assert steps < forwards < 5 * steps and slots < steps / 10
    assert numbers(r"falls with order ([\d.]+)", shown) == pytest.approx([2], abs=0.02)


@pytest.mark.slow
def test_devito_fwi():
    pytest.importorskip("devito", reason="the package devito is not installed")
    pytest.importorskip("pyrevolve", reason="the package pyrevolve is not installed")
    shown = shown_by("devito_fwi.py", "--small", "--repeat", "1")
    assert re.search(r"misfit [\d.]+; gradients: the same bits", shown)
    assert numbers(r"falls with order ([\d.]+)", shown) == pytest.approx([2], abs=0.1)
    row = re.compile(r"\| (Devito, all stored|pyrevolve|ebb|ebb and a file) +\| +([\d.]+) \| +([\d.]+) \|")
    found = {name: (float(memory), float(file)) for name, memory, file in row.findall(shown)}
    assert found["ebb"][0] <= found["pyrevolve"][0] + 0.05 < found["Devito, all stored"][0] / 4
    assert found["ebb and a file"][0] <= found["pyrevolve"][0] + 0.05 and found["ebb and a file"][1] > 0


@pytest.mark.slow
def test_pytorch_rnn(one_thread, monkeypatch, capsys):
    import torch

    shown = shown_by("pytorch_rnn.py", "60")
    example = module("pytorch_rnn", monkeypatch, "60")

    class Plain(torch.nn.GRU):
        report = None

        def __init__(self, *sizes, budget):
            super().__init__(*sizes)

    monkeypatch.setattr(ebb.nn, "GRU", Plain)
    example.main()
    plain = capsys.readouterr().out
    losses, wanted = (
        numbers(r"iteration +0  loss ([\d.]+)\niteration +50  loss ([\d.]+)", text) for text in (shown, plain)
    )
    # ebb's cells add in another order than torch's; 60 iterations make little of it.
    assert losses == pytest.approx(wanted, rel=0.01)
    mean = r"mean of the last 20 losses: ([\d.]+)"
    assert numbers(mean, shown) == pytest.approx(numbers(mean, plain), rel=0.01)
    assert numbers(mean, shown)[0] < 0.5 * losses[0]
    peak, budget = peak_and_budget(shown)
    assert 0 < peak <= budget == 512 << 10


@pytest.mark.slow
def test_pytorch_spiking(one_thread, monkeypatch, capsys):
    from scan_oracle import loop

    shown = shown_by("pytorch_spiking.py")
    example = module("pytorch_spiking", monkeypatch)
    monkeypatch.setattr(ebb, "scan", lambda f, init, xs, budget, reduce: loop(f, init, xs, reduce=reduce))
    monkeypatch.setattr(ebb, "last_report", lambda: SimpleNamespace(brief=lambda: ""))
    example.main()
    # As many iterations as these would show one other bit.
    assert shown.splitlines()[0] == capsys.readouterr().out.splitlines()[0]
    first, last = numbers(THEN, shown)
    assert last < 0.5 * first
    peak, budget = peak_and_budget(shown)
    assert 0 < peak <= budget == 512 << 10


@pytest.mark.slow
def test_pytorch_compress(one_thread):
    head, *lines = shown_by("pytorch_compress.py", "5").splitlines()
    row = re.compile(r"(stock|exact|pool 2|fit 50%) +([\d.]+) MiB +([\d.]+) MiB +(\d+) ms +([\d.]+) +([\d.]+)")
    found = {
        name: [float(number) for number in rest] for name, *rest in (row.fullmatch(line).groups() for line in lines[:4])
    }
    kept, peak, _, first, last = zip(*(found[name] for name in ("stock", "exact", "pool 2", "fit 50%")))
    assert head.split() == ["kept", "peak", "time", "first", "loss", "last", "loss"]
    assert kept[0] > kept[1] > kept[2]
    assert peak[3] <= 0.5 * peak[0] + 0.05  # one digit is shown
    assert len(set(first)) == 1 and last[0] == last[1] == last[3] != last[2]
    assert max(last) < first[0]
    assert lines[4] == "bit for bit stock's losses: exact, fit 50%"


def losses_without_ddp(example, ranks):
    """What the processes do together, in one: the mean of their losses, by a plain loop."""
    import torch

    torch.manual_seed(0)
    model = example.Model()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    generators = [torch.Generator().manual_seed(1 + rank) for rank in range(ranks)]
    losses = []
    for _ in range(5):
        parts = []
        for generator in generators:
            xs = torch.randn(400, 8, 4, generator=generator)
            h = torch.zeros(8, 16)
            for x in xs:
                h = model.cell(x, h)
            parts.append((model.out(h) - xs.mean((0, 2))[:, None]).pow(2).mean())
        loss = sum(parts) / ranks
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    return losses


@pytest.mark.slow
def test_pytorch_ddp(one_thread, monkeypatch):
    shown = shown_by("-m", "torch.distributed.run", "--nproc-per-node", "2", "pytorch_ddp.py")
    assert "2 processes have the same parameters" in shown
    wanted = losses_without_ddp(module("pytorch_ddp", monkeypatch), 2)
    assert numbers(THEN, shown) == pytest.approx([wanted[0], wanted[-1]], abs=2e-6)
    assert wanted[-1] < wanted[0]
    peak, budget = peak_and_budget(shown)
    assert 0 < peak <= budget == 256 << 10


@pytest.mark.slow
def test_pytorch_compiled():
    """Compilation takes most of the time."""
    pytest.importorskip("torch")
    plain, exact, rounded = shown_by("pytorch_compiled.py").splitlines()
    (wanted,) = numbers(r"loss ([\d.]+)$", plain)
    pattern = r"loss ([\d.]+), keeps ([\d.]+) MiB of ([\d.]+) MiB, peak ([\d.]+) MiB of ([\d.]+) MiB"
    (found,) = re.findall(pattern, exact)
    loss, kept, whole, peak, most = map(float, found)
    assert loss == pytest.approx(wanted, abs=2e-4)
    assert kept < whole
    assert peak <= 0.6 * most + 0.01
    (found,) = re.findall(pattern, rounded)
    loss, kept, whole, peak, most = map(float, found)
    assert loss == pytest.approx(wanted, rel=0.01)
    assert kept < 0.4 * whole

# SPDX-License-Identifier: Apache-2.0
"""The programs in docs/recipes.md run, in their budgets, and have the gradients of the same loops by hand."""

import copy
import pathlib
import re

import pytest

torch = pytest.importorskip("torch", reason="PyTorch is not installed")
from torch.optim.optimizer import register_optimizer_step_post_hook  # noqa: E402

import ebb  # noqa: E402
import ebb.nn  # noqa: E402

PAGE = pathlib.Path(__file__).parents[2] / "docs" / "recipes.md"
PACKAGES = ["snntorch", "norse", "spikingjelly", "lightning", "accelerate", "torchdiffeq"]


def programs(package):
    """Those of its section."""
    sections = re.split(r"^## ", PAGE.read_text(), flags=re.M)[1:]
    (section,) = [section for section in sections if section.split("\n", 1)[0].lower() == package]
    return re.findall(r"^```python\n(.*?)^```$", section, re.S | re.M)


def run(program):
    """The names that it leaves behind, and its gradients: after each step of an optimiser, and at the end."""
    torch.manual_seed(0)
    names, found = {}, []
    hook = register_optimizer_step_post_hook(
        lambda optimiser, *_: found.extend(p.grad.clone() for group in optimiser.param_groups for p in group["params"])
    )
    try:
        exec(compile(program, "a recipe", "exec"), names)
    finally:
        hook.remove()
    for value in names.values():
        if isinstance(value, torch.nn.Module):
            found += [p.grad for p in value.parameters() if p.grad is not None]
        elif isinstance(value, torch.nn.Parameter):
            found.append(value.grad)
    return names, found


def plain_scan(f, carry, xs, budget, dim=0):
    ys = []
    for x in xs.unbind(dim):
        carry, y = f(carry, x)
        ys.append(y)
    return carry, None if ys[0] is None else torch.stack(ys, dim)


def plain_while_loop(cond, f, carry, budget):
    while cond(carry):
        carry = f(carry)
    return carry


def run_by_hand(program, monkeypatch):
    with monkeypatch.context() as patch:
        patch.setattr(ebb, "scan", plain_scan)
        patch.setattr(ebb, "while_loop", plain_while_loop)
        patch.setattr(ebb.nn, "convert", lambda model, budget: model)
        return run(program)


def compare(program, monkeypatch):
    """Every bit; and the budget is so small that steps were computed again in it. Returns the names that it leaves behind."""
    names, found = run(program)
    report = ebb.last_report()
    assert report.measured["forwards"] > report.steps
    assert report.measured["charged"]["fast"] <= report.budget
    wanted = run_by_hand(program, monkeypatch)[1]
    assert len(found) == len(wanted) > 0 and all(bool(one.any()) for one in wanted)
    assert all(torch.equal(ours, theirs) for ours, theirs in zip(found, wanted))
    return names


@pytest.fixture(autouse=True)
def alone(one_thread, tmp_path, monkeypatch):
    """Trainers write to the folder that they are started in."""
    monkeypatch.chdir(tmp_path)


def need(package):
    pytest.importorskip(package, reason=f"the package {package} is not installed")


@pytest.mark.parametrize("package", ["snntorch", "norse", "spikingjelly"])
def test_spiking(package, monkeypatch):
    need(package)
    for program in programs(package):
        if "ebb.scan(" in program:
            compare(program, monkeypatch)
        else:
            run(program)


@pytest.mark.slow  # its import takes seconds
def test_lightning(monkeypatch):
    need("lightning")
    (program,) = programs("lightning")
    names = compare(program, monkeypatch)
    model, trainer = names["model"], names["trainer"]
    assert trainer.global_step == 4
    assert 0 < trainer.logged_metrics["memory"] == model.budget.peak <= model.budget.total


def test_accelerate(monkeypatch):
    need("accelerate")
    (program,) = programs("accelerate")
    program = program.replace("Accelerator(", "Accelerator(cpu=True, ")  # on a GPU cuDNN alone takes 8 MiB
    names, found = run(program)
    model = names["model"]
    assert type(model.lstm) is ebb.nn.LSTM and names["optimiser"].step_was_skipped is False
    assert model.lstm.report.peak <= model.lstm.budget.total == 512 << 10
    wanted = run_by_hand(program, monkeypatch)[1]
    assert len(found) == len(wanted) == 2 * len(list(model.parameters()))  # two steps, of two batches each
    for ours, theirs in zip(found, wanted):
        torch.testing.assert_close(ours, theirs, rtol=1e-4, atol=1e-6 * float(theirs.abs().max()))


@pytest.mark.parametrize("method", ["rk4", pytest.param("dopri5", marks=pytest.mark.slow)])
def test_torchdiffeq(method, monkeypatch):
    need("torchdiffeq")
    for program in programs("torchdiffeq"):
        compare(program.replace('"rk4"', f'"{method}"'), monkeypatch)


@pytest.mark.parametrize("method", ["euler", "midpoint", "rk4"])
def test_torchdiffeq_on_a_fixed_grid_agrees_with_one_call(method):
    need("torchdiffeq")
    import torchdiffeq

    names, found = run(programs("torchdiffeq")[0].replace('"rk4"', f'"{method}"'))
    field = copy.deepcopy(names["field"])
    field.zero_grad()
    ys = torchdiffeq.odeint(lambda t, y: field(y), names["start"], names["times"], method=method)[1:]
    ys.pow(2).mean().backward()
    assert torch.equal(ys, names["ys"])
    for ours, p in zip(found, field.parameters()):
        torch.testing.assert_close(ours, p.grad, rtol=1e-4, atol=1e-6 * float(p.grad.abs().max()))


def test_every_package_has_a_recipe():
    assert all(programs(package) for package in PACKAGES)

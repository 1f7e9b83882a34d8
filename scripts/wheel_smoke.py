# SPDX-License-Identifier: Apache-2.0
"""The installed package is this environment's own and works by itself: plans, replays, runs, refuses, works on tensors.

`wheel_smoke.py index` is for the wheel that ./dev wheel makes: it has CUDA kernels and brings its libraries.
`wheel_smoke.py sources` is for a wheel of this machine, made from an sdist.
"""

import importlib.metadata
import pathlib
import re
import subprocess
import sys
import tempfile

import ebb
from ebb import _core

IMPORT = """
import sys, time
start = time.perf_counter()
import ebb
print(time.perf_counter() - start, *sorted({"numpy", "torch"} & set(sys.modules)))
"""
# What a wheel for an index may expect of a system; the module brings its own libstdc++.
SYSTEM = r"lib(c|m|dl|rt|pthread|gcc_s)\.so\.\d|ld-linux-.*\.so\.\d"


def must_refuse(call, **keywords):
    try:
        call(**keywords)
    except ebb.Error as error:
        assert error.code == "infeasible_budget" and error.least_budget > 0, error
    else:
        raise AssertionError(f"{call} refuses nothing")


def needed(library):
    dynamic = subprocess.run(["readelf", "-d", library], check=True, capture_output=True, text=True).stdout
    return set(re.findall(r"\(NEEDED\).*\[(.*)\]", dynamic))


def check_import():
    runs = [
        subprocess.run([sys.executable, "-c", IMPORT], check=True, capture_output=True, text=True) for _ in range(5)
    ]
    seconds, *loaded = zip(*(run.stdout.split() for run in runs))
    assert not loaded, f"import ebb loads {loaded}"
    print(f"import ebb: {min(map(float, seconds)):.3f} s, best of {len(runs)}")


def check_plan():
    chain = dict(state="1KiB", tape="4KiB")
    plan = ebb.plan(100, forward=1, backward=2, budget="32KiB", **chain)
    assert plan.seconds < 2 * 300, plan
    assert ebb.replay(plan.actions(), 100, forward=1, backward=2, budget="32KiB", **chain).seconds == plan.seconds
    must_refuse(ebb.plan, steps=100, budget="4KiB", **chain)


def check_run():
    import numpy as np

    class Cubic:
        steps = 1000

        def forward(self, i, u):
            return u - 0.1 * u**3

        def backward(self, i, before, after, adjoint):
            return adjoint * (1 - 0.3 * before**2)

    case = dict(step=Cubic(), initial=np.linspace(0, 1, 64), adjoint=np.ones(64))
    whole = ebb.run(**case, strategy="store_all")
    with tempfile.TemporaryDirectory() as folder:
        for tier in ebb.memory_tier("256KiB"), ebb.file_tier(folder, "256KiB"):
            found = ebb.run(**case, budget="32KiB", tiers=tier)
            assert np.array_equal(found.gradient, whole.gradient) and found.report.booked <= 32 << 10, found.report
    must_refuse(ebb.run, **case, budget="1KiB")


def check_torch():
    """Errors of the library and of a step cross the border beside another copy of the C++ runtime, torch's."""
    import torch

    cell, start, inputs = torch.nn.GRUCell(4, 16), torch.zeros(8, 16), torch.randn(200, 8, 4)

    def step(h, x):
        h = cell(x, h)
        return h, h

    def gradient(loop, *arguments, **keywords):
        cell.zero_grad()
        loop(*arguments, **keywords)[0].sum().backward()
        return cell.weight_hh.grad

    def plain():
        h = start
        for x in inputs:
            h, _ = step(h, x)
        return (h,)

    assert torch.equal(gradient(ebb.scan, step, start, inputs, budget="512KiB"), gradient(plain))
    must_refuse(ebb.scan, f=step, init=start, xs=inputs, budget="1KiB")

    def failing(h, x):
        raise ZeroDivisionError

    try:
        ebb.scan(failing, start, inputs, budget="512KiB")
    except ZeroDivisionError:
        return
    raise AssertionError("an error of a step is lost")


def check_libraries():
    """All that the wheel links is in every system or beside it."""
    folder = pathlib.Path(_core.__file__).parent
    beside = {each.name: each for each in (folder.parent / "ebb.libs").glob("*")}
    module = needed(_core.__file__) - set(beside)
    assert module and all(re.fullmatch(SYSTEM, name) for name in module), module
    for name, path in beside.items():
        foreign = [
            each for each in needed(path) - set(beside) if not re.fullmatch(SYSTEM + r"|libstdc\+\+\.so\.6", each)
        ]
        assert not foreign, (name, foreign)
    print(f"the module needs {', '.join(sorted(module))} and, beside it, {', '.join(sorted(beside))}")


[kind] = sys.argv[1:]
assert kind in ("index", "sources"), kind
assert pathlib.Path(ebb.__file__).is_relative_to(sys.prefix), ebb.__file__
assert ebb.__version__ == importlib.metadata.version("ebb")
check_import()
check_plan()
check_run()
check_torch()
if kind == "index":
    assert "-manylinux_" in importlib.metadata.distribution("ebb").read_text("WHEEL")
    check_libraries()
assert ebb.gpu_kernels() == (("8.0", "9.0") if kind == "index" else ()), ebb.gpu_kernels()
why_not = _core.gated_unfit(_core.GatedShape("LSTM", "bfloat16", 1, 1, 64, False))  # an answer without a driver, too
print(f"ebb {ebb.__version__} from {ebb.__file__}: kernels: {why_not or 'run here'}")

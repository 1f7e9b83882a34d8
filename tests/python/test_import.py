# SPDX-License-Identifier: Apache-2.0
"""The package imports with NumPy alone, prints nothing, and brings the types of its module."""

import ast
import importlib
import importlib.resources
import pathlib
import pickle
import re
import subprocess
import sys
import traceback

import pytest

import ebb
from ebb import _core

WITHOUT = """
import sys
class Blocked:
    def find_spec(self, name, path=None, target=None):
        if name.split(".")[0] in ("torch", "checkpoint_schedules", "triton"):
            raise ImportError("blocked: " + name)
sys.meta_path.insert(0, Blocked())
import ebb
assert ebb.plan(100, budget=20).seconds > 0
slow = ("torch", "checkpoint_schedules", "numpy")
assert not any(name.split(".")[0] in slow for name in sys.modules)
import numpy as np
class Step:
    steps = 3
    def forward(self, i, u): return 2 * u
    def backward(self, i, before, after, adjoint): return 2 * adjoint
assert len(list(ebb.schedules.Revolve(3, 1))) == 12
assert ebb.run(Step(), np.ones(2), adjoint=np.ones(2)).gradient.tolist() == [8.0, 8.0]
"""


def test_works_without_torch():
    done = subprocess.run([sys.executable, "-c", WITHOUT], capture_output=True, text=True)
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")


def test_has_a_version_and_types():
    assert re.fullmatch(r"\d+\.\d+\.\d+.*", ebb.__version__)
    files = importlib.resources.files("ebb")
    assert (files / "py.typed").is_file()


def test_the_citation_has_the_same_version():
    citation = pathlib.Path(__file__).parents[2] / "CITATION.cff"
    assert f"\nversion: {ebb.__version__}\n" in citation.read_text()


def test_stubs_say_what_the_module_has():
    stub = pathlib.Path(_core.__file__).with_name("_core.pyi")
    named = set()
    for node in ast.parse(stub.read_text()).body:
        if isinstance(node, (ast.ClassDef, ast.FunctionDef)):
            named.add(node.name)
        elif isinstance(node, ast.AnnAssign):
            named.add(node.target.id)
    public = {name for name in vars(_core) if not name.startswith("_")}
    assert public <= named
    assert "std::" not in stub.read_text(), "a type that Python cannot take"


def test_what_is_not_there_is_an_attribute_error():
    assert not hasattr(ebb, "nonsense")
    assert set(ebb.__all__) <= set(dir(ebb))


@pytest.mark.parametrize("home", ["ebb", "ebb.nn"])
def test_public_classes_show_as_their_users_write_them(home):
    if home == "ebb.nn":
        pytest.importorskip("torch")
    for name in importlib.import_module(home).__all__:
        try:
            value = getattr(importlib.import_module(home), name)
        except (ImportError, ebb.Error):
            continue  # needs what is not installed
        if isinstance(value, type):
            assert f"{value.__module__}.{value.__qualname__}" == f"{home}.{name}"
            assert pickle.loads(pickle.dumps(value)) is value


def test_errors_show_as_ebb_error_and_can_be_pickled():
    with pytest.raises(ebb.Error) as raised:
        ebb.plan(100, state="1MiB", tape="4MiB", budget="3MiB")
    assert traceback.format_exception_only(raised.value)[-1].startswith("ebb.Error: ")
    again = pickle.loads(pickle.dumps(raised.value))
    assert (str(again), again.code, again.least_budget, again.remedy) == (
        str(raised.value),
        "infeasible_budget",
        raised.value.least_budget,
        raised.value.remedy,
    )

# SPDX-License-Identifier: Apache-2.0
"""The package imports with NumPy alone, prints nothing, and brings the types of its module."""

import ast
import importlib.resources
import pathlib
import re
import subprocess
import sys

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
assert not any(name.split(".")[0] in ("torch", "checkpoint_schedules") for name in sys.modules)
assert ebb.plan(100, budget=20).seconds > 0
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

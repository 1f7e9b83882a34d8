# SPDX-License-Identifier: Apache-2.0
"""`py.typed` is true: the package type-checks, and what its users write against it."""

from __future__ import annotations

import os
import pathlib
import subprocess
import sys

import pytest

import ebb

pytest.importorskip("torch")
pytest.importorskip("mypy", reason="no mypy here: the types of the package are not checked")
pytestmark = pytest.mark.slow

ROOT = pathlib.Path(__file__).resolve().parents[2]

USE = """
import torch

import ebb

cell = torch.nn.GRUCell(3, 5)


def f(h: torch.Tensor, x: torch.Tensor) -> tuple[torch.Tensor, None]:
    return cell(x, h), None


shared = ebb.Budget("1MiB")
h, _ = ebb.scan(f, torch.zeros(2, 5), torch.randn(9, 2, 3), budget=shared, tiers=[ebb.memory_tier("1MiB")])
layer = ebb.nn.LSTM(3, 5, budget=shared)
chain = ebb.Chain(torch.nn.Sequential(torch.nn.Linear(2, 2)), torch.zeros(1, 2), budget=4096)
plan: ebb.Plan = ebb.plan(100, budget=50)
actions: int = sum(1 for _ in plan.actions())
held: int = shared.held + plan.peak["fast"]
net: torch.nn.Linear = ebb.compress(torch.nn.Linear(2, 2))
"""


def mypy(*words: str, cwd: pathlib.Path) -> str:
    """What it finds; the package is the one that these tests import."""
    package = pathlib.Path(ebb.__file__).absolute().parents[1]
    done = subprocess.run(
        [sys.executable, "-m", "mypy", "--no-color-output", *words],
        cwd=cwd,
        env={**os.environ, "MYPYPATH": str(package)},
        capture_output=True,
        text=True,
    )
    return done.stdout + done.stderr


@pytest.fixture(scope="module")
def cache(tmp_path_factory):
    """torch takes a while to read."""
    return tmp_path_factory.mktemp("mypy")


def test_the_package_type_checks(cache):
    words = ["--config-file", str(ROOT / "pyproject.toml"), "--cache-dir", str(cache / "package")]
    assert "Success: no issues found" in mypy(*words, cwd=ROOT)


@pytest.mark.parametrize(
    ("wrong", "said"),
    [
        ("", "Success: no issues found"),
        ("ebb.scan(f, h, h, budget=[1])", 'argument "budget" to "scan" has incompatible type "list[int]"'),
        ("ebb.Budget(None)", 'argument 1 to "budget" has incompatible type "none"'),
        ("ebb.nn.LSTM(3, 5, budget=[1])", 'argument "budget" to "lstm" has incompatible type'),
        ("plan.strategy + 1", "unsupported operand types"),
        ("ebb.skan", 'module has no attribute "skan"'),
    ],
)
def test_what_users_write_type_checks(wrong, said, tmp_path, cache):
    (tmp_path / "use.py").write_text(USE + wrong + "\n")
    # As for an installed package: what is in it is not the user's to mend.
    words = [
        "--disallow-untyped-defs",
        "--follow-imports=silent",
        "--config-file",
        os.devnull,
        "--cache-dir",
        str(cache),
        "use.py",
    ]
    assert said.lower() in mypy(*words, cwd=tmp_path).lower()

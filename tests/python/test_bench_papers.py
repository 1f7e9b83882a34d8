# SPDX-License-Identifier: Apache-2.0
"""`./dev bench papers`: small experiments of this build become tables and figures."""

import json
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

pytest.importorskip("matplotlib", reason="matplotlib is not installed")
ROOT = Path(__file__).resolve().parents[2]
pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif("EBB_BINARY" not in os.environ, reason="EBB_BINARY does not name the program ebb"),
]
PROGRAM = [sys.executable, str(ROOT / "bench/papers/measure.py")]


def run(*words):
    done = subprocess.run([*PROGRAM, *words], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return done.stdout


@pytest.mark.parametrize("name", ["gruslys", "kukreja", "bencheikh", "barley"])
def test_a_small_experiment_is_measured_and_drawn(name):
    said = run(name, "--quick")
    assert re.match(r".*:\n\n\|.*\|\n\|[-:|]+\|\n", said)
    found = json.loads((ROOT / f"build/papers/{name}.json").read_text())
    assert found["machine"] and found["date"]
    points = [point for value in found.values() if isinstance(value, list) for point in value]
    assert all(point.get("same_gradient", True) for point in points)
    picture = (ROOT / f"build/papers/paper-{name}.svg").read_text()
    # The same data make the same picture.
    assert run(name, "--quick", "--draw") == said
    assert (ROOT / f"build/papers/paper-{name}.svg").read_text() == picture

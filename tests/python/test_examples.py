# SPDX-License-Identifier: Apache-2.0
"""The Python examples check themselves; here they run."""

import pathlib
import subprocess
import sys

import pytest

EXAMPLES = pathlib.Path(__file__).parents[2] / "examples"


@pytest.mark.parametrize("name, words", [("wave_adjoint.py", "has the bits of keeping everything")])
def test_runs(name, words):
    done = subprocess.run([sys.executable, EXAMPLES / name], capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr
    assert words in done.stdout

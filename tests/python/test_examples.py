# SPDX-License-Identifier: Apache-2.0
"""The Python examples check themselves; here they run."""

import pathlib
import subprocess
import sys

import pytest

EXAMPLES = pathlib.Path(__file__).parents[2] / "examples"


CASES = [
    (["wave_adjoint.py"], "has the bits of keeping everything"),
    (["pytorch_rnn.py", "60"], "of 512 KiB"),
    (["pytorch_compress.py", "3"], "bit for bit stock's losses: exact, fit 50%"),
    (["pytorch_spiking.py"], "right in the last 10 iterations: 100 %"),
    (
        ["-m", "torch.distributed.run", "--nproc-per-node", "2", "pytorch_ddp.py"],
        "2 processes have the same parameters",
    ),
]


@pytest.mark.slow
@pytest.mark.parametrize("words, shown", CASES, ids=lambda case: case[-1] if isinstance(case, list) else "")
def test_runs(words, shown):
    if any("pytorch" in word for word in words):
        pytest.importorskip("torch")
    done = subprocess.run([sys.executable, *words], cwd=EXAMPLES, capture_output=True, text=True, timeout=240)
    assert done.returncode == 0, done.stderr
    assert shown in done.stdout

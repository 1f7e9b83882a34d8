# SPDX-License-Identifier: Apache-2.0
"""A long run that is killed again and again: the bits of one that is not, in memory that does not grow."""

import json
import pathlib
import random

import pytest
from train_program import column, ebb, needs_program, start, tensors

pytestmark = [needs_program, pytest.mark.slow]
ITERATIONS = 100_000
WORDS = (
    f"--task adding --steps 12 --cell gru --hidden 6 --batch 2 --iterations {ITERATIONS} --budget 4KiB"
    " --test-samples 0 --threads 1 --save-seconds 0.1 --lr 1e-4 --json"
)


def resident(process):
    """Kilobytes, now; 0 where it has ended."""
    status = pathlib.Path(f"/proc/{process.pid}/status").read_text()
    return int(status.partition("VmRSS:")[2].split()[0]) if "VmRSS:" in status else 0


def iterations(folder):
    path = folder / "train.json"
    return json.loads(path.read_text())["iteration"] if path.exists() else 0


def test_a_hundred_thousand_iterations_with_kills(tmp_path):
    folder, straight = tmp_path / "run", tmp_path / "straight"
    moments = random.Random(7)
    sizes, kills = [], 0
    while iterations(folder) < ITERATIONS:
        before = iterations(folder)
        process = start(f"--resume {folder} --json" if before else f"{WORDS} --out {folder}")
        first, last = 0, moments.randrange(5_000, 15_000)
        for line, _ in enumerate(process.stdout):
            if line == 1_000:
                first = resident(process)
            if line == last and (now := resident(process)):
                sizes.append((first, now))
                process.kill()
                kills += 1
                break
        _, err = process.communicate(timeout=600)
        assert process.returncode in (0, -9), err
        assert iterations(folder) > before, "nothing is saved between two kills"
    assert kills >= 7
    assert all(last - first <= 1024 for first, last in sizes), sizes
    assert max(last for _, last in sizes) - min(last for _, last in sizes) <= 4096, sizes
    ebb(f"{WORDS} --out {straight}", timeout=900)
    assert tensors(folder) == tensors(straight)
    assert column(folder, "lr") == column(straight, "lr")

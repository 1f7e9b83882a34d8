# SPDX-License-Identifier: Apache-2.0
"""What `ebb train` says that it holds, beside what it has resident at most."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

EBB = os.environ.get("EBB_BINARY")
pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(not EBB, reason="EBB_BINARY does not name the program ebb"),
]
MIB = 1 << 20

NETS = [
    "--task adding --cell lstm --hidden 2048 --steps 32 --batch 4 --budget 20%",
    "--task adding --cell lstm --hidden 512 --steps 200 --budget 5%",
    "--task adding --cell gru --hidden 1024 --steps 64 --batch 4 --budget 10% --optimiser sgd",
    "--task copy --cell lif --hidden 256 --batch 64 --budget 5% --optimiser sgd --momentum 0.9",
    "--task text --data TEXT --steps 64 --cell lstm --hidden 256 --budget 8MiB --optimiser adamw",
    "--task adding --cell rnn --hidden 768 --steps 100 --strategy truncated:20 --dtype double --batch 8",
]


def peak(folder: Path, *words: str) -> tuple[int, str]:
    program = Path(__file__).with_name("peak_program.py")
    command = [sys.executable, "-I", "-S", program, folder / "output", EBB, *words]
    done = subprocess.run(command, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return int(done.stdout) * 1024, (folder / "output").read_text()


def stated(output: str) -> int:
    plan = json.loads(output.splitlines()[0])
    return plan["beside"] + max(plan["peak"], plan["planning"])


@pytest.mark.parametrize("net", NETS)
def test_resident_memory_is_what_the_plan_says(net: str, tmp_path: Path) -> None:
    text = tmp_path / "text"
    text.write_bytes(bytes(range(97, 122)) * 400_000)
    run = str(tmp_path / "run")
    base, _ = peak(tmp_path, "--version")
    words = net.replace("TEXT", str(text)).split() + ["--test-samples", "1"]
    trained, output = peak(tmp_path, "train", *words, "--iterations", "2", "--out", run, "--json")
    allowed = stated(output) * 1.05 + 4 * MIB
    assert trained - base <= allowed, f"training: {(trained - base) / MIB:.1f} MiB, {output}"
    resumed, output = peak(tmp_path, "train", "--resume", run, "--iterations", "4", "--json")
    allowed = stated(output) * 1.05 + 4 * MIB
    assert resumed - base <= allowed, f"resuming: {(resumed - base) / MIB:.1f} MiB, {output}"

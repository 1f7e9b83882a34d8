# SPDX-License-Identifier: Apache-2.0
"""`ebb.compiled` under DDP in two processes."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

torch = pytest.importorskip("torch")
pytest.importorskip("torch.distributed", reason="PyTorch was built without distributed")
if not torch.distributed.is_gloo_available():
    pytest.skip("PyTorch was built without gloo", allow_module_level=True)

PROGRAM = Path(__file__).with_name("compiled_ddp_program.py")


@pytest.fixture(scope="module")
def found(tmp_path_factory: pytest.TempPathFactory) -> list[dict[str, Any]]:
    file = tmp_path_factory.mktemp("compiled") / "found.pt"
    torchrun = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node=2"]
    done = subprocess.run(
        [*torchrun, str(PROGRAM), "--file", str(file)],
        capture_output=True,
        text=True,
        timeout=600,
        env={**os.environ, "OMP_NUM_THREADS": "1"},
    )
    assert done.returncode == 0, done.stderr[-3000:]
    return [torch.load(f"{file}.{rank}") for rank in range(2)]


@pytest.mark.slow
def test_parameters_have_the_bits_of_torchs_own_choice(found: list[dict[str, Any]]) -> None:
    assert found[0]["graphs"] > 1
    for name, value in found[0]["torch"].items():
        assert torch.equal(found[0]["exact"][name], value), name


@pytest.mark.slow
@pytest.mark.parametrize("way", ["exact", "int8"])
def test_processes_agree(found: list[dict[str, Any]], way: str) -> None:
    ours, theirs = (one[way] for one in found)
    for name, value in ours.items():
        assert value.isfinite().all()
        if "running" not in name:  # each process has statistics of its own
            assert torch.equal(theirs[name], value), name

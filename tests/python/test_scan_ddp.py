# SPDX-License-Identifier: Apache-2.0
"""One cell run many times through scan under DDP and FSDP: as one process with the whole batch."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

torch = pytest.importorskip("torch", reason="PyTorch is not installed")
pytest.importorskip("torch.distributed", reason="PyTorch was built without distributed")
if not torch.distributed.is_gloo_available():
    pytest.skip("PyTorch was built without gloo", allow_module_level=True)

PROGRAM = Path(__file__).with_name("scan_ddp_program.py")
BUDGET = 40_000


def run(folder: Path, processes: int, *options: str) -> dict:
    file = folder / "found.pt"
    torchrun = [sys.executable, "-m", "torch.distributed.run", "--standalone", f"--nproc-per-node={processes}"]
    done = subprocess.run(
        [*torchrun, str(PROGRAM), "--file", str(file), "--budget", str(BUDGET), *options],
        capture_output=True,
        text=True,
        timeout=600,
        env={**os.environ, "OMP_NUM_THREADS": "1"},
    )
    assert done.returncode == 0, done.stderr[-3000:]
    return torch.load(file)


def check_alone(found: dict) -> None:
    ours = found["budget", 2]
    assert ours["forwards"] > 20, "the budget holds everything"
    for name, value in found["alone"]["params"].items():
        # The mean over processes adds in another order: a few roundings of float64 in each of two steps.
        assert torch.allclose(ours["params"][name], value, rtol=1e-12, atol=1e-14), name


@pytest.mark.slow
@pytest.mark.parametrize("processes, options", [(2, ()), (3, ()), (2, ("--unused",))], ids=["2", "3", "2 with unused"])
def test_ddp(tmp_path, processes, options):
    found = run(tmp_path, processes, "--wrap", "ddp", *options)
    check_alone(found)
    # From the second step on DDP sends gradients in the order in which they came, which is another order in a budget; three
    # processes add in an order that depends on it.
    for iterations in (1, 2) if processes == 2 else (1,):
        for name, value in found["plain", iterations]["params"].items():
            assert torch.equal(found["budget", iterations]["params"][name], value), name


@pytest.mark.slow
def test_fsdp(tmp_path):
    pytest.importorskip("torch.distributed.fsdp", reason="PyTorch was built without FSDP")
    if not hasattr(torch.distributed.fsdp, "fully_shard"):
        pytest.skip("this PyTorch has no fully_shard")
    check_alone(run(tmp_path, 2, "--wrap", "fsdp"))

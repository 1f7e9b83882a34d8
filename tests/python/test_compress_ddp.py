# SPDX-License-Identifier: Apache-2.0
"""Compressed layers under DDP and FSDP: the bits of torch's own layers there."""

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

PROGRAM = Path(__file__).with_name("compress_ddp_program.py")


WRAPS = ["ddp", "fsdp", "fsdp each"]


def wraps_here():
    """Imported late, since it takes a second."""
    import torch.distributed.fsdp

    return WRAPS if hasattr(torch.distributed.fsdp, "fully_shard") else ["ddp"]


@pytest.fixture
def of_wrap(found, wrap):
    if wrap not in wraps_here():
        pytest.skip("this PyTorch has no fully_shard")
    return found[wrap]


@pytest.fixture(scope="module")
def found(tmp_path_factory):
    file = tmp_path_factory.mktemp("compress") / "found.pt"
    torchrun = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node=2"]
    done = subprocess.run(
        [*torchrun, str(PROGRAM), "--file", str(file), "--wraps", *wraps_here()],
        capture_output=True,
        text=True,
        timeout=600,
        env={**os.environ, "OMP_NUM_THREADS": "1"},
    )
    assert done.returncode == 0, done.stderr[-3000:]
    return torch.load(file)


@pytest.mark.slow
@pytest.mark.parametrize("wrap", WRAPS)
@pytest.mark.parametrize("way", ["exact", "recompute"])
def test_the_bits_are_those_of_torchs_layers(of_wrap, wrap, way):
    ours, stock = of_wrap[way], of_wrap["stock"]
    if (
        wrap == "fsdp each" and way == "recompute" and "error" in ours
    ):  # a convolution's weight is too large to be copied
        assert "as FSDP does with parameters" in ours["error"]
        return
    assert ours.keys() == stock.keys()
    for name, value in stock.items():
        assert torch.equal(ours[name], value), name


@pytest.mark.slow
@pytest.mark.parametrize("wrap", WRAPS)
def test_lossy_layers_train(of_wrap):
    assert of_wrap["pool"].keys() == of_wrap["stock"].keys()
    assert all(value.isfinite().all() for value in of_wrap["pool"].values())

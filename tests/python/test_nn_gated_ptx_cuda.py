# SPDX-License-Identifier: Apache-2.0
"""The kernels of gated cells as a GPU has them that no machine code was compiled for: by the driver, from PTX. The build must have some:
`CUDAARCHS='80-virtual;90-real' ./dev cuda test tests/python/test_nn_gated_ptx_cuda.py` on a GPU of compute capability 9.0."""

from __future__ import annotations

import os
import pathlib
import re
import subprocess
import sys

import pytest

torch = pytest.importorskip("torch")
if not torch.cuda.is_available():
    pytest.skip("no GPU here", allow_module_level=True)

from ebb import _core  # noqa: E402

if reason := _core.gated_unfit(_core.GatedShape("LSTM", "bfloat16", 1, 1, 64, False)):
    pytest.skip(reason, allow_module_level=True)

PROGRAM = pathlib.Path(__file__).with_name("gated_kernels_program.py")
ALLOWED = {"bfloat16": 2e-2, "float16": 3e-3, "tf32": 5e-3, "float32": 1e-5}


# The driver takes some 15 s for the kernels of one dtype, unless it has them in its cache.
@pytest.mark.parametrize(("ptx", "dtypes"), [("0", list(ALLOWED)), ("1", ["bfloat16", "tf32", "float32"])])
def test_kernels_by_themselves(ptx, dtypes):
    # Loaded when first used: PyTorch's own kernels, of which most have no PTX, never are.
    setting = {"CUDA_FORCE_PTX_JIT": ptx, "CUDA_MODULE_LOADING": "LAZY"}
    done = subprocess.run(
        [sys.executable, PROGRAM, *dtypes], env={**os.environ, **setting}, capture_output=True, text=True
    )
    if ptx == "1" and re.search("no kernel image|invalid device function", done.stderr):
        pytest.skip("built without PTX")
    assert done.returncode == 0, done.stderr
    lines = [line.split() for line in done.stdout.splitlines()]
    assert len(lines) == 6 * len(dtypes)
    assert all(float(error) <= ALLOWED[dtype] for dtype, *_, error in lines), done.stdout

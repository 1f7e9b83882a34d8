# SPDX-License-Identifier: Apache-2.0
"""ebb/torch.h: its tests and its example, built against an installed ebb and the torch of this environment."""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path

import pytest

torch = pytest.importorskip("torch")
pytestmark = pytest.mark.slow
ROOT = Path(__file__).resolve().parents[2]


def run(*command: str | Path, cwd: Path) -> str:
    # Of OpenMP one thread: results do not depend on it, other tests run beside.
    done = subprocess.run(
        [str(part) for part in command],
        cwd=cwd,
        env={**os.environ, "OMP_NUM_THREADS": "1"},
        text=True,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        timeout=900,
        check=False,
    )
    assert done.returncode == 0, done.stdout
    return done.stdout


@pytest.fixture(scope="session")
def prefix(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Where ebb is installed from the build folder that EBB_BUILD names."""
    build = os.environ.get("EBB_BUILD")
    if not build:
        pytest.skip("EBB_BUILD names no build folder of ebb to install from; ./dev test sets it")
    if not torch._C._GLIBCXX_USE_CXX11_ABI:
        pytest.skip("this torch has the C++ ABI from before C++11; ebb was built with the one since")
    folder = tmp_path_factory.mktemp("installed")
    run("cmake", "--install", Path(build).resolve(), "--prefix", folder, cwd=ROOT)
    return folder


@pytest.fixture(scope="session")
def programs(prefix: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Tests and examples in one build, since torch's headers take most of it."""
    assert (prefix / "include/ebb/torch.h").is_file()
    folder = tmp_path_factory.mktemp("programs")
    launcher = [f"-DCMAKE_CXX_COMPILER_LAUNCHER={shutil.which('ccache')}"] if shutil.which("ccache") else []
    run(
        "cmake",
        "-S",
        ROOT / "tests/torch",
        "-B",
        folder,
        "-DCMAKE_BUILD_TYPE=Debug",
        "-DCMAKE_CXX_FLAGS_DEBUG=-O0",
        f"-DCMAKE_PREFIX_PATH={prefix};{torch.utils.cmake_prefix_path}",
        *launcher,
        cwd=ROOT,
    )
    run("cmake", "--build", folder, cwd=ROOT)
    return folder


@pytest.mark.parametrize("name", ["scan_test", "compress_test"])
def test_headers(programs: Path, name: str, tmp_path: Path) -> None:
    run(programs / name, cwd=tmp_path)


@pytest.mark.parametrize("name", ["lstm", "resnet"])
def test_example(programs: Path, name: str, tmp_path: Path) -> None:
    assert "loss" in run(programs / "examples" / name, cwd=tmp_path)


def test_page_shows_lines_of_the_example() -> None:
    page = (ROOT / "docs/libtorch.md").read_text().partition("## Compressed activations")[2]
    shown = page.split("```cpp\n")[1].split("```")[0].splitlines()
    lines = {line.strip() for line in (ROOT / "examples/libtorch/resnet.cpp").read_text().splitlines()}
    assert shown and [line for line in shown if line.strip() not in lines] == []

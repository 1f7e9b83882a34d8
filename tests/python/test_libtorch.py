# SPDX-License-Identifier: Apache-2.0
"""ebb/torch.h: its tests and its examples, built against an installed ebb and the torch of this environment.

One project builds all of it, so that LibTorch's headers are compiled once. It stays in the build folder of ebb: what has not
changed is not built again.
"""

from __future__ import annotations

import os
import re
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
        timeout=1800,
        check=False,
    )
    assert done.returncode == 0, done.stdout
    return done.stdout


@pytest.fixture(scope="session")
def built() -> Path:
    """Where tests and examples are, made with the ebb that is installed from the build folder named by EBB_BUILD."""
    build = os.environ.get("EBB_BUILD")
    if not build:
        pytest.skip("EBB_BUILD names no build folder of ebb to install from; ./dev test sets it")
    if not torch._C._GLIBCXX_USE_CXX11_ABI:
        pytest.skip("this torch has the C++ ABI from before C++11; ebb was built with the one since")
    folder = Path(build).resolve() / "libtorch"
    prefix = folder / "installed"
    shutil.rmtree(prefix, ignore_errors=True)  # what is not installed any more must not be found
    run("cmake", "--install", folder.parent, "--prefix", prefix, cwd=ROOT)
    assert (prefix / "include/ebb/torch.h").is_file()
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


@pytest.mark.slow
def test_headers(built: Path, tmp_path: Path) -> None:
    shown = run(built / "torch_test", cwd=tmp_path)
    (passed,) = re.findall(r"\[  PASSED  \] (\d+) tests\.", shown)
    sources = "".join(path.read_text() for path in (ROOT / "tests/torch").glob("*_test.cpp"))
    assert int(passed) == len(re.findall(r"^TEST\(", sources, re.MULTILINE)) > 0


def losses_of_a_plain_loop() -> list[float]:
    """What examples/libtorch/lstm.cpp trains, in Python and with nothing of ebb; the same seed draws the same numbers."""
    steps, batch, hidden = 200, 32, 32
    torch.manual_seed(1)
    cell, readout = torch.nn.LSTMCell(2, hidden), torch.nn.Linear(hidden, 1)
    optimiser = torch.optim.Adam([*cell.parameters(), *readout.parameters()], lr=0.01)
    losses = []
    for _ in range(30):
        numbers, marks = torch.rand(steps, batch, 1), torch.zeros(steps, batch, 1)
        half = torch.randint(steps // 2, (2, batch, 1))
        marks.scatter_(0, half[:1], 1).scatter_(0, half[1:] + steps // 2, 1)
        state = torch.zeros(batch, hidden), torch.zeros(batch, hidden)
        for x in torch.cat([numbers, marks], 2):
            state = cell(x, state)
        loss = torch.nn.functional.mse_loss(readout(state[0]), (numbers * marks).sum(0))
        optimiser.zero_grad()
        loss.backward()
        optimiser.step()
        losses.append(loss.item())
    return losses


@pytest.mark.slow
def test_the_lstm_learns_as_a_plain_loop_in_python_does(built: Path, tmp_path: Path) -> None:
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        wanted = losses_of_a_plain_loop()
    finally:
        torch.set_num_threads(threads)
    shown = run(built / "examples/lstm", cwd=tmp_path)
    (losses,) = re.findall(r"^loss ([\d.]+), then ([\d.]+)$", shown, re.MULTILINE)
    assert [float(loss) for loss in losses] == pytest.approx([wanted[0], wanted[-1]], abs=1e-4)
    assert wanted[-1] < 0.5 * wanted[0]


@pytest.mark.slow
def test_each_way_of_the_resnet_keeps_less_and_learns(built: Path, tmp_path: Path) -> None:
    head, *lines = run(built / "examples/resnet", cwd=tmp_path).splitlines()
    assert head.split() == ["loss", "kept", "MiB", "peak", "MiB", "seconds", "a", "step"]
    found = {name: [float(number) for number in numbers] for name, *numbers in map(str.split, lines)}
    assert list(found) == ["stock", "exact", "pooled", "int8"]
    loss, kept, peak, seconds = zip(*found.values())
    assert loss[1] == loss[0]
    assert max(loss) < 1.3 and max(abs(one - loss[0]) for one in loss) < 0.2  # always guessing gives log 4 = 1.39
    assert list(kept) == sorted(set(kept), reverse=True) and kept[3] < 0.5 * kept[0]
    assert all(low <= high for low, high in zip(kept, peak)) and min(seconds) > 0


def test_page_shows_lines_of_the_example() -> None:
    page = (ROOT / "docs/libtorch.md").read_text().partition("## Compressed activations")[2]
    shown = page.split("```cpp\n")[1].split("```")[0].splitlines()
    lines = {line.strip() for line in (ROOT / "examples/libtorch/resnet.cpp").read_text().splitlines()}
    assert shown and [line for line in shown if line.strip() not in lines] == []

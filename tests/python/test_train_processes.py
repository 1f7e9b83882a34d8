# SPDX-License-Identifier: Apache-2.0
"""`mpirun ebb train`: the same training as one process with the whole batch, and how it ends when a process is lost."""

import json
import os
import pathlib
import re
import shutil
import signal
import subprocess
import time

import pytest
from train_program import EBB, column, ebb, needs_program, tensors, wait_for

MPIRUN = shutil.which("mpirun")
pytestmark = [needs_program, pytest.mark.skipif(not MPIRUN, reason="no mpirun here")]
# The rate depends on no number of iterations.
ENDLESS = (
    "--task adding --steps 250 --cell lstm --layers 2 --dropout 0.1 --hidden 24 --batch 8 --iterations 100000"
    " --budget 50% --test-samples 0 --threads 1 --json"
)
SMALL = "--task copy --steps 40 --hidden 12 --batch 4 --iterations 5 --test-samples 6 --threads 1"


def mpirun(processes, words, options=""):
    options = f"--oversubscribe --allow-run-as-root -n {processes} {options}"
    launch = [MPIRUN, *options.split(), EBB, "train", *words.split()]
    return subprocess.Popen(launch, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)


def finished(process):
    """What it has said."""
    out, err = process.communicate(timeout=600)
    if "built without MPI" in err:
        pytest.skip("this build has no MPI")
    return out, err


@pytest.mark.parametrize("processes", [2, *(pytest.param(n, marks=pytest.mark.slow) for n in (3, 4))])
def test_processes_are_a_larger_batch(tmp_path, processes):
    """Gradients are added in another order: in double some 1e-16 of each, which 8 steps of sgd keep small; adam would
    divide by it where a gradient is nearly 0."""
    words = "--task copy --steps 40 --cell gru --layers 2 --dropout 0.2 --hidden 12 --iterations 8"
    words += " --optimiser sgd --lr 0.1 --momentum 0.9 --dtype double --threads 1 --chunk 2 --test-samples 7"
    process = mpirun(processes, f"{words} --batch 2 --json --out {tmp_path}/many")
    out, err = finished(process)
    assert process.returncode == 0, err
    assert json.loads(out.splitlines()[0])["ranks"] == processes
    ebb(f"{words} --batch {2 * processes} --out {tmp_path}/one")
    many, one = tensors(tmp_path / "many"), tensors(tmp_path / "one")
    assert many.keys() == one.keys()
    for name in one:
        for a, b in zip(memoryview(many[name]).cast("d"), memoryview(one[name]).cast("d")):
            assert a == pytest.approx(b, rel=1e-10, abs=1e-11), name
    for a, b in zip(column(tmp_path / "many", "accuracy"), column(tmp_path / "one", "accuracy")):
        assert a[:2] == b[:2]
        assert a[2] == pytest.approx(b[2], rel=1e-10)
        assert a[4] == pytest.approx(b[4])


def running(folder):
    """Processes of ebb whose words name the folder: their numbers, by rank."""
    found = {}
    for path in pathlib.Path("/proc").glob("[0-9]*"):
        try:
            words = (path / "cmdline").read_text().split("\0")
            around = (path / "environ").read_text()
        except OSError:
            continue
        if words[0] == EBB and any(str(folder) in word for word in words):
            found[int(re.search(r"OMPI_COMM_WORLD_RANK=(\d+)", around)[1])] = int(path.name)
    return found


def begun(folder, words="", options=""):
    """Two processes that have done some iterations, and saved none of them."""
    process = mpirun(2, f"{ENDLESS} --save-seconds 1000 {words} --out {folder}", options)
    wait_for(process, 5)
    ranks = running(folder)
    if not ranks:
        _, err = finished(process)
        pytest.fail(err)
    assert sorted(ranks) == [0, 1]
    return process, ranks


def expect_nobody(folder):
    for _ in range(6000):
        if not running(folder):  # those that ended and were not waited for have no words
            return
        time.sleep(0.1)
    pytest.fail("a process goes on")


def expect_usable(folder, tmp_path):
    """Two processes go on from the checkpoint, and come where two come that were not interrupted."""
    done = json.loads((folder / "train.json").read_text())["iteration"]
    assert done >= 5
    lines = [row for row in column(folder) if row[0] <= done]
    process = mpirun(2, f"--resume {folder} --iterations {done + 3} --json")
    out, err = finished(process)
    assert process.returncode == 0, err
    assert json.loads(out.splitlines()[0])["resumed_at"] == done
    words = ENDLESS.replace("--iterations 100000", f"--iterations {done + 3}")
    straight = mpirun(2, f"{words} --out {tmp_path}/straight")
    finished(straight)
    assert column(folder)[:done] == lines and column(folder) == column(tmp_path / "straight")
    assert tensors(folder) == tensors(tmp_path / "straight")


def test_a_process_that_dies_ends_all_and_leaves_a_checkpoint(tmp_path):
    # Of the second that the launcher gives the other one to save a busy machine may leave nothing.
    process, ranks = begun(tmp_path / "run", options="--mca odls_base_sigkill_timeout 5")
    os.kill(ranks[1], signal.SIGKILL)
    _, err = finished(process)
    assert process.returncode != 0
    assert "rank 1" in err and "signal 9" in err  # which the launcher says
    expect_nobody(tmp_path)
    expect_usable(tmp_path / "run", tmp_path)


@pytest.mark.slow
def test_a_process_that_hangs_ends_all_and_leaves_a_checkpoint(tmp_path):
    process, ranks = begun(tmp_path / "run", "--patience 20")
    os.kill(ranks[1], signal.SIGSTOP)
    _, err = finished(process)
    assert process.returncode == 4, err
    assert err.count("process 1 of 2 has not come for 20 seconds") == 1
    expect_nobody(tmp_path)
    expect_usable(tmp_path / "run", tmp_path)


@pytest.mark.slow
def test_a_process_that_is_late_is_waited_for(tmp_path):
    process, ranks = begun(tmp_path / "run", "--patience 60")
    os.kill(ranks[1], signal.SIGSTOP)
    time.sleep(2.5)
    os.kill(ranks[1], signal.SIGCONT)
    wait_for(process, 5)
    os.kill(ranks[0], signal.SIGTERM)  # the launcher would give them a second to save
    _, err = finished(process)
    assert "has not come" not in err
    expect_nobody(tmp_path)
    expect_usable(tmp_path / "run", tmp_path)


def test_one_bad_option_ends_all():
    process = mpirun(2, f"{SMALL} --budget 1")
    _, err = finished(process)
    assert process.returncode != 0
    assert "of 2: " in err
    process = mpirun(2, f"{SMALL} --patience -1")
    assert "patience is -1 seconds; it must be 0" in finished(process)[1]

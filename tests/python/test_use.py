# SPDX-License-Identifier: Apache-2.0
"""After training: `ebb eval`, `predict` and `sample`, and `ebb.load`, from the checkpoint alone."""

import json
import os
import pathlib
import subprocess
import sys

import numpy as np
import pytest

EBB = os.environ.get("EBB_BINARY")
pytestmark = pytest.mark.skipif(not EBB, reason="EBB_BINARY does not name the program ebb")
TYPES = ["?", "i1", "u1", "<i2", ">i2", "<u2", ">u2", "<i4", ">i4", "<u4", ">u4", "<i8", ">i8"]
REALS = ["<f2", ">f2", "<f4", ">f4", "<f8", ">f8"]


def ebb(words, code=0):
    done = subprocess.run([EBB, *map(str, words)], capture_output=True, text=True, timeout=900)
    assert done.returncode == code, done.stderr + done.stdout
    return done


def trained(tmp_path, words, every_step=False, spikes=False, inputs=3):
    """A run on arrays of its own, and sequences for it that it has not seen."""
    data, rng = tmp_path / "data", np.random.default_rng(1)
    data.mkdir()

    def drawn(*shape):
        return rng.random(shape) < 0.3 if spikes else rng.standard_normal(shape).astype("f4")

    for part in ("train", "test"):
        np.save(data / f"x_{part}.npy", drawn(8, 30, inputs))
        np.save(data / f"y_{part}.npy", rng.integers(0, 4, (8, 30) if every_step else 8))
    run = tmp_path / "run"
    ebb(
        ["train", "--task", "npy", "--data", data, "--hidden", 12, "--batch", 4, "--iterations", 3, "--threads", 1]
        + ["--out", run, "--lr", 0.02, *words.split()]
    )
    x = drawn(5, 40, inputs)
    np.save(tmp_path / "x.npy", x)
    return run, x


def predicted(run, tmp_path, *more):
    ebb(["predict", run, "--data", tmp_path / "x.npy", "-o", tmp_path / "y.npy", *more])
    return np.load(tmp_path / "y.npy")


@pytest.fixture(scope="module")
def gru(tmp_path_factory):
    folder = tmp_path_factory.mktemp("gru")
    return trained(folder, "--cell gru")[0]


@pytest.mark.parametrize("kind", TYPES + REALS)
def test_types_and_orders(gru, tmp_path, kind):
    x = (np.arange(2 * 20 * 3).reshape(2, 20, 3) % 7 % (2 if kind == "?" else 7)).astype("f4")
    np.save(tmp_path / "x.npy", x)
    wanted = predicted(gru, tmp_path)
    for order in "CF":
        np.save(tmp_path / "x.npy", np.asarray(x.astype(kind), order=order))
        assert predicted(gru, tmp_path).tobytes() == wanted.tobytes()


def test_one_sequence_and_classes(tmp_path):
    run, x = trained(tmp_path, "--cell lstm")
    all_of_them = predicted(run, tmp_path)
    assert all_of_them.shape == (5, 4) and all_of_them.dtype == np.float32
    assert (predicted(run, tmp_path, "--classes") == all_of_them.argmax(1)).all()
    every = predicted(run, tmp_path, "--every-step")
    assert every.shape == (5, 40, 4) and (every[:, -1] == all_of_them).all()
    np.save(tmp_path / "x.npy", x[3])
    assert predicted(run, tmp_path).tobytes() == all_of_them[3].tobytes()


@pytest.mark.parametrize(
    "words",
    [
        "--cell rnn --layers 2",
        "--cell lstm --layers 2 --dropout 0.2 --readout leaky",
        "--cell gru --dtype double",
        "--cell lif --layers 2 --readout leaky",
        "--cell alif --hard-reset --train-tau",
        "--cell adlif --layers 2",
        "--cell egru --layers 2",
        "--cell lstm --recurrent-density 0.5",
    ],
)
@pytest.mark.parametrize("every_step", [False, True])
def test_load(tmp_path, words, every_step):
    torch = pytest.importorskip("torch")
    import ebb as package

    spikes = "lif" in words
    run, x = trained(tmp_path, words, every_step, spikes)
    wanted = predicted(run, tmp_path)
    for where, budget in ((run, None), (run / "model.safetensors", None), (run, "1MiB")):
        net = package.load(where, budget=budget)
        assert net.task == "npy" and net.options["cell"] in words and net.classes is None
        with torch.no_grad():
            found = net(torch.from_numpy(x).to(next(net.parameters()).dtype)).numpy()
        assert found.dtype == wanted.dtype
        np.testing.assert_allclose(found, wanted, rtol=1e-4, atol=1e-5)
    net(torch.from_numpy(x).to(next(net.parameters()).dtype)).sum().backward()
    assert net.readout.weight.grad is not None


@pytest.mark.parametrize(
    ("words", "what"),
    [("--pipelined", "pipelined layers")]
    + [("--cell lif --synaptic", "synaptic currents"), ("--cell lif --max-activity 0.5", "max_activity")],
)
def test_load_refuses_by_name(tmp_path, words, what):
    pytest.importorskip("torch")
    import ebb as package

    run, _ = trained(tmp_path, words)
    assert predicted(run, tmp_path).shape == (5, 4)
    with pytest.raises(package.Error, match=what):
        package.load(run)


def test_text(tmp_path):
    torch = pytest.importorskip("torch")
    import ebb as package

    (tmp_path / "a.txt").write_text("the same line again.\n" * 60)
    run = tmp_path / "run"
    words = "--task text --steps 30 --cell gru --hidden 24 --iterations 150 --lr 0.02 --threads 1 --batch 4"
    ebb(["train", *words.split(), "--data", tmp_path / "a.txt", "--out", run])
    done = ebb(["sample", run, "--text", "the same", "--length", 20, "--temperature", 0])
    assert done.stdout == "the same line again.\nthe sam"
    net = package.load(run)
    with torch.no_grad():
        outputs = net(net.encode("the same"))
    assert net.decode(outputs.argmax(-1)[0])[-1:] == b" "
    with pytest.raises(package.Error, match="byte 0"):
        net.encode("Z")


def test_load_refuses_what_is_no_run(tmp_path):
    pytest.importorskip("torch")
    import ebb as package

    with pytest.raises(package.Error, match="there is no run"):
        package.load(tmp_path)
    (tmp_path / "model.safetensors").write_bytes(b"\x02\0\0\0\0\0\0\0{}")
    with pytest.raises(package.Error, match="does not say what it was trained for"):
        package.load(tmp_path)


def peak_of(words):
    """Bytes that were resident at most."""
    program = pathlib.Path(__file__).with_name("peak_program.py")
    command = [sys.executable, "-I", "-S", program, "/dev/null", EBB, *words]
    done = subprocess.run([str(word) for word in command], capture_output=True, text=True, timeout=900)
    assert done.returncode == 0, done.stderr
    return int(done.stdout) * 1024


@pytest.mark.slow
def test_memory_does_not_grow_with_the_length(tmp_path):
    run, _ = trained(tmp_path, "--cell gru")
    peaks = []
    for length in (10**5, 10**6):
        np.save(tmp_path / "x.npy", np.ones((2, length, 3), "f4"))
        words = ["predict", run, "--data", tmp_path / "x.npy", "-o", tmp_path / "y.npy", "--every-step"]
        peaks.append(peak_of(words))
    assert np.load(tmp_path / "y.npy", mmap_mode="r").shape == (2, 10**6, 4)
    # The file has 24 MB; pages of it come in pieces of up to 2 MiB for each of the two sequences.
    assert peaks[1] - peaks[0] < 8 * 2**20, peaks


def test_eval_says_what_training_said(tmp_path):
    run, _ = trained(tmp_path, "--cell alif --readout leaky", every_step=True, spikes=True)
    lines = [json.loads(line) for line in (run / "metrics.jsonl").read_text().splitlines()]
    last = [line for line in lines if line["split"] == "test"][-1]
    found = json.loads(ebb(["eval", run, "--json"]).stdout)
    assert (found["loss"], found["accuracy"]) == (last["loss"], last["accuracy"])

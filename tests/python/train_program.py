# SPDX-License-Identifier: Apache-2.0
"""The program `ebb` as tests run it, and what a training run leaves behind."""

import fcntl
import json
import os
import signal
import subprocess

import pytest

EBB = os.environ.get("EBB_BINARY")
needs_program = pytest.mark.skipif(not EBB, reason="EBB_BINARY does not name the program ebb")


def ebb(words, code=0, timeout=600, **more):
    done = subprocess.run([EBB, "train", *words.split()], capture_output=True, text=True, timeout=timeout, **more)
    assert done.returncode == code, done.stderr + done.stdout
    return done


def tensors(folder):
    """Every array of the model, as bytes with its place in the header."""
    data = (folder / "model.safetensors").read_bytes()
    size = int.from_bytes(data[:8], "little")
    header = json.loads(data[8 : 8 + size])
    header.pop("__metadata__", None)
    body = data[8 + size :]
    return {name: body[slice(*own["data_offsets"])] for name, own in header.items()}


def column(folder, *keys):
    lines = [json.loads(line) for line in (folder / "metrics.jsonl").read_text().splitlines()]
    return [[line.get(key) for key in ("iteration", "split", "loss", "gradient_norm", *keys)] for line in lines]


LONG = (
    "--task adding --steps 250 --cell lstm --layers 2 --dropout 0.1 --hidden 24 --batch 8 --iterations 150"
    " --evaluate 40 --schedule cosine,warmup=10 --budget 50% --test-samples 50 --threads 1 --save-seconds 0.05 --json"
)


def hears_ctrl_c():
    """A shell lets what it starts in the background ignore it."""
    signal.signal(signal.SIGINT, signal.SIG_DFL)


def start(words, preexec_fn=hears_ctrl_c):
    """Its output goes through a pipe of one page, so that it waits for its reader: a test that gets no processor for a while does not
    find it done, but at most about a hundred lines ahead."""
    ours, theirs = os.pipe()
    fcntl.fcntl(theirs, fcntl.F_SETPIPE_SZ, 4096)
    process = subprocess.Popen(
        [EBB, "train", *words.split()],
        stdout=theirs,
        stderr=subprocess.PIPE,
        text=True,
        preexec_fn=preexec_fn,
    )
    os.close(theirs)
    process.stdout = os.fdopen(ours)
    return process


def wait_for(process, lines):
    """Until it has done so many more iterations."""
    for line in process.stdout:
        lines -= json.loads(line)["event"] == "train"
        if lines <= 0:
            return

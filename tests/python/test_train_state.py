# SPDX-License-Identifier: Apache-2.0
"""Optimisers, schedules and checkpoints of ebb against PyTorch's and the safetensors package's.

The program tests/train/state_program reads what the package wrote, takes the steps and saves a checkpoint, which the
package reads.
"""

import json
import math
import os
import subprocess

import pytest

torch = pytest.importorskip("torch", reason="PyTorch is not installed")
safetensors = pytest.importorskip("safetensors.torch", reason="the package safetensors is not installed")
PROGRAM = os.environ.get("EBB_STATE_PROGRAM", "")
pytestmark = pytest.mark.skipif(not os.path.exists(PROGRAM), reason="EBB_STATE_PROGRAM does not name the program")

STEPS, SIZE = 40, 37
SCHEDULES = {
    "constant": lambda t: 1,
    "step:10,0.5": lambda t: 0.5 ** (t // 10),
    "cosine,warmup=4": lambda t: (t + 1) / 5 if t < 4 else (1 + math.cos(math.pi * (t - 4) / (STEPS - 4))) / 2,
}
OPTIMISERS = {
    ("sgd", 0.0): lambda p, decay: torch.optim.SGD(p, lr=0.1, weight_decay=decay),
    ("sgd", 0.9): lambda p, decay: torch.optim.SGD(p, lr=0.1, momentum=0.9, weight_decay=decay),
    ("adam", 0.0): lambda p, decay: torch.optim.Adam(p, lr=0.1, weight_decay=decay),
    ("adamw", 0.0): lambda p, decay: torch.optim.AdamW(p, lr=0.1, weight_decay=decay),
}


def given(dtype):
    torch.manual_seed(1)
    return {
        "parameters": torch.randn(SIZE, dtype=dtype),
        "gradients": torch.randn(STEPS, SIZE, dtype=dtype) * torch.logspace(-3, 1, STEPS, dtype=dtype)[:, None],
    }


def ours(folder, tensors, *words):
    safetensors.save_file(tensors, folder / "in.safetensors", {"made": "by the package"})
    out = folder / "run"
    out.mkdir()
    done = subprocess.run([PROGRAM, *map(str, words), folder / "in.safetensors", out], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return out


def theirs(tensors, make, schedule, decay, clip):
    parameter = torch.nn.Parameter(tensors["parameters"].clone())
    optimiser = make([parameter], decay)
    rate = torch.optim.lr_scheduler.LambdaLR(optimiser, SCHEDULES[schedule])
    norms = []
    for gradient in tensors["gradients"]:
        parameter.grad = gradient.clone()
        norms.append(torch.nn.utils.clip_grad_norm_([parameter], clip if clip > 0 else math.inf))
        optimiser.step()
        rate.step()
    return parameter.detach(), torch.stack(norms), optimiser.state[parameter]


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64], ids=str)
@pytest.mark.parametrize("schedule", SCHEDULES)
@pytest.mark.parametrize("decay, clip", [(0.0, 0.0), (0.1, 0.0), (0.01, 2.0)])
@pytest.mark.parametrize("kind, momentum", OPTIMISERS)
@pytest.mark.sweep(10)
def test_steps_are_those_of_pytorch(tmp_path, kind, momentum, decay, clip, schedule, dtype):
    tensors = given(dtype)
    run = ours(tmp_path, tensors, kind, 0.1, momentum, decay, clip, schedule)
    parameters, norms, state = theirs(tensors, OPTIMISERS[kind, momentum], schedule, decay, clip)

    model = safetensors.load_file(run / "model.safetensors")
    close = {"rtol": 2e-5, "atol": 2e-6} if dtype == torch.float32 else {"rtol": 1e-12, "atol": 1e-13}
    assert model["parameters"].dtype == dtype
    torch.testing.assert_close(model["parameters"], parameters, **close)
    ours_norms = model['norms "before" clipping']
    assert ours_norms.shape == (STEPS, 1)
    torch.testing.assert_close(ours_norms[:, 0].to(dtype), norms, **close)

    (optimiser,) = run.glob("optimiser-*.safetensors")
    kept = safetensors.load_file(optimiser)
    assert kept.pop("step").item() == STEPS
    expected = {name: value for name, value in state.items() if name != "step" and value is not None}
    assert kept.keys() == expected.keys()
    for name, value in expected.items():
        torch.testing.assert_close(kept[name], value, **close)


def test_the_index_says_what_belongs_together(tmp_path):
    run = ours(tmp_path, given(torch.float32), "adam", 0.1, 0, 0, 0, "cosine,warmup=4")
    index = json.loads((run / "train.json").read_text())
    assert index["iteration"] == STEPS
    assert index["options"] == {"schedule": "cosine,warmup=4"}
    for part in ("model", "optimiser"):
        assert (run / index[part]["file"]).stat().st_size == index[part]["bytes"]
    with safetensors.safe_open(run / "model.safetensors", "pt") as file:
        assert file.metadata() == {"format": "pt"}


def test_types_that_ebb_does_not_read_are_refused(tmp_path):
    tensors = {name: tensor.to(torch.bfloat16) for name, tensor in given(torch.float32).items()}
    safetensors.save_file(tensors, tmp_path / "in.safetensors")
    words = ["adam", "0.1", "0", "0", "0", "constant", tmp_path / "in.safetensors", tmp_path]
    done = subprocess.run([PROGRAM, *words], capture_output=True, text=True)
    assert done.returncode == 1
    assert '"BF16"; those that can be read are F32, F64' in done.stderr

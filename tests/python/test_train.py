# SPDX-License-Identifier: Apache-2.0
"""`ebb train` end to end: what it prints and leaves behind, kills and resumes, bad words."""

import json
import random
import re
import resource
import signal
import time

import pytest
from train_program import LONG, column, ebb, needs_program, start, tensors, wait_for

pytestmark = needs_program
SMALL = "--task copy --steps 40 --hidden 12 --batch 4 --iterations 5 --test-samples 6 --threads 1"


def test_json_lines(tmp_path):
    done = ebb(f"{SMALL} --evaluate 2 --json --out {tmp_path}/run")
    assert done.stderr == ""
    lines = [json.loads(line) for line in done.stdout.splitlines()]
    events = "plan train train test train train test train test done"
    assert [line["event"] for line in lines] == events.split()
    plan, *steps, end = lines
    assert plan["exact"] is True and plan["budget"] is None and plan["iterations"] == 5
    assert [line["iteration"] for line in steps if line["event"] == "train"] == [1, 2, 3, 4, 5]
    assert end["iterations"] == 5 and end["test"]["loss"] == steps[-1]["loss"]
    assert 0 <= end["test"]["accuracy"] <= 1
    assert end["report"]["peak"]["fast"]["measured"] == plan["peak"]
    # The same numbers in the file, and everything that belongs to a checkpoint.
    assert [row[2] for row in column(tmp_path / "run")] == [line["loss"] for line in steps]
    assert {"train.json", "model.safetensors", "metrics.jsonl"} <= {path.name for path in (tmp_path / "run").iterdir()}


def test_text(tmp_path):
    """What it says of exactness is so, and its numbers are those of the run."""
    plain = ebb(f"{SMALL} --strategy store_all --json --out {tmp_path}/plain")
    done = ebb(f"{SMALL} --budget 60% --out {tmp_path}/run")
    for part in ("It fits in ", "exact, the same bits as keeping everything", "Done: 5 iterations", f"{tmp_path}/run."):
        assert part in done.stdout
    assert column(tmp_path / "run") == column(tmp_path / "plain")
    assert tensors(tmp_path / "run") == tensors(tmp_path / "plain")
    last = json.loads(plain.stdout.splitlines()[-1])
    (shown,) = re.findall(r"test after 5 iterations +loss ([\d.]+)", done.stdout)
    assert float(shown) == pytest.approx(last["test"]["loss"], rel=1e-3)
    done = ebb(f"{SMALL} --strategy truncated:10 --out {tmp_path}/cut")
    assert "NOT EXACT: cut off every 10 time steps" in done.stdout
    (first, *_), (wanted, *_) = column(tmp_path / "cut"), column(tmp_path / "plain")
    assert first[2] == pytest.approx(wanted[2], rel=1e-6) and first[3] != pytest.approx(wanted[3], rel=1e-6)


def test_the_loss_falls(tmp_path):
    ebb(
        f"--task adding --steps 30 --cell lstm --hidden 32 --iterations 300 --lr 0.02 --threads 1 --budget 60% --out {tmp_path}"
    )
    losses = [row[2] for row in column(tmp_path) if row[1] == "train"]
    assert len(losses) == 300 and sum(losses[-20:]) / 20 < 0.5 * sum(losses[:3]) / 3


@pytest.mark.parametrize("cell", ["lstm", "gru"])
def test_torch_loads_the_model(tmp_path, cell):
    torch = pytest.importorskip("torch", reason="PyTorch is not installed")
    safetensors = pytest.importorskip("safetensors.torch", reason="the package safetensors is not installed")
    steps, samples = 9, 7
    torch.set_num_threads(1)
    torch.manual_seed(1)
    data = {"x_train": torch.randn(20, steps, 3), "y_train": torch.randint(4, (20,))}
    data |= {"x_test": torch.randn(samples, steps, 3), "y_test": torch.randint(4, (samples,))}
    for name, tensor in data.items():
        save_npy(tmp_path / f"{name}.npy", tensor)
    words = f"--task npy --data {tmp_path} --cell {cell} --hidden 50 --layers 2"
    done = ebb(f"{words} --batch 5 --iterations 6 --lr 0.01 --threads 1 --json --out {tmp_path}/run")
    test = json.loads(done.stdout.splitlines()[-1])["test"]

    model = safetensors.load_file(tmp_path / "run" / "model.safetensors")
    readout = torch.nn.Linear(50, 4)
    readout.load_state_dict({name[8:]: model.pop(name) for name in list(model) if name.startswith("readout.")})
    net = {"lstm": torch.nn.LSTM, "gru": torch.nn.GRU}[cell](3, 50, 2, batch_first=True)
    net.load_state_dict(model)
    outputs = readout(net(data["x_test"])[0][:, -1])
    loss = torch.nn.functional.cross_entropy(outputs, data["y_test"]).item()
    assert test["loss"] == pytest.approx(loss, rel=1e-5)
    assert test["accuracy"] == pytest.approx((outputs.argmax(1) == data["y_test"]).float().mean().item())


def save_npy(path, tensor):
    """The format's version 1.0, so that NumPy is not needed."""
    kind = {"torch.float32": "<f4", "torch.int64": "<i8"}[str(tensor.dtype)]
    shape = ", ".join(map(str, tensor.shape)) + ","
    header = f"{{'descr': '{kind}', 'fortran_order': False, 'shape': ({shape}), }}"
    header += " " * (-(len(header) + 11) % 64) + "\n"
    raw = bytes(tensor.contiguous().view(-1).untyped_storage())
    path.write_bytes(b"\x93NUMPY\x01\x00" + len(header).to_bytes(2, "little") + header.encode() + raw)


# As many iterations, so that a signal comes before the last of them.
QUICK = LONG.replace("--steps 250", "--steps 50").replace("--save-seconds 0.05", "--save-seconds 0.5")


@pytest.fixture(scope="module")
def uninterrupted(tmp_path_factory):
    folder = tmp_path_factory.mktemp("straight") / "run"
    ebb(f"{QUICK} --out {folder}")
    return folder


@pytest.mark.slow
def test_twenty_kills_leave_the_same_bits(tmp_path):
    folder, uninterrupted = tmp_path / "run", tmp_path / "uninterrupted"
    words = LONG.replace("--iterations 150", "--iterations 400")
    ebb(f"{words} --out {uninterrupted}")
    moments = random.Random(4)
    resumed = set()
    for _ in range(20):
        # A run killed before its first checkpoint begins anew.
        is_saved = (folder / "train.json").exists()
        process = start(f"--resume {folder} --json" if is_saved else f"{words} --out {folder}")
        wait_for(process, moments.randrange(15))
        time.sleep(moments.uniform(0, 0.03))
        process.kill()
        _, err = process.communicate(timeout=600)
        if process.returncode == 0:  # this test waited longer for a processor than it wanted to
            break
        assert process.returncode == -signal.SIGKILL, err
        if is_saved:
            resumed.add(json.loads((folder / "train.json").read_text())["iteration"])
    assert len(resumed) >= 3, "no iteration lay between the kills"
    ebb(f"--resume {folder}")
    assert tensors(folder) == tensors(uninterrupted)
    assert column(folder, "lr") == column(uninterrupted, "lr")


@pytest.mark.parametrize("request_to_end", [signal.SIGINT, pytest.param(signal.SIGTERM, marks=pytest.mark.slow)])
def test_ctrl_c_and_resume(uninterrupted, tmp_path, request_to_end):
    folder = tmp_path / "run"
    process = start(f"{QUICK} --out {folder}")
    wait_for(process, 5)
    process.send_signal(request_to_end)
    out, err = process.communicate(timeout=600)
    assert process.returncode == 130, err
    last = json.loads(out.splitlines()[-1])
    assert last["event"] == "stopped"
    assert f"stopped after {last['iterations']} iterations" in err
    assert json.loads((folder / "train.json").read_text())["iteration"] == last["iterations"]
    done = ebb(f"--resume {folder} --json")
    assert json.loads(done.stdout.splitlines()[0])["resumed_at"] == last["iterations"]
    assert tensors(folder) == tensors(uninterrupted)
    assert column(folder, "lr") == column(uninterrupted, "lr")
    seconds = [line[-1] for line in column(folder, "seconds")]
    assert seconds == sorted(seconds)


@pytest.mark.parametrize("saves", [1000, 0])
def test_a_directory_has_one_owner(tmp_path, saves):
    """Before the first checkpoint and after it; a kill leaves nothing that has to be cleared away."""
    folder = tmp_path / "run"
    process = start(
        f"{SMALL} --iterations 1000000 --save-seconds {saves} --json --out {folder}".replace("--iterations 5", "")
    )
    try:
        wait_for(process, 3)
        for words in (f"{SMALL} --out {folder}", f"--resume {folder}"):
            done = ebb(words, 4)
            assert f"'{folder}' is in use by process {process.pid} on host " in done.stderr
            assert done.stdout == ""
    finally:
        process.kill()
        process.communicate()
    if saves:
        ebb(f"{SMALL} --out {folder}")
        assert [row[0] for row in column(folder)] == [1, 2, 3, 4, 5, 5]
    else:
        done = json.loads((folder / "train.json").read_text())["iteration"]
        ebb(f"--resume {folder} --iterations {done}")


def test_a_reader_that_goes_loses_nothing(tmp_path):
    """As `ebb train ... | head -1`: a checkpoint of the last whole iteration, a message, and the same bits after --resume."""
    words = f"{SMALL.replace('--iterations 5', '--iterations 300')} --json"
    ebb(f"{words} --out {tmp_path}/whole")
    process = start(f"{words} --save-seconds 1000 --out {tmp_path}/run")
    wait_for(process, 3)
    process.stdout.close()
    err = process.stderr.read()
    assert process.wait(timeout=600) == 4, err
    assert "the output cannot be written; stopped after " in err
    done = json.loads((tmp_path / "run" / "train.json").read_text())["iteration"]
    assert f"after {done} iterations; continue with ebb train --resume {tmp_path}/run" in err
    assert 3 <= done < 300 and len(column(tmp_path / "run")) == done
    ebb(f"--resume {tmp_path}/run")
    assert tensors(tmp_path / "run") == tensors(tmp_path / "whole")
    assert column(tmp_path / "run") == column(tmp_path / "whole")


def test_a_file_that_may_not_grow_leaves_the_last_checkpoint(tmp_path):
    ebb(f"{SMALL} --out {tmp_path}/run")

    def small_files():
        resource.setrlimit(resource.RLIMIT_FSIZE, (3000, 3000))

    done = ebb(f"--resume {tmp_path}/run --iterations 7", 4, preexec_fn=small_files)
    assert "File too large" in done.stderr
    assert json.loads((tmp_path / "run" / "train.json").read_text())["iteration"] == 5
    ebb(f"--resume {tmp_path}/run --iterations 7")


def test_metrics_that_cannot_be_written_do_not_cost_the_parameters(tmp_path):
    """Files may be longer than a checkpoint's, and not as long as the metrics of all iterations."""
    words = "--task adding --cell gru --steps 10 --hidden 4 --batch 2 --test-samples 0 --threads 1 --save-seconds 1000"

    def small_files():
        resource.setrlimit(resource.RLIMIT_FSIZE, (8192, 8192))

    done = ebb(f"{words} --iterations 3000 --out {tmp_path}/run", 4, preexec_fn=small_files)
    assert "metrics.jsonl" in done.stderr and "File too large" in done.stderr
    saved = json.loads((tmp_path / "run" / "train.json").read_text())["iteration"]
    assert 20 < saved < 3000
    ebb(f"{words} --iterations {saved} --out {tmp_path}/whole")
    assert tensors(tmp_path / "run") == tensors(tmp_path / "whole")
    ebb(f"--resume {tmp_path}/run --iterations {saved + 2}")


def test_saving_that_fails_need_not_end_training(tmp_path):
    """Files may be a little longer than the metrics of some iterations, and no checkpoint fits; then they may be longer."""
    words = f"{SMALL.replace('--iterations 5', '--iterations 300')} --json"
    ebb(f"{words} --out {tmp_path}/whole")

    def small_files():
        resource.setrlimit(resource.RLIMIT_FSIZE, (4000, resource.RLIM_INFINITY))

    process = start(f"{words} --save-seconds 0 --save-failure-ok --out {tmp_path}/run", preexec_fn=small_files)
    wait_for(process, 60)
    assert not (tmp_path / "run" / "train.json").exists()
    resource.prlimit(process.pid, resource.RLIMIT_FSIZE, (resource.RLIM_INFINITY, resource.RLIM_INFINITY))
    _, err = process.communicate(timeout=600)
    assert process.returncode == 0, err
    told = err.splitlines()
    assert all("File too large" in line and line.endswith("training continues") for line in told)
    assert "checkpoint of iteration 1 is not saved" in told[0] and any("metrics.jsonl" in line for line in told)
    assert tensors(tmp_path / "run") == tensors(tmp_path / "whole")
    assert column(tmp_path / "run") == column(tmp_path / "whole")


def test_goes_on_with_other_threads(tmp_path):
    words = "--task adding --steps 30 --cell lstm --hidden 32 --batch 16 --threads 1 --json"
    ebb(f"{words} --iterations 6 --out {tmp_path}/whole")
    ebb(f"{words} --iterations 3 --out {tmp_path}/run")
    ebb(f"--resume {tmp_path}/run --iterations 6 --threads 2 --json")
    assert tensors(tmp_path / "run") == tensors(tmp_path / "whole")


def test_resume_says_what_cannot_be_changed(uninterrupted, tmp_path):
    folder = uninterrupted
    assert "--lr cannot be changed when training continues" in ebb(f"--resume {folder} --lr 1", 2).stderr
    assert "leave out --out" in ebb(f"--resume {folder} --out {tmp_path}", 2).stderr
    done = ebb(f"--resume {tmp_path}/nothing", 4)
    assert "nothing" in done.stderr
    # All iterations are done: it says so again and changes nothing.
    before = tensors(folder)
    ebb(f"--resume {folder}")
    assert tensors(folder) == before


BAD = {
    "--task nothing": "nothing",
    "--cell lstn": "no cell 'lstn'",
    "--cell linear": "cell is 'linear', which is a readout",
    "--readout none": "readout is 'none'; it must be linear or leaky",
    "--hidden 0": "0 units; there must be 1 to 1000000",
    "--hidden x": "--hidden is 'x'",
    "--hidden -3": "--hidden",
    "--layers 0": "layers is 0; it must be 1 to 1000",
    "--batch 0": "batch is 0; it must be 1 to 65535",
    "--steps 1": "task adding: 1 steps; 2 to",
    "--lr fast": "--lr is 'fast'; it must be a number",
    "--lr nan": "--lr is 'nan'; it must be a number",
    "--lr -1": "-1",
    "--dropout 1": "dropout is 1; it must be 0 or more and below 1",
    "--optimiser lion": "lion",
    "--schedule sine": "sine",
    "--budget much": "much",
    "--budget 0%": "budget is '0%'; it must be bytes such as 64MiB",
    "--strategy truncated:0": "strategy is 'truncated:0'; truncated takes the time steps",
    "--strategy store_al": "store_al",
    "--dtype half": "dtype is 'half'; it must be float or double",
    "--surrogate tri --cell lif": "no surrogate 'tri'",
    "--max-activity 0.5": "gradient_threshold and max_activity are for cells that spike",
    "--synaptic --cell alif": "synaptic is for lif",
    "--tau-mem 0 --cell lif": "tau_mem is 0; it must be above 0",
    "--input-density 0": "input",
    "--iterations 3 --epochs 3": "iterations and epochs are both given",
    "--epochs 3": "epochs is 3, but the samples of task 'adding' never end; give iterations",
    "--threads 5000": "threads is 5000; it must be 0 to 1024",
    "--tier ram": "ram",
    "--hiden 3": "unknown word '--hiden'; did you mean --hidden?",
    "--hidden": "--hidden needs exactly one value, once",
    "extra": "unknown word 'extra'",
}


@pytest.mark.parametrize("words", BAD)
def test_bad_words(words):
    done = ebb(words, 2)
    assert BAD[words] in done.stderr
    assert done.stderr.startswith("ebb train: ")
    assert done.stdout == ""


def test_a_budget_that_does_not_fit_names_one_that_does(tmp_path):
    words = "--task adding --steps 500 --hidden 20 --batch 4 --iterations 1 --test-samples 0 --threads 1"
    done = ebb(f"{words} --budget 1KiB", 3)
    (least,) = re.findall(r"it needs at least (\d+) bytes", done.stderr)
    done = ebb(f"{words} --budget {least} --json --out {tmp_path}/least")
    assert json.loads(done.stdout.splitlines()[-1])["report"]["peak"]["fast"]["measured"] <= int(least)
    ebb(f"{words} --strategy store_all --out {tmp_path}/plain")
    assert tensors(tmp_path / "least") == tensors(tmp_path / "plain")
    ebb(f"{words} --budget {int(least) - 1}", 3)


MISSING = {
    "mnist": "torchvision.datasets.MNIST",
    "fashion-mnist": "install the Debian package dataset-fashion-mnist",
    "qtdb": "are in byin-cwi/Efficient-spiking-networks",
    "text": "karpathy/char-rnn",
    "nmnist": "bamsumit/slayerPytorch",
    "npy": "save yours with numpy.save",
}


@pytest.mark.parametrize("task", MISSING)
def test_missing_data_say_where_they_are(tmp_path, task):
    done = ebb(f"--task {task} --data {tmp_path}/none", 4)
    assert f"there is no file {tmp_path}/none" in done.stderr
    assert MISSING[task] in done.stderr


def test_a_configuration_file_is_words(tmp_path):
    words = f"{SMALL} --cell gru --lr 0.02 --optimiser adamw --pipelined --layers 2"
    ebb(f"{words} --out {tmp_path}/words")
    config = {"task": "copy", "steps": 40, "hidden": 12, "batch": 4, "iterations": 5, "test_samples": 6, "threads": 1}
    config |= {"cell": "gru", "lr": 0.02, "optimiser": "adamw", "pipelined": True, "layers": 3}
    (tmp_path / "config.json").write_text(json.dumps(config))
    ebb(f"--config {tmp_path}/config.json --layers 2 --out {tmp_path}/config")
    assert tensors(tmp_path / "words") == tensors(tmp_path / "config")
    # What a checkpoint keeps is a configuration file too.
    options = json.loads((tmp_path / "config" / "train.json").read_text())["options"]
    (tmp_path / "again.json").write_text(json.dumps(options))
    ebb(f"--config {tmp_path}/again.json --out {tmp_path}/again")
    assert tensors(tmp_path / "words") == tensors(tmp_path / "again")

    (tmp_path / "bad.json").write_text('{"hiden": 3}')
    assert "no option 'hiden'" in ebb(f"--config {tmp_path}/bad.json", 2).stderr
    (tmp_path / "bad.json").write_text("[1]")
    assert "it must be a JSON object" in ebb(f"--config {tmp_path}/bad.json", 2).stderr
    assert "cannot read" in ebb(f"--config {tmp_path}/none.json", 4).stderr

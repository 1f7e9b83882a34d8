# SPDX-License-Identifier: Apache-2.0
"""What README.md and docs show is what the program prints and the compiler takes."""

import os
import pathlib
import re
import shlex
import shutil
import subprocess

import pytest

EBB = os.environ.get("EBB_BINARY")
ROOT = pathlib.Path(__file__).parents[2]
PAGES = ["README.md", *(f"docs/{name}.md" for name in ("start", "choosing", "planning", "cpp", "tiers", "extending"))]


def blocks(page, language):
    found = re.findall(r"^```(\w*)\n(.*?)^```$", (ROOT / page).read_text(), re.S | re.M)
    return [text for kind, text in found if kind == language]


def sessions(page):
    """Every `$ ebb …` with the lines that follow it."""
    for block in blocks(page, ""):
        for session in re.split(r"^\$ ", block, flags=re.M)[1:]:
            command, _, shown = session.replace("\\\n", " ").partition("\n")
            yield command, shown


@pytest.mark.skipif(not EBB, reason="EBB_BINARY does not name the program ebb")
@pytest.mark.parametrize("command, shown", [case for page in PAGES for case in sessions(page)])
def test_shows_what_is_printed(command, shown):
    program, *words = shlex.split(command)
    assert pathlib.Path(program).name == "ebb"
    done = subprocess.run([EBB, *words], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    printed = done.stdout.splitlines()
    assert [line for line in shown.splitlines() if line not in printed] == []


@pytest.mark.slow
@pytest.mark.skipif(not shutil.which("c++"), reason="no C++ compiler here")
@pytest.mark.parametrize("code", [code for page in PAGES for code in blocks(page, "cpp")])
def test_shows_what_compiles(code):
    lines = code.splitlines()
    includes = [line for line in lines if line.startswith("#")]
    body = [line for line in lines if not line.startswith("#")]
    program = "\n".join([*includes, "int main() {", *body, "}"])
    command = ["c++", "-std=c++20", "-fsyntax-only", "-I", str(ROOT), "-x", "c++", "-"]
    done = subprocess.run(command, input=program, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr


def gradients_after(code):
    """Of all parameters of the modules that the block leaves behind, by its names."""
    import torch

    torch.manual_seed(0)
    names = {}
    exec(compile(code, "an example", "exec"), names)
    modules = {name: value for name, value in names.items() if isinstance(value, torch.nn.Module)}
    grads = {(name, part): p.grad for name, one in modules.items() for part, p in one.named_parameters()}
    return {key: grad for key, grad in grads.items() if grad is not None}


@pytest.mark.parametrize("code", [code for page in PAGES for code in blocks(page, "python")])
def test_shows_what_runs_and_gives_the_gradients_of_plain_autograd(code, one_thread, monkeypatch):
    import torch
    from scan_oracle import loop

    import ebb

    found = gradients_after(code)
    monkeypatch.setattr(ebb, "scan", lambda f, init, xs, budget: loop(f, init, xs))
    monkeypatch.setattr(ebb, "compress", lambda net: net)
    monkeypatch.setattr(ebb, "fit", lambda net, sample, budget: net)
    monkeypatch.setattr(ebb, "compression_report", lambda net, sample: None)
    plain = gradients_after(code)
    assert found.keys() == plain.keys() and found
    assert all(torch.equal(found[key], plain[key]) for key in plain)


def test_finds_something_to_check():
    for page in ("README.md", "docs/start.md"):
        assert blocks(page, "python") and sum(1 for _ in sessions(page)) > 0
    assert blocks("README.md", "cpp") and all(
        blocks(f"docs/{name}.md", "cpp") for name in ("cpp", "tiers", "extending")
    )

#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Adds a toy cell, codec, tier and strategy to a copy of the tree by following CONTRIBUTING.md, and runs them.

A toy is <kind>.toml: new files, and lines that go after or before a line of a file. CONTRIBUTING says at "Adding a <kind>"
which files that touches; the toy must touch these and no others. The copy is then built as the preset dev is, and the
suites that walk the tables, and the program, must know the toys. Without arguments everything runs; --keep leaves the copy.
"""

import argparse
import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

import tomllib

HERE = Path(__file__).resolve().parent
ROOT = HERE.parents[1]
KINDS = ("cell", "codec", "tier", "strategy")
TARGETS = ("cell_test", "codec_test", "conformance_test", "plan_test", "store_test", "cell_program", "ebb_cli")


def documented(text: str, kind: str) -> list[str]:
    """The files that CONTRIBUTING lists for a kind, which must be as many as its heading says."""
    found = re.search(rf"^## Adding a {kind}: (\d+) files\n(.*?)(?=^## )", text, re.M | re.S)
    assert found, f"CONTRIBUTING.md has no heading '## Adding a {kind}: N files'"
    files = re.findall(r"^- `([^`]+)`", found[2], re.M)
    assert len(files) == int(found[1]), f"{kind}: the heading says {found[1]} files, the list has {len(files)}"
    return [file.replace("<name>", "toy") for file in files]


def insert(lines: list[str], edit: dict, kind: str) -> list[str]:
    anchor = edit.get("after", edit.get("before"))
    places = [i for i, line in enumerate(lines) if line == anchor]
    assert len(places) == 1, f"{kind}: {edit['file']} has {len(places)} lines '{anchor}'; there must be one"
    at = places[0] + (1 if "after" in edit else 0) + edit.get("skip", 0)
    return [*lines[:at], *edit["text"].strip("\n").split("\n"), *lines[at:]]


def add(kind: str, tree: Path) -> list[str]:
    """Puts a toy into the tree; the files that it touches."""
    toy = tomllib.loads((HERE / f"{kind}.toml").read_text())
    touched = []
    for new in toy.get("new", []):
        path = tree / new["file"]
        assert not path.exists(), f"{kind}: {new['file']} is there already"
        path.write_text(new["text"].lstrip("\n"))
        touched.append(new["file"])
    for edit in toy["insert"]:
        path = tree / edit["file"]
        path.write_text("\n".join(insert(path.read_text().split("\n"), edit, kind)))
        touched.append(edit["file"])
    return touched


def copy_of(root: Path, tree: Path) -> None:
    listed = subprocess.run(
        ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"],
        cwd=root,
        capture_output=True,
        check=True,
    )
    for name in filter(None, listed.stdout.decode().split("\0")):
        if (root / name).is_file():
            (tree / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy2(root / name, tree / name)


class Checks:
    """Runs one check after another and counts them."""

    def __init__(self, tree: Path):
        self.tree = tree
        self.build = tree / "build" / "dev"
        self.passed = self.failed = 0

    def check(self, what: str, call) -> bool:
        try:
            call()
        except (AssertionError, subprocess.TimeoutExpired, json.JSONDecodeError) as error:
            print(f"FAILED {what}: {error}", flush=True)
            self.failed += 1
            return False
        print(f"passed {what}", flush=True)
        self.passed += 1
        return True

    def run(self, *command, env: dict | None = None, timeout: int = 1800) -> str:
        words = [str(word) for word in command]
        done = subprocess.run(
            words,
            cwd=self.tree,
            env={**os.environ, **(env or {})},
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            timeout=timeout,
        )
        assert done.returncode == 0, f"{' '.join(words)} ends with {done.returncode}\n{done.stdout[-4000:]}"
        return done.stdout

    def suite(self, program: str, cases: str) -> None:
        """Cases of a test program, of which there must be some."""
        out = self.run(self.build / "tests" / program, f"--gtest_filter={cases}")
        passed = re.search(r"\[  PASSED  \] (\d+) test", out)
        assert passed and int(passed[1]) > 0, f"no case of {program} is named {cases}"

    def refused(self, words: str, *parts: str) -> None:
        """A command that must fail, in these words."""
        done = subprocess.run([self.build / "ebb", *words.split()], capture_output=True, text=True, timeout=60)
        assert done.returncode != 0, f"ebb {words} ends with 0"
        has(done.stderr, *parts)

    def ebb(self, words: str) -> str:
        return self.run(self.build / "ebb", *words.split())


def compiled(checks: Checks) -> None:
    env = {}
    if shutil.which("ccache"):
        env = {
            "CMAKE_CXX_COMPILER_LAUNCHER": "ccache",
            "CCACHE_BASEDIR": str(checks.tree),
            "CCACHE_NOHASHDIR": "1",
            "CCACHE_SLOPPINESS": "pch_defines,time_macros",
        }
    checks.run("cmake", "--preset", "dev", "-DEBB_BENCH=OFF", env=env)
    jobs = f"-j{os.cpu_count()}"
    checks.run("cmake", "--build", "build/dev", jobs, "--target", *TARGETS, env=env, timeout=3600)


def has(text: str, *parts: str) -> None:
    for part in parts:
        assert part in text, f"'{part}' is not in\n{text[:2000]}"


def python_with_torch() -> str | None:
    for python in (ROOT / ".venv" / "bin" / "python", sys.executable):
        words = [str(python), "-c", "import pytest, safetensors.torch, torch"]
        if Path(python).exists() and subprocess.run(words, capture_output=True).returncode == 0:
            return str(python)
    return None


def check_cell(checks: Checks) -> None:
    def trained():
        words = "train --task adding --steps 20 --cell toy --hidden 8 --batch 4 --iterations 2 --threads 1 --json"
        lines = [json.loads(line) for line in checks.ebb(words).splitlines() if line.startswith("{")]
        losses = [line["loss"] for line in lines if "loss" in line]
        assert losses and all(0 < loss < 10 for loss in losses), f"losses {losses}"

    def like_torch(python: str):
        env = {"EBB_CELL_PROGRAM": str(checks.build / "tests" / "train" / "cell_program")}
        words = ["-m", "pytest", "-q", "-p", "no:cacheprovider", "-k", "toy", "tests/python/test_cells.py"]
        has(checks.run(python, *words, env=env), " passed")

    checks.check("cell: under every strategy", lambda: checks.suite("conformance_test", "Rows/Cells.*/toy"))
    checks.check("cell: finite differences of a unit", lambda: checks.suite("cell_test", "Smooth.*"))
    checks.check("cell: finite differences of a net", lambda: checks.suite("cell_test", "Cells/Gradient.*/toy_*"))
    checks.check("cell: threads and options", lambda: checks.suite("cell_test", "Threads.*:Options.*"))
    checks.check("cell: ebb train --help", lambda: has(checks.ebb("train --help"), "toy: a cell for the tests"))
    checks.check("cell: ebb train", trained)
    on_gpu = "train --task adding --steps 20 --cell toy --hidden 32 --batch 4 --budget 1GiB --plan-only --device cuda"
    checks.check("cell: not on a GPU", lambda: checks.refused(on_gpu, "'toy', which a device does not run"))
    if python := python_with_torch():
        checks.check("cell: its PyTorch version", lambda: like_torch(python))
    else:
        print("skipped cell: its PyTorch version (no torch, pytest and safetensors here)")


def check_codec(checks: Checks) -> None:
    checks.check("codec: the suite", lambda: checks.suite("codec_test", "-Slow*"))
    checks.check("codec: of tapes, states and transfers", lambda: checks.suite("conformance_test", "Codecs.*"))


def check_tier(checks: Checks) -> None:
    def probed():
        out = checks.ebb("probe --state 64KiB --sweeps 1 --steps 10 --tier t:toy,capacity=8MiB --json")
        tier = json.loads(out)["tiers"][0]
        assert (tier["name"], tier["kind"], tier["capacity"]) == ("t", "toy", 8 << 20), tier

    checks.check("tier: the suite", lambda: checks.suite("store_test", "*/toy"))
    checks.check("tier: under a strategy", lambda: checks.suite("conformance_test", "Rows/Strategies.*/async"))
    checks.check("tier: ebb probe --help", lambda: has(checks.ebb("probe --help"), "NAME:toy", "a tier for the tests"))
    checks.check("tier: ebb probe", probed)
    train = "train --task adding --steps 20 --hidden 8 --batch 4 --iterations 2 --threads 1 --tier t:toy"
    checks.check("tier: ebb train", lambda: checks.ebb(train))


def check_strategy(checks: Checks) -> None:
    def planned():
        plan = json.loads(checks.ebb("plan --steps 100 --budget 30 --strategy toy --json"))
        assert plan["strategy"] == "toy" and plan["forwards"] >= 100, plan

    checks.check("strategy: on every Step and tier", lambda: checks.suite("conformance_test", "Rows/Strategies.*/toy"))
    checks.check("strategy: properties", lambda: checks.suite("plan_test", "Property.*"))
    checks.check("strategy: ebb plan", planned)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--keep", action="store_true", help="leave the copy, and say where it is")
    keep = parser.parse_args().keep
    tree = Path(tempfile.mkdtemp(prefix="ebb-extensions-"))
    checks = Checks(tree)
    try:
        copy_of(ROOT, tree)
        guide = (tree / "CONTRIBUTING.md").read_text()

        def follows(kind: str) -> None:
            listed, touched = sorted(documented(guide, kind)), sorted(set(add(kind, tree)))
            assert listed == touched, f"CONTRIBUTING.md names {listed}, the toy touches {touched}"

        for kind in KINDS:
            checks.check(f"{kind}: the files of CONTRIBUTING", lambda kind=kind: follows(kind))
        if checks.failed == 0 and checks.check("the build", lambda: compiled(checks)):
            for check in (check_cell, check_codec, check_tier, check_strategy):
                check(checks)
    finally:
        if keep:
            print(f"the copy is {tree}")
        else:
            shutil.rmtree(tree)
    print(f"{checks.passed} passed, {checks.failed} failed")
    return 1 if checks.failed else 0


if __name__ == "__main__":
    sys.exit(main())

# SPDX-License-Identifier: Apache-2.0
"""`./dev bench compress compiled`: peak and time of a training step of compiled nets, torch's own ways and ebb.compiled's.

Each way has a process of its own. All compile at the same time; then they are measured one after another, in rounds. A row is written
to --save as soon as it is known, and a way that the file has is not measured again, so that a table can be made in parts.
"""

from __future__ import annotations

import argparse
import datetime
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import torch

sys.path[:0] = [str(Path(__file__).parent), str(Path(__file__).parent.parent)]

from compiled_way import MODELS
from nets import NETS
from text.page import machine, table

MIB = 2**20
WAYS = [
    "eager",
    "torch",
    "torch:0.5",
    "torch:0.2",
    "torch:fp8",
    "ebb",
    "ebb:60%",
    "ebb:50%",
    "ebb:40%",
    "ebb:30%",
    "int8",
    "int8:20%",
]
CHOICES = [name for name in (*NETS, *MODELS) if name != "small"]
HEAD = """\
peak: bytes at most beyond weights and images, gradients among them, and beside eager's. ms, time: a step of steps one after another, median
of the rounds, and as a ratio to eager's of the same round. GPU busy: milliseconds of a step in which its kernels run. predicted: the peak
that ebb's report names, beside the one measured. again: convolutions and products that run again. `torch:0.5`: torch.compile with
activation_memory_budget 0.5; `torch:fp8`: with its experimental pass that keeps activations in 8 bits; `ebb:50%`:
ebb.compiled(budget="50%"); `int8`: with keep="int8".
"""


class Child:
    def __init__(self, setting: dict[str, Any], way: str, jobs: int):
        words = [sys.executable, str(Path(__file__).parent / "compiled_way.py"), "--way", way]
        for name, value in setting.items():
            flag = "--" + name.replace("_", "-")
            words += [flag] if value is True else [] if value is False else [flag, str(value)]
        environment = os.environ | {"TORCHINDUCTOR_COMPILE_THREADS": str(jobs)}
        self.way, self.row = way, {"way": way}
        self.errors = tempfile.TemporaryFile("w+")  # a pipe without a reader would fill
        self.process = subprocess.Popen(
            words, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=self.errors, text=True, env=environment
        )
        self.rounds: list[float] = []

    def read(self) -> dict[str, Any] | None:
        assert self.process.stdout is not None
        for line in self.process.stdout:
            if line.startswith("{"):
                return json.loads(line)
        return None

    def ask(self, what: str) -> dict[str, Any] | None:
        assert self.process.stdin is not None
        print(what, file=self.process.stdin, flush=True)
        return self.read()

    def end(self) -> None:
        assert self.process.stdin is not None
        self.process.stdin.close()
        self.process.wait()

    def why(self) -> str:
        self.process.wait()
        self.errors.seek(0)
        lines = self.errors.read().splitlines()
        return ([line for line in lines if "Error:" in line] or lines or ["it ended without a word"])[-1]


class Table:
    """The ways of one net: rows that the file has, and children for those that are missing."""

    def __init__(self, setting: dict[str, Any], words: argparse.Namespace):
        self.setting, self.words = setting, words
        self.title = f"{setting['net']}, batch {setting['batch']}, {setting['numbers']}"
        self.title += ", channels last" if setting["channels_last"] else ""
        self.rows = saved(words.save, setting)
        self.missing = [way for way in words.ways if way not in {row["way"] for row in self.rows}]
        if self.missing and "eager" in words.ways:
            self.missing = list(dict.fromkeys(["eager", *self.missing]))  # ratios are of one round
        self.children: list[Child] = []

    def start(self, jobs: int) -> None:
        extra = {"steps": self.words.steps, "device": self.words.device}
        self.children = [Child(self.setting | extra, way, jobs) for way in self.missing]

    def wait(self) -> None:
        for child in self.children:
            found = child.read()
            child.row |= {"failed": child.why()} if found is None else found

    def measure(self) -> None:
        ready = [child for child in self.children if "failed" not in child.row]
        for child in ready:
            child.row |= child.ask("peak") or {}
        for _ in range(self.words.rounds):
            for child in ready:
                child.rounds.append((child.ask("time") or {"seconds": float("nan")})["seconds"])
        for child in ready:
            child.row |= {"rounds": child.rounds} | (child.ask("busy") or {})
            child.end()
        fresh = [child.row for child in self.children]
        keep(self.words.save, self.setting, fresh)
        self.rows = [row for row in self.rows if row["way"] not in self.missing] + fresh

    def show(self) -> None:
        if found := shown(self.rows):
            print(table(self.title, found))
        for row in self.rows:
            if "failed" in row:
                print(f"- {row['way']}: {row['failed']}")
        print(flush=True)


def shown(rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
    eager = next((row for row in rows if row["way"] == "eager" and "peak" in row), None)
    found = []
    for row in rows:
        if "failed" in row:
            continue
        ratio = eager and statistics.median(mine / theirs for mine, theirs in zip(row["rounds"], eager["rounds"]))
        beside = f" ({100 * (row['peak'] / eager['peak'] - 1):+.0f} %)" if eager else ""
        predicted = (
            f"{row['predicted'] / MIB:.0f}, {row['predicted'] / row['peak']:.2f}"
            if row.get("predicted")
            else row.get("left", "")
        )
        found.append(
            {
                "way": row["way"],
                "ms": f"{1e3 * statistics.median(row['rounds']):.1f}",
                "time": f"{ratio:.2f}" if ratio else "-",
                "GPU busy": f"{1e3 * row['busy']:.1f}" if "busy" in row else "",
                "peak MiB": f"{row['peak'] / MIB:.0f}{beside}",
                "predicted": predicted,
                "again": str(row.get("again", "")),
                "compiled s": f"{row['compiled']:.0f}",
            }
        )
    return found


def asked() -> argparse.Namespace:
    on_gpu = torch.cuda.is_available()
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--device", default="cuda" if on_gpu else "cpu")
    parser.add_argument(
        "--nets", nargs="+", choices=CHOICES, metavar="NET", default=["resnet50"], help=f"of {', '.join(CHOICES)}"
    )
    parser.add_argument("--batch", type=int, default=64 if on_gpu else 4)
    parser.add_argument("--numbers", choices=["fp32", "tf32", "bf16"], default="fp32", help="bf16: autocast")
    parser.add_argument("--channels-last", action="store_true")
    parser.add_argument("--ways", nargs="+", metavar="WAY", default=WAYS, help=f"default: {' '.join(WAYS)}")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--steps", type=int, default=10 if on_gpu else 2, help="of a round, one after another")
    parser.add_argument("--minutes", type=float, default=float("inf"), help="begin no further net after that many")
    parser.add_argument(
        "--save", metavar="FILE", help="add rows to this file (JSON lines), and leave out those that it has"
    )
    return parser.parse_args()


def main() -> None:
    words = asked()
    end = time.monotonic() + 60 * words.minutes
    name = torch.cuda.get_device_name() if words.device.startswith("cuda") else machine()
    print(f"{datetime.date.today()}, {name}, PyTorch {torch.__version__}\n\n{HEAD}", flush=True)
    cores = os.cpu_count() or 1
    settings = [
        {"net": net, "batch": words.batch, "numbers": words.numbers, "channels_last": words.channels_last}
        for net in words.nets
    ]
    tables = [Table(setting, words) for setting in settings]
    while tables:
        # As many nets compile at the same time as there are cores for.
        now = [tables.pop(0)]
        while tables and sum(len(one.missing) for one in now) + len(tables[0].missing) <= cores:
            now.append(tables.pop(0))
        if time.monotonic() > end:
            for one in now:
                print(f"- {one.title}: LEFT OUT, {words.minutes:g} minutes are over")
            continue
        count = sum(len(one.missing) for one in now)
        for one in now:
            one.start(max(1, cores // max(count, 1)))
        for one in now:
            one.wait()
        for one in now:
            one.measure()
            one.show()


def saved(path: str | None, setting: dict[str, Any]) -> list[dict[str, Any]]:
    if path is None or not Path(path).exists():
        return []
    lines = [json.loads(line) for line in Path(path).read_text().splitlines()]
    return [line["row"] for line in lines if line["setting"] == setting]


def keep(path: str | None, setting: dict[str, Any], rows: list[dict[str, Any]]) -> None:
    if path is not None:
        with open(path, "a") as file:
            file.writelines(json.dumps({"setting": setting, "row": row}) + "\n" for row in rows)


if __name__ == "__main__":
    main()

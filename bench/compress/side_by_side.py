# SPDX-License-Identifier: Apache-2.0
"""`./dev bench compress side_by_side`: trains variants in processes of their own at the same time, while there is time.

Each job is VARIANT or VARIANT:FACTOR, which trains FACTOR times as many epochs. First all jobs together measure what an
epoch takes; from that follow the epochs that end within --minutes, the same for all jobs. Options that are not listed
go to accuracy.py. Ends with a table; its seconds are those of jobs that share the machine.
"""

from __future__ import annotations

import argparse
import datetime
import json
import shlex
import subprocess
import sys
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

sys.path[:0] = [str(Path(__file__).parent), str(Path(__file__).parent.parent)]

from text.page import Output, machine, table
from variants import VARIANTS

# Of the time left is planned: jobs do not start at once, and the last ones may not use the machine to the full.
SPARE = 0.8


@dataclass
class Job:
    variant: str
    factor: float

    @classmethod
    def of(cls, text: str) -> Job:
        variant, _, factor = text.partition(":")
        if variant not in VARIANTS:
            raise argparse.ArgumentTypeError(f"no variant '{variant}'; there are {', '.join(VARIANTS)}")
        return cls(variant, float(factor or 1))

    def epochs(self, base: int) -> int:
        return max(1, round(self.factor * base))

    def start(self, words: argparse.Namespace, rest: list[str], log: Any) -> subprocess.Popen[str]:
        program = str(Path(__file__).parent / "accuracy.py")
        return subprocess.Popen(
            [sys.executable, program, *words.passed, "--variants", self.variant, *rest],
            text=True,
            stdout=log,
            stderr=None,
        )


def calibrated(jobs: list[Job], words: argparse.Namespace) -> int:
    """Epochs of a job with factor 1."""
    began = time.monotonic()
    running = [job.start(words, ["--calibrate", str(words.calibrate)], subprocess.PIPE) for job in jobs]
    work = 0.0
    for job, process in zip(jobs, running):
        said, _ = process.communicate()
        if process.returncode != 0:
            sys.exit(f"{job.variant} could not be measured")
        # Each had its share of the machine, which the others take over once it has ended.
        work += job.factor * json.loads(said.splitlines()[-1])["epoch_seconds"] / len(jobs)
    now = time.monotonic()
    start = now - began - words.calibrate  # loads and compiles once more
    return max(1, int((SPARE * (words.end - now) - start) / work))


def row(path: Path, factor: float) -> dict[str, object] | None:
    lines = [line for line in map(json.loads, path.read_text().splitlines()) if "epoch" in line]
    if not lines:
        return None
    last = lines[-1]
    cosines = last["cosine"].values()
    return {
        "variant": last["variant"],
        "epochs": f"{last['epoch']} of {last['epochs']}",
        "accuracy %": 100 * last["accuracy"],
        "best %": 100 * max(line["accuracy"] for line in lines),
        "last loss": last["loss"],
        "s/epoch": sum(line["seconds"] for line in lines) / len(lines),
        "peak MiB": (last["peak"] or 0) / 2**20,
        "cosine, least": min(cosines),
        "mean": sum(cosines) / len(cosines),
        "length": factor,
    }


def write_json(path: Path, net: str, rows: list[dict[str, Any]]) -> None:
    import torch

    found = {
        "date": str(datetime.date.today()),
        "machine": torch.cuda.get_device_name() if torch.cuda.is_available() else machine(),
        "net": net,
        "rows": [
            {
                "variant": row["variant"],
                "epochs": row["epochs"],
                "accuracy_percent": row["accuracy %"],
                "peak_mib": row["peak MiB"],
                "cosine_least": row["cosine, least"],
            }
            for row in rows
        ],
    }
    path.write_text(json.dumps(found, indent=1) + "\n", encoding="utf-8")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0], epilog="Other options go to accuracy.py.")
    parser.add_argument(
        "--jobs",
        type=Job.of,
        nargs="+",
        metavar="VARIANT[:FACTOR]",
        default=[Job(name, 1) for name in ("stock", "exact", "pool2", "pool4", "pool2-int8")],
    )
    parser.add_argument("--minutes", type=float, required=True, help="for everything")
    parser.add_argument("--calibrate", type=float, default=15, metavar="SECONDS")
    parser.add_argument("--epochs", type=int, help="of a job with factor 1; else as many as there is time for")
    parser.add_argument("--out", default="build/compress")
    parser.add_argument("--save", metavar="FILE", help="write the table there too")
    parser.add_argument("--json", type=Path, metavar="FILE", help="write what `./dev bench papers barley` draws there")
    words, words.passed = parser.parse_known_args()
    words.end = time.monotonic() + 60 * words.minutes
    words.passed += ["--out", words.out]
    folder = Path(words.out)
    folder.mkdir(parents=True, exist_ok=True)
    base = words.epochs or calibrated(words.jobs, words)
    print(f"{base} epochs", file=sys.stderr, flush=True)
    began = time.time()
    running = [job.start(words, ["--epochs", str(job.epochs(base))], None) for job in words.jobs]
    late = False
    for process in running:
        try:
            process.wait(max(0.0, words.end - time.monotonic()))
        except subprocess.TimeoutExpired:
            late = True
            process.terminate()
            process.wait()
    rows, nets = [], set()
    for job in words.jobs:
        # Names of nets have no "-", those of variants may: pool2-int8 is not int8.
        found = [
            path
            for path in folder.glob(f"*-{job.epochs(base)}e.jsonl")
            if path.stat().st_mtime >= began
            and path.name.partition("-")[2] == f"{job.variant}-{job.epochs(base)}e.jsonl"
        ]
        rows += [one for path in found if (one := row(path, job.factor))]
        nets |= {path.name.partition("-")[0] for path in found}
    out = Output(words.save)
    out.put(f"`./dev bench compress side_by_side {shlex.join(sys.argv[1:])}` on {datetime.date.today()}.\n")
    if rows:
        out.put(table(f"Accuracy, {base} epochs times the length", rows))
        if words.json:
            write_json(words.json, f"{', '.join(sorted(nets))}, {base} epochs", rows)
    if late:
        out.put("NOT ALL DONE: the time was over before the last epoch.\n")
    failed = [job.variant for job, process in zip(words.jobs, running) if process.returncode > 0]
    if failed:
        sys.exit(f"failed: {', '.join(failed)}")


if __name__ == "__main__":
    main()

# SPDX-License-Identifier: Apache-2.0
"""`./dev bench learn`: whether nets learn under 5 % of the memory, and exactly as they do with all of it.

Each task runs `ebb train` with bench/learn/NAME.json until it is done or --seconds have passed; what is there in
--out is gone on with, not begun anew. A second run that keeps everything is stopped after its first iterations:
loss and gradient norm of each must be the same to the last bit.
"""

import argparse
import datetime
import json
import math
import os
import shlex
import signal
import subprocess
import sys
import time

from text.page import Output, machine, table

ROOT = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
EBB = os.path.join("build", "release", "ebb")
BUDGET = "5%"
FASHION = "/usr/share/datasets/fashion-mnist"  # of the Debian package dataset-fashion-mnist

# Name, folder below --data (None: no data), goal for the test's loss (below) or accuracy (at least).
TASKS = [
    ("adding", None, ("loss", 1e-3)),
    ("copy", None, ("loss", 10 * math.log(8) / 120)),
    ("qtdb", "qtdb-ecg", ("accuracy", 0.84)),
    ("text", "text", ("loss", 1.6)),
    ("fashion-mnist", "fashion-mnist", None),
    ("mnist", "mnist", ("accuracy", 0.98)),
]
LONG = ("mnist",)  # only with --all


def config_of(name):
    return os.path.join("bench", "learn", f"{name}.json")


def data_of(name, folder, data):
    """The task's folder; None: it is missing."""
    found = os.path.join(data, folder) if data else ""
    if os.path.isdir(found):
        return found
    return FASHION if name == "fashion-mnist" and os.path.isdir(FASHION) else None


def metrics_in(directory):
    try:
        with open(os.path.join(directory, "metrics.jsonl")) as file:
            return [json.loads(text) for text in file]
    except FileNotFoundError:
        return []


def trained(lines):
    return max((line["iteration"] for line in lines if line["split"] == "train"), default=0)


def train(words, directory, limit, iterations=None):
    """Runs ebb train until it ends, `limit` seconds have passed or that many iterations are done; its plan."""
    begun = os.path.exists(os.path.join(directory, "train.json"))
    command = [EBB, "train", "--json"] + (["--resume", directory] if begun else words + ["--out", directory])
    deadline, plan, is_asked = time.monotonic() + limit, {}, False
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as run:
        for text in run.stdout:
            line = json.loads(text)
            plan = line if line["event"] == "plan" else plan
            enough = iterations and line["event"] == "train" and line["iteration"] >= iterations
            if (enough or time.monotonic() > deadline) and not is_asked:
                run.send_signal(signal.SIGINT)  # it saves a checkpoint and ends
                is_asked = True
        said = run.stderr.read()
    if run.returncode not in (0, 130):
        sys.exit(f"{shlex.join(command)}: {said}")
    return plan


def differing(ours, plain, most):
    """(iterations compared, the first that differs or None), by loss and gradient norm."""
    ours, plain = ([line for line in lines if line["split"] == "train"][:most] for lines in (ours, plain))
    compared = list(zip(ours, plain))
    for one, other in compared:
        for key in ("iteration", "loss", "gradient_norm"):
            if one[key] != other[key]:
                return len(compared), one["iteration"]
    return len(compared), None


def exactness(ours, plain, most):
    count, first = differing(ours, plain, most)
    if count == 0:
        return "NOT COMPARED"
    return f"same bits, {count}" if first is None else f"DIFFERS from iteration {first}"


def row_of(name, goal, plan, lines, words):
    tests = [line for line in lines if line["split"] == "test"]
    key = goal[0] if goal else "accuracy"
    done, wanted = trained(lines), plan["iterations"]
    better = min if key == "loss" else max
    last = tests[-1][key] if tests else math.nan
    best = better((test[key] for test in tests), default=math.nan)
    reached = bool(tests) and goal and (last < goal[1] if key == "loss" else last >= goal[1])
    row = {"task": name, "net": words["net"], "steps": plan["time_steps"], "parameters": plan["parameters"]}
    row["memory MiB"] = max(line.get("peak_bytes", 0) for line in lines) / 2**20
    row |= {"plain MiB": plan["plain"] / 2**20, "iterations": f"{done} of {wanted}"}
    row |= {"minutes": lines[-1]["seconds"] / 60, "result": f"{key} {last:.4g}" if tests else "no test yet"}
    row["best"] = f"{best:.4g}" if tests else "-"
    sign = "<" if key == "loss" else ">="
    row["goal"] = f"{sign} {goal[1]:.4g}" if goal else "-"
    row["reached"] = "-" if not goal else "yes" if reached else "NO" if done >= wanted else "not yet"
    return row | {"as store_all": words["exact"]}


def run_task(name, data, goal, words, out):
    config = config_of(name)
    with open(config) as file:
        settings = json.load(file)
    directory = os.path.join(words.out, name)
    plain_directory = directory + ".plain"
    common = ["--config", config, "--threads", str(words.threads)] + (["--data", data] if data else [])
    if words.quick:
        common += ["--iterations", str(words.compare), "--test-samples", "100"]
    ours = common + ["--budget", BUDGET]
    plain = common + ["--budget", "unlimited", "--strategy", "store_all"]
    shown = [word if word != data else os.path.join("DIR", os.path.basename(data)) for word in ours]
    out.put("    " + shlex.join(["ebb", "train", *shown, "--out", directory]))
    plan = train(ours, directory, words.seconds)
    if trained(metrics_in(plain_directory)) < words.compare:
        train(plain, plain_directory, words.seconds, words.compare)
    lines = metrics_in(directory)
    if not lines:
        return None
    net = f"{settings['cell']} {settings['hidden']}" + (f" x {settings['layers']}" if "layers" in settings else "")
    exact = exactness(lines, metrics_in(plain_directory), words.compare)
    return row_of(name, goal, plan, lines, {"net": net, "exact": exact})


HEAD = """\
Every task learns in 5 % of what keeping everything takes. as store_all: that many first iterations whose loss and gradient
norm are the same bits in a run that keeps everything (`--strategy store_all --budget unlimited`). result: the last test;
best: the best of all tests, of which goals know nothing. The time is that of all parts of a training.
"""


def asked_for():
    """The command line's words, checked; the work goes on in the repository's root."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--data", metavar="DIR", help="folder with mnist/, qtdb-ecg/, text/, fashion-mnist/")
    parser.add_argument(
        "--out",
        metavar="DIR",
        default=os.path.join("build", "learn"),
        help="where trainings are kept and gone on with (default build/learn)",
    )
    parser.add_argument("--only", metavar="NAME", help="one task")
    parser.add_argument("--all", action="store_true", help=f"the long ones too: {', '.join(LONG)}")
    parser.add_argument("--threads", type=int, default=os.cpu_count())
    parser.add_argument("--seconds", type=float, default=math.inf, help="for each task, then it is left where it is")
    parser.add_argument("--compare", type=int, default=20, help="iterations compared bit for bit (default 20)")
    parser.add_argument("--quick", action="store_true", help="a few iterations of each: does it work")
    parser.add_argument("--save", metavar="FILE", help="write the table there too")
    words = parser.parse_args()
    if words.data:
        words.data = os.path.abspath(words.data)
    os.chdir(ROOT)
    if words.quick:
        words.compare = min(words.compare, 3)
        words.out += ".quick"
    names = [name for name, _, _ in TASKS]
    if words.only and words.only not in names:
        sys.exit(f"no task '{words.only}'; there are: {' '.join(names)}")
    return words


def main():
    words = asked_for()
    os.makedirs(words.out, exist_ok=True)
    out = Output(words.save)
    out.put("# Results: learning\n")
    asked = shlex.join(sys.argv[1:])
    out.put(f"`./dev bench learn {asked}` on {datetime.date.today()}: {machine()}, {words.threads} threads.\n")
    out.put(HEAD)
    rows, missing = [], []
    for name, folder, goal in TASKS:
        if name != words.only and (words.only or (name in LONG and not words.all)):
            continue
        data = data_of(name, folder, words.data) if folder else ""
        if data is None:
            missing.append(f"- {name}: LEFT OUT, no folder {folder} in --data {words.data or '(not given)'}")
            continue
        row = run_task(name, data, goal, words, out)
        if row:
            rows.append(row)
        else:
            missing.append(f"- {name}: LEFT OUT, no iteration within {words.seconds:g} s")
    out.put("")
    if words.quick:
        out.put("QUICK: a few iterations, no results.\n")
    if rows:
        out.put(table("Learning in 5 % of the memory", rows))
    if missing:
        out.put("\n".join(missing))


if __name__ == "__main__":
    main()

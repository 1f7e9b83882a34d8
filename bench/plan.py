# SPDX-License-Identifier: Apache-2.0
"""`./dev bench plan`: the planner's tables, then the same plans by checkpoint-schedules and pyrevolve.

Everything is printed as Markdown; `--save FILE` writes it there too. Both sides are measured alike, one process
per plan: CPU seconds to plan and to walk through all actions, and the cost counted from those actions,

    forwards * uf + steps * ub + writes * wd + reads * rd.
"""

import argparse
import datetime
import importlib
import importlib.metadata
import json
import os
import platform
import signal
import subprocess
import sys
import time
import warnings

from text.page import Output, machine, table

ROOT = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
BENCH = os.path.join("build", "release", "bench", "plan_bench")
LIMIT = 20  # CPU seconds for one plan of another package
STACK = 100_000  # their recursion is as deep as the chain is long

# Default costs, and those where forward and backward, writing and reading differ.
EQUAL = {"uf": 1, "ub": 1, "wd": 2, "rd": 2}
COSTS = [
    EQUAL,
    {"uf": 1, "ub": 2, "wd": 2, "rd": 2},
    {"uf": 1, "ub": 3, "wd": 20, "rd": 20},
    {"uf": 2, "ub": 1, "wd": 2, "rd": 2},
]


def walk_checkpoint_schedules(schedule):
    import checkpoint_schedules as cs

    count = {"forwards": 0, "written": 0, "read": 0, "actions": 0, "reversed": 0}
    disk = cs.StorageType.DISK
    for action in schedule:
        count["actions"] += 1
        if isinstance(action, cs.Forward):
            count["forwards"] += action.n1 - action.n0
            count["written"] += action.storage == disk
        elif isinstance(action, cs.Reverse):
            count["reversed"] += action.n1 - action.n0
        elif isinstance(action, (cs.Copy, cs.Move)):
            count["read"] += action.from_storage == disk
    return count


def schedule_of(kind, n, ram, disk, uf, ub, wd, rd):
    import checkpoint_schedules as cs

    if kind == "Multistage":
        return cs.MultistageCheckpointSchedule(n, ram, 0)
    if kind == "Mixed":
        return cs.MixedCheckpointSchedule(n, ram, storage=cs.StorageType.RAM)
    if kind == "HRevolve":
        return cs.HRevolve(n, ram, disk, uf=uf, ub=ub, wd=wd, rd=rd)
    return getattr(cs, kind)(n, ram, uf=uf, ub=ub, wd=wd, rd=rd)


def walk_pyrevolve(scheduler, n):
    from pyrevolve.schedulers import Action

    count = {"forwards": 0, "written": 0, "read": 0, "actions": 0, "reversed": 0}
    while True:
        action = scheduler.next()
        count["actions"] += 1
        if action.type == Action.ADVANCE:
            count["forwards"] += scheduler.capo - scheduler.old_capo
        elif action.type == Action.LASTFW:
            count["forwards"] += n - scheduler.old_capo
        elif action.type == Action.REVERSE:
            # It runs the step forward before it reverses it.
            count["forwards"] += 1
            count["reversed"] += 1
        elif action.type == Action.REVSTART:
            count["reversed"] += 1
        elif action.type == Action.TAKESHOT:
            count["written"] += action.storageIndex() > 0
        elif action.type == Action.RESTORE:
            count["read"] += action.storageIndex() > 0
        elif action.type == Action.TERMINATE:
            return count


def scheduler_of(kind, n, ram, disk, uf, ub, wd, rd):
    from pyrevolve.schedulers import Architecture, CRevolve, HRevolve

    if kind == "Revolve":
        return CRevolve(ram, n)
    levels = Architecture(None)
    levels.nblevels, levels.sizes, levels.wd, levels.rd = 2, [ram, disk], [0, wd], [0, rd]
    # pyrevolve's length argument is that of the published algorithm: one less than the steps.
    return HRevolve(n - 1, n - 1, levels, uf, ub)


def peer(case):
    """In a process of its own: the plan of another package."""
    warnings.simplefilter("ignore")
    sys.setrecursionlimit(STACK)
    words = {k: case[k] for k in ("kind", "n", "ram", "disk", "uf", "ub", "wd", "rd")}
    if case["package"] == "checkpoint-schedules":
        importlib.import_module("checkpoint_schedules")
        # Not the process's clock: under a CPU limit Linux moves that one only at ticks of 4 ms.
        start = time.thread_time()
        count = walk_checkpoint_schedules(schedule_of(**words))
    else:
        importlib.import_module("pyrevolve")
        start = time.thread_time()
        count = walk_pyrevolve(scheduler_of(**words), case["n"])
    seconds = time.thread_time() - start
    assert count["reversed"] == case["n"], "not every step is reversed"
    return count | {"seconds": seconds, "cost": cost(count, case)}


def cost(count, case):
    compute = count["forwards"] * case["uf"] + case["n"] * case["ub"]
    return compute + count["written"] * case["wd"] + count["read"] * case["rd"]


def peer_once(case):
    # CPU seconds, so that a busy machine does not shorten the limit.
    limits = f'ulimit -S -t {LIMIT}; ulimit -s unlimited 2>/dev/null; exec "$@"'
    command = ["bash", "-c", limits, "-", sys.executable, __file__, "--peer", json.dumps(case)]
    done = subprocess.run(command, capture_output=True, text=True)
    if done.returncode == -signal.SIGXCPU:
        return {"why": f"no end within {LIMIT} s"}
    if done.returncode == 0:
        return json.loads(done.stdout.splitlines()[-1])
    lines = done.stderr.strip().splitlines()
    return {"why": lines[-1][:60] if lines else f"ended by signal {-done.returncode}"}


def peer_in_process(case):
    """The fastest of three runs, each in a process of its own since the packages remember their tables."""
    best = peer_once(case)
    for _ in range(2):
        if best.get("seconds", LIMIT) > 2:
            break
        best = min(best, peer_once(case), key=lambda result: result.get("seconds", LIMIT))
    return best


STRATEGY = {
    "Revolve": "revolve",
    "Multistage": "revolve",
    "Mixed": "mixed",
    "HRevolve": "h_revolve",
    "DiskRevolve": "disk_revolve",
    "PeriodicDiskRevolve": "periodic_disk",
}


def ours(case):
    words = ["--strategy", STRATEGY[case["kind"]], "--steps", case["n"]]
    words += ["--forward", case["uf"], "--backward", case["ub"]]
    words += ["--budget" if case["kind"] == "Mixed" else "--slots", case["ram"]]
    if "Disk" in case["kind"] or case["kind"] == "HRevolve":
        # Where their disk has no limit, ours holds a state for every step.
        words += ["--disk", case["disk"] or case["n"], "--write", case["wd"], "--read", case["rd"]]
    done = subprocess.run([BENCH, "one", *map(str, words)], capture_output=True, text=True, timeout=120)
    if done.returncode != 0:
        sys.exit(f"plan_bench one {' '.join(map(str, words))}: {done.stderr}")
    return json.loads(done.stdout)


def cases():
    def case(package, kind, n, ram, disk=0, costs=EQUAL):
        return {"package": package, "kind": kind, "n": n, "ram": ram, "disk": disk} | costs

    cs, pr = "checkpoint-schedules", "pyrevolve"
    for n, ram in [(100, 10), (300, 20), (1000, 40), (3000, 40)]:
        yield case(cs, "Revolve", n, ram)
    for n, ram in [(100, 10), (1000, 40), (10_000, 100), (100_000, 1000), (1_000_000, 1000)]:
        yield case(cs, "Multistage", n, ram)
    for n, ram in [(100, 10), (1000, 40), (10_000, 100), (100_000, 1000), (1_000_000, 1000)]:
        yield case(pr, "Revolve", n, ram)
    for n, ram in [(100, 10), (300, 20), (1000, 40), (3000, 40)]:
        yield case(cs, "Mixed", n, ram)
    for costs in COSTS:
        for n, ram, disk in [(25, 2, 3), (100, 5, 5)]:
            yield case(cs, "HRevolve", n, ram, disk, costs)
            yield case(pr, "HRevolve", n, ram, disk, costs)
    for n, ram, disk in [(300, 5, 20), (1000, 5, 20)]:
        yield case(cs, "HRevolve", n, ram, disk)
        yield case(pr, "HRevolve", n, ram, disk)
    for kind in ["DiskRevolve", "PeriodicDiskRevolve"]:
        for costs in COSTS:
            for n, ram in [(25, 2), (100, 5)]:
                yield case(cs, kind, n, ram, 0, costs)
        for n, ram in [(300, 5), (1000, 5), (3000, 5)]:
            yield case(cs, kind, n, ram)


def compared(packages):
    rows, given_up = [], set()
    for case in cases():
        if case["package"] not in packages:
            continue
        mine = ours(case)
        kind = (case["package"], case["kind"])
        # Beyond the first size it does not survive a package is not asked again.
        theirs = {"why": "left out after that"} if kind in given_up else peer_in_process(case)
        row = {"package": case["package"], "schedule": case["kind"], "ours": STRATEGY[case["kind"]]}
        row |= {"steps": case["n"], "RAM": case["ram"], "disk": str(case["disk"] or "any")}
        row["uf ub wd rd"] = " ".join(str(case[k]) for k in EQUAL)
        if case["kind"] in ("Revolve", "Multistage", "Mixed"):
            row |= {"disk": "-", "uf ub wd rd": f"{case['uf']} {case['ub']} - -"}
        row |= {"our s": mine["seconds"], "our cost": mine["cost"]}
        if "why" in theirs:
            given_up.add(kind)
            row |= {"their s": theirs["why"], "their cost": "-", "s ratio": "-", "cost ratio": "-"}
        else:
            row |= {"their s": theirs["seconds"], "their cost": float(theirs["cost"])}
            row["s ratio"] = f"{theirs['seconds'] / mine['seconds']:.0f}"
            row["cost ratio"] = f"{theirs['cost'] / mine['cost']:.4f}"
        rows.append(row)
    return rows


def version(package):
    try:
        return importlib.metadata.version(package)
    except importlib.metadata.PackageNotFoundError:
        return None


HEAD = """\
Seconds are CPU seconds of one thread, the least of several runs; MiB is the peak resident set of the process. A step,
unless said otherwise: forward 1 s, backward 2 s, state and adjoint 1000 bytes, tape 5000 bytes. Budgets are in percent
of what keeping every tape needs, the working set included. The slow tier writes 200 and reads 300 bytes a second: five
steps pass while a state is written. Gap: how far a plan is at most from the fastest possible, by `bound()`.

Goals: 1 s and 200 MiB for uniform chains of 10^6 and 10^9 steps; for 1000 different steps 2 s, no goal for memory; for
the tables of 10^4 steps exactness, no goal for time; 20 million actions a second for the cursor, none for replay.

## The planner alone: `build/release/bench/plan_bench`
"""
RATIOS = f"""\
Ratios are theirs / ours. Seconds to plan and to walk through all actions, the least of up to five runs (theirs three);
cost = forwards uf + steps ub + writes wd + reads rd, counted from the actions. A plan is given up after {LIMIT}
CPU seconds."""


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--save", metavar="FILE", help="write the tables there too")
    parser.add_argument("--peer", type=json.loads, help=argparse.SUPPRESS)
    words = parser.parse_args()
    if words.peer:
        print(json.dumps(peer(words.peer)))
        return
    os.chdir(ROOT)
    out = Output(words.save)
    python = platform.python_version()
    out.put("# Results: the planner\n")
    out.put(f"`./dev bench plan` on {datetime.date.today()}: {machine()}, Python {python}.\n")
    out.put(HEAD)
    with subprocess.Popen([BENCH], stdout=subprocess.PIPE, text=True) as bench:
        for line in bench.stdout:
            out.put(line.rstrip("\n"))
    if bench.returncode != 0:
        sys.exit("plan_bench failed")
    out.put("\n## Side by side with other packages\n")
    packages = []
    for package in ("checkpoint-schedules", "pyrevolve"):
        found = version(package)
        packages += [package] if found else []
        out.put(f"- {package} {found}" if found else f"- {package}: NOT INSTALLED, its rows are missing")
    out.put(f"\n{RATIOS}\n")
    if packages:
        out.put(table("Planning and walking through all actions", compared(packages)))


if __name__ == "__main__":
    main()

# SPDX-License-Identifier: Apache-2.0
"""The table of docs/results/pytorch.md: forward and backward in seconds and peak memory, as ratios against plain autograd.

Memory is what is held at most beyond inputs, parameters, gradients that are there before, and a layer's outputs with their
gradients: tracked tensors on a CPU, the allocator on a GPU. Seconds are the least of some rounds.
"""

from __future__ import annotations

import argparse
import json
import platform
import sys
import time
from collections.abc import Callable
from pathlib import Path

import torch

sys.path.insert(0, str(Path(__file__).parent))

from workloads import ALL, CellLoop, Size, Workload

import ebb
from ebb._tensor.memory import LiveBytes


def timed(run: Callable[[], None], device: torch.device, rounds: int) -> float:
    seconds = []
    for _ in range(rounds):
        if device.type == "cuda":
            torch.cuda.synchronize()
        start = time.perf_counter()
        run()
        if device.type == "cuda":
            torch.cuda.synchronize()
        seconds.append(time.perf_counter() - start)
    return min(seconds)


def peak(run: Callable[[], None], device: torch.device) -> int:
    if device.type == "cuda":
        torch.cuda.synchronize()
        before = torch.cuda.memory_allocated()
        torch.cuda.reset_peak_memory_stats()
        run()
        torch.cuda.synchronize()
        return torch.cuda.max_memory_allocated() - before
    with LiveBytes() as live:
        run()
    return live.peak


def row(load: Workload, way: str, run: Callable[[], None], plain: dict | None, rounds: int) -> dict:
    run()  # measures, plans, warms up
    found = {
        "workload": load.name,
        "steps": load.steps,
        "way": way,
        "seconds": timed(run, load.device, rounds),
        "peak": peak(run, load.device) + (load.native_bytes() if way.startswith("ebb") else 0),
    }
    if not way.startswith("checkpoint"):  # which sums up a loss chunk by chunk
        found["peak"] -= load.output_bytes()
    found["time"] = found["seconds"] / plain["seconds"] if plain else 1.0
    found["memory"] = found["peak"] / plain["peak"] if plain else 1.0
    if way.startswith("ebb"):
        found["report"] = ebb.last_report().brief() if ebb.last_report() else ""
    print(
        f"| {load.name} | {load.steps} | {way} | {found['seconds']:.4g} s | {found['time']:.3f} | "
        f"{found['peak'] / 2**20:.4g} MiB | {100 * found['memory']:.3g} % |",
        flush=True,
    )
    return found


def in_share(load: Workload, share: float, plain: dict, rounds: int, tiers: list | None = None) -> dict:
    """In a share of plain autograd's memory, or in the least that works where that is more."""
    budget, where = int(share * plain["peak"]), " and host" if tiers else ""
    try:
        return row(load, f"ebb, {100 * share:g} %{where}", load.ebb(budget, tiers), plain, rounds)
    except ebb.Error as error:
        if error.code != "infeasible_budget":
            raise
        least = int(1.02 * error.least_budget)
        return row(
            load, f"ebb, {100 * least / plain['peak']:.2g} %{where} (least)", load.ebb(least, tiers), plain, rounds
        )


def compare(load: Workload, rounds: int, quick: bool) -> list[dict]:
    plain = row(load, "plain autograd", load.plain, None, rounds)
    rows = [plain]
    rows.append(row(load, "checkpoint, sqrt(T)", load.checkpointed, plain, rounds))
    if isinstance(load, CellLoop) and load.steps <= 1000 and not quick:
        rows.append(row(load, "checkpoint_sequential, sqrt(T)", load.sequential, plain, rounds))
    if load.device.type == "cuda":
        rows.append(row(load, "save_on_cpu", load.saved_on_cpu, plain, rounds))
    rows.append(row(load, "ebb, all fits", load.ebb("1TiB"), plain, rounds))
    rows.append(in_share(load, 0.05, plain, rounds))
    if load.device.type == "cuda":
        rows.append(in_share(load, 0.02, plain, rounds, [ebb.memory_tier("16GiB", "host")]))
    return rows


def glue() -> float:
    """Seconds of ebb's own for each action of the executor: f does nothing, and what torch's engine takes is not counted."""
    state = torch.zeros(4, requires_grad=True)
    steps = 2000
    found = ebb.scan(
        lambda c, x: (c, None),
        state,
        None,
        length=steps,
        chunk=1,
        budget="16KiB",
        strategy="revolve",
        preserve_rng_state=False,
    )
    engine, inside = torch.autograd.grad, 0.0

    def timed_engine(*args: object, **options: object) -> object:
        nonlocal inside
        start = time.perf_counter()
        try:
            return engine(*args, **options)
        finally:
            inside += time.perf_counter() - start

    torch.autograd.grad = timed_engine
    start = time.perf_counter()
    found[0].sum().backward()
    seconds = time.perf_counter() - start
    torch.autograd.grad = engine
    return (seconds - inside) / ebb.last_report().measured["actions"]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--device", default="cuda" if torch.cuda.is_available() else "cpu")
    parser.add_argument("--steps", type=int, nargs="+", default=[1000, 8000])
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--dtype", default="float32")
    parser.add_argument("--only", help="nn.LSTM, LSTMCell or LIF")
    parser.add_argument("--size", type=int, nargs=3, metavar=("B", "I", "H"))
    parser.add_argument("--quick", action="store_true", help="leave out checkpoint_sequential")
    parser.add_argument("--json", type=Path, help="write all figures there")
    options = parser.parse_args()
    device = torch.device(options.device)
    default = (64, 256, 1024) if device.type == "cuda" else (32, 64, 128)
    size = Size(*(options.size or default))
    name = (
        torch.cuda.get_device_name()
        if device.type == "cuda"
        else f"{platform.machine()}, {torch.get_num_threads()} threads"
    )
    print(f"PyTorch {torch.__version__}, {name}; B={size.batch} I={size.inputs} H={size.hidden} {options.dtype}\n")
    print("| workload | T | way | seconds | time | peak | memory |\n|---|---|---|---|---|---|---|")
    rows = []
    for kind in ALL:
        if options.only and not kind.name.startswith(options.only):
            continue
        for steps in options.steps:
            torch.manual_seed(0)
            rows += compare(kind(steps, size, device, getattr(torch, options.dtype)), options.rounds, options.quick)
    each = glue()
    print(f"\nglue: {1e6 * each:.1f} us for each action")
    if options.json:
        options.json.write_text(json.dumps({"glue_seconds": each, "rows": rows}, indent=1))


main()

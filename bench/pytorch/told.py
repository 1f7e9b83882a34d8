# SPDX-License-Identifier: Apache-2.0
"""What `ebb.scan` tells about its slowdown beside what a clock says: GRU cells in a share of the memory, small ones first, where calls weigh most."""

from __future__ import annotations

import argparse

import torch
from measure import timed

import ebb

SIZES = [(16, 64), (64, 256)]  # samples, units


def row(batch: int, units: int, options: argparse.Namespace) -> str:
    device = torch.device(options.device)
    torch.manual_seed(0)
    cell = torch.nn.GRUCell(units, units, device=device)
    xs, zero = torch.randn(options.steps, batch, units, device=device), torch.zeros(batch, units, device=device)

    def f(h: torch.Tensor, x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        h = cell(x, h)
        return h, h

    def plain() -> None:
        h, hs = zero, []
        for x in xs:
            h = cell(x, h)
            hs.append(h)
        torch.stack(hs).sum().backward()

    def ours() -> None:
        ebb.scan(f, zero, xs, budget=options.budget)[1].sum().backward()

    for _ in range(2):  # measured and planned, then remembered
        ours()
        plain()
    by_hand, seconds = (timed(run, device, options.rounds) for run in (plain, ours))
    report = ebb.last_report()
    return (
        f"| {batch} x {units} | {options.steps} | {by_hand:.3f} | {seconds:.3f} | {seconds / by_hand:.2f} | {report.slowdown:.2f} | "
        f"{report.steps} |"
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--budget", default="5%")
    parser.add_argument("--steps", type=int, default=1000)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--threads", type=int, default=1)
    options = parser.parse_args()
    torch.set_num_threads(options.threads)
    print(f"PyTorch {torch.__version__}, {options.device}, {options.threads} threads, budget {options.budget}\n")
    print("| samples x units | steps | plain, s | ebb, s | ratio | told | blocks |\n|---|---|---|---|---|---|---|")
    for batch, units in SIZES:
        print(row(batch, units, options), flush=True)


if __name__ == "__main__":
    main()

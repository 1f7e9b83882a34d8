# SPDX-License-Identifier: Apache-2.0
"""The table of docs/results/pytorch.md: forward and backward in seconds and peak memory, as ratios against plain autograd.

Memory is what is held at most beyond inputs, parameters, gradients that are there before, and a layer's outputs with their
gradients: tracked tensors on a CPU, the allocator on a GPU, where `reserved`, `device` and `kept` say what the allocator takes
with all that it caches, what the driver misses, and what stays between calls, in CUDA graphs. Seconds are the least of some
rounds, with plain autograd between them where it is quick. `told` is what ebb predicts.

  table.py --steps 1000 --json found.json                    everything at one length; compiled cells come last
  table.py --only LSTMCell GRUCell --ways plain 5 5-eager    some ways of some workloads
  table.py --device cpu --size 4 8 16 --steps 50 --quick     whether it runs
"""

from __future__ import annotations

import argparse
import json
import platform
import sys
from pathlib import Path

import torch

sys.path.insert(0, str(Path(__file__).parent))

import ways
import workloads
from glue import glue
from loop import Setting
from rows import HEAD, Effort, Rows

NUMBERS = {"fp32": torch.float32, "tf32": torch.float32, "bf16": torch.bfloat16, "fp16": torch.float16}


def parsed() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    keys = [way.key for way in ways.ALL]
    parser.add_argument("--device", default="cuda" if torch.cuda.is_available() else "cpu")
    parser.add_argument("--steps", type=int, nargs="+", default=[1000, 8000])
    parser.add_argument("--rounds", type=int, help="5, or 2 with --quick")
    parser.add_argument("--dtype", nargs="+", choices=NUMBERS, default=["fp32"])
    parser.add_argument("--only", nargs="+", metavar="NAME", help="workloads whose names begin so, in any case")
    parser.add_argument("--ways", nargs="+", choices=keys, help="plain autograd always runs")
    parser.add_argument("--size", type=int, nargs=3, metavar=("B", "I", "H"))
    parser.add_argument("--quick", action="store_true", help="leave out compiled cells and other slow ways")
    parser.add_argument("--seconds", type=float, default=5, help="after which a way has no more rounds")
    parser.add_argument("--patience", type=float, default=150, help="seconds after which a way is given up")
    parser.add_argument("--json", type=Path, help="write all figures there, after each row")
    return parser.parse_args()


def chosen(options: argparse.Namespace, device: torch.device) -> list[ways.Way]:
    if options.ways:
        asked = [way for way in ways.ALL if way.key in options.ways]
        keys = {"plain", *(way.key for way in asked), *(way.base for way in asked)}
    else:
        keys = {way.key for way in ways.ALL if not (options.quick and way.late)}
    return [way for way in ways.ALL if way.key in keys and (device.type == "cuda" or not way.cuda)]


def setting_of(options: argparse.Namespace, steps: int, numbers: str) -> Setting:
    device = torch.device(options.device)
    batch, inputs, hidden = options.size or ((64, 256, 1024) if device.type == "cuda" else (32, 64, 128))
    spiking = 700 if device.type == "cuda" and not options.size else inputs
    return Setting(steps, batch, inputs, spiking, hidden, device, NUMBERS[numbers])


def use(numbers: str) -> None:
    for backend in (torch.backends.cuda.matmul, torch.backends.cudnn):
        backend.allow_tf32 = numbers == "tf32"


def wanted(options: argparse.Namespace) -> list[type]:
    heads = [name.lower() for name in options.only or [""]]
    return [kind for kind in workloads.ALL if any(kind.name.lower().startswith(head) for head in heads)]


class Table:
    def __init__(self, options: argparse.Namespace):
        self._options = options
        self._all: list[Rows] = []
        self._told: dict = {}

    def save(self, **more: object) -> None:
        self._told.update(more)
        if self._options.json:
            rows = [row for one in self._all for row in one.found]
            failed = [row for one in self._all for row in one.failed]
            part = self._options.json.with_suffix(".part")
            part.write_text(json.dumps({**self._told, "rows": rows, "failed": failed}, indent=1))
            part.replace(self._options.json)

    def fill(self) -> None:
        options = self._options
        effort = Effort(options.rounds or (2 if options.quick else 5), options.seconds, options.patience)
        picked = chosen(options, torch.device(options.device))
        for numbers in options.dtype:
            use(numbers)
            for steps in options.steps:
                setting = setting_of(options, steps, numbers)
                early = [way for way in picked if not way.late]
                late = [way for way in picked if way.late]
                for kind in wanted(options):
                    if len(early) > 1 or not late:
                        self._run(Rows(kind, setting, numbers, effort), early)
                for kind in wanted(options):
                    if any(way.key in kind.ways for way in late):
                        self._run(Rows(kind, setting, numbers, effort), [early[0], *late])
        print("\nTime by the best of plain autograd:")
        for rows in self._all:
            print(f"- {rows.summary()}")

    def _run(self, rows: Rows, picked: list[ways.Way]) -> None:
        self._all.append(rows)
        for way in picked:
            if rows.has(way):
                rows.run(way)
                self.save()
        rows.finish()
        self.save()


def main() -> None:
    options = parsed()
    device = torch.device(options.device)
    name = torch.cuda.get_device_name() if device.type == "cuda" else f"{torch.get_num_threads()} threads"
    where = f"PyTorch {torch.__version__}, {platform.machine()}, {name}"
    size = setting_of(options, 0, "fp32")
    print(f"{where}; B={size.batch} I={size.inputs} ({size.spiking_inputs} spiking) H={size.hidden}\n\n{HEAD}")
    table = Table(options)
    table.save(where=where)
    table.fill()
    each = glue()
    print(f"\nglue: {1e6 * each:.1f} us for each action")
    table.save(glue_seconds=each)


if __name__ == "__main__":
    main()

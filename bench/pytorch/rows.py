# SPDX-License-Identifier: Apache-2.0
"""The rows of one workload: each way in turn, printed as soon as it is measured, as ratios against plain autograd."""

from __future__ import annotations

import gc
import traceback
from dataclasses import dataclass, replace

import torch
from loop import Loop, Setting
from measure import Memory, at_most, once
from torch import Tensor
from ways import Run, Way

import ebb

HEAD = (
    "| workload | T | numbers | way | seconds | time | us a step | peak, MiB | memory | reserved, MiB | of plain's "
    "| device, MiB | kept, MiB | told, s | notes |\n" + "|---" * 15 + "|"
)
_CHEAP = 1.0  # seconds of plain autograd, up to which it runs again beside each round of another way


@dataclass(frozen=True)
class Effort:
    rounds: int
    seconds: float  # after which rounds of a way end
    patience: float  # seconds for one way, to be prepared and to be measured


class Rows:
    """`run(way)` adds a row to `found`, a failure to `failed`; the first must be plain autograd's."""

    def __init__(self, kind: type[Loop], setting: Setting, numbers: str, effort: Effort):
        self._kind, self._setting, self._numbers, self._effort = kind, setting, numbers, effort
        self._xs = kind.data(setting)
        self._plain: Run | None = None
        self._gradients: dict[str, list[Tensor]] = {}  # by the key of a way
        self.found: list[dict] = []
        self.failed: list[dict] = []

    def has(self, way: Way) -> bool:
        return way.key in self._kind.ways and (way.key == "plain" or self._row("plain") is not None)

    def run(self, way: Way) -> None:
        gc.collect()  # graphs and tapes of the way before
        run: Run | None = None
        try:
            with at_most(self._effort.patience):
                run, row = self._measured(way)
            self.found.append(row)
            self.compare()
            print(line(row), flush=True)
        except Exception as error:
            self._failed(way, error)
        if way.key == "plain":
            self._plain = run
        if way.late:
            torch._dynamo.reset()

    def _failed(self, way: Way, error: Exception) -> None:
        traceback.clear_frames(error.__traceback__)  # which hold what the way had allocated
        words = " ".join(str(error).split()) or "no reason given"
        self.failed.append({**self._title(way), "reason": f"{type(error).__name__}: {words}"})
        print(
            f"| {' | '.join(map(str, self._title(way).values()))} | left out: {type(error).__name__}: {words[:200]} |"
        )

    def _title(self, way: Way) -> dict:
        return {"workload": self._kind.name, "steps": self._xs.size(0), "numbers": self._numbers, "way": way.name}

    def _measured(self, way: Way) -> tuple[Run, dict]:
        device = self._setting.device
        torch.manual_seed(0)
        load = self._kind(replace(self._setting, cell=way.cell), self._xs)
        for parameter in load.parameters():
            parameter.grad = torch.zeros_like(parameter)
        plain = self._row("plain")
        memory = Memory(device, watched=way.cell is None and not way.key.startswith("scan"))
        run = way.prepare(load, plain["peak"] if plain else 0)
        for _ in range(way.calls - 1):
            run()
        differs = self._compared(load, run, way)
        memory.look(run)
        row = {**self._title(way), "key": way.key, "base": way.base, **vars_of(memory), "gradients_differ_by": differs}
        if way.pooled and memory.kept is not None:
            row["peak"] = max(row["peak"], memory.kept)
        if row["peak"] is not None:
            row["peak"] += load.native_bytes() if way.ours else 0
            row["peak"] -= 0 if way.key == "checkpoint" else load.output_bytes()  # it sums up a loss chunk by chunk
        rounds = min(self._effort.rounds, way.rounds or self._effort.rounds)
        row["seconds"], row["beside"] = self._seconds(run, rounds)
        row.update(told() if way.ours else {})
        return run, row

    def _seconds(self, run: Run, rounds: int) -> tuple[float, float | None]:
        """The least of a way, and of plain autograd between its rounds."""
        device, own, beside = self._setting.device, [], []
        plain = self._row("plain")
        for _ in range(rounds):
            if plain and self._plain and plain["seconds"] < _CHEAP:
                beside.append(once(self._plain, device))
            own.append(once(run, device))
            if len(own) > 1 and sum(own) > self._effort.seconds:
                break
        return min(own), min(beside, default=None)

    def _compared(self, load: Loop, run: Run, way: Way) -> float:
        """Gradients of one call against those of its base: the largest difference, as a share of the largest gradient."""
        for parameter in load.parameters():
            parameter.grad.zero_()
        run()
        found = getattr(run, "gradients", None) or [parameter.grad for parameter in load.parameters()]
        if way.key in ("plain", "compiled"):
            self._gradients[way.key] = [one.clone() for one in found]
        wanted = self._gradients.get(way.base) or self._gradients["plain"]
        return max(float((a - b).abs().max() / b.abs().max().clamp(min=1e-30)) for a, b in zip(found, wanted))

    def finish(self) -> None:
        """Plain autograd once more, since single loops vary, and ratios by the best of it; then memory is given back."""
        row = self._row("plain")
        if row and self._plain:
            row["seconds"] = min(row["seconds"], *(once(self._plain, self._setting.device) for _ in range(2)))
            self.compare()
        self._plain, self._gradients = None, {}
        self._xs = self._xs[:, :0].clone()

    def summary(self) -> str:
        """A line, with the ratios as they are in the end."""
        plain = self._row("plain")
        if plain is None:
            return f"{self._kind.name}: not run"
        ratios = ", ".join(f"{row['key']} {row['time']:.3f}" for row in self.found if row is not plain)
        return f"{self._kind.name}, T={plain['steps']}, {self._numbers}, plain {plain['seconds']:.4g} s: {ratios}"

    def _row(self, key: str) -> dict | None:
        return next((row for row in self.found if row["key"] == key), None)

    def compare(self) -> None:
        """Ratios of all rows, by the best of plain autograd so far."""
        plain = self._row("plain")
        if plain is None:
            return
        plain["seconds"] = min([plain["seconds"], *(row["beside"] for row in self.found if row["beside"])])
        for row in self.found:
            base = self._row(row["base"]) or plain
            for ratio, of in (("time", "seconds"), ("memory", "peak"), ("reserved_share", "reserved")):
                for whose, other in (("", plain), ("_of_base", base)):
                    known = row[of] is not None and other[of]
                    row[ratio + whose] = row[of] / other[of] if known else None
            if row.get("budget"):
                row["budget_of_plain"] = row["budget"] / plain["peak"]


def vars_of(memory: Memory) -> dict:
    return {name: value for name, value in vars(memory).items() if not name.startswith("_")}


def told() -> dict:
    """What ebb says of its last call."""
    report = ebb.last_report()
    if report is None:
        return {}
    found = {"report": report.brief(), "budget": report.budget, "remarks": list(getattr(report, "remarks", []))}
    if hasattr(report, "predicted"):
        found["told"] = report.predicted["seconds"]
        found["blocks"], found["strategy"] = report.steps, report.strategy
    return found


def line(row: dict) -> str:
    def mib(key: str) -> str:
        return "" if row[key] is None else f"{row[key] / 2**20:.4g}"

    def percent(key: str) -> str:
        return "" if row[key] is None else f"{100 * row[key]:.3g} %"

    notes = []
    if row["base"] != "plain":
        notes.append(f"{row['time_of_base']:.3f} of {row['base']}, memory {percent('memory_of_base') or 'not seen'}")
    if row["gradients_differ_by"]:
        notes.append(f"gradients differ by {row['gradients_differ_by']:.1g}")
    if row.get("strategy"):
        notes.append(f"budget {100 * row['budget_of_plain']:.3g} %, {row['blocks']} blocks, {row['strategy']}")
    cells = [
        *(row[key] for key in ("workload", "steps", "numbers", "way")),
        f"{row['seconds']:.4g}",
        f"{row['time']:.3f}",
        f"{1e6 * row['seconds'] / row['steps']:.1f}",
        mib("peak"),
        percent("memory"),
        mib("reserved"),
        percent("reserved_share"),
        mib("device"),
        mib("kept"),
        f"{row['told']:.4g}" if "told" in row else "",
        "; ".join(notes + row.get("remarks", [])),
    ]
    return f"| {' | '.join(map(str, cells))} |"

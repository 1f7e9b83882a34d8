# SPDX-License-Identifier: Apache-2.0
"""Figures of the papers' experiments: panels beside each other, the same look in each, the same file from the same data."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import matplotlib

matplotlib.use("svg")

from matplotlib import pyplot
from matplotlib.axes import Axes

ROOT = Path(__file__).resolve().parents[2]
sys.path.append(str(ROOT / "scripts"))

import figures

# Told apart without colours, too: each has its marker and its dashes (Okabe and Ito's colours).
STYLES = [
    {"color": "#0072b2", "marker": "o", "linestyle": "-"},
    {"color": "#d55e00", "marker": "s", "linestyle": "--"},
    {"color": "#009e73", "marker": "^", "linestyle": "-."},
    {"color": "#cc79a7", "marker": "D", "linestyle": ":"},
    {"color": "#e69f00", "marker": "v", "linestyle": (0, (5, 1, 1, 1, 1, 1))},
    {"color": "#666666", "marker": "x", "linestyle": "-"},
]

Panel = tuple[str, Callable[[Axes], None]]


def experiment(name: str, *words: str, quick: bool) -> Any:
    """What `ebb bench NAME --json` found."""
    command = [os.environ["EBB_BINARY"], "bench", name, "--json", *words, *(["--quick"] if quick else [])]
    found = json.loads(subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True).stdout)
    if not all(point.get("same_gradient", True) for point in _objects(found)):
        raise SystemExit(f"ebb bench {name}: a run had other gradients than the one that keeps everything")
    return found


def _objects(value: Any) -> Iterator[dict[str, Any]]:
    if isinstance(value, dict):
        yield value
    for part in value.values() if isinstance(value, dict) else value if isinstance(value, list) else ():
        yield from _objects(part)


def lines(axes: Axes, series: dict[str, list[tuple[float, float]]]) -> None:
    """Over a logarithmic axis, with marks where something was measured."""
    axes.set_xscale("log")
    places = sorted({x for points in series.values() for x, _ in points})
    shown = [place for i, place in enumerate(places) if i == 0 or place > 1.1 * places[i - 1]]
    axes.set_xticks(shown, [f"{place:.3g}" if place < 1000 else f"{place:.0f}" for place in shown])
    axes.minorticks_off()
    assert len(series) <= len(STYLES), list(series)
    for (label, points), style in zip(series.items(), STYLES):
        if points:
            axes.plot(*zip(*sorted(points)), label=label, markersize=4, linewidth=1.2, **style)


def sources_of(name: str) -> str:
    """What a figure is drawn from, with its hashes: a test finds pictures that are older than their data."""
    sources = [f"docs/results/papers/{data}.json" for data in ([name, "accuracy"] if name == "barley" else [name])]
    return " ".join(f"{source}:{figures.hash_of(ROOT, source)}" for source in [*sources, "bench/papers"])


def draw(panels: list[Panel], caption: str, sources: str, path: Path) -> None:
    matplotlib.rcParams.update({"font.size": 9, "svg.fonttype": "none", "svg.hashsalt": path.stem})
    figure, places = pyplot.subplots(1, len(panels), figsize=(4.6 * len(panels), 3.6), layout="constrained")
    for axes, (title, fill) in zip(places, panels):
        fill(axes)
        axes.set_title(title, fontsize=9, loc="left")
        axes.grid(alpha=0.3, linewidth=0.5)
        axes.set_axisbelow(True)
        if axes.get_legend_handles_labels()[1]:
            axes.legend(fontsize=7.5, frameon=False)
    figure.supxlabel(caption, fontsize=7, color="#555555")
    figure.savefig(path, format="svg", metadata={"Date": None, "Source": sources}, facecolor="white")
    pyplot.close(figure)

# SPDX-License-Identifier: Apache-2.0
"""`./dev bench compress picture`: what accuracy.py wrote, as pictures (SVG): cosine.svg has for each variant the cosine
of every convolution's weight gradient over training, stem.svg the first convolution's filters at the end."""

from __future__ import annotations

import argparse
import json
import sys
from pathlib import Path
from typing import Any

# From a cosine of 0 (and below) to 1.
SCALE = [
    (0.0, (68, 1, 84)),
    (0.5, (49, 104, 142)),
    (0.75, (53, 183, 121)),
    (0.9, (180, 222, 44)),
    (1.0, (253, 231, 37)),
]


def colour(value: float) -> str:
    value = min(1.0, max(0.0, value))
    for (low, first), (high, second) in zip(SCALE, SCALE[1:]):
        if value <= high:
            part = (value - low) / (high - low)
            return "#" + "".join(f"{round(a + part * (b - a)):02x}" for a, b in zip(first, second))
    raise AssertionError(value)


class Drawing:
    def __init__(self) -> None:
        self._parts: list[str] = []
        self._width = self._height = 0.0

    def _reach(self, x: float, y: float) -> None:
        self._width, self._height = max(self._width, x), max(self._height, y)

    def rectangle(self, x: float, y: float, width: float, height: float, fill: str, title: str = "") -> None:
        self._reach(x + width, y + height)
        place = f'<rect x="{x:g}" y="{y:g}" width="{width:g}" height="{height:g}" fill="{fill}"'
        self._parts.append(place + (f"><title>{title}</title></rect>" if title else "/>"))

    def text(self, x: float, y: float, text: str, anchor: str = "start", size: int = 11) -> None:
        self._reach(x + (0.62 * size * len(text) if anchor == "start" else 0), y + 4)
        self._parts.append(f'<text x="{x:g}" y="{y:g}" text-anchor="{anchor}" font-size="{size}">{text}</text>')

    def write(self, path: Path) -> None:
        width, height = self._width + 10, self._height + 10
        head = (
            f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width:g} {height:g}" width="{width:g}" '
            f'height="{height:g}" font-family="sans-serif" shape-rendering="crispEdges">\n'
            '<rect width="100%" height="100%" fill="white"/>\n'
        )
        path.write_text(head + "\n".join(self._parts) + "\n</svg>\n")


class Run:
    """What one file of accuracy.py has."""

    def __init__(self, path: Path):
        lines: list[dict[str, Any]] = [json.loads(text) for text in path.read_text().splitlines()]
        if not lines:
            sys.exit(f"{path} is empty")
        self.epochs = [line for line in lines if "epoch" in line]
        self.stem = next((line["stem"] for line in lines if "stem" in line), None)
        self.name = f"{lines[0]['variant']}, {lines[0]['epochs']} epochs"
        accuracy = [line["accuracy"] for line in self.epochs]
        if accuracy:
            self.name += f", {100 * accuracy[-1]:.2f} %"


def draw_cosines(runs: list[Run]) -> Drawing:
    """A panel for each run: a row for each layer, from the first at the top, a column for each epoch."""
    drawing, left, wide, high = Drawing(), 10.0, 240.0, 14
    layers = list(runs[0].epochs[0]["cosine"])
    names = 7 * max(len(name) for name in layers)
    for index, layer in enumerate(layers):
        drawing.text(left + names - 6, 52 + index * high, layer, "end")
    left += names
    for run in runs:
        drawing.text(left, 20, run.name, size=12)
        cell = wide / len(run.epochs)
        for column, line in enumerate(run.epochs):
            for index, layer in enumerate(layers):
                value = line["cosine"][layer]
                drawing.rectangle(
                    left + column * cell,
                    41 + index * high,
                    cell,
                    high - 1,
                    colour(value),
                    f"{layer}, epoch {line['epoch']}: {value:.3f}",
                )
        bottom = 41 + len(layers) * high + 12
        drawing.text(left, bottom, "1")
        drawing.text(left + wide, bottom, str(run.epochs[-1]["epoch"]), "end")
        drawing.text(left + wide / 2, bottom, "epoch", "middle")
        left += wide + 24
    bottom = 41 + len(layers) * high + 32
    for index in range(51):
        drawing.rectangle(10 + names + 4 * index, bottom, 4, 10, colour(index / 50))
    drawing.text(10 + names, bottom + 22, "cosine 0")
    drawing.text(10 + names + 204, bottom + 22, "1", "end")
    return drawing


def draw_stems(runs: list[Run]) -> Drawing:
    """A panel for each run, filters in eight columns. Each filter is stretched to its own range, colours together."""
    drawing, left, cell = Drawing(), 10.0, 8.0
    for run in runs:
        drawing.text(left, 20, run.name, size=12)
        size = len(run.stem[0][0])
        pitch = cell * size + 4
        for index, channels in enumerate(run.stem):
            values = [value for plane in channels for line in plane for value in line]
            low, span = min(values), (max(values) - min(values)) or 1.0
            across, down = left + index % 8 * pitch, 30 + index // 8 * pitch
            for y in range(size):
                for x in range(size):
                    levels = [round(255 * (plane[y][x] - low) / span) for plane in channels]
                    levels = levels if len(levels) == 3 else levels[:1] * 3
                    drawing.rectangle(
                        across + x * cell,
                        down + y * cell,
                        cell,
                        cell,
                        "#" + "".join(f"{level:02x}" for level in levels),
                    )
        left += max(8 * pitch, 7.5 * len(run.name)) + 20
    return drawing


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("files", type=Path, nargs="+", help="of accuracy.py, in the order of the panels")
    parser.add_argument("--out", type=Path, default=Path("build/compress"))
    words = parser.parse_args()
    runs = [Run(path) for path in words.files]
    words.out.mkdir(parents=True, exist_ok=True)
    trained = [run for run in runs if run.epochs]
    if trained:
        draw_cosines(trained).write(words.out / "cosine.svg")
    stems = [run for run in runs if run.stem]
    if stems:
        draw_stems(stems).write(words.out / "stem.svg")
    print(f"{words.out}: {'cosine.svg ' if trained else ''}{'stem.svg' if stems else ''}")


if __name__ == "__main__":
    main()

# SPDX-License-Identifier: Apache-2.0
"""Bencheikh et al. 2024: how long a sequence and how wide a sparse spiking net fit a local memory, and at what cost."""

from __future__ import annotations

from collections import defaultdict
from typing import Any

import numpy
from figure import STYLES, Panel, experiment, lines
from matplotlib.axes import Axes

ENDLESS = 1e9  # time steps from which the experiment says that there is no end
GOAL = 1.1
TOP = 1000.0  # of the axis of (a)
NAMES = {
    "store_all": "plain",
    "single_local": "single, local",
    "single_remote": "single, remote",
    "double": "double",
    "auto": "auto",
}


def _point(point: dict[str, Any]) -> dict[str, Any]:
    kept = {key: point[key] for key in ("strategy", "time_steps", "hidden", "sync", "fits")}
    if "most" in point:
        kept["most"] = point["most"]
    if point["fits"]:
        kept |= {
            "predicted": point["predicted"]["ratio"],
            "measured": point["measured"]["ratio"],
            "spread": point["spread"],
            "same_gradient": point["same_gradient"],
        }
    return kept


def measure(quick: bool) -> dict[str, Any]:
    found = experiment("double", quick=quick)
    arrangements = [
        {"tier": one["platform"]["tiers"][0]["name"]}
        | {name: [_point(point) for point in one["series"][name]] for name in ("longest", "length", "largest")}
        for one in found["arrangements"]
    ]
    return {key: found[key] for key in ("hidden", "budget", "plain_time_steps")} | {"arrangements": arrangements}


def _most(points: list[dict[str, Any]]) -> dict[str, float]:
    """Of each strategy, in times of what plain backpropagation fits."""
    most = {
        point["strategy"]: ENDLESS if point["most"] is None else point["most"] for point in points if not point["sync"]
    }
    return {strategy: value / most["store_all"] for strategy, value in most.items()}


def panels(found: dict[str, Any]) -> list[Panel]:
    first = found["arrangements"][0]

    def reach(axes: Axes) -> None:
        longest, widest = _most(first["longest"]), _most(first["largest"])
        names = [name for name in longest if name in widest]
        places = numpy.arange(len(names))
        for offset, label, values, style in (
            (-0.2, "time steps", longest, STYLES[0]),
            (0.2, "units", widest, STYLES[1]),
        ):
            bars = axes.bar(
                places + offset, [min(values[name], TOP / 2) for name in names], 0.38, label=label, color=style["color"]
            )
            texts = [f"> {TOP:.0f}" if values[name] > TOP else f"{values[name]:.3g}" for name in names]
            axes.bar_label(bars, texts, fontsize=7)
        axes.set_xticks(places, [NAMES.get(name, name) for name in names], rotation=15, fontsize=7.5)
        axes.set(ylabel="most that fits, of plain's", yscale="log", ylim=(0.8, TOP))

    def cost(axes: Axes) -> None:
        series = defaultdict(list)
        for one in found["arrangements"]:
            for point in one["length"]:
                if point["fits"]:
                    factor = point["time_steps"] / found["plain_time_steps"]
                    series[f"{NAMES[point['strategy']]}, over {one['tier']}"].append((factor, point["measured"]))
        lines(axes, series)
        axes.axhline(GOAL, color="black", linewidth=0.6, linestyle=":")
        axes.set(xlabel="time steps, times what plain fits", ylabel="time, of plain without a limit", ylim=(0.9, None))

    return [("(a) length and width in a fixed local memory", reach), ("(b) what longer sequences cost", cost)]


def tables(found: dict[str, Any]) -> list[tuple[str, list[dict[str, Any]]]]:
    rows = []
    for one in found["arrangements"]:
        for what, points in (("length", one["length"]), ("width", one["largest"])):
            for point in points:
                if not point["fits"] or point["strategy"] == "store_all":
                    continue
                factor = (
                    f"{point['time_steps'] / found['plain_time_steps']:.3g} times as long"
                    if what == "length"
                    else f"{point['hidden'] / found['hidden']:.3g} times the units"
                )
                rows.append(
                    {
                        "slow memory": one["tier"],
                        "net": factor,
                        "strategy": NAMES[point["strategy"]],
                        "predicted": point["predicted"],
                        "measured": point["measured"],
                        "spread": f"{100 * point['spread']:.1f} %",
                    }
                )
    title = (
        f"lif, {found['hidden']} units in {found['budget'] / 2**20:.3g} MiB, in which plain fits "
        f"{found['plain_time_steps']} time steps: of the time of plain without a limit"
    )
    return [(title, rows)]

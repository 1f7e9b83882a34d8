# SPDX-License-Identifier: Apache-2.0
"""Kukreja et al. 2018: what asynchronous transfers cost, against the number of steps and against the speed of the tier."""

from __future__ import annotations

from collections import defaultdict
from typing import Any

from figure import Panel, experiment, lines
from matplotlib.axes import Axes

NAMES = {"async": "async", "revolve": "revolve, fast memory alone", "disk_revolve": "disk_revolve", "auto": "auto"}


def _point(point: dict[str, Any], unlimited: float) -> dict[str, Any]:
    kept = {key: point[key] for key in ("strategy", "steps", "interval", "ratio", "fits")}
    if point["fits"]:
        # Of a step's own time where everything fits: sweeps make steps longer in the third series.
        kept |= {
            "predicted": point["predicted"]["seconds_per_step"] / unlimited,
            "measured": point["measured"]["seconds_per_step"] / unlimited,
            "spread": point["spread"],
            "forwards": point["measured"]["forwards"] / point["steps"],
            "same_gradient": point["same_gradient"],
        }
    return kept


def measure(quick: bool) -> dict[str, Any]:
    found = experiment("async", quick=quick)
    once = found["unlimited_seconds_per_step"]
    steps = [_point(point, once) for point in found["series"]["steps"]]
    # Backward and forward of the step whose length varies, in proportion to its forward.
    usual = found["series"]["steps"][0]["forward_seconds"]
    ratio = [_point(point, once * point["forward_seconds"] / usual) for point in found["series"]["ratio"]]
    return {
        "budget": found["budget"],
        "state": found["state"],
        "summary": found["summary"],
        "steps": steps,
        "ratio": ratio,
    }


def _by_strategy(points: list[dict[str, Any]], key: str) -> dict[str, list[tuple[float, float]]]:
    series = defaultdict(list)
    for point in points:
        if point["fits"] and point["strategy"] in NAMES:
            series[NAMES[point["strategy"]]].append((point[key], point["measured"]))
    return series


def panels(found: dict[str, Any]) -> list[Panel]:
    def length(axes: Axes) -> None:
        lines(axes, _by_strategy(found["steps"], "steps"))
        axes.axhline(1, color="black", linewidth=0.6)
        axes.set(xlabel="steps", ylabel="time, of a run without a limit", ylim=(0.9, None))

    def speed(axes: Axes) -> None:
        lines(axes, _by_strategy(found["ratio"], "ratio"))
        axes.axhline(1, color="black", linewidth=0.6)
        axes.set(
            xlabel="transfer of a state / forward step",
            ylabel="time, of a run without a limit",
            ylim=(0.9, None),
        )

    return [("(a) overhead against length", length), ("(b) overhead against the tier's speed", speed)]


def tables(found: dict[str, Any]) -> list[tuple[str, list[dict[str, Any]]]]:
    rows = [
        {
            "steps": point["steps"],
            "strategy": point["strategy"],
            "forwards a step": point["forwards"],
            "predicted": point["predicted"],
            "measured": point["measured"],
            "spread": f"{100 * point['spread']:.1f} %",
        }
        for point in found["steps"]
        if point["fits"]
    ]
    summary = found["summary"]
    title = (
        f"A heat equation in {found['budget'] / 2**20:.4g} MiB of fast memory and a file: of the time without a limit; "
        f"{summary['within_10_percent']} of {summary['points']} times predicted within 10 %"
    )
    return [(title, rows)]

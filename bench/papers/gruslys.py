# SPDX-License-Identifier: Apache-2.0
"""Gruslys et al. 2016: time against memory, and against the length of the sequence in budgets that stay."""

from __future__ import annotations

from collections import defaultdict
from typing import Any

from figure import Panel, experiment, lines
from matplotlib.axes import Axes

PUBLISHED = (5, 4 / 3)  # per cent of memory, time: the paper's headline for 1000 time steps


def _point(point: dict[str, Any], plain: int) -> dict[str, Any]:
    kept = {key: point[key] for key in ("percent", "time_steps", "strategy", "budget")}
    if point["fits"]:
        kept |= {
            "chosen": point["chosen"],
            "memory_percent": 100 * point["measured"]["peak"]["fast"] / plain,
            "predicted": point["predicted"]["ratio"],
            "measured": point["measured"]["ratio"],
            "least": point["measured"]["least_ratio"],
            "greatest": point["measured"]["greatest_ratio"],
            "seconds_per_time_step": point["measured"]["seconds_per_time_step"],
            "same_gradient": point["same_gradient"],
        }
    return kept


def measure(quick: bool) -> dict[str, Any]:
    found = experiment("gruslys", quick=quick)
    series = {
        name: [_point(point, found["plain_bytes"]) for point in points] for name, points in found["series"].items()
    }
    return {key: found[key] for key in ("hidden", "batch", "time_steps", "plain_bytes")} | series


def panels(found: dict[str, Any]) -> list[Panel]:
    def memory(axes: Axes) -> None:
        planned = [point for point in found["memory"] if point["percent"] and "measured" in point]
        chen = [point for point in found["memory"] if point["strategy"] == "sqrt" and "measured" in point]
        series = {
            "ebb, measured": [(point["memory_percent"], point["measured"]) for point in planned],
            "ebb, predicted": [(point["memory_percent"], point["predicted"]) for point in planned],
            "Chen's rule, measured": [(point["memory_percent"], point["measured"]) for point in chen],
        }
        lines(axes, series)
        axes.plot(*PUBLISHED, "k*", markersize=9, label="the paper's headline")
        axes.axhline(1, color="black", linewidth=0.6)
        axes.set(xlabel="memory, % of all tapes", ylabel="time, of keeping everything")

    def length(axes: Axes) -> None:
        series = defaultdict(list)
        for point in found["steps"]:
            if "measured" in point:
                name = (
                    f"{point['percent']} % of {found['time_steps']} steps' memory"
                    if point["percent"]
                    else _named(point)
                )
                series[name].append((point["time_steps"], 1e6 * point["seconds_per_time_step"]))
        lines(axes, series)
        axes.set(xlabel="time steps", ylabel="µs a time step", ylim=(0, None))

    return [("(a) time against memory", memory), ("(b) time against length", length)]


def _named(point: dict[str, Any]) -> str:
    return {"store_all": "everything kept", "sqrt": "Chen's rule"}.get(point["strategy"], point["strategy"])


def tables(found: dict[str, Any]) -> list[tuple[str, list[dict[str, Any]]]]:
    rows = [
        {
            "memory": f"{point['memory_percent']:.1f} %",
            "strategy": point["strategy"] if point["strategy"] != "auto" else f"auto: {point['chosen']}",
            "predicted": point["predicted"],
            "measured": point["measured"],
            "single runs": f"{point['least']:.3f} to {point['greatest']:.3f}",
        }
        for point in found["memory"]
        if "measured" in point and point["strategy"] != "store_all"
    ]
    return [
        (
            f"LSTM, {found['hidden']} units, batch {found['batch']}, {found['time_steps']} time steps: of the time of keeping everything",
            rows,
        )
    ]

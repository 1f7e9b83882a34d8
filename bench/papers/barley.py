# SPDX-License-Identifier: Apache-2.0
"""Barley and Fröning 2024: bytes kept with pooled inputs and beyond, and what training with them reached.

Bytes are counted here. Accuracies take a GPU: `./dev bench compress side_by_side --json docs/results/papers/accuracy.json`
trains, and this draws what is there.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import numpy
from figure import ROOT, STYLES, Panel
from matplotlib.axes import Axes

sys.path.append(str(Path(__file__).parents[1] / "compress"))

NAMES = {
    "published2": "the paper's pooling alone",
    "exact": "exact",
    "pool2": "pool 2",
    "pool4": "pool 4",
    "recompute": "norms recomputed (exact)",
    "int8": "8-bit norms",
    "pool2-int8": "pool 2, 8-bit norms",
}
ACCURACY = ROOT / "docs/results/papers/accuracy.json"


def measure(quick: bool) -> dict[str, Any]:
    import torch
    from trial import Setting, Trial

    kept = []
    for net in ["resnet18"] if quick else ["resnet18", "resnet50", "efficientnet_b0"]:
        setting = Setting(net, 2, 64 if quick else 224, torch.device("cpu"))
        for variant in ["stock", *NAMES]:
            _, whole, _ = Trial(setting, variant).kept()
            kept.append({"net": net, "variant": variant, "bytes_an_image": whole / setting.batch})
    return {"kept": kept}


def _shares(found: dict[str, Any]) -> dict[str, dict[str, float]]:
    """Per cent of stock's bytes, by net and variant."""
    stock = {row["net"]: row["bytes_an_image"] for row in found["kept"] if row["variant"] == "stock"}
    return {
        net: {row["variant"]: 100 * row["bytes_an_image"] / stock[net] for row in found["kept"] if row["net"] == net}
        for net in stock
    }


def panels(found: dict[str, Any]) -> list[Panel]:
    shares = _shares(found)

    def kept(axes: Axes) -> None:
        places = numpy.arange(len(NAMES))
        width = 0.8 / len(shares)
        for i, (net, values) in enumerate(shares.items()):
            bars = axes.barh(
                places + (i - (len(shares) - 1) / 2) * width,
                [values[name] for name in NAMES],
                width,
                label=net,
                color=STYLES[i]["color"],
            )
            axes.bar_label(bars, [f"{values[name]:.0f}" for name in NAMES], fontsize=6, padding=1)
        axes.axvline(100, color="black", linewidth=0.6)
        axes.set_yticks(places, list(NAMES.values()), fontsize=7.5)
        axes.invert_yaxis()
        axes.set(xlabel="kept for the backward pass, % of stock", xlim=(0, 135))

    def accuracy(axes: Axes) -> None:
        measured = json.loads(ACCURACY.read_text(encoding="utf-8"))
        usual = measured["rows"][0]["epochs"]
        for row in measured["rows"]:
            axes.plot(row["peak_mib"], row["accuracy_percent"], "o", color=STYLES[0]["color"], markersize=4)
            axes.annotate(
                row["variant"] + ("" if row["epochs"] == usual else f", {row['epochs']} epochs"),
                (row["peak_mib"], row["accuracy_percent"]),
                xytext=(4, 4),
                textcoords="offset points",
                fontsize=6.5,
            )
        axes.set(xlabel="peak of a training step, MiB", ylabel="accuracy, %")
        axes.margins(0.2)
        axes.text(
            0.02,
            0.02,
            f"{measured['net']}; {measured['machine']}, {measured['date']}",
            fontsize=6,
            transform=axes.transAxes,
        )

    return [("(a) bytes", kept), ("(b) accuracy, one run each", accuracy)]


def tables(found: dict[str, Any]) -> list[tuple[str, list[dict[str, Any]]]]:
    shares = _shares(found)
    rows = [
        {"variant": NAMES[variant]} | {net: f"{values[variant]:.1f} %" for net, values in shares.items()}
        for variant in NAMES
    ]
    return [("Kept for the backward pass, of what stock layers keep", rows)]

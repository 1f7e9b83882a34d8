# SPDX-License-Identifier: Apache-2.0
"""Changes to what a loop sees, each of which a captured graph would miss."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from graph_cases import Case


class Settings:
    scale = 1.0

    def __init__(self) -> None:
        self.deep = {"list": [1.0]}


def seen() -> dict[str, Any]:
    """What the factor of a loop's ys is made of, beside Settings.scale."""
    return {"k": 1.0, "settings": Settings(), "array": np.ones(3)}


def factor(box: dict[str, Any]) -> float:
    return box["k"] * Settings.scale * box["settings"].deep["list"][0] * float(box["array"][0])


def _number(case: Case, box: dict[str, Any]) -> None:
    box["k"] = 0.5


def _moved(case: Case, box: dict[str, Any]) -> None:
    case.module.weight_ih.data = case.module.weight_ih.data.clone() * 0.5


def _frozen(case: Case, box: dict[str, Any]) -> None:
    case.module.bias_ih.requires_grad_(False)


def _parameter(case: Case, box: dict[str, Any]) -> None:
    case.module.bias_hh = torch.nn.Parameter(case.module.bias_hh.detach() * 2)


def _class(case: Case, box: dict[str, Any]) -> None:
    Settings.scale *= 3.0


def _deep(case: Case, box: dict[str, Any]) -> None:
    box["settings"].deep["list"][0] += 1.0


def _array(case: Case, box: dict[str, Any]) -> None:
    box["array"][0] += 1.0


CHANGES = [_number, _moved, _frozen, _parameter, _class, _deep, _array]

# SPDX-License-Identifier: Apache-2.0
"""Changes to what a loop sees, each of which a captured graph would miss."""

from __future__ import annotations

import os
import weakref
from typing import Any

import numpy as np
import torch
from graph_cases import Case

_WORD = "EBB_TEST_FACTOR"


class Kind(type):
    shared = 1.0


class Settings(metaclass=Kind):
    scale = 1.0

    def __init__(self) -> None:
        self.deep = {"list": [1.0]}


def seen() -> dict[str, Any]:
    """What the factor of a loop's ys is made of, beside Settings.scale."""
    os.environ[_WORD] = "1"
    owner, tensor = Settings(), torch.ones(())
    tensor.factor = 1.0  # type: ignore[attr-defined]
    return {
        "k": 1.0,
        "settings": Settings(),
        "array": np.ones(3),
        "weak": weakref.ref(owner),
        "own": owner,
        "tensor": tensor,
    }


def factor(box: dict[str, Any]) -> float:
    seen = box["k"] * Settings.scale * box["settings"].deep["list"][0] * float(box["array"][0])
    seen *= box["weak"]().deep["list"][0] * box["tensor"].factor * Settings.shared
    return seen * float(os.environ[_WORD])


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


def _behind_a_weak_reference(case: Case, box: dict[str, Any]) -> None:
    box["weak"]().deep["list"][0] += 1.0


def _attribute_of_a_tensor(case: Case, box: dict[str, Any]) -> None:
    box["tensor"].factor += 1.0


def _class_of_a_class(case: Case, box: dict[str, Any]) -> None:
    Kind.shared += 1.0


def _environment(case: Case, box: dict[str, Any]) -> None:
    os.environ[_WORD] = "2"


CHANGES = [
    _number,
    _moved,
    _frozen,
    _parameter,
    _class,
    _deep,
    _array,
    _behind_a_weak_reference,
    _attribute_of_a_tensor,
    _class_of_a_class,
    _environment,
]

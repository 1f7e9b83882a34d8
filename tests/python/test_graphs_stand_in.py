# SPDX-License-Identifier: Apache-2.0
"""Blocks as graphs on a machine without a GPU, where graph_stand_in.py acts as one: what is around graphs, not what CUDA does."""

from __future__ import annotations

import pytest

torch = pytest.importorskip("torch")
if torch.cuda.is_available():
    pytest.skip("here is a GPU, for test_graphs*_cuda.py", allow_module_level=True)

import graph_cases as cases  # noqa: E402
from graph_cases import ROOM, ran_as_graphs, results, same  # noqa: E402
from graph_stand_in import gpu  # noqa: E402, F401

import ebb  # noqa: E402


@pytest.mark.parametrize("kind", cases.KINDS)
def test_same_bits_as_plain(kind):
    case = cases.KINDS[kind]()
    plain = results(case)
    for call in range(3):
        ours = results(case, budget=ROOM, graph=True)
        assert ran_as_graphs() == (call > 0), ebb.last_report().remarks
        assert same(plain, ours), call

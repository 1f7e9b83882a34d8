# SPDX-License-Identifier: Apache-2.0
"""What CUDA graphs of a device share with each other and with the caller: workspaces of libraries, memory, streams."""

from __future__ import annotations

import gc
from typing import Any

import pytest

torch = pytest.importorskip("torch")
if not torch.cuda.is_available():
    pytest.skip("no GPU here", allow_module_level=True)

from graph_cases import HIDDEN, INPUTS, ROOM, Case, fresh, inputs, ran_as_graphs, results, same, zeros  # noqa: E402, F401

import ebb  # noqa: E402


def test_cleared_workspaces():
    """As torch.compile's reduce-overhead does it: replays must not write where others' tensors are by then."""
    linear = torch.nn.Linear(4096, 4096).cuda()

    def f(h, x):
        h = torch.tanh(linear(h) + x)
        return h, h * 1

    case = Case(linear, f, torch.zeros(8, 4096, device="cuda"), torch.randn(40, 8, 4096, device="cuda"))
    words = {"budget": "2GiB", "graph": True, "chunk": 4}
    plain = results(case)
    for _ in range(2):
        results(case, **words)
    assert ran_as_graphs()
    torch._C._cuda_clearCublasWorkspaces()
    others = [torch.ones(n << 20, dtype=torch.uint8, device="cuda") for n in (32, 32, 8, 8, 4, 1, 1) for _ in range(4)]
    case.f(case.init, case.xs[0])  # which takes a new one
    ours = results(case, **words)
    torch.cuda.synchronize()
    assert all(bool((t == 1).all()) for t in others)
    assert ran_as_graphs() and same(plain, ours)


def _wide(hidden: int) -> Case:
    linear, drop = torch.nn.Linear(hidden, hidden).cuda(), torch.nn.Dropout(0.2)

    def f(h, x):
        h = torch.tanh(linear(drop(h)) + x)
        return h, h * 1

    return Case(linear, f, zeros(8, hidden), torch.randn(64, 8, hidden, device="cuda"))


def _seeded(case: Case) -> list[Any]:
    torch.cuda.manual_seed(5)
    return results(case, budget="1GiB", graph=True, chunk=16)


def _expected(case: Case) -> list[Any]:
    """As graphs, nothing else beside them."""
    for _ in range(3):
        found = _seeded(case)
    assert ran_as_graphs()
    return found


def test_two_loops_on_two_streams():
    """Which share cuBLAS's workspace, and before PyTorch 2.13 where random numbers come from."""
    both = [_wide(1024), _wide(1536)]
    expected = [_expected(case) for case in both]
    streams = [torch.cuda.Stream() for _ in both]
    for _ in range(20):
        torch.cuda.synchronize()
        found = []
        for case, stream in zip(both, streams):
            with torch.cuda.stream(stream):
                found.append(_seeded(case))
        torch.cuda.synchronize()
        assert all(same(a, b) for a, b in zip(expected, found))


def test_workspaces_cleared_between_captures():
    both, expected = [_wide(1024), _wide(1536)], []
    for case in both:
        expected.append(_expected(case))
        torch._C._cuda_clearCublasWorkspaces()
        torch.cuda.empty_cache()
    others = [torch.ones(n << 20, dtype=torch.uint8, device="cuda") for n in (32, 8, 2) for _ in range(8)]
    for case, before in zip(both, expected):
        assert same(before, _seeded(case)) and ran_as_graphs()
    torch.cuda.synchronize()
    assert all(bool((t == 1).all()) for t in others)


def test_failed_captures_give_their_memory_back():
    def fails():
        cell = torch.nn.GRUCell(INPUTS, HIDDEN).cuda()

        def f(h, x):
            h = cell(x, h)
            return h, h * h.sum().item()

        case = Case(cell, f, zeros(), inputs())
        for _ in range(3):
            results(case, budget=ROOM, chunk=9)
        assert not ran_as_graphs()

    held = []
    for _ in range(4):
        fails()
        ebb.clear_cache()
        gc.collect()
        torch.cuda.empty_cache()
        held.append(torch.cuda.memory_reserved())
    assert held[-1] <= held[0] + (2 << 20), held

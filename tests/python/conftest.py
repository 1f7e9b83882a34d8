# SPDX-License-Identifier: Apache-2.0
"""What several files of tests share."""

import collections
import itertools
import os
import pathlib

import pytest
from thorough import THOROUGH

# There is a process of tests for each core. torch reads this when it is imported.
os.environ.setdefault("OMP_NUM_THREADS", "1")
# Without a GPU kernels run in Triton's interpreter, which is chosen when it is imported: some other file may be the first to do that.
if not pathlib.Path("/dev/nvidia0").exists():
    os.environ.setdefault("TRITON_INTERPRET", "1")

# ./dev test tries few random examples, ./dev test all as many as each test asks for.
FEW = 5


def pytest_configure(config):
    config.addinivalue_line("markers", "slow: takes seconds; ./dev test leaves it to ./dev test all")
    config.addinivalue_line(
        "markers",
        "sweep(n): of its many cases n, which show as many values of its parameters as they can, are quick and the others slow",
    )


@pytest.hookimpl(tryfirst=True)  # before -m chooses
def pytest_collection_modifyitems(items):
    mark_sweeps(items)
    if not THOROUGH:
        take_few_examples(items)


def take_few_examples(items):
    try:
        import hypothesis
    except ModuleNotFoundError:  # then no test has any
        return
    for item in items:
        test = getattr(item, "obj", None)
        asked = getattr(test, "_hypothesis_internal_use_settings", None)
        if asked is not None:
            few = hypothesis.settings(asked, max_examples=min(FEW, asked.max_examples))
            getattr(test, "__func__", test)._hypothesis_internal_use_settings = few


def pytest_deselected(items):
    """For ./dev test, which says how many it left out; processes side by side tell nobody."""
    if folder := os.environ.get("EBB_RESULTS"):
        pathlib.Path(folder, "left_out").write_text(str(len(items)))


def mark_sweeps(items):
    sweeps = {}
    for item in items:
        if (mark := item.get_closest_marker("sweep")) is not None:
            sweeps.setdefault((item.path, item.originalname), (mark.args[0], []))[1].append(item)
    for quick, cases in sweeps.values():
        chosen = spread(cases, quick)
        for k, item in enumerate(cases):
            if k not in chosen:
                item.add_marker(pytest.mark.slow)


def spread(cases, quick):
    """Where in the list so many cases are that show each value of each parameter about as often, far from each other."""
    values = [[(name, repr(value)) for name, value in case.callspec.params.items()] for case in cases]
    shown, chosen = collections.Counter(), set()

    def rank(k):
        return sum(shown[value] for value in values[k]), -min((abs(k - other) for other in chosen), default=0)

    while len(chosen) < min(quick, len(cases)):
        best = min((k for k in range(len(cases)) if k not in chosen), key=rank)
        chosen.add(best)
        shown.update(values[best])
    return chosen


@pytest.fixture
def even_clock(monkeypatch):
    """A second passes with each reading: what is planned from measured times is the same on every machine."""
    monkeypatch.setattr("time.perf_counter", itertools.count(0.0).__next__)


@pytest.fixture
def one_thread():
    """Small tensors on one thread, from the same random numbers."""
    torch = pytest.importorskip("torch")
    torch.set_num_threads(1)
    torch.manual_seed(0)

# SPDX-License-Identifier: Apache-2.0
"""What several files of tests share."""

import os

import hypothesis
import pytest

# ./dev test tries few random examples, ./dev test all as many as each test asks for.
FEW = 10


def pytest_configure(config):
    config.addinivalue_line("markers", "slow: takes seconds; ./dev test leaves it to ./dev test all")


def pytest_collection_modifyitems(items):
    if os.environ.get("EBB_EXAMPLES") == "all":
        return
    for item in items:
        test = getattr(item, "obj", None)
        asked = getattr(test, "_hypothesis_internal_use_settings", None)
        if asked is not None:
            few = hypothesis.settings(asked, max_examples=min(FEW, asked.max_examples))
            getattr(test, "__func__", test)._hypothesis_internal_use_settings = few


@pytest.fixture
def one_thread():
    """Small tensors on one thread, from the same random numbers."""
    torch = pytest.importorskip("torch")
    torch.set_num_threads(1)
    torch.manual_seed(0)

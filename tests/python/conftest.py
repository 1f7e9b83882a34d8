# SPDX-License-Identifier: Apache-2.0
"""What several files of tests share."""

import pytest


@pytest.fixture
def one_thread():
    """Small tensors on one thread, from the same random numbers."""
    torch = pytest.importorskip("torch")
    torch.set_num_threads(1)
    torch.manual_seed(0)

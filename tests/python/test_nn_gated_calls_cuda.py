# SPDX-License-Identifier: Apache-2.0
"""A thousand random calls of layers on a GPU, by the library's own kernels and, where these do not fit, by cuDNN: against float64.

A failure names the seed of its layer: `./dev cuda test 'tests/python/test_nn_gated_calls_cuda.py::test_random_calls[37]'` repeats the
calls of layer 37 alone.
"""

from __future__ import annotations

import pytest

torch = pytest.importorskip("torch")
if not torch.cuda.is_available():
    pytest.skip("no GPU here", allow_module_level=True)

import gated_calls  # noqa: E402

from ebb import _core  # noqa: E402
from ebb.nn import _gated  # noqa: E402

if reason := _core.gated_unfit(_core.GatedShape("LSTM", "bfloat16", 1, 1, 64, False)):
    pytest.skip(reason, allow_module_level=True)

LAYERS = 1000 // gated_calls.CALLS


def why_not(layer, x):
    return _gated.why_not(layer, x, list(layer.parameters()), None)


@pytest.mark.parametrize("seed", range(LAYERS))
def test_random_calls(seed, monkeypatch):
    monkeypatch.setattr(torch.backends.cudnn, "allow_tf32", True)
    gated_calls.check_calls(seed, "cuda", why_not)

# SPDX-License-Identifier: Apache-2.0
"""What GPUs the package has kernels for."""

from __future__ import annotations

from ebb import _core


def gpu_kernels() -> tuple[str, ...]:
    """The compute capabilities that ebb's own kernels for `ebb.nn.LSTM`, `GRU` and `RNN` were compiled for; none: the package was
    built without them, and torch's kernels run these layers. Whether a call takes them is in docs/gpu.md.

    >>> import ebb
    >>> kernels = ebb.gpu_kernels()  # ("8.0", "9.0") in wheels
    >>> all(float(capability) >= 8 for capability in kernels)
    True
    """
    return tuple(f"{each // 10}.{each % 10}" for each in _core.gated_architectures())

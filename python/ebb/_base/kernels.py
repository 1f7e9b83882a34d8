# SPDX-License-Identifier: Apache-2.0
"""What GPUs the package has kernels for."""

from __future__ import annotations

from ebb import _core


def gpu_kernels() -> tuple[str, ...]:
    """The compute capabilities for which ebb's own kernels for `ebb.nn.LSTM`, `GRU` and `RNN` were compiled. Empty if the package
    was built without them; then torch's kernels run these layers. docs/gpu.md says when a call uses them.

    >>> import ebb
    >>> kernels = ebb.gpu_kernels()  # ("8.0", "9.0") in wheels
    >>> all(float(capability) >= 8 for capability in kernels)
    True
    """
    return tuple(f"{each // 10}.{each % 10}" for each in _core.gated_architectures())

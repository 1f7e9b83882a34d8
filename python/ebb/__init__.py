# SPDX-License-Identifier: Apache-2.0
"""ebb: backpropagation through time in the memory you have."""

from ebb._core import version as __version__
from ebb._errors import Error

__all__ = ["Error"]

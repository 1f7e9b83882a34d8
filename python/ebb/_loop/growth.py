# SPDX-License-Identifier: Apache-2.0
"""What blocks take from the allocator as they are recorded: a sign, for little time, that one keeps more than others."""

from __future__ import annotations

import torch

from ebb._tensor.allocated import seconds_to_read

_ASIDE = 4096  # bytes by which blocks that keep the same differ
_NODE = 1024  # bytes at most that a node of a graph takes beside its tensors
_SHARE = 16  # of the time that a block is recorded in, to read it
_SURPRISES = 8


class Growth:
    """Of blocks that were all weighed, and weighed the same. Whatever else takes memory meanwhile makes a block suspect, which is
    then recorded again and weighed."""

    def __init__(self) -> None:
        self._most = 0
        self._surprises = 0  # that say nothing of the blocks

    def serves(self, device: torch.device, record: float) -> bool:
        """Where recording takes that many seconds it is worth while."""
        return self._surprises < _SURPRISES and seconds_to_read(device) < record / _SHARE

    def is_suspect(self, taken: int) -> bool:
        return taken > self._most + _ASIDE

    def clear(self, taken: int, weight: int, nodes: int) -> None:
        """A suspect was weighed, and keeps no more than the weight, in a graph of that many nodes."""
        if taken <= weight + _ASIDE + nodes * _NODE:
            self._most = max(self._most, taken)
        else:
            self._surprises += 1

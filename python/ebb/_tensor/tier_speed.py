# SPDX-License-Identifier: Apache-2.0
"""How fast tensors go to a slow tier and back."""

from __future__ import annotations

import time
from typing import Any

import torch

from ebb import _core
from ebb._tensor.host_pool import host_memory
from ebb.tiers import MemoryTier, Tier

_PROBED = 64 << 20
_speeds: dict[Any, _core.TierSpeed] = {}


def speed_of(tier: Tier, item: int, device: torch.device) -> _core.TierSpeed:
    """How fast items of about that size go there and back, measured once."""
    key = (tier, max(1, item).bit_length(), device)
    if key not in _speeds:
        if device.type == "cuda" and isinstance(tier, MemoryTier):
            write, read = _link_rates(device)
            _speeds[key] = _core.TierSpeed(
                tier.name,
                capacity=tier.capacity,
                write_rate=write,
                read_rate=read,
                write_latency=3e-5,
                read_latency=3e-5,
            )
        else:
            found = _core.profile_tier(tier.slow_tier(), max(1, item), 0.2)
            _speeds[key] = _core.TierSpeed(
                tier.name,
                capacity=tier.capacity,
                write_rate=found.write_rate,
                read_rate=found.read_rate,
                write_latency=found.write_latency,
                read_latency=found.read_latency,
                duplex=found.duplex,
            )
    return _speeds[key]


def _link_rates(device: torch.device) -> tuple[float, float]:
    there, here = torch.empty(_PROBED, dtype=torch.uint8, device=device), host_memory(_PROBED, True)[0]
    rates = []
    for target, source in ((here, there), (there, here)):
        for _ in range(2):
            torch.cuda.synchronize(device)
            start = time.perf_counter()
            target.copy_(source, non_blocking=True)
            torch.cuda.synchronize(device)
            seconds = time.perf_counter() - start
        rates.append(_PROBED / seconds)
    return rates[0], rates[1]

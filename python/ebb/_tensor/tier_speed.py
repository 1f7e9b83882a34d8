# SPDX-License-Identifier: Apache-2.0
"""How fast tensors go to a slow tier and back."""

from __future__ import annotations

import time

import torch

from ebb import _core
from ebb._base.cache import Section, cache
from ebb._tensor.host_pool import host_memory
from ebb.tiers import MemoryTier, Tier

_PROBED = 64 << 20
_speeds: Section[_core.TierSpeed] = cache.section()


def speed_of(tier: Tier, item: int, device: torch.device) -> _core.TierSpeed:
    """How fast items of about that size go there and back, measured once."""
    return _speeds.get_or((tier, max(1, item).bit_length(), device), lambda: _measured(tier, max(1, item), device))


def _measured(tier: Tier, item: int, device: torch.device) -> _core.TierSpeed:
    if device.type == "cuda" and isinstance(tier, MemoryTier):
        write, read = _link_rates(device)
        return _core.TierSpeed(
            tier.name,
            capacity=tier.capacity,
            write_rate=write,
            read_rate=read,
            write_latency=3e-5,
            read_latency=3e-5,
        )
    found = _core.profile_tier(tier.slow_tier(), item, 0.2)
    return _core.TierSpeed(
        tier.name,
        capacity=tier.capacity,
        write_rate=found.write_rate,
        read_rate=found.read_rate,
        write_latency=found.write_latency,
        read_latency=found.read_latency,
        duplex=found.duplex,
    )


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

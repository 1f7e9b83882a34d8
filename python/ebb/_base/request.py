# SPDX-License-Identifier: Apache-2.0
"""What the keywords of the planner ask for: a chain, a platform and options, as the library takes them."""

from __future__ import annotations

import json
import operator
import os
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, NamedTuple, Union

from ebb import _core
from ebb._base.errors import Error
from ebb._base.sizes import as_bytes

ChainLike = Union["_core.Chain", Mapping[str, Any], Sequence[Mapping[str, Any]], str, "os.PathLike[str]"]
PlatformLike = Union["_core.Platform", Mapping[str, Any], str, "os.PathLike[str]"]
TierLike = Union["_core.TierSpeed", Mapping[str, Any], str]

_reader = _core.PlanReader()


class Request(NamedTuple):
    """One question to the planner."""

    chain: _core.Chain
    platform: _core.Platform
    options: _core.PlanOptions


def read_chain(chain: ChainLike | None, steps: int | None, costs: Mapping[str, Any]) -> _core.Chain:
    """The chain that is given whole, or the uniform one of ``steps`` steps."""
    words = _core.ChainWords()
    for name, value in {"steps": steps, **costs}.items():
        if value is not None:
            size = name in ("state", "tape", "adjoint", "scratch")
            setattr(words, name, _size_word(value, name) if size else _word(value))
    if chain is None:
        return _reader.uniform_chain(words)
    _reader.check_nothing_beside_chain(words)
    if isinstance(chain, _core.Chain):
        return chain
    if isinstance(chain, (str, os.PathLike)):
        return _reader.chain_file(os.fspath(chain))
    described = chain if isinstance(chain, Mapping) else {"steps": list(chain)}
    return _core.Chain.from_json(_json_of(described, "chain"))


def read_platform(platform: PlatformLike | None, tiers: Iterable[TierLike], chain: _core.Chain) -> _core.Platform:
    """The platform with further tiers behind its own."""
    base = _base_platform(platform)
    if isinstance(tiers, (str, Mapping)):
        tiers = [tiers]
    further = [_tier(tier, chain) for tier in tiers]
    return _core.Platform(fast=base.fast, tiers=[*base.tiers, *further], copy_rate=base.copy_rate, name=base.name)


def read_options(
    chain: _core.Chain,
    *,
    strategy: str,
    budget: int | str | None,
    slots: int | None,
    working: int | str | None,
    intervals: int | Sequence[int],
    period: int | None,
    sync: bool,
) -> _core.PlanOptions:
    """How to plan."""
    words = _core.OptionWords()
    words.strategy = str(strategy)
    words.slots = None if slots is None else _word(slots)
    words.budget = None if budget is None else _size_word(budget, "budget")
    words.working = None if working is None else _size_word(working, "working")
    listed = [intervals] if isinstance(intervals, int) else list(intervals)
    words.intervals = ",".join(_word(value) for value in listed) if listed else None
    words.period = None if period is None else _word(period)
    options = _reader.options(words, chain)
    options.sync = bool(sync)
    return options


def as_count(value: Any, what: str, least: int = 0) -> int:
    """A whole number, ``least`` or more."""
    if isinstance(value, float) and value.is_integer():
        value = int(value)
    try:
        number = operator.index(value)
    except TypeError:
        raise Error(f"{what} is {value!r}; it must be a whole number, {least} or more") from None
    if isinstance(value, bool) or not least <= number < 2**63:
        raise Error(f"{what} is {value!r}; it must be a whole number, {least} or more")
    return number


def _base_platform(platform: PlatformLike | None) -> _core.Platform:
    if platform is None:
        return _core.Platform()
    if isinstance(platform, _core.Platform):
        return platform
    if isinstance(platform, Mapping):
        return _core.Platform.from_json(_json_of(platform, "platform"))
    # A path object is a file even where its name is that of a preset.
    return _reader.platform(platform if isinstance(platform, str) else os.path.abspath(platform))


def _tier(tier: TierLike, chain: _core.Chain) -> _core.TierSpeed:
    if isinstance(tier, _core.TierSpeed):
        return tier
    if isinstance(tier, str):
        return _reader.tier(tier, chain)
    if not isinstance(tier, Mapping) or not isinstance(tier.get("name"), str):
        raise Error(
            f"tiers: {tier!r} is no tier to plan for; give words such as 'disk:capacity=4GiB,write=1GB/s,read=2GB/s' "
            "or a mapping with the keys " + ", ".join(["name", *_core.planned_tier_keys()])
        )
    name = tier["name"]
    values = {key: value for key, value in tier.items() if key != "name"}
    if "capacity" in values:
        values["capacity"] = _size_word(values["capacity"], f"tier {name}: capacity")
    if isinstance(values.get("duplex"), bool):
        values["duplex"] = "yes" if values["duplex"] else "no"
    return _reader.tier_of(name, [(str(key), _word(value)) for key, value in values.items()], chain)


def _word(value: Any) -> str:
    """A number or a word as it would be typed; what is neither is left to the reader to refuse."""
    if isinstance(value, (str, bool)):
        return str(value)
    try:
        return str(operator.index(value))
    except TypeError:
        pass
    try:
        return repr(float(value))
    except (TypeError, ValueError):
        return repr(value)


def _size_word(value: Any, what: str) -> str:
    return value if isinstance(value, str) else str(as_bytes(value, what))


def _json_of(value: Any, what: str) -> str:
    try:
        return json.dumps(value, default=dict)
    except (TypeError, ValueError) as error:
        raise Error(f"{what}: {error}; it must be made of what JSON has") from None

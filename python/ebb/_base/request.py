# SPDX-License-Identifier: Apache-2.0
"""What the keywords of the planner ask for: a chain, a platform and options, as the library takes them."""

from __future__ import annotations

import json
import math
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

_TIER_KEYS = ("name", "slots", "capacity", "write", "write_time", "read", "read_time", "latency", "duplex")


class Request(NamedTuple):
    """One question to the planner."""

    chain: _core.Chain
    platform: _core.Platform
    options: _core.PlanOptions


def read_chain(
    chain: ChainLike | None,
    steps: int | None,
    costs: Mapping[str, Any],
) -> _core.Chain:
    """The chain that is given whole, or the uniform one of ``steps`` steps."""
    given = {name: value for name, value in costs.items() if value is not None}
    if chain is not None:
        if steps is not None or given:
            word = "steps" if steps is not None else next(iter(given))
            raise Error(f"chain and {word} contradict each other: the chain says it all")
        return _whole_chain(chain)
    if steps is None:
        raise Error("steps is missing; give steps=N or chain=...")
    count = as_count(steps, "steps")
    call = as_seconds(given.pop("call", 0.0), "call")
    for name in ("forward", "record", "backward"):
        if name in given:
            given[name] = as_seconds(given[name], name)
    for name in ("state", "tape", "adjoint", "scratch"):
        if name in given:
            given[name] = as_bytes(given[name], name)
    # As the command has it: a tape of 1 byte and a backward of 2 seconds unless they are said.
    return _core.Chain.uniform(count, _core.StepCost(**{"tape": 1, "backward": 2.0, **given}), call)


def read_platform(platform: PlatformLike | None, tiers: Iterable[TierLike], chain: _core.Chain) -> _core.Platform:
    """The platform with further tiers behind its own."""
    base = _base_platform(platform)
    if isinstance(tiers, (str, Mapping)):
        tiers = [tiers]
    further = [_tier(tier, chain) for tier in tiers]
    return _core.Platform(fast=base.fast, tiers=[*base.tiers, *further], copy_rate=base.copy_rate)


def read_options(
    *,
    strategy: str,
    budget: int | str | None,
    slots: int | None,
    working: int | str | None,
    intervals: int | Sequence[int],
    period: int | None,
    sync: bool,
    length_unknown: bool = False,
) -> _core.PlanOptions:
    """How to plan."""
    names = [row.name for row in _core.strategies()]
    if strategy not in names:
        raise Error(f"strategy is {strategy!r}; it must be one of {', '.join(names)}")
    if slots is not None and budget is not None:
        raise Error("slots and budget contradict each other; give one of them")
    if slots is not None and working is not None:
        raise Error("slots and working contradict each other: slots count states alone, no working set")
    options = _core.PlanOptions()
    options.strategy = strategy
    options.budget = None if budget is None else as_bytes(budget, "budget")
    options.slots = None if slots is None else as_count(slots, "slots")
    options.working = None if working is None else as_bytes(working, "working")
    listed = [intervals] if isinstance(intervals, int) else list(intervals)
    options.intervals = [as_count(value, "intervals", least=1) for value in listed]
    options.period = None if period is None else as_count(period, "period", least=1)
    options.sync = bool(sync)
    options.length_unknown = bool(length_unknown)
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


def as_seconds(value: Any, what: str) -> float:
    """A number of seconds, 0 or more."""
    try:
        seconds = float(value)
    except (TypeError, ValueError):
        seconds = math.nan
    if isinstance(value, (bool, str)) or not math.isfinite(seconds) or seconds < 0:
        raise Error(f"{what} is {value!r}; it must be seconds, 0 or more")
    return seconds


def state_of_all(chain: _core.Chain, what: str) -> int:
    """Bytes of a state where all have the same."""
    if len(chain) == 0 or _core.is_uniform(chain):
        return _core.typical(chain).state
    first = chain[0].state
    if any(chain[i].state != first for i in range(len(chain))):
        raise Error(f"{what} counts states, but the chain's states differ in size; give bytes instead")
    return first


def _whole_chain(chain: ChainLike) -> _core.Chain:
    if isinstance(chain, _core.Chain):
        return chain
    if isinstance(chain, (str, os.PathLike)):
        return _from_text(_core.Chain.from_json, _text_of(chain, "chain"), f"chain {os.fspath(chain)!r}")
    described = chain if isinstance(chain, Mapping) else {"steps": list(chain)}
    return _from_text(_core.Chain.from_json, _json_of(described, "chain"), "chain")


def _base_platform(platform: PlatformLike | None) -> _core.Platform:
    if platform is None:
        return _core.Platform()
    if isinstance(platform, _core.Platform):
        return platform
    if isinstance(platform, Mapping):
        return _from_text(_core.Platform.from_json, _json_of(platform, "platform"), "platform")
    if isinstance(platform, str) and not any(mark in platform for mark in "/."):
        if platform not in _core.preset_names():
            raise Error(
                f"platform is {platform!r}; it must be a file such as './{platform}.json' or one of the presets "
                f"{', '.join(_core.preset_names())}"
            )
        return _core.Platform.preset(platform)
    return _from_text(_core.Platform.from_json, _text_of(platform, "platform"), f"platform {os.fspath(platform)!r}")


def _tier(tier: TierLike, chain: _core.Chain) -> _core.TierSpeed:
    if isinstance(tier, _core.TierSpeed):
        return tier
    if isinstance(tier, str):
        tier = _tier_words(tier)
    if not isinstance(tier, Mapping) or not isinstance(tier.get("name"), str):
        raise Error(
            f"tiers: {tier!r} is no tier to plan for; give words such as 'disk:capacity=4GiB,write=1GB/s,read=2GB/s' "
            "or a mapping with the keys " + ", ".join(_TIER_KEYS)
        )
    name = tier["name"]
    for key in tier:
        if key not in _TIER_KEYS:
            raise Error(f"tier {name}: {key!r} is not known; the keys are {', '.join(_TIER_KEYS)}")
    for one, other in (("slots", "capacity"), ("write", "write_time"), ("read", "read_time")):
        if one in tier and other in tier:
            raise Error(f"tier {name}: {one} and {other} say the same thing; give one of them")
    values: dict[str, Any] = {}
    if "slots" in tier:
        slots = as_count(_number(tier["slots"]), f"tier {name}: slots")
        values["capacity"] = min(slots * state_of_all(chain, f"tier {name}: slots"), _core.UNLIMITED)
    if "capacity" in tier:
        values["capacity"] = as_bytes(tier["capacity"], f"tier {name}: capacity")
    latency = as_seconds(_number(tier.get("latency", 0.0)), f"tier {name}: latency")
    for way in ("write", "read"):
        if way in tier:
            values[f"{way}_rate"] = _rate(tier[way], f"tier {name}: {way}")
        seconds = as_seconds(_number(tier.get(f"{way}_time", 0.0)), f"tier {name}: {way}_time")
        values[f"{way}_latency"] = latency + seconds
    duplex = tier.get("duplex", True)
    if duplex not in (True, False, "yes", "no"):
        raise Error(f"tier {name}: duplex is {duplex!r}; it must be yes or no")
    return _core.TierSpeed(name, duplex=duplex in (True, "yes"), **values)


def _tier_words(words: str) -> dict[str, str]:
    name, _, rest = words.partition(":")
    tier = {"name": name}
    for part in rest.split(",") if rest else ():
        key, equals, value = part.partition("=")
        if not equals or key == "name":
            keys = ", ".join(_TIER_KEYS[1:])
            raise Error(f"tier {name}: cannot read {part!r}; write key=value with the keys {keys}")
        if key in tier:
            raise Error(f"tier {name}: {key} is given twice")
        tier[key] = value
    return tier


def _number(value: Any) -> Any:
    if not isinstance(value, str):
        return value
    try:
        return float(value)
    except ValueError:
        return math.nan


def _rate(value: Any, what: str) -> float:
    try:
        return _core.parse_rate(value if isinstance(value, str) else repr(float(value)))
    except (Error, TypeError, ValueError):
        raise Error(f"{what} is {value!r}; it must be bytes a second above 0, such as 2.5e9 or '2.5GB/s'") from None


def _text_of(path: str | os.PathLike[str], what: str) -> str:
    try:
        with open(path, encoding="utf-8") as file:
            return file.read()
    except (OSError, UnicodeDecodeError) as error:
        raise Error(f"{what}: the file {os.fspath(path)!r} cannot be read: {error}", "io") from None


def _json_of(value: Any, what: str) -> str:
    try:
        return json.dumps(value, default=dict)
    except (TypeError, ValueError) as error:
        raise Error(f"{what}: {error}; it must be made of what JSON has") from None


def _from_text(read: Any, text: str, what: str) -> Any:
    try:
        return read(text)
    except Error as error:
        raise Error(f"{what}: {error}", error.code) from None

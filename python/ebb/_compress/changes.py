# SPDX-License-Identifier: Apache-2.0
"""What `ebb.compress` did to a model."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass
from typing import Any

from torch import nn

from ebb import _core
from ebb._compress.kinds import CONVS, is_compressed, stock
from ebb._compress.settings import settings_of


@dataclass(frozen=True)
class Changes:
    """What `ebb.compress` did: `model.ebb_compress`. `changed`: the layers that it compressed, by name, and in which way. `left`:
    those that it could have compressed and left as they were, since they would save nothing. `functions`: kinds of layers whose
    functions, such as `F.relu`, do as those layers do. `stock_kept` and `kept`: the bytes that a step on the sample keeps for its
    backward pass, before and now; None where no sample was given."""

    changed: dict[str, str]
    left: list[str]
    functions: list[str]
    stock_kept: int | None = None
    kept: int | None = None

    @classmethod
    def of(cls, model: nn.Module, layers: Iterable[str], *kept: int) -> Changes:
        """The layers are those that could be compressed."""
        ways = {name: _way(model.get_submodule(name)) for name in layers}
        changed = {name: way for name, way in ways.items() if way is not None}
        functions = [name for name in vars(model).get("ebb_functions", ()) if name != "Flatten"]
        return cls(changed, [name for name in ways if name not in changed], functions, *kept)

    def to_dict(self) -> dict[str, Any]:
        return asdict(self)

    def brief(self) -> str:
        size = _core.format_bytes
        found = f"{_layers(len(self.changed))} compressed"
        if self.functions:
            found += f", functions of {', '.join(self.functions)} too"
        if self.left:
            found += f", {len(self.left)} left as they were, since they would save nothing"
        if self.kept is None or self.stock_kept is None:
            return found
        return f"{found}; a step keeps {size(self.kept)} instead of {size(self.stock_kept)}"

    def __str__(self) -> str:
        rows: Mapping[str, str] = {**self.changed, **dict.fromkeys(self.left, "left as it was")}
        wide = max((len(name) for name in rows), default=0)
        return "\n".join([self.brief(), "", *(f"  {name or '(model)':<{wide}}  {way}" for name, way in rows.items())])


def _layers(count: int) -> str:
    return "1 layer" if count == 1 else f"{count} layers"


def _way(layer: nn.Module) -> str | None:
    if not is_compressed(layer):
        return None
    settings = settings_of(layer)
    if settings.way != "compress":
        return settings.way
    return "pool " + "x".join(map(str, settings.block)) if stock(layer) in CONVS else settings.codec

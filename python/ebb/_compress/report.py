# SPDX-License-Identifier: Apache-2.0
"""`compression_report`: what every layer of a compressed model keeps, how long it takes and how exact its gradient is."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import asdict, dataclass
from typing import Any

import torch
from torch import Tensor, nn

from ebb import _core
from ebb._base.errors import Error
from ebb._base.page import HasPage, as_json
from ebb._compress.compress import as_stock, compressed_layers
from ebb._compress.record import Event, record_bytes, record_times
from ebb._compress.sample_step import SampleStep
from ebb._compress.settings import Settings, settings_of, weight_of

_ROUNDS = 3


@dataclass(frozen=True)
class LayerRow:
    """One layer, or what is kept in `layer` outside of its own layers. Bytes are counted for whom keeps them first; those of
    parameters and of the sample are the caller's. Seconds are of forward and backward together; what is computed again is counted
    for the layer that needs it first. `cosine` and `error` compare its weight gradient with that of the model before
    `ebb.compress`: the angle, and the norm of the difference over the norm; None where there is no such gradient."""

    layer: str
    kind: str
    way: str
    stock_kept: int
    kept: int
    moved: int
    stock_seconds: float
    seconds: float
    cosine: float | None
    error: float | None


@dataclass(frozen=True)
class StepTotals:
    """Of one step. `peak`: the most bytes held at once beyond those held before, without gradients of parameters."""

    stock_kept: int
    kept: int
    moved: int
    stock_peak: int
    peak: int
    stock_seconds: float
    seconds: float


@dataclass(frozen=True)
class CompressionReport(HasPage):
    """`rows` are the layers in the order in which they run, `totals` the whole step. `print(report)` is a table; `to_dict()`
    and `to_json()` have all of it, `to_html()` shows it layer by layer, as a notebook does."""

    rows: list[LayerRow]
    totals: StepTotals

    def to_dict(self) -> dict[str, Any]:
        return asdict(self)

    def to_json(self) -> str:
        return json.dumps(self.to_dict())

    def _page(self, quick: bool) -> str:
        return _core.document_page(as_json(self.to_dict()), "")

    def __repr__(self) -> str:
        return f"<ebb compression report, {self.brief()}>"

    def brief(self) -> str:
        size, whole = _core.format_bytes, self.totals
        return (
            f"{len(self.rows)} layers keep {size(whole.kept)} instead of {size(whole.stock_kept)}, peak {size(whole.peak)} "
            f"instead of {size(whole.stock_peak)}, {_ratio(whole.seconds, whole.stock_seconds)} x the time"
        )

    def __str__(self) -> str:
        lines: list[tuple[str, ...]] = [
            ("layer", "kind", "way", "kept before", "kept", "moved", "time", "cosine", "error")
        ]
        lines += [_cells(row) for row in self.rows if row.stock_kept or row.kept or row.moved or row.cosine is not None]
        widths = [max(len(line[k]) for line in lines) for k in range(len(lines[0]))]
        table = [
            "  ".join(
                cell.ljust(width) if k < 3 else cell.rjust(width) for k, (cell, width) in enumerate(zip(line, widths))
            ).rstrip()
            for line in lines
        ]
        return "\n".join([self.brief(), "", *("  " + line for line in table)])


def _cells(row: LayerRow) -> tuple[str, ...]:
    size = _core.format_bytes
    return (
        row.layer or "(model)",
        row.kind,
        row.way,
        size(row.stock_kept),
        size(row.kept),
        size(row.moved) if row.moved else "-",
        _ratio(row.seconds, row.stock_seconds),
        "-" if row.cosine is None else f"{row.cosine:.4f}",
        "-" if row.error is None else f"{row.error:.2g}",
    )


def _ratio(now: float, before: float) -> str:
    return f"{now / before:.2f}" if before > 0 else "-"


def compression_report(model: nn.Module, sample: Any, loss: Callable[[Any], Tensor] | None = None) -> CompressionReport:
    """Measures a compressed model on a batch, layer by layer, against what it was before `ebb.compress`.

    sample: what the model is called with: a tensor, a tuple of arguments or a dict of named ones.
    loss: a function from the model's output to one number. None: the sum of all numbers that come out, each times a random
        number (normal, the same in every call).

    It runs a dozen steps and leaves the model unchanged, including gradients, buffers and random generators. On top of a step's
    memory it needs two copies of the parameters' gradients. On a GPU it resets torch.cuda.max_memory_allocated().

    >>> import torch, ebb
    >>> net = torch.nn.Sequential(torch.nn.Conv2d(3, 8, 3), torch.nn.BatchNorm2d(8), torch.nn.ReLU(), torch.nn.Conv2d(8, 8, 3))
    >>> report = ebb.compression_report(ebb.compress(net), torch.randn(2, 3, 16, 16))
    >>> report.totals.kept < report.totals.stock_kept, report.rows[3].error
    (True, 0.0)
    """
    step = SampleStep("compression_report", model, sample, loss)
    if not compressed_layers(model) and not any("ebb_functions" in vars(part) for part in model.modules()):
        tried = "ebb_compress" in vars(model)
        raise Error(
            "compression_report: the model has no compressed layer; "
            + (
                "ebb.compress left all as they were, since they would save nothing"
                if tried
                else "call ebb.compress or ebb.fit first"
            )
        )
    with as_stock(model):
        stock_gradients = step.gradients()  # also a first run, which may take longer
        stock = _Side(step)
    gradients = step.gradients()
    exactness = {name: _compare(stock_gradients, gradients, layer) for name, layer in model.named_modules()}
    del stock_gradients, gradients
    now = _Side(step)
    ways = {name: way_text(settings_of(layer), layer) for name, layer in compressed_layers(model).items()}
    rows = []
    for name in dict.fromkeys([*stock.bytes, *now.bytes]):
        cosine, error = exactness.get(name, (None, None))
        rows.append(
            LayerRow(
                name,
                now.kinds.get(name) or stock.kinds[name],
                ways.get(name, "-"),
                stock.bytes.get(name, 0),
                now.bytes.get(name, 0),
                now.moved.get(name, 0),
                sum(stock.times.get(name, (0.0,))),
                sum(now.times.get(name, (0.0,))),
                cosine,
                error,
            )
        )
    return CompressionReport(
        rows,
        StepTotals(
            sum(stock.bytes.values()),
            sum(now.bytes.values()),
            sum(now.moved.values()),
            stock.peak,
            now.peak,
            stock.seconds,
            now.seconds,
        ),
    )


class _Side:
    """The model before or after."""

    def __init__(self, step: SampleStep):
        self.bytes: dict[str, int] = {}
        self.moved: dict[str, int] = {}
        self.kinds: dict[str, str] = {}
        for event in record_bytes(step):
            _add(self.bytes, event, event.bytes)
            _add(self.moved, event, event.moved)
            self.kinds[event.name] = event.kind
        self.times = record_times(step, _ROUNDS)
        self.peak = step.peak()
        self.seconds = step.seconds(_ROUNDS)


def _add(sums: dict[str, int], event: Event, size: int) -> None:
    sums[event.name] = sums.get(event.name, 0) + size


def _compare(stock: dict[int, Tensor], now: dict[int, Tensor], layer: nn.Module) -> tuple[float | None, float | None]:
    """The cosine and the relative error of its weight gradient."""
    weight = weight_of(layer)
    if id(weight) not in stock or id(weight) not in now:
        return None, None
    before, after = (side[id(weight)].flatten().to(torch.float64) for side in (stock, now))
    norm = float(before.norm())
    if torch.equal(before, after):
        return 1.0, 0.0
    if norm == 0:
        return 0.0, float("inf")
    return float(before @ after / (norm * after.norm())), float((after - before).norm()) / norm


def way_text(settings: Settings, layer: nn.Module) -> str:
    if settings.way == "compress" and isinstance(layer, (nn.Conv1d, nn.Conv2d, nn.Conv3d)):
        return "pool " + "x".join(map(str, settings.block)) if settings.pooled else "keep"
    if settings.way == "compress":
        return settings.codec
    return settings.way

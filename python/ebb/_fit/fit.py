# SPDX-License-Identifier: Apache-2.0
"""`fit`: a model's backward pass in a budget of bytes, each layer in its own way."""

from __future__ import annotations

import inspect
import os
import weakref
from collections.abc import Callable, Iterable
from dataclasses import asdict, dataclass
from typing import Any, TypeVar

import torch
from torch import Tensor, nn
from torch.nn.parameter import is_lazy

from ebb import _core
from ebb._base.cache import Section, cache
from ebb._base.errors import Error
from ebb._base.wish import bytes_of, wish_of
from ebb._compress.compress import Compression, compress_all, compressed_layers, compressible_layers, decompress, listed
from ebb._compress.offloading import Offloading
from ebb._compress.report import way_text
from ebb._compress.sample_step import SampleStep
from ebb._compress.settings import settings_of
from ebb._fit.plan import FitPlan, evaluate, kept_by_layer
from ebb._fit.profile import CONVOLUTIONS, ROUNDS, Allowed, Profile

Model = TypeVar("Model", bound=nn.Module)

_TRIES = 8  # plans that are measured on the way down, and again on the way up


@dataclass(frozen=True)
class FitRow:
    """kept: predicted bytes, for whom keeps them first."""

    layer: str
    kind: str
    way: str
    kept: int


@dataclass(frozen=True)
class Fit:
    """What `ebb.fit` chose: `model.ebb_fit`. Bytes are those that a step holds at its worst moment, as the budget counts them;
    `peak` is measured, None where it was not; `stock_peak` is None where the model as it was did not fit the device.
    `slowdown` is the predicted time of a step over that of the model as it was, None where that is not known."""

    budget: int
    stock_peak: int | None
    predicted_peak: int
    peak: int | None
    slowdown: float | None
    rows: list[FitRow]

    def to_dict(self) -> dict[str, Any]:
        return asdict(self)

    def brief(self) -> str:
        size = _core.format_bytes
        ways: dict[str, int] = {}
        for row in self.rows:
            ways[row.way] = ways.get(row.way, 0) + 1
        chosen = ", ".join(f"{n} {way}" for way, n in ways.items())
        peak = f"{size(self.predicted_peak)} predicted" if self.peak is None else size(self.peak)
        stock = "" if self.stock_peak is None else f", {size(self.stock_peak)} before"
        slow = "" if self.slowdown is None else f", {self.slowdown:.2f} x the time"
        return f"{peak} of {size(self.budget)}{stock}{slow}: {chosen or 'all layers as they were'}"

    def __str__(self) -> str:
        wide = [max([len(getattr(row, name)) for row in self.rows], default=0) for name in ("layer", "kind", "way")]
        return "\n".join(
            [self.brief(), ""]
            + [
                f"  {row.layer:<{wide[0]}}  {row.kind:<{wide[1]}}  {row.way:<{wide[2]}}  {_core.format_bytes(row.kept):>10}"
                for row in self.rows
            ]
        )


def fit(
    model: Model,
    sample: Any,
    budget: float | str,
    *,
    lossy: str | tuple[str, int] | Iterable[Any] = (),
    loss: Callable[[Any], Tensor] | None = None,
    disk: str | os.PathLike[str] | None = None,
    skip: Iterable[str | type | nn.Module] = (),
    verify: bool = True,
) -> Model:
    """Makes a training step fit a budget of bytes in the least time. Changes the model in place, as `ebb.compress` does, and
    returns it; `model.ebb_fit` says what was chosen.

    For every layer it chooses whether its input is kept, recomputed from the input of the convolution before, moved away
    until the backward pass (to host memory from a GPU; to `disk` from a CPU), or kept as a smaller copy, if `lossy` allows
    that. What each would cost is measured on the sample first. Without `lossy` gradients are bit-identical to those of the original model.

    budget: the bytes that a step (forward, loss, backward) may hold at its worst moment beyond what was held before it: what
        is kept for the backward pass, what passes by, outputs and their gradients; not parameters and their gradients, the
        optimiser's state and the inputs, and on a CPU not what torch's kernels take inside. A number, "512MiB", or "50%" of
        what the model as it was holds by this measure. Steps on larger batches than the sample hold more.
    sample, loss: as in `ebb.compression_report`; give the loss that you train with.
    lossy: "pool" (means of blocks of 2), ("pool", 4) or ("pool", 8) (up to that many), "int8" (norms keep 8 bits), "linear"
        (linear layers keep 8 bits), "project" (linear layers keep a quarter as many rows); several in a list or tuple. They are used
        where the budget asks for it, never for speed alone.
    disk: a directory for what leaves a CPU's memory.
    skip: layers that stay as they are, as in `ebb.compress`.
    verify: the peak of the plan is measured, and the plan made tighter until it is within the budget. Otherwise it is as good as
        the prediction.

    If everything fits, everything is kept, or the model is left alone if that takes no more. If nothing that is allowed fits,
    raises `ebb.Error` with the code "infeasible_budget" and `least_budget`; the model is then unchanged. The model's
    gradients, buffers and generators are left alone. It runs a few dozen steps at most, the first of them with nothing but
    exact savings, which the device must have room for.

    >>> import torch, ebb
    >>> def part():
    ...     return torch.nn.Conv2d(8, 8, 3, padding=1), torch.nn.BatchNorm2d(8), torch.nn.ReLU()
    >>> net = torch.nn.Sequential(torch.nn.Conv2d(3, 8, 3), *part(), *part(), *part(), *part())
    >>> net = ebb.fit(net, torch.randn(4, 3, 16, 16), "70%")
    >>> net.ebb_fit.peak <= net.ebb_fit.budget
    True
    """
    step = SampleStep("fit", model, sample, loss)
    allowed, wanted = Allowed.of(lossy, disk), _Wanted(budget)
    left_out = listed(skip)
    before = Compression(model)
    try:
        profile = _profile(step, allowed, left_out)
        limit = wanted.of(profile.stock_peak)
        compress_all(model, left_out)
        found = _Search(step, profile, allowed, limit, verify).run()
    except BaseException:
        before.put_back(model)
        raise
    if found is None:
        decompress(model)
    model.ebb_fit = _told(model, profile, found, limit)  # type: ignore[assignment]
    return model


class _Wanted:
    """A budget as it was given."""

    def __init__(self, given: float | str):
        self._wish = wish_of(given, "fit: budget")
        if self._wish is not None and self._wish.share is None:
            raise Error(
                f"fit: budget is {given!r}; it is bytes such as '512MiB', or a share of what the model holds, such as '50%'"
            )
        self._bytes = bytes_of(given, "fit: budget") if self._wish is None else 0

    def of(self, whole: int | None) -> int:
        """In bytes, for a model that holds that many."""
        if self._wish is None or self._wish.share is None:
            return self._bytes
        if whole is None:
            raise Error(
                f"fit: budget is {self._wish.said!r}, a part of what the model holds now, which the device has no room for; "
                "give bytes"
            )
        return int(self._wish.share * whole)


def _profile(step: SampleStep, allowed: Allowed, skip: list[Any]) -> Profile:
    """Measured once for a model and a kind of sample."""
    model = step.model
    decompress(model)
    if any(is_lazy(one) for one in (*model.parameters(), *model.buffers())):
        raise Error(
            "fit: the model has layers whose shapes are not known yet (nn.Lazy...); call it once on the sample first"
        )
    key = _key(step, allowed, skip)
    known: Section[Profile] = cache.section_of(model)
    return known.get_or(key, lambda: _measured(step, allowed, skip))


def _measured(step: SampleStep, allowed: Allowed, skip: list[Any]) -> Profile:
    peak, seconds = None, None
    try:
        step.gradients()  # the first run may take longer and more
        peak, seconds = step.peak(), step.seconds(ROUNDS)
    except torch.cuda.OutOfMemoryError:
        torch.cuda.empty_cache()
    compress_all(step.model, skip)
    return Profile(step, peak, seconds, allowed)


def _key(step: SampleStep, allowed: Allowed, skip: list[Any]) -> tuple[Any, ...]:
    model = step.model
    kinds = [(kind, torch.is_autocast_enabled(kind), torch.get_autocast_dtype(kind)) for kind in ("cpu", "cuda")]
    return (
        allowed,
        _loss_key(step.loss),
        tuple(compressible_layers(model, skip, "fit")),
        torch.get_num_threads(),
        tuple(kinds),
        step.others,
        tuple((t.shape, t.dtype, t.device, t.requires_grad, t.stride()) for t in step.inputs),
        tuple((p.shape, p.dtype, p.device, p.requires_grad) for p in model.parameters()),
        tuple((name, type(part), part.training, part.extra_repr()) for name, part in model.named_modules()),
    )


def _loss_key(loss: Any) -> Any:
    """It may hold the model, which must not live longer for that."""
    if loss is None:
        return None
    try:
        found = weakref.WeakMethod(loss) if inspect.ismethod(loss) else weakref.ref(loss)
        hash(found)
    except TypeError:
        return object()  # equal to no other
    return found


class _Search:
    """For the fastest plan whose measured peak is within the budget."""

    def __init__(self, step: SampleStep, profile: Profile, allowed: Allowed, budget: int, verify: bool):
        self._step, self._profile, self._allowed, self._budget, self._verify = step, profile, allowed, budget, verify
        self._layers = compressed_layers(step.model)
        self._offloading: Offloading | None = None

    def run(self) -> tuple[FitPlan, int | None] | None:
        """The plan, which is then in force, and its peak; None where the model as it was fits, and keeping what is exact takes no
        less: a ReLU's bits may come on top of what the layer after it keeps anyway."""
        planner, stock = self._profile.planner, self._profile.stock_peak
        keep = evaluate(self._profile.steps, {})
        exact = self._peak(keep) if self._verify else keep.peak
        fits = exact <= self._budget
        if stock is not None and stock <= min(exact, self._budget):
            return None
        if not self._verify:
            found = keep if fits else planner.solve(self._budget)
            if found is None:
                raise self._infeasible(min(plan.peak for plan in planner.least()))
            self._install(found)
            return found, None
        if fits:
            return keep, self._peak(keep)
        best, highest = self._descend()
        if best is None:
            for plan in planner.least():
                self._peak(plan)
            best = self._best_known()
        if best is None:
            raise self._infeasible(min(peak for peak, _ in self._profile.measured.values()))
        best = self._ascend(best, highest)
        self._install(best)
        return best, self._profile.measured[best.key][0]

    def _descend(self) -> tuple[FitPlan | None, int | None]:
        """Lowers the limit by what the prediction was wrong. Also the lowest limit whose plan was too large."""
        limit, refused = self._budget, None
        for _ in range(_TRIES):
            plan = self._profile.planner.solve(limit)
            if plan is None:
                break
            peak = self._peak(plan)
            if peak <= self._budget:
                return plan, refused
            refused = plan.peak
            limit = plan.peak - max(1, peak - self._budget)
            if limit <= 0:
                break
        return None, refused

    def _ascend(self, best: FitPlan, refused: int | None) -> FitPlan:
        """A prediction that is too high leaves bytes unused: the limit is raised while plans that are faster still fit."""
        low, high = best.peak, refused
        for _ in range(_TRIES):
            spare = self._budget - self._profile.measured[best.key][0]
            limit = low + spare if high is None else min(low + spare, (low + high) // 2)
            if limit <= low + (self._budget >> 7):
                break
            plan = self._profile.planner.solve(limit)
            if plan is None or plan.seconds >= best.seconds:
                break
            if self._peak(plan) <= self._budget:
                best, low = plan, limit
            else:
                high = limit
        return best

    def _best_known(self) -> FitPlan | None:
        fitting = [plan for peak, plan in self._profile.measured.values() if peak <= self._budget]
        return min(fitting, key=lambda plan: plan.seconds) if fitting else None

    def _peak(self, plan: FitPlan) -> int:
        known = self._profile.measured
        if plan.key not in known:
            self._install(plan)
            self._step.peak()  # pools of memory and kernels are made on first use
            moved = [step.x_bytes for step in self._profile.steps if plan.options[step.name].way == "offload"]
            # How much is on its way at once depends on the time of day.
            known[plan.key] = self._step.peak() + self._profile.under_way * max(moved, default=0), plan
        else:
            self._install(plan)
        return known[plan.key][0]

    def _install(self, plan: FitPlan) -> None:
        steps = self._profile.steps
        again = {step.x for step in steps if plan.options[step.name].way == "recompute"}
        offering = {step.name for step in steps if step.kind == "conv" and step.y in again}
        with_data = {
            step.name for step in steps if step.kind == "conv" and step.x_bytes == 0
        }  # which need not be pooled
        moves = any(option.way == "offload" for option in plan.options.values())
        for name, layer in self._layers.items():
            settings = settings_of(layer)
            option = plan.options.get(name)
            settings.way = "keep" if option is None else option.way
            if option is not None and option.way == "compress":
                settings.codec = option.codec
                if option.block:
                    settings.block = (option.block,) * len(layer.stride)  # type: ignore[arg-type]
                    settings.always = name not in with_data
                    settings.pooled = True  # as its first call will find
            settings.offers = name in offering or not isinstance(layer, CONVOLUTIONS)
            settings.offloading = self._mover() if moves else None

    def _mover(self) -> Offloading:
        if self._offloading is None:
            self._offloading = Offloading(self._allowed.disk, self._profile.under_way, self._profile.largest)
        return self._offloading

    def _infeasible(self, least: int) -> Error:
        if self._profile.stock_peak is not None:
            least = min(least, self._profile.stock_peak)
        allowed, more = self._allowed, []
        kinds = {step.kind for step in self._profile.steps}
        if "conv" in kinds and max(allowed.blocks, default=0) < 8:
            more.append("('pool', 8)")
        if "norm" in kinds and not allowed.norm:
            more.append("'int8'")
        if "linear" in kinds and not allowed.linear:
            more.append("'linear'")
        hints = [f"lossy= may also allow {', '.join(more)}"] if more else []
        if not self._profile.moves:
            hints.append("disk= gives what is kept another place")
        size = _core.format_bytes
        text = f"fit: a step of this model holds {size(least)} at least with what is allowed, and the budget is {size(self._budget)}"
        remedy = f"allow at least {least} bytes" + (f", or more ways: {'; '.join(hints)}" if hints else "")
        return Error(text, "infeasible_budget", least, remedy)


def _told(model: nn.Module, profile: Profile, found: tuple[FitPlan, int | None] | None, budget: int) -> Fit:
    if found is None:
        assert profile.stock_peak is not None
        return Fit(budget, profile.stock_peak, profile.stock_peak, profile.stock_peak, 1.0, [])
    chosen, peak = found
    kept = kept_by_layer(profile.steps, {name: option.key for name, option in chosen.options.items()})
    rows = [
        FitRow(name, type(layer).__name__, way_text(settings_of(layer), layer), kept.get(name, 0))
        for name, layer in compressed_layers(model).items()
    ]
    slowdown = None
    if profile.stock_seconds is not None:
        slowdown = (profile.seconds + chosen.seconds) / profile.stock_seconds
    return Fit(budget, profile.stock_peak, chosen.peak, peak, slowdown, rows)

# SPDX-License-Identifier: Apache-2.0
"""The kernels of spiking cells in plain PyTorch on a CPU, by the contract of ebb/cell/spiking.h: to test all that is around them."""

from __future__ import annotations

from dataclasses import dataclass

import gated_stand_in
import torch
from gated_stand_in import TYPES, _array, _unseen
from spiking_reference import SURROGATES

from ebb._loop.arguments import transform_of

FIELDS = {"LIF": 1, "ALIF": 2, "ADLIF": 2}
PARAMETERS = {"LIF": 2, "ALIF": 4, "ADLIF": 5}


@dataclass
class Shape:
    cell: str
    dtype: str
    steps: int
    batch: int
    hidden: int
    hard: bool
    attached: bool
    normalised: bool
    surrogate: str
    sharpness: float
    recurrent: bool

    def rows(self, address, dtype=None):
        return _array(address, (self.steps, self.batch, self.hidden), dtype or TYPES[self.dtype])

    def state(self, address, count=1, dtype=torch.float32):
        return _array(address, (count, self.batch, self.hidden), dtype)

    def numbers(self, address):
        return _array(address, (PARAMETERS[self.cell], self.hidden), torch.float32)

    def kept(self, address):
        return _array(address, (FIELDS[self.cell], self.steps, self.batch, self.hidden), torch.float32)

    def weights(self, address):
        if not self.recurrent:
            return torch.zeros(self.hidden, self.hidden)
        return _array(address, (self.hidden, self.hidden), TYPES[self.dtype]).float()

    def slope(self, distance):
        return SURROGATES[self.surrogate][0](distance, self.sharpness)

    def ahead(self, fields, before, current, numbers):
        """What is kept of a time step, the membrane's distance to its threshold, and the level of that."""
        kappa = 1 - numbers[1] if self.normalised else 1
        if self.cell == "LIF":
            membrane = numbers[1] * fields[0] + kappa * current
            return [membrane], membrane - numbers[0], numbers[0]
        if self.cell == "ADLIF":
            adaptation = numbers[2] * fields[1] + numbers[3] * fields[0] + numbers[4] * before
            stays = fields[0] - before * (fields[0] if self.hard else numbers[0])
            membrane = numbers[1] * stays + kappa * (current - adaptation)
            return [membrane, adaptation], membrane - numbers[0], numbers[0].expand_as(membrane)
        adaptation = numbers[2] * fields[1] + (1 - numbers[2]) * before
        level = numbers[0] + numbers[3] * adaptation
        kept = numbers[1] * fields[0] * (1 - before * self.hard)
        membrane = kept + kappa * current - (0 if self.hard else level * before)
        return [membrane, adaptation], membrane - level, level

    def after(self, kept, spikes, numbers):
        """The fields after a time step."""
        if self.cell != "LIF":
            return kept
        return [kept[0] - spikes * (kept[0] if self.hard else numbers[0])]


def forward(s, weights, parameters, sums, before, fields_before, outputs, fields_after, stream):
    w, numbers, sums, out = s.weights(weights), s.numbers(parameters), s.rows(sums), s.rows(outputs)
    fields = list(s.state(fields_before, FIELDS[s.cell]).clone())
    spikes = s.state(before, dtype=out.dtype)[0].float()
    for t in range(s.steps):
        kept, distance, _ = s.ahead(fields, spikes, sums[t].float() + spikes @ w.t(), numbers)
        spikes = (distance >= 0).float()
        fields = s.after(kept, spikes, numbers)
        out[t] = spikes
    s.state(fields_after, FIELDS[s.cell]).copy_(torch.stack(fields))


def count_of_kept(s):
    return FIELDS[s.cell] * s.batch * s.hidden * (s.steps if s.recurrent else (s.steps - 1) // (32 // FIELDS[s.cell]))


def recall(s, parameters, sums, before, outputs, fields_before, kept, stream):
    assert s.recurrent
    _recall(s, parameters, sums, before, outputs, fields_before, s.kept(kept))


def _recall(s, parameters, sums, before, outputs, fields_before, found):
    numbers, sums, out = s.numbers(parameters), s.rows(sums), s.rows(outputs)
    fields, spikes = list(s.state(fields_before, FIELDS[s.cell])), s.state(before, dtype=out.dtype)[0].float()
    for t in range(s.steps):
        own, _, level = s.ahead(fields, spikes, sums[t].float(), numbers)
        spikes = out[t].float()
        below = torch.nextafter(level, torch.full_like(level, -1e30))
        own[0] = torch.where(spikes > 0, torch.maximum(own[0], level), torch.minimum(own[0], below))
        fields = s.after(own, spikes, numbers)
        found[:, t] = torch.stack(own)


def backward(
    s, weights, parameters, sums, kept, outputs, before, fields_before, outputs_gradient, after_gradient, fields_gradient,
    sums_gradient, before_gradient, fields_before_gradient, parameters_gradient, stream,
):  # fmt: skip
    if s.recurrent:
        kept = s.kept(kept)
    else:
        if count_of_kept(s) > 0:  # to be there, and of no use afterwards
            _array(kept, (count_of_kept(s),), torch.float32).fill_(float("nan"))
        kept = torch.empty(FIELDS[s.cell], s.steps, s.batch, s.hidden)
        _recall(s, parameters, sums, before, outputs, fields_before, kept)
    w, numbers, out = s.weights(weights), s.numbers(parameters), s.rows(outputs)
    start, first = s.state(fields_before, FIELDS[s.cell]), s.state(before, dtype=out.dtype)[0].float()
    dy, of_sums = s.rows(outputs_gradient), s.rows(sums_gradient)
    of_spikes, adjoint = s.state(after_gradient)[0], list(s.state(fields_gradient, FIELDS[s.cell]))
    of_numbers = torch.zeros(PARAMETERS[s.cell], s.batch, s.hidden)
    hard, kappa = float(s.hard), 1 - numbers[1] if s.normalised else torch.ones_like(numbers[1])
    for t in reversed(range(s.steps)):
        d = of_spikes if dy is None else of_spikes + dy[t].float()
        spikes, earlier = out[t].float(), first if t == 0 else out[t - 1].float()
        fields = list(start) if t == 0 else s.after(list(kept[:, t - 1]), earlier, numbers)
        if s.cell == "LIF":
            membrane = kept[0, t]
            slope = s.slope(membrane - numbers[0])
            reset = membrane if s.hard else numbers[0]
            ds = d - (reset * adjoint[0] if s.attached else 0)
            du = adjoint[0] * (1 - hard * spikes) + ds * slope
            of_numbers[0] += -ds * slope - (1 - hard) * spikes * adjoint[0]
            current = (membrane - numbers[1] * fields[0]) / kappa
            of_numbers[1] += du * (fields[0] - (current if s.normalised else 0))
            adjoint, back = [numbers[1] * du], 0
        elif s.cell == "ADLIF":
            membrane, adaptation = kept[:, t]
            slope = s.slope(membrane - numbers[0])
            du = adjoint[0] + slope * d
            dw = adjoint[1] - kappa * du
            reset = fields[0] if s.hard else numbers[0].expand_as(membrane)
            stays = fields[0] - earlier * reset
            of_numbers[0] += -slope * d - numbers[1] * (1 - hard) * earlier * du
            of_numbers[1] += du * (stays - ((membrane - numbers[1] * stays) / kappa if s.normalised else 0))
            of_numbers[2] += dw * fields[1]
            of_numbers[3] += dw * fields[0]
            of_numbers[4] += dw * earlier
            back = numbers[4] * dw - (numbers[1] * reset * du if s.attached else 0)
            adjoint = [numbers[1] * (1 - hard * earlier) * du + numbers[3] * dw, numbers[2] * dw]
        else:
            membrane, adaptation = kept[:, t]
            level = numbers[0] + numbers[3] * adaptation
            slope = s.slope(membrane - level)
            du = adjoint[0] + slope * d
            dlevel = -slope * d - (1 - hard) * earlier * du
            db = adjoint[1] + numbers[3] * dlevel
            stays = fields[0] * (1 - hard * earlier)
            current = (membrane - numbers[1] * stays + (1 - hard) * level * earlier) / kappa
            of_numbers[0] += dlevel
            of_numbers[1] += du * (stays - (current if s.normalised else 0))
            of_numbers[2] += db * (fields[1] - earlier)
            of_numbers[3] += dlevel * adaptation
            back = (1 - numbers[2]) * db
            if s.attached:
                back = back - ((1 - hard) * level + hard * numbers[1] * fields[0]) * du
            adjoint = [numbers[1] * (1 - hard * earlier) * du, numbers[2] * db]
        of_sums[t] = kappa * du
        of_spikes = back + of_sums[t].float() @ w
    s.state(before_gradient)[0].copy_(of_spikes)
    s.state(fields_before_gradient, FIELDS[s.cell]).copy_(torch.stack(adjoint))
    if parameters_gradient:
        s.state(parameters_gradient, PARAMETERS[s.cell]).copy_(of_numbers)


class Core(gated_stand_in.Core):
    SpikingShape = Shape
    spiking_kept = staticmethod(count_of_kept)
    spiking_forward = staticmethod(_unseen(forward))
    spiking_recall = staticmethod(_unseen(recall))
    spiking_backward = staticmethod(_unseen(backward))


def use(monkeypatch):
    """Layers on a CPU run as they do on a GPU, with these in place of the kernels."""
    from ebb.nn import _apart, _neurons

    gated_stand_in.use(monkeypatch)
    for module in (_apart, _neurons):
        monkeypatch.setattr(module, "_core", Core)
    monkeypatch.setattr(_neurons, "units_of", lambda hidden, dtype: hidden)
    monkeypatch.setattr(_neurons, "why_not", lambda layer, x, others: transform_of([x, *others]))

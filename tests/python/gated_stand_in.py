# SPDX-License-Identifier: Apache-2.0
"""The kernels of gated cells in plain PyTorch on a CPU, by the contract of ebb/cell/gated.h: to test all that is around them."""

from __future__ import annotations

import contextlib
import ctypes
import math
from dataclasses import dataclass

import torch
from torch.utils._python_dispatch import _disable_current_modes

GATES = {"LSTM": 4, "GRU": 3, "RNN_TANH": 1, "RNN_RELU": 1}
TYPES = {"bfloat16": torch.bfloat16, "float16": torch.float16, "tf32": torch.float32, "float32": torch.float32}
CUBLAS, HANDLE = 13, 7


@dataclass
class Shape:
    cell: str
    dtype: str
    steps: int
    batch: int
    hidden: int
    backwards: bool

    def states(self, address):
        return _array(address, (self.batch, self.hidden), torch.float32)

    def rows(self, address, gates=1, dtype=None):
        return _array(address, (self.steps, self.batch, gates * self.hidden), dtype or TYPES[self.dtype])

    def weights(self, address):
        return _array(address, (GATES[self.cell] * self.hidden, self.hidden), TYPES[self.dtype]).float()

    @property
    def order(self):
        return list(range(self.steps))[:: -1 if self.backwards else 1]


def _array(address, shape, dtype):
    if address == 0:
        return None
    size = torch.empty((), dtype=dtype).element_size() * math.prod(shape)
    return torch.frombuffer((ctypes.c_char * size).from_address(address), dtype=dtype).view(*shape)


def forward(
    s, weights, bias, sums, before, field_before, outputs, field_after, fields, products, record, stream
):  # fmt: skip
    w, sums, y = s.weights(weights), s.rows(sums, GATES[s.cell]), s.rows(outputs)
    h = _array(before, (s.batch, s.hidden), y.dtype).float()
    field, fields, products = s.states(field_before), s.rows(fields, dtype=torch.float32), s.rows(products)
    bias = 0 if bias == 0 else _array(bias, (s.hidden,), y.dtype).float()
    for t in s.order:
        given, product = sums[t].float(), h @ w.t()
        if s.cell == "LSTM":
            i, f, g, o = (given + product).chunk(4, 1)
            i, f, g, o = i.sigmoid(), f.sigmoid(), g.tanh(), o.sigmoid()
            field = f * field + i * g
            h, saved = o * field.tanh(), (i, f, g, o)
            if record:
                fields[t] = field
        elif s.cell == "GRU":
            (r, z, n), (pr, pz, q) = given.chunk(3, 1), product.chunk(3, 1)
            r, z, q = (r + pr).sigmoid(), (z + pz).sigmoid(), q + bias
            n = (n + r * q).tanh()
            h = field = (1 - z) * n + z * field
            saved = r, z, n
            if record:
                products[t] = q
        else:
            h = (given + product).tanh() if s.cell == "RNN_TANH" else (given + product).relu()
            saved = ()
        if record and saved:
            sums[t] = torch.cat(saved, 1)
        y[t] = h
        h = y[t].float()
    if field_after:
        s.states(field_after).copy_(field)


def recall(s, sums, products, field_before, fields, stream):
    sums, products, fields = s.rows(sums, GATES[s.cell]), s.rows(products), s.rows(fields, dtype=torch.float32)
    assert field_before % 8 == 0, "two numbers are read at a time"
    field = s.states(field_before)
    for t in s.order:
        if s.cell == "LSTM":
            i, f, g, o = sums[t].float().chunk(4, 1)
            i, f, g, o = i.sigmoid(), f.sigmoid(), g.tanh(), o.sigmoid()
            field = fields[t] = f * field + i * g
            sums[t] = torch.cat((i, f, g, o), 1)
        elif s.cell == "GRU":
            r, z, n = sums[t].float().chunk(3, 1)
            r, z = r.sigmoid(), z.sigmoid()
            sums[t] = torch.cat((r, z, (n + r * products[t].float()).tanh()), 1)


def backward(
    s, weights, gates, fields, products, outputs, before, field_before, outputs_gradient, after_gradient, field_gradient,
    sums_gradient, inputs_gradient, before_gradient, field_before_gradient, stream,
):  # fmt: skip
    count = GATES[s.cell]
    w, gates, y, dy = s.weights(weights), s.rows(gates, count), s.rows(outputs), s.rows(outputs_gradient)
    fields, products, start = s.rows(fields, dtype=torch.float32), s.rows(products), s.states(field_before)
    first = _array(before, (s.batch, s.hidden), y.dtype)
    of_sums, of_inputs = s.rows(sums_gradient, count), s.rows(inputs_gradient, count)
    carried, dc = s.states(after_gradient), s.states(field_gradient)
    order = s.order
    for k in reversed(range(s.steps)):
        t = order[k]
        d = carried if dy is None else carried + dy[t].float()
        carried = 0
        if s.cell == "LSTM":
            i, f, g, o = gates[t].float().chunk(4, 1)
            last, c = start if k == 0 else fields[order[k - 1]], fields[t].tanh()
            dc = dc + d * o * (1 - c * c)
            parts = dc * g * i * (1 - i), dc * last * f * (1 - f), dc * i * (1 - g * g), d * c * o * (1 - o)
            dc = dc * f
        elif s.cell == "GRU":
            r, z, n = gates[t].clone().float().chunk(3, 1)  # gradients may go where the gates are
            last, q = (first if k == 0 else y[order[k - 1]]).float(), products[t].float()
            dn = d * (1 - z) * (1 - n * n)
            parts = dn * q * r * (1 - r), d * (last - n) * z * (1 - z), dn * r
            of_inputs[t] = torch.cat((*parts[:2], dn), 1)
            carried = d * z
        else:
            h = y[t].float()
            parts = (d * (1 - h * h) if s.cell == "RNN_TANH" else d * (h > 0),)
        of_sums[t] = torch.cat(parts, 1)
        carried = carried + of_sums[t].float() @ w
    s.states(before_gradient).copy_(carried)
    if field_before_gradient:
        s.states(field_before_gradient).copy_(dc)


def float_product(
    cublas, handle, sums, sums_stride, rows, columns, inner, a, a_stride, a_transposed, b, b_stride, b_transposed, adds, tf32
):  # fmt: skip
    def matrix(address, rows, columns, stride, transposed):
        assert stride >= (rows if transposed else columns)
        across, down = (rows, columns) if transposed else (columns, rows)
        found = _array(address, ((down - 1) * stride + across,), torch.float32).as_strided((down, across), (stride, 1))
        return found.t() if transposed else found

    assert (cublas, handle) == (CUBLAS, HANDLE)
    product = matrix(a, rows, inner, a_stride, a_transposed) @ matrix(b, inner, columns, b_stride, b_transposed)
    out = matrix(sums, rows, columns, sums_stride, False)
    out.copy_(out + product if adds else product)


def _unseen(kernel):
    """By what watches operations of PyTorch: a kernel is none."""

    def launched(*arguments, **words):
        with _disable_current_modes(), torch.no_grad():
            kernel(*arguments, **words)

    return launched


class Core:
    """Of the module `_core` what the layers use."""

    GatedShape = Shape
    gated_forward = staticmethod(_unseen(forward))
    gated_recall = staticmethod(_unseen(recall))
    gated_backward = staticmethod(_unseen(backward))
    float_product = staticmethod(_unseen(float_product))

    @staticmethod
    def gated_unfit(shape):
        return ""

    @staticmethod
    def cublas_is_loaded(version):
        return version == CUBLAS


@contextlib.contextmanager
def anywhere(device):
    yield


def use(monkeypatch):
    """Layers on a CPU run as they do on a GPU, with these in place of the kernels, which take any number of units."""
    from ebb.nn import _gated, _gated_layer, _native, _products

    for module in (_gated_layer, _products):
        monkeypatch.setattr(module, "_core", Core)
    monkeypatch.setattr(torch.cuda, "current_blas_handle", lambda: HANDLE)
    monkeypatch.setattr(_products, "_CUBLAS", CUBLAS)
    monkeypatch.setattr(_gated, "stream_of", lambda x: 0)
    monkeypatch.setattr(_gated, "units_of", lambda hidden, dtype: hidden)
    monkeypatch.setattr(_gated, "why_not", lambda layer, x, others, sizes: None)
    monkeypatch.setattr(torch.cuda, "device", anywhere)
    monkeypatch.setattr(_native, "why_not", lambda *tensors: "they are on a GPU")

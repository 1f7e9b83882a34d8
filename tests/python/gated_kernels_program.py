# SPDX-License-Identifier: Apache-2.0
"""The kernels of gated cells on a GPU against torch.nn in float64 on the CPU, one at a time and without any other kernel: under
CUDA_FORCE_PTX_JIT=1 those of PyTorch and its libraries cannot run, since few of them come as PTX. Prints an error for each."""

from __future__ import annotations

import sys

import torch

from ebb import _core

GATES = {"LSTM": 4, "GRU": 3, "RNN_TANH": 1}
DTYPES = {"bfloat16": torch.bfloat16, "float16": torch.float16, "tf32": torch.float32, "float32": torch.float32}


def exact(cell, weights, bias, sums, h, c, of_y, of_h, of_c):
    """Outputs, c after, and the gradients of the inputs' sums, of h and of c. The inputs are the sums: their weights are 1."""
    width, hidden = weights.shape
    kind = getattr(torch.nn, cell.removesuffix("_TANH"))
    net = kind(width, hidden, dtype=torch.float64)
    with torch.no_grad():
        for p in net.parameters():
            p.zero_()
        net.weight_ih_l0.copy_(torch.eye(width))
        net.weight_hh_l0.copy_(weights)
        net.bias_hh_l0[-hidden:] += bias.double() if cell == "GRU" else 0
    sums, h, c = (tensor.double().requires_grad_() for tensor in (sums, h, c))
    y, last = net(sums, (h[None], c[None]) if cell == "LSTM" else h[None])
    last = last if cell == "LSTM" else (last,)
    loss = (y * of_y.double()).sum() + (last[0] * of_h.double()).sum()
    loss = loss + ((last[1] * of_c.double()).sum() if cell == "LSTM" else 0)
    loss.backward()
    return [y, *last[1:], sums.grad, h.grad, *([c.grad] if cell == "LSTM" else [])]


def found(core, device, cell, dtype, weights, bias, sums, h, c, of_y, of_h, of_c):
    """The same of the kernels; the first of all without a record."""
    lstm, gru = cell == "LSTM", cell == "GRU"
    steps, batch, hidden = of_y.shape
    shape = core.GatedShape(cell, dtype, steps, batch, hidden, False)
    memory = []

    def there(tensor):
        memory.append(tensor.to(device, copy=True).contiguous())
        return memory[-1]

    def address(tensor, wanted=True):
        return tensor.data_ptr() if wanted else 0

    weights, bias, sums, before = there(weights), there(bias), there(sums), there(h)
    field = there(h.float() if gru else c)
    y, alone, products = (torch.empty(of_y.shape, dtype=of_y.dtype, device=device) for _ in range(3))
    after, of_before, of_field = (torch.empty(c.shape, device=device) for _ in range(3))
    fields = torch.empty(of_y.shape, device=device)
    of_sums, of_inputs = torch.empty_like(sums), torch.empty_like(sums)
    for record, to in ((False, alone), (True, y)):
        core.gated_forward(
            shape,
            weights=address(weights),
            bias=address(bias, gru),
            sums=address(sums),
            before=address(before),
            field_before=address(field, lstm or gru),
            outputs=address(to),
            field_after=address(after, lstm or gru),
            fields=address(fields, record and lstm),
            products=address(products, record and gru),
            record=record,
            stream=0,
        )
    core.gated_backward(
        shape,
        weights=address(weights),
        gates=address(sums),
        fields=address(fields, lstm),
        products=address(products, gru),
        outputs=address(y),
        before=address(before),
        field_before=address(field, lstm or gru),
        outputs_gradient=address(there(of_y)),
        after_gradient=address(there(of_h)),
        field_gradient=address(there(of_c), lstm),
        sums_gradient=address(of_sums),
        inputs_gradient=address(of_inputs if gru else of_sums),
        before_gradient=address(of_before),
        field_before_gradient=address(of_field, lstm),
        stream=0,
    )
    results = [y, *([after] if lstm else []), of_inputs if gru else of_sums, of_before, *([of_field] if lstm else [])]
    results = [tensor.cpu() for tensor in results]
    assert torch.equal(alone.cpu().view(torch.uint8), results[0].view(torch.uint8)), "recorded outputs differ"
    return results


def error_of(core, device, cell, dtype, steps, batch, hidden):
    """The largest, as a share of the largest number of a result."""
    torch.manual_seed(0)
    own, gates = DTYPES[dtype], GATES[cell]
    weights = (torch.randn(gates * hidden, hidden) / (2 * hidden**0.5)).to(own)
    bias, sums = torch.randn(hidden).to(own), torch.randn(steps, batch, gates * hidden).to(own)
    h, of_y = torch.randn(batch, hidden).to(own), torch.randn(steps, batch, hidden).to(own)
    c, of_h, of_c = (torch.randn(batch, hidden) for _ in range(3))
    given = weights, bias, sums, h, c, of_y, of_h, of_c
    results = zip(exact(cell, *given), found(core, device, cell, dtype, *given), strict=True)
    return max(float(((a - b.double()).abs().max() / a.abs().max()).detach()) for a, b in results)


if __name__ == "__main__":
    for dtype in sys.argv[1:]:
        for cell in GATES:
            for steps, batch, hidden in ((5, 9, 64), (4, 20, 256)):
                print(dtype, cell, hidden, error_of(_core, "cuda", cell, dtype, steps, batch, hidden), flush=True)

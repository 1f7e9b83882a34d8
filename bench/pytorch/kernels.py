# SPDX-License-Identifier: Apache-2.0
"""The kernels for gated cells by themselves, microseconds a time step, beside the forward and the backward of torch.nn's layer.

kernels.py                          the shapes that docs/results names
kernels.py --cell GRU --batch 16 --hidden 768 --dtype bf16 fp16
"""

from __future__ import annotations

import argparse

import torch
from measure import milliseconds
from torch import Tensor

from ebb import _core

LAYERS = {"LSTM": (torch.nn.LSTM, 4), "GRU": (torch.nn.GRU, 3), "RNN_TANH": (torch.nn.RNN, 1)}
NUMBERS = {
    "bf16": ("bfloat16", torch.bfloat16),
    "fp16": ("float16", torch.float16),
    "tf32": ("tf32", torch.float32),
    "fp32": ("float32", torch.float32),
}


class Segment:
    """Arrays for one call of the kernels."""

    def __init__(self, cell: str, steps: int, batch: int, hidden: int, number: str, dtype: torch.dtype):
        gates = LAYERS[cell][1]
        self.shape = _core.GatedShape(cell, number, steps, batch, hidden, False)

        def numbers(*shape: int) -> Tensor:
            return (0.3 * torch.randn(*shape, device="cuda")).to(dtype)

        self.weights = numbers(gates * hidden, hidden) * (3 / hidden**0.5)
        self.bias, self.sums, self.before = (
            numbers(hidden),
            numbers(steps, batch, gates * hidden),
            numbers(batch, hidden),
        )
        self.outputs, self.products, self.given = (numbers(steps, batch, hidden) for _ in range(3))
        self.fields = torch.empty(steps, batch, hidden, device="cuda")
        self.states = torch.randn(6, batch, hidden, device="cuda")
        self.of_sums, self.of_inputs = torch.empty_like(self.sums), torch.empty_like(self.sums)
        self.stream = torch.cuda.current_stream().cuda_stream

    def forward(self, record: bool) -> None:
        _core.gated_forward(
            self.shape,
            weights=self.weights.data_ptr(),
            bias=self.bias.data_ptr(),
            sums=self.sums.data_ptr(),
            before=self.before.data_ptr(),
            field_before=self.states[0].data_ptr(),
            outputs=self.outputs.data_ptr(),
            field_after=self.states[1].data_ptr(),
            fields=self.fields.data_ptr(),
            products=self.products.data_ptr(),
            record=record,
            stream=self.stream,
        )

    def backward(self) -> None:
        _core.gated_backward(
            self.shape,
            weights=self.weights.data_ptr(),
            gates=self.sums.data_ptr(),
            fields=self.fields.data_ptr(),
            products=self.products.data_ptr(),
            outputs=self.outputs.data_ptr(),
            before=self.before.data_ptr(),
            field_before=self.states[0].data_ptr(),
            outputs_gradient=self.given.data_ptr(),
            after_gradient=self.states[2].data_ptr(),
            field_gradient=self.states[3].data_ptr(),
            sums_gradient=self.of_sums.data_ptr(),
            inputs_gradient=self.of_inputs.data_ptr(),
            before_gradient=self.states[4].data_ptr(),
            field_before_gradient=self.states[5].data_ptr(),
            stream=self.stream,
        )


def of_torch(cell: str, steps: int, batch: int, inputs: int, hidden: int, dtype: torch.dtype) -> tuple[float, float]:
    """Milliseconds of the forward without gradients, and of forward and backward that keep everything."""
    layer = LAYERS[cell][0](inputs, hidden, device="cuda", dtype=dtype)
    x = torch.randn(steps, batch, inputs, device="cuda", dtype=dtype)

    def ahead() -> None:
        with torch.no_grad():
            layer(x)

    def both() -> None:
        layer.zero_grad()
        layer(x)[0].sum().backward()

    return milliseconds(ahead, 3), milliseconds(both, 3)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--cell", nargs="+", choices=LAYERS, default=["LSTM"])
    parser.add_argument("--dtype", nargs="+", choices=NUMBERS, default=["bf16"])
    parser.add_argument("--steps", type=int, default=1000)
    parser.add_argument("--batch", nargs="+", type=int, default=[64])
    parser.add_argument("--inputs", type=int, default=256)
    parser.add_argument("--hidden", nargs="+", type=int, default=[1024])
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--shared", action="store_true", help="keep all weights in shared memory")
    options = parser.parse_args()
    _core.set_gated_registers(not options.shared)
    print(f"{torch.cuda.get_device_name()}, PyTorch {torch.__version__}; microseconds a time step")
    for cell in options.cell:
        for numbers in options.dtype:
            for hidden in options.hidden:
                for batch in options.batch:
                    where = f"{cell} {numbers} T={options.steps} B={batch} H={hidden}"
                    number, dtype = NUMBERS[numbers]
                    torch.backends.cudnn.allow_tf32 = numbers == "tf32"
                    segment = Segment(cell, options.steps, batch, hidden, number, dtype)
                    why = _core.gated_unfit(segment.shape)
                    if why:
                        print(f"{where}: {why}")
                        continue
                    times = [milliseconds(lambda: segment.forward(False), options.rounds)]
                    times.append(milliseconds(lambda: segment.forward(True), options.rounds))
                    times.append(milliseconds(segment.backward, options.rounds))
                    times += of_torch(cell, options.steps, batch, options.inputs, hidden, dtype)
                    words = ("advance", "record", "backward", "torch forward", "torch forward and backward")
                    each = (f"{word} {1e3 * time / options.steps:.2f}" for word, time in zip(words, times))
                    print(f"{where}: {', '.join(each)}", flush=True)


if __name__ == "__main__":
    main()

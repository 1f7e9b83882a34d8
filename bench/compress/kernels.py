# SPDX-License-Identifier: Apache-2.0
"""`./dev bench compress_kernels`: the arithmetic of compressed activations beside PyTorch's and beside its floors.

Weight gradients: ours from the pooled input, PyTorch's from the whole one, in turns in one process. The floor is the
longer of two times: the products that the way we go needs at the rate of this machine's best matrix product, and
reading what is read and writing what is written at the rate of a copy.
"""

from __future__ import annotations

import argparse
import datetime
import statistics
import sys
import time
from pathlib import Path

import torch

sys.path.insert(0, str(Path(__file__).parent.parent))

from text.page import Output, machine, table

from ebb import _core

# name, in, out, size, kernel, stride, groups
LAYERS = [
    ("3x3 64", 64, 64, 56, 3, 1, 1),
    ("3x3 128", 128, 128, 28, 3, 1, 1),
    ("3x3 256", 256, 256, 14, 3, 1, 1),
    ("3x3 512", 512, 512, 7, 3, 1, 1),
    ("3x3 64-128 /2", 64, 128, 56, 3, 2, 1),
    ("3x3 128-256 /2", 128, 256, 28, 3, 2, 1),
    ("3x3 256-512 /2", 256, 512, 14, 3, 2, 1),
    ("1x1 64-256", 64, 256, 56, 1, 1, 1),
    ("1x1 256-64", 256, 64, 56, 1, 1, 1),
    ("1x1 512-128", 512, 128, 28, 1, 1, 1),
    ("1x1 256-1024", 256, 1024, 14, 1, 1, 1),
    ("1x1 2048-512", 2048, 512, 7, 1, 1, 1),
    ("1x1 256-512 /2", 256, 512, 56, 1, 2, 1),
    ("7x7 stem /2", 3, 64, 224, 7, 2, 1),
    ("3x3 depthwise 96", 96, 96, 56, 3, 1, 96),
    ("5x5 depthwise 240", 240, 240, 28, 5, 1, 240),
]


def seconds(calls, least=0.2):
    """The median of each call's times; the calls take turns."""
    times = [[] for _ in calls]
    for call in calls:
        call()
    while min(map(sum, times)) < least or len(times[0]) < 5:
        for call, own in zip(calls, times):
            begin = time.perf_counter()
            call()
            own.append(time.perf_counter() - begin)
    return [statistics.median(own) for own in times]


def rates():
    """Multiplications a second in PyTorch's matrix product, bytes a second of a copy (read and written)."""
    a, b = torch.randn(1024, 1024), torch.randn(1024, 1024)
    x = torch.randn(1 << 24)
    y = torch.empty_like(x)
    product, copy = seconds([lambda: torch.mm(a, b), lambda: y.copy_(x)])
    return 1024**3 / product, 2 * x.nbytes / copy


def weight_gradient(layer, batch, block, threads, products, bytes_a_second):
    name, c_in, c_out, size, kernel, stride, groups = layer
    pad = kernel // 2
    out = (size + 2 * pad - kernel) // stride + 1
    x, gy = torch.randn(batch, c_in, size, size), torch.randn(batch, c_out, out, out)
    weight = torch.randn(c_out, c_in // groups, kernel, kernel)
    gw = torch.empty_like(weight)
    blocks = -(-size // block)
    small = torch.empty(batch, c_in, blocks, blocks)
    planes = batch * c_in

    def pool():
        _core.pool_blocks(
            "float32", planes, [size] * 2, [block] * 2, "average", x.data_ptr(), small.data_ptr(), threads
        )

    def ours():
        _core.pooled_weight_gradient(
            "float32", batch, c_in, c_out, groups, [(size, out, kernel, stride, pad, 1, block)] * 2,
            small.data_ptr(), gy.data_ptr(), gw.data_ptr(), threads,
        )  # fmt: skip

    def torchs():
        torch.ops.aten.convolution_backward(
            gy, x, weight, None, [stride] * 2, [pad] * 2, [1, 1], False, [0, 0], groups, [False, True, False]
        )

    pooling = seconds([pool])[0]
    own, full = seconds([ours, torchs])
    terms = batch * min(blocks, out) ** 2
    work = weight.numel() * terms / products
    moved = (small.nbytes + gy.nbytes + gw.nbytes) / bytes_a_second
    return {
        "layer": name,
        "PyTorch, ms": full * 1e3,
        "ebb, ms": own * 1e3,
        "times faster": full / own,
        "products, ms": work * 1e3,
        "bytes, ms": moved * 1e3,
        "of the floor": own / max(work, moved),
        "pooling, ms": pooling * 1e3,
    }


def elementwise(count, threads, bytes_a_second):
    x, gy, gx = torch.randn(count), torch.randn(count), torch.empty(count)
    bits = torch.empty((count + 7) // 8, dtype=torch.uint8)
    index, nibbles = torch.randint(0, 9, (count,)), torch.empty((count + 1) // 2, dtype=torch.uint8)
    codes, scales, mean = torch.empty(count, dtype=torch.int8), torch.empty(-(-count // 64)), torch.zeros(64)
    a = {name: value.data_ptr() for name, value in locals().items() if isinstance(value, torch.Tensor)}
    inner = count // 64
    calls = {
        "sign_bits": (4.125, lambda: _core.sign_bits("float32", count, a["x"], a["bits"], threads=threads)),
        "masked": (8.125, lambda: _core.masked("float32", count, a["bits"], a["gy"], a["gx"], threads=threads)),
        "masked, slope": (
            8.125,
            lambda: _core.masked("float32", count, a["bits"], a["gy"], a["gx"], 0.01, threads=threads),
        ),
        "pack_small": (8.5, lambda: _core.pack_small("int64", count, a["index"], 4, a["nibbles"], threads)),
        "unpack_small": (8.5, lambda: _core.unpack_small("int64", count, a["nibbles"], 4, a["index"], threads)),
        "int8_channels_encode": (
            9,
            lambda: _core.int8_channels_encode(
                "float32", 1, 64, inner, a["x"], a["mean"], a["codes"], a["scales"], threads
            ),
        ),
        "int8_channels_decode": (
            5,
            lambda: _core.int8_channels_decode(
                "float32", 1, 64, inner, a["codes"], a["scales"], a["mean"], a["gx"], threads
            ),
        ),
        "int8_blocks_encode": (
            5,
            lambda: _core.int8_blocks_encode("float32", count, a["x"], a["codes"], a["scales"], threads),
        ),
        "int8_blocks_decode": (
            5,
            lambda: _core.int8_blocks_decode("float32", count, a["codes"], a["scales"], a["gx"], threads),
        ),
        "torch threshold_backward": (12, lambda: torch.ops.aten.threshold_backward(gy, x, 0)),
    }
    for name, (each, call) in calls.items():
        took = seconds([call])[0]
        rate = each * count / took
        yield {"operation": name, "ms": took * 1e3, "GB/s": rate / 1e9, "of a copy": rate / bytes_a_second}


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--batch", type=int, default=8)
    parser.add_argument("--block", type=int, default=2)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--only", default="", help="layers whose name contains this, and nothing else")
    parser.add_argument("--save", metavar="FILE", help="the page goes there too")
    options = parser.parse_args()
    torch.set_num_threads(options.threads)
    out = Output(options.save)
    products, copied = rates()
    out.put("# Results: the arithmetic of compressed activations\n")
    out.put(
        f"`./dev bench compress_kernels --batch {options.batch} --block {options.block} --threads {options.threads}` "
        f"on {datetime.date.today()}: {machine()}, PyTorch {torch.__version__}. {products / 1e9:.1f} G multiplications/s "
        f"in its matrix product, {copied / 1e9:.1f} GB/s read and written by its copy.\n"
    )
    rows = [
        weight_gradient(layer, options.batch, options.block, options.threads, products, copied)
        for layer in LAYERS
        if options.only in layer[0]
    ]
    out.put(table("Weight gradients", rows))
    if not options.only:
        out.put(table("Element by element, 16 Mi floats", list(elementwise(1 << 24, options.threads, copied))))


if __name__ == "__main__":
    main()

# SPDX-License-Identifier: Apache-2.0
"""On a GPU without CUDA graphs: what PyTorch's allocator gives out beyond the caller's tensors, the workspaces of cuBLAS and cuDNN
among it, stays within the budget."""

from __future__ import annotations

import gc
import random

import pytest

torch = pytest.importorskip("torch")
if not torch.cuda.is_available():
    pytest.skip("no GPU here", allow_module_level=True)

import ebb  # noqa: E402
import ebb.nn  # noqa: E402

MIB = 1 << 20
DTYPES = {
    "float32": (torch.float32, "highest"),
    "tf32": (torch.float32, "high"),
    "bfloat16": (torch.bfloat16, "highest"),
    "float16": (torch.float16, "highest"),
}


@pytest.fixture(params=DTYPES)
def dtype(request):
    found, precision = DTYPES[request.param]
    before = torch.get_float32_matmul_precision(), torch.backends.cudnn.allow_tf32
    torch.set_float32_matmul_precision(precision)
    torch.backends.cudnn.allow_tf32 = precision == "high"
    yield found
    torch.set_float32_matmul_precision(before[0])
    torch.backends.cudnn.allow_tf32 = before[1]
    ebb.clear_cache()


def scan(rng, dtype):
    """A module, what runs forward and backward in a budget, and bytes that are the caller's beside gradients of the module."""
    kind = rng.choice([torch.nn.LSTMCell, torch.nn.GRUCell])
    batch, inputs, hidden = rng.choice([16, 64]), rng.randint(8, 256), rng.randint(64, 600)
    cell = kind(inputs, hidden, device="cuda", dtype=dtype)
    xs = torch.randn(rng.randint(100, 200), batch, inputs, device="cuda", dtype=dtype)
    zero = torch.zeros(batch, hidden, device="cuda", dtype=dtype)
    init = (zero, zero) if kind is torch.nn.LSTMCell else zero

    def f(carry, x):
        carry = cell(x, carry)
        return carry, (carry[0] if isinstance(carry, tuple) else carry).float().pow(2).mean()

    def run(budget):
        ebb.scan(f, init, xs, budget=budget, reduce="sum", graph=False)[1].backward()

    return cell, run, 0


def layer(rng, dtype):
    kind = rng.choice([ebb.nn.LSTM, ebb.nn.GRU, ebb.nn.RNN])
    batch, inputs, hidden = rng.choice([16, 64]), rng.randint(8, 256), 8 * rng.randint(8, 64)
    net = kind(inputs, hidden, rng.randint(1, 2), device="cuda", dtype=dtype)
    x = torch.randn(rng.randint(60, 200), batch, inputs, device="cuda", dtype=dtype)
    given = torch.ones(x.shape[0], batch, hidden, device="cuda", dtype=dtype)

    def run(budget):
        net.budget = budget
        net(x)[0].backward(given)

    return net, run, given.nbytes  # of the output


def chain(rng, dtype):
    width, batch = 32 * rng.randint(4, 32), rng.choice([256, 1024])
    stages = [
        torch.nn.Sequential(torch.nn.Linear(width, width), torch.nn.GELU(), torch.nn.LayerNorm(width))
        for _ in range(rng.randint(6, 30))
    ]
    net = ebb.Chain(torch.nn.Sequential(*stages).to("cuda", dtype), None)
    x = torch.randn(batch, width, device="cuda", dtype=dtype)
    given = torch.ones_like(x)

    def run(budget):
        net.budget = budget
        net(x).backward(given)

    return net, run, given.nbytes  # of the output


def peak_of(work) -> int:
    gc.collect()
    torch.cuda.synchronize()
    before = torch.cuda.memory_allocated()
    torch.cuda.reset_peak_memory_stats()
    work()
    torch.cuda.synchronize()
    return torch.cuda.max_memory_allocated() - before


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("kind", [scan, layer, chain])
def test_the_budget_is_a_cap_without_graphs(kind, seed, dtype):
    torch.manual_seed(seed)
    net, run, callers = kind(random.Random(seed), dtype)
    callers += sum(p.nbytes for p in net.parameters())  # their gradients, which are there after the first backward
    for _ in range(2):
        run(None)  # what libraries keep for the caller's threads is the caller's
    net.zero_grad()
    plain = peak_of(lambda: run(None)) - callers
    with pytest.raises(ebb.Error) as small:
        run(4096)
    least = small.value.least_budget
    net.zero_grad()
    ebb.clear_cache()
    for share in (0.0, 0.1, 0.4):
        budget = int(least + share * max(0, plain - least))
        for call in range(3):
            net.zero_grad()
            taken = peak_of(lambda budget=budget: run(budget)) - callers
            # A first call runs some steps as plain autograd does, which may take more than the least. The allocator hands out blocks
            # with up to 1 MiB that is not used.
            if call > 0 or share > 0:
                assert taken <= 1.02 * budget + MIB, (call, share, taken / MIB, budget / MIB, plain / MIB)


@pytest.mark.parametrize("seed", range(3))
def test_what_offload_keeps_on_the_device(seed, dtype):
    torch.manual_seed(seed)
    net, _, _ = chain(random.Random(seed), dtype)
    net.budget = None
    x = torch.randn(1024, net.sequential[0][0].in_features, device="cuda", dtype=dtype)
    net(x).sum().backward()
    net.zero_grad()
    gc.collect()
    torch.cuda.synchronize()
    before = torch.cuda.memory_allocated()
    y = net(x)
    torch.cuda.synchronize()
    plain = torch.cuda.memory_allocated() - before
    del y
    for share in (0.1, 0.5):
        budget = int(share * plain)
        with ebb.offload(budget=budget):
            y = net(x)
        taken = torch.cuda.memory_allocated() - before  # nobody has waited for copies
        y.sum().backward()
        net.zero_grad()
        assert taken <= budget + y.nbytes + MIB, (share, taken / MIB, budget / MIB, plain / MIB)
        del y

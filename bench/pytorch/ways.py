# SPDX-License-Identifier: Apache-2.0
"""All ways to train a loop: plain autograd, what PyTorch has to save memory or time, and ebb.

A way makes of a workload a function that runs forward and backward once. Gradients are added to .grad, or lie in the function's
own `gradients` where a graph writes them to memory of its own."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any

import torch
from loop import Loop
from torch import Tensor
from torch.utils.checkpoint import checkpoint, checkpoint_sequential

import ebb

Run = Callable[[], None]


@dataclass(frozen=True)
class Way:
    """`prepare(workload, bytes)`: bytes are the peak of `base`, another way, which time and memory are also compared to."""

    key: str
    name: str
    prepare: Callable[[Loop, int], Run]
    cell: str | None = None  # the mode of torch.compile
    base: str = "plain"
    calls: int = 1  # after which it runs as it will from then on
    late: bool = False  # it takes so long that all others go first
    rounds: int | None = None  # at most
    cuda: bool = False  # has no meaning on a CPU
    ours: bool = False
    pooled: bool = False  # it keeps its memory in CUDA graphs, where the allocator sees none of it alive


def plain(load: Loop, _: int) -> Run:
    return lambda: load.loss().backward()


def overhead(load: Loop, _: int) -> Run:
    """Graphs inside of torch.compile keep their outputs until they are told that a new iteration begins."""

    def run() -> None:
        torch.compiler.cudagraph_mark_step_begin()
        load.loss().backward()

    return run


def captured(load: Loop, _: int) -> Run:
    """Plain autograd, forward and backward of all steps, as one CUDA graph."""
    parameters = load.parameters()
    stream = torch.cuda.Stream()
    stream.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(stream):
        torch.autograd.grad(load.loss(), parameters)
    torch.cuda.current_stream().wait_stream(stream)
    torch.cuda.synchronize()
    torch.cuda.empty_cache()  # what the warm-up took on its stream
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        gradients = torch.autograd.grad(load.loss(), parameters)

    def run() -> None:
        graph.replay()

    run.gradients = gradients  # type: ignore[attr-defined]
    return run


def checkpointed(load: Loop, _: int) -> Run:
    """torch.utils.checkpoint over chunks of about the square root."""
    chunk = math.isqrt(load.steps)

    def run() -> None:
        carry, total = load.start(), 0
        for xs in load.xs.split(chunk):
            carry, loss = checkpoint(load.chunk_loss, carry, xs, use_reentrant=False)
            total = total + loss
        total.backward()

    return run


def sequential(load: Loop, _: int) -> Run:
    """torch.utils.checkpoint_sequential with about as many segments as the square root; the loss travels along."""

    def at(t: int) -> Callable:
        def step(state: tuple) -> tuple:
            carry, y = load.f(state[:-1], load.xs[t])
            return (*carry, state[-1] + y)

        return step

    def run() -> None:
        start = (*load.start(), torch.zeros((), device=load.xs.device))
        steps = [at(t) for t in range(load.steps)]
        checkpoint_sequential(steps, math.isqrt(load.steps), start, use_reentrant=False)[-1].backward()

    return run


def saved_on_cpu(load: Loop, _: int) -> Run:
    def run() -> None:
        with torch.autograd.graph.save_on_cpu(pin_memory=True):
            loss = load.loss()
        loss.backward()

    return run


def scanned(load: Loop, _: int, compiled: bool = False) -> Run:
    """torch's own scan operator, a prototype: it refuses carries that share memory with each other or with an output."""
    from torch._higher_order_ops.scan import scan

    def f(carry: Any, x: Tensor) -> tuple:
        (h, c), y = load.f(carry, x)
        return (h.clone(), c.clone()), y

    def all_steps(carry: Any, xs: Tensor) -> Tensor:
        return scan(f, carry, xs)[1].sum()

    call = torch.compile(all_steps, dynamic=False) if compiled else all_steps
    return lambda: call(load.start(), load.xs).backward()


def in_share(share: float, host: bool = False, graph: bool | None = None) -> Callable[[Loop, int], Run]:
    """In a share of the memory, or in the least that works where that is more. Two calls are made here: the first
    measures, and graphs are captured in the second."""

    def prepare(load: Loop, plain_bytes: int) -> Run:
        tiers = [ebb.memory_tier("16GiB", "host")] if host else None
        budget = int(share * plain_bytes)
        for _ in range(3):  # what a step weighs may change as its cell is compiled
            run = load.ebb(budget, tiers, graph)
            try:
                run()
                run()
                return run
            except ebb.Error as error:
                if error.code != "infeasible_budget":
                    raise
                budget = int(1.02 * error.least_budget)
        raise RuntimeError(f"no budget was enough, the last was {budget} bytes")

    return prepare


ALL = (
    Way("plain", "plain autograd", plain),
    Way("5", "ebb, 5 %", in_share(0.05), calls=5, ours=True),
    Way("15", "ebb, 15 %", in_share(0.15), calls=5, ours=True),
    Way("5-eager", "ebb, 5 %, graph=False", in_share(0.05, graph=False), ours=True),
    Way("2-host", "ebb, 2 % and host", in_share(0.02, host=True), cuda=True, calls=5, ours=True),
    Way("fits", "ebb, all fits", lambda load, _: load.ebb("1TiB"), calls=2, rounds=3, ours=True),
    Way("captured", "plain autograd, captured whole", captured, cuda=True, pooled=True),
    Way("spikingjelly", "SpikingJelly's CUDA graph", lambda load, _: load.graphed(), calls=5, cuda=True, pooled=True),
    Way("checkpoint", "checkpoint, sqrt(T)", checkpointed, rounds=3),
    Way("save_on_cpu", "save_on_cpu", saved_on_cpu, rounds=2, cuda=True),
    Way("sequential", "checkpoint_sequential, sqrt(T)", sequential, rounds=2, late=True),
    Way("scan", "torch's scan", scanned, rounds=2, late=True),
    Way("compiled", "plain autograd, compiled cell", plain, "default", calls=2, late=True),
    Way("5-compiled", "ebb, 5 %, compiled cell", in_share(0.05), "default", "compiled", calls=5, ours=True, late=True),
    Way(
        "compiled-overhead",
        "plain autograd, cell reduce-overhead",
        overhead,
        "reduce-overhead",
        calls=4,
        cuda=True,
        pooled=True,
        late=True,
    ),
    Way("scan-compiled", "torch's scan, compiled", partial(scanned, compiled=True), rounds=2, late=True),
)

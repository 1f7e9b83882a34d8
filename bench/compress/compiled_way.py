# SPDX-License-Identifier: Apache-2.0
"""One net trained one way in a process of its own, for compiled.py: compiles, says so, and then does what it reads, line by line:
`peak`, `time` or `busy`. Each answer is a line of JSON."""

from __future__ import annotations

import argparse
import json
import sys
import time
from contextlib import nullcontext
from pathlib import Path
from typing import Any

import torch
import torch._functorch.config as functorch_config
import torch._inductor.config as inductor_config
import torch.nn.functional as F
from torch import Tensor

sys.path[:0] = [str(Path(__file__).parent)]

from blocks import GPT, ViT, convnext
from nets import NETS, build

import ebb

# torch's own pass over what is kept, experimental: every activation of 1 MB and more in 8 bits.
FP8 = {
    "activation_quantization_aten_pass": {
        "quant_type": "torch.float8_e4m3fn",
        "use_scaling": True,
        "size_in_mb": 1,
        "exclude_primals": True,
        "allowed_dtypes": "torch.float16;torch.bfloat16;torch.float32",
    }
}
MODELS = {"vit_s": ViT, "gpt2_small": GPT, "convnext_t": convnext}


class Way:
    def __init__(self, words: argparse.Namespace):
        self.words, self.device = words, torch.device(words.device)
        torch.manual_seed(1)
        torch.set_float32_matmul_precision("high" if words.numbers == "tf32" else "highest")
        torch.backends.cudnn.allow_tf32 = words.numbers == "tf32"
        layout = torch.channels_last if words.channels_last else torch.contiguous_format
        with self.device:
            self.model = MODELS[words.net]() if words.net in MODELS else build(words.net)
            if words.net == "gpt2_small":
                self.x = torch.randn(words.batch, 1024, 768)
            else:
                self.x = torch.randn(words.batch, 3, 224, 224).contiguous(memory_format=layout)
                self.model.to(memory_format=layout)
            self.y = torch.randint(0, 1000, (words.batch,))
        self.backend: ebb.Compiled | None = None
        self.run, self.context = self._made(*words.way.partition(":")[::2])

    def _made(self, kind: str, what: str) -> tuple[Any, Any]:
        if kind == "eager":
            return self._loss, nullcontext()
        if kind == "torch" and what == "fp8":
            return torch.compile(self._loss), inductor_config.patch(post_grad_fusion_options=FP8)
        if kind == "torch":
            share = float(what or 1)
            return torch.compile(self._loss), functorch_config.patch(activation_memory_budget=share)
        if kind in ("ebb", "int8"):
            self.backend = ebb.compiled(budget=what or None, keep="exact" if kind == "ebb" else kind)
            return torch.compile(self._loss, backend=self.backend), nullcontext()
        raise SystemExit(
            f"no way '{self.words.way}'; there are eager, torch, torch:SHARE, torch:fp8, ebb, ebb:BUDGET, int8 and int8:BUDGET"
        )

    def _loss(self, x: Tensor) -> Tensor:
        return F.cross_entropy(self.model(x), self.y)

    def step(self) -> None:
        self.model.zero_grad(set_to_none=True)
        with torch.autocast(self.device.type, torch.bfloat16, enabled=self.words.numbers == "bf16"):
            loss = self.run(self.x)
        loss.backward()

    def compiled(self) -> dict[str, Any]:
        start = time.perf_counter()
        with self.context:
            self.step()
        self.wait()
        found: dict[str, Any] = {"compiled": time.perf_counter() - start}
        if self.backend is not None:
            (report,) = self.backend.reports
            found |= {"predicted": report.peak, "stock": report.stock_peak, "kept": report.kept}
            found |= {"again": len(report.again), "left": report.left}
        self.step()
        self.wait()
        if self.device.type == "cuda":
            torch.cuda.empty_cache()
        return found

    def peak(self) -> dict[str, Any]:
        """Bytes at most in a step beyond weights and inputs, and after its forward pass."""
        self.model.zero_grad(set_to_none=True)
        if self.device.type == "cuda":
            self.wait()
            before = torch.cuda.memory_allocated()
            torch.cuda.reset_peak_memory_stats()
            self.step()
            self.wait()
            return {"peak": torch.cuda.max_memory_allocated() - before}
        with torch.profiler.profile(profile_memory=True) as profile:
            self.step()
        now = peak = 0
        for event in sorted(profile.profiler.kineto_results.events(), key=lambda event: event.start_ns()):
            if event.name() == "[memory]":
                now += event.nbytes()
                peak = max(peak, now)
        return {"peak": peak}

    def time(self) -> dict[str, Any]:
        """Of steps one after another, as in training: the host goes ahead of a GPU."""
        self.step()
        self.wait()
        start = time.perf_counter()
        for _ in range(self.words.steps):
            self.step()
        self.wait()
        return {"seconds": (time.perf_counter() - start) / self.words.steps}

    def busy(self) -> dict[str, Any]:
        """Seconds of a step in which the GPU works."""
        if self.device.type != "cuda":
            return {}
        with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CUDA]) as profile:
            for _ in range(3):
                self.step()
            self.wait()
        return {"busy": sum(row.self_device_time_total for row in profile.key_averages()) / 3e6}

    def wait(self) -> None:
        if self.device.type == "cuda":
            torch.cuda.synchronize()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--way", required=True)
    parser.add_argument("--net", choices=[*NETS, *MODELS], required=True)
    parser.add_argument("--batch", type=int, required=True)
    parser.add_argument("--numbers", choices=["fp32", "tf32", "bf16"], required=True)
    parser.add_argument("--channels-last", action="store_true")
    parser.add_argument("--steps", type=int, required=True)
    parser.add_argument("--device", required=True)
    way = Way(parser.parse_args())
    print(json.dumps(way.compiled()), flush=True)
    for line in sys.stdin:
        print(json.dumps(getattr(way, line.strip())()), flush=True)


if __name__ == "__main__":
    main()

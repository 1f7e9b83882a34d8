# SPDX-License-Identifier: Apache-2.0
"""`./dev bench compress packages`: what models of torchvision, timm and transformers keep, as they come and after ebb.compress.

Packages that are not installed are left out. Models have random weights; inputs are images of --pixels, or embeddings of 64 tokens.
"""

from __future__ import annotations

import argparse
import copy
import datetime
import importlib
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

sys.path[:0] = [str(Path(__file__).parent), str(Path(__file__).parent.parent)]

from kept import Kept
from text.page import machine, table

import ebb

MIB = 2**20
MODELS = {
    "torchvision": ["resnet50", "googlenet", "densenet121", "efficientnet_b0", "convnext_tiny", "swin_t"],
    "timm": ["resnetv2_50", "efficientnet_b0", "regnety_002", "densenet121", "convnext_atto", "xception41p"],
    "transformers": ["gpt2", "bert", "llama"],
}
VARIANTS: dict[str, Callable[[nn.Module], nn.Module]] = {
    "exact": ebb.compress,
    "recompute": lambda model: ebb.compress(model, norm="recompute"),
}


class OfEmbeddings(nn.Module):
    def __init__(self, model: nn.Module):
        super().__init__()
        self.model = model

    def forward(self, x: Tensor) -> Tensor:
        return self.model(inputs_embeds=x).last_hidden_state


def _transformer(name: str) -> nn.Module:
    package = importlib.import_module("transformers")
    kind = {"gpt2": "GPT2", "bert": "Bert", "llama": "Llama"}[name]
    sizes: dict[str, Any] = {"vocab_size": 64, "hidden_size": 256, "num_hidden_layers": 4, "num_attention_heads": 4}
    config = getattr(package, f"{kind}Config")(**sizes, bos_token_id=None, eos_token_id=None, pad_token_id=None)
    return OfEmbeddings(getattr(package, f"{kind}Model")(config))


def build(package: str, name: str) -> nn.Module:
    torch.manual_seed(1)
    if package == "transformers":
        return _transformer(name)
    if package == "timm":
        return importlib.import_module("timm").create_model(name)
    words = {"init_weights": True, "aux_logits": False} if name == "googlenet" else {}
    return getattr(importlib.import_module("torchvision.models"), name)(**words)


def step(model: nn.Module, x: Tensor) -> tuple[int, list[Tensor]]:
    """Bytes that the forward pass keeps, and the gradients."""
    torch.manual_seed(2)
    kept = Kept(lambda: model(x))
    count = kept.bytes([*model.parameters(), *model.buffers(), x])
    kept.result.square().mean().backward()
    return count, [one.grad for one in model.parameters() if one.grad is not None]


def row(package: str, version: str, name: str, x: Tensor) -> dict[str, object]:
    model = build(package, name).train()
    copies = {variant: change(copy.deepcopy(model)) for variant, change in VARIANTS.items()}
    stock, wanted = step(model, x)
    found: dict[str, object] = {"package": f"{package} {version}", "model": name, "stock MiB": f"{stock / MIB:.1f}"}
    same = True
    for variant, other in copies.items():
        count, gradients = step(other, x)
        found[variant] = f"{count / MIB:.1f} ({100 * (count / stock - 1):+.0f} %)"
        same &= all(map(torch.equal, gradients, wanted)) and len(gradients) == len(wanted)
    return found | {"gradients": "same bits" if same else "DIFFER"}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--batch", type=int, default=2)
    parser.add_argument("--pixels", type=int, default=224)
    words = parser.parse_args()
    rows, missing = [], []
    for package, names in MODELS.items():
        try:
            version = importlib.import_module(package).__version__
        except ImportError:
            missing.append(package)
            continue
        shape = (words.batch, 64, 256) if package == "transformers" else (words.batch, 3, words.pixels, words.pixels)
        rows += [row(package, version, name, torch.randn(shape, requires_grad=True)) for name in names]
    print(f"{datetime.date.today()}, {machine()}, PyTorch {torch.__version__}\n")
    if rows:
        print(table("What is kept for the backward pass", rows))
    for package in missing:
        print(f"- {package}: NOT INSTALLED")


if __name__ == "__main__":
    main()

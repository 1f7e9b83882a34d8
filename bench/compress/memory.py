# SPDX-License-Identifier: Apache-2.0
"""`./dev bench compress`: bytes kept, memory by phases and time of a training step, stock and compressed layers."""

from __future__ import annotations

import argparse
import datetime
import itertools
import shlex
import statistics
import sys
import time
from pathlib import Path

import torch

sys.path[:0] = [str(Path(__file__).parent), str(Path(__file__).parent.parent)]

from nets import NETS
from text.page import Output, machine, table
from trial import PHASES, Setting, Trial
from variants import VARIANTS

import ebb

MIB = 2**20
HEAD = """\
kept: what autograd saves for the backward pass, each storage once, for each image (the image among it where it is
saved, and apart); weights are not counted. fwd: model with optimiser state, input and what is held after the forward
pass. peak: the most held in a step that is not the first. Percentages are against stock. time: median over rounds of a
step, as a ratio to stock's in the same round; variants take turns. forward: whether the loss has stock's bits.
"""


def beside(value: float, stock: float | None) -> str:
    return f"{value:.4g}" + (f" ({100 * (value / stock - 1):+.1f} %)" if stock else "")


class Figures:
    """Of one variant."""

    def __init__(self, setting: Setting, variant: str):
        self.variant = variant
        self.trial = Trial(setting, variant)
        self.loss, whole, apart = self.trial.kept()
        self.kept, self.apart = whole / setting.batch / MIB, apart / setting.batch / MIB
        self.after, self.most = (
            {phase: count / MIB for phase, count in counts.items()} for counts in self.trial.phases()
        )
        self.peak = max(self.most.values())
        self.rounds: list[float] = []

    def row(self, stock: Figures | None) -> dict[str, object]:
        ratios = [mine / theirs for mine, theirs in zip(self.rounds, stock.rounds)] if stock else []
        return {
            "variant": self.variant,
            "kept MiB/image": beside(self.kept, stock and stock.kept),
            "image apart": beside(self.apart, stock and stock.apart),
            "fwd MiB": beside(self.after["forward"], stock and stock.after["forward"]),
            "peak MiB": beside(self.peak, stock and stock.peak),
            "ms": 1e3 * statistics.median(self.rounds),
            "time": f"{statistics.median(ratios):.3f}" if ratios else "-",
            "forward": "-" if stock is None else "same bits" if self.loss == stock.loss else "DIFFERS",
        }

    def phases(self) -> dict[str, object]:
        held = {phase: f"{self.after[phase]:.4g} ({self.most[phase]:.4g})" for phase in PHASES}
        return {"variant": self.variant, "model": f"{self.after['model']:.4g}"} | held


def compare(setting: Setting, words: argparse.Namespace, out: Output) -> None:
    found, notes = [], []
    for variant in words.variants:
        try:
            found.append(Figures(setting, variant))
        except ebb.Error as error:
            notes.append(f"- {variant}: REFUSED, {error}")
        except torch.cuda.OutOfMemoryError:
            notes.append(f"- {variant}: OUT OF MEMORY")
    for _ in range(words.rounds):
        for figures in found:
            figures.rounds.append(figures.trial.seconds(words.steps))
    stock = next((figures for figures in found if figures.variant == "stock"), None)
    title = f"{setting.net}, batch {setting.batch}, {setting.pixels} px, {words.amp or 'fp32'}"
    title += ", channels last" if setting.channels_last else ""
    if found:
        out.put(table(title, [figures.row(stock) for figures in found]))
        out.put(table("phases: MiB held after (at most during)", [figures.phases() for figures in found]))
    if notes:
        out.put("\n".join(notes) + "\n")


def asked() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    on_gpu = torch.cuda.is_available()
    parser.add_argument("--device", default="cuda" if on_gpu else "cpu")
    parser.add_argument(
        "--nets",
        nargs="+",
        choices=[name for name in NETS if name != "small"],
        metavar="NET",
        default=["resnet18", "resnet50"],
        help=f"of {', '.join(NETS)} (default: resnet18 resnet50)",
    )
    parser.add_argument("--batch", type=int, nargs="+", default=[32] if on_gpu else [4])
    parser.add_argument("--pixels", type=int, nargs="+", default=[224], help="CIFAR's stem and classes below 64")
    parser.add_argument(
        "--variants",
        nargs="+",
        choices=VARIANTS,
        metavar="VARIANT",
        default=list(VARIANTS) if on_gpu else ["stock", "published2", "exact", "pool2", "pool2-int8"],
        help=f"of {', '.join(VARIANTS)} (default: all on a GPU, else five)",
    )
    parser.add_argument("--rounds", type=int, default=5 if on_gpu else 3, help="for the median of times")
    parser.add_argument("--steps", type=int, default=5 if on_gpu else 1, help="in a row in each round")
    parser.add_argument("--amp", choices=["bf16", "fp16"])
    parser.add_argument("--channels-last", action="store_true")
    parser.add_argument("--optimiser", choices=["adam", "sgd"], default="adam")
    parser.add_argument("--threads", type=int, help="of torch on a CPU (default: torch's own)")
    parser.add_argument("--minutes", type=float, default=float("inf"), help="begin no further net after that many")
    parser.add_argument("--save", metavar="FILE", help="write the tables there too, as they come")
    return parser.parse_args()


def main() -> None:
    words = asked()
    end = time.monotonic() + 60 * words.minutes
    device = torch.device(words.device)
    if words.threads:
        torch.set_num_threads(words.threads)
    amp = {None: None, "bf16": torch.bfloat16, "fp16": torch.float16}[words.amp]
    name = torch.cuda.get_device_name(device) if device.type == "cuda" else machine()
    threads = "" if device.type == "cuda" else f", {torch.get_num_threads()} threads"
    out = Output(words.save)
    out.put("# Results: compressed activations\n")
    out.put(
        f"`./dev bench compress {shlex.join(sys.argv[1:])}` on {datetime.date.today()}: {name}{threads}, "
        f"PyTorch {torch.__version__}.\n"
    )
    out.put(HEAD)
    for pixels, batch, net in itertools.product(words.pixels, words.batch, words.nets):
        if time.monotonic() > end:
            out.put(f"- {net}, batch {batch}, {pixels} px: LEFT OUT, {words.minutes:g} minutes are over")
            continue
        compare(Setting(net, batch, pixels, device, words.channels_last, amp, words.optimiser), words, out)
        if device.type == "cuda":
            torch.cuda.empty_cache()


if __name__ == "__main__":
    main()

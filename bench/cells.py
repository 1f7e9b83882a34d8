# SPDX-License-Identifier: Apache-2.0
"""`./dev bench cells`: recurrent and spiking layers beside PyTorch on the same threads, time and memory.

Each row is one layer, forward and backward, in four ways: ebb keeping everything, ebb in 5 % of that, PyTorch
keeping everything, PyTorch with torch.utils.checkpoint in sqrt(T) chunks. The four take turns, each in a process
of its own, round after round, so that a machine that drifts does so for all of them.
"""

import argparse
import datetime
import json
import math
import os
import platform
import statistics
import subprocess
import sys
import time

from text.page import Output, machine, table

ROOT = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
BENCH = os.path.join("build", "release", "bench", "cells_bench")
GATES = {"lstm": 4, "gru": 3, "lif": 1}
WAYS = ["ebb", "ebb, budget", "torch", "torch checkpoint"]
TAU = 20  # of membranes, ebb's own; thresholds are 1


def layers(quick):
    tiny = {"steps": 40, "batch": 8, "input": 32, "hidden": 64}

    def one(name, cell, steps, batch, inputs, hidden, **more):
        real = {"steps": steps, "batch": batch, "input": inputs, "hidden": hidden}
        return {"name": name, "cell": cell} | (tiny if quick else real) | more

    yield one("LSTM", "lstm", 200, 32, 256, 512)
    yield one("GRU", "gru", 200, 32, 256, 512)
    yield one("LSTM long", "lstm", 1000, 50, 2, 128)
    surrogates = {
        "arctan": {"surrogate": "arctan", "sharpness": 2},
        "boxcar 0.2": {"surrogate": "boxcar", "sharpness": 0.2},
        "arctan, two thresholds": {"surrogate": "arctan", "sharpness": 2, "gradient_threshold": 0.9},
    }
    for rate in (0.02, 0.1):
        for density in (1, 0.1):
            for word, surrogate in surrogates.items():
                name = f"LIF {rate:.0%}{' sparse' if density < 1 else ''}, {word}"
                yield one(name, "lif", 1000, 32, 700, 1024, rate=rate, recurrent_density=density, **surrogate)


# In processes of their own: PyTorch.


def resident(which):
    with open("/proc/self/status") as file:
        return next(int(line.split()[1]) * 1024 for line in file if line.startswith(which + ":"))


def surrogate_of(torch, case):
    """A spike whose derivative is psi as ebb/cell/surrogate.h has it."""
    k, least = case["sharpness"], case.get("gradient_threshold", -math.inf)

    class Spike(torch.autograd.Function):
        @staticmethod
        def forward(ctx, membrane):
            ctx.save_for_backward(membrane)
            return (membrane >= 1).to(membrane.dtype)

        @staticmethod
        def backward(ctx, gradient):
            (membrane,) = ctx.saved_tensors
            x = membrane - 1
            if case["surrogate"] == "boxcar":
                return gradient * (x.abs() <= k)
            psi = k / 2 / (1 + (math.pi / 2 * k * x) ** 2)
            return gradient * psi * (membrane >= least) if least > -math.inf else gradient * psi

    return Spike.apply


def lif_of(torch, case):
    """The usual loop over time, but for the input's product, which is one for all steps."""
    alpha = math.exp(-1 / TAU)
    spike = surrogate_of(torch, case)
    hidden, inputs, density = case["hidden"], case["input"], case["recurrent_density"]

    def weights(columns, share):
        bound = math.sqrt(3 / (columns * share)) * case["scale"]
        drawn = torch.empty(hidden, columns).uniform_(-bound, bound)
        return torch.nn.Parameter(drawn * (torch.rand(hidden, columns) < share) if share < 1 else drawn)

    module = torch.nn.Module()
    module.input, module.recurrent = weights(inputs, 1), weights(hidden, density)
    module.bias = torch.nn.Parameter(torch.zeros(hidden))

    def layer(x, state):
        v, s = state
        currents = torch.nn.functional.linear(x, module.input, module.bias)
        spikes = []
        for current in currents:
            u = alpha * v + (1 - alpha) * (current + s @ module.recurrent.T)
            s = spike(u)
            v = u - s.detach()
            spikes.append(s)
        return torch.stack(spikes), (v, s)

    return module, layer


def layer_of(torch, case):
    """A module, and a function (x, state) -> (outputs, state)."""
    if case["cell"] == "lif":
        return lif_of(torch, case)
    kind = {"lstm": torch.nn.LSTM, "gru": torch.nn.GRU}[case["cell"]]
    module = kind(case["input"], case["hidden"])
    return module, module


def large_product(torch):
    a, b = torch.ones(1024, 1024), torch.ones(1024, 1024)
    least = math.inf
    for _ in range(5):
        start = time.perf_counter()
        a @ b
        least = min(least, time.perf_counter() - start)
    return 2 * 1024**3 / least


def peer(case):
    import torch
    from torch.utils.checkpoint import checkpoint

    torch.set_num_threads(case["threads"])
    torch.manual_seed(1)
    steps, batch, hidden = case["steps"], case["batch"], case["hidden"]
    module, layer = layer_of(torch, case)
    x = torch.randn(steps, batch, case["input"])
    if "rate" in case:
        x = (torch.rand(x.shape) < case["rate"]).float()
    chunk = math.isqrt(steps - 1) + 1 if case["checkpoint"] else steps
    gradient = torch.ones(steps, batch, hidden)
    found = {}

    def iteration(x, gradient):
        fields = 1 if case["cell"] == "gru" else 2
        rows = (batch, hidden) if case["cell"] == "lif" else (1, batch, hidden)
        state = tuple(torch.zeros(rows) for _ in range(fields))
        state = state[0] if fields == 1 else state
        module.zero_grad(set_to_none=True)
        start = time.perf_counter()
        outputs = []
        for part in x.split(chunk):
            if case["checkpoint"]:
                output, state = checkpoint(layer, part, state, use_reentrant=False)
            else:
                output, state = layer(part, state)
            outputs.append(output)
        whole = outputs[0] if len(outputs) == 1 else torch.cat(outputs)
        whole.backward(gradient)
        found["seconds"] = time.perf_counter() - start
        found["activity"] = float(whole.detach().mean()) if case["cell"] == "lif" else 0.0

    iteration(x[:2], gradient[:2])  # what PyTorch takes once is not the layer's
    before = resident("VmRSS")
    with open("/proc/self/clear_refs", "w") as file:
        file.write("5")
    iteration(x, gradient)
    peak = resident("VmHWM") - before
    seconds = []
    for _ in range(case["repetitions"]):
        iteration(x, gradient)
        seconds.append(found["seconds"])
    return {
        "seconds": seconds,
        "peak": peak,
        "activity": found["activity"],
        "flops_per_second": large_product(torch),
    }


# Here: the rounds.


def ask(command):
    done = subprocess.run(command, capture_output=True, text=True)
    if done.returncode != 0:
        sys.exit(f"{' '.join(command)}: {done.stderr}")
    return json.loads(done.stdout.splitlines()[-1])


def ebb_words(case, percent):
    words = ["--threads", case["threads"], "--repetitions", case["repetitions"]]
    for key in ("cell", "steps", "batch", "input", "hidden", "rate", "scale", "recurrent_density"):
        words += [f"--{key.replace('_', '-')}", case[key]] if key in case else []
    for key in ("surrogate", "sharpness", "gradient_threshold"):
        words += [f"--{key.replace('_', '-')}", case[key]] if key in case else []
    words += ["--percent", percent] if percent else []
    return [BENCH, *map(str, words)]


def ask_ebb(case, percent):
    found = ask(ebb_words(case, percent))
    found["seconds"] = [found["least_seconds"], found["median_seconds"]]
    return found | {"peak": found["peak_bytes"]}


def ask_torch(case, chunks):
    return ask([sys.executable, __file__, "--peer", json.dumps(case | {"checkpoint": chunks})])


def rounds(case, count, percent):
    """For each way what each round found."""
    found = {way: [] for way in WAYS}
    for _ in range(count):
        found["ebb"].append(ask_ebb(case, 0))
        if "rate" in case:
            case["scale"] = found["ebb"][0]["scale"]
        found["ebb, budget"].append(ask_ebb(case, percent))
        found["torch"].append(ask_torch(case, False))
        found["torch checkpoint"].append(ask_torch(case, True))
    return found


def least(results):
    return min(min(result["seconds"]) for result in results)


def median(results):
    return statistics.median(s for result in results for s in result["seconds"])


def floor_seconds(case, forwards, activity, rate):
    """What the products alone take at the rate of a large one: events count, weights that are 0 do not."""
    density, heard, said = case.get("recurrent_density", 1), case.get("rate", 1), activity or 1
    per_step = 2 * case["batch"] * GATES[case["cell"]] * case["hidden"]
    once = per_step * (case["input"] * heard + case["hidden"] * said * density)
    back = per_step * case["hidden"] * density
    return case["steps"] * ((forwards + 1) * once + back) / rate


def is_compact(case):
    return case.get("surrogate") == "boxcar" or "gradient_threshold" in case


def time_rows(case, found):
    rate = max(result["flops_per_second"] for results in found.values() for result in results)
    theirs = least(found["torch"])
    for way in WAYS:
        results = found[way]
        forwards = results[0].get("forwards_per_step", 2 if "checkpoint" in way else 1)
        activity = results[0]["activity"]
        seconds = least(results)
        row = {"layer": case["name"], "way": way, "s": seconds, "median s": median(results)}
        row |= {"of torch": seconds / theirs, "forwards": float(forwards)}
        row["MiB"] = max(result["peak"] for result in results) / 2**20
        row["firing"] = f"{activity:.1%}" if "rate" in case else "-"
        row["strategy"] = results[0].get("strategy", "-")
        row |= {"floor s": "-", "s / floor": "-", "goal": goal(case, way, seconds / theirs)}
        # How few units backward asks for is known only during the run.
        if way.startswith("ebb") and not is_compact(case):
            floor = floor_seconds(case, forwards, activity, rate)
            row |= {"floor s": f"{floor:.4g}", "s / floor": f"{seconds / floor:.2f}"}
        yield row


def goal(case, way, ratio):
    if way != "ebb, budget":
        return ""
    if case["cell"] == "lif":
        return f"{'met' if ratio <= 0.1 else 'missed'}, at most 0.1"
    if case["cell"] != "lstm":
        return ""
    most = 0.7 if platform.machine() in ("aarch64", "arm64") else 1
    return f"{'met' if ratio <= most else 'missed'}, at most {most}"


def remark(case, found):
    """What the rows do not say: sizes, plain bytes, resident sets, whether both fire alike."""
    ours, small = found["ebb"][0], found["ebb, budget"][0]
    sizes = " ".join(f"{k}={case[v]}" for k, v in zip("TBIH", ("steps", "batch", "input", "hidden")))
    text = f"- {case['name']}: {sizes}, plain {ours['plain_bytes'] / 2**20:.1f} MiB, steps of {small['chunk']}; "
    text += f"ebb's resident set grew by {ours['resident_bytes'] / 2**20:.1f} and "
    text += f"{small['resident_bytes'] / 2**20:.1f} MiB"
    if "rate" in case:
        off = max(
            abs(math.log(r["activity"] / case["rate"])) if r["activity"] else math.inf
            for results in found.values()
            for r in results
        )
        text += f"; weights times {case['scale']:.3g}, firing within a factor {math.exp(off):.2f} of {case['rate']:.0%}"
        text += "" if off <= math.log(1.3) else " (MORE THAN 1.3)"
    return text


HEAD = """\
One iteration is forward and backward over all steps, the gradient of every output being 1, none for the input. s: the
least of all repetitions of all rounds, of torch: that over PyTorch's keeping everything. MiB: for ebb what the run held
at most (`Report`), for PyTorch by how much its resident set grew at most over the first iteration, gradients and outputs
included. Floor: the products alone, counting only spikes and weights that are there, at the rate of a 1024 x 1024 x 1024
product in the same run; none where backward asks for few units only. PyTorch's LIF is a loop over time with a
torch.autograd.Function of the same formula; its input's product is one for all steps, its weights are dense.
"""


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--save", metavar="FILE", help="write the tables there too")
    parser.add_argument("--threads", type=int, default=2, help="of both; 0: all cores (default 2)")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--repetitions", type=int, default=3, help="in each round, after one that does not count")
    parser.add_argument("--percent", type=float, default=5, help="of plain bytes (default 5)")
    parser.add_argument("--only", metavar="TEXT", help="layers whose name has this")
    parser.add_argument("--quick", action="store_true", help="tiny layers, one round, a larger share: does it work")
    parser.add_argument("--peer", type=json.loads, help=argparse.SUPPRESS)
    words = parser.parse_args()
    if words.peer:
        print(json.dumps(peer(words.peer)))
        return
    os.chdir(ROOT)
    if words.quick:
        words.rounds, words.repetitions, words.percent = 1, 1, 30
    try:
        import torch
    except ImportError:
        sys.exit("PyTorch is not installed in .venv; see scripts/setup.sh")
    out = Output(words.save)
    asked = " ".join(word for word in sys.argv[1:])
    threads = words.threads or os.cpu_count()
    out.put("# Results: layers\n")
    out.put(
        f"`./dev bench cells {asked}` on {datetime.date.today()}: {machine()}, {threads} threads, "
        f"PyTorch {torch.__version__}.\n"
    )
    out.put(HEAD)
    if words.quick:
        out.put(f"QUICK: tiny layers in {words.percent:g} %, no results.\n")
    rows, remarks = [], []
    for case in layers(words.quick):
        if words.only and words.only not in case["name"]:
            continue
        case |= {"threads": threads, "repetitions": words.repetitions}
        found = rounds(case, words.rounds, words.percent)
        rows += time_rows(case, found)
        remarks.append(remark(case, found))
        print(f"{case['name']}: done", file=sys.stderr, flush=True)
    if not rows:
        sys.exit(f"no layer has '{words.only}' in its name")
    rates = [result["flops_per_second"] for results in found.values() for result in results]
    out.put(table(f"Forward and backward, ebb in {words.percent:g} %", rows))
    out.put("\n".join(remarks))
    out.put(f"\nA large product in the last row's run: {max(rates) / 1e9:.1f} Gflop/s.")
    missed = sum(row["goal"].startswith("missed") for row in rows)
    out.put(f"goals missed: {missed}")


if __name__ == "__main__":
    main()

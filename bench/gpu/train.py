# SPDX-License-Identifier: Apache-2.0
"""Training on a GPU beside the CPU of the same machine: iterations a second, and what a net learns in 5 % of the memory.

Each row is `ebb train` with the same words; only device, dtype and budget differ. Run by `./dev cuda train`.
"""

from __future__ import annotations

import argparse
import json
import subprocess

CPU_ITERATIONS = 6
GPU_ITERATIONS = 200


def train(program: str, words: str) -> list[dict]:
    answer = subprocess.run([program, "train", "--json", *words.split()], capture_output=True, text=True)
    if answer.returncode != 0:
        raise SystemExit(f"ebb train {words}: {answer.stderr}")
    return [json.loads(line) for line in answer.stdout.splitlines()]


def rate(events: list[dict]) -> float:
    """Iterations a second, without the first tenth and at least the first one."""
    seconds = [event["seconds"] for event in events if event["event"] == "train"]
    first = max(0, len(seconds) // 10)
    return (len(seconds) - 1 - first) / (seconds[-1] - seconds[first])


def beside_the_cpu(program: str, name: str, words: str) -> None:
    words += " --test-samples 0"
    cpu = rate(train(program, f"{words} --iterations {CPU_ITERATIONS}"))
    print(f"| {name} | CPU, float | | {cpu:.2f} | 1 |", flush=True)
    for dtype, budget in (("float", "unlimited"), ("bf16", "unlimited"), ("bf16", "20%"), ("bf16", "5%")):
        events = train(
            program,
            f"{words} --device cuda --dtype {dtype} --budget {budget} --iterations {GPU_ITERATIONS}",
        )
        peak = max(event["peak_bytes"] for event in events if event["event"] == "train") / 2**20
        plain = events[0]["plain"] / 2**20
        own = rate(events)
        print(f"| {name} | GPU, {dtype} | {peak:.1f} of {plain:.1f} MiB | {own:.1f} | {own / cpu:.1f} |", flush=True)


def learns(program: str, name: str, words: str) -> None:
    events = train(program, f"{words} --device cuda --budget 5%")
    tests = [event for event in events if event["event"] == "test"]
    last, peak = tests[-1], events[-1]["train"]["peak_bytes"] / 2**20
    accuracy = f", {100 * last['accuracy']:.1f} %" if "accuracy" in last else ""
    print(
        f"| {name} | {peak:.1f} of {events[0]['plain'] / 2**20:.1f} MiB | {last['iteration']} "
        f"| {events[-1]['seconds']:.0f} s | {last['loss']:.3f}{accuracy} |",
        flush=True,
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("program", help="an ebb that was built with CUDA")
    parser.add_argument("--nmnist", metavar="DIR", help="the small N-MNIST of the task nmnist")
    parser.add_argument("--text", metavar="FILE", help="tiny-shakespeare")
    parser.add_argument("--mnist", metavar="DIR", help="the four idx files")
    given = parser.parse_args()
    adding = "--task adding --steps 5000 --cell gru --hidden 128 --batch 32"
    text = f"--task text --data {given.text} --steps 256 --cell lstm --hidden 512 --batch 64 --clip 1"
    nmnist = f"--task nmnist --data {given.nmnist} --cell alif --hidden 512 --readout leaky --batch 64"
    mnist = f"--task mnist --data {given.mnist} --cell gru --hidden 128 --batch 100 --forget-bias 5 --clip 1"

    print("| training | device | memory | iterations a second | of the CPU's |\n|---|---|---|---|---|")
    beside_the_cpu(given.program, "gru 128, adding, T=5000, B=32", adding)
    if given.text:
        beside_the_cpu(given.program, "lstm 512, tiny-shakespeare, T=256, B=64", text)
    if given.nmnist:
        beside_the_cpu(given.program, "alif 512, N-MNIST, T=300, B=64", nmnist)
    if given.text or given.mnist:
        print("\n| learning | memory | iterations | time | test |\n|---|---|---|---|---|")
    if given.text:
        words = f"{text} --dtype bf16 --lr 4e-3 --schedule cosine --iterations 1500 --evaluate 250"
        learns(given.program, "lstm 512, tiny-shakespeare", words)
    if given.mnist:
        words = f"{mnist} --dtype bf16 --lr 3e-3 --schedule cosine --epochs 12 --evaluate 600 --test-samples 10000"
        learns(given.program, "gru 128, MNIST pixel by pixel", words)


if __name__ == "__main__":
    main()

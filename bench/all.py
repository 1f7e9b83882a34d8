# SPDX-License-Identifier: Apache-2.0
"""`./dev bench all`: measures again what the pages of docs/results show, and writes it there.

On a page, what a benchmark printed lies between two comments that readers do not see. The first names the commands:

    <!-- output
    ./dev bench run
    -->
    ...
    <!-- end of output -->

With a word behind `output`, a block is of machines with that architecture alone: `<!-- output aarch64`. Those that need a GPU are run by
`./dev cuda results`. `DATA` in a command is the folder that --data names.
"""

from __future__ import annotations

import argparse
import datetime
import os
import platform
import re
import shlex
import subprocess
import sys
import time
from dataclasses import dataclass
from pathlib import Path

sys.path.append(str(Path(__file__).resolve().parents[1] / "scripts"))

import figures
from text.page import machine

BLOCK = re.compile(r"^<!-- output(?: (\w+))?\n(.+?)\n-->\n(.*?)^<!-- end of output -->\n", re.M | re.S)
SUMMARY = "Measures again what the pages of docs/results show, and writes it there."


@dataclass
class Block:
    """What one or several commands printed, on a page."""

    page: Path
    section: str  # the one with the date and sources of this block, as figures.py names it
    architecture: str | None  # none: of any
    commands: list[str]
    is_stale: bool

    @property
    def name(self) -> str:
        return " && ".join(self.commands)

    @property
    def needs_gpu(self) -> bool:
        return any(command.startswith("./dev cuda") for command in self.commands)

    @property
    def needs_data(self) -> bool:
        return any("DATA" in command for command in self.commands)


def blocks_of(root: Path) -> list[Block]:
    found = []
    for page, sections in figures.pages_of(root).items():
        text = page.read_text(encoding="utf-8")
        marked, position = [], 0
        for section in sections:
            if section.marker:
                marked.append((position, section))
            position += len(section.text)
        for block in BLOCK.finditer(text):
            above = [section for start, section in marked if start < block.start()]
            if not above:
                sys.exit(f"{page.name}: `{block[2]}` stands below no heading with a line <!-- figures ... -->")
            stale = above[-1].then != above[-1].now
            found.append(Block(page, above[-1].name, block[1], block[2].split("\n"), stale))
    return found


def place(command: str) -> str:
    """The machine that a command ran on."""
    if not command.startswith("./dev cuda"):
        return machine()
    ask = ["nvidia-smi", "--query-gpu=name", "--format=csv,noheader"]
    return f"{subprocess.run(ask, check=True, capture_output=True, text=True).stdout.splitlines()[0]}, {machine()}"


def shown(command: str, said: str) -> str:
    """As it stands on a page: a benchmark's own title goes, text that is not Markdown is kept as it is."""
    lines = said.strip("\n").split("\n")
    if lines[0].startswith("# "):
        lines = lines[1:]
    text = "\n".join(lines).strip("\n")
    if not re.search(r"^\|", text, re.M):
        text = f"```\n{text}\n```"
    if text.startswith(f"`{command.split()[0]}"):
        return text + "\n"
    return f"`{command}` on {datetime.date.today()}: {place(command)}.\n\n{text}\n"


def run(command: str, root: Path, program: str, data: str | None) -> str:
    words = [word.replace("DATA", data) if data else word for word in shlex.split(command)]
    if words[0] == "ebb":
        words[0] = program
    print(f"== {command}", file=sys.stderr, flush=True)
    done = subprocess.run(words, cwd=root, stdout=subprocess.PIPE, text=True)
    if done.returncode:
        raise RuntimeError(f"{command}: ended with {done.returncode}")
    if not done.stdout.strip():
        raise RuntimeError(f"{command}: printed nothing")
    return shown(command, done.stdout)


def replace(block: Block, texts: list[str]) -> None:
    """On the page as it is now: a benchmark may have taken hours."""
    commands = "\n".join(block.commands)

    def new(found: re.Match[str]) -> str:
        if (found[1], found[2]) != (block.architecture, commands):
            return found[0]
        return found[0].partition("-->\n")[0] + "-->\n" + "\n".join(texts) + "<!-- end of output -->\n"

    text = block.page.read_text(encoding="utf-8")
    block.page.write_text(BLOCK.sub(new, text), encoding="utf-8", newline="\n")


def set_dates(fresh: list[Block], before: dict[str, object], root: Path) -> None:
    """Of sections that were measured as a whole, from sources that did not change meanwhile. After each block: what follows may fail."""
    done = {(block.page, block.architecture, block.name) for block in fresh}
    everything = blocks_of(root)
    partly = {block.section for block in everything if (block.page, block.architecture, block.name) not in done}
    now = sources_of(root)
    whole = {block.section for block in fresh} - partly
    figures.set_measured({section for section in whole if now[section] == before[section]}, root)


def sources_of(root: Path) -> dict[str, object]:
    return {
        section.name: section.now
        for sections in figures.pages_of(root).values()
        for section in sections
        if section.marker
    }


def measure(blocks: list[Block], root: Path, words: argparse.Namespace) -> list[str]:
    """What failed or was left out. A block whose commands fail stays as it was."""
    left, fresh, end = [], [], time.monotonic() + 60 * words.minutes
    before = sources_of(root)
    for block in blocks:
        if block.needs_data and not words.data:
            left.append(f"{block.name}: left out, it needs --data")
        elif time.monotonic() > end:
            left.append(f"{block.name}: left out, {words.minutes:g} minutes are over")
        else:
            try:
                texts = [run(command, root, words.program, words.data) for command in block.commands]
            except (OSError, RuntimeError) as error:
                left.append(str(error))
                continue
            replace(block, texts)
            fresh.append(block)
            set_dates(fresh, before, root)
    return left


def asked_for() -> argparse.Namespace:
    prog = "./dev cuda results" if "--gpu" in sys.argv else "./dev bench all"
    parser = argparse.ArgumentParser(prog=prog, description=SUMMARY)
    parser.add_argument("--list", action="store_true", help="show what would be measured, and measure nothing")
    parser.add_argument("--stale", action="store_true", help="only what has sources that changed since it was measured")
    parser.add_argument(
        "--only", metavar="TEXT", nargs="+", default=[""], help="only commands and pages with one of these"
    )
    parser.add_argument("--data", metavar="DIR", help="folder with data sets; what needs one is left out otherwise")
    parser.add_argument(
        "--minutes", type=float, default=float("inf"), help="begin no further measurement after that long"
    )
    parser.add_argument("--gpu", action="store_true", help=argparse.SUPPRESS)
    words = parser.parse_args()
    if words.data:
        words.data = os.path.abspath(words.data)
    words.program = str(figures.ROOT / "build" / ("cuda" if words.gpu else "release") / "ebb")
    return words


def main() -> None:
    words = asked_for()
    blocks = [
        block
        for block in blocks_of(figures.ROOT)
        if block.needs_gpu == words.gpu
        and block.architecture in (None, platform.machine())
        and (block.is_stale or not words.stale)
        and any(text in f"{block.section} {block.name}" for text in words.only)
    ]
    if not blocks:
        sys.exit(
            "nothing to measure: " + ("no block is that old and has such words" if words.stale else "no such block")
        )
    if words.list:
        for block in blocks:
            print(f"{block.section}: {block.name}{' (old)' if block.is_stale else ''}")
        return
    left = measure(blocks, figures.ROOT, words)
    figures.rewrite(figures.ROOT)
    if left:
        sys.exit("\n".join(left))


if __name__ == "__main__":
    main()

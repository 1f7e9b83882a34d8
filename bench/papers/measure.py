# SPDX-License-Identifier: Apache-2.0
"""`./dev bench papers NAME`: runs the experiment of a paper, prints its table and draws its figure.

What was measured goes to docs/results/papers/NAME.json and is drawn in docs/pictures/paper-NAME.svg. With --quick both go to
build/papers, and the experiment is a small one. --draw measures nothing.
"""

from __future__ import annotations

import argparse
import datetime
import json
import sys
from pathlib import Path

sys.path.append(str(Path(__file__).parents[1]))

import barley
import bencheikh
import gruslys
import kukreja
from figure import ROOT, draw, sources_of
from text.page import machine, table

PAPERS = {"gruslys": gruslys, "kukreja": kukreja, "bencheikh": bencheikh, "barley": barley}


def main() -> None:
    parser = argparse.ArgumentParser(prog="./dev bench papers", description=__doc__.splitlines()[0])
    parser.add_argument("paper", choices=PAPERS, metavar="NAME", help=f"of {', '.join(PAPERS)}")
    parser.add_argument("--quick", action="store_true", help="a small experiment, into build/papers: does it work?")
    parser.add_argument("--draw", action="store_true", help="measure nothing, draw what was measured before")
    words = parser.parse_args()
    paper = PAPERS[words.paper]
    data, pictures = ROOT / "docs/results/papers", ROOT / "docs/pictures"
    if words.quick:
        data = pictures = ROOT / "build/papers"
    data.mkdir(parents=True, exist_ok=True)
    file = data / f"{words.paper}.json"
    if not words.draw:
        found = {"date": str(datetime.date.today()), "machine": machine()} | paper.measure(words.quick)
        file.write_text(json.dumps(found, indent=1) + "\n", encoding="utf-8")
    elif not file.exists():
        sys.exit(f"{file} is not there: run without --draw first")
    found = json.loads(file.read_text(encoding="utf-8"))
    caption = f"{found['machine']}, {found['date']}; ./dev bench papers {words.paper}"
    draw(paper.panels(found), caption, sources_of(words.paper), pictures / f"paper-{words.paper}.svg")
    for title, rows in paper.tables(found):
        print(table(f"{title}:", rows).removeprefix("### "))


if __name__ == "__main__":
    main()

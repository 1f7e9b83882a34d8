# SPDX-License-Identifier: Apache-2.0
"""Pages of results: Markdown that is printed and, where asked, kept in a file."""

import os
import platform
import subprocess


def number(value):
    return value if isinstance(value, str) else f"{value:.4g}" if isinstance(value, float) else str(value)


def table(title, rows):
    heads = list(rows[0])
    lines = [[number(row[head]) for head in heads] for row in rows]
    widths = [max(len(text) for text in column) for column in zip(heads, *lines)]
    right = [not isinstance(rows[0][head], str) or head.startswith("their") for head in heads]

    def line(texts):
        cells = (text.rjust(w) if r else text.ljust(w) for text, w, r in zip(texts, widths, right))
        return "| " + " | ".join(cells) + " |"

    rule = "|" + "|".join("-" * (w + 1) + (":" if r else "-") for w, r in zip(widths, right)) + "|"
    return "\n".join([f"### {title}", "", line(heads), rule, *map(line, lines), ""])


def machine():
    try:
        listed = subprocess.run(["lscpu"], capture_output=True, text=True).stdout
        found = dict(line.split(":", 1) for line in listed.splitlines() if ":" in line)
        model = found.get("Model name", "").strip()
    except OSError:
        model = ""
    return f"{os.cpu_count()} cores {model or 'of unknown make'} ({platform.machine()})"


class Output:
    def __init__(self, path):
        self.file = open(path, "w") if path else None

    def put(self, text):
        print(text, flush=True)
        if self.file:
            self.file.write(text + "\n")
            self.file.flush()

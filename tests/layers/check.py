#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Holds the sources of a tree to allowed.toml: python3 tests/layers/check.py [ROOT]."""

import re
import sys
import tomllib
from fnmatch import fnmatchcase
from pathlib import Path

SOURCES = {".h", ".cpp", ".cu", ".cuh"}
INCLUDE = re.compile(r'^[ \t]*#[ \t]*include[ \t]*([<"])([^>"\n]+)[>"]', re.M)
FULL_PATH = re.compile(r"ebb/([a-z_]+/)?[a-z0-9_]+\.(h|cuh)")
COMMENT_OR_TEXT = re.compile(
    r'//[^\n]*|/\*.*?\*/'
    r'|R"(?P<tag>[^()\\\s]{0,16})\(.*?\)(?P=tag)"'
    r'|(?P<text>"(?:\\.|[^"\\\n])*"|(?<![0-9A-Fa-f])\'(?:\\.|[^\'\\\n])+\')',
    re.S,
)


def blank(match):
    return "\n" * match.group().count("\n") or " "


def without_comments(code):
    """Raw strings go too: no include is written as one, and their lines may look like code."""
    return COMMENT_OR_TEXT.sub(lambda m: m["text"] or blank(m), code)


def without_texts(code):
    return COMMENT_OR_TEXT.sub(blank, code)


def room_of(path):
    parts = path.split("/")
    return parts[1] if len(parts) > 2 else None


class Checker:
    def __init__(self, root, table):
        self.root = root
        self.table = table
        self.floor = {room: i for i, rooms in enumerate(table["floors"]) for room in rooms}
        self.found = []

    def report(self, path, line, rule, message):
        self.found.append(f"{path}:{line}: [{rule}] {message}")

    def may_include(self, path, target):
        own, other = room_of(path), room_of(target)
        if path in self.table["top"]:
            highest = self.floor[self.table["top"][path]]
            return other is not None and self.floor[other] <= highest
        if other is None:
            return own == "cli"
        return own == other or self.floor[other] < self.floor[own]

    def check_own(self, path, line, target):
        other = room_of(target)
        if target not in self.table["top"] and other not in self.floor:
            self.report(path, line, "room", f"{target} is in no room of the table")
        elif not (self.root / target).is_file():
            self.report(path, line, "path", f"{target} does not exist")
        elif not self.may_include(path, target):
            self.report(path, line, "layer", f"{room_of(path) or path} may not include {target}")

    def check_include(self, path, line, quote, target):
        if quote == '"' or target.startswith((".", "ebb/")):
            if quote == '"' and FULL_PATH.fullmatch(target):
                self.check_own(path, line, target)
            else:
                self.report(path, line, "path", f'{target}: write "ebb/<room>/<file>.h" in full, outside headers as <...>')
        for fence in self.table["fence"]:
            if any(fnmatchcase(target, header) for header in fence["headers"]):
                if not any(fnmatchcase(path, file) for file in fence["files"]):
                    self.report(path, line, fence["name"], f"<{target}> belongs in {', '.join(fence['files'])}")

    def check_file(self, path):
        if path not in self.table["top"] and room_of(path) not in self.floor:
            self.report(path, 1, "room", "this file is in no room of the table")
            return
        code = without_comments((self.root / path).read_text(encoding="utf-8"))
        for match in INCLUDE.finditer(code):
            self.check_include(path, code.count("\n", 0, match.start()) + 1, match[1], match[2])
        code = without_texts(INCLUDE.sub("", code))
        for rule in self.table["words"]:
            if any(fnmatchcase(path, file) for file in rule["files"]):
                continue
            for match in re.finditer(rf"(?<![\w.])(?<!->)({'|'.join(rule['words'])})\b", code):
                line = code.count("\n", 0, match.start()) + 1
                self.report(path, line, rule["name"], f"{match[1]} belongs in {', '.join(rule['files'])}")

    def run(self):
        paths = sorted(p.relative_to(self.root).as_posix() for p in (self.root / "ebb").rglob("*") if p.suffix in SOURCES)
        for path in paths:
            self.check_file(path)
        return paths


def main():
    here = Path(__file__).resolve().parent
    root = Path(sys.argv[1]) if len(sys.argv) > 1 else here.parents[1]
    checker = Checker(root, tomllib.loads((here / "allowed.toml").read_text(encoding="utf-8")))
    paths = checker.run()
    print("\n".join(checker.found + [f"{len(paths)} files, {len(checker.found)} violations"]))
    return 1 if checker.found or not paths else 0


if __name__ == "__main__":
    sys.exit(main())

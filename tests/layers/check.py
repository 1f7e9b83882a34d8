#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Holds the sources of a tree to allowed.toml: python3 tests/layers/check.py [ROOT]."""

import ast
import re
import sys
from fnmatch import fnmatchcase
from pathlib import Path

import tomllib

SOURCES = {".h", ".cpp", ".cu", ".cuh"}
INCLUDE = re.compile(r'^[ \t]*#[ \t]*include[ \t]*([<"])([^>"\n]+)[>"]', re.M)
FULL_PATH = re.compile(r"ebb/([a-z_]+/)?[a-z0-9_]+\.(h|cuh)")
COMMENT_OR_TEXT = re.compile(
    r"//[^\n]*|/\*.*?\*/"
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
                self.report(
                    path, line, "path", f'{target}: write "ebb/<room>/<file>.h" in full, outside headers as <...>'
                )
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

    def paths(self):
        return sorted(
            p.relative_to(self.root).as_posix() for p in (self.root / "ebb").rglob("*") if p.suffix in SOURCES
        )


class PythonChecker:
    """Imports between the rooms of python/ebb, wherever in a module they stand."""

    def __init__(self, root, table):
        self.root = root
        self.fences = table.get("fence", [])
        self.floor = {room: i for i, rooms in enumerate(table["floors"]) for room in rooms}
        self.found = []

    def check_import(self, where, room, target):
        first, *rest = target.split(".")
        for fence in self.fences:
            if first in fence["packages"] and room not in fence["rooms"]:
                self.found.append(f"{where}: [{fence['name']}] {target} belongs in {', '.join(fence['rooms'])}")
        other = rest[0] if rest else None
        if first != "ebb" or other in (room, "_core"):
            return
        if other not in self.floor:
            self.found.append(f"{where}: [room] {target} is in no room of the table")
        elif self.floor[other] >= self.floor[room]:
            self.found.append(f"{where}: [layer] {room} may not import {target}")

    def paths(self):
        return sorted(p.relative_to(self.root).as_posix() for p in (self.root / "python/ebb").rglob("*.py"))

    def check_file(self, path):
        room = path.split("/")[2].removesuffix(".py")
        if room == "__init__":
            return
        if room not in self.floor:
            self.found.append(f"{path}:1: [room] this file is in no room of the table")
            return
        for node in ast.walk(ast.parse((self.root / path).read_text(encoding="utf-8"))):
            where = f"{path}:{getattr(node, 'lineno', 1)}"
            if isinstance(node, ast.Import):
                for alias in node.names:
                    # `import ebb` alone would see every room.
                    self.check_import(where, room, alias.name)
            elif isinstance(node, ast.ImportFrom):
                if node.level:
                    self.found.append(f"{where}: [path] write the full name of the module, from ebb")
                elif node.module == "ebb":
                    for alias in node.names:
                        self.check_import(where, room, f"ebb.{alias.name}")
                else:
                    self.check_import(where, room, node.module)


def check(root, only=None):
    """Violations in a tree, or in one file of it, and how many files there are of each language."""
    table = tomllib.loads((Path(__file__).resolve().parent / "allowed.toml").read_text(encoding="utf-8"))
    found, counts = [], []
    for checker in (Checker(root, table), PythonChecker(root, table["python"])):
        paths = [path for path in checker.paths() if only in (None, path)]
        for path in paths:
            checker.check_file(path)
        found += checker.found
        counts.append(len(paths))
    return found, counts


def main():
    root = Path(sys.argv[1]) if len(sys.argv) > 1 else Path(__file__).resolve().parents[2]
    found, counts = check(root)
    print("\n".join([*found, f"{sum(counts)} files, {len(found)} violations"]))
    return 0 if all(counts) and not found else 1


if __name__ == "__main__":
    sys.exit(main())

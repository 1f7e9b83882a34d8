#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Manual pages and completion for bash, from what the program itself says: help_pages.py PROGRAM VERSION OUT_DIR."""

import pathlib
import re
import subprocess
import sys

OPTION = re.compile(r"  (-\S+(?:,--\S+)?|\S+)(?: (\S+))?(?: +(.*))?$")


def help_of(program, path):
    asked = [program, *path, "--help"]
    return subprocess.run(asked, check=True, capture_output=True, text=True).stdout.rstrip("\n")


class Help:
    """One help text: its summary and usage, its groups of options or commands, and the text below them."""

    def __init__(self, text):
        lines = text.split("\n")
        usage = next(i for i, line in enumerate(lines) if line.startswith("Usage: "))
        self.summary = " ".join(lines[:usage]).strip()
        self.usage = lines[usage].removeprefix("Usage: ")
        self.groups = []
        i = usage + 1
        while i < len(lines):
            title = lines[i].removesuffix(":")
            if not lines[i]:
                i += 1
            elif lines[i].endswith(":") and i + 1 < len(lines) and OPTION.match(lines[i + 1]):
                rows, i = self.rows(lines, i + 1)
                self.groups.append((title, rows))
            else:
                break
        self.rest = lines[i:]

    @staticmethod
    def rows(lines, i):
        rows = []
        while i < len(lines) and lines[i].startswith("  "):
            if (row := OPTION.match(lines[i])) and not lines[i].startswith("   "):
                rows.append([row[1], row[2] or "", [row[3] or ""]])
            else:
                rows[-1][2].append(lines[i].strip())
            i += 1
        return rows, i

    def commands(self):
        return [name for title, rows in self.groups if title == "Subcommands" for name, _, _ in rows]

    def has_positionals(self):
        return any(title == "Positionals" for title, _ in self.groups)

    def options(self):
        """Each with whether it takes a value, and the names that its help lists."""
        return [
            (name, bool(kind), names_in(text))
            for title, rows in self.groups
            if title not in ("Subcommands", "Positionals")
            for words, kind, text in rows
            for name in words.split(",")
        ]


def names_in(text):
    """Names of which each begins a line, "gru: as torch.nn.GRU", or the presets of platforms."""
    names = [row[1] for line in text if (row := re.match(r"([a-z][\w-]*): ", line))]
    if presets := re.search(r"\bpreset: ([\w-]+(?:, [\w-]+)*)", " ".join(text)):
        return presets[1].split(", ")
    return names if len(names) > 1 else []


def collect(program, path=()):
    found = Help(help_of(program, path))
    pages = {path: found}
    for name in found.commands():
        pages |= collect(program, (*path, name))
    return pages


def roff(text):
    text = text.replace("\\", "\\e").replace("-", "\\-")
    return "\\&" + text if text.startswith((".", "'")) else text


def manual(path, page, version, pages):
    name = "-".join(("ebb", *path))
    lines = [
        f'.TH {name.upper()} 1 - "ebb {version}" "User Commands"',
        ".SH NAME",
        f"{roff(name)} \\- {roff(page.summary.removeprefix('ebb: '))}",
    ]
    lines += [".SH SYNOPSIS", f".B {roff(page.usage)}"]
    for title, rows in page.groups:
        lines.append(f".SH {roff(title.upper())}")
        for words, kind, text in rows:
            named = f"\\fB{roff(words)}\\fR" + (f" \\fI{roff(kind)}\\fR" if kind else "")
            lines += [".TP", named, roff(" ".join(text).strip())]
    if any(page.rest):
        lines += [".SH NOTES", ".nf", *(roff(line) for line in page.rest), ".fi"]
    others = [p for p in pages if p != path and (p[:-1] == path or path[:-1] == p)]
    if others:
        lines += [".SH SEE ALSO", ", ".join(f"\\fB{roff('-'.join(('ebb', *other)))}\\fR(1)" for other in others)]
    return "\n".join(lines) + "\n"


def strategies(program):
    """From the table of ebb plan --strategies: its first column, without the heading."""
    asked = [program, "plan", "--strategies"]
    table = subprocess.run(asked, check=True, capture_output=True, text=True).stdout
    return [line.split()[0] for line in table.splitlines()[1:]]


def completion(pages, strategy_names):
    cases, values = [], []
    for path, page in pages.items():
        name = " ".join(path)
        options = page.options()
        words = page.commands() + [option for option, _, _ in options]
        cases.append(f'    "{name}") words="{" ".join(words)}" files={"yes" if page.has_positionals() else "no"} ;;')
        for option, takes, names in options:
            if takes:
                listed = strategy_names if option == "--strategy" else names
                values.append(f'    "{name} {option}") words="{" ".join(listed)}" files=no ;;')
    known = "".join(f"|{' '.join(path)}" for path in pages)
    cases, values = "\n".join(cases), "\n".join(values)
    return f"""# bash completion of ebb; in zsh after `autoload -U +X bashcompinit && bashcompinit`.
_ebb() {{
  local current=${{COMP_WORDS[COMP_CWORD]}} previous=${{COMP_WORDS[COMP_CWORD-1]}} path="" words="" files=no word
  for word in "${{COMP_WORDS[@]:1:COMP_CWORD-1}}"; do
    case "{known}|" in *"|${{path:+$path }}$word|"*) path="${{path:+$path }}$word" ;; *) break ;; esac
  done
  case "$path" in
{cases}
  esac
  case "$path $previous" in
{values}
  esac
  COMPREPLY=()
  # Where no word fits, files are completed.
  [[ $files == yes && $current != -* ]] && return
  while read -r word; do COMPREPLY+=("$word"); done < <(compgen -W "$words" -- "$current")
}}
complete -o default -F _ebb ebb
"""


def main(program, version, out):
    pages = collect(program)
    manuals = pathlib.Path(out, "man1")
    manuals.mkdir(parents=True, exist_ok=True)
    for path, page in pages.items():
        (manuals / f"{'-'.join(('ebb', *path))}.1").write_text(manual(path, page, version, pages))
    pathlib.Path(out, "completion").mkdir(exist_ok=True)
    pathlib.Path(out, "completion", "ebb").write_text(completion(pages, strategies(program)))


if __name__ == "__main__":
    main(*sys.argv[1:])

# SPDX-License-Identifier: Apache-2.0
"""What has changed since the figures of docs/results were measured.

Under a heading there, a comment that readers do not see has the day of the measurement and the sources that the figures depend on,
files, folders or patterns, each with its hash of that day, or `unknown` where they lay elsewhere:

    <!-- figures 2026-11-16 ebb/compress:0a1b2c3d bench/compress/kernels.py:4e5f6a7b -->

The line below it is written by this script: when the section was measured, and which of its sources are not as they were.
"""

import argparse
import datetime
import functools
import hashlib
import re
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
PAGES = "docs/results/*.md"
SOURCES = {".cpp", ".cu", ".cuh", ".h", ".json", ".py", ".sh"}
MARKER = re.compile(r"^<!-- figures (.*) -->\n(\*Measured .*\n)?", re.M)
# Comments on lines of their own and docstrings. Other strings of several lines, which may hold such lines, are kept: group 1.
COMMENTS = {
    ".py": re.compile(r'^[ \t]*(?:#.*|"""[\s\S]*?""")|("""[\s\S]*?""")', re.M),
    ".sh": re.compile(r"^[ \t]*#.*()", re.M),
}
CPP_COMMENTS = re.compile(r"^[ \t]*//.*()", re.M)


def code_of(file):
    """A source without what does not run, so that a better comment makes no figure old; line endings do not count either."""
    text = COMMENTS.get(file.suffix, CPP_COMMENTS).sub(r"\1", file.read_text(encoding="utf-8"))
    return "\n".join(line.rstrip() for line in text.splitlines() if line.strip())


def hash_of(root, pattern):
    """Of names and contents; None where there is no source. What is not a source, such as what Python compiles, is not seen."""
    places = [below for place in root.glob(pattern) for below in (place, *place.rglob("*"))]
    files = {file.relative_to(root).as_posix(): file for file in places if file.suffix in SOURCES and file.is_file()}
    total = hashlib.sha256()
    for name in sorted(files):
        total.update(f"{name}\n{code_of(files[name])}\0".encode())
    return total.hexdigest()[:8] if files else None


class Section:
    """A heading with what follows, up to the next one."""

    def __init__(self, root, page, text):
        self.text = text
        title = text.partition("\n")[0]
        self.level = len(title) - len(title.lstrip("#"))
        anchor = re.sub(r"[^\w -]", "", title.lower()).strip().replace(" ", "-")
        self.name = f"{page.stem}#{anchor}"  # as a link to it ends
        self.has_table = bool(re.search(r"^(\|[ :|-]+\||```.*)$", text, re.M))
        self.marker = MARKER.match(text, len(title) + 1)
        words = self.marker[1].split() if self.marker else []
        self.date = words.pop(0) if words and re.fullmatch(r"\d{4}-\d\d-\d\d", words[0]) else None
        self.then = {pattern: was for pattern, _, was in (word.partition(":") for word in words)}
        self.root = root

    @functools.cached_property
    def now(self):
        return {pattern: hash_of(self.root, pattern) for pattern in self.then}

    def remark(self):
        """A source is named once, however often it changes: the line stays as it is until the section is measured again."""
        changed = [f"`{pattern}`" for pattern in self.then if self.then[pattern] != self.now[pattern]]
        if not changed:
            return f"*Measured {self.date}.*"
        names = " and ".join([", ".join(changed[:-1]), changed[-1]] if changed[1:] else changed)
        return f"*Measured {self.date}; since then {names} {'have' if changed[1:] else 'has'} changed.*"

    def rewritten(self):
        if not self.date:
            return self.text
        return MARKER.sub(lambda found: f"<!-- figures {found[1]} -->\n{self.remark()}\n", self.text, count=1)

    def measured(self, date):
        sources = " ".join(f"{pattern}:{now}" for pattern, now in self.now.items())
        return MARKER.sub(f"<!-- figures {date} {sources} -->\n*Measured {date}.*\n", self.text, count=1)


def sections_of(root, page):
    parts, in_block = [[]], False
    for line in page.read_text(encoding="utf-8").splitlines(keepends=True):
        if line.startswith("```"):
            in_block = not in_block
        if line.startswith("#") and not in_block and parts[-1]:
            parts.append([])
        parts[-1].append(line)
    return [Section(root, page, "".join(lines)) for lines in parts]


def pages_of(root):
    return {page: sections_of(root, page) for page in sorted(root.glob(PAGES))}


def problems_of(sections):
    """What is wrong with a page. All but the last this script leaves to the writer of the page."""
    marked = None  # level of the heading whose marker counts for those below it
    for section in sections:
        if marked and section.level <= marked:
            marked = None
        if section.marker and not marked:
            marked = section.level
        if section.text.count("<!-- figures") != bool(section.marker):
            yield f"{section.name} has a marker elsewhere than in the line below its heading, or two"
        if section.has_table and not marked:
            yield f"{section.name} has a table and no marker: write <!-- figures SOURCE SOURCE --> below its heading, then ./dev figures --measured '{section.name}'"
        if section.marker and not section.date:
            yield f"{section.name} has no date: ./dev figures --measured '{section.name}'"
        for pattern, now in section.now.items():
            if not now:
                yield f"{section.name} depends on {pattern}, where no source is: say in its marker where they went, and keep the hash"
        if section.text != section.rewritten():
            yield f"{section.name} should say {section.remark()} Run ./dev figures"


def write(root, page, texts):
    text = "".join(texts)
    if text != page.read_text(encoding="utf-8"):
        page.write_text(text, encoding="utf-8", newline="\n")
        print(page.relative_to(root))


def rewrite(root):
    """Says on every page what has changed."""
    for page, sections in pages_of(root).items():
        write(root, page, [section.rewritten() for section in sections])


def set_measured(names, root):
    pages = pages_of(root)
    known = {section.name: section for sections in pages.values() for section in sections if section.marker}
    for name in names:
        if name not in known:
            sys.exit("\n  ".join([f"no section {name} with a marker; there are:", *known]))
        if not all(known[name].now.values()):
            sys.exit(f"{name} depends on {' '.join(known[name].now)}: not all of these have a source")
    today = datetime.date.today()
    for page, sections in pages.items():
        write(root, page, [section.measured(today) if section.name in names else section.text for section in sections])


def main():
    parser = argparse.ArgumentParser(
        prog="./dev figures",
        description="Writes on the pages of docs/results what has changed since each section was measured.",
    )
    parser.add_argument(
        "--measured",
        nargs="+",
        metavar="SECTION",
        default=[],
        help="these were measured today, with the sources as they are now: compress#bytes-kept, as a link to it ends",
    )
    words = parser.parse_args()
    set_measured(words.measured, ROOT)
    rewrite(ROOT)
    problems = [problem for sections in pages_of(ROOT).values() for problem in problems_of(sections)]
    sys.exit("\n".join(problems) or 0)


if __name__ == "__main__":
    main()

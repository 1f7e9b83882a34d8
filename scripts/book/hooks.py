# SPDX-License-Identifier: Apache-2.0
"""What the book has beside docs/: the README as its first page, files of the root and of examples/, and both references.

Pages are written for readers of the repository: links lead out of docs/, and lists follow a paragraph without an empty line. Here they
get the links of the book and the empty lines that MkDocs needs.
"""

import pathlib
import re
import sys

from mkdocs.structure.files import File, InclusionLevel

sys.path.insert(0, str(pathlib.Path(__file__).parent))
import python_reference

ROOT = pathlib.Path(__file__).parents[2]
PAGES = {"index.md": "README.md", "CONTRIBUTING.md": "CONTRIBUTING.md", "CHANGELOG.md": "CHANGELOG.md"}
PLAIN = ["LICENSE", "CITATION.cff"]
LANGUAGES = {".cpp": "cpp", ".py": "python"}
CPP = ROOT / "build" / "book-cpp"  # where doxygen has put its pages


def on_files(files, config):
    def add(name, text, level=InclusionLevel.INCLUDED):
        file = File.generated(config, name, content=text, inclusion=level)
        files.append(file)

    for name, source in PAGES.items():
        add(name, (ROOT / source).read_text())
    for name in PLAIN:
        files.append(
            File(name, str(ROOT), config.site_dir, config.use_directory_urls, inclusion=InclusionLevel.NOT_IN_NAV)
        )
    for source in sorted((ROOT / "examples").rglob("*")):
        if source.suffix in LANGUAGES:
            name = source.relative_to(ROOT)
            text = f"# {name}\n\n```{LANGUAGES[source.suffix]}\n{source.read_text()}```\n"
            add(f"{name}.md", text, InclusionLevel.NOT_IN_NAV)
    for name, text in python_reference.pages(ROOT / "python").items():
        add(f"reference/{name}.md", text)
    for source in sorted(CPP.rglob("*.*")):
        name = "reference/cpp/" + str(source.relative_to(CPP))
        files.append(File.generated(config, name, abs_src_path=str(source), inclusion=InclusionLevel.NOT_IN_NAV))
    return files


def on_page_markdown(markdown, page, config, files):
    return "".join(text if code else spaced(linked(text, page.file.src_uri)) for code, text in parts(markdown))


def parts(markdown):
    """Pieces of text, each with whether it is a block of code."""
    for piece in re.split(r"(^```.*?^```$\n?)", markdown, flags=re.S | re.M):
        yield piece.startswith("```"), piece


def linked(text, page):
    """Links to files of the repository become links to pages of the book."""
    up = "../" * page.count("/")

    def link(match):
        path, anchor = match.group(1), match.group(2) or ""
        place = pathlib.PurePosixPath("docs" if page not in PAGES else "", pathlib.PurePosixPath(page).parent)
        parts = []
        for part in (place / path).parts:
            parts = parts[:-1] if part == ".." and parts else [*parts, part]
        path = "/".join(parts)
        if path == "README.md":
            path = "index.md"
        elif path.startswith("docs/"):
            path = path.removeprefix("docs/")
        elif pathlib.PurePosixPath(path).suffix in LANGUAGES:
            path += ".md"
        return f"]({up}{path}{anchor})"

    return re.sub(r"\]\((?!\w+:|#)([^)#\s]+)(#[^)\s]*)?\)", link, text)


def spaced(text):
    """An empty line before each list and each table."""
    lines = []
    for line in text.split("\n"):
        before = lines[-1] if lines else ""
        starts = [
            re.match(pattern, line) and not re.match(pattern + r"|\s", before) for pattern in (r"- ", r"\d+\. ", r"\|")
        ]
        if before and any(starts):
            lines.append("")
        lines.append(line)
    return "\n".join(lines)

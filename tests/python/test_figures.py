# SPDX-License-Identifier: Apache-2.0
"""Pages of results say which of their figures' sources have changed, and the README's table has their figures."""

import datetime
import re
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "scripts"))

import figures  # noqa: E402

PAGE = """\
# Results

## Speed
<!-- figures 2026-11-15 ebb/plan:{plan} bench/plan*:{bench} -->
*Measured 2026-11-15{changed}.*

| steps | seconds |
|------:|---------|
| 10    | 0.1     |
"""


@pytest.fixture
def root(tmp_path):
    """A page that is as it should be, and what it depends on."""
    for name, text in [("ebb/plan/plan.cpp", "int plan();\n"), ("ebb/plan/rows.h", ""), ("bench/plan.py", "plan()\n")]:
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(text)
    hashes = {"plan": figures.hash_of(tmp_path, "ebb/plan"), "bench": figures.hash_of(tmp_path, "bench/plan*")}
    (tmp_path / "docs/results").mkdir(parents=True)
    (tmp_path / "docs/results/speed.md").write_text(PAGE.format(**hashes, changed=""))
    return tmp_path


def sections_of(root):
    return [section for sections in figures.pages_of(root).values() for section in sections]


def problems_of(root):
    return [problem for sections in figures.pages_of(root).values() for problem in figures.problems_of(sections)]


def edit(path, old, new):
    text = path.read_text()
    assert old in text
    path.write_text(text.replace(old, new))


def rewrite(root):
    (root / "docs/results/speed.md").write_text("".join(section.rewritten() for section in sections_of(root)))


def test_the_pages_say_what_has_changed():
    assert problems_of(ROOT) == [], "./dev figures writes what has changed; it says what it cannot write"


def test_a_source_that_changed_is_named_once(root):
    (root / "ebb/plan/plan.cpp").write_text("int plan(int);\n")
    assert [problem.partition(" should say ")[2] for problem in problems_of(root)] == [
        "*Measured 2026-11-15; since then `ebb/plan` has changed.* Run ./dev figures"
    ]
    rewrite(root)
    assert problems_of(root) == []
    (root / "ebb/plan/more.cpp").write_text("int more();\n")
    assert problems_of(root) == []
    (root / "bench/plan_one.cpp").write_text("int main() {}\n")
    rewrite(root)
    assert "`ebb/plan` and `bench/plan*` have changed" in sections_of(root)[1].text


def test_what_does_not_run_does_not_count(root):
    (root / "ebb/plan/plan.cpp").write_bytes(b"// What it is for.\r\n\r\nint plan();\r\n")
    (root / "bench/plan.py").write_text('"""What it is for.\n\nAnd more."""\n\n# A reason.\nplan()\n')
    (root / "ebb/plan/README.md").write_text("words")
    (root / "ebb/plan/__pycache__").mkdir()
    (root / "ebb/plan/__pycache__/plan.pyc").write_bytes(b"\xff")
    assert problems_of(root) == []


def test_strings_of_several_lines_count(root):
    (root / "bench/plan.py").write_text('HEAD = """\n# one\n"""\nplan()\n')
    one = figures.hash_of(root, "bench")
    edit(root / "bench/plan.py", "# one", "# two")
    two = figures.hash_of(root, "bench")
    edit(root / "bench/plan.py", "plan()", "plan(1)")
    assert len({one, two, figures.hash_of(root, "bench")}) == 3


def test_a_table_without_a_marker(root):
    page = root / "docs/results/speed.md"
    page.write_text(re.sub(r"<!--.*\n\*.*\n", "", page.read_text()))
    assert "speed#speed has a table and no marker" in problems_of(root)[0]


def test_a_marker_counts_for_headings_below_its_own(root):
    page = root / "docs/results/speed.md"
    page.write_text(page.read_text() + "\n### On a GPU\n\n| a |\n|---|\n\n```\n# no heading\n```\n")
    assert problems_of(root) == []
    page.write_text(page.read_text() + "\n## Memory\n\n```\n1 MiB\n```\n")
    assert ["speed#memory has a table and no marker" in problem for problem in problems_of(root)] == [True]


def test_a_marker_that_names_no_source(root):
    edit(root / "docs/results/speed.md", "ebb/plan:", "ebb/planner:")
    rewrite(root)
    assert ["depends on ebb/planner, where no source is" in problem for problem in problems_of(root)] == [True]


def test_a_marker_in_another_place(root):
    edit(root / "docs/results/speed.md", "| steps", "<!-- figures ebb/plan -->\n| steps")
    assert ["has a marker elsewhere" in problem for problem in problems_of(root)] == [True]


def test_a_new_section_is_measured(root):
    page = root / "docs/results/speed.md"
    edit(page, page.read_text().splitlines()[3], "<!-- figures ebb/plan bench/plan* -->")
    assert "speed#speed has no date" in problems_of(root)[0]
    texts = [section.measured(datetime.date(2026, 11, 20)) for section in sections_of(root) if section.marker]
    page.write_text("# Results\n\n" + "".join(texts))
    assert problems_of(root) == []
    assert "*Measured 2026-11-20.*\n\n| steps" in page.read_text()


def numbers_of(text):
    return set(re.findall(r"\d+(?:\.\d+)?", text))


def readme_rows():
    table = (ROOT / "README.md").read_text(encoding="utf-8").partition("| a training step |")[2].partition("\n\n")[0]
    return [row.strip("|").split("|") for row in table.splitlines()[2:]]


@pytest.mark.parametrize("row", readme_rows(), ids=lambda row: row[0].strip())
def test_memory_and_time_in_the_readme_are_of_one_section(row):
    _, _, memory, time = row
    figures_of_row = numbers_of(memory + time)
    assert any(figures_of_row <= numbers_of(section.text) for section in sections_of(ROOT)), (
        f"no section of docs/results has all of {sorted(figures_of_row)}"
    )

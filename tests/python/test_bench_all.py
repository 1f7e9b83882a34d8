# SPDX-License-Identifier: Apache-2.0
"""`./dev bench all` writes on the pages of results what benchmarks print, and figures are as old as their data."""

import argparse
import re
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
sys.path[:0] = [str(ROOT / "scripts"), str(ROOT / "bench")]

import all as bench  # noqa: E402
import figures  # noqa: E402

BLOCK = "<!-- output\n{}\n-->\nas it was\n<!-- end of output -->\n"
PAGE = "# Results\n\n## Speed\n<!-- figures 2026-11-15 ebb:00000000 -->\n\nWords.\n\n{}\nMore words.\n"
WORDS = {"data": None, "minutes": 60, "program": "/bin/echo"}


@pytest.fixture
def page(tmp_path):
    (tmp_path / "ebb").mkdir()
    (tmp_path / "ebb/plan.cpp").write_text("int plan();\n")
    (tmp_path / "docs/results").mkdir(parents=True)
    return tmp_path / "docs/results/speed.md"


def measured(page, *commands, **words):
    """What could not be measured, and the page."""
    page.write_text(PAGE.format("\n".join(BLOCK.format(command) for command in commands)))
    root = page.parents[2]
    blocks = bench.blocks_of(root)
    assert [block.commands for block in blocks] == [command.split("\n") for command in commands]
    left = bench.measure(blocks, root, argparse.Namespace(**WORDS | words))
    figures.rewrite(root)
    return left, page.read_text()


def test_a_block_has_what_its_command_prints(page):
    left, text = measured(page, "printf '# Title\\n\\n| a |\\n|---|\\n| 1 |\\n'")
    assert left == []
    assert "Words.\n\n<!-- output\nprintf" in text and "<!-- end of output -->\n\nMore words.\n" in text
    assert re.search(
        r"^`printf .*` on \d{4}-\d\d-\d\d: \d+ cores .*\.\n\n\| a \|\n\|---\|\n\| 1 \|\n<!-- end", text, re.M
    )
    assert "as it was" not in text and "\n# Title" not in text
    # Measured today, with the sources as they are.
    assert "ebb:00000000" not in text
    assert list(figures.problems_of(figures.pages_of(page.parents[2])[page])) == []


def test_text_that_is_no_table_is_kept_as_it_is(page):
    _, text = measured(page, "ebb bench async")
    assert "```\nbench async\n```\n<!-- end of output -->" in text


def test_a_benchmark_that_names_itself_is_not_named_twice(page):
    _, text = measured(page, "printf '`printf` on a day.\\n\\n| a |\\n'")
    assert "-->\n`printf` on a day.\n\n| a |\n<!-- end" in text


def test_commands_of_one_block_follow_each_other(page):
    _, text = measured(page, "ebb one\nebb two")
    assert text.index("```\none\n```\n") < text.index("`ebb two` on ") < text.index("```\ntwo\n```\n")


@pytest.mark.parametrize(
    "command, words, why",
    [
        ("false", {}, "false: ended with 1"),
        ("true", {}, "true: printed nothing"),
        ("no-such-program", {}, "no-such-program"),
        ("ebb learn --data DATA", {}, "left out, it needs --data"),
        ("ebb plan", {"minutes": -1}, "left out, -1 minutes are over"),
    ],
)
def test_what_cannot_be_measured_stays_as_it_was(page, command, words, why):
    left, text = measured(page, command, "ebb plan", **words)
    assert why in left[0]
    assert text.count("as it was") == (2 if words else 1)
    assert "2026-11-15 ebb:00000000" in text  # a section has one date


def test_data_is_where_the_caller_says(page):
    _, text = measured(page, "ebb learn --data DATA/text", data="/sets")
    assert "```\nlearn --data /sets/text\n```" in text
    assert "`ebb learn --data DATA/text` on " in text


def test_a_block_without_a_date_above_it(page):
    page.write_text("# Results\n\n" + BLOCK.format("true"))
    with pytest.raises(SystemExit, match="stands below no heading"):
        bench.blocks_of(page.parents[2])


def test_pages_name_benchmarks_that_there_are():
    blocks = bench.blocks_of(ROOT)
    assert {block.needs_gpu for block in blocks} == {False, True}
    dev = (ROOT / "dev").read_text(encoding="utf-8")
    for block in blocks:
        for command in block.commands:
            words = command.split()
            if words[:2] == ["./dev", "bench"]:
                assert [*(ROOT / "bench").glob(f"{words[2]}.*")], command
            elif words[:2] == ["./dev", "cuda"]:
                assert f"\n    {words[2]}) need_gpu" in dev or f"\n    {words[2]})\n" in dev, command
            elif words[:2] == ["./dev", "python"]:
                assert (ROOT / words[2]).is_file(), command
            else:
                assert words[:2] == ["ebb", "bench"], command


def test_every_table_of_the_results_names_its_command():
    for page in figures.pages_of(ROOT):
        text = page.read_text(encoding="utf-8")
        rest = bench.BLOCK.sub("", text)
        table = re.search(r"^\|[ :|-]+\|$", rest, re.M)
        assert not table, f"{page.name}: a table in no block: {rest[: table.end()].splitlines()[-2]}"
        for _, commands, said in bench.BLOCK.findall(text):
            head = said.partition("\n|")[0].lower()
            assert re.search(r"` on \d{4}-\d\d-\d\d: |condensed by hand", head), f"{page.name}: {commands}"


def test_a_section_whose_sources_change_meanwhile_is_not_dated(page, monkeypatch):
    def run(command, root, program, data):
        (root / "ebb/plan.cpp").write_text("int plan(int);\n")
        return bench.shown(command, "| a |")

    monkeypatch.setattr(bench, "run", run)
    _, text = measured(page, "ebb plan")
    assert "| a |" in text
    assert "2026-11-15 ebb:00000000" in text


@pytest.mark.parametrize("picture", sorted((ROOT / "docs/pictures").glob("paper-*.svg")), ids=lambda path: path.stem)
def test_figures_are_drawn_from_the_data_that_is_there(picture):
    sources = re.search(r"<dc:source>(.*?)</dc:source>", picture.read_text(encoding="utf-8"), re.S)[1]
    for source in sources.split():
        path, _, then = source.partition(":")
        assert figures.hash_of(ROOT, path) == then, f"./dev bench papers {picture.stem.removeprefix('paper-')} --draw"


def test_every_paper_has_its_figure():
    assert len([*(ROOT / "docs/pictures").glob("paper-*.svg")]) == 4

#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Manual pages and completion say what the program says: help_pages_test.py PROGRAM. Run by CTest."""

import pathlib
import re
import shutil
import subprocess
import sys
import tempfile
import unittest

ROOT = pathlib.Path(__file__).parents[2]
PROGRAM = sys.argv.pop(1)


def said(*words):
    return subprocess.run(words, check=True, capture_output=True, text=True).stdout


class Pages(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.folder = tempfile.TemporaryDirectory()
        cls.out = pathlib.Path(cls.folder.name)
        said(sys.executable, str(ROOT / "cmake/help_pages.py"), PROGRAM, "1.2.3", str(cls.out))

    @classmethod
    def tearDownClass(cls):
        cls.folder.cleanup()

    def test_every_command_has_a_page_with_every_word(self):
        pages = sorted(path.stem for path in (self.out / "man1").iterdir())
        self.assertIn("ebb-bench-async", pages)
        self.assertIn("ebb-view", pages)
        for name in pages:
            with self.subTest(name):
                page = (self.out / "man1" / f"{name}.1").read_text().replace("\\-", "-").replace("\\e", "\\")
                page = re.sub(r"\\f[BIR]|\\&", "", page)
                words = set(re.findall(r"\S+", said(PROGRAM, *name.split("-")[1:], "--help")))
                missing = {word for word in words if word not in page} - {"Usage:"}
                # Headings are in capitals there.
                self.assertEqual({word for word in missing if word.upper().rstrip(":") not in page}, set())

    def test_options_have_their_own_paragraphs(self):
        page = (self.out / "man1/ebb-plan.1").read_text()
        self.assertIn(".TP\n\\fB\\-\\-platform\\fR \\fIFILE.json|PRESET\\fR\nFast memory", page)
        self.assertIn(".TP\n\\fB\\-\\-sync\\fR\nNo overlap", page)
        self.assertIn('"ebb 1.2.3"', page)

    @unittest.skipUnless(shutil.which("groff"), "groff is not installed")
    def test_groff_has_nothing_to_say(self):
        for path in (self.out / "man1").iterdir():
            done = subprocess.run(["groff", "-man", "-ww", "-z", "-Tutf8", path], capture_output=True, text=True)
            self.assertEqual(done.stderr, "", path.name)

    def completed(self, *words):
        script = 'source "$1"; shift; COMP_WORDS=("$@"); COMP_CWORD=$(($# - 1)); _ebb; printf "%s\\n" "${COMPREPLY[@]}"'
        return said("bash", "-c", script, "bash", str(self.out / "completion/ebb"), *words).split()

    @unittest.skipUnless(shutil.which("bash"), "bash is not installed")
    def test_bash_completes_commands_and_options(self):
        self.assertEqual(self.completed("ebb", "pl"), ["plan"])
        self.assertEqual(self.completed("ebb", "plan", "--bud"), ["--budget"])
        self.assertEqual(self.completed("ebb", "bench", "as"), ["async"])
        self.assertIn("--quick", self.completed("ebb", "bench", "gruslys", "--"))
        # A value may be the name of a command.
        self.assertEqual(self.completed("ebb", "eval", "--data", "train", "--spl"), ["--split"])

    @unittest.skipUnless(shutil.which("bash"), "bash is not installed")
    def test_bash_leaves_files_to_bash(self):
        for words in (
            ["view", ""],
            ["view", "plan.js"],
            ["view", "-o", ""],
            ["train", "--out", ""],
            ["train", "--data", "--"],
            ["eval", ""],
        ):
            self.assertEqual(self.completed("ebb", *words), [], words)
        self.assertEqual(set(self.completed("ebb", "view", "-")), {"-h", "--help", "-o", "--output"})

    @unittest.skipUnless(shutil.which("bash"), "bash is not installed")
    def test_bash_completes_names(self):
        self.assertEqual(self.completed("ebb", "plan", "--strategy", "h_"), ["h_revolve"])
        self.assertIn("auto", self.completed("ebb", "train", "--strategy", ""))
        self.assertEqual(self.completed("ebb", "train", "--task", "cop"), ["copy"])
        self.assertIn("lstm", self.completed("ebb", "train", "--cell", ""))
        self.assertEqual(self.completed("ebb", "plan", "--platform", "lap"), ["laptop"])
        self.assertEqual(self.completed("ebb", "plan", "--platform", "my.js"), [])


if __name__ == "__main__":
    unittest.main()

#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Plants a violation of every rule in a copy of the sources; check.py must name the file and the rule."""

import shutil
import subprocess
import sys
import tempfile
import tomllib
import unittest
from pathlib import Path

from check import Checker

HERE = Path(__file__).resolve().parent
TABLE = tomllib.loads((HERE / "allowed.toml").read_text(encoding="utf-8"))

# file, its text, the rule it breaks
PLANTED = [
    ("ebb/plan/planted.cpp", '#include "ebb/device/planted.h"\n', "layer"),
    ("ebb/core/planted.cpp", '#include "ebb/plan/chain.h"\n', "layer"),
    ("ebb/codec/planted.cpp", '#include "ebb/store/planted.h"\n', "layer"),
    ("ebb/plan/planted.cpp", '#include "ebb/ebb.h"\n', "layer"),
    ("ebb/data/planted.cpp", '#include "ebb/plan/chain.h"\n', "layer"),
    ("ebb/data/planted.h", '#include "ebb/train/optimiser.h"\n', "layer"),
    ("ebb/store/planted.cpp", '#include "ebb/compress/conv_shape.h"\n', "layer"),
    ("ebb/codec/planted.cpp", '#include "ebb/compress/int8_rows.h"\n', "layer"),
    ("ebb/compress/planted.cpp", '#include "ebb/run/step.h"\n', "layer"),
    ("ebb/run/planted.cpp", '#include "ebb/compress/sign_bits.h"\n', "layer"),
    ("ebb/experiments/planted.cpp", '#include "ebb/cli/words.h"\n', "layer"),
    ("ebb/experiments/planted.cpp", '#include "ebb/train/train.h"\n', "layer"),
    ("ebb/train/planted.cpp", '#include "ebb/experiments/trials.h"\n', "layer"),
    ("ebb/plan/planted.cpp", '#include "chain.h"\n', "path"),
    ("ebb/plan/planted.cpp", '#include "../core/bytes.h"\n', "path"),
    ("ebb/plan/planted.cpp", "#include <ebb/core/bytes.h>\n", "path"),
    ("ebb/plan/planted.cpp", '#include "ebb/core/absent.h"\n', "path"),
    ("ebb/utils/planted.cpp", "int x;\n", "room"),
    ("ebb/planted.h", "int x;\n", "room"),
    ("ebb/plan/planted.cpp", "#include <cuda_runtime.h>\n", "cuda"),
    ("ebb/device/planted.cpp", "#include <cublasLt.h>\n", "cuda"),
    ("ebb/store/planted.cpp", "  #  include <liburing.h>\n", "liburing"),
    ("ebb/cell/planted.cpp", "#include <hwy/highway.h>\n", "highway"),
    ("ebb/run/planted.cpp", "#include <mpi.h>\n", "mpi"),
    ("ebb/store/planted.cpp", "#include <zstd.h>\n", "zstd"),
    ("ebb/store/planted.cpp", "#include <lz4.h>\n", "lz4"),
    ("ebb/train/planted.cpp", "#include <zlib.h>\n", "zlib"),
    ("ebb/plan/planted.cpp", "#include <nlohmann/json.hpp>\n", "json"),
    ("ebb/plan/planted.cpp", "#include <CLI/CLI.hpp>\n", "cli11"),
    ("ebb/run/planted.h", "#include <torch/torch.h>\n", "torch"),
    ("ebb/experiments/planted.cpp", "#include <CLI/CLI.hpp>\n", "cli11"),
    ("ebb/plan/planted.cpp", "#include <iostream>\n", "printing"),
    ("ebb/plan/planted.cpp", 'void f() { std::cout << "x"; }\n', "printing"),
    ("ebb/experiments/planted.cpp", 'void f() { std::cout << "x"; }\n', "printing"),
    ("ebb/plan/planted.cpp", 'void f() { std::printf("x"); }\n', "printing"),
    ("ebb/plan/planted.cpp", 'void f() { std::fprintf(file, "x"); }\n', "printing"),
    ("ebb/plan/planted.cpp", 'void f() { puts("x"); }\n', "printing"),
    ("ebb/plan/planted.cpp", "void f() { std::abort(); }\n", "ending"),
    ("ebb/plan/planted.cpp", "void f() { exit(1); }\n", "ending"),
]

# file, its text: allowed
HARMLESS = [
    ("ebb/plan/planted.cpp", "// std::cout, #include <iostream>\n/* abort()\n#include <mpi.h>\n*/\n"),
    ("ebb/plan/planted.cpp", 'auto text = "printf(exit)"; auto raw = R"(\n#include <mpi.h>\nabort();)";\n'),
    ("ebb/plan/planted.cpp", "int n = 1'000; char c = '\"'; int m = 2'000; // \"abort\"\n"),
    ("ebb/plan/planted.cpp", 'void f(char* t) { std::snprintf(t, 2, "x"); loop.exit(); }\n'),
    ("ebb/plan/planted.cpp", '#include "ebb/core/bytes.h"\n#include "ebb/plan/chain.h"\n#include <vector>\n'),
    ("ebb/train/planted.cpp", '#include "ebb/data/task.h"\n'),
    ("ebb/compress/planted.cpp", '#include "ebb/codec/int8_math.h"\n#include "ebb/device/packed.h"\n'),
    ("ebb/experiments/planted.cpp", '#include "ebb/run/run.h"\n#include <ostream>\n'),
    ("ebb/cli/planted.cpp", '#include "ebb/experiments/trials.h"\n#include "ebb/train/train.h"\n'),
    ("ebb/device/planted.cu", "#include <cuda_runtime.h>\n"),
    ("ebb/cli/planted.cpp", '#include <iostream>\n#include "ebb/ebb.h"\nvoid f() { std::cout << 1; std::exit(2); }\n'),
]


class Planted(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.root = Path(folder.name)
        shutil.copytree(HERE.parents[1] / "ebb", self.root / "ebb")
        for neighbour in ("ebb/device/planted.h", "ebb/store/planted.h"):
            (self.root / neighbour).write_text("#pragma once\n")

    def found_in(self, path, text):
        """What the checker says about one planted file; the other files are the same in every case."""
        file = self.root / path
        file.parent.mkdir(exist_ok=True)
        file.write_text(text)
        checker = Checker(self.root, TABLE)
        checker.check_file(path)
        file.unlink()
        return checker.found

    def run_check(self):
        return subprocess.run([sys.executable, HERE / "check.py", self.root], capture_output=True, text=True)

    def test_every_planted_violation_is_named(self):
        for path, text, rule in PLANTED:
            with self.subTest(path=path, text=text):
                found = self.found_in(path, text)
                self.assertEqual(len(found), 1, found)
                self.assertRegex(found[0], rf"^{path}:\d+: \[{rule}\]")

    def test_what_is_allowed_passes(self):
        for path, text in HARMLESS:
            with self.subTest(path=path, text=text):
                self.assertEqual(self.found_in(path, text), [])

    def test_one_violation_fails_the_whole_check(self):
        path, text, rule = PLANTED[0]
        (self.root / path).write_text(text)
        done = self.run_check()
        self.assertEqual(done.returncode, 1, done.stdout + done.stderr)
        self.assertRegex(done.stdout, rf"(?m)^{path}:\d+: \[{rule}\]")
        self.assertIn(", 1 violations", done.stdout)

    def test_an_empty_tree_fails(self):
        shutil.rmtree(self.root / "ebb")
        self.assertEqual(self.run_check().returncode, 1)


if __name__ == "__main__":
    unittest.main()

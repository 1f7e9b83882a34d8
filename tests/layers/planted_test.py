#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Plants a violation of every rule in a copy of the sources; check.py must name the file and the rule."""

import shutil
import subprocess
import sys
import tempfile
import unittest
from pathlib import Path

HERE = Path(__file__).resolve().parent
sys.path.insert(0, str(HERE))

from check import check  # noqa: E402

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
    ("ebb/experiments/planted.cpp", '#include "ebb/cli/status_line.h"\n', "layer"),
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
    ("ebb/cli/planted.cpp", "#include <CLI/CLI.hpp>\n", "cli11"),
    ("ebb/plan/planted.cpp", "#include <iostream>\n", "printing"),
    ("ebb/plan/planted.cpp", 'void f() { std::cout << "x"; }\n', "printing"),
    ("ebb/experiments/planted.cpp", 'void f() { std::cout << "x"; }\n', "printing"),
    ("ebb/plan/planted.cpp", 'void f() { std::printf("x"); }\n', "printing"),
    ("ebb/plan/planted.cpp", 'void f() { std::fprintf(file, "x"); }\n', "printing"),
    ("ebb/plan/planted.cpp", 'void f() { puts("x"); }\n', "printing"),
    ("ebb/plan/planted.cpp", "void f() { std::abort(); }\n", "ending"),
    ("ebb/plan/planted.cpp", "void f() { exit(1); }\n", "ending"),
    ("python/ebb/_base/planted.py", "from ebb._tensor.trees import Structure\n", "layer"),
    ("python/ebb/_loop/planted.py", "from ebb._offload.offload import offload\n", "layer"),
    ("python/ebb/_loop/codec/planted.py", "import ebb._compress.recipes\n", "layer"),
    ("python/ebb/_compress/planted.py", "def f():\n    from ebb._fit import fit\n", "layer"),
    ("python/ebb/_tensor/planted.py", "from ebb import nn\n", "layer"),
    ("python/ebb/nn/planted.py", "from ebb._compress.settings import Settings\n", "layer"),
    ("python/ebb/planning.py", "from ebb.schedules import schedule\n", "layer"),
    ("python/ebb/_loop/planted.py", "import ebb\n", "room"),
    ("python/ebb/_loop/planted.py", "from ebb import scan\n", "room"),
    ("python/ebb/_loop/planted.py", "from .scan import scan\n", "path"),
    ("python/ebb/_base/planted.py", "import torch\n", "torch"),
    ("python/ebb/running.py", "from torch import Tensor\n", "torch"),
    ("python/ebb/_loop/planted.py", "import triton.language as tl\n", "triton"),
    ("python/ebb/planning.py", "import checkpoint_schedules\n", "schedules"),
    ("python/ebb/_utils.py", "x = 1\n", "room"),
    ("python/ebb/utils/planted.py", "x = 1\n", "room"),
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
    (
        "python/ebb/_fit/planted.py",
        "import torch\nfrom ebb import _core\nfrom ebb._compress.compress import compress\n",
    ),
    ("python/ebb/nn/planted.py", "from ebb._loop.scan import scan\nfrom ebb.nn.rnn import LSTM\n"),
    ("python/ebb/_base/planted.py", '"""from ebb._fit import fit"""\n# import torch\nimport numpy\n'),
]


class Planted(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.root = Path(folder.name)
        for folder in ("ebb", "python"):
            shutil.copytree(HERE.parents[1] / folder, self.root / folder)
        for neighbour in ("ebb/device/planted.h", "ebb/store/planted.h"):
            (self.root / neighbour).write_text("#pragma once\n")

    def check_with(self, path, text):
        """Violations in one file of the tree with this text. The others are looked at by `layers`."""
        file = self.root / path
        file.parent.mkdir(exist_ok=True)
        before = file.read_text() if file.exists() else None
        file.write_text(text)
        found, counts = check(self.root, path)
        self.assertEqual(sum(counts), 1)
        if before is None:
            file.unlink()
        else:
            file.write_text(before)
        return found

    def test_every_planted_violation_is_named(self):
        for path, text, rule in PLANTED:
            with self.subTest(path=path, text=text):
                found = self.check_with(path, text)
                self.assertEqual(len(found), 1, found)
                self.assertRegex(found[0], rf"^{path}:\d+: \[{rule}\]")

    def test_what_is_allowed_passes(self):
        for path, text in HARMLESS:
            with self.subTest(path=path, text=text):
                self.assertEqual(self.check_with(path, text), [])

    def test_the_program_names_a_violation_and_fails(self):
        self.assertEqual(self.run_program().returncode, 0)
        path, text, rule = PLANTED[0]
        (self.root / path).write_text(text)
        done = self.run_program()
        self.assertEqual(done.returncode, 1)
        self.assertRegex(done.stdout, rf"(?m)^{path}:\d+: \[{rule}\]")
        self.assertIn(", 1 violations", done.stdout)

    def test_an_empty_tree_fails(self):
        for folder in ("python/ebb", "ebb"):
            shutil.rmtree(self.root / folder)
            self.assertEqual(self.run_program().returncode, 1)

    def run_program(self):
        return subprocess.run([sys.executable, HERE / "check.py", self.root], capture_output=True, text=True)


if __name__ == "__main__":
    unittest.main()

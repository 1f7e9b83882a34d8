# SPDX-License-Identifier: Apache-2.0
"""The installed package is this environment's own, plans, and replays what it planned. It has CUDA kernels, and needs nothing of CUDA."""

import pathlib
import re
import subprocess
import sys

import ebb
from ebb import _core

assert pathlib.Path(ebb.__file__).is_relative_to(sys.prefix), ebb.__file__
chain = {"state": "1KiB", "tape": "4KiB"}
plan = ebb.plan(100, forward=1, backward=2, budget="32KiB", **chain)
assert plan.seconds < 2 * 300, plan
assert ebb.replay(plan.actions(), 100, forward=1, backward=2, budget="32KiB", **chain).seconds == plan.seconds

assert ebb.gpu_kernels() == ("8.0", "9.0"), ebb.gpu_kernels()
dynamic = subprocess.run(["readelf", "-d", _core.__file__], check=True, capture_output=True, text=True).stdout
libraries = re.findall(r"\(NEEDED\).*\[(.*)\]", dynamic)
assert "libc.so.6" in libraries and not any(re.match("lib(cu|nv)", each) for each in libraries), libraries
why_not = _core.gated_unfit(_core.GatedShape("LSTM", "bfloat16", 1, 1, 64, False))  # an answer without a driver, too
print(f"ebb {ebb.__version__} from {ebb.__file__}: {plan.strategy}; kernels: {why_not or 'run here'}")

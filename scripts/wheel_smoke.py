# SPDX-License-Identifier: Apache-2.0
"""The installed package is this environment's own, plans, and replays what it planned."""

import pathlib
import sys

import ebb

assert pathlib.Path(ebb.__file__).is_relative_to(sys.prefix), ebb.__file__
chain = {"state": "1KiB", "tape": "4KiB"}
plan = ebb.plan(100, forward=1, backward=2, budget="32KiB", **chain)
assert plan.seconds < 2 * 300, plan
assert ebb.replay(plan.actions(), 100, forward=1, backward=2, budget="32KiB", **chain).seconds == plan.seconds
print(f"ebb {ebb.__version__} from {ebb.__file__}: {plan.strategy}")

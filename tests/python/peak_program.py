# SPDX-License-Identifier: Apache-2.0
"""Runs a program and prints the most memory that it had resident, in KiB. It forks from a small process: what a
parent has resident counts as the child's otherwise."""

import os
import sys

child = os.fork()
if child == 0:
    output = os.open(sys.argv[1], os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o644)
    os.dup2(output, 1)
    os.execv(sys.argv[2], sys.argv[2:])
_, status, used = os.wait4(child, 0)
print(used.ru_maxrss)
sys.exit(os.waitstatus_to_exitcode(status))

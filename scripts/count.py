# SPDX-License-Identifier: Apache-2.0
"""Counts the cases in a folder of JUnit files by ctest and pytest: prints `passed failed skipped`, names the rest on stderr.

A program of GoogleTest is one test for ctest; what counts are the cases that it says it ran."""

import collections
import pathlib
import re
import sys
import xml.etree.ElementTree as tree

RAN = re.compile(r"^\[==========\] (\d+) tests? from \d+ test (?:suites?|cases?) ran\.", re.M)
FAILED = re.compile(r"^\[  FAILED  \] (\S+?)(?:, where .*)? \(\d+ ms\)$", re.M)
SKIPPED = re.compile(r"^\[  SKIPPED \] (\S+) \(\d+ ms\)$", re.M)


class Totals:
    def __init__(self):
        self.passed = 0
        self.failed = []
        self.skipped = collections.Counter()

    def add_case(self, case):
        name = "::".join(dict.fromkeys(filter(None, [case.get("classname"), case.get("name")])))
        text = case.findtext("system-out") or ""
        skip = case.find("skipped")
        lost = case.find("failure") is not None or case.find("error") is not None
        if RAN.search(text):
            self.add_program(name, text, lost)
        elif lost:
            self.failed.append(name)
        elif skip is not None:
            self.skipped[skip.get("message") or name] += 1
        else:
            self.passed += 1

    def add_program(self, name, text, lost):
        failed, skipped = FAILED.findall(text), SKIPPED.findall(text)
        self.passed += sum(map(int, RAN.findall(text))) - len(failed) - len(skipped)
        self.failed += failed
        if lost and not failed:
            self.failed.append(name)
        self.skipped.update(skipped)


def main(folder):
    totals = Totals()
    files = sorted(pathlib.Path(folder).glob("*.xml"))
    for file in files:
        for case in tree.parse(file).iter("testcase"):
            totals.add_case(case)
    for name in totals.failed:
        print(f"   failed: {name}", file=sys.stderr)
    for reason, count in totals.skipped.most_common():
        print(f"   skipped{f' {count} times' if count > 1 else ''}: {reason}", file=sys.stderr)
    print(totals.passed, len(totals.failed), totals.skipped.total())


main(sys.argv[1])

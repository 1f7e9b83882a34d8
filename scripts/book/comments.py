# SPDX-License-Identifier: Apache-2.0
"""Doxygen's filter: the plain comments of a header as comments that Doxygen reads.

A comment before something belongs to it, one behind it on the same line too. The comment that opens a file says what the file is for;
later ones before a directive, or behind a declaration of a class that is defined elsewhere, are for those who read the header itself.
"""

import re
import sys


def main(path):
    behind = -1  # where the comment behind the code of the line before began
    opens = True
    lines = open(path).read().split("\n")
    for i, line in enumerate(lines):
        code, comment = parted(line)
        opens = opens and not code.strip()
        if comment is None or re.match(r"class \w+;", code) or (not opens and is_before_directive(lines[i:])):
            print(line)
            behind = -1
        elif comment.startswith(" SPDX"):
            print("/// \\file")
        elif code.strip():
            print(f"{code}///<{plain(comment)}")
            behind = len(code)
        else:
            if len(code) != behind:
                behind = -1
            print(f"{code}{'///' if behind < 0 else '///<'}{plain(comment)}")


def is_before_directive(lines):
    return next((line for line in lines if not line.startswith("//")), "").startswith("#")


def parted(line):
    """Code, and the comment behind it or None. A // within quotes is no comment."""
    for found in re.finditer("//", line):
        if line[: found.start()].count('"') % 2 == 0:
            return line[: found.start()], line[found.end() :]
    return line, None


def plain(comment):
    """As it stands: nothing in it is a command or a tag. Doxygen takes what is in quotes as it is, and code is between backticks."""
    quotes = comment.split('"')
    return '"'.join(
        piece if i % 2 else typeset(re.sub(r"[\\@<>#&%]", r"\\\g<0>", piece)) for i, piece in enumerate(quotes)
    )


def typeset(text):
    return re.sub("`([^`]*)`", r"<tt>\1</tt>", text)


main(sys.argv[1])

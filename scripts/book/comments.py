# SPDX-License-Identifier: Apache-2.0
"""Doxygen's filter: the plain comments of a header as comments that Doxygen reads.

A comment before something belongs to it, one behind it on the same line too. The comment that opens a file says what the file is for.
"""

import re
import sys


def main(path):
    behind = -1  # where the comment behind the code of the line before began
    for line in open(path).read().split("\n"):
        code, comment = parted(line)
        if comment is None:
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

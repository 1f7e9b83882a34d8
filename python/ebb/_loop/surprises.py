# SPDX-License-Identifier: Apache-2.0
"""What turns out while a loop is planned or runs and was not known before. It begins again, and knows."""

ATTEMPTS = 8  # then it is given up


class ChangesLater(Exception):
    """f draws random numbers or changes something, and did not before."""


class TooHeavy(ChangesLater):
    """A block keeps more for its backward than any before."""

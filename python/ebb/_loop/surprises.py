# SPDX-License-Identifier: Apache-2.0
"""What turns out while a loop runs and was not known when it was planned. The loop begins again, and knows."""


class ChangesLater(Exception):
    """f draws random numbers or changes something, and did not before."""


class TooHeavy(ChangesLater):
    """A block keeps more for its backward than any before."""

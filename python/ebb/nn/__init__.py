# SPDX-License-Identifier: Apache-2.0
"""Recurrent and spiking layers for PyTorch that train in the memory you have.

``RNN``, ``LSTM`` and ``GRU`` are torch's own with one more argument, ``budget``; ``LIF``, ``ALIF``,
``AdLIF`` and ``EGRU`` spike. ``convert`` converts the layers of an
existing model in place, and ``revert`` undoes it.
"""

from ebb.nn._convert import convert, revert
from ebb.nn._report import LayerReport
from ebb.nn._trained import Leaky, Trained
from ebb.nn.rnn import GRU, LSTM, RNN
from ebb.nn.spiking import ALIF, EGRU, LIF, AdLIF, AdLIFCell, ALIFCell, EGRUCell, LIFCell

__all__ = [
    "ALIF",
    "EGRU",
    "GRU",
    "LIF",
    "LSTM",
    "RNN",
    "ALIFCell",
    "AdLIF",
    "AdLIFCell",
    "EGRUCell",
    "LIFCell",
    "LayerReport",
    "Leaky",
    "Trained",
    "convert",
    "revert",
]

for _name in __all__:  # the names that users write, in tracebacks and pickles too
    globals()[_name].__module__ = "ebb.nn"

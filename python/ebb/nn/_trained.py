# SPDX-License-Identifier: Apache-2.0
"""Nets that ``ebb train`` left, as modules of torch."""

from __future__ import annotations

import json
import os
import pathlib
from collections.abc import Sequence
from typing import Any

import torch

from ebb._base.budget import BudgetLike
from ebb._base.errors import Error
from ebb.nn._spiking_steps import decay
from ebb.nn.rnn import GRU, LSTM, RNN
from ebb.nn.spiking import ALIF, EGRU, LIF, AdLIF

_DTYPES = {"F32": torch.float32, "F64": torch.float64, "I64": torch.int64, "I32": torch.int32, "U8": torch.uint8}
_TORCH: dict[str, Any] = {"rnn": torch.nn.RNN, "rnn_relu": torch.nn.RNN, "lstm": torch.nn.LSTM, "gru": torch.nn.GRU}
_BOUNDED: dict[str, Any] = {"rnn": RNN, "rnn_relu": RNN, "lstm": LSTM, "gru": GRU}
_SPIKING: dict[str, Any] = {"lif": LIF, "alif": ALIF, "adlif": AdLIF, "egru": EGRU}


class Leaky(torch.nn.Linear):
    """A readout that integrates: ``o = kappa * o + (1 - kappa) * (W x + b)`` with ``kappa = exp(-1 / tau_mem)``.

    ``layer(input) -> output``, both [B,T,...]; one ``tau_mem`` for each output.
    """

    def __init__(self, in_features: int, out_features: int, bias: bool = True, dtype: torch.dtype | None = None):
        super().__init__(in_features, out_features, bias=bias, dtype=dtype)
        self.tau_mem = torch.nn.Parameter(torch.full((out_features,), 20.0, dtype=dtype))

    def forward(self, input: torch.Tensor) -> torch.Tensor:
        kappa = decay(self.tau_mem)
        outputs = []
        now = torch.zeros_like(kappa)
        for sums in super().forward(input).unbind(1):
            now = kappa * now + (1 - kappa) * sums
            outputs.append(now)
        return torch.stack(outputs, 1)


def _read(path: pathlib.Path) -> tuple[dict[str, torch.Tensor], dict[str, str]]:
    """Tensors and notes of a safetensors file."""
    data = path.read_bytes()
    size = int.from_bytes(data[:8], "little")
    try:
        header = json.loads(data[8 : 8 + size])
        notes = header.pop("__metadata__", {})
        tensors = {}
        for name, own in header.items():
            begin, end = own["data_offsets"]
            part = bytearray(data[8 + size + begin : 8 + size + end])
            dtype = _DTYPES[own["dtype"]]
            flat = torch.frombuffer(part, dtype=dtype) if part else torch.empty(0, dtype=dtype)
            tensors[name] = flat.reshape(own["shape"])
    except (ValueError, KeyError, TypeError, AttributeError, RuntimeError) as problem:
        raise Error(f"{path} is not a whole safetensors file: {problem}") from None
    return tensors, notes


def _dense(tensors: dict[str, torch.Tensor], hidden: int, inputs: int) -> dict[str, torch.Tensor]:
    """Sparse weights as matrices: zeros stand where there is no weight."""
    whole = {name: tensor for name, tensor in tensors.items() if not name.endswith((".starts", ".columns"))}
    for name in tensors:
        if not name.endswith(".starts"):
            continue
        weights = name.removesuffix(".starts")
        starts, columns = tensors[name], tensors[weights + ".columns"].long()
        width = inputs if weights == "weight_ih_l0" else hidden
        rows = torch.repeat_interleave(torch.arange(starts.numel() - 1), starts.diff())
        full = torch.zeros(starts.numel() - 1, width, dtype=whole[weights].dtype)
        full[rows, columns] = whole[weights].flatten()
        whole[weights] = full
    return whole


def _refuse_what_is_missing(name: str, options: dict[str, Any]) -> None:
    cell = options["cell"]
    reasons = {
        f"the cell {cell!r}": cell not in _TORCH and cell not in _SPIKING,
        "pipelined layers": options["pipelined"],
        "synaptic currents": options["synaptic"],
        "max_activity": options["max_activity"] != 1,
        "gradient_threshold": "gradient_threshold" in options,
        "a rest other than 0": options["rest"] != 0,
    }
    for what, missing in reasons.items():
        if missing:
            raise Error(f"{name} has {what}, which neither torch.nn nor ebb.nn has; use ebb predict", "unavailable")


class Trained(torch.nn.Module):
    """A net that ``ebb train`` left; :func:`ebb.load` makes it.

    ``net(x) -> outputs``: x is [B,T,I], outputs are [B,T,O] where the task has a target at every step (``every_step``), and
    [B,O], those of the last step, otherwise. ``rnn`` has the layers, ``readout`` what is on top of them.

    task, options, notes: what it was trained for, and how; ``classes``: their names, or None; ``symbols``: of text, the
    byte of each class, or None.
    """

    def __init__(self, name: str, tensors: dict[str, torch.Tensor], notes: dict[str, str], how: dict[str, Any]):
        super().__init__()
        self.notes = notes
        self.options: dict[str, Any] = json.loads(notes["options"])
        options = self.options
        _refuse_what_is_missing(name, options)
        self.task = notes["task"]
        self.every_step = notes["every_step"] == "true"
        self.classes: list[str] | None = json.loads(notes["classes"]) if "classes" in notes else None
        self.symbols: bytes | None = bytes(json.loads(notes["bytes"])) if "bytes" in notes else None
        inputs, outputs, hidden = int(notes["inputs"]), int(notes["outputs"]), options["hidden"]
        dtype = torch.float64 if notes["dtype"] == "double" else torch.float32
        self.rnn = _layers(options, inputs, dtype, how)
        self.dropout = torch.nn.Dropout(options["dropout"])
        readout: Any = Leaky if options["readout"] == "leaky" else torch.nn.Linear
        self.readout = readout(hidden, outputs, dtype=dtype)
        self._take(_dense(tensors, hidden, inputs))

    def _take(self, tensors: dict[str, torch.Tensor]) -> None:
        own = {}
        for name, tensor in tensors.items():
            if name.startswith("readout."):
                own[name] = tensor
            elif isinstance(self.rnn, torch.nn.ModuleList):
                what, _, layer = name.rpartition("_l")
                own[f"rnn.{layer}.{what}_l0"] = tensor
            else:
                own[f"rnn.{name}"] = tensor
        self.load_state_dict(own)

    def forward(self, input: torch.Tensor) -> torch.Tensor:
        x = input
        if isinstance(self.rnn, torch.nn.ModuleList):
            for layer in self.rnn:
                x, _ = layer(x)
                x = self.dropout(x)
        else:
            x, _ = self.rnn(x)
            x = self.dropout(x)
        if not self.every_step and not isinstance(self.readout, Leaky):
            return self.readout(x[:, -1])
        outputs = self.readout(x)
        return outputs if self.every_step else outputs[:, -1]

    def encode(self, text: str | bytes) -> torch.Tensor:
        """A text as the net reads it: [1,T,I], a 1 for each byte's class."""
        symbols = self._symbols()
        classes = []
        for place, byte in enumerate(text.encode() if isinstance(text, str) else text):
            if byte not in symbols:
                raise Error(f"byte {place} of the text is {byte}, which the text of the training did not have")
            classes.append(symbols.index(byte))
        dtype = next(self.parameters()).dtype
        return torch.nn.functional.one_hot(torch.tensor([classes], dtype=torch.long), len(symbols)).to(dtype)

    def decode(self, classes: Sequence[int] | torch.Tensor) -> bytes:
        """The bytes that classes stand for."""
        symbols = self._symbols()
        return bytes(symbols[int(one)] for one in classes)

    def _symbols(self) -> bytes:
        if self.symbols is None:
            raise Error(
                f"the net was trained on the task {self.task!r}; only those of the task 'text' have a table of bytes"
            )
        return self.symbols


def _layers(options: dict[str, Any], inputs: int, dtype: torch.dtype, how: dict[str, Any]) -> torch.nn.Module:
    cell, hidden, layers = options["cell"], options["hidden"], options["layers"]
    common: dict[str, Any] = {"bias": options["bias"], "batch_first": True, "dtype": dtype}
    if cell in _TORCH:
        if how["budget"] is not None:
            common |= how
        if cell.startswith("rnn"):
            common["nonlinearity"] = "relu" if cell == "rnn_relu" else "tanh"
        common["dropout"] = options["dropout"] if layers > 1 else 0.0
        kind = _TORCH[cell] if how["budget"] is None else _BOUNDED[cell]
        return kind(inputs, hidden, layers, **common)
    more = {"recurrent": options["recurrent"], "train_threshold": options["train_threshold"]}
    more |= {"surrogate": options["surrogate"] or None, "sharpness": options.get("sharpness")}
    if cell != "egru":
        more |= {"attached_reset": options["attached_reset"], "reset": "hard" if options["hard_reset"] else "soft"}
        more |= {"normalised": options["normalised"], "train_tau": options["train_tau"]}
    more |= how
    kind = _SPIKING[cell]
    return torch.nn.ModuleList(kind(hidden if one else inputs, hidden, **common, **more) for one in range(layers))


def load(run: str | os.PathLike[str], *, budget: BudgetLike | None = None, native: bool = True) -> Trained:
    """The net that ``ebb train --out run`` left, as a module, ready to predict or to be trained on.

    run: the folder, or its ``model.safetensors`` alone.
    budget: None gives torch's own layers (of ``torch.nn``, where it has the cell); otherwise those of :mod:`ebb.nn` with that
        budget.
    native: as of :class:`ebb.nn.LSTM`.

    Sparse weights become matrices with zeros. What neither ``torch.nn`` nor ``ebb.nn`` has (pipelined layers, synaptic currents, ...) is
    refused by name. The module is in ``eval()`` mode.

    >>> net = ebb.load("run", budget="64MiB")  # doctest: +SKIP
    >>> outputs = net(inputs)  # doctest: +SKIP
    """
    path = pathlib.Path(run)
    if path.is_dir():
        path = path / "model.safetensors"
    if not path.is_file():
        raise Error(
            f"there is no run {str(run)!r}; name the folder that ebb train --out wrote, or its model.safetensors", "io"
        )
    tensors, notes = _read(path)
    if "options" not in notes:
        raise Error(
            f"{path} does not say what it was trained for: it is not of ebb train, or of a version that did not yet; "
            "ebb train --resume with one more iteration saves it anew"
        )
    try:
        return Trained(str(path), tensors, notes, {"budget": budget, "native": native}).eval()
    except (KeyError, RuntimeError, ValueError) as error:
        if isinstance(error, Error):
            raise
        raise Error(f"{path} is damaged, or another program has changed it: {error}", "io") from error

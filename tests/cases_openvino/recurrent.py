"""Recurrent cells and layers."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np

from cases_openvino import Row, fixed, numbers
from openvino_answers import cell

_GATES = {"LSTM": 4, "GRU": 3, "RNN": 1, "AUGRU": 3}
_USUAL = {"LSTM": ["sigmoid", "tanh", "tanh"], "GRU": ["sigmoid", "tanh"], "RNN": ["tanh"], "AUGRU": ["sigmoid", "tanh"]}
_BATCH, _INPUT, _HIDDEN, _TIME = 2, 3, 4, 5


def _cell(operator: str, name: str = "", bias: int | None = None, **more: Any) -> Row:
    kind = operator.partition("Cell")[0]
    rows = _GATES[kind] * _HIDDEN
    states = [numbers(_BATCH, _HIDDEN, seed=seed) for seed in range(1, 3 if kind == "LSTM" else 2)]
    weights = [fixed(numbers(rows, _INPUT, seed=4)), fixed(numbers(rows, _HIDDEN, seed=5))]
    biases = [fixed(numbers(rows if bias is None else bias, seed=6))]
    attention = [numbers(_BATCH, 1, seed=8, low=0, high=1)] if kind == "AUGRU" else []
    attributes = {
        "hidden_size": _HIDDEN,
        "activations": _USUAL[kind],
        "activations_alpha": [],
        "activations_beta": [],
        "clip": 0.0,
    }
    return Row(
        operator, (numbers(_BATCH, _INPUT), *states, *weights, *biases, *attention), {**attributes, **more}, name or "plain"
    )


def _layer(operator: str, name: str = "", bias: int | None = None, lengths: Any = None, **more: Any) -> Row:
    kind = operator.partition("Sequence")[0]
    ways = 2 if more.get("direction") == "bidirectional" else 1
    rows = _GATES[kind] * _HIDDEN
    states = [numbers(_BATCH, ways, _HIDDEN, seed=seed) for seed in range(1, 3 if kind == "LSTM" else 2)]
    weights = [fixed(numbers(ways, rows, size, seed=4)) for size in (_INPUT, _HIDDEN)]
    biases = [fixed(numbers(ways, rows if bias is None else bias, seed=6))]
    attention = [numbers(_BATCH, _TIME, 1, seed=8, low=0, high=1)] if kind == "AUGRU" else []
    given = fixed([_TIME] * _BATCH, np.int32) if lengths is None else lengths
    attributes = {
        "hidden_size": _HIDDEN,
        "direction": "forward",
        "activations": _USUAL[kind],
        "activations_alpha": [],
        "activations_beta": [],
        "clip": 0.0,
    }
    inputs = (numbers(_BATCH, _TIME, _INPUT), *states, given, *weights, *biases, *attention)
    return Row(operator, inputs, {**attributes, **more}, name or str(more.get("direction", "forward")))


_UNREAD = "OpenVINO reads weights_format and input_forget of LSTMCell-1, and computes as if they were not there"
_OTHERS = {"LSTM": ["tanh", "relu", "sigmoid"], "GRU": ["tanh", "sigmoid"], "RNN": ["relu"]}
ROWS: list[Row] = [
    _cell("LSTMCell-4"),
    _cell("LSTMCell-4", "clipped", clip=0.5),
    _cell("LSTMCell-4", "other functions", activations=_OTHERS["LSTM"]),
    _cell("LSTMCell-1", weights_format="fico", input_forget=False),
    replace(
        _cell("LSTMCell-1", "of the gates in another order", weights_format="ifco", input_forget=False),
        answers=cell("ifco", False),
        why=_UNREAD,
    ),
    replace(
        _cell("LSTMCell-1", "of an input and forget gate in one", weights_format="fico", input_forget=True),
        answers=cell("fico", True),
        why=_UNREAD,
    ),
    _cell("GRUCell-3"),
    _cell("GRUCell-3", "with four biases", 4 * _HIDDEN, linear_before_reset=True),
    _cell("GRUCell-3", "clipped", clip=0.5),
    _cell("RNNCell-1"),
    _cell("RNNCell-1", "by relu", activations=["relu"], clip=0.7),
    *(
        _layer(operator, direction=way)
        for operator in ("LSTMSequence-5", "GRUSequence-5", "RNNSequence-5")
        for way in ("forward", "reverse", "bidirectional")
    ),
    *(
        _layer(operator, "of lengths", lengths=np.int32([5, 3]))
        for operator in ("LSTMSequence-5", "GRUSequence-5", "RNNSequence-5")
    ),
    *(
        _layer(operator, "of lengths, reversed", lengths=np.int32([2, 5]), direction="reverse")
        for operator in ("LSTMSequence-5", "GRUSequence-5", "RNNSequence-5")
    ),
    *(
        _layer(f"{kind}Sequence-5", "other functions, clipped", activations=_OTHERS[kind], clip=0.9)
        for kind in ("LSTM", "GRU", "RNN")
    ),
    _layer("GRUSequence-5", "with four biases", 4 * _HIDDEN, linear_before_reset=True),
    _layer("GRUSequence-5", "with four biases, both ways", 4 * _HIDDEN, linear_before_reset=True, direction="bidirectional"),
]

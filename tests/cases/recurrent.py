"""Recurrent networks: every direction and layout, activations with parameters, limits, peepholes, rows of several lengths."""

from __future__ import annotations

from typing import Any

import numpy as np

from cases import Case
from cases.matmul import floats
from dovetail.ops.recurrent.cells import GRUCell, LSTMCell, RNNCell
from dovetail.ops.recurrent.dynamic_quantize_lstm import DynamicQuantizeLSTM
from dovetail.ops.recurrent.layers import GRU, LSTM, RNN

SEQUENCE, BATCH, INPUT, HIDDEN = 3, 2, 4, 5
_NEAR = {"f64": 1e-6, "f32": 1e-5, "f16": 4e-3, "bf16": 4e-2}
_NO_BATCH_FIRST = {"onnxruntime": "it takes sequences first only"}


def layer(op: Any, name: str, kind: str = "f32", **given: Any) -> Case:
    """``op`` on data of the sizes above; ``given``: lengths, or flags that say what is left out."""
    directions = 2 if op.direction == "bidirectional" else 1
    rows = op.gate_count * HIDDEN
    batch = given.pop("batch", BATCH)
    steps = given.pop("steps", SEQUENCE)
    x = (steps, batch, INPUT) if op.layout == "sequence_first" else (batch, steps, INPUT)
    state = (directions, batch, HIDDEN) if op.layout == "sequence_first" else (batch, directions, HIDDEN)
    lengths = given.pop("lengths", None)
    inputs: list[Any] = [
        floats(*x, name=kind),
        floats(directions, rows, INPUT, seed=1, name=kind),
        floats(directions, rows, HIDDEN, seed=2, name=kind),
        floats(directions, op.bias_count * HIDDEN, seed=3, name=kind) if given.pop("bias", True) else None,
        None if lengths is None else np.array(lengths, given.pop("lengths_type", np.int32)),
    ]
    inputs += [
        floats(*state, seed=4 + place, name=kind) if given.pop("states", True) else None for place in range(op.state_count)
    ]
    if given.pop("peephole", False):
        inputs.append(floats(directions, 3 * HIDDEN, seed=6, name=kind))
    while inputs[-1] is None:
        inputs.pop()
    return Case(op, tuple(inputs), f"{type(op).__name__} {name}", **{"tolerance": _NEAR[kind], **given})


def cell(op: Any, name: str, kind: str = "f32", bias: bool = True) -> Case:
    rows = op.layer.gate_count * HIDDEN
    inputs = [floats(BATCH, INPUT, name=kind)]
    inputs += [floats(BATCH, HIDDEN, seed=4 + place, name=kind) for place in range(op.layer.state_count)]
    inputs += [floats(rows, INPUT, seed=1, name=kind), floats(rows, HIDDEN, seed=2, name=kind)]
    if bias:
        inputs.append(floats(op.as_layer().bias_count * HIDDEN, seed=3, name=kind))
    return Case(op, tuple(inputs), f"{type(op).__name__} {name}", tolerance=_NEAR[kind])


def quantized(op: DynamicQuantizeLSTM, name: str, columns: bool = False, kind: Any = np.int8) -> Case:
    directions = op.directions
    chance = np.random.default_rng(7)
    sizes = (directions, 4 * HIDDEN) if columns else (directions,)
    low, high = (0, 256) if kind is np.uint8 else (-128, 128)
    inputs: list[Any] = [floats(SEQUENCE, BATCH, INPUT)]
    inputs += [chance.integers(low, high, (directions, size, 4 * HIDDEN)).astype(kind) for size in (INPUT, HIDDEN)]
    inputs += [floats(directions, 8 * HIDDEN, seed=3), None]
    inputs += [*(floats(directions, BATCH, HIDDEN, seed=4 + place) for place in range(2)), None]
    for _ in range(2):
        points = np.full(sizes, 128 if kind is np.uint8 else 0, kind)
        inputs += [(chance.uniform(0.5, 1, sizes) / 128).astype(np.float32), points]
    return Case(op, tuple(inputs), f"DynamicQuantizeLSTM {name}", constants=(1, 2, 3, 8, 9, 10, 11), tolerance=1e-5)


CELLS = (RNNCell, GRUCell, LSTMCell)
KINDS = (RNN, GRU, LSTM)
DIRECTIONS = ("forward", "reverse", "bidirectional")

CASES: list[Case] = [
    *(layer(kind(direction), direction) for kind in KINDS for direction in DIRECTIONS),
    *(layer(kind(direction), f"{direction} with lengths", lengths=[3, 1]) for kind in KINDS for direction in DIRECTIONS),
    *(layer(kind(), "with rows of no length", lengths=[0, 2], lengths_type=np.int64) for kind in KINDS),
    *(layer(kind(), "of whole rows", lengths=[3, 3]) for kind in KINDS),
    *(layer(kind(), "without bias", bias=False) for kind in KINDS),
    *(layer(kind(), "without states", states=False) for kind in KINDS),
    *(layer(kind(outputs=1), "with one output", states=False, bias=False) for kind in KINDS),
    layer(LSTM(outputs=2), "with two outputs"),
    *(layer(kind(hidden_size=HIDDEN), "with its hidden size") for kind in KINDS),
    *(layer(kind(clip=0.25), "with limits") for kind in KINDS),
    *(layer(kind(layout="batch_first"), "batch first", skip=_NO_BATCH_FIRST) for kind in KINDS),
    *(layer(kind("bidirectional", layout="batch_first"), "batch first, both ways", skip=_NO_BATCH_FIRST) for kind in KINDS),
    *(
        layer(kind(direction, layout="direction_second", summed_bias=True), f"as OpenVINO has it, {direction}", lengths=[2, 3])
        for kind in KINDS
        for direction in DIRECTIONS
    ),
    layer(LSTM(layout="direction_second", summed_bias=True, weights_format="fico"), "as OpenVINO has it", lengths=[3, 3]),
    layer(LSTM(weights_format="cofi", summed_bias=True), "with its gates in another order"),
    layer(GRU(linear_before_reset=True), "linear before reset"),
    layer(GRU("bidirectional", linear_before_reset=True), "linear before reset, both ways"),
    layer(GRU(linear_before_reset=True), "linear before reset without bias", bias=False),
    layer(GRU(linear_before_reset=True, summed_bias=True), "linear before reset with a summed bias"),
    layer(LSTM(), "with peepholes", peephole=True),
    layer(LSTM("bidirectional"), "with peepholes both ways", peephole=True),
    layer(LSTM(input_forget=True), "with coupled gates"),
    layer(LSTM(input_forget=True, clip=0.5), "with coupled gates, limits and peepholes", peephole=True),
    *(
        layer(RNN(activations=(name,), activation_alpha=alphas, activation_beta=betas), f"of {name} {list(alphas)} {list(betas)}")
        for name, alphas, betas in (
            ("affine", (0.25,), (0.5,)),
            ("elu", (), ()),
            ("elu", (0.5,), ()),
            ("hardsigmoid", (), ()),
            ("hardsigmoid", (0.25,), (0.125,)),
            ("leakyrelu", (), ()),
            ("leakyrelu", (0.25,), ()),
            ("relu", (), ()),
            ("scaledtanh", (0.5,), (0.75,)),
            ("sigmoid", (), ()),
            ("softplus", (), ()),
            ("softsign", (), ()),
            ("tanh", (), ()),
            ("thresholdedrelu", (0.25,), ()),
        )
    ),
    layer(
        LSTM(activations=("hardsigmoid", "tanh", "leakyrelu"), activation_alpha=(0.25, 0.5), activation_beta=(0.125,)),
        "of several functions",
    ),
    layer(LSTM(activations=("sigmoid", "relu", "tanh")), "of functions that OpenVINO has"),
    layer(GRU(activations=("tanh", "sigmoid")), "of functions that OpenVINO has"),
    layer(
        LSTM("bidirectional", activations=("sigmoid", "tanh", "tanh", "tanh", "relu", "sigmoid")), "of other functions each way"
    ),
    layer(RNN("bidirectional", activations=("relu", "leakyrelu"), activation_alpha=(0.25,)), "of other functions each way"),
    *(layer(kind(), "of one moment", steps=1, batch=1) for kind in KINDS),
    *(layer(kind(), f"of {name}", name) for kind in KINDS for name in ("f64", "f16", "bf16")),
    *(cell(kind(), f"of {name}", name) for kind in CELLS for name in ("f32", "f16")),
    *(cell(kind(hidden_size=HIDDEN), "without bias", bias=False) for kind in CELLS),
    *(cell(kind(clip=0.25), "with limits") for kind in CELLS),
    cell(GRUCell(linear_before_reset=True), "linear before reset"),
    cell(GRUCell(activations=("tanh", "relu")), "of other functions"),
    cell(LSTMCell(activations=("tanh", "relu", "sigmoid")), "of other functions"),
    cell(LSTMCell(activations=("tanh", "leakyrelu", "sigmoid"), activation_alpha=(0.25,)), "of a function that OpenVINO lacks"),
    cell(LSTMCell(input_forget=True), "with coupled gates"),
    cell(LSTMCell(weights_format="iofc"), "with its gates in another order"),
    quantized(DynamicQuantizeLSTM(), "forward"),
    quantized(DynamicQuantizeLSTM("bidirectional"), "bidirectional"),
    quantized(DynamicQuantizeLSTM("reverse"), "reverse"),
    quantized(DynamicQuantizeLSTM(), "with a scale for each column", columns=True),
    quantized(DynamicQuantizeLSTM("bidirectional", clip=0.5), "of u8", kind=np.uint8),
]

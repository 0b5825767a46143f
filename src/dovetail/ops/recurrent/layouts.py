"""Conversions of a recurrent layer: another layout, gate order or bias form, no omitted inputs, one layer per direction."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from dovetail.ir import dtypes, symbolic
from dovetail.ir.builder import shape_value
from dovetail.ir.op import moves_first_input, output_count
from dovetail.ir.types import View
from dovetail.ops.builders import zeros_like
from dovetail.ops.elementwise.cast import Cast
from dovetail.ops.nn.conv import concat_vectors
from dovetail.ops.recurrent.cell_math import GraphBackend
from dovetail.ops.recurrent.layers import LSTM, STATE_AXES, X_AXES, Y_AXES, RecurrentLayer, activation_attributes, permutation_of

if TYPE_CHECKING:
    from dovetail.ir.builder import Builder
    from dovetail.ir.graph import Value


def pad_inputs(op: RecurrentLayer, xs: Sequence[Any]) -> list[Any]:
    """Return one entry for each input of the signature, None for an omitted input."""
    return [*xs, *[None] * (len(op.signature.inputs) - len(xs))]


def convert_form(
    b: Builder,
    op: RecurrentLayer,
    xs: Sequence[Value | None],
    *,
    layout: str = "",
    summed_bias: bool | None = None,
    weights_format: str = "",
    **changes: object,
) -> list[Any]:
    """Emit ``op`` in another layout, gate order or bias form, and return outputs in the layout of ``op``.

    Emitted operators rearrange the weights; these operators are folded if the weights are constant.
    """
    x, w, r, bias, lengths, *rest = pad_inputs(op, xs)
    new: Any = op.with_(layout=layout or op.layout, summed_bias=op.summed_bias if summed_bias is None else summed_bias, **changes)
    if isinstance(op, LSTM) and weights_format and weights_format != op.weights_format:
        new = new.with_(weights_format=weights_format)
        gate_permutation = permutation_of(op.weights_format, weights_format)
        w, r = (reorder_gates(b, value, gate_permutation) for value in (w, r))
        bias = None if bias is None else reorder_gates(b, bias, gate_permutation, 1 if op.summed_bias else 2)
    if bias is not None and new.summed_bias != op.summed_bias:
        bias = sum_biases(b, op, bias) if new.summed_bias else split_bias(b, op, bias)
    m = GraphBackend(b)
    x = m.transpose(x, permutation_of(X_AXES[op.layout], X_AXES[new.layout]))
    state_permutation = permutation_of(STATE_AXES[op.layout], STATE_AXES[new.layout])
    states = [None if value is None else m.transpose(value, state_permutation) for value in rest[: op.state_count]]
    outputs = b.add(new, x, w, r, bias, lengths, *states, *rest[op.state_count :])
    state_permutation_back = permutation_of(STATE_AXES[new.layout], STATE_AXES[op.layout])
    ys = [
        m.transpose(outputs[0], permutation_of(Y_AXES[new.layout], Y_AXES[op.layout])),
        *(m.transpose(y, state_permutation_back) for y in outputs[1:]),
    ]
    return ys[: output_count(op)]


def reorder_gates(b: Builder, weights: Value, permutation: list[int], repeats: int = 1) -> Any:
    """Permute the gates along axis 1, which holds all gates ``repeats`` times."""
    count = len(permutation)
    gates = b.Split(weights, axis=1, outputs=repeats * count)
    return b.Concat(*(gates[repeat * count + gate] for repeat in range(repeats) for gate in permutation), axis=1)


def sum_biases(b: Builder, op: RecurrentLayer, bias: Value) -> Any:
    """Add the recurrence bias to the input bias; with ``linear_before_reset`` both biases of gate h stay separate."""
    if not getattr(op, "linear_before_reset", False):
        return b.Add(*b.Split(bias, axis=1, outputs=2))
    z, r, h, z_inner, r_inner, h_inner = b.Split(bias, axis=1, outputs=6)
    return b.Concat(b.Add(z, z_inner), b.Add(r, r_inner), h, h_inner, axis=1)


def split_bias(b: Builder, op: RecurrentLayer, bias: Value) -> Any:
    """Split a summed bias into an input bias and a recurrence bias of zeros.

    With ``linear_before_reset`` both biases of gate h are kept.
    """
    if not getattr(op, "linear_before_reset", False):
        return b.Concat(bias, zeros_like(b, bias), axis=1)
    z, r, h, h_inner = b.Split(bias, axis=1, outputs=4)
    zero = zeros_like(b, z)
    return b.Concat(z, r, h, zero, zero, h_inner, axis=1)


def fill_inputs(b: Builder, op: RecurrentLayer, xs: Sequence[Value | None]) -> list[Any]:
    """Return all inputs, with the default values of omitted inputs; omitted peepholes stay omitted."""
    x, w, r, bias, lengths, *rest = pad_inputs(op, xs)
    size = op.sizes_of(*xs)["h"]
    batch_axis = X_AXES[op.layout].index("b")
    zero = b.constant(np.zeros((), x.dtype.numpy), x.dtype)
    if bias is None:
        bias = b.Expand(zero, [op.directions, op.bias_count * size])
    rows = shape_value(b, x, [batch_axis])
    parts = (rows, [op.directions]) if STATE_AXES[op.layout] == "bdh" else ([op.directions], rows)
    states = [b.Expand(zero, concat_vectors(b, *parts, [size])) if value is None else value for value in rest[: op.state_count]]
    if lengths is None:
        count = shape_value(b, x, [X_AXES[op.layout].index("s")])
        full = b.constant(count, dtypes.i64) if isinstance(count, list) else count
        lengths = b.Expand(full, rows)
    return [x, w, r, bias, lengths, *states, *rest[op.state_count :]]


def has_full_lengths(op: RecurrentLayer, x: View | None, lengths: Value | None) -> bool:
    """Return whether the length of every batch row is known to be the size of the sequence axis."""
    while lengths is not None and lengths.value is None and lengths.node is not None:
        if not isinstance(lengths.node.op, Cast) and not moves_first_input(lengths.node.op):
            return False
        lengths = lengths.node.inputs[0]
    if lengths is None or lengths.value is None or x is None or x.shape is None:
        return False
    size = x.shape[X_AXES[op.layout].index("s")]
    return all(symbolic.equal(item, size) is True for item in np.asarray(lengths.value, dtype=object).reshape(-1).tolist())


def split_directions(b: Builder, op: RecurrentLayer, xs: Sequence[Value | None]) -> list[Any]:
    """Emit one layer for each of the two directions, and concatenate the outputs of both layers."""
    x, w, r, bias, lengths, *rest = pad_inputs(op, xs)
    axis = STATE_AXES[op.layout].index("d")

    def slice_direction(value: Value | None, index: int, along: int = 0) -> Any:
        return None if value is None else b.Slice(value, [index], [index + 1], [along], [1])

    outputs_of = []
    for index, direction in enumerate(("forward", "reverse")):
        new = op.with_(direction=direction, **activation_attributes(op.activations_of(index), op.default_activations))
        states = [slice_direction(value, index, axis) for value in rest[: op.state_count]]
        peepholes = [slice_direction(value, index) for value in rest[op.state_count :]]
        outputs_of.append(
            b.add(
                new,
                x,
                slice_direction(w, index),
                slice_direction(r, index),
                slice_direction(bias, index),
                lengths,
                *states,
                *peepholes,
            )
        )
    axes = [Y_AXES[op.layout].index("d"), axis, axis]
    return [
        b.Concat(*pair, axis=axis_) for pair, axis_ in zip(zip(*outputs_of, strict=True), axes[: output_count(op)], strict=True)
    ]

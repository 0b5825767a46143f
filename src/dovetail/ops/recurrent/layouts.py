"""A recurrent layer in another form: other axes first, gates in another order, biases summed or apart, nothing left out."""

from __future__ import annotations

from typing import Any

import numpy as np

from dovetail import dtypes, symbolic
from dovetail.ir.builder import shape_value
from dovetail.ops.builders import zeros_like
from dovetail.ops.nn.conv import joined
from dovetail.ops.recurrent.cell_math import Values
from dovetail.ops.recurrent.layers import STATE_AXES, X_AXES, Y_AXES, listed, order


def padded(op: Any, xs: Any) -> list[Any]:
    """All inputs of the signature, None for those left out."""
    return [*xs, *[None] * (len(op.signature.inputs) - len(xs))]


def recast(b: Any, op: Any, xs: Any, *, layout: str = "", summed: bool | None = None, gates: str = "", **more: Any) -> list[Any]:
    """The outputs of ``op`` through an operator in another form. Weights are rearranged, which is done at once where they are
    constant."""
    x, w, r, bias, lengths, *rest = padded(op, xs)
    new = op.with_(layout=layout or op.layout, summed=op.summed if summed is None else summed, **more)
    if gates and gates != op.gates:
        new = new.with_(gates=gates)
        places = order(op.gates, gates)
        w, r = (regrouped(b, value, places) for value in (w, r))
        bias = None if bias is None else regrouped(b, bias, places, 1 if op.summed else 2)
    if bias is not None and new.summed != op.summed:
        bias = summed_bias(b, op, bias) if new.summed else parted_bias(b, op, bias)
    m = Values(b)
    x = m.turned(x, order(X_AXES[op.layout], X_AXES[new.layout]))
    turn = order(STATE_AXES[op.layout], STATE_AXES[new.layout])
    states = [None if value is None else m.turned(value, turn) for value in rest[: op.states]]
    made = b.add(new, x, w, r, bias, lengths, *states, *rest[op.states :])
    back = order(STATE_AXES[new.layout], STATE_AXES[op.layout])
    ys = [m.turned(made[0], order(Y_AXES[new.layout], Y_AXES[op.layout])), *(m.turned(y, back) for y in made[1:])]
    return ys[: op.outputs]


def regrouped(b: Any, weights: Any, places: list[int], rounds: int = 1) -> Any:
    """Axis 1, which holds ``rounds`` times all gates, with each time the gates in this order."""
    count = len(places)
    pieces = b.Split(weights, axis=1, outputs=rounds * count)
    return b.Concat(*(pieces[turn * count + place] for turn in range(rounds) for place in places), axis=1)


def summed_bias(b: Any, op: Any, bias: Any) -> Any:
    """The bias of the input and that of the state as their sum; that of a gate which is computed apart stays apart."""
    if not getattr(op, "linear_before_reset", False):
        return b.Add(*b.Split(bias, axis=1, outputs=2))
    z, r, h, z_inner, r_inner, h_inner = b.Split(bias, axis=1, outputs=6)
    return b.Concat(b.Add(z, z_inner), b.Add(r, r_inner), h, h_inner, axis=1)


def parted_bias(b: Any, op: Any, bias: Any) -> Any:
    """A sum as the bias of the input, beside zeros for the state."""
    if not getattr(op, "linear_before_reset", False):
        return b.Concat(bias, zeros_like(b, bias), axis=1)
    z, r, h, h_inner = b.Split(bias, axis=1, outputs=4)
    zero = zeros_like(b, z)
    return b.Concat(z, r, h, zero, zero, h_inner, axis=1)


def completed(b: Any, op: Any, xs: Any) -> list[Any]:
    """The inputs with what means the same as each that is left out; peepholes stay left out."""
    x, w, r, bias, lengths, *rest = padded(op, xs)
    size = op.sizes(*xs)["h"]
    row = X_AXES[op.layout].index("b")
    zero = b.constant(np.zeros((), x.dtype.numpy), x.dtype)
    if bias is None:
        bias = b.Expand(zero, [op.directions, op.bias_count * size])
    rows = shape_value(b, x, [row])
    parts = (rows, [op.directions]) if STATE_AXES[op.layout] == "bdh" else ([op.directions], rows)
    states = [b.Expand(zero, joined(b, *parts, [size])) if value is None else value for value in rest[: op.states]]
    if lengths is None:
        count = shape_value(b, x, [X_AXES[op.layout].index("s")])
        full = b.constant(count, dtypes.i64) if isinstance(count, list) else count
        lengths = b.Expand(full, rows)
    return [x, w, r, bias, lengths, *states, *rest[op.states :]]


REPEATING = ("Cast", "Expand", "Identity", "Tile")
"""Operators whose results have no other elements than their first input."""


def is_full(op: Any, x: Any, lengths: Any) -> bool:
    """Whether every row is known to go on to the end."""
    while lengths is not None and lengths.value is None and lengths.node is not None:
        if type(lengths.node.op).__name__ not in REPEATING:
            return False
        lengths = lengths.node.inputs[0]
    if lengths is None or lengths.value is None or x.shape is None:
        return False
    size = x.shape[X_AXES[op.layout].index("s")]
    return all(symbolic.equal(item, size) is True for item in np.asarray(lengths.value, dtype=object).reshape(-1).tolist())


def one_by_one(b: Any, op: Any, xs: Any) -> list[Any]:
    """Both directions, each through an operator of its own."""
    x, w, r, bias, lengths, *rest = padded(op, xs)
    axis = STATE_AXES[op.layout].index("d")

    def of(value: Any, place: int, along: int = 0) -> Any:
        return None if value is None else b.Slice(value, [place], [place + 1], [along], [1])

    both = []
    for place, direction in enumerate(("forward", "reverse")):
        new = op.with_(direction=direction, **listed(op.functions(place), op.usual))
        states = [of(value, place, axis) for value in rest[: op.states]]
        more = [of(value, place) for value in rest[op.states :]]
        both.append(b.add(new, x, of(w, place), of(r, place), of(bias, place), lengths, *states, *more))
    axes = [Y_AXES[op.layout].index("d"), axis, axis]
    return [b.Concat(*pair, axis=along) for pair, along in zip(zip(*both, strict=True), axes[: op.outputs], strict=True)]

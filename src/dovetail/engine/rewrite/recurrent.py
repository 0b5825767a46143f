"""Recurrent layers for the engine: one product of all inputs, and a kernel that goes through the moments."""

from __future__ import annotations

from typing import Any

from dovetail.ir.builder import Builder
from dovetail.ir.graph import Value
from dovetail.ir.op import Op
from dovetail.ir.types import Unknown
from dovetail.ops.recurrent.cell_math import ArrayBackend, GraphBackend, unroll
from dovetail.ops.recurrent.layers import GRU, LSTM, RNN, X_AXES, RecurrentLayer, linear_gru_step
from dovetail.ops.recurrent.layouts import convert_form, pad_inputs

LAYERS = (RNN, GRU, LSTM)


class RecurrentSteps(
    Op, sig="moments: F, r: F, inner?: F, lengths?: I, h?: F, c?: F -> y: F, last_h: F, last_c: F", is_registered=False
):
    """A recurrent ``layer`` (sequence first) after the product of all its inputs. Not one of a model's operators.

    ``moments``: [sequence, batch, directions * gates * hidden], the biases in them. ``inner``: [directions, hidden], what a GRU
    adds to its state's product before it is reset.
    """

    layer: Any
    outputs: int = 3

    def shape(self, moments: Any, r: Any, *rest: Any) -> Any:
        length, batch, _ = moments.dims
        directions, hidden = self.layer.directions, r.dims[2]
        state = (directions, batch, hidden)
        return [(length, directions, batch, hidden), state, state][: self.outputs]

    def evaluate(
        self, xp: Any, moments: Any, r: Any, inner: Any = None, lengths: Any = None, h: Any = None, c: Any = None
    ) -> Any:
        m, layer, size = ArrayBackend(xp), self.layer, r.shape[2]
        rows = layer.gate_count * size
        layer.check_lengths(xp, lengths, {"s": moments.shape[0]})
        made, last = [], []
        for place in range(layer.directions):
            begin = [m.zeros(moments, moments, 1, size) if state is None else state[place, ...] for state in (h, c)]
            if isinstance(layer, GRU):
                f, g = layer.make_activations(m, place)
                step = linear_gru_step(
                    m, f, g, m.prepare_weights(r[place, ...]), None if inner is None else inner[place, ...], size
                )
            else:
                step, _ = layer.make_step(m, place, size, r[place, ...], None)
            own = [moments[t, :, place * rows : (place + 1) * rows] for t in range(moments.shape[0])]
            backwards = layer.direction == "reverse" or place == 1
            put_out, end = unroll(m, own, step, tuple(begin[: layer.state_count]), lengths, backwards)
            made.append(m.stack(put_out, 0) if put_out else m.zeros(moments, moments, 1, size, (0,)))
            last.append(end)
        ends = [m.stack([each[index] for each in last], 0) for index in range(layer.state_count)]
        return (m.stack(made, 1), *ends)[: self.outputs]


class CheckedLengths(Op, sig="lengths: I -> y: I", is_registered=False):
    """``lengths``, each in [0, ``steps``]. Not one of a model's operators. Raises EngineError [recurrent.lengths]."""

    layer: Any
    steps: int

    def shape(self, lengths: Any) -> Any:
        return lengths.shape

    def value(self, lengths: Any) -> Any:
        # A known value would be folded, and never refused.
        raise Unknown

    def evaluate(self, xp: Any, lengths: Any) -> Any:
        self.layer.check_lengths(xp, lengths, {"s": self.steps})
        return lengths


def with_checked_lengths(b: Builder, op: Any, xs: list[Value | None]) -> list[Value | None]:
    """The inputs of a layer that is written step by step, where nothing else would refuse a length that is out of range."""
    if not isinstance(op, RecurrentLayer):
        return xs
    given = pad_inputs(op, xs)
    x, lengths = given[0], given[4]
    if x is None or lengths is None or (lengths.node is not None and isinstance(lengths.node.op, CheckedLengths)):
        return xs
    steps = x.dims[X_AXES[op.layout].index("s")]
    return [*given[:4], b.add(CheckedLengths(layer=op, steps=steps), lengths)[0], *given[5:]]


def by_moments(b: Builder, op: Any, xs: list[Value | None]) -> Any:
    """A layer of f32 through :class:`RecurrentSteps`, where the kernel knows what its cell does; else None."""
    given = pad_inputs(op, xs)
    x, w, r, bias, lengths, *rest = given
    if x is None or x.dtype.name != "f32" or x.shape is None or len(x.shape) != 3 or x.shape[0] == 0 or r.constant is None:
        return None
    if not cell_of(op) or any(value is not None for value in rest[op.state_count :]):
        return None
    if op.layout != "sequence_first":
        with b:
            return convert_form(b, op, given, layout="sequence_first")
    m, size = GraphBackend(b), r.constant.shape[2]
    with b:
        factor = b.Reshape(w, [op.directions * op.gate_count * size, -1])
        moments = b.MatMul(x, factor, transpose_b=True)
        inner = None
        if bias is not None:
            pieces = [m.index(bias, place) for place in range(op.directions)]
            moments = moments + m.concat([op.input_bias(m, piece, size) for piece in pieces], 0)
            if isinstance(op, GRU):
                inner = m.stack([piece[-size:] for piece in pieces], 0)
        states = [*rest[: op.state_count], None][:2]
        return b.add(RecurrentSteps(layer=op, outputs=op.outputs), moments, r, inner, lengths, *states)


def cell_of(op: RecurrentLayer) -> str:
    """What the kernel calls the cell of a layer; empty for one that it does not know."""
    functions = {
        op.activations_of(place)[index][0] for place in range(op.directions) for index in range(len(op.default_activations))
    }
    if op.clip:
        return ""
    if isinstance(op, RNN):
        return functions.pop() if functions in ({"tanh"}, {"relu"}) else ""
    if any(tuple(name for name, _, _ in op.activations_of(place)) != op.default_activations for place in range(op.directions)):
        return ""
    return "lstm" if isinstance(op, LSTM) else "gru" if isinstance(op, GRU) and op.linear_before_reset else ""

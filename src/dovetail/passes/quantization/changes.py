"""Changes of the results of products, convolutions and lookups, where their weights and inputs are rounded."""

from __future__ import annotations

from typing import NamedTuple

from dovetail.ir.builder import Builder
from dovetail.ir.graph import Node, Value
from dovetail.ops.linalg.matmul import Gemm
from dovetail.ops.nn.conv import Convolution
from dovetail.passes.quantization.activations import Activation
from dovetail.passes.quantization.codes import Array
from dovetail.passes.quantization.weights import ModelWeight


class RoundedOperands(NamedTuple):
    """RoundedOperands holds the change ``delta`` of a weight; with a grid of the activations, also the ``rounded`` weight.

    ``shifts`` are those of the weight, by the identity of its nodes.
    """

    delta: Value
    rounded: Value | None
    activation: Activation | None
    shifts: dict[int, Array]


def operands_of(b: Builder, weight: ModelWeight) -> RoundedOperands:
    """Return the constants of a rounded weight that :func:`change_of` takes."""
    assert weight.rounded is not None
    rounded = weight.rounded.data(weight)
    dtype = weight.value.dtype
    delta = b.constant((rounded - weight.data).astype(dtype.numpy), dtype)
    whole = None if weight.activation is None else b.constant(rounded.astype(dtype.numpy), dtype)
    pairs = zip(weight.readers, weight.shifts, strict=True) if weight.shifts else ()
    shifts = {id(node): shift for (node, _), shift in pairs if shift is not None}
    return RoundedOperands(delta, whole, weight.activation, shifts)


def change_of(b: Builder, node: Node, index: int, operands: RoundedOperands) -> Value:
    """Emit the change of a node's result for rounded weights, rounded activations if they have a grid, and a corrected bias.

    The node is linear in both: ``f(x', w') - f(x, w) = f(x, w' - w) + f(x' - x, w')``.
    """
    inputs = list(node.inputs)
    inputs[index] = operands.delta
    if isinstance(node.op, Gemm | Convolution) and len(inputs) > 2 and _is_bias(node):
        inputs[2] = None
    change: Value = b.add(node.op, *inputs)[0]
    if operands.activation is not None:
        x = node.input(0)
        inputs[0], inputs[index] = b.Subtract(operands.activation.apply(b, x), x), operands.rounded
        change = b.Add(change, b.add(node.op, *inputs)[0])
    shift = operands.shifts.get(id(node))
    if shift is not None:
        axis, rank = channel_axis(node), len(node.outputs[0].dims)
        change = b.Add(change, b.constant(shift.reshape(-1, *[1] * (rank - 1 - axis)).astype(change.dtype.numpy), change.dtype))
    return change


def channel_axis(node: Node) -> int:
    """Return the axis of the output channels in the result of a product or convolution, whose rank must be known."""
    return 1 if isinstance(node.op, Convolution) else len(node.outputs[0].dims) - 1


def _is_bias(node: Node) -> bool:
    return node.op.signature.inputs[2].name in ("bias", "c")

"""Correction of biases: the mean change of a node's result on rows is subtracted from the constant bias that is added to it.

Source: Nagel, van Baalen, Blankevoort, Welling, "Data-Free Quantization Through Weight Equalization and Bias Correction", 2019,
section 4.2 (empirical bias correction).
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from dovetail.ir import dtypes
from dovetail.ir.builder import Builder
from dovetail.ir.edit import remove_dead, set_input
from dovetail.ir.graph import Graph, Model, Node, Value
from dovetail.ops.casts import as_type
from dovetail.ops.elementwise.binary import Add
from dovetail.ops.linalg.matmul import Gemm
from dovetail.ops.nn.conv import Convolution
from dovetail.passes.quantization.calibration import Call, count_rows, keep_initial_states
from dovetail.passes.quantization.changes import change_of, channel_axis, operands_of
from dovetail.passes.quantization.codes import Array
from dovetail.passes.quantization.weights import ModelWeight
from dovetail.runtime.compilation import compile


def find_bias(node: Node) -> tuple[Node, int] | None:
    """Return the node and the index of the input that is the constant bias of a product or convolution; None without one.

    It is the third input, or the other input of an Add that alone reads the result; with one element for each channel.
    """
    y = node.outputs[0]
    if y.shape is None:
        return None
    axis = channel_axis(node)
    channels = y.dims[axis]
    if isinstance(node.op, Gemm | Convolution) and len(node.inputs) > 2 and node.op.signature.inputs[2].name in ("bias", "c"):
        bias = node.inputs[2]
        is_plain = not isinstance(node.op, Gemm) or node.op.beta == 1
        return (node, 2) if bias is not None and is_plain and _is_vector(bias, channels, 0) else None
    uses = list(y.uses)
    if len(uses) != 1 or not isinstance(uses[0][0].op, Add):
        return None
    reader, index = uses[0]
    bias = reader.inputs[1 - index]
    return (reader, 1 - index) if bias is not None and _is_vector(bias, channels, len(y.dims) - 1 - axis) else None


def _is_vector(bias: Value, channels: object, trailing: int) -> bool:
    """Return whether a constant has one element for each channel, in front of ``trailing`` axes of size 1."""
    if bias.constant is None or bias.dtype != "f32":
        return False
    shape = bias.constant.shape
    kept = shape[: len(shape) - trailing]
    return len(kept) > 0 and kept[-1] == channels == bias.constant.size


def find_shifts(model: Model, weights: Sequence[ModelWeight], calls: Sequence[Call]) -> list[list[Array | None]]:
    """Return for each weight the shifts of its readers' biases; None where there is no bias, or where a shift would not help.

    The mean change of the even calls is judged by that of the odd calls: subtracting it must make the latter smaller.
    The weights are values of ``model``, whose graph changes.
    """
    graph = model.graph
    b = Builder(graph=graph)
    means: list[list[Value | None]] = []
    for weight in weights:
        operands = operands_of(b, weight)
        values: list[Value | None] = []
        for node, index in weight.readers:
            if find_bias(node) is None:
                values.append(None)
                continue
            change = as_type(b, change_of(b, node, index, operands), dtypes.f32)
            axis = channel_axis(node)
            values.append(b.ReduceMean(change, [other for other in range(len(change.dims)) if other != axis], keepdims=False))
        means.append(values)
    keep_initial_states(model)
    names = [[None if value is None else b.output(graph.free_name("mean"), value).name for value in values] for values in means]
    remove_dead(graph)
    program = compile(model)
    results = [{name: np.asarray(array, np.float64) for name, array in dict(program(call)).items()} for call in calls]

    rows = [count_rows(call) for call in calls]
    return [[None if name is None else _judge([result[name] for result in results], rows) for name in each] for each in names]


def _judge(changes: Sequence[Array], rows: Sequence[int]) -> Array | None:
    """Return the shift for the mean changes of some calls; None if that of the even calls does not help in the odd calls."""
    fit, judge = (np.average(changes[half::2], axis=0, weights=rows[half::2]) for half in (0, 1))
    if not np.linalg.norm(judge - fit) < np.linalg.norm(judge):
        return None
    shift: Array = -np.average(changes, axis=0, weights=rows).astype(np.float32)
    return shift


def shift_biases(graph: Graph, weight: ModelWeight) -> None:
    """Add the shifts of a weight to the biases of its readers."""
    for (node, _), shift in zip(weight.readers, weight.shifts, strict=True) if weight.shifts else ():
        place = find_bias(node)
        if shift is None or place is None:
            continue
        reader, index = place
        bias = reader.input(index)
        assert bias.constant is not None
        mark = len(graph.nodes)
        new = Builder(graph=graph).constant(
            bias.constant + shift.reshape(bias.constant.shape), bias.dtype, f"{bias.name}_corrected"
        )
        graph.nodes = graph.nodes[mark:] + graph.nodes[:mark]
        set_input(reader, index, new)

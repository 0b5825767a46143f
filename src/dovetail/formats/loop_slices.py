"""Rewrite loops with sliced inputs and concatenated outputs, for formats whose loops lack them."""

from __future__ import annotations

from typing import Any

from dovetail.ir import dtypes
from dovetail.ir.builder import Builder
from dovetail.ir.edit import copy_graph, replace_uses
from dovetail.ir.graph import Node, Value
from dovetail.ir.types import Tensor, Type
from dovetail.ops.control_flow.loop import Loop


def slice_inside_body(b: Builder, node: Node) -> list[Value]:
    """Rewrite a loop so that its body slices its inputs, and its scan outputs are stacked along a new first axis.

    After the loop, the stacked parts of each output are transposed and concatenated along the axis of the scan output.
    """
    op: Any = node.op
    trips, condition, *xs = (*node.inputs, None, None)[: max(2, len(node.inputs))]
    body = copy_graph(op.body)
    inner = Builder(graph=body)
    first, last = 1 + op.carried, 1 + op.carried + len(op.scan_inputs)
    mark = len(body.nodes)
    if op.scan_inputs:
        if trips is None:
            axis, size, _ = op.scan_inputs[0]
            length = b.apply("Gather", b.apply("Shape", xs[op.carried], output_type=dtypes.i64), [axis], axis=0)
            trips = b.apply("Squeeze", length if size == 1 else b.apply("Divide", length, size), [0])
        for index, (axis, size, is_reversed) in zip(range(first, last), op.scan_inputs, strict=True):
            _slice_input(inner, index, axis, size, is_reversed, xs[index - 1])
        body.nodes = body.nodes[mark:] + body.nodes[:mark]
    for index in range(1 + op.carried, len(body.outputs)):
        body.outputs[index] = inner.apply("Unsqueeze", body.outputs[index], [0])
    count = len(op.scan_outputs)
    loop = Loop(body=body, carried=op.carried, scan_outputs=((0, False),) * count, outputs=op.outputs)
    outputs = b.add(loop, trips, condition, *xs)
    parts = [value.type for value in op.body.outputs[1 + op.carried :]]
    concatenated = [_concat_parts(b, y, *item) for y, *item in zip(outputs[op.carried :], parts, op.scan_outputs, strict=True)]
    return [*outputs[: op.carried], *concatenated]


def has_unit_parts(op: Any) -> bool:
    """Return whether the parts of all scan outputs have size 1 along their concatenation axis."""
    parts = op.body.outputs[1 + op.carried :]
    return all(
        value.shape is not None and len(value.shape) > axis and value.shape[axis] == 1
        for value, (axis, _) in zip(parts, op.scan_outputs, strict=True)
    )


def _slice_input(b: Builder, index: int, axis: int, size: int, is_reversed: bool, x: Any) -> None:
    """Replace the sliced body input ``index`` by an input for the full tensor and a Slice in the body."""
    body = b.graph
    old = body.inputs[index]
    full_input = Value(body.claim(f"{old.name}_whole"), x.type)
    trip = body.inputs[0]
    if is_reversed:
        length = b.apply("Squeeze", b.apply("Gather", b.apply("Shape", full_input, output_type=dtypes.i64), [axis], axis=0), [0])
        end = b.apply("Subtract", length, b.apply("Multiply", trip, size))
        start = b.apply("Subtract", end, size)
    else:
        start = b.apply("Multiply", trip, size)
        end = b.apply("Add", start, size)
    part = b.apply("Slice", full_input, b.apply("Unsqueeze", start, [0]), b.apply("Unsqueeze", end, [0]), [axis], [1])
    replace_uses(body, old, part)
    body.inputs[index] = full_input


def _concat_parts(b: Builder, y: Value, part: Type, entry: tuple[int, bool]) -> Value:
    """Concatenate, along the axis in ``entry``, the parts that ``y`` stacks along its first axis."""
    axis, is_reversed = entry
    if is_reversed:
        y = b.apply("Slice", y, [-1], [-(2**63)], [0], [-1])
    rank = len(y.dims) - 1
    if axis:
        y = b.apply("Transpose", y, [*range(1, axis + 1), 0, *range(axis + 1, rank + 1)])
    if isinstance(part, Tensor) and part.shape is not None and part.shape[axis] == 1:
        return b.apply("Squeeze", y, [axis + 1])  # type: ignore[no-any-return]
    shape = b.apply("Shape", y, output_type=dtypes.i64)
    before, after = list(range(axis)), list(range(axis + 2, rank + 1))
    merged = b.apply("Multiply", *(b.apply("Gather", shape, [merged_axis], axis=0) for merged_axis in (axis, axis + 1)))
    pieces = [b.apply("Gather", shape, before, axis=0)] if before else []
    pieces += [merged, *([b.apply("Gather", shape, after, axis=0)] if after else [])]
    target = b.apply("Concat", *pieces, axis=0) if len(pieces) > 1 else merged
    return b.apply("Reshape", y, target, special_zero=False)  # type: ignore[no-any-return]

"""Pass ``identities``: operators that return an input unchanged are removed."""

from __future__ import annotations

import numpy as np

from dovetail.ir.builder import Builder
from dovetail.ir.graph import Graph, Node, Value
from dovetail.ir.types import Tensor
from dovetail.ops.constant import Identity
from dovetail.ops.elementwise.binary import Maximum, Mean, Minimum, Sum
from dovetail.ops.elementwise.cast import Cast, CastLike, is_without_effect
from dovetail.ops.nn.dropout import Dropout, is_inference
from dovetail.ops.nn.resize import Resize
from dovetail.ops.runtime_attributes import RuntimeAttributes, as_attributes
from dovetail.ops.shape_values import integers_of
from dovetail.ops.tensor.concat_split import Concat, Split
from dovetail.ops.tensor.pad import Pad
from dovetail.ops.tensor.reshape import Flatten, Reshape, Squeeze, Unsqueeze
from dovetail.ops.tensor.slice import Slice
from dovetail.ops.tensor.transpose_expand_tile import Expand, Tile, Transpose
from dovetail.passes.simplification.rules import Result, Rules, Target, apply_rules, are_equal_shapes, is_among, producer


def remove_identities(graph: Graph, target: Target) -> int:
    """Remove nodes whose output has the bits of an input for all inputs. Returns their number."""
    return apply_rules(graph, {**RULES, Identity: _remove_in_subgraph} if target.is_subgraph else RULES, target)


def _first_input(b: Builder, node: Node) -> Result:
    return node.input(0)


def _remove_in_subgraph(b: Builder, node: Node) -> Result:
    """Keep an Identity that Scan needs: between a result of the body and the same result as a scan output."""
    x, y = node.input(0), node.outputs[0]
    is_scan_output = all(isinstance(each.op, Unsqueeze) and is_among(each.outputs[0], b.graph.outputs) for each, _ in y.uses)
    return None if y.uses and is_scan_output and is_among(x, (*b.graph.inputs, *b.graph.outputs)) else x


def _only_input(b: Builder, node: Node) -> Result:
    return node.input(0) if len(node.inputs) == 1 else None


def _unchanged_shape(b: Builder, node: Node) -> Result:
    """Return the input of an operator that moves no element where its shape stays."""
    x = node.input(0)
    return x if are_equal_shapes(x.shape, node.outputs[0].shape) else None


def _cast(b: Builder, node: Node) -> Result:
    """Remove a Cast to the same type, and an exact Cast before another one."""
    op, x = node.op, node.input(0)
    assert isinstance(op, Cast)
    if not isinstance(x.type, Tensor) or x.type.dtype is None or op.source is not None:
        return None
    if x.type.dtype is op.to:
        return x
    inner = producer(x, Cast)
    if inner is None or not isinstance(inner.op, Cast) or inner.op.source is not None:
        return None
    source = inner.input(0)
    if (
        not isinstance(source.type, Tensor)
        or source.type.dtype is None
        or not is_without_effect(source.type.dtype, x.type.dtype, op.to)
    ):
        return None
    return source if source.type.dtype is op.to else b.add(op, source)


def _cast_like(b: Builder, node: Node) -> Result:
    """Write CastLike as Cast, which does not read the value of the type."""
    op, like = node.op, node.input(1).type
    assert isinstance(op, CastLike)
    return b.add(op.cast(like.dtype), node.inputs[0]) if isinstance(like, Tensor) and like.dtype is not None else None


def _dropout(b: Builder, node: Node) -> Result:
    """Remove Dropout outside training mode where nothing reads its mask."""
    if not is_inference(node.inputs[2] if len(node.inputs) > 2 else None):
        return None
    if any(y.uses or is_among(y, b.graph.outputs) for y in node.outputs[1:]):
        return None
    return [node.input(0), None][: len(node.outputs)]


def _pad(b: Builder, node: Node) -> Result:
    pads = integers_of(node.inputs[1])
    return node.input(0) if pads is not None and not any(pads) else None


def _slice(b: Builder, node: Node) -> Result:
    """Remove a Slice with steps of 1 that keeps the shape."""
    steps = node.inputs[4] if len(node.inputs) > 4 else None
    numbers = [] if steps is None else integers_of(steps)
    return _unchanged_shape(b, node) if numbers is not None and all(step == 1 for step in numbers) else None


def _transpose(b: Builder, node: Node) -> Result:
    order = permutation_of(node)
    return node.input(0) if order is not None and order == sorted(order) else None


def permutation_of(node: Node) -> list[int] | None:
    """Return the permutation of a Transpose; None where it is unknown."""
    x, perm = node.input(0), node.inputs[1] if len(node.inputs) > 1 else None
    if not isinstance(x.type, Tensor) or x.type.shape is None:
        return None
    rank = len(x.type.shape)
    order = [] if perm is None else integers_of(perm)
    return order if order is None or order else list(reversed(range(rank)))


def _tile(b: Builder, node: Node) -> Result:
    repeats = integers_of(node.inputs[1])
    return _unchanged_shape(b, node) if repeats is not None and all(count == 1 for count in repeats) else None


def _resize(b: Builder, node: Node) -> Result:
    """Remove a nearest Resize to the same sizes: at the factor 1 every index is its own source."""
    op, x = node.op, node.input(0)
    assert isinstance(op, Resize)
    if op.mode != "nearest" or op.coordinate_transformation_mode == "tf_crop_and_resize":
        return None
    scales: Value | None = node.inputs[2] if len(node.inputs) > 2 else None
    if scales is not None and (scales.constant is None or not np.all(np.asarray(scales.constant) == 1)):
        return None
    return x if are_equal_shapes(x.shape, node.outputs[0].shape) else None


def _split(b: Builder, node: Node) -> Result:
    return [node.input(0)] if len(node.outputs) == 1 else None


def _known_attributes(b: Builder, node: Node) -> Result:
    return as_attributes(b, node)


RULES: Rules = {
    Cast: _cast,
    CastLike: _cast_like,
    Concat: _only_input,
    Dropout: _dropout,
    Expand: _unchanged_shape,
    Flatten: _unchanged_shape,
    Identity: _first_input,
    Maximum: _only_input,
    Mean: _only_input,
    Minimum: _only_input,
    Pad: _pad,
    Reshape: _unchanged_shape,
    Resize: _resize,
    RuntimeAttributes: _known_attributes,
    Slice: _slice,
    Split: _split,
    Squeeze: _unchanged_shape,
    Sum: _only_input,
    Tile: _tile,
    Transpose: _transpose,
    Unsqueeze: _unchanged_shape,
}

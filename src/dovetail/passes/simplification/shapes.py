"""Pass ``shapes``: integers and booleans that inference knows become constants, and shape inputs that it knows in part too."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from dovetail.ir import dtypes, symbolic
from dovetail.ir.builder import Builder
from dovetail.ir.graph import Graph, Node, Value
from dovetail.ir.op import draws
from dovetail.ir.rewrite import rewrite
from dovetail.ir.types import INT64_MAX, Shape, Size, Tensor
from dovetail.ops.constant import Constant
from dovetail.ops.shape_values import elements_of, integers_of
from dovetail.ops.tensor.reshape import Flatten, Reshape
from dovetail.ops.tensor.slice import Slice
from dovetail.ops.tensor.transpose_expand_tile import Expand
from dovetail.passes.simplification.rules import Result, Rules, Target, apply_rules, is_among

MAX_ELEMENTS = 256
"""The most elements of a known value that becomes a constant."""


def fold_known_values(graph: Graph, target: Target) -> int:
    """Replace integer and boolean values that inference knows by constants, and computed shapes by constant ones.

    Returns the number of replaced nodes.
    """

    def rule(b: Builder, node: Node) -> list[Value | None] | None:
        if isinstance(node.op, Constant) or not node.inputs or node.op.holds_graphs or draws(node.op, node.inputs):
            return None
        arrays = [known_array(y) for y in node.outputs]
        if any(array is None for array in arrays) or any(is_among(y, b.graph.outputs) for y in node.outputs):
            return None
        target.log(node)
        return [
            None if array is None or not y.uses else b.constant(array, y.dtype)
            for y, array in zip(node.outputs, arrays, strict=True)
        ]

    return rewrite(graph, rule) + apply_rules(graph, RULES, target)


def known_array(value: Value) -> np.ndarray[Any, Any] | None:
    """Return the elements of an integer or boolean value where inference knows all of them, else None."""
    type = value.type
    if not isinstance(type, Tensor) or type.dtype is None or not (type.dtype.is_integer or type.dtype.name == "boolean"):
        return None
    if type.dtype.bits < 8 and type.dtype.name != "boolean":
        return None
    known = value.value
    if known is None or np.size(known) > MAX_ELEMENTS:
        return None
    items = np.ravel(known).tolist()
    kinds = bool if type.dtype.name == "boolean" else int
    if not all(isinstance(item, kinds) for item in items):
        return None
    return np.array(items, dtype=type.dtype.numpy).reshape(np.shape(known))


def constant_target(source: Shape, result: Shape, refused: Sequence[Size] = ()) -> list[int] | None:
    """Return a constant shape with which Reshape makes ``result`` of ``source``: 0 copies a size, -1 is computed.

    None where there is none. A -1 beside a copied size refuses the size 0, and stands there only if the replaced operators
    refuse it too: ``refused`` has the sizes that must not be 0 for them.
    """
    sizes: list[int] = []
    copied: list[Size] = []
    for axis, size in enumerate(result):
        if isinstance(size, int):
            if size == 0:
                return None
            sizes.append(size)
        elif axis < len(source) and symbolic.equal(size, source[axis]) is True:
            sizes.append(0)
            copied.append(size)
        else:
            sizes.append(-1)
    if sizes.count(-1) > 1:
        return None
    if -1 in sizes and any(symbolic.less_equal(1, size) is not True and size not in refused for size in copied):
        return None
    return sizes


def refused_sizes(node: Node) -> list[Size]:
    """Return the sizes that must not be 0 for a Reshape with -1; none for other operators."""
    if not isinstance(node.op, Reshape):
        return []
    wanted, shape = elements_of(node.inputs[1]), node.input(0).shape
    if wanted is None or shape is None or -1 not in wanted or node.op.empty != "refuse":
        return []
    copies = node.op.special_zero
    return [shape[axis] if size == 0 and copies and axis < len(shape) else size for axis, size in enumerate(wanted) if size != -1]


def _reshape(b: Builder, node: Node) -> Result:
    """Write a constant shape in place of a computed one."""
    op, x, shape, y = node.op, node.input(0), node.input(1), node.outputs[0]
    assert isinstance(op, Reshape)
    if shape.constant is not None or x.shape is None or y.shape is None:
        return None
    sizes = constant_target(x.shape, y.shape, refused_sizes(node))
    if sizes is not None:
        return b.Reshape(x, sizes)
    return _flatten(b, x, y)


def _flatten(b: Builder, x: Value, y: Value) -> Result:
    """Write Flatten at axis 1, which copies a size of 0; None where the shapes are others."""
    if x.shape is None or y.shape is None or len(y.shape) != 2 or len(x.shape) < 2:
        return None
    rows, columns = Flatten(1).shape(x)
    same = symbolic.equal(rows, y.shape[0]) is True and symbolic.equal(columns, y.shape[1]) is True
    return b.Flatten(x, axis=1) if same else None


def _expand(b: Builder, node: Node) -> Result:
    """Write a constant shape in place of a computed one: 1 keeps a size of the input."""
    op, x, shape, y = node.op, node.input(0), node.input(1), node.outputs[0]
    assert isinstance(op, Expand)
    if shape.constant is not None or x.shape is None or y.shape is None or not op.bidirectional:
        return None
    before = (1,) * (len(y.shape) - len(x.shape)) + x.shape
    sizes: list[int] = []
    for size, old in zip(y.shape, before, strict=True):
        if isinstance(size, int):
            sizes.append(size)
        elif symbolic.equal(size, old) is True:
            sizes.append(1)
        else:
            return None
    return b.Expand(x, sizes)


def _slice(b: Builder, node: Node) -> Result:
    """Write constant bounds in place of computed ones: those at the end of an axis."""
    x, starts, ends = (node.input(index) for index in range(3))
    axes, steps = ([*node.inputs, None, None])[3:5]
    if starts.constant is not None and ends.constant is not None:
        return None
    if x.shape is None or (starts.dtype != "i64" and starts.dtype != "i32"):
        return None
    first, last = elements_of(starts), elements_of(ends)
    indices = list(range(len(last or []))) if axes is None else integers_of(axes)
    step = [1] * len(last or []) if steps is None else integers_of(steps)
    if first is None or last is None or indices is None or step is None or any(item != 1 for item in step):
        return None
    bounds: list[tuple[int, int]] = []
    for begin, end, axis in zip(first, last, indices, strict=True):
        if not isinstance(begin, int):
            return None
        if not isinstance(end, int):
            if symbolic.less_equal(x.shape[axis], end) is not True:
                return None
            end = INT64_MAX
        bounds.append((begin, end))
    new_starts, new_ends = (b.constant([pair[index] for pair in bounds], dtypes.i64) for index in (0, 1))
    return b.Slice(x, new_starts, new_ends, indices)


RULES: Rules = {Expand: _expand, Reshape: _reshape, Slice: _slice}

"""Converters for Split and Reshape, whose versions differ by more than an op mapping can express."""

from __future__ import annotations

from typing import Any

import numpy as np

from dovetail.errors import FormatError, RuleError
from dovetail.formats.import_context import ImportContext
from dovetail.formats.import_node import constant_of
from dovetail.formats.onnx.dialect import ONNX
from dovetail.ir import symbolic
from dovetail.ir.builder import Builder
from dovetail.ir.graph import Node, Value
from dovetail.ir.op import Op
from dovetail.ops.shape_values import as_i64, elements_of
from dovetail.ops.tensor.concat_split import Split


@ONNX.importer("Split", 1)
def import_split_1(ctx: ImportContext) -> list[Value] | None:
    """Import Split-1, whose lengths may be a second input with the element type of the data."""
    lengths = ctx.optional_input(1)
    if lengths is None:
        return None
    if "split" in ctx.node.attributes:
        raise FormatError("split.sizes", "Split: lengths must be an attribute or an input, got both")
    axis = ctx.attribute("axis", "int", 0)
    if axis < 0:
        raise FormatError("attribute.value", f"Split: axis must be a non-negative 64-bit integer, got {axis}")
    if lengths.dtype is not ctx.input(0).dtype:
        raise RuleError(
            "type.disagree", f"Split-1: data and lengths must have one element type, got {ctx.input(0).dtype} and {lengths.dtype}"
        )
    data = constant_of(lengths, "Split: the lengths").astype(np.float64)
    if not np.array_equal(data, np.trunc(data)) or np.abs(data).max(initial=0) > 2**53:
        raise FormatError("split.sizes", f"Split: lengths must be integers, got {data.tolist()}")
    ctx.scope.constants.mark_folded_constant(lengths)
    outputs: list[Value] = ctx.b.Split(ctx.input(0), data.astype(np.int64), axis=axis, outputs=len(ctx.node.outputs))
    return outputs


@ONNX.importer("Split", 18)
def import_split_18(ctx: ImportContext) -> Op | None:
    """Import Split-18, which must have either lengths or num_outputs."""
    if (ctx.optional_input(1) is None) == ("num_outputs" not in ctx.node.attributes):
        actual = "neither" if ctx.optional_input(1) is None else "both"
        raise FormatError("split.sizes", f"Split must have either lengths or num_outputs, got {actual}")
    if ctx.optional_input(1) is not None:
        return None
    return Split(ctx.attribute("axis", "int", 0), ctx.attribute("num_outputs", "int"), ragged=True)


@ONNX.legalize("Reshape")
def legalize_reshape(b: Builder, node: Node) -> Any:
    """Legalize a Reshape of OpenVINO that combines -1 with sizes of 0; ONNX refuses that combination at run time.

    The exact result for empty tensors would need twenty nodes for every Reshape with unknown sizes. It is exported (by
    ``decompose``) only if a size is known to be 0.
    """
    with_i64 = legalize_split(b, node)
    op: Any = node.op
    x = node.inputs[0]
    if with_i64 is not None or op.empty != "cancel" or x is None or x.shape is None or 0 in x.shape:
        return with_i64
    if not op.special_zero:
        # Without copied sizes (special_zero) the target has no 0 at run time.
        return b.Reshape(x, node.input(1), special_zero=False)
    target = constant_target(x, node.inputs[1], node.outputs[0])
    return b.Reshape(x, node.input(1) if target is None else target)


def constant_target(x: Value, target: Value | None, y: Value) -> list[int] | None:
    """Return the target of a Reshape as constants; None if an element is not known.

    The result has 0 for an element that equals the size of ``x`` at its axis, and a known size of ``y`` for -1.
    """
    elements = None if target is None else elements_of(target)
    if elements is None or x.shape is None or y.shape is None:
        return None
    sizes: list[int] = []
    for axis, (size, y_size) in enumerate(zip(elements, y.shape, strict=True)):
        if isinstance(size, int):
            sizes.append(y_size if size == -1 and isinstance(y_size, int) and y_size else size)
        elif axis < len(x.shape) and symbolic.equal(x.shape[axis], size) is True:
            sizes.append(0)
        else:
            return None
    return sizes


@ONNX.legalize("Split")
def legalize_split(b: Builder, node: Node) -> Any:
    """Legalize Split and Reshape: cast lengths or target to i64."""
    vector = node.inputs[1] if len(node.inputs) > 1 else None
    if vector is None or vector.dtype == "i64":
        return None
    data = vector.constant
    if data is None:
        exact: Any = as_i64(b, vector)
    elif all(int(item) < 2**63 for item in data.reshape(-1).tolist()):
        exact = data.astype(np.int64)
    else:
        return None
    split = b.add(node.op, node.inputs[0], exact)
    return split

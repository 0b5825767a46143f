"""Split and Reshape where a version of ONNX says more than a slot line, or takes fewer types."""

from __future__ import annotations

from typing import Any

import numpy as np

from dovetail import symbolic
from dovetail.errors import FormatError, RuleError
from dovetail.formats.import_context import ImportContext
from dovetail.formats.import_node import constant_of
from dovetail.formats.onnx.dialect import ONNX
from dovetail.ir.builder import Builder
from dovetail.ir.graph import Node, Value
from dovetail.ir.op import Op
from dovetail.ops.shape_values import as_i64, elements_of
from dovetail.ops.tensor.concat_split import Split


@ONNX.importer("Split", 1)
def import_split_1(ctx: ImportContext) -> list[Value] | None:
    """The lengths may also be the second input, in the type of the data."""
    lengths = ctx.optional_input(1)
    if lengths is None:
        return None
    if "split" in ctx.node.attributes:
        raise FormatError("split.sizes", "Split has its lengths both as an attribute and as an input")
    axis = ctx.attribute("axis", "int", 0)
    if axis < 0:
        raise FormatError("attribute.value", f"Split: axis = {axis} is not 0 or a positive 64-bit integer")
    if lengths.dtype is not ctx.input(0).dtype:
        raise RuleError("type.disagree", f"element types {ctx.input(0).dtype}, {lengths.dtype} should be equal")
    data = constant_of(lengths, "Split: the lengths").astype(np.float64)
    if not np.array_equal(data, np.trunc(data)) or np.abs(data).max(initial=0) > 2**53:
        raise FormatError("split.sizes", f"lengths {data.tolist()} are no whole numbers")
    ctx.scope.constants.mark_folded(lengths)
    made: list[Value] = ctx.b.Split(ctx.input(0), data.astype(np.int64), axis=axis, outputs=len(ctx.node.outputs))
    return made


@ONNX.importer("Split", 18)
def import_split_18(ctx: ImportContext) -> Op | None:
    """Exactly one of the lengths and num_outputs."""
    if (ctx.optional_input(1) is None) == ("num_outputs" not in ctx.node.attributes):
        how = "neither" if ctx.optional_input(1) is None else "both"
        raise FormatError("split.outputs", f"Split needs the lengths or num_outputs, and has {how}")
    if ctx.optional_input(1) is not None:
        return None
    return Split(ctx.attribute("axis", "int", 0), ctx.attribute("num_outputs", "int"), ragged=True)


@ONNX.legalize("Reshape")
def legalize_reshape(b: Builder, node: Node) -> Any:
    """As ONNX has it: where a size may turn out to be 0, -1 beside it is then refused at run time, and OpenVINO would answer.

    The exact answer for an empty batch would cost twenty nodes at every Reshape of a model with open sizes; where a size is
    known to be 0, it is given (by ``decompose``).
    """
    made = legalize_split(b, node)
    op: Any = node.op
    x = node.inputs[0]
    if made is not None or op.empty != "cancel" or x is None or x.shape is None or 0 in x.shape:
        return made
    if not op.copy_zeros:
        # Without a 0 that copies nothing cancels.
        return b.Reshape(x, node.input(1), copy_zeros=False)
    target = written_sizes(x, node.inputs[1], node.outputs[0])
    return b.Reshape(x, node.input(1) if target is None else target)


def written_sizes(x: Value, target: Value | None, y: Value) -> list[int] | None:
    """The target as a constant: numbers as they are, a computed size as the number it is, a size of ``x`` as a 0 that copies it.

    None where an element is none of these.
    """
    wanted = None if target is None else elements_of(target)
    if wanted is None or x.shape is None or y.shape is None:
        return None
    found: list[int] = []
    for axis, (size, made) in enumerate(zip(wanted, y.shape, strict=True)):
        if isinstance(size, int):
            found.append(made if size == -1 and isinstance(made, int) and made else size)
        elif axis < len(x.shape) and symbolic.equal(x.shape[axis], size) is True:
            found.append(0)
        else:
            return None
    return found


@ONNX.legalize("Split")
def legalize_split(b: Builder, node: Node) -> Any:
    """Targets and lengths are i64."""
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
    made = b.add(node.op, node.inputs[0], exact)
    return made

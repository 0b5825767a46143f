"""Converters for Optional, and for SequenceMap, which becomes a Loop over sequences."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np

from dovetail.errors import FormatError, RuleError
from dovetail.formats.export_context import ExportContext
from dovetail.formats.foreign import ForeignGraph, ForeignNode
from dovetail.formats.import_context import ImportContext
from dovetail.formats.onnx.dialect import ONNX
from dovetail.ir import dtypes, symbolic
from dovetail.ir.builder import Builder
from dovetail.ir.edit import rename, replace_uses
from dovetail.ir.graph import Node, Value
from dovetail.ir.op import Op
from dovetail.ir.types import Sequence, Tensor, Type, Unknown, common_type, sequence_of
from dovetail.ops.control_flow.loop import Loop
from dovetail.ops.sequence.optional import Optional

ONNX.unsupported_reasons.update(
    dict.fromkeys(("StringTensorPack", "StringTensorUnpack"), "ONNX has no operator that reads strings as bytes")
)


@ONNX.importer("Optional", 15, 28)
def import_optional(ctx: ImportContext) -> Op:
    """Import Optional: the attribute ``type`` is required without an input, and must agree with the type of an input."""
    x = ctx.optional_input(0)
    element = ctx.attribute("type", "Type", None)
    if element is not None and not isinstance(element, Type):
        raise FormatError("attribute.value", f"Optional: type must be a type, got {element!r}")
    if x is None and element is None:
        raise FormatError("attribute.missing", "Optional must have an input or the attribute 'type'")
    if x is not None and element is not None:
        try:
            common_type(x.type, element)
        except RuleError:
            raise RuleError("type.disagree", f"Optional: the type {element} must agree with the input, got {x.type}") from None
    return Optional(element if x is None else None)


@ONNX.exporter("Optional")
def export_optional(ctx: ExportContext, node: Node) -> list[ForeignNode]:
    op: Any = node.op
    attributes = {} if node.inputs else {"type": op.type}
    return [ctx.add_node(node, "", "Optional", ctx.version("Optional"), [*map(ctx.key, node.inputs)], attributes)]


@ONNX.importer("SequenceMap", 17)
def import_sequence_map(ctx: ImportContext) -> list[Value]:
    """Import SequenceMap as a Loop that reads and appends one element per trip, as its function body in the onnx package does."""
    foreign: ForeignGraph = ctx.attribute("body", "Graph")
    xs = [ctx.input(index) for index in range(len(ctx.inputs))]
    if not xs or len(foreign.inputs) != len(xs) or len(foreign.outputs) != len(ctx.node.outputs):
        actual = f"got {len(foreign.inputs)} inputs and {len(foreign.outputs)} outputs"
        raise FormatError("subgraph.ports", f"the body must have {len(xs)} inputs and {len(ctx.node.outputs)} outputs, {actual}")
    sequence_of(xs[0].type)
    parts = [x.type.element if isinstance(x.type, Sequence) else x.type for x in xs]
    inputs = [
        replace(item, type=_element_type(part, item.key)) if isinstance(x.type, Sequence) else replace(item, type=part)
        for item, part, x in zip(foreign.inputs, parts, xs, strict=True)
    ]
    captures: list[Value] = []
    body = ctx.import_subgraph(replace(foreign, inputs=inputs), captures)
    body_outputs = body.outputs
    if any(not isinstance(value.type, Tensor) or value.type.dtype is None for value in body_outputs):
        raise Unknown
    trip = Value(body.claim("trip"), Tensor(dtypes.i64, ()))
    nodes, body.nodes = body.nodes, []
    b = Builder(graph=body)
    for position, x in enumerate(xs):
        old = body.inputs[position]
        if not isinstance(x.type, Sequence):
            rename(body, old, x.name)
        else:
            body.inputs[position] = Value(body.claim(x.name), x.type)
            replace_uses(body, old, b.apply("SequenceAt", body.inputs[position], trip))
    body.nodes += nodes
    states = [Value(body.claim("so_far"), Sequence(Tensor(value.dtype, None))) for value in body_outputs]
    going = b.constant(np.array(True), dtypes.boolean, "goes_on")
    grown = [b.apply("SequenceInsert", state, value) for state, value in zip(states, body.outputs, strict=True)]
    body.inputs = [trip, *states, *body.inputs]
    body.outputs = [going, *grown]
    empty = [ctx.b.apply("SequenceEmpty", dtype=value.dtype) for value in body_outputs]
    loop = Loop(body=body, carried=len(body_outputs), outputs=len(body_outputs))
    true = ctx.b.constant(np.array(True), dtypes.boolean)
    return ctx.b.add(loop, ctx.b.apply("SequenceLength", xs[0]), true, *empty, *xs, *captures)


def _element_type(type: Type, name: str) -> Type:
    """Return the type of a sequence element, with a new symbol for each size that differs between elements."""
    if not isinstance(type, Tensor) or type.shape is None:
        return type
    sizes = (symbolic.symbol(f"?{name}.{axis}") if size is None else size for axis, size in enumerate(type.shape))
    return Tensor(type.dtype, tuple(sizes))

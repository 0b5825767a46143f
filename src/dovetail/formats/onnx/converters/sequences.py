"""Optional values, and SequenceMap, which is a loop over lists."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np

from dovetail import dtypes
from dovetail.errors import FormatError, RuleError
from dovetail.formats.exporter import Lowering
from dovetail.formats.foreign import ForeignGraph, ForeignNode
from dovetail.formats.import_context import Lifting
from dovetail.formats.onnx.converters.if_op import _version
from dovetail.formats.onnx.dialect import ONNX
from dovetail.ir.builder import Builder
from dovetail.ir.edit import rename, replace_uses
from dovetail.ir.graph import Node, Value
from dovetail.ir.op import Op
from dovetail.ir.types import Sequence, Tensor, Type, Unknown, common_type, sequence_of
from dovetail.ops.control_flow.loop import Loop
from dovetail.ops.sequence.optional import Optional

ONNX.reasons.update(
    dict.fromkeys(("StringTensorPack", "StringTensorUnpack"), "ONNX has no operator that takes texts for their bytes")
)


@ONNX.lift("Optional", 15, 28)
def lift_optional(node: Lifting) -> Op:
    """The type is needed where nothing is given; beside a value it may say the same."""
    x = node.optional(0)
    element = node.attribute("type", "Type", None)
    if element is not None and not isinstance(element, Type):
        raise FormatError("attribute.value", f"Optional: type = {element!r} is no type")
    if x is None and element is None:
        raise FormatError("attribute.missing", "Optional needs a value, or a type")
    if x is not None and element is not None:
        try:
            common_type(x.type, element)
        except RuleError:
            raise RuleError("type.disagree", f"Optional says it is {element}, and is given {x.type}") from None
    return Optional(element if x is None else None)


@ONNX.emit("Optional")
def emit_optional(lowering: Lowering, node: Node) -> list[ForeignNode]:
    op: Any = node.op
    attributes = {} if node.inputs else {"type": op.type}
    return [lowering.finish(node, "", "Optional", _version(lowering, "Optional"), [*map(lowering.key, node.inputs)], attributes)]


@ONNX.lift("SequenceMap", 17)
def lift_sequence_map(node: Lifting) -> list[Value]:
    """As its function body in the onnx package has it: a Loop that takes an element of each list, and puts one into each."""
    foreign: ForeignGraph = node.attribute("body", "Graph")
    xs = [node.input(index) for index in range(len(node.inputs))]
    if not xs or len(foreign.inputs) != len(xs) or len(foreign.outputs) != len(node.node.outputs):
        has = f"the body takes {len(foreign.inputs)} and makes {len(foreign.outputs)}"
        raise FormatError("loop.body", f"{has}, where {len(xs)} and {len(node.node.outputs)} are needed")
    sequence_of(xs[0].type)
    parts = [x.type.element if isinstance(x.type, Sequence) else x.type for x in xs]
    inputs = [
        replace(item, type=_open(part, item.key)) if isinstance(x.type, Sequence) else replace(item, type=part)
        for item, part, x in zip(foreign.inputs, parts, xs, strict=True)
    ]
    captures: list[Value] = []
    body = node.body(replace(foreign, inputs=inputs), captures)
    made = body.outputs
    if any(not isinstance(value.type, Tensor) or value.type.dtype is None for value in made):
        raise Unknown
    trip = Value(body.claim("trip"), Tensor(dtypes.i64, ()))
    nodes, body.nodes = body.nodes, []
    b = Builder(graph=body)
    for place, x in enumerate(xs):
        old = body.inputs[place]
        if not isinstance(x.type, Sequence):
            rename(body, old, x.name)
        else:
            body.inputs[place] = Value(body.claim(x.name), x.type)
            replace_uses(body, old, b.apply("SequenceAt", body.inputs[place], trip))
    body.nodes += nodes
    states = [Value(body.claim("so_far"), Sequence(Tensor(value.dtype, None))) for value in made]
    going = b.constant(np.array(True), dtypes.boolean, "goes_on")
    grown = [b.apply("SequenceInsert", state, value) for state, value in zip(states, body.outputs, strict=True)]
    body.inputs = [trip, *states, *body.inputs]
    body.outputs = [going, *grown]
    empty = [node.b.apply("SequenceEmpty", dtype=value.dtype) for value in made]
    loop = Loop(body=body, carried=len(made), outputs=len(made))
    true = node.b.constant(np.array(True), dtypes.boolean)
    return node.b.add(loop, node.b.apply("SequenceLength", xs[0]), true, *empty, *xs, *captures)


def _open(type: Type, name: str) -> Type:
    """The type of one element, with a symbol of its own for each size that differs from one to another."""
    from dovetail import symbolic

    if not isinstance(type, Tensor) or type.shape is None:
        return type
    sizes = (symbolic.symbol(f"?{name}.{axis}") if size is None else size for axis, size in enumerate(type.shape))
    return Tensor(type.dtype, tuple(sizes))

"""Converters for Loop and Scan. A core Loop keeps the axis of slices and parts; ONNX removes and inserts that axis."""

from __future__ import annotations

from collections.abc import Sequence as Several
from dataclasses import replace
from typing import Any

import numpy as np

from dovetail.errors import Diagnostic, FormatError, UnsupportedError
from dovetail.formats.export_context import ExportContext, copy_captured_outputs
from dovetail.formats.foreign import ForeignGraph, ForeignNode, ForeignTensor, ForeignValue
from dovetail.formats.import_context import ImportContext
from dovetail.formats.loop_slices import has_unit_parts, slice_inside_body
from dovetail.formats.onnx.dialect import ONNX
from dovetail.ir import dtypes, symbolic
from dovetail.ir.builder import Builder
from dovetail.ir.edit import remove_dead, replace_uses
from dovetail.ir.graph import Graph, Node, Value
from dovetail.ir.types import UNKNOWN, Map, Optional, Sequence, Tensor, Type, Unknown
from dovetail.ops.control_flow.loop import Loop, is_endless

LOOP_VERSIONS = (1, 11, 13, 16, 19, 21, 23, 24, 25)
SCAN_VERSIONS = (9, 11, 16, 19, 21, 23, 24, 25)
NUMBER, BOOLEAN = Tensor(dtypes.i64, ()), Tensor(dtypes.boolean, ())


# Import


@ONNX.importer("Loop", *LOOP_VERSIONS)
def import_loop(ctx: ImportContext) -> list[Value]:
    """Import Loop; the condition input of the body becomes the constant true, because the body runs only if it is true."""
    foreign: ForeignGraph = ctx.attribute("body", "Graph")
    trips, condition = ctx.optional_input(0), ctx.optional_input(1)
    states = [ctx.input(index) for index in range(2, len(ctx.inputs))]
    carried = len(states)
    _check_body(foreign, 2 + carried, 1 + carried)
    number, going, *inner = foreign.inputs
    _check_condition(ctx, condition, going)
    true = {going.key: ForeignTensor(dtypes.boolean, np.array(True), going.key)}
    types = [NUMBER, *(_state_type(x.type, item) for x, item in zip(states, inner, strict=True))]
    inputs = [replace(item, type=type) for item, type in zip((number, *inner), types, strict=True)]
    captures: list[Value] = []
    body = ctx.import_subgraph(replace(foreign, inputs=inputs, constants={**foreign.constants, **true}), captures)
    if condition is None and not is_endless(body):
        raise UnsupportedError(
            "op.unsupported",
            "Loop without a condition input must have a constant true condition in its body: "
            "the specification ignores that condition, but runtimes do not",
        )
    stacked = len(body.outputs) - 1 - carried
    for position in range(1 + carried, len(body.outputs)):
        body.outputs[position] = Builder(graph=body).apply("Unsqueeze", body.outputs[position], [0])
    loop = Loop(body=body, carried=carried, scan_outputs=((0, False),) * stacked, outputs=carried + stacked)
    return ctx.b.add(loop, trips, condition, *states, *captures)


def _check_condition(ctx: ImportContext, condition: Value | None, going: ForeignValue) -> None:
    """Warn if the ranks of the body's condition input and the loop's condition differ; onnxruntime refuses such files."""
    declared, actual = going.type, None if condition is None else condition.shape
    if actual is None or not isinstance(declared, Tensor) or declared.shape is None or len(declared.shape) == len(actual):
        return
    message = f"the declared type of {going.name} is {declared}, the condition of the loop is {condition.type}"  # type: ignore[union-attr]
    warning = Diagnostic("type.declared", message, ctx.node.label, ctx.scope.file, severity="warning")
    ctx.scope.report_declaration(warning)


@ONNX.importer("Scan", *SCAN_VERSIONS)
def import_scan(ctx: ImportContext) -> list[Value]:
    count: int = ctx.attribute("num_scan_inputs", "int")
    xs = [ctx.input(index) for index in range(len(ctx.inputs))]
    carried = _state_count(len(xs), count)
    cut = _scan_entries(ctx, "input", count, [_rank(x) for x in xs[carried:]])
    captures: list[Value] = []
    body = _scan_body(ctx, [x.type for x in xs], cut, captures)
    stacked = _scan_entries(ctx, "output", len(body.outputs) - carried, [_rank(value, 1) for value in body.outputs[carried:]])
    loop = _build_scan(body, carried, cut, stacked)
    return ctx.b.add(loop, None, None, *xs, *captures)


@ONNX.importer("Scan", 8)
def import_scan_8(ctx: ImportContext) -> list[Value]:
    """Import Scan-8, which scans each batch item separately.

    With sequence_lens each item is scanned up to its length, and its scan outputs are padded with zeros.
    """
    lengths = ctx.optional_input(0)
    count: int = ctx.attribute("num_scan_inputs", "int")
    directions: Several[int] = ctx.attribute("directions", "tuple[int, ...]", (0,) * count)
    xs = [ctx.input(index) for index in range(1, len(ctx.inputs))]
    carried = _state_count(len(xs), count)
    if len(directions) != count or any(direction not in (0, 1) for direction in directions):
        raise FormatError("attribute.value", f"Scan: directions must be {count} values of 0 or 1, got {list(directions)}")
    if lengths is not None and any(directions):
        raise UnsupportedError("op.unsupported", "Scan-8: sequence_lens with a reverse direction is not supported")
    cut = [(0, bool(direction)) for direction in directions]
    captures: list[Value] = []
    body = _scan_body(ctx, [_remove_axis(x.type, 0) for x in xs], cut, captures)
    loop = _build_scan(body, carried, cut, [(0, False)] * (len(body.outputs) - carried))
    batch = Graph("batch")
    b = Builder(graph=batch)
    items = [b.input_of(f"{x.name}_item", _set_axis_to_one(x.type, 0)) for x in xs]
    rest = [b.input_of(x.name, x.type) for x in captures]
    for inner, x in zip(rest, captures, strict=True):
        inner.value = x.value
    alone = [b.apply("Squeeze", item, [0]) for item in items]
    if lengths is None:
        outputs = b.add(loop, None, None, *alone, *rest)
    else:
        xs, items = [*xs, lengths], [*items, Value(batch.claim("length"), Tensor(lengths.dtype, (1,)))]
        batch.inputs[len(items) - 1 : len(items) - 1] = items[-1:]
        outputs = b.add(loop, b.apply("Squeeze", items[-1], [0]), None, *alone, *rest)
        outputs = [*outputs[:carried], *(_pad_to_length(b, y, alone[carried]) for y in outputs[carried:])]
    batch.outputs = [b.apply("Unsqueeze", y, [0]) for y in outputs]
    batch.outputs.insert(0, b.constant(np.array(True), dtypes.boolean, "goes_on"))
    batch.inputs.insert(0, Value(batch.claim("item"), NUMBER))
    whole = Loop(
        body=batch, scan_inputs=((0, 1, False),) * len(xs), scan_outputs=((0, False),) * len(outputs), outputs=len(outputs)
    )
    return ctx.b.add(whole, None, None, *xs, *captures)


def _pad_to_length(b: Builder, y: Value, cut: Value) -> Value:
    """Pad the first axis of ``y`` with zeros to the size of the first axis of ``cut``."""
    end, size = (b.apply("Gather", b.apply("Shape", x, output_type=dtypes.i64), [0], axis=0) for x in (cut, y))
    pads = b.apply("Concat", [0], b.apply("Subtract", end, size), axis=0)
    return b.apply("Pad", y, pads, None, [0], mode="constant")  # type: ignore[no-any-return]


def _state_count(inputs: int, cut: int) -> int:
    if not 0 < cut <= inputs:
        raise FormatError("subgraph.ports", f"num_scan_inputs must be in [1, {inputs}], got {cut}")
    return inputs - cut


def _scan_body(ctx: ImportContext, types: Several[Type], cut: Several[tuple[int, bool]], captures: list[Value]) -> Graph:
    """Import the body of a Scan over inputs of ``types``; the last len(cut) inputs are scanned, the others are states."""
    foreign: ForeignGraph = ctx.attribute("body", "Graph")
    carried = len(types) - len(cut)
    _check_body(foreign, len(types), carried)
    inside = [_state_type(type, item) for type, item in zip(types[:carried], foreign.inputs, strict=False)]
    inside += [_remove_axis(type, axis) for type, (axis, _) in zip(types[carried:], cut, strict=True)]
    inputs = [replace(item, type=type) for item, type in zip(foreign.inputs, inside, strict=True)]
    body = ctx.import_subgraph(replace(foreign, inputs=inputs), captures)
    for index, (axis, _) in enumerate(cut, carried):
        _take_whole(body, index, axis, types[index])
    return body


def _build_scan(body: Graph, carried: int, cut: Several[tuple[int, bool]], stacked: Several[tuple[int, bool]]) -> Loop:
    b = Builder(graph=body)
    for index, (axis, _) in enumerate(stacked, carried):
        body.outputs[index] = b.apply("Unsqueeze", body.outputs[index], [axis])
    body.inputs.insert(0, Value(body.claim("trip"), NUMBER))
    body.outputs.insert(0, b.constant(np.array(True), dtypes.boolean, "goes_on"))
    scanned = tuple((axis, 1, is_reversed) for axis, is_reversed in cut)
    return Loop(body=body, carried=carried, scan_inputs=scanned, scan_outputs=tuple(stacked), outputs=carried + len(stacked))


def _check_body(foreign: ForeignGraph, inputs: int, outputs: int) -> None:
    if len(foreign.inputs) != inputs or len(foreign.outputs) < outputs:
        actual = f"got {len(foreign.inputs)} inputs and {len(foreign.outputs)} outputs"
        raise FormatError("subgraph.ports", f"the body must have {inputs} inputs and at least {outputs} outputs, {actual}")


def _state_type(type: Type, item: ForeignValue) -> Type:
    """Return the type of a state in the body: element type and rank of the initial value, and a new symbol for each size."""
    if isinstance(type, Sequence):
        return Sequence(Tensor(getattr(type.element, "dtype", None), None))
    if isinstance(type, Optional):
        return Optional(_state_type(type.element, item))
    if isinstance(type, Map):
        return type
    if type.shape is None:
        return item.type or type
    name = item.names[0] if item.names else item.key
    return Tensor(type.dtype, tuple(symbolic.symbol(f"?{name}@loop.{axis}") for axis in range(len(type.shape))))


def _remove_axis(type: Type, axis: int) -> Type:
    if not isinstance(type, Tensor):
        return UNKNOWN
    if type.shape is None:
        return type
    return Tensor(type.dtype, (*type.shape[:axis], *type.shape[axis + 1 :]))


def _set_axis_to_one(type: Type, axis: int) -> Type:
    if not isinstance(type, Tensor) or type.shape is None:
        return type
    return Tensor(type.dtype, (*type.shape[:axis], 1, *type.shape[axis + 1 :]))


def _rank(x: Value, added: int = 0) -> int | None:
    shape = x.shape
    return None if shape is None else len(shape) + added


def _scan_entries(ctx: ImportContext, side: str, count: int, ranks: Several[int | None]) -> list[tuple[int, bool]]:
    axes: Several[int] = ctx.attribute(f"scan_{side}_axes", "tuple[int, ...]", (0,) * count)
    directions: Several[int] = ctx.attribute(f"scan_{side}_directions", "tuple[int, ...]", (0,) * count)
    if len(axes) != count or len(directions) != count or any(direction not in (0, 1) for direction in directions):
        raise FormatError(
            "attribute.value",
            f"Scan: {count} {side}s need {count} axes and {count} directions of 0 or 1, got {list(axes)} and {list(directions)}",
        )
    for axis, rank in zip(axes, ranks, strict=True):
        if rank is None and axis < 0:
            raise Unknown(f"axis {axis} of an {side} of unknown rank")
        if rank is not None and not -rank <= axis < rank:
            raise FormatError("axis.range", f"Scan: axis {axis} is out of range for an {side} of rank {rank}")
    return [(axis % rank if rank else axis, bool(way)) for axis, rank, way in zip(axes, ranks, directions, strict=True)]


def _take_whole(body: Graph, index: int, axis: int, type: Type) -> None:
    """Replace body input ``index`` by an input whose scan axis has size 1, and squeeze that axis in the body."""
    old = body.inputs[index]
    part = Value(body.claim(f"{old.name}_part"), _set_axis_to_one(type, axis))
    nodes, body.nodes = body.nodes, []
    new = Builder(graph=body).apply("Squeeze", part, [axis])
    body.nodes += nodes
    replace_uses(body, old, new)
    body.inputs[index] = part
    # An export gives this name to the input without the scan axis again.
    body.release(old.name)


# Export


@ONNX.legalize("Loop")
def legalize_loop(b: Builder, node: Node) -> Any:
    """Legalize a Loop that neither Loop nor Scan of ONNX can express.

    The body slices full inputs. Parts of scan outputs are stacked along a new first axis, and transposed after the loop.
    """
    op: Any = node.op
    if _is_scan(node):
        return None
    if _is_loop(node) and not any(_is_vector(x) for x in node.inputs[:2]):
        return None
    if not op.scan_inputs and all(entry == (0, False) for entry in op.scan_outputs) and has_unit_parts(op):
        return _with_scalars(b, node)
    return slice_inside_body(b, node)


def _is_scan(node: Node) -> bool:
    op: Any = node.op
    return (
        bool(op.scan_inputs)
        and all(size == 1 for _, size, _ in op.scan_inputs)
        and all(x is None for x in node.inputs[:2])
        and not op.body.inputs[0].uses
        and all(value is not op.body.inputs[0] for value in op.body.outputs)
        and is_endless(op.body)
        and has_unit_parts(op)
    )


def _is_loop(node: Node) -> bool:
    op: Any = node.op
    if op.scan_inputs or any(entry != (0, False) for entry in op.scan_outputs) or not has_unit_parts(op):
        return False
    trips, condition = node.inputs[:2] if len(node.inputs) > 1 else (*node.inputs, None, None)[:2]
    return (trips is None or trips.dtype == "i64") and (condition is not None or (trips is not None and is_endless(op.body)))


def _with_scalars(b: Builder, node: Node) -> Any:
    trips, condition, *xs = (*node.inputs, None, None)[: max(2, len(node.inputs))]
    if trips is not None and trips.dtype != "i64":
        trips = b.apply("Cast", trips, to=dtypes.i64)
    if condition is None:
        condition = b.constant(np.array(True), dtypes.boolean)
    trips, condition = (_as_scalar(b, x) for x in (trips, condition))
    return b.add(node.op, trips, condition, *xs)


def _is_vector(x: Value | None) -> bool:
    return x is not None and bool(x.shape)


def _as_scalar(b: Builder, x: Any) -> Any:
    """Reshape a one-element vector to a scalar, because trip count and condition of body and loop must have equal ranks."""
    return b.apply("Reshape", x, []) if _is_vector(x) else x


@ONNX.exporter("Loop")
def export_loop(ctx: ExportContext, node: Node) -> list[ForeignNode]:
    op: Any = node.op
    body: Graph = op.body
    b = Builder(graph=body)
    for index, (axis, _) in enumerate(op.scan_outputs, 1 + op.carried):
        body.outputs[index] = _remove_stack_axis(b, body.outputs[index], axis)
    keys = [ctx.key(x) for x in node.inputs]
    own = op.carried + len(op.scan_inputs)
    outer = node.inputs[2 + own :]
    if _is_scan(node) or op.scan_inputs:
        version = ctx.version("Scan")
        if version < SCAN_VERSIONS[0]:
            raise UnsupportedError(
                "op.unsayable", f"Scan-{version} cannot express a Loop, because it scans each batch item separately"
            )
        for index, (axis, _, _) in enumerate(op.scan_inputs, 1 + op.carried):
            _take_part(body, index, axis)
        del body.inputs[0], body.outputs[0]
        attributes = {
            "num_scan_inputs": len(op.scan_inputs),
            "scan_input_axes": [axis for axis, _, _ in op.scan_inputs],
            "scan_input_directions": [int(is_reversed) for _, _, is_reversed in op.scan_inputs],
            "scan_output_axes": [axis for axis, _ in op.scan_outputs],
            "scan_output_directions": [int(is_reversed) for _, is_reversed in op.scan_outputs],
        }
        non_default = {name: value for name, value in attributes.items() if name == "num_scan_inputs" or any(value)}  # type: ignore[arg-type]
        attributes = {"body": _body(ctx, body, outer, own), **non_default}
        return [ctx.add_node(node, "", "Scan", version, keys[2 : 2 + own], attributes)]
    for y, body_output in zip(node.outputs, body.outputs[1:], strict=True):
        # In ONNX a loop output has the type of the body output, even if the loop may run no trips.
        if isinstance(y.type, Optional) and not isinstance(body_output.type, Optional):
            y.type = y.type.element
    body.inputs.insert(1, Value(body.claim("goes_on"), BOOLEAN))
    body.outputs[0] = _as_scalar(b, body.outputs[0])
    attributes = {"body": _body(ctx, body, outer, 2 + own)}
    return [ctx.add_node(node, "", "Loop", ctx.version("Loop"), keys[: 2 + own], attributes)]


def _body(ctx: ExportContext, body: Graph, outer: Several[Value | None], own: int) -> ForeignGraph:
    remove_dead(body)
    copy_captured_outputs(body)
    keys = {id(inner): ctx.keys[id(x)] for inner, x in zip(body.inputs[own:], outer, strict=True) if x is not None}
    return ctx.export_graph(body, keys, own)


def _remove_stack_axis(b: Builder, value: Value, axis: int) -> Value:
    """Return a part of a scan output, a result of the body, without the axis along which the loop concatenates parts."""
    node = value.node
    if node is not None and type(node.op).__name__ == "Unsqueeze" and node.inputs[0] is not None:
        axes = node.inputs[1].constant if len(node.inputs) > 1 and node.inputs[1] is not None else None
        if axes is not None and np.ravel(axes).tolist() == [axis]:
            return node.inputs[0]
    return b.apply("Squeeze", value, [axis])  # type: ignore[no-any-return]


def _take_part(body: Graph, part_index: int, axis: int) -> None:
    """Replace a sliced input of the body by a new input that lacks the axis along which the loop slices."""
    old = body.inputs[part_index]
    type = _remove_axis(old.type, axis)
    new = Value(body.claim(old.name.removesuffix("_part")), type)
    nodes, body.nodes = body.nodes, []
    if all(_squeezes(user, index, axis) for user, index in old.uses) and old not in body.outputs:
        for user, _ in list(old.uses):
            replace_uses(body, user.outputs[0], new)
    else:
        replace_uses(body, old, Builder(graph=body).apply("Unsqueeze", new, [axis]))
    body.nodes += nodes
    body.inputs[part_index] = new


def _squeezes(node: Node, index: int, axis: int) -> bool:
    axes = node.inputs[1].constant if len(node.inputs) > 1 and node.inputs[1] is not None else None
    return type(node.op).__name__ == "Squeeze" and index == 0 and axes is not None and np.ravel(axes).tolist() == [axis]

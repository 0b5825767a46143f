"""Converters for Loop and TensorIterator, their port maps and back edges."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np

from dovetail.errors import FormatError, UnsupportedError
from dovetail.formats.export_context import ExportContext, copy_captured_outputs
from dovetail.formats.foreign import ForeignGraph, ForeignNode, ForeignTensor
from dovetail.formats.import_context import ImportContext
from dovetail.formats.loop_slices import has_unit_parts, slice_inside_body
from dovetail.formats.openvino.dialect import OPENVINO
from dovetail.ir import dtypes, symbolic
from dovetail.ir.builder import Builder
from dovetail.ir.edit import copy_graph, remove_dead, replace_uses, set_input
from dovetail.ir.graph import Graph, Node, Value
from dovetail.ir.limits import refuse_table
from dovetail.ir.op import bodies
from dovetail.ir.types import Tensor, is_static, static
from dovetail.laws.sequences import eliminate_in_subgraphs
from dovetail.ops.control_flow.gradients import is_read
from dovetail.ops.control_flow.loop import Loop, is_endless, is_true
from dovetail.ops.recurrent.lstm_loop import write_as_lstm

Row = dict[str, str]
NUMBER = Tensor(dtypes.i64, ())


# Import


@OPENVINO.importer("TensorIterator", 1)
def import_tensor_iterator(ctx: ImportContext) -> list[Value]:
    return _LoopImporter(ctx).loop(None, None)


@OPENVINO.importer("Loop", 5)
def import_loop(ctx: ImportContext) -> list[Value]:
    """Import Loop: a negative trip count means no limit in OpenVINO, but no trips in the core."""
    trips, condition = ctx.input(0), ctx.input(1)
    return _LoopImporter(ctx).loop(_limit(ctx.b, trips), None if is_true(condition) else condition)


def _limit(b: Builder, trips: Value) -> Value | None:
    constant = trips.value
    if constant is not None and np.size(constant) == 1:
        low, high = symbolic.bounds(np.reshape(constant, ()).item())
        if high is not None and high < 0:
            return None
        if low is not None and low >= 0:
            return trips
    if _is_non_negative(trips) or not trips.dtype.is_integer:
        return trips
    maximum = b.constant(np.array(np.iinfo(trips.dtype.numpy).max), trips.dtype)
    return b.apply("Where", b.apply("Less", trips, 0), maximum, trips)  # type: ignore[no-any-return]


def _is_non_negative(trips: Value) -> bool:
    """Return whether ``trips`` is Maximum(x, 0), or the Where of :func:`_limit` that replaces a negative number."""
    node = trips.node
    if node is None:
        return False
    if type(node.op).__name__ == "Where":
        condition, maximum, other = node.inputs
        return _is_positive(maximum) and condition is not None and _is_sign_of(condition.node, other)
    return type(node.op).__name__ == "Maximum" and any(_is_zero(x) for x in node.inputs)


def _is_sign_of(node: Node | None, number: Value | None) -> bool:
    return node is not None and type(node.op).__name__ == "Less" and node.inputs[0] is number and _is_zero(node.inputs[1])


def _is_positive(x: Value | None) -> bool:
    return x is not None and x.constant is not None and x.constant.size == 1 and bool(x.constant.item() > 0)


def _is_zero(x: Value | None) -> bool:
    return x is not None and x.constant is not None and x.constant.size == 1 and x.constant.item() == 0


class _LoopImporter:
    """_LoopImporter imports one Loop or TensorIterator from the entries of its port map."""

    def __init__(self, ctx: ImportContext) -> None:
        self.ctx = ctx
        foreign: ForeignGraph = ctx.attribute("body", "Graph")
        rows: list[Row] = ctx.attribute("port_map", "list")
        edges: list[Row] = ctx.attribute("back_edges", "list", [])
        self.body = ctx.import_subgraph(foreign, [])
        self.b = Builder(graph=self.body)
        layers = [str(value.metadata["layer"]) for value in foreign.inputs]
        self.inputs = dict(zip(layers, self.body.inputs, strict=True))
        layers = [str(item.metadata["layer"]) for item in foreign.outputs]
        self.results = dict(zip(layers, self.body.outputs, strict=True))
        self.back = {edge["to-layer"]: edge["from-layer"] for edge in edges}
        self.rows = [row for row in rows if row["port"] == "input"]
        self.output_rows = [row for row in rows if row["port"] == "output"]

    def loop(self, trips: Value | None, condition: Value | None) -> list[Value]:
        number = self._add_trip_number()
        input_rows = [row for row in self.rows if "purpose" not in row]
        self._check_port_map(input_rows)
        states = [row for row in input_rows if row["internal_layer_id"] in self.back]
        if any("axis" in row for row in states):
            raise UnsupportedError("op.unsupported", "the initial value of a state must be a full input, got a slice")
        cut = [row for row in input_rows if "axis" in row]
        whole = [row for row in input_rows if "axis" not in row and row not in states]
        if trips is None and condition is None and not cut and is_true(self._condition_result()):
            raise UnsupportedError("op.unsupported", "the loop must have a trip count, a condition or a sliced input")
        output_rows = [self._output_row(index) for index in range(len(self.ctx.node.outputs))]
        last = [row for row in output_rows if "axis" not in row]
        first = [self.ctx.input(int(row["external_port_id"])) for row in states]
        carried = [self.back[row["internal_layer_id"]] for row in states]
        extra = [layer for layer in dict.fromkeys(row["internal_layer_id"] for row in last) if layer not in carried]
        first += [self._add_initial_value(layer) for layer in extra]
        stacked = [row for row in output_rows if "axis" in row]
        self.body.inputs = [
            number,
            *(self.inputs[row["internal_layer_id"]] for row in states),
            *(Value(self.body.claim("last"), self.results[layer].type) for layer in extra),
            *(self.inputs[row["internal_layer_id"]] for row in (*cut, *whole)),
        ]
        carried += extra
        self.body.outputs = self._copy_repeated_values(
            [
                self._condition_result(),
                *(self.results[layer] for layer in (*carried, *(row["internal_layer_id"] for row in stacked))),
            ]
        )
        ranks = [len(self.ctx.input(int(row["external_port_id"])).dims) for row in cut]
        loop = Loop(
            body=self.body,
            carried=len(carried),
            scan_inputs=tuple(self._slice_entry(row, rank) for row, rank in zip(cut, ranks, strict=True)),
            scan_outputs=tuple(self._concat_entry(row) for row in stacked),
            outputs=len(carried) + len(stacked),
        )
        for view in list(_views_of_slices(loop, self.body, copied=True)):
            (copy,) = next(iter(view.uses))[0].outputs
            self._replace(copy, view)
        remove_dead(self.body)
        xs = [*first, *(self.ctx.input(int(row["external_port_id"])) for row in (*cut, *whole))]
        outputs = write_as_lstm(self.ctx.b, loop, [trips, condition, *xs])
        if outputs is None:
            outputs = self.ctx.b.add(loop, trips, condition, *xs)
        parts = iter(outputs[len(carried) :])
        return [next(parts) if "axis" in row else outputs[carried.index(row["internal_layer_id"])] for row in output_rows]

    def _add_trip_number(self) -> Value:
        """Return the body input for the trip number; an unread input is created if the body has none."""
        rows = [row for row in self.rows if row.get("purpose") == "current_iteration"]
        olds = [self.inputs[row["internal_layer_id"]] for row in rows]
        # An input of the body with the type of a trip number is used, and keeps its name.
        number = next((old for old in olds if old.type == NUMBER), None) or Value(self.body.claim("trip"), NUMBER)
        nodes, self.body.nodes = self.body.nodes, []
        for old in olds:
            if old is number:
                continue
            new = number if old.dtype == "i64" else self.b.apply("Cast", number, to=old.dtype)
            if old.shape != ():
                new = self.b.apply("Reshape", new, [1] * len(old.dims), special_zero=False)
            self._replace(old, new)
        self.body.nodes += nodes
        return number

    def _replace(self, old: Value, new: Value) -> None:
        replace_uses(self.body, old, new)
        self.results = {layer: new if value is old else value for layer, value in self.results.items()}

    def _check_port_map(self, input_rows: Sequence[Row]) -> None:
        layers = [row["internal_layer_id"] for row in self.rows]
        for layer in self.inputs:
            if layers.count(layer) != 1:
                raise FormatError(
                    "subgraph.ports",
                    f"the Parameter {layer} of the body must have 1 entry in the port map, got {layers.count(layer)}",
                )
        if any(int(row["external_port_id"]) < 0 for row in input_rows):
            raise FormatError("subgraph.ports", "an input of the body must be mapped to a port of the loop")

    def _condition_result(self) -> Value:
        results = [
            self.results[row["internal_layer_id"]] for row in self.output_rows if row.get("purpose") == "execution_condition"
        ]
        if not results:
            results = [self.b.constant(np.array(True), dtypes.boolean, "goes_on")]
        return results[0]

    def _output_row(self, index: int) -> Row:
        port = str(index + len(self.ctx.node.inputs))
        rows = [row for row in self.output_rows if row["external_port_id"] == port]
        if len(rows) != 1:
            raise FormatError("subgraph.ports", f"output {index} must have 1 entry in the port map, got {len(rows)}")
        return rows[0]

    def _add_initial_value(self, layer: str) -> Value:
        """Return zeros as the initial value of a body result that becomes a state, so that the loop returns its last value."""
        type = self.results[layer].type
        if not isinstance(type, Tensor) or type.dtype is None or not is_static(type):
            raise UnsupportedError("op.unsupported", f"an output of the last trip must have a static shape, got {type}")
        refuse_table(static(type.shape), type.dtype.numpy.itemsize, "the initial value of a body's result")
        return self.ctx.b.constant(np.zeros(static(type.shape), type.dtype.numpy), type.dtype)

    def _copy_repeated_values(self, values: list[Value]) -> list[Value]:
        copied: set[int] = set()
        copies = []
        for value in values:
            if id(value) in copied:
                value = self.b.apply("Identity", value)
            copied.add(id(value))
            copies.append(value)
        return copies

    def _slice_entry(self, row: Row, rank: int) -> tuple[int, int, bool]:
        axis, size = int(row["axis"]), int(row.get("part_size", 1))
        start, end, stride = (int(row.get(name, default)) for name, default in (("start", 0), ("end", -1), ("stride", 1)))
        if not -rank <= axis < rank:
            raise FormatError("axis.range", f"axis must be in [{-rank}, {rank - 1}], got {axis}")
        if size < 1 or (start, end, stride) not in ((0, -1, size), (-1, 0, -size)):
            raise UnsupportedError(
                "op.unsupported",
                f"slices must cover the full axis in order, got size {size}, start {start}, end {end}, stride {stride}",
            )
        return axis % rank, size, stride < 0

    def _concat_entry(self, row: Row) -> tuple[int, bool]:
        part = self.results[row["internal_layer_id"]]
        axis, size, is_reversed = self._slice_entry(row, len(part.dims))
        if isinstance(part.dims[axis], int) and part.dims[axis] != size:
            raise FormatError(
                "shape.disagree", f"the body result must have size part_size ({size}) along axis {axis}, got {part.type}"
            )
        return axis, is_reversed


# Export


@OPENVINO.legalize("Loop")
def legalize_loop(b: Builder, node: Node) -> Any:
    """Legalize Loop for OpenVINO.

    A negative trip count becomes 0, because it means no limit in OpenVINO. OpenVINO's Loop only slices parts of size 1 in order;
    other slices are moved into the body. A TensorIterator must not contain another TensorIterator.
    """
    op: Any = node.op
    if (rewritten := eliminate_in_subgraphs(b, node)) is not None:
        return rewritten
    if _is_iterator(node) and _holds_iterator(op.body):
        return b.add(op, _parts(b, op, node.inputs[2 + op.carried]), None, *node.inputs[2:])
    trips, condition = (*node.inputs, None, None)[:2]
    if trips is None and not op.scan_inputs and (condition is None or is_true(condition)) and is_endless(op.body):
        # The importer of IR refuses such a loop.
        raise UnsupportedError("op.unsupported", "the loop must have a trip count, a condition or a sliced input")
    is_plain = all(size == 1 and not is_reversed for _, size, is_reversed in op.scan_inputs)
    is_plain = is_plain and has_unit_parts(op) and not any(is_reversed for _, is_reversed in op.scan_outputs)
    if not is_plain and not _is_iterator(node):
        return slice_inside_body(b, node)
    if (rewritten := _drop_unread_slices(b, node) or _copy_slices(b, node)) is not None:
        return rewritten
    if trips is None or _is_non_negative(trips):
        return None
    if trips.value is not None and np.size(trips.value) == 1:
        low, _ = symbolic.bounds(np.reshape(trips.value, ()).item())
        if low is not None and low >= 0:
            return None
    return b.add(node.op, b.apply("Maximum", trips, 0), *node.inputs[1:])


def _drop_unread_slices(b: Builder, node: Node) -> list[Value] | None:
    """Remove sliced inputs that the body of a loop with states does not read; None if the body reads all of them.

    OpenVINO's CPU plugin (2026.4) computes states in the memory of an unread slice, and overwrites them with the next slice.
    """
    op: Any = node.op
    if not op.carried or not op.scan_inputs:
        return None
    body = copy_graph(op.body)
    remove_dead(body)
    first = 1 + op.carried
    kept = [index for index in range(len(op.scan_inputs)) if is_read(body, body.inputs[first + index])]
    if len(kept) == len(op.scan_inputs):
        return None
    trips, condition, *xs = node.inputs
    if trips is None and not kept:
        trips = _parts(b, op, xs[op.carried])
    slices, end = op.carried, op.carried + len(op.scan_inputs)
    body.inputs[first : 1 + end] = [body.inputs[first + index] for index in kept]
    scan_inputs = tuple(op.scan_inputs[index] for index in kept)
    outputs = b.add(
        op.with_(body=body, scan_inputs=scan_inputs),
        trips, condition, *xs[:slices], *(xs[slices + index] for index in kept), *xs[end:],
    )  # fmt: skip
    return list(outputs)


# This is a table because it describes one plugin, not the operators.
VIEWS = ("Gather", "Reshape", "Split", "Squeeze", "Transpose", "Unsqueeze")
"""The operators whose output the CPU plugin may make an alias of their input."""


def _copy_slices(b: Builder, node: Node) -> Any:
    """Copy each view of a slice in the body of a loop with states; None if there are no such views.

    OpenVINO's CPU plugin (2026.4) may compute a state in place in such a view, and overwrites the view with the next slice before
    it copies the state: ``Add(Squeeze(slice), state)`` adds the slice to itself.
    """
    op: Any = node.op
    if not op.carried or not any(True for _ in _views_of_slices(op, op.body)):
        return None
    body = copy_graph(op.body)
    for view in list(_views_of_slices(op, body)):
        assert view.node is not None
        readers = list(view.uses)
        copy = Builder(graph=body).apply("Or" if view.dtype is dtypes.boolean else "Maximum", view, view)
        body.nodes.insert(body.nodes.index(view.node) + 1, body.nodes.pop())
        for reader, index in readers:
            set_input(reader, index, copy)
        body.outputs = [copy if output is view else output for output in body.outputs]
    return b.add(op.with_(body=body), *node.inputs)


def _views_of_slices(op: Loop, body: Graph, *, copied: bool = False) -> Iterator[Value]:
    """Yield the views of numeric and boolean slices. ``copied`` selects views whose only reader is a copy, or all other views."""
    first = 1 + op.carried
    for value in body.inputs[first : first + len(op.scan_inputs)]:
        for reader in {id(user): user for user, _ in value.uses}.values():
            for view in reader.outputs if type(reader.op).__name__ in VIEWS else ():
                is_copied = {type(user.op).__name__ for user, _ in view.uses} <= {"Maximum", "Or"}
                is_copied = is_copied and len(view.uses) == 2 and all(user.inputs == [view, view] for user, _ in view.uses)
                is_copied = is_copied and all(view is not output for output in body.outputs)
                if is_copied is copied and view.dtype != "string" and is_read(body, view):
                    yield view


@OPENVINO.exporter("Loop")
def export_loop(ctx: ExportContext, node: Node) -> list[ForeignNode]:
    op: Any = node.op
    body: Graph = op.body
    remove_dead(body)
    trips, condition, *xs = (*node.inputs, None, None)[: max(2, len(node.inputs))]
    is_plain = _is_iterator(node)
    own = op.carried + len(op.scan_inputs)
    # Unread inputs are omitted, except states and slices; slices determine the trip count.
    read = [index for index, value in enumerate(body.inputs) if is_read(body, value) or 0 < index <= own]
    keys = [ctx.key(xs[index - 1]) for index in read if index]
    if is_plain:
        # A TensorIterator has no condition.
        del body.outputs[0]
        remove_dead(body)
    else:
        endless = ForeignTensor(dtypes.i64, np.array(-1), "")
        true = ForeignTensor(dtypes.boolean, np.array(True), "")
        keys = [
            ctx.add_constant(node, endless, "trips") if trips is None else ctx.key(trips),
            ctx.add_constant(node, true, "condition") if condition is None else ctx.key(condition),
            *keys,
        ]
    ports = range(len(keys) - sum(index > 0 for index in read), len(keys))
    body.inputs = [body.inputs[index] for index in read]
    copy_captured_outputs(body)
    foreign = ctx.export_subgraph(body)
    rows, layers = [], {}
    port = iter(ports)
    for index, value in zip(read, foreign.inputs, strict=True):
        layers[index] = value.metadata["layer"] = value.key
        row = {"port": "input", "internal_layer_id": value.key}
        if index == 0:
            rows.append({**row, "external_port_id": "-1", "purpose": "current_iteration"})
        else:
            cut = op.scan_inputs[index - 1 - op.carried] if 0 <= index - 1 - op.carried < len(op.scan_inputs) else None
            rows.append({**row, "external_port_id": str(next(port)), **(_cut_row(*cut) if cut else {})})
    edges = []
    for index, value in enumerate(foreign.outputs, 1 if is_plain else 0):
        layer = value.metadata["layer"] = f"{value.key}/result_{index}"
        row = {"port": "output", "internal_layer_id": layer}
        if index == 0:
            rows.append({**row, "external_port_id": "-1", "purpose": "execution_condition"})
            continue
        slice_row = _cut_row(*_part_of(op, index)) if index > op.carried else {}
        rows.append({**row, "external_port_id": str(len(keys) + index - 1), **slice_row})
        if index <= op.carried:
            edges.append({"from-layer": layer, "to-layer": layers[index]})
    attributes: dict[str, Any] = {"body": foreign, "port_map": rows, "back_edges": edges}
    return [ctx.add_node(node, "", "TensorIterator" if is_plain else "Loop", 1 if is_plain else 5, keys, attributes)]


def _is_iterator(node: Node) -> bool:
    """Return whether a TensorIterator can express the loop: only its sliced inputs determine the trip count."""
    op: Any = node.op
    is_free = all(x is None for x in node.inputs[:2])
    return is_free and bool(op.scan_inputs) and not is_read(op.body, op.body.inputs[0]) and is_endless(op.body)


def _holds_iterator(body: Graph) -> bool:
    for node in body.nodes:
        if type(node.op) is Loop and _is_iterator(node):
            return True
        if any(_holds_iterator(inner) for _, inner in bodies(node.op)):
            return True
    return False


def _parts(b: Builder, op: Loop, x: Value | None) -> Value:
    """Return the number of slices of ``x``, the first sliced input."""
    axis, size, _ = op.scan_inputs[0]
    length = b.apply("Gather", b.apply("Shape", x, output_type=dtypes.i64), np.array(axis), axis=0)
    return length if size == 1 else b.apply("Divide", length, size)  # type: ignore[no-any-return]


def _part_of(op: Loop, index: int) -> tuple[int, int, bool]:
    axis, is_reversed = op.scan_outputs[index - 1 - op.carried]
    sizes = op.body.outputs[index - 1 - op.outputs].shape
    size = None if sizes is None else sizes[axis]
    if not isinstance(size, int):
        raise UnsupportedError(
            "op.unsupported", f"parts that are concatenated along axis {axis} must have a known size, got {size}"
        )
    return axis, size, is_reversed


def _cut_row(axis: int, size: int, is_reversed: bool) -> Row:
    start, end, stride = (-1, 0, -size) if is_reversed else (0, -1, size)
    numbers = {"axis": axis, "start": start, "end": end, "stride": stride, "part_size": size}
    return {name: str(number) for name, number in numbers.items()}

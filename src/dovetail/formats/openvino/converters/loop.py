"""Loop and TensorIterator: their port maps and back edges."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from dovetail import dtypes, symbolic
from dovetail.errors import FormatError, UnsupportedError
from dovetail.formats.export_context import ExportContext, copy_captured_outputs
from dovetail.formats.foreign import ForeignGraph, ForeignNode, ForeignTensor
from dovetail.formats.import_context import ImportContext
from dovetail.formats.loop_slices import cut_inside, parts_are_one
from dovetail.formats.openvino.dialect import OPENVINO
from dovetail.ir.builder import Builder
from dovetail.ir.edit import remove_dead
from dovetail.ir.graph import Graph, Node, Value
from dovetail.ir.op import bodies
from dovetail.ir.types import Tensor, is_static, static
from dovetail.ops.control_flow.loop import Loop, is_endless, is_true
from dovetail.passes.eliminate_sequences import unlisted_body

Row = dict[str, str]
NUMBER = Tensor(dtypes.i64, ())


# Reading


@OPENVINO.importer("TensorIterator", 1)
def import_tensor_iterator(ctx: ImportContext) -> list[Value]:
    return _Reading(ctx).loop(None, None)


@OPENVINO.importer("Loop", 5)
def import_loop(ctx: ImportContext) -> list[Value]:
    """A negative number of trips is no limit here; the core makes none then."""
    trips, condition = ctx.input(0), ctx.input(1)
    return _Reading(ctx).loop(_limit(ctx.b, trips), None if is_true(condition) else condition)


def _limit(b: Builder, trips: Value) -> Value | None:
    known = trips.value
    if known is not None and np.size(known) == 1:
        low, high = symbolic.bounds(np.reshape(known, ()).item())
        if high is not None and high < 0:
            return None
        if low is not None and low >= 0:
            return trips
    if _is_at_least_zero(trips) or not trips.dtype.is_integer:
        return trips
    most = b.constant(np.array(np.iinfo(trips.dtype.numpy).max), trips.dtype)
    return b.apply("Where", b.apply("Less", trips, 0), most, trips)  # type: ignore[no-any-return]


def _is_at_least_zero(trips: Value) -> bool:
    """Whether a number is the larger of something and 0, or another where it is negative, as _limit writes it."""
    node = trips.node
    if node is None:
        return False
    if type(node.op).__name__ == "Where":
        chosen, most, other = node.inputs
        return _is_positive(most) and chosen is not None and _is_sign_of(chosen.node, other)
    return type(node.op).__name__ == "Maximum" and any(_is_zero(x) for x in node.inputs)


def _is_sign_of(node: Node | None, number: Value | None) -> bool:
    return node is not None and type(node.op).__name__ == "Less" and node.inputs[0] is number and _is_zero(node.inputs[1])


def _is_positive(x: Value | None) -> bool:
    return x is not None and x.constant is not None and x.constant.size == 1 and bool(x.constant.item() > 0)


def _is_zero(x: Value | None) -> bool:
    return x is not None and x.constant is not None and x.constant.size == 1 and x.constant.item() == 0


class _Reading:
    """One layer on its way in: the rows of its port map, by what they are."""

    def __init__(self, ctx: ImportContext) -> None:
        self.node = ctx
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
        self.made = [row for row in rows if row["port"] == "output"]

    def loop(self, trips: Value | None, condition: Value | None) -> list[Value]:
        number = self._numbers()
        given = [row for row in self.rows if "purpose" not in row]
        self._all_are_fed(given)
        states = [row for row in given if row["internal_layer_id"] in self.back]
        if any("axis" in row for row in states):
            raise UnsupportedError("loop.slice", "a part of an input is the first state")
        cut = [row for row in given if "axis" in row]
        whole = [row for row in given if "axis" not in row and row not in states]
        if trips is None and condition is None and not cut and is_true(self._going()):
            raise UnsupportedError("loop.endless", "nothing says how often the body runs")
        wanted = [self._row(place) for place in range(len(self.node.node.outputs))]
        last = [row for row in wanted if "axis" not in row]
        first = [self.node.input(int(row["external_port_id"])) for row in states]
        carried = [self.back[row["internal_layer_id"]] for row in states]
        extra = [layer for layer in dict.fromkeys(row["internal_layer_id"] for row in last) if layer not in carried]
        first += [self._nothing_yet(layer) for layer in extra]
        stacked = [row for row in wanted if "axis" in row]
        self.body.inputs = [
            number,
            *(self.inputs[row["internal_layer_id"]] for row in states),
            *(Value(self.body.claim("last"), self.results[layer].type) for layer in extra),
            *(self.inputs[row["internal_layer_id"]] for row in (*cut, *whole)),
        ]
        carried += extra
        self.body.outputs = self._once(
            [self._going(), *(self.results[layer] for layer in (*carried, *(row["internal_layer_id"] for row in stacked)))]
        )
        ranks = [len(self.node.input(int(row["external_port_id"])).dims) for row in cut]
        loop = Loop(
            body=self.body,
            carried=len(carried),
            scanned=tuple(self._entry(row, rank) for row, rank in zip(cut, ranks, strict=True)),
            stacked=tuple(self._laid(row) for row in stacked),
            outputs=len(carried) + len(stacked),
        )
        xs = [*first, *(self.node.input(int(row["external_port_id"])) for row in (*cut, *whole))]
        made = self.node.b.add(loop, trips, condition, *xs)
        parts = iter(made[len(carried) :])
        return [next(parts) if "axis" in row else made[carried.index(row["internal_layer_id"])] for row in wanted]

    def _numbers(self) -> Value:
        """The input that takes the number of the trip; one that nobody reads where the body has none."""
        rows = [row for row in self.rows if row.get("purpose") == "current_iteration"]
        number = Value(self.body.claim("trip"), NUMBER)
        nodes, self.body.nodes = self.body.nodes, []
        for row in rows:
            old = self.inputs[row["internal_layer_id"]]
            new = number if old.dtype == "i64" else self.b.apply("Cast", number, to=old.dtype)
            if old.shape != ():
                new = self.b.apply("Reshape", new, [1] * len(old.dims), copy_zeros=False)
            self._replace(old, new)
        self.body.nodes += nodes
        return number

    def _replace(self, old: Value, new: Value) -> None:
        from dovetail.ir.edit import replace_uses

        replace_uses(self.body, old, new)
        self.results = {layer: new if value is old else value for layer, value in self.results.items()}

    def _all_are_fed(self, given: Sequence[Row]) -> None:
        fed = [row["internal_layer_id"] for row in self.rows]
        for layer in self.inputs:
            if fed.count(layer) != 1:
                raise FormatError("loop.ports", f"{fed.count(layer)} inputs are mapped to the Parameter {layer} of the body")
        if any(int(row["external_port_id"]) < 0 for row in given):
            raise FormatError("loop.ports", "an input of the body is mapped to no port")

    def _going(self) -> Value:
        found = [self.results[row["internal_layer_id"]] for row in self.made if row.get("purpose") == "execution_condition"]
        if not found:
            found = [self.b.constant(np.array(True), dtypes.boolean, "goes_on")]
        return found[0]

    def _row(self, place: int) -> Row:
        wanted = str(place + len(self.node.node.inputs))
        found = [row for row in self.made if row["external_port_id"] == wanted]
        if len(found) != 1:
            raise FormatError("loop.ports", f"{len(found)} results of the body are mapped to output {place}")
        return found[0]

    def _nothing_yet(self, layer: str) -> Value:
        """The first value of what leaves the loop after the last trip, and comes into none."""
        type = self.results[layer].type
        if not isinstance(type, Tensor) or type.dtype is None or not is_static(type):
            raise UnsupportedError("loop.last", f"a result of the last trip alone, of the type {type}")
        return self.node.b.constant(np.zeros(static(type.shape), type.dtype.numpy), type.dtype)

    def _once(self, values: list[Value]) -> list[Value]:
        seen: set[int] = set()
        found = []
        for value in values:
            if id(value) in seen:
                value = self.b.apply("Identity", value)
            seen.add(id(value))
            found.append(value)
        return found

    def _entry(self, row: Row, rank: int) -> tuple[int, int, bool]:
        axis, size = int(row["axis"]), int(row.get("part_size", 1))
        start, end, stride = (int(row.get(name, default)) for name, default in (("start", 0), ("end", -1), ("stride", 1)))
        if not -rank <= axis < rank:
            raise FormatError("loop.axis", f"axis {axis} of an input of rank {rank}")
        if size < 1 or (start, end, stride) not in ((0, -1, size), (-1, 0, -size)):
            raise UnsupportedError(
                "loop.slice", f"parts of {size} from {start} to {end} by {stride}, which are not the whole in order"
            )
        return axis % rank, size, stride < 0

    def _laid(self, row: Row) -> tuple[int, bool]:
        part = self.results[row["internal_layer_id"]]
        axis, size, is_reversed = self._entry(row, len(part.dims))
        if isinstance(part.dims[axis], int) and part.dims[axis] != size:
            raise FormatError("loop.slice", f"parts of {size} along axis {axis}, and the body makes {part.type}")
        return axis, is_reversed


# Writing


@OPENVINO.legalize("Loop")
def legalize_loop(b: Builder, node: Node) -> Any:
    """What is below no trips for us is no limit for OpenVINO; its Loop cuts into parts of one, in order. A TensorIterator holds
    no other one."""
    op: Any = node.op
    if (made := unlisted_body(b, node)) is not None:
        return made
    if _is_iterator(node) and _holds_iterator(op.body):
        return b.add(op, _parts(b, op, node.inputs[2 + op.carried]), None, *node.inputs[2:])
    trips, condition = (*node.inputs, None, None)[:2]
    if trips is None and not op.scanned and (condition is None or is_true(condition)) and is_endless(op.body):
        # What reads IR refuses it.
        raise UnsupportedError("loop.endless", "nothing says how often the body runs")
    is_plain = all(size == 1 and not is_reversed for _, size, is_reversed in op.scanned)
    is_plain = is_plain and parts_are_one(op) and not any(is_reversed for _, is_reversed in op.stacked)
    if not is_plain and not _is_iterator(node):
        return cut_inside(b, node)
    if trips is None or _is_at_least_zero(trips):
        return None
    if trips.value is not None and np.size(trips.value) == 1:
        low, _ = symbolic.bounds(np.reshape(trips.value, ()).item())
        if low is not None and low >= 0:
            return None
    return b.add(node.op, b.apply("Maximum", trips, 0), *node.inputs[1:])


@OPENVINO.exporter("Loop")
def export_loop(ctx: ExportContext, node: Node) -> list[ForeignNode]:
    op: Any = node.op
    body: Graph = op.body
    remove_dead(body)
    trips, condition, *xs = (*node.inputs, None, None)[: max(2, len(node.inputs))]
    is_plain = _is_iterator(node)
    own = op.carried + len(op.scanned)
    # What nobody reads is not handed in; a cut input still says how many trips there are.
    read = [place for place, value in enumerate(body.inputs) if _is_read(body, value) or 0 < place <= own]
    keys = [ctx.key(xs[place - 1]) for place in read if place]
    if is_plain:
        # The condition that every trip goes on is said by no layer.
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
    ports = range(len(keys) - sum(place > 0 for place in read), len(keys))
    body.inputs = [body.inputs[place] for place in read]
    copy_captured_outputs(body)
    foreign = ctx.export_subgraph(body)
    rows, layers = [], {}
    port = iter(ports)
    for place, value in zip(read, foreign.inputs, strict=True):
        layers[place] = value.metadata["layer"] = value.key
        row = {"port": "input", "internal_layer_id": value.key}
        if place == 0:
            rows.append({**row, "external_port_id": "-1", "purpose": "current_iteration"})
        else:
            cut = op.scanned[place - 1 - op.carried] if 0 <= place - 1 - op.carried < len(op.scanned) else None
            rows.append({**row, "external_port_id": str(next(port)), **(_cut_row(*cut) if cut else {})})
    edges = []
    for place, value in enumerate(foreign.outputs, 1 if is_plain else 0):
        layer = value.metadata["layer"] = f"{value.key}/result_{place}"
        row = {"port": "output", "internal_layer_id": layer}
        if place == 0:
            rows.append({**row, "external_port_id": "-1", "purpose": "execution_condition"})
            continue
        laid = _cut_row(*_part_of(op, place)) if place > op.carried else {}
        rows.append({**row, "external_port_id": str(len(keys) + place - 1), **laid})
        if place <= op.carried:
            edges.append({"from-layer": layer, "to-layer": layers[place]})
    attributes: dict[str, Any] = {"body": foreign, "port_map": rows, "back_edges": edges}
    return [ctx.add_node(node, "", "TensorIterator" if is_plain else "Loop", 1 if is_plain else 5, keys, attributes)]


def _is_iterator(node: Node) -> bool:
    """Whether a TensorIterator says the loop: as many trips as there are parts."""
    op: Any = node.op
    is_free = all(x is None for x in node.inputs[:2])
    return is_free and bool(op.scanned) and not _is_read(op.body, op.body.inputs[0]) and is_endless(op.body)


def _holds_iterator(body: Graph) -> bool:
    for node in body.nodes:
        if type(node.op) is Loop and _is_iterator(node):
            return True
        if any(_holds_iterator(inner) for _, inner in bodies(node.op)):
            return True
    return False


def _parts(b: Builder, op: Any, x: Value | None) -> Value:
    """How many parts the first cut input has."""
    axis, size, _ = op.scanned[0]
    length = b.apply("Gather", b.apply("Shape", x, dtype=dtypes.i64), np.array(axis), axis=0)
    return length if size == 1 else b.apply("Divide", length, size)  # type: ignore[no-any-return]


def _is_read(body: Graph, value: Value) -> bool:
    return bool(value.uses) or any(value is output for output in body.outputs)


def _part_of(op: Any, place: int) -> tuple[int, int, bool]:
    axis, is_reversed = op.stacked[place - 1 - op.carried]
    sizes = op.body.outputs[place - 1 - op.outputs].shape
    size = None if sizes is None else sizes[axis]
    if not isinstance(size, int):
        raise UnsupportedError("loop.slice", f"parts laid end to end along axis {axis}, whose size {size} is not known")
    return axis, size, is_reversed


def _cut_row(axis: int, size: int, is_reversed: bool) -> Row:
    start, end, stride = (-1, 0, -size) if is_reversed else (0, -1, size)
    numbers = {"axis": axis, "start": start, "end": end, "stride": stride, "part_size": size}
    return {name: str(number) for name, number in numbers.items()}

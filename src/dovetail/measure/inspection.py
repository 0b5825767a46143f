"""Verdict on a model file that one does not trust: reasons against it, notes, costs, files, digests and texts."""

from __future__ import annotations

import hashlib
import os
import re
from collections.abc import Iterator
from dataclasses import asdict, dataclass, field
from itertools import islice
from typing import TYPE_CHECKING, Any

import numpy as np

from dovetail.errors import Diagnostic, DovetailError, EngineError, UnsupportedError, printable
from dovetail.formats import examine
from dovetail.formats.model_source import Source, bytes_of, resolve_source
from dovetail.ir import symbolic
from dovetail.ir.evaluate import constant_value, last_readers
from dovetail.ir.graph import Graph, Model, Node, Value
from dovetail.ir.limits import Limits, counting, default_limits, refuse_memory
from dovetail.ir.op import bodies, graphs_of
from dovetail.ir.suggestions import check_keywords
from dovetail.ir.symbolic import Size
from dovetail.ir.types import Tensor
from dovetail.ops.constant import Constant, DefaultInput, Foreign
from dovetail.ops.control_flow.loop import Loop
from dovetail.passes.check import check_graph
from dovetail.report.model_summary import all_nodes, summarize
from dovetail.report.text import count
from dovetail.storage.files import record_files

if TYPE_CHECKING:
    from dovetail.passes.equality_triggers import Trigger

PUBLIC_DOMAINS = ("", "ai.onnx", "ai.onnx.ml", "ai.onnx.training", "ai.onnx.preview.training", "com.microsoft", "extension")
"""Domains of operators that a published specification defines; OpenVINO's opsets are public too."""
TYPICAL_SIZE = 64
"""The value of each open size for which the largest set of live values is chosen."""
MAX_TEXT = 400
"""The largest number of characters of a text that the report has; the report has the length of a longer text."""
LONG_TEXT = 1 << 16
"""The number of characters from which on a text is noted."""
CONTROLS = re.compile("[\x00-\x08\x0b\x0c\x0e-\x1f\x7f-\x9f\u061c\u200e\u200f\u202a-\u202e\u2066-\u2069]")
"""Characters that control a terminal or the direction of text, but for tabs and the ends of lines."""
MAX_DIGESTS = 10_000
"""The maximum number of constants whose digests the report has."""


@dataclass(frozen=True, slots=True)
class Finding:
    """Finding is one reason or note: the ``rule`` of docs/howto/inspect.md, a ``message``, and the ``node`` if it has one."""

    rule: str
    message: str
    node: str | None = None

    def __str__(self) -> str:
        return printable(f"{self.rule}: {self.message}" + (f" (in {self.node})" if self.node else ""))


@dataclass(frozen=True, slots=True)
class InspectReport:
    """InspectReport holds the verdict on a model file: ``reasons`` against it, ``notes``, and the facts behind both."""

    name: str
    file: str | None
    reasons: list[Finding]
    notes: list[Finding]
    summary: dict[str, Any] | None = field(repr=False)
    """The summary of :func:`dovetail.model_report`; None for a file that does not load."""
    costs: dict[str, str] = field(repr=False)
    """Costs of the load and of a run by name; those of a run are expressions in the open sizes."""
    loops: list[dict[str, Any]] = field(repr=False)
    """For each loop its ``node``, its ``trips`` as an expression (None: unknown) and its ``bound`` as text."""
    operators: list[dict[str, Any]] = field(repr=False)
    """Operators without a rule to run them: ``operator``, ``count``, ``is_private``."""
    files: list[dict[str, Any]] = field(repr=False)
    """Files that the load read: ``file``, ``bytes``, ``sha256``, ``is_external``."""
    digests: list[dict[str, Any]] = field(repr=False)
    """Constants: ``name``, ``type``, ``sha256`` of the elements in memory; at most MAX_DIGESTS."""
    texts: list[dict[str, Any]] = field(repr=False)
    """Metadata and documentation strings: ``place``, ``text`` (the first MAX_TEXT characters), ``length``, ``has_controls``."""
    repairs: list[Diagnostic] = field(repr=False)
    """Departures from the format that the load repaired."""
    triggers: list[Trigger] = field(repr=False)
    """Paths from an input through an equality test to a selection."""

    @property
    def is_sound(self) -> bool:
        """True if no rule gives a reason against the file."""
        return not self.reasons

    def as_dict(self) -> dict[str, Any]:
        """Return the report as data for JSON."""
        return {**asdict(self), "sound": self.is_sound}

    def html(self) -> str:
        """Return a self-contained HTML page."""
        from dovetail.report.inspection_page import page

        return page(self.as_dict())

    def __repr__(self) -> str:
        reasons = count(len(self.reasons), "reason") if self.reasons else "no reason"
        head = f"<inspection of {self.name!r}: {reasons} against it, {count(len(self.notes), 'note')}>"
        return printable(head) + "".join(f"\n  {item}" for item in self.reasons[:20])


@check_keywords
def inspect(model: Source, *, limits: Limits | None = None) -> InspectReport:
    """Judge a model file that one does not trust; nothing of it is run.

    ``model`` is a path, bytes or a binary file object. The report has ``reasons`` against the file and ``notes``, by the rules of
    docs/howto/inspect.md: faults of the file, costs beyond ``limits``, loops without a bound, private operators, and paths from
    an input to an output that depend on an equality test of the input with a constant, the form of a backdoor that is added to
    a model. It also has the costs of the load and of a run (bytes, steps) as expressions in the open sizes, the files that the
    load read, SHA-256 digests, metadata and documentation strings, and the repairs of the load.

    No reason is no proof: a backdoor in trained weights has no such path.

    Raises MissingFileError [file.missing], UnsupportedError [format.unknown], FormatError [argument.type]; every other error is
    a reason.

    >>> with dovetail.Builder() as b: y = b.output("y", b.Relu(b.input("x", "f32", ("n", 2))))
    >>> dovetail.save(b.model, "relu.onnx")
    >>> report = dovetail.inspect("relu.onnx")
    >>> report.is_sound, report.costs["live values, bytes"]
    (True, '16*n')
    """
    source = resolve_source(model)
    limits = limits or default_limits()
    with record_files() as opened:
        content: Source = source.content if source.file is None else model
        loaded, faults, warnings = examine(content, limits)
    name = os.path.basename(source.file or "") or "model"
    files = _files(opened, source.file)
    if source.file is None:
        data = bytes_of(source.content)
        files = [{"file": "-", "bytes": len(data), "sha256": hashlib.sha256(data).hexdigest(), "is_external": False}, *files]
    if loaded is None:
        reasons = [Finding("load", f"[{item.code}] {item.message}", item.node) for item in faults]
        return InspectReport(name, source.file, reasons, [], None, _file_costs(files), [], [], files, [], [], [], [])
    with counting(limits):
        return _inspect(loaded, name, files, faults, warnings, limits)


def _inspect(
    model: Model, name: str, files: list[dict[str, Any]], faults: list[Diagnostic], warnings: list[Diagnostic], limits: Limits
) -> InspectReport:
    # Deferred for start-up time: the rules import many operators.
    from dovetail.passes.equality_triggers import find_triggers

    reasons: list[Finding] = []
    notes: list[Finding] = []
    preserved = {item for fault in _faults_of(model.graph) for item in fault.diagnostics}
    repairs = [item for item in faults if item not in preserved]
    notes += [Finding("repair", f"[{item.code}] {item.message}", item.node) for item in repairs]
    notes += [Finding("warning", f"[{item.code}] {item.message}", item.node) for item in warnings]
    for item in check_graph(model, is_own=True):
        if item.code == "op.unknown":
            continue
        target = notes if item.code == "op.unsupported" else reasons
        rule = "cost" if item.severity == "warning" else "rule"
        target.append(Finding(rule, f"[{item.code}] {item.message}", item.node))
    reasons += _reasons_of_memory(model.graph, limits)
    for fault in _faults_of(model.graph):
        target = notes if isinstance(fault, UnsupportedError) else reasons
        target += [Finding("rule", f"[{item.code}] {item.message}", item.node) for item in fault.diagnostics]
    operators = _unknown_operators(model.graph)
    for row in operators:
        text = f"{row['count']} of the operator {row['operator']}"
        if row["is_private"]:
            reasons.append(Finding("private operator", f"{text}, which no published specification defines"))
        else:
            notes.append(Finding("operator", f"{text}, through which no path was judged"))
    loops = [describe_loop(node, limits) for node in all_nodes(model.graph) if isinstance(node.op, Loop)]
    for row in loops:
        if row["bound"] == "none":
            reasons.append(Finding("loop", "no constant, size or input bounds the trips", row["node"]))
        elif row["trips"] is None:
            notes.append(Finding("loop", f"the number of trips depends on data; bound: {row['bound']}", row["node"]))
    triggers: list[Trigger] = []
    try:
        triggers = find_triggers(model.graph, limits)
    except DovetailError as error:
        reasons.append(Finding("trigger", f"paths were not judged: [{error.code}] {error.message}"))
    for trigger in triggers:
        (reasons if trigger.is_reason else notes).append(Finding("trigger", str(trigger), trigger.test))
    texts = list(_texts(model))
    for row in texts:
        if row["length"] >= LONG_TEXT:
            notes.append(Finding("text", f"{row['place']} has {row['length']} characters"))
        if row["has_controls"]:
            reasons.append(Finding("text", f"{row['place']} has characters that control a terminal or the direction of text"))
    for kind, text in _names(model.graph):
        if CONTROLS.search(text):
            reasons.append(
                Finding("text", f"the {kind} {text!r} has characters that control a terminal or the direction of text")
            )
            break
    if computed := _computed_sizes(model.graph):
        notes.append(Finding("cost", f"{len(computed)} sizes depend on elements of inputs, such as {computed[0]}"))
    notes += [Finding("file", f"weights are in the file {row['file']}") for row in files if row["is_external"]]
    constants = (node.outputs[0] for node in all_nodes(model.graph) if isinstance(node.op, Constant))
    digests = [_digest(value) for value in islice(constants, MAX_DIGESTS)]
    summary = summarize(model)
    costs = {
        **_file_costs(files),
        "constants, bytes": f"{summary['bytes']}",
        "nodes": f"{summary['nodes']}",
        **_costs(model.graph),
    }
    return InspectReport(
        name, model.file, list(dict.fromkeys(reasons)), list(dict.fromkeys(notes)), summary, costs, loops, operators, files,
        digests, texts, repairs, triggers,
    )  # fmt: skip


def _faults_of(graph: Graph) -> Iterator[DovetailError]:
    """Yield the faults of preserved nodes, without those of operators that no rule defines."""
    for node in all_nodes(graph):
        if isinstance(node.op, Foreign) and node.op.fault is not None:
            yield node.op.fault


def _unknown_operators(graph: Graph) -> list[dict[str, Any]]:
    counts: dict[tuple[str, bool], int] = {}
    for node in all_nodes(graph):
        if isinstance(node.op, Foreign):
            op = node.op
            label = f"{op.domain + '.' if op.domain else ''}{op.kind}-{op.version}"
            is_public = op.domain in PUBLIC_DOMAINS or (op.format == "openvino" and op.domain.startswith("opset"))
            is_private = op.fault is None and not is_public
            counts[label, is_private] = counts.get((label, is_private), 0) + 1
    return [{"operator": label, "count": count, "is_private": is_private} for (label, is_private), count in counts.items()]


def describe_loop(node: Node, limits: Limits) -> dict[str, Any]:
    """Return the ``node``, the ``trips`` as an expression (None: unknown) and the ``bound`` of a loop as text."""
    trips, bound = _trips(node), _bound_of(node)
    if trips is not None:
        text = str(trips)
    elif isinstance(bound, int):
        text = str(bound) if bound <= limits.trips else "none"
    else:
        text = bound or "none"
    return {"node": node.label, "trips": None if trips is None else str(trips), "bound": text}


def _trips(node: Node) -> Size | None:
    """Return the number of trips of a loop; None if it depends on data."""
    op = node.op
    assert isinstance(op, Loop)
    count, cond, *rest = node.inputs
    try:
        return op.known_trips(count, cond, [x for x in rest if x is not None])
    except DovetailError:
        return None


def _bound_of(node: Node) -> int | str | None:
    """Return the bound of a loop whose trips depend on data: a number, or the text of what bounds them; None without a bound."""
    op = node.op
    assert isinstance(op, Loop)
    count = node.inputs[0]
    number = None if count is None else constant_value(count)
    if number is not None and number.size == 1:
        return int(number.reshape(-1)[0])
    if op.scan_inputs:
        return "the parts of its scan inputs"
    return None if count is None else f"the value {count.name}"


def _files(opened: list[tuple[str, os.stat_result]], own: str | None) -> list[dict[str, Any]]:
    """Return a row for each file that the load opened."""
    rows: dict[str, dict[str, Any]] = {}
    for path, status in opened:
        if path in rows or not os.path.isfile(path):
            continue
        with open(path, "rb") as stream:
            digest = hashlib.file_digest(stream, "sha256").hexdigest()
        is_own = own is not None and os.path.abspath(path) == os.path.abspath(own)
        rows[path] = {"file": path, "bytes": status.st_size, "sha256": digest, "is_external": not is_own}
    return list(rows.values())


def _file_costs(files: list[dict[str, Any]]) -> dict[str, str]:
    return {"files, bytes": str(sum(row["bytes"] for row in files))}


def _digest(value: Value) -> dict[str, Any]:
    data = value.constant
    assert data is not None
    if data.dtype.hasobject:
        content = "\0".join(map(str, data.reshape(-1).tolist())).encode("utf-8", "surrogatepass")
    else:
        content = np.ascontiguousarray(data).tobytes()
    return {"name": value.name, "type": str(value.type), "sha256": hashlib.sha256(content).hexdigest()}


def _texts(model: Model) -> Iterator[dict[str, Any]]:
    """Yield the metadata and documentation strings of a model, its graphs, nodes and values."""

    def text_of(place: str, item: object) -> Iterator[dict[str, Any]]:
        if isinstance(item, str) and item:
            has_controls = CONTROLS.search(item) is not None
            yield {"place": place, "text": item[:MAX_TEXT], "length": len(item), "has_controls": has_controls}
        elif isinstance(item, dict):
            for key, each in item.items():
                yield from text_of(f"{place}, {key}", each)

    yield from text_of("producer", " ".join(part for part in model.producer if part))
    yield from text_of("documentation of the model", model.doc)
    yield from text_of("metadata of the model", model.metadata)
    for graph in graphs_of(model.graph):
        yield from text_of(f"documentation of the graph {graph.name}", graph.doc)
        yield from text_of(f"metadata of the graph {graph.name}", graph.metadata)
        for node in graph.nodes:
            yield from text_of(f"documentation of the node {node.label}", node.doc)
        for value in graph.values():
            yield from text_of(f"documentation of the value {value.name}", value.doc)


def _names(graph: Graph) -> Iterator[tuple[str, str]]:
    """Yield the names of graphs, nodes, operators and values, each with its kind."""
    for inner in graphs_of(graph):
        yield "graph", inner.name
        for value in inner.values():
            yield "value", value.name
        for node in inner.nodes:
            yield "node", node.name
            yield "operator", node.title


def _costs(graph: Graph) -> dict[str, str]:
    """Return the steps of a run, and the bytes of its largest tensor and of its largest set of live values."""
    try:
        steps, live = graph_costs(graph)
        sizes = [(_at_typical_sizes(nbytes), nbytes) for inner in graphs_of(graph) for nbytes in map(_bytes, inner.values())]
        largest = max(sizes, key=lambda item: item[0], default=(0, 0))[1]
    except (symbolic.Inexact, ZeroDivisionError, OverflowError):
        return {"steps": "unknown", "live values, bytes": "unknown", "largest tensor, bytes": "unknown"}
    types = [value.type for inner in graphs_of(graph) for value in inner.values()]
    unknown = sum(not isinstance(type, Tensor) or type.shape is None or None in type.shape for type in types)
    rest = f", without {unknown} values of unknown size" if unknown else ""
    return {"steps": str(steps), "live values, bytes": f"{live}{rest}", "largest tensor, bytes": f"{largest}{rest}"}


def _bytes(value: Value) -> Size:
    """Return the bytes of a computed tensor or an input; 0 for constants and for unknown sizes."""
    type = value.type
    if not isinstance(type, Tensor) or type.dtype is None or type.shape is None or None in type.shape:
        return 0
    if value.node is not None and isinstance(value.node.op, Constant | DefaultInput):
        return 0
    total: Size = type.dtype.numpy.itemsize
    for size in type.shape:
        total = total * size
    return total


def _computed_sizes(graph: Graph) -> list[str]:
    """Return the names of the sizes that inference cannot express in the sizes of the inputs."""
    types = [value.type for value in graph.values()]
    sizes = {size for type in types if isinstance(type, Tensor) for size in type.shape or () if not isinstance(size, int)}
    declared = {size for value in graph.inputs if isinstance(value.type, Tensor) for size in value.type.shape or ()}
    names = {symbolic.name_of(symbol) or "" for size in sizes - declared if size is not None for symbol in symbolic.symbols(size)}
    own = {symbolic.name_of(symbol) for size in declared if size is not None for symbol in symbolic.symbols(size)}
    return sorted(names - own)


def _reasons_of_memory(graph: Graph, limits: Limits) -> Iterator[Finding]:
    """Yield a reason if a tensor exceeds the memory limit even where each open size is 1."""
    for inner in graphs_of(graph):
        for value in inner.values():
            nbytes = _bytes(value)
            if isinstance(nbytes, int):
                continue
            try:
                minimum = _at_sizes(nbytes, 1)
                refuse_memory(limits, minimum, f"{value.name!r} ({value.type}) with open sizes of 1")
            except EngineError as error:
                yield Finding("cost", f"[{error.code}] {error.message}", None if value.node is None else value.node.label)
                return
            except (symbolic.Inexact, ZeroDivisionError, OverflowError):
                continue


def _at_sizes(size: Size, number: int) -> int:
    """Return a size where each symbol has the value ``number``."""
    return symbolic.evaluate(size, {symbolic.name_of(symbol) or "": number for symbol in symbolic.symbols(size)})


def _at_typical_sizes(size: Size) -> int:
    return _at_sizes(size, TYPICAL_SIZE)


def graph_costs(graph: Graph) -> tuple[Size, Size]:
    """Return the number of steps of a run, and the bytes of the largest set of live values, both as expressions."""
    steps: Size = 0
    last = last_readers(graph)
    sizes = {id(value): _bytes(value) for value in graph.values()}
    numbers = {key: _at_typical_sizes(size) for key, size in sizes.items()}
    first = {id(value): -1 for value in graph.inputs}
    ends: dict[int, int] = {}
    current = sum(numbers[key] for key in first)
    largest, peak = current, -1
    inner_bytes: Size = 0
    for index, node in enumerate(graph.nodes):
        first.update({id(y): index for y in node.outputs})
        ends.update(dict.fromkeys(last.get(index, ()), index))
        if isinstance(node.op, Constant | DefaultInput):
            continue
        body_steps: Size = 0
        body_bytes: Size = 0
        for _, body in bodies(node.op):
            added, live = graph_costs(body)
            body_steps = body_steps + added
            body_bytes = live if _at_typical_sizes(live) > _at_typical_sizes(body_bytes) else body_bytes
        steps = steps + 1 + body_steps * (_largest_trips_of(node) if isinstance(node.op, Loop) else 1)
        current += sum(numbers[id(y)] for y in node.outputs)
        if current + _at_typical_sizes(body_bytes) > largest:
            largest, peak, inner_bytes = current + _at_typical_sizes(body_bytes), index, body_bytes
        current -= sum(numbers[key] for key in last.get(index, ()))
    total: Size = inner_bytes
    for key, size in sizes.items():
        if first.get(key, peak + 1) <= peak <= ends.get(key, len(graph.nodes)):
            total = total + size
    return steps, total


def _largest_trips_of(node: Node) -> Size:
    """Return the trips of a loop, or their bound, or a symbol for them."""
    trips, bound = _trips(node), _bound_of(node)
    if trips is not None:
        return trips
    return bound if isinstance(bound, int) else symbolic.symbol(f"trips of {node.label}", 0, None)

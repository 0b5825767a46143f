"""Read a model from its text form: build the graph, infer its types, and merge the declared types."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

from dovetail.errors import Diagnostic, DovetailError, FormatError, RuleError, raise_all
from dovetail.formats.declared_types import apply_declared_type
from dovetail.formats.text.grammar import MAX_DEPTH, Line
from dovetail.formats.text.literals import LiteralReader
from dovetail.formats.text.metadata_forms import wrong_entry
from dovetail.formats.text.writer import KINDS, usual_names
from dovetail.ir import dtypes, symbolic
from dovetail.ir.builder import describe_op
from dovetail.ir.edit import connect
from dovetail.ir.graph import Graph, Model, Node, Value
from dovetail.ir.limits import counting
from dovetail.ir.op import REGISTRY, UNFORESEEN, Op, bodies, failure, infer_types, infer_values, output_count
from dovetail.ir.state import State
from dovetail.ir.types import UNKNOWN, Tensor, Type, is_unnamed
from dovetail.ops.constant import Constant

MAX_ERRORS = 100
"""The maximum number of faults that are reported at once."""


class _Heading(NamedTuple):
    """_Heading is the parsed line of a node: its outputs with declared types, and its operator."""

    outputs: list[tuple[str, Type]]
    cls: type[Op]
    inputs: list[str | None]
    attributes: dict[str, Any]
    graphs: dict[str, int]
    name: str


class TooManyFaults(Exception):
    """TooManyFaults stops the reader at MAX_ERRORS faults."""


class TextReader:
    """TextReader reads the lines after the first line. Raises one error with all faults ([text.syntax], [text.name] etc.)."""

    def __init__(self, lines: list[str], weights: Mapping[str, Any], file: str | None) -> None:
        self._lines = lines
        self._next = 1
        self._file = file
        self._literals = LiteralReader(weights)
        self._errors: list[DovetailError] = []
        self._warnings: list[Diagnostic] = []
        self._named: list[str] = [*KINDS]

    def model(self) -> Model:
        """Read and return the model."""
        facts: dict[str, Any] = {}
        graph: Graph | None = None
        try:
            with counting() as usage, usage.cache_inferences():
                while (line := self._line()) is not None:
                    try:
                        if line.accept("graph") and graph is None:
                            graph = self._graph(line, 0)
                        elif line.accept("symbol"):
                            self._symbol(line)
                        else:
                            self._fact(line, facts)
                    except FormatError as error:
                        self._report(error)
        except TooManyFaults:
            pass
        if graph is None and not self._errors:
            self._errors.append(FormatError("text.syntax", "the text must have a graph", file=self._file))
        if graph is not None and not graph.outputs and not self._errors:
            self._errors.append(FormatError("graph.outputs", "the graph must have at least 1 output, got 0", file=self._file))
        raise_all(self._errors, f"faults in {self._file or 'the model'}")
        assert graph is not None
        model = Model(graph, format=facts.get("format", ""), versions=facts.get("versions"), file=self._file)
        model.metadata, model.doc = facts.get("metadata", {}), facts.get("doc", "")
        model.producer = facts.get("producer", ("", ""))
        model.states = [State(*row) for row in facts.get("states", ())]
        model.warnings = self._warnings
        self._check_states(model)
        return model

    # Lines

    def _line(self) -> Line | None:
        """Return the next line that is neither empty nor a comment; None at the end of the text."""
        while self._next < len(self._lines):
            text = self._lines[self._next]
            self._next += 1
            stripped = text.strip(" ")
            if stripped and not stripped.startswith("#"):
                return Line(text, self._next)
        return None

    def _line_within(self, indent: int) -> Line | None:
        """Return the next line if it is indented by at least ``indent`` spaces, else None."""
        position = self._next
        line = self._line()
        if line is not None and line.indent < indent:
            self._next = position
            return None
        return line

    def _report(self, error: DovetailError, node: str | None = None) -> None:
        self._errors.append(error.at(node=node, file=self._file))
        if len(self._errors) >= MAX_ERRORS:
            raise TooManyFaults

    # The model

    def _fact(self, line: Line, facts: dict[str, Any]) -> None:
        column = line.peek().column
        key = line.name()
        if key not in _FACTS or key in facts:
            raise line.fault(f"a fact of a model must be known and unique, got {key[:40]!r}", column)
        column = line.peek().column
        value = self._literals.value(line)
        line.expect_end()
        if not _FACTS[key](value):
            raise line.fault(f"the value of {key!r} must have a valid form (docs/text_form.md)", column)
        if key == "metadata":
            _check_metadata(line, value, column)
        facts[key] = value
        if key == "named":
            self._named = value

    def _symbol(self, line: Line) -> None:
        text = line.name()
        name = line.name() if line.accept("=") else text
        column = line.peek().column
        low, dots, high = line.name().partition("..")
        line.expect_end()
        numbers = [None if not part else int(part) if _is_integer(part) else "" for part in (low, high)]
        is_empty = all(isinstance(number, int) for number in numbers) and numbers[0] > numbers[1]  # type: ignore[operator]
        if not dots or "" in numbers or is_empty:
            raise line.fault("bounds must be LOW..HIGH, each a number or empty", column)
        self._literals.symbols[text] = symbolic.symbol(name, *numbers)  # type: ignore[arg-type]

    def _check_states(self, model: Model) -> None:
        inputs, outputs = ({value.name for value in side} for side in (model.inputs, model.outputs))
        for state in model.states:
            if state.input not in inputs or not set(state.outputs) <= outputs:
                message = f"the state {state.variable!r} must be an input and outputs of the graph"
                raise FormatError("text.name", message, file=self._file)

    # Graphs

    def _graph(self, line: Line, depth: int) -> Graph:
        """Read a graph from the lines after its heading that have a deeper indentation."""
        graph = Graph(line.name())
        line.expect_end()
        if depth > MAX_DEPTH:
            raise line.fault(f"subgraphs must nest at most {MAX_DEPTH} levels deep")
        values: dict[str, Value] = {}
        returned: set[str] = set()
        indent = line.indent + 1
        while (item := self._line_within(indent)) is not None:
            try:
                self._item(item, graph, values, returned, depth)
            except FormatError as error:
                self._report(error)
                self._skip(item.indent + 1)
        return graph

    def _skip(self, indent: int) -> None:
        while self._line_within(indent) is not None:
            pass

    def _item(self, line: Line, graph: Graph, values: dict[str, Value], returned: set[str], depth: int) -> None:
        if line.accept("."):
            self._graph_fact(line, graph)
            return
        token = line.peek()
        rest = line.text[token.column + len(token.text) :].lstrip(" ")[:1]
        # "input" and "output" may also be names of values.
        if token.text == "input" and rest not in (":", "="):
            line.take()
            self._input(line, graph, values)
        elif token.text == "output" and rest not in (":", "="):
            line.take()
            column = line.peek().column
            name = line.name()
            line.expect_end()
            if name not in values:
                raise self._dangling(line, name, column)
            if name in returned:
                raise FormatError("text.name", f"line {line.number}: outputs must be different, got {name!r} twice")
            returned.add(name)
            graph.outputs.append(values[name])
        else:
            self._node(line, graph, values, depth)

    def _graph_fact(self, line: Line, graph: Graph) -> None:
        column = line.peek().column
        key = line.name()
        value = self._literals.value(line)
        line.expect_end()
        if key == "fault" and isinstance(value, DovetailError):
            graph.fault = value
        elif key == "doc" and isinstance(value, str):
            graph.doc = value
        elif key == "metadata" and isinstance(value, dict):
            _check_metadata(line, value, column)
            graph.metadata = value
        else:
            raise line.fault(f"a fact of a graph must be doc, metadata or fault with a valid value, got {key[:40]!r}", column)

    def _input(self, line: Line, graph: Graph, values: dict[str, Value]) -> None:
        name, type = self._typed_name(line)
        line.expect_end()
        value = self._define(line, graph, values, name, type)
        value.names = usual_names(value, self._named)
        graph.inputs.append(value)
        while (item := self._line_within(line.indent + 1)) is not None:
            item.expect(".")
            self._describe(item, None, [value])

    def _typed_name(self, line: Line) -> tuple[str, Type]:
        name = line.name()
        line.expect(":")
        return name, self._literals.type(line)

    def _define(self, line: Line, graph: Graph, values: dict[str, Value], name: str, type: Type) -> Value:
        if name in values:
            raise FormatError("text.name", f"line {line.number}: values must have different names, got {name!r} twice")
        value = values[name] = Value(graph.claim(name), type)
        return value

    def _dangling(self, line: Line, name: str, column: int) -> FormatError:
        return FormatError(
            "text.name", f"line {line.number}, column {column + 1}: an earlier line must define the value {name[:80]!r}"
        )

    def _describe(self, line: Line, node: Node | None, values: list[Value]) -> None:
        """Read the description (.node or .value) of a node, of one of its outputs, or of a graph input."""
        column = line.peek().column
        key = line.name()
        index = 0
        if key == "value" and node is not None:
            token = line.take()
            index = int(token.text) if token.kind == "number" and token.text.isdigit() and len(token.text) < 9 else -1
        facts = self._literals.value(line)
        line.expect_end()
        target: Any = node if key == "node" else values[index] if key == "value" and 0 <= index < len(values) else None
        if target is None or not _is_description(facts) or ("names" in facts and target is node):
            raise line.fault("a description must be .node or .value, with doc, metadata or names", column)
        _check_metadata(line, facts.get("metadata", {}), column)
        for name, fact in facts.items():
            setattr(target, name, tuple(fact) if name == "names" else fact)

    # Nodes

    def _node(self, line: Line, graph: Graph, values: dict[str, Value], depth: int) -> None:
        outputs: list[tuple[str, Type]] = []
        try:
            heading = self._heading(line, outputs)
        except FormatError:
            # The outputs are defined nevertheless, because later lines may read them.
            for name, type in outputs:
                values.setdefault(name, Value(graph.claim(name), type))
            raise
        attributes = dict(heading.attributes)
        descriptions: list[Line] = []
        while (item := self._line_within(line.indent + 1)) is not None:
            if item.accept("."):
                descriptions.append(item)
                continue
            item.expect("graph")
            column = item.peek().column
            key = item.name()
            if key not in heading.graphs or key in attributes:
                raise item.fault(f"the operator must have a subgraph {key[:40]!r}, once", column)
            attributes[key] = self._graph(item, depth + 1)
        missing = [key for key in heading.graphs if key not in attributes]
        if missing:
            raise line.fault(f"the subgraph {missing[0]!r} must follow the line of its operator", heading.graphs[missing[0]])
        node = self._add(line, graph, values, heading, attributes)
        for item in descriptions:
            self._describe(item, node, node.outputs)

    def _heading(self, line: Line, outputs: list[tuple[str, Type]]) -> _Heading:
        """Read the line of a node; ``outputs`` receives the names and types before the equals sign."""
        while not line.accept("="):
            if outputs:
                line.expect(",")
            outputs.append(self._typed_name(line))
        token = line.peek()
        inputs: list[str | None] = []
        attributes: dict[str, Any] = {}
        graphs: dict[str, int] = {}
        if token.kind == "name" and dtypes.by_name(token.text) is not None:
            cls: type[Op] = REGISTRY["Constant"]
            data, dtype = self._literals.tensor(line)
            attributes = {"data": data, "dtype": dtype}
        else:
            cls, inputs, attributes, graphs = self._literals.operator_parts(line)
        name = line.unquote(line.take()) if line.peek().kind == "string" else ""
        line.expect_end()
        return _Heading(outputs, cls, inputs, attributes, graphs, name)

    def _add(self, line: Line, graph: Graph, values: dict[str, Value], heading: _Heading, attributes: dict[str, Any]) -> Node:
        xs: list[Value | None] = []
        for name in heading.inputs:
            if name is not None and name not in values:
                self._report(self._dangling(line, name, line.indent))
                values[name] = Value(graph.claim(name))
            xs.append(None if name is None else values[name])
        first_name = heading.outputs[0][0] if heading.outputs else ""
        label = heading.name or first_name
        types: list[Type] = [type for _, type in heading.outputs]
        known: Sequence[Any] = [None] * len(types)
        op: Op | None = None
        try:
            op = heading.cls(**attributes)
            types, known = self._infer(op, xs, graph, first_name, heading)
        except DovetailError as error:
            self._report(error, f"{label} (line {line.number})")
        except UNFORESEEN as error:
            self._report(failure(error), f"{label} (line {line.number})")
        outputs = [self._define(line, graph, values, name, type) for (name, _), type in zip(heading.outputs, types, strict=True)]
        node = Node(REGISTRY["Identity"]() if op is None else op, xs, outputs, heading.name, f"line {line.number}")
        graph.nodes.append(connect(node))
        for y, (_, declared), value in zip(outputs, heading.outputs, known, strict=True):
            y.type, y.value, y.names = _with_declared_symbols(y.type, declared), value, usual_names(y, self._named)
            if op is not None and (warning := apply_declared_type(graph, y, declared, self._file)) is not None:
                self._warnings.append(warning)
        return node

    def _infer(
        self, op: Op, xs: list[Value | None], graph: Graph, first_name: str, heading: _Heading
    ) -> tuple[list[Type], Sequence[Any]]:
        """Infer types and values of the outputs; in a graph with a declared fault, inference errors give unknown types."""
        count = len(heading.outputs)
        if output_count(op) != count and not isinstance(op, Constant):
            raise RuleError("node.outputs", f"{op.title} must have {output_count(op)} outputs, got {count}")
        if isinstance(op, Constant):
            return op.types(), [None]
        for key, body in bodies(op):
            # Subgraphs of If have no input for the condition. The body of Loop has none for trip count and condition, but one
            # for the trip number.
            if len(body.inputs) != len(xs) - 1:
                raise RuleError("node.inputs", f"{key} of {op.title} must have {len(xs) - 1} inputs, got {len(body.inputs)}")
        try:
            types = infer_types(op, tuple(xs), graph.stem(first_name))
            return types, infer_values(op, tuple(xs), types)
        except DovetailError as error:
            error.at(op=describe_op(op, xs))
            if graph.fault is None:
                raise
            return [UNKNOWN] * count, [None] * count


def _with_declared_symbols(inferred: Type, declared: Type) -> Type:
    """Return the inferred type with each unnamed symbol replaced by the declared unnamed symbol of the same axis."""
    is_tensor = isinstance(inferred, Tensor) and isinstance(declared, Tensor)
    if not is_tensor or inferred.shape is None or declared.shape is None or len(inferred.shape) != len(declared.shape):
        return inferred
    pairs = zip(inferred.shape, declared.shape, strict=True)
    return Tensor(inferred.dtype, tuple(theirs if is_unnamed(ours) and is_unnamed(theirs) else ours for ours, theirs in pairs))


def _check_metadata(line: Line, metadata: dict[Any, Any], column: int) -> None:
    wrong = wrong_entry(metadata)
    if wrong is not None:
        raise line.fault(f"the metadata entry {wrong[:40]!r} must have a valid form", column)


def _is_integer(text: str) -> bool:
    return len(text) < 80 and text.removeprefix("-").isdigit() and text.isascii()


def _is_description(facts: object) -> bool:
    return isinstance(facts, dict) and all(
        (key == "doc" and isinstance(fact, str))
        or (key == "metadata" and isinstance(fact, dict) and all(isinstance(name, str) for name in fact))
        or (key == "names" and isinstance(fact, list) and all(isinstance(name, str) for name in fact))
        for key, fact in facts.items()
    )


def _is_state_rows(value: object) -> bool:
    return isinstance(value, list) and all(
        isinstance(row, tuple) and len(row) == 4 and all(isinstance(item, str) for item in row[:3])
        and (row[3] is None or isinstance(row[3], str)) for row in value
    )  # fmt: skip


_FACTS: dict[str, Callable[[Any], bool]] = {
    "format": lambda value: isinstance(value, str) and value in ("onnx", "openvino"),
    "versions": lambda value: (
        isinstance(value, dict) and all(isinstance(key, str) and type(number) is int for key, number in value.items())
    ),
    "producer": lambda value: isinstance(value, tuple) and len(value) == 2 and all(isinstance(item, str) for item in value),
    "doc": lambda value: isinstance(value, str),
    "metadata": lambda value: isinstance(value, dict) and all(isinstance(key, str) for key in value),
    "states": _is_state_rows,
    "named": lambda value: isinstance(value, list) and all(isinstance(kind, str) and kind in KINDS for kind in value),
}
"""Maps the keys of a model's properties (format, versions and so on) to predicates that accept valid values."""

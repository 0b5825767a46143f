"""ImportContext, through which importers of converter modules read one foreign node."""

from __future__ import annotations

from dataclasses import replace
from typing import Any, Protocol

from numpy.typing import ArrayLike

from dovetail.errors import Diagnostic, DovetailError, FormatError, RuleError, UnsupportedError
from dovetail.formats.foreign import ForeignGraph, ForeignNode
from dovetail.formats.import_node import Reading, constant_of
from dovetail.formats.import_scope import ImportScope
from dovetail.ir import op_mapping, symbolic
from dovetail.ir.attribute_types import REQUIRED, Field
from dovetail.ir.builder import Builder
from dovetail.ir.dtypes import DType
from dovetail.ir.edit import inline
from dovetail.ir.graph import Graph, Value
from dovetail.ir.op_mapping import ParamMapping
from dovetail.ir.types import UNKNOWN


class NodeImporter(Protocol):
    """NodeImporter is the interface through which :class:`ImportContext` applies op mappings and imports subgraphs."""

    def apply_mappings(self, node: ForeignNode, inputs: list[Value | None]) -> Reading:
        """Import ``node`` by the first op mapping that accepts the node."""

    def import_subgraph(self, foreign: ForeignGraph, captures: list[Value]) -> Graph:
        """Import a subgraph; see :meth:`ImportContext.import_subgraph`."""


class ImportContext:
    """ImportContext holds a foreign node, its inputs as values, and the Builder ``b`` that creates the replacing nodes."""

    def __init__(self, scope: ImportScope, node: ForeignNode, inputs: list[Value | None], reader: NodeImporter) -> None:
        self.b: Builder = scope.b
        self.node = node
        self.inputs = inputs
        self.scope = scope
        self._reader = reader
        self._read: set[str] = set()

    # Inputs

    def input(self, index: int) -> Value:
        """Return a required input. Raises FormatError [node.inputs]."""
        x = self.optional_input(index)
        if x is None:
            raise FormatError("node.inputs", f"{self.node.kind} needs input {index}")
        return x

    def optional_input(self, index: int) -> Value | None:
        return self.inputs[index] if index < len(self.inputs) else None

    def input_of_rank(self, index: int, rank: int) -> Value:
        """Return a required input of rank ``rank``. Raises RuleError [shape.rank], and Unknown for an unknown rank."""
        x = self.input(index)
        if len(x.dims) != rank:
            raise RuleError("shape.rank", f"{self.node.kind}: input {index} must have rank {rank}, got rank {len(x.dims)}")
        return x

    def constant_input(self, index: int, annotation: str, default: object = REQUIRED, conversion: str = "") -> Any:
        """Return a constant input converted to an attribute value. Raises UnsupportedError [constant.needed] otherwise."""
        x = self.optional_input(index)
        if x is None:
            if default is REQUIRED:
                raise FormatError("node.inputs", f"{self.node.kind} needs input {index}")
            return default
        self.scope.constants.mark_folded_constant(x)
        return op_mapping.read_constant(
            ParamMapping((f"input {index}",), f"input {index}", conversion=conversion),
            Field(f"input {index}", annotation, REQUIRED),
            constant_of(x, f"{self.node.kind}: input {index}"),
        )

    def attribute_or_input(self, index: int, annotation: str) -> Any:
        """Return a required input: as an attribute value if it is constant, otherwise as a Value."""
        x = self.input(index)
        try:
            return self.constant_input(index, annotation)
        except UnsupportedError:
            return x

    def add_constant(self, data: ArrayLike, dtype: DType) -> Value:
        """Add a constant that is not in the file; see :meth:`ImportedConstants.add`."""
        return self.scope.constants.add(data, dtype)

    # Attributes

    def attribute(self, name: str, annotation: str, default: object = REQUIRED) -> Any:
        """Return a foreign attribute, coerced to ``annotation``. Raises FormatError [attribute.missing], [attribute.value]."""
        self._read.add(name)
        if name not in self.node.attributes:
            if default is REQUIRED:
                raise FormatError("attribute.missing", f"{self.node.kind} needs the attribute {name!r}")
            return default
        raw = self.node.attributes[name]
        if not self.scope.is_text and (number := op_mapping.as_floats(annotation, raw)) is not None:
            self.deviate(FormatError("attribute.value", f"{self.node.kind}: {name} must be of type float, got {raw!r}"))
            raw = number
        if (annotation == "Graph") != isinstance(raw, ForeignGraph):
            expected, actual = ("a graph", "a value") if annotation == "Graph" else ("a value", "a graph")
            raise FormatError("attribute.value", f"{self.node.kind}: {name} must be {expected}, got {actual}")
        try:
            if not self.scope.is_text:
                op_mapping.refuse_strings(annotation, [raw])
            return op_mapping.coerce(annotation, raw)
        except ValueError:
            expected = op_mapping.type_name(annotation)
            raise FormatError("attribute.value", f"{self.node.kind}: {name} must be {expected}, got {raw!r}") from None

    def ignore(self, *names: str) -> None:
        """Accept attributes that readers ignore according to the specification."""
        self._read.update(names)

    def refuse_unread_attributes(self) -> None:
        """Raise UnsupportedError [attribute.unknown] if the node has an attribute that the importer has not read."""
        extra = [name for name in self.node.attributes if name not in self._read]
        if extra:
            raise UnsupportedError(
                "attribute.unknown", f"the attribute {', '.join(map(repr, extra))} of {self.node.kind} is unknown to dovetail"
            )

    def warn(self, code: str, message: str | None) -> None:
        """Add a warning to the model's warnings; do nothing if ``message`` is None."""
        if message is not None:
            self.scope.warnings.append(Diagnostic(code, message, self.node.label, self.scope.file, severity="warning"))

    def deviate(self, error: DovetailError) -> None:
        """Report a deviation of the node; raise ``error`` if the import does not collect deviations."""
        if self.scope.deviations is None:
            raise error
        self.scope.deviate(error, self.node)

    def as_scalars(self, *indices: int) -> list[Value | None] | None:
        """Return the inputs, with one-element vectors at ``indices`` reshaped to scalars; None if there are no such vectors.

        The specification requires scalars, but runtimes accept vectors of one element: each reshaped vector is a deviation.
        """
        xs = list(self.inputs)
        for index in indices:
            x = xs[index] if index < len(xs) else None
            if x is None or x.shape is None or len(x.shape) != 1 or symbolic.equal(x.shape[0], 1) is False:
                continue
            self.deviate(RuleError("shape.rank", f"{self.node.kind}: input {index} must be a scalar, got {x.type}"))
            xs[index] = self.b.Reshape(x, [])
        return xs if any(x is not y for x, y in zip(xs, self.inputs, strict=True)) else None

    # Other nodes and graphs

    def apply_mapping(self, *inputs: Value | None, **attributes: object) -> Reading:
        """Import the node by its op mappings, with ``inputs`` and ``attributes`` instead of those of the node."""
        self._read.update(self.node.attributes)
        return self._reader.apply_mappings(replace(self.node, attributes=attributes), list(inputs))

    def add_operator(self, kind: str, version: int, inputs: list[Value | None], attributes: dict[str, Any]) -> Value:
        """Add an operator of the format's default domain by its op mappings, and return its first output."""
        self._read.update(attributes)
        keys: list[str | None] = [None if x is None else x.name for x in inputs]
        node = replace(
            self.node, kind=kind, version=version, domain="", inputs=keys, outputs=self.node.outputs[:1], attributes=attributes
        )
        op, xs = self._reader.apply_mappings(node, inputs)
        return self.b.add(op, *xs)[0]

    def select_attributes(self, *names: str) -> dict[str, Any]:
        """Return the foreign attributes among ``names`` without conversion; absent attributes are left out."""
        return {name: self.node.attributes[name] for name in names if name in self.node.attributes}

    def import_subgraph(self, graph: ForeignGraph, captures: list[Value]) -> Graph:
        """Import a closed subgraph.

        The outer values that the subgraph reads are appended to ``captures``. They become graph inputs after the inputs of the
        subgraph.
        """
        return self._reader.import_subgraph(graph, captures)

    @property
    def error_count(self) -> int:
        """The number of errors that the import has collected."""
        return len(self.scope.errors)

    def discard_errors(self, count: int) -> None:
        """Discard all collected errors but the first ``count``; the discarded errors belong to a subgraph that never runs."""
        del self.scope.errors[count:]

    def inline_subgraph(self, body: Graph, inputs: list[Value], error_count: int) -> list[Value]:
        """Inline a subgraph in place of the node, and return the subgraph's outputs.

        ``error_count``: the number of errors before the subgraph's import. More errors mean a faulty subgraph, which is not
        inlined; its outputs then have unknown types.
        """
        if self.error_count > error_count:
            return [Value(self.b.graph.claim("unknown"), UNKNOWN) for _ in body.outputs]
        return inline(self.b, body, inputs)

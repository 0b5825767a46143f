"""ImportScope, the state of importing one graph: values by key, constants, variables and errors."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import count

from dovetail.errors import Diagnostic, DovetailError, FormatError
from dovetail.formats.declared_types import apply_declared_type
from dovetail.formats.foreign import ForeignGraph, ForeignNode, ForeignValue
from dovetail.formats.import_constants import ImportedConstants
from dovetail.formats.import_state import ImportedVariables
from dovetail.ir.builder import Builder
from dovetail.ir.graph import Graph, Value
from dovetail.storage.deviations import Deviations


class ImportScope:
    """ImportScope is the state of importing one graph; the scope of a subgraph has an outer scope.

    ``values`` maps keys to imported values. ``captures`` holds the values of outer scopes that the graph reads, in the order of
    the graph inputs that stand for them. ``errors`` holds the errors of the graph's structure, ``faults`` the errors of
    preserved nodes. ``is_text`` states that attribute values are strings. Without ``deviations`` every deviation is an error.
    """

    def __init__(
        self,
        foreign: ForeignGraph,
        *,
        is_text: bool,
        file: str | None = None,
        outer: ImportScope | None = None,
        deviations: Deviations | None = None,
    ) -> None:
        self.foreign = foreign
        self.is_text = is_text
        self.file = file
        self.outer = outer
        self.deviations: Deviations | None = deviations if outer is None else outer.deviations
        self.undeclared_domains: frozenset[str] = frozenset() if outer is None else outer.undeclared_domains
        self.graph = Graph(foreign.name)
        self.b = Builder(graph=self.graph, fold=True, strict=False)
        self.values: dict[str, Value] = {}
        self.captures: list[Value] = []
        # The declared type of an output is merged as soon as the output is produced, so that inference of its readers uses it.
        self.declared_outputs = {item.key: item for item in reversed(foreign.outputs)}
        self.merged_outputs: set[str] = set()
        self.constants = ImportedConstants(self.b)
        # Numbers of the random operators of all graphs of the file that have no seed.
        self.draws: Iterator[int] = count(1) if outer is None else outer.draws
        self.variables = ImportedVariables(self.graph, is_subgraph=outer is not None)
        self.errors: list[DovetailError] = [] if outer is None else outer.errors
        self.faults: list[DovetailError] = [] if outer is None else outer.faults
        self.warnings: list[Diagnostic] = [] if outer is None else outer.warnings

    def lookup(self, key: str) -> Value | None:
        """Return the value of ``key``; None if it is missing. A value of an outer scope is captured as a new graph input."""
        value = self.values.get(key)
        if value is None and self.outer is not None:
            captured = self.outer.lookup(key)
            if captured is not None:
                self.captures.append(captured)
                value = Value(self.graph.claim(captured.name), captured.type)
                value.value = captured.value
                self.graph.inputs.append(value)
                self.values[key] = value
        return value

    def name_of(self, key: str | None) -> str:
        """Return the name that the file gives to the value of ``key``; an empty string for an absent output."""
        if key is None:
            return ""
        item = self.foreign.values.get(key)
        return key if item is None else item.name

    def describe(self, value: Value, item: ForeignValue) -> None:
        """Copy the names, documentation and metadata that the file has for a value to ``value``."""
        value.names, value.doc, value.metadata = item.names, item.doc, dict(item.metadata)

    def apply_declared_type(self, value: Value, item: ForeignValue) -> None:
        """Merge the type that the file declares into the inferred type of ``value``, and report contradictions.

        OpenVINO infers the types of IR anew, whatever the file says.
        """
        warning = apply_declared_type(self.graph, value, item.type, self.file)
        if warning is not None:
            self.report_declaration(warning)

    def report_declaration(self, warning: Diagnostic) -> None:
        """Report a declared type that contradicts the inferred type: a deviation in ONNX, a warning in IR."""
        if self.deviations is None or self.is_text:
            self.warnings.append(warning)
        else:
            self.deviations.add(FormatError(warning.code, warning.message, node=warning.node, file=warning.file))

    def deviate(self, error: DovetailError, node: ForeignNode) -> None:
        """Report a deviation of ``node``."""
        error.at(node=node.label, file=self.file)
        if self.deviations is None:
            self.errors.append(error)
        else:
            self.deviations.add(error)

"""Legalization rewrites a graph before export into operators that the target format has."""

from __future__ import annotations

from dovetail.errors import DovetailError, RuleError
from dovetail.formats.dialect import Dialect
from dovetail.formats.export_errors import ExportErrors
from dovetail.formats.mapping_selection import MappingSelector, NoFit, RewriteResult
from dovetail.formats.readback import check_replacement
from dovetail.ir import symbolic
from dovetail.ir.builder import Builder
from dovetail.ir.edit import inherit, remove_dead
from dovetail.ir.graph import Graph, Node, Value
from dovetail.ir.op import UNFORESEEN, bodies, failure, has
from dovetail.ir.rewrite import rewrite
from dovetail.ir.types import Unknown
from dovetail.ops.runtime_attributes import as_attributes

MAX_ROUNDS = 8
"""The maximum number of rewriting rounds; it is at least the length of the longest chain of rewrites of rewritten nodes."""

COPY_LIMIT = 1024
"""The maximum size in bytes of a shared constant that a rewrite may duplicate in another layout.

A larger constant is transposed at run time; runtimes fold the Transpose when they load the file.
"""


class Legalizer:
    """Legalizer legalizes the graphs of one model for one target."""

    def __init__(self, dialect: Dialect, selector: MappingSelector, errors: ExportErrors) -> None:
        self.dialect = dialect
        self.version_of = selector.version_of
        self.errors = errors
        self._selector = selector
        self._new_names: dict[Value, str] = {}

    def legalize(self, graph: Graph) -> None:
        """Rewrite every operator that the target does not have, also in subgraphs.

        Operators without a rewrite stay; the export reports them.
        """
        self.errors.add_graph(graph.nodes)
        for _ in range(MAX_ROUNDS):
            if not rewrite(graph, self._rewrite_node, fold=True, copy_limit=COPY_LIMIT):
                break
        # The removal of dead nodes also removes nodes that have no readers in the model before legalization.
        remove_dead(graph)
        self._renumber(graph)
        for node in graph.nodes:
            for _, body in bodies(node.op):
                self.legalize(body)

    def _renumber(self, graph: Graph) -> None:
        """Rename the values that rewrites created to the first free names.

        Their current names still avoid the names of values that were removed later.
        """
        values = [(y, self._new_names[y]) for node in graph.nodes for y in node.outputs if self._new_names.get(y) == y.name]
        for y, _ in values:
            graph.release(y.name)
        # No name becomes free during the loop, so that the search for a stem continues at the last number.
        counts: dict[str, int] = {}
        for y, name in values:
            stem, _, number = name.rpartition("_")
            stem = stem if number.isdigit() else name
            count = counts.get(stem, 1)
            while graph.is_taken(free_name := stem if count == 1 else f"{stem}_{count}"):
                count += 1
            counts[stem] = count
            y.name = graph.claim(free_name)

    def _rewrite_node(self, b: Builder, node: Node) -> RewriteResult:
        origin = self.errors.origin_of(node)
        if self.errors.has(origin):
            return None
        mark = len(b.graph.nodes)
        b.location = node.location
        try:
            result = self._rewritten(b, node)
            check_replacement(node, result)
        except (Unknown, symbolic.Inexact):
            # A rewrite that needs unknown types leaves the node unchanged.
            return None
        except DovetailError as error:
            self.errors.add(origin, error)
            return None
        except UNFORESEEN as error:
            self.errors.add(origin, failure(error))
            return None
        if result is not None:
            inherit(b.graph, mark, node)
            self.errors.set_origin(b.graph.nodes[mark:], origin)
            self._new_names.update((y, y.name) for new_node in b.graph.nodes[mark:] for y in new_node.outputs)
            if len(b.graph.nodes) > mark and node.name:
                b.graph.nodes[-1].name = node.name
        return result

    def _rewritten(self, b: Builder, node: Node) -> RewriteResult:
        """Apply the format's legalization; if the target cannot express the operator, apply its fallback or decomposition."""
        plain: RewriteResult = as_attributes(b, node)
        if plain is not None:
            return plain
        kind = type(node.op).__name__
        legalization, fallback = self.dialect.legalization_of(type(node.op)), self.dialect.fallbacks.get(kind)
        result = None if legalization is None else legalization(b, node)
        if result is not None or not (fallback or has(node.op, "decompose")) or self._is_supported(node):
            return result
        result = None if fallback is None else fallback(b, node)
        if result is None and has(node.op, "decompose"):
            if node.op.is_custom:
                self.errors.warn_of_decomposition(self.errors.origin_of(node), node.op, self._unsupported_reason(node))
            decomposed: RewriteResult = node.op.decompose(b, *node.inputs)
            return decomposed
        return result

    def _unsupported_reason(self, node: Node) -> str:
        """Return why the target cannot express the operator of ``node``."""
        try:
            mapping = self._selector.select(node).mapping
        except (NoFit, RuleError) as reason:
            return f"{self.dialect.name} cannot express {node.op}: {reason}"
        return f"{self.dialect.name} cannot express {node.op}: {mapping.kind} does not support the types"

    def _is_supported(self, node: Node) -> bool:
        """Return whether the target can express the operator of ``node`` without a rewrite."""
        kind = type(node.op).__name__
        if kind in ("Constant", "DefaultInput", "Foreign"):
            return True
        if kind in self.dialect.exporters:
            domain = self.dialect.domains.get(kind, "")
            if not domain and kind not in self.dialect.fallbacks:
                return True
            version = self.version_of(domain, kind)
            return version is not None and self.dialect.supports[kind](node.op, version)
        try:
            selected = self._selector.select(node)
        except (NoFit, RuleError):
            # Setting attributes to fit a mapping may break a rule of the operator.
            return False
        return self._selector.supports_types(node, selected)

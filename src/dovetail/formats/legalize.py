"""Legalization: rewrites a graph, before export, into operators that the target format has."""

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
"""Rewrites may need rewriting in turn; more rounds than the longest chain of rewrites are not needed."""

COPY_LIMIT = 1024
"""Bytes of a constant with several readers that a rewrite may store once more in another order. A larger one is moved at run
time, and runtimes fold that when they load the file."""


class Legalizer:
    """Legalizes the graphs of one model for one target."""

    def __init__(self, dialect: Dialect, selector: MappingSelector, errors: ExportErrors) -> None:
        self.dialect = dialect
        self.version_of = selector.version_of
        self.errors = errors
        self._selector = selector
        self._new_names: dict[Value, str] = {}

    def legalize(self, graph: Graph) -> None:
        """Rewrite every operator that the target does not have, in subgraphs too.

        Operators for which there is no rewrite stay, and the export reports them.
        """
        self.errors.add_graph(graph.nodes)
        for _ in range(MAX_ROUNDS):
            if not rewrite(graph, self._rewrite_node, fold=True, copy_limit=COPY_LIMIT):
                break
        # Also nodes that the model itself left unread: they compute nothing.
        remove_dead(graph)
        self._renumber(graph)
        for node in graph.nodes:
            for _, body in bodies(node.op):
                self.legalize(body)

    def _renumber(self, graph: Graph) -> None:
        """Give new values the first free names: their current ones avoid names that have been removed since."""
        values = [(y, self._new_names[y]) for node in graph.nodes for y in node.outputs if self._new_names.get(y) == y.name]
        for y, _ in values:
            graph.release(y.name)
        # No name becomes free meanwhile: the search for a stem goes on where the last one ended.
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
            # A rewrite that needs unknown types leaves the node as it is.
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
        """Apply the format's legalization; where the target cannot express the operator, its fallback or decomposition."""
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
            decomposed: RewriteResult = node.op.decompose(b, *node.inputs)
            return decomposed
        return result

    def _is_supported(self, node: Node) -> bool:
        """Tell whether the target can express the operator of ``node`` as it is."""
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
            # A form that would fit may break the operator's own rules.
            return False
        return self._selector.supports_types(node, selected)

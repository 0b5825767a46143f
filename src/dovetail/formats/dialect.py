"""A format with its converters: the functions that import, legalize and export the operators that no op mapping covers."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

from dovetail.formats.export_context import ExportContext
from dovetail.formats.foreign import ForeignNode
from dovetail.formats.format_traits import FormatTraits
from dovetail.formats.import_context import ImportContext
from dovetail.formats.mapping_selection import RewriteResult
from dovetail.ir.builder import Builder
from dovetail.ir.graph import Node, Value
from dovetail.ir.op import REGISTRY, Op

ImportResult = Value | list[Value] | Op | tuple[Op, list[Value | None]] | None
"""A foreign node as core values that the builder wrote; or as one core operator, on the node's own inputs or on the given ones;
or None: the op mappings import it."""
Importer = Callable[[ImportContext], ImportResult]
Legalization = Callable[[Builder, Node], RewriteResult]
Exporter = Callable[[ExportContext, Node], list[ForeignNode]]
Supports = Callable[[Op, int], bool]


@dataclass
class Dialect(FormatTraits):
    """A format and its converters, by operator.

    ``importers``: foreign operators (domain, kind, version) that are several core operators, or need more than an op mapping.
    ``legalizations``: core operators, by name, that are rewritten into operators which the format has. ``fallbacks``: core
    operators that are rewritten only where the target version cannot express them. ``exporters``: core operators that no op
    mapping can export; ``supports`` tells of an exporter whether a version of the foreign operator can express an operator;
    ``domains``: the domain of an exporter's foreign operator where it is not the default one.
    """

    importers: dict[tuple[str, str, int], Importer] = field(default_factory=dict)
    legalizations: dict[str, Legalization] = field(default_factory=dict)
    fallbacks: dict[str, Legalization] = field(default_factory=dict)
    exporters: dict[str, Exporter] = field(default_factory=dict)
    supports: dict[str, Supports] = field(default_factory=dict)
    domains: dict[str, str] = field(default_factory=dict)

    def importer(self, kind: str, *versions: int, domain: str = "") -> Callable[[Importer], Importer]:
        """Register the importer of a foreign operator in these versions."""

        def register(function: Importer) -> Importer:
            for version in versions:
                self.importers[domain, kind, version] = function
            return function

        return register

    def legalize(self, *names: str) -> Callable[[Legalization], Legalization]:
        """Register the rewrite of core operators, or of all classes of a family, into operators that the format has."""

        def register(function: Legalization) -> Legalization:
            self.legalizations.update(dict.fromkeys(names, function))
            return function

        return register

    def legalization_of(self, kind: type[Op]) -> Legalization | None:
        """Return the legalization of an operator, else of its family."""
        families = (each.__name__ for each in kind.__mro__ if each is kind or each.__name__ not in REGISTRY)
        return next((self.legalizations[name] for name in families if name in self.legalizations), None)

    def fallback(self, *names: str) -> Callable[[Legalization], Legalization]:
        """Register the rewrite of core operators for targets whose version of the operator cannot express them."""

        def register(function: Legalization) -> Legalization:
            self.fallbacks.update(dict.fromkeys(names, function))
            return function

        return register

    def exporter(
        self, *names: str, supports: Supports = lambda op, version: True, domain: str = ""
    ) -> Callable[[Exporter], Exporter]:
        """Register the exporter of core operators.

        ``supports(op, version)`` is called for operators with a fallback, and for those in a ``domain`` of their own.
        """

        def register(function: Exporter) -> Exporter:
            self.exporters.update(dict.fromkeys(names, function))
            self.supports.update(dict.fromkeys(names, supports))
            if domain:
                self.domains.update(dict.fromkeys(names, domain))
            return function

        return register

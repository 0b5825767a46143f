"""A format and its converters: functions that import, legalize and export operators without an op mapping."""

from __future__ import annotations

import importlib
from collections.abc import Callable, Iterable, Mapping
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
"""The result of importing a foreign node; None leaves the import of the node to the op mappings.

A Value or a list of Values holds the outputs of the node, which the importer created with the builder. An Op replaces the node
and reads the node's inputs. A pair of an Op and inputs replaces the node by the operator applied to these inputs.
"""
Importer = Callable[[ImportContext], ImportResult]
Legalization = Callable[[Builder, Node], RewriteResult]
Exporter = Callable[[ExportContext, Node], list[ForeignNode]]
Supports = Callable[[Op, int], bool]


def label_of(domain: str, kind: str, version: int) -> str:
    """Return the label of a foreign operator, ``[domain:]Kind-version``."""
    return f"{domain}:{kind}-{version}" if domain else f"{kind}-{version}"


@dataclass
class Dialect(FormatTraits):
    """Dialect is a format with the converters of its operators.

    - ``importers``: import foreign operators (domain, kind, version) that no op mapping can import.
    - ``legalizations``: rewrite core operators, by name, into operators that the format has.
    - ``fallbacks``: rewrite core operators, by name, only where the target version cannot express them.
    - ``exporters``: export core operators, by name, that no op mapping can export.
    - ``supports``: functions of exporters that return whether a version of the foreign operator can express the core operator.
    - ``domains``: the domains of the foreign operators that exporters create, if they are not the default domain.
    - ``converters``: all modules of converters, relative to the package of the format. Importing a module registers its
      converters.
    - ``importer_modules``: the module of the importer of each foreign operator, by ``[domain:]Kind-version``.
    """

    importers: dict[tuple[str, str, int], Importer] = field(default_factory=dict)
    legalizations: dict[str, Legalization] = field(default_factory=dict)
    fallbacks: dict[str, Legalization] = field(default_factory=dict)
    exporters: dict[str, Exporter] = field(default_factory=dict)
    supports: dict[str, Supports] = field(default_factory=dict)
    domains: dict[str, str] = field(default_factory=dict)
    converters: tuple[str, ...] = ()
    importer_modules: Mapping[str, str] = field(default_factory=dict)

    def importer_of(self, domain: str, kind: str, version: int) -> Importer | None:
        """Return the importer of a foreign operator; None if it has none. Imports only the module of this operator."""
        importer = self.importers.get((domain, kind, version))
        if importer is None and (module := self.importer_modules.get(label_of(domain, kind, version))):
            self._import((module,))
            importer = self.importers.get((domain, kind, version))
        return importer

    def load_converters(self) -> Dialect:
        """Import all converters, and return the dialect."""
        self._import(self.converters)
        return self

    def _import(self, modules: Iterable[str]) -> None:
        for module in modules:
            importlib.import_module(f"dovetail.formats.{self.name}.{module}")

    def importer(self, kind: str, *versions: int, domain: str = "") -> Callable[[Importer], Importer]:
        """Register the importer of a foreign operator for ``versions``."""

        def register(function: Importer) -> Importer:
            for version in versions:
                self.importers[domain, kind, version] = function
            return function

        return register

    def legalize(self, *names: str) -> Callable[[Legalization], Legalization]:
        """Register the rewrite of core operators or operator families into operators that the format has."""

        def register(function: Legalization) -> Legalization:
            self.legalizations.update(dict.fromkeys(names, function))
            return function

        return register

    def legalization_of(self, kind: type[Op]) -> Legalization | None:
        """Return the legalization of an operator class, or else that of its family; None if neither has one."""
        families = (each.__name__ for each in kind.__mro__ if each is kind or each.__name__ not in REGISTRY)
        return next((self.legalizations[name] for name in families if name in self.legalizations), None)

    def fallback(self, *names: str) -> Callable[[Legalization], Legalization]:
        """Register the rewrite of core operators for targets whose version of the foreign operator cannot express them."""

        def register(function: Legalization) -> Legalization:
            self.fallbacks.update(dict.fromkeys(names, function))
            return function

        return register

    def exporter(
        self, *names: str, supports: Supports = lambda op, version: True, domain: str = ""
    ) -> Callable[[Exporter], Exporter]:
        """Register the exporter of core operators.

        ``supports(op, version)`` is called for operators with a fallback, and for operators with a ``domain``.
        """

        def register(function: Exporter) -> Exporter:
            self.exporters.update(dict.fromkeys(names, function))
            self.supports.update(dict.fromkeys(names, supports))
            if domain:
                self.domains.update(dict.fromkeys(names, domain))
            return function

        return register

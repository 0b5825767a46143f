"""Traits of a format for import and export: its op mappings, operator versions and encoding of attribute values."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

from dovetail.errors import DovetailError
from dovetail.formats.foreign import ForeignNode
from dovetail.ir import op as operators, op_mapping
from dovetail.ir.graph import Value
from dovetail.ir.op import Op
from dovetail.ir.op_mapping import OpMapping

VersionOf = Callable[[str, str], int | None]
"""A function that returns the version of an operator (domain, kind) in the target; None if the target lacks the operator."""
TypeCheck = Callable[[ForeignNode, Sequence[Value | None], Sequence[Value]], None]
Deviate = Callable[[DovetailError], None]
Normalize = Callable[[ForeignNode, Deviate], ForeignNode]


@dataclass
class FormatTraits:
    """FormatTraits describes one format to import and export.

    - ``mapping_lines``: returns the op mappings of an operator class.
    - ``check_types``: raises RuleError if the version of a foreign operator does not support the types of a node.
    - ``has_opsets``: True if the opset of a file fixes the version of every operator in the file.
    - ``subgraphs_capture``: True if subgraphs can read values of enclosing graphs.
    - ``is_text``: True if all attribute values in a file, including numbers, are strings.
    - ``encode_attribute``: converts a core attribute value to a foreign attribute value.
    - ``list_kinds``: the numbers by which the format types an empty list, by the annotation of the core attribute.
    - ``unsupported_reasons``: the reason why the format has no equivalent of an operator, by core or foreign name.
    - ``input_arity``: returns, for (domain, kind, version), the number of non-repeated inputs and the minimum number of inputs;
      both include absent inputs.
    - ``first_version``: returns the oldest version of an operator (domain, kind).
    - ``normalize``: removes the parts of a node that every reader ignores, and reports each as a deviation.
    """

    name: str
    mapping_lines: Callable[[type[Op]], tuple[str, ...]]
    check_types: TypeCheck
    has_opsets: bool = False
    subgraphs_capture: bool = False
    is_text: bool = False
    encode_attribute: Callable[[Any], Any] = lambda value: value
    list_kinds: dict[str, int] = field(default_factory=dict)
    unsupported_reasons: dict[str, str] = field(default_factory=dict)
    input_arity: Callable[[str, str, int], tuple[int, int]] = lambda domain, kind, version: (0, 0)
    first_version: Callable[[str, str], int | None] = lambda domain, kind: None
    normalize: Normalize = lambda node, deviate: node
    _import_mappings: dict[tuple[str, str], dict[int, tuple[OpMapping, ...]]] = field(default_factory=dict)
    _export_mappings: dict[type[Op], tuple[OpMapping, ...]] = field(default_factory=dict)
    _custom_count: int = 0

    def import_mappings(self) -> dict[tuple[str, str, int], tuple[OpMapping, ...]]:
        """Return the mappings that can import each foreign operator (domain, kind, version), in the order of attempts."""
        mappings: dict[tuple[str, str, int], tuple[OpMapping, ...]] = {}
        for cls in operators.REGISTRY.values():
            for line in self.mapping_lines(cls):
                _add_mapping(mappings, op_mapping.parse(cls, line))
        return mappings

    def mappings_for(self, node: ForeignNode) -> tuple[OpMapping, ...]:
        """Return the mappings that can import ``node``; an empty tuple for an unknown operator or version.

        Only the mappings of the node's operator are parsed, and only the modules of their operator classes are imported: a model
        has few different operators.
        """
        mappings = self._known_mappings(node)
        if not mappings:
            count = operators.REGISTRY.custom_count
            operators.REGISTRY.load_plugins()
            if operators.REGISTRY.custom_count != count:
                return self._known_mappings(node)
        return mappings

    def _known_mappings(self, node: ForeignNode) -> tuple[OpMapping, ...]:
        """Return the mappings of the operators that are known without plug-ins that are not loaded yet."""
        if self._custom_count != operators.REGISTRY.custom_count:
            # The caches are older than a class that a user has defined since.
            self._import_mappings.clear()
            self._custom_count = operators.REGISTRY.custom_count
        key = (node.domain, node.kind)
        by_version = self._import_mappings.get(key)
        if by_version is None:
            mappings: dict[tuple[str, str, int], tuple[OpMapping, ...]] = {}
            label = f"{node.domain}:{node.kind}" if node.domain else node.kind
            for cls in operators.REGISTRY.importing(self.name, label):
                for line in self.mapping_lines(cls):
                    if op_mapping.imported_kind(line) == label:
                        _add_mapping(mappings, op_mapping.parse(cls, line))
            by_version = self._import_mappings[key] = {version: found for (_, _, version), found in mappings.items()}
        return by_version.get(node.version, ())

    def export_mappings(self, op: type[Op]) -> tuple[OpMapping, ...]:
        """Return the mappings that can export an operator of class ``op``, the preferred mapping first."""
        mappings = self._export_mappings.get(op)
        if mappings is None:
            mappings = tuple(op_mapping.parse(op, line) for line in reversed(self.mapping_lines(op)))
            self._export_mappings[op] = mappings
        return mappings


def _add_mapping(mappings: dict[tuple[str, str, int], tuple[OpMapping, ...]], mapping: OpMapping) -> None:
    if not mapping.is_export_only:
        for version in mapping.versions:
            key = (mapping.domain, mapping.kind, version)
            mappings[key] = (*mappings.get(key, ()), mapping)

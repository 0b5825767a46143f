"""The support table of all operators, for ``dovetail ops`` and docs/operators.md.

The op mappings of the operators determine import and export. Element types, gradients and native kernels are listed if a test
case covers them (``operator_support.toml``, which ``python tests/write_support_table.py`` writes and a test verifies).
"""

from __future__ import annotations

import tomllib
from collections import defaultdict
from collections.abc import Sequence
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

from dovetail.formats.dialect import Dialect
from dovetail.ir import op_mapping
from dovetail.ir.op import REGISTRY, Op, has

FORMATS = ("onnx", "openvino")


class OperatorSupport(NamedTuple):
    """OperatorSupport is the row of one core operator in the support table.

    ``types``: the tested element types of the first input. ``gradient``: ``slope`` for an operator with a gradient, ``zero`` if
    all tested gradients are 0. ``native``: the types with a native kernel (``moves``: data of any type is copied). A field is
    empty if no test covers it. ``onnx``, ``openvino``: the foreign operators and versions; ``rewritten`` for an operator that is
    exported as other operators.
    """

    name: str
    family: str
    types: tuple[str, ...]
    gradient: str
    native: tuple[str, ...]
    onnx: tuple[str, ...]
    openvino: tuple[str, ...]


class ForeignOperatorSupport(NamedTuple):
    """ForeignOperatorSupport is the row of one foreign operator, of ONNX or OpenVINO, in the support table.

    ``versions``: the imported versions. ``unread``: the versions that are not imported. ``ours``: the core operators with an op
    mapping; empty for a foreign operator that is imported as several operators.
    """

    name: str
    versions: tuple[int, ...]
    unread: tuple[int, ...]
    ours: tuple[str, ...]


def dialect(format: str) -> Dialect:
    """Return the Dialect of a format: the format with the converters of its operators."""
    if format == "onnx":
        from dovetail.formats.onnx.converters import ONNX

        return ONNX
    from dovetail.formats.openvino.converters import OPENVINO

    return OPENVINO


def catalog() -> list[OperatorSupport]:
    """Return the support of every core operator, sorted by name."""
    facts = tested_facts()
    return [_operator_support(name, op, facts.get(name, {})) for name, op in sorted(REGISTRY.items()) if op.is_in_catalog]


@cache
def tested_facts() -> dict[str, dict[str, str]]:
    """Return the facts in operator_support.toml by operator; test cases cover these facts."""
    return tomllib.loads((Path(__file__).parent / "operator_support.toml").read_text())


def _operator_support(name: str, op: type[Op], facts: dict[str, str]) -> OperatorSupport:
    types, native = (tuple(facts.get(key, "").split()) for key in ("types", "native"))
    family = op.__module__.rpartition(".")[2]
    onnx, openvino = (foreign_operators(op, dialect(format)) for format in FORMATS)
    return OperatorSupport(name, family, types, facts.get("gradient", ""), native, onnx, openvino)


def foreign_operators(op: type[Op], format: Dialect) -> tuple[str, ...]:
    """Return the foreign operators and versions that ``op`` maps to, and ``rewritten`` if it is exported as other operators."""
    versions_of: dict[str, set[int]] = defaultdict(set)
    for line in format.mapping_lines(op):
        mapping = op_mapping.parse(op, line)
        versions_of[_qualified_name(mapping.domain, mapping.kind)] |= set(mapping.versions)
    name = op.__name__
    if name in format.exporters and not versions_of:
        versions_of[name] |= {version for domain, kind, version in format.importers if (domain, kind) == ("", name)}
    texts = [" ".join((kind, ", ".join(map(str, sorted(versions))))).strip() for kind, versions in versions_of.items()]
    if format.legalization_of(op) is not None or (not texts and has(op, "decompose")):
        texts.append("rewritten")
    return tuple(texts)


def foreign_catalog(format: str) -> list[ForeignOperatorSupport]:
    """Return the support of every operator of a format and of its imported extensions, sorted by name."""
    traits = dialect(format)
    imported: dict[str, set[int]] = defaultdict(set)
    ours: dict[str, dict[str, None]] = defaultdict(dict)
    for name, op in sorted(REGISTRY.items()):
        for mapping in (op_mapping.parse(op, line) for line in traits.mapping_lines(op)):
            kind = _qualified_name(mapping.domain, mapping.kind)
            if not mapping.is_export_only:
                imported[kind] |= set(mapping.versions)
            ours[kind][name] = None
    for domain, kind, version in traits.importers:
        imported[_qualified_name(domain, kind)].add(version)
    known = _onnx_versions() if format == "onnx" else _openvino_versions()
    kinds = sorted(set(known) | {kind for kind in imported if imported[kind]})
    return [
        ForeignOperatorSupport(
            kind, tuple(sorted(imported[kind])), tuple(sorted(set(known.get(kind, ())) - imported[kind])), tuple(ours[kind])
        )
        for kind in kinds
    ]


def _qualified_name(domain: str, kind: str) -> str:
    return f"{domain}:{kind}" if domain else kind


def _onnx_versions() -> dict[str, tuple[int, ...]]:
    from dovetail.formats.onnx.schemas import operator_versions

    return {_qualified_name(*key): numbers for key, numbers in operator_versions().items()}


def _openvino_versions() -> dict[str, tuple[int, ...]]:
    from dovetail.formats.openvino.opsets import VERSIONS

    return {kind: versions for kind, versions in VERSIONS.items() if kind not in ("Parameter", "Result", "Constant", "Const")}


def as_json(rows: Sequence[OperatorSupport | ForeignOperatorSupport]) -> list[dict[str, Any]]:
    """Convert the rows to values that JSON can represent."""
    return [{name: list(item) if isinstance(item, tuple) else item for name, item in row._asdict().items()} for row in rows]

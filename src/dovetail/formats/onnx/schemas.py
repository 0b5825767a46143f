"""The schemas of the ONNX operators, in a table that is generated from the ``onnx`` package.

Importing the package costs more memory and time than opening most models. Opsets newer than the table are looked up in the
package where it is installed. Source: ``onnx.defs``; ``python -m dovetail.formats.onnx.schemas`` writes the table.
"""

from __future__ import annotations

import json
import os
from functools import cache
from typing import Any, NamedTuple

_TABLE = os.path.join(os.path.dirname(__file__), "schemas.json")
_FIRST_IR_VERSION = 3


class Schema(NamedTuple):
    """Schema is the schema of one version of an ONNX operator.

    - ``inputs``, ``outputs``: the allowed types, as texts, of each formal input and output
    - ``is_repeated``: True if the last formal input is variadic
    - ``variables``: the type variable of each formal input; None for a variadic input of mixed types
    - ``lists``: the ``AttributeProto.AttributeType`` of each attribute that is a list
    - ``min_inputs``: the minimum number of inputs
    - ``defaults``: the default values of attributes that are one number or one string
    """

    since_version: int
    inputs: tuple[frozenset[str], ...]
    outputs: tuple[frozenset[str], ...]
    is_repeated: bool
    variables: tuple[str | None, ...]
    lists: dict[str, int]
    min_inputs: int
    defaults: dict[str, int | float | str]


def schema(domain: str, kind: str, opset: int) -> Schema | None:
    """Return the schema of an operator at ``opset`` of its domain; None if the opset has no such operator."""
    table = _table()
    if domain in table["newest"] and opset > table["newest"][domain]:
        return _schema_of_package(domain, kind, opset)
    versions = table["operators"].get(domain, {}).get(kind, ())
    index_ = max((index for index, row in enumerate(versions) if row[0] <= opset), default=None)
    return None if index_ is None else _schema_of_table(domain, kind, index_)


def newest_opset(domain: str, opset: int) -> int | None:
    """Return the newest opset of a domain in the table, or in the package if ``opset`` is newer; None for an unknown domain.

    Domains of others than ONNX are unknown: the package takes longer to import than most models to load.
    """
    newest: int | None = _table()["newest"].get(domain)
    is_newer = opset > newest if newest is not None else domain.startswith("ai.onnx")
    onnx = _package() if is_newer else None
    versions = None if onnx is None else onnx.defs.C.schema_version_map().get(domain)
    return newest if versions is None else int(versions[1])


def ir_version_of(domain: str, opset: int) -> int:
    """Return the IR version that introduced an opset; 3, the first IR version with opsets, for an unknown opset."""
    newest = _table()["newest"].get(domain)
    onnx = None if newest is None or opset <= newest else _package()
    if onnx is None:
        return int(_table()["ir_versions"].get(domain, {}).get(str(opset), _FIRST_IR_VERSION))
    return int(onnx.helper.find_min_ir_version_for([onnx.helper.make_opsetid(domain, opset)], ignore_unknown=True))


def operator_versions() -> dict[tuple[str, str], tuple[int, ...]]:
    """Return the versions of each operator in the table that are not deprecated, by domain and operator type."""
    table = _table()
    versions = {
        (domain, kind): tuple(row[0] for row in rows if row[0] not in table["deprecated"].get(domain, {}).get(kind, ()))
        for domain, kinds in table["operators"].items()
        for kind, rows in kinds.items()
    }
    return {key: numbers for key, numbers in versions.items() if numbers}


@cache
def _package() -> Any:
    """Return the ``onnx`` package, or None where it is not installed."""
    try:
        import onnx
    except ImportError:
        return None
    return onnx


@cache
def _table() -> dict[str, Any]:
    with open(_TABLE, encoding="ascii") as file:
        table: dict[str, Any] = json.load(file)
    return table


@cache
def _types(number: int) -> frozenset[str]:
    return frozenset(_table()["types"][number].split())


@cache
def _schema_of_table(domain: str, kind: str, index: int) -> Schema:
    version, inputs, outputs, is_repeated, variables, lists, min_inputs, defaults = _table()["operators"][domain][kind][index]
    allowed = tuple(map(_types, inputs)), tuple(map(_types, outputs))
    return Schema(version, *allowed, bool(is_repeated), tuple(variables), lists, min_inputs, defaults)


@cache
def _schema_of_package(domain: str, kind: str, opset: int) -> Schema | None:
    onnx = _package()
    if onnx is None:
        return None
    try:
        return _schema_of(onnx.defs.get_schema(kind, opset, domain))
    except onnx.defs.SchemaError:
        return None


def _schema_of(onnx_schema: Any) -> Schema:
    """Convert a schema of the ``onnx`` package to a Schema."""
    inputs, outputs = (tuple(frozenset(item.types) for item in side) for side in (onnx_schema.inputs, onnx_schema.outputs))
    is_repeated = bool(onnx_schema.inputs) and onnx_schema.inputs[-1].option.name == "Variadic"
    variables = tuple(item.type_str if item.is_homogeneous else None for item in onnx_schema.inputs)
    lists = {name: int(item.type.value) for name, item in onnx_schema.attributes.items() if item.type.name.endswith("S")}
    defaults = {name: value for name, item in onnx_schema.attributes.items() if (value := _default_of(item)) is not None}
    return Schema(
        int(onnx_schema.since_version), inputs, outputs, is_repeated, variables, lists, int(onnx_schema.min_input), defaults
    )


def _default_of(attribute: Any) -> int | float | str | None:
    """Return the default value of an attribute if it is one number or one string, else None."""
    proto = attribute.default_value
    if proto.type == proto.INT:
        return int(proto.i)
    if proto.type == proto.FLOAT:
        return float(proto.f)
    return str(proto.s.decode()) if proto.type == proto.STRING else None


def _table_of_package() -> str:
    import onnx

    texts: dict[str, int] = {}
    operators: dict[str, dict[str, list[Any]]] = {}
    deprecated: dict[str, dict[str, list[int]]] = {}

    def numbers(side: tuple[frozenset[str], ...]) -> list[int]:
        return [texts.setdefault(" ".join(sorted(types)), len(texts)) for types in side]

    history = onnx.defs.get_all_schemas_with_history()
    for onnx_schema in sorted(history, key=lambda item: (item.domain, item.name, item.since_version)):
        version, inputs, outputs, is_repeated, variables, lists, min_inputs, defaults = _schema_of(onnx_schema)
        types = numbers(inputs), numbers(outputs)
        attributes = dict(sorted(lists.items())), min_inputs, dict(sorted(defaults.items()))
        row = [version, *types, int(is_repeated), list(variables), *attributes]
        operators.setdefault(onnx_schema.domain, {}).setdefault(onnx_schema.name, []).append(row)
        if onnx_schema.deprecated:
            deprecated.setdefault(onnx_schema.domain, {}).setdefault(onnx_schema.name, []).append(version)
    newest = {domain: versions[1] for domain, versions in sorted(onnx.defs.C.schema_version_map().items())}
    rows = [
        f"  {json.dumps(domain)}: {{\n"
        + ",\n".join(f"   {json.dumps(kind)}: {json.dumps(versions, separators=(',', ':'))}" for kind, versions in kinds.items())
        + "\n  }"
        for domain, kinds in operators.items()
    ]
    lines = ",\n".join(f"  {json.dumps(text)}" for text in texts)
    find = onnx.helper.find_min_ir_version_for
    ir_versions = {
        domain: {opset: find([onnx.helper.make_opsetid(domain, opset)], ignore_unknown=True) for opset in range(1, last + 1)}
        for domain, last in newest.items()
    }
    tables = {"newest": newest, "ir_versions": ir_versions, "deprecated": deprecated}
    head = "".join(f" {json.dumps(name)}: {json.dumps(table)},\n" for name, table in tables.items())
    return f'{{\n{head} "types": [\n{lines}\n ],\n "operators": {{\n' + ",\n".join(rows) + "\n }\n}\n"


if __name__ == "__main__":
    with open(_TABLE, "w", encoding="ascii") as stream:
        stream.write(_table_of_package())

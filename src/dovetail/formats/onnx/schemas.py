"""What each version of ONNX's operators allows: the schemas of the ``onnx`` package, written down.

Asking the package itself costs every process that opens a model more memory and time than most models do. What a newer package
knows beyond the table is asked of it. Source: ``onnx.defs``; ``python -m dovetail.formats.onnx.schemas`` writes the table anew.
"""

from __future__ import annotations

import json
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

_TABLE = Path(__file__).with_name("schemas.json")
_FIRST_IR_VERSION = 3


class Schema(NamedTuple):
    """One version of an operator: for each formal input and output the texts of its allowed types, as the schema writes them;
    whether the last input repeats; the type variable of each input, None where each of its repetitions may have a type of its
    own; the attributes that are lists, with their ``AttributeProto.AttributeType``; the least number of inputs."""

    since_version: int
    inputs: tuple[frozenset[str], ...]
    outputs: tuple[frozenset[str], ...]
    is_repeated: bool
    variables: tuple[str | None, ...]
    lists: dict[str, int]
    least_inputs: int


def schema(domain: str, kind: str, opset: int) -> Schema | None:
    """The version of an operator that is in force at ``opset`` of its domain; None where there is none."""
    table = _table()
    if domain in table["newest"] and opset > table["newest"][domain]:
        return _asked(domain, kind, opset)
    versions = table["operators"].get(domain, {}).get(kind, ())
    found = max((index for index, row in enumerate(versions) if row[0] <= opset), default=None)
    return None if found is None else _written(domain, kind, found)


def newest_opset(domain: str, opset: int) -> int | None:
    """The newest opset of a domain that ``onnx`` knows, or any that is at least ``opset``; None for a domain that it does not."""
    known: int | None = _table()["newest"].get(domain)
    if known is not None and opset <= known:
        return known
    import onnx

    versions = onnx.defs.C.schema_version_map().get(domain)
    return None if versions is None else int(versions[1])


def ir_version_of(domain: str, opset: int) -> int:
    """The IR version that came with an opset; 3, with which there are opsets at all, for one that ``onnx`` does not know."""
    known = _table()["newest"].get(domain)
    if known is None or opset <= known:
        return int(_table()["ir_versions"].get(domain, {}).get(str(opset), _FIRST_IR_VERSION))
    from onnx import helper

    return helper.find_min_ir_version_for([helper.make_opsetid(domain, opset)], ignore_unknown=True)


@cache
def _table() -> dict[str, Any]:
    table: dict[str, Any] = json.loads(_TABLE.read_text("ascii"))
    return table


@cache
def _types(number: int) -> frozenset[str]:
    return frozenset(_table()["types"][number].split())


@cache
def _written(domain: str, kind: str, index: int) -> Schema:
    version, inputs, outputs, is_repeated, variables, lists, least = _table()["operators"][domain][kind][index]
    allowed = tuple(map(_types, inputs)), tuple(map(_types, outputs))
    return Schema(version, *allowed, bool(is_repeated), tuple(variables), lists, least)


@cache
def _asked(domain: str, kind: str, opset: int) -> Schema | None:
    import onnx

    try:
        return _schema_of(onnx.defs.get_schema(kind, opset, domain))
    except onnx.defs.SchemaError:
        return None


def _schema_of(found: Any) -> Schema:
    """A schema of the ``onnx`` package."""
    inputs, outputs = (tuple(frozenset(item.types) for item in side) for side in (found.inputs, found.outputs))
    is_repeated = bool(found.inputs) and found.inputs[-1].option.name == "Variadic"
    variables = tuple(item.type_str if item.is_homogeneous else None for item in found.inputs)
    lists = {name: int(item.type.value) for name, item in found.attributes.items() if item.type.name.endswith("S")}
    return Schema(int(found.since_version), inputs, outputs, is_repeated, variables, lists, int(found.min_input))


def _table_of_package() -> str:
    import onnx

    texts: dict[str, int] = {}
    operators: dict[str, dict[str, list[Any]]] = {}

    def numbers(side: tuple[frozenset[str], ...]) -> list[int]:
        return [texts.setdefault(" ".join(sorted(types)), len(texts)) for types in side]

    history = onnx.defs.get_all_schemas_with_history()
    for each in sorted(history, key=lambda item: (item.domain, item.name, item.since_version)):
        version, inputs, outputs, is_repeated, variables, lists, least = _schema_of(each)
        types = numbers(inputs), numbers(outputs)
        row = [version, *types, int(is_repeated), list(variables), dict(sorted(lists.items())), least]
        operators.setdefault(each.domain, {}).setdefault(each.name, []).append(row)
    known = {domain: versions[1] for domain, versions in sorted(onnx.defs.C.schema_version_map().items())}
    rows = [
        f"  {json.dumps(domain)}: {{\n"
        + ",\n".join(f"   {json.dumps(kind)}: {json.dumps(versions, separators=(',', ':'))}" for kind, versions in kinds.items())
        + "\n  }"
        for domain, kinds in operators.items()
    ]
    said = ",\n".join(f"  {json.dumps(text)}" for text in texts)
    find = onnx.helper.find_min_ir_version_for
    ir_versions = {
        domain: {opset: find([onnx.helper.make_opsetid(domain, opset)], ignore_unknown=True) for opset in range(1, last + 1)}
        for domain, last in known.items()
    }
    head = f' "newest": {json.dumps(known)},\n "ir_versions": {json.dumps(ir_versions)},\n "types": [\n{said}\n ],\n'
    return f'{{\n{head} "operators": {{\n' + ",\n".join(rows) + "\n }\n}\n"


if __name__ == "__main__":
    _TABLE.write_text(_table_of_package(), "ascii")

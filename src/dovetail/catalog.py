"""What dovetail knows of each operator, in one table: for ``dovetail ops`` and for docs/operators.md.

How an operator is read and written is asked of the operators themselves. What is said of element types, gradients and the
compiled core is what the cases of the tests show (``shown.toml``, which
``python tests/write_support_table.py`` writes and a test compares).
"""

from __future__ import annotations

import tomllib
from collections import defaultdict
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

from dovetail.formats import op_mapping
from dovetail.formats.dialect import Dialect
from dovetail.ir.op import REGISTRY, Op, has

FORMATS = ("onnx", "openvino")
_UNLISTED = ("Foreign", "Constant", "RuntimeAttributes")


class Known(NamedTuple):
    """One operator of ours. ``types``: element types of its first input that are tested; ``gradient``: ``slope`` where it has
    one, ``zero`` where all that are tested are 0; ``native``: the types for which it runs in the compiled core (``moves``: as a
    movement of data, of any type); empty where no test shows it. ``onnx``, ``openvino``: what it is in that format, by name and
    versions; ``rewritten`` where it is written through other operators."""

    name: str
    family: str
    types: tuple[str, ...]
    gradient: str
    native: tuple[str, ...]
    onnx: tuple[str, ...]
    openvino: tuple[str, ...]


class Foreign(NamedTuple):
    """One operator of a format: the versions that are read, those that the format has and that are not, and what of ours it is
    read as: nothing where it is read as several."""

    name: str
    versions: tuple[int, ...]
    unread: tuple[int, ...]
    ours: tuple[str, ...]


def dialect(format: str) -> Dialect:
    if format == "onnx":
        from dovetail.formats.onnx.converters import ONNX

        return ONNX
    from dovetail.formats.openvino.converters import OPENVINO

    return OPENVINO


def catalog() -> list[Known]:
    """Every operator of ours, by name."""
    found = shown()
    return [_known(name, op, found.get(name, {})) for name, op in sorted(REGISTRY.items()) if name not in _UNLISTED]


@cache
def shown() -> dict[str, dict[str, str]]:
    """What the cases show of each operator, as they stand in shown.toml."""
    return tomllib.loads((Path(__file__).parent / "shown.toml").read_text())


def _known(name: str, op: type[Op], found: dict[str, str]) -> Known:
    words = {key: tuple(found.get(key, "").split()) for key in ("types", "native")}
    family = op.__module__.rpartition(".")[2]
    onnx, openvino = (spelled(op, dialect(format)) for format in FORMATS)
    return Known(name, family, words["types"], found.get("gradient", ""), words["native"], onnx, openvino)


def spelled(op: type[Op], format: Dialect) -> tuple[str, ...]:
    """The foreign operators and versions that the slot lines of ``op`` speak of, and how else it is written."""
    found: dict[str, set[int]] = defaultdict(set)
    for line in format.lines(op):
        spelling = op_mapping.parse(op, line)
        found[_named(spelling.domain, spelling.kind)] |= set(spelling.versions)
    name = op.__name__
    if name in format.emits and not found:
        found[name] |= {version for domain, kind, version in format.lifts if (domain, kind) == ("", name)}
    texts = [" ".join((each, ", ".join(map(str, sorted(versions))))).strip() for each, versions in found.items()]
    if name in format.lowers or (not texts and has(op, "decompose")):
        texts.append("rewritten")
    return tuple(texts)


def foreign(format: str) -> list[Foreign]:
    """Every operator that a format has, and those of its extensions that are read, by name."""
    known = dialect(format)
    read: dict[str, set[int]] = defaultdict(set)
    ours: dict[str, dict[str, None]] = defaultdict(dict)
    for name, op in sorted(REGISTRY.items()):
        for spelling in (op_mapping.parse(op, line) for line in known.lines(op)):
            kind = _named(spelling.domain, spelling.kind)
            if not spelling.is_written_only:
                read[kind] |= set(spelling.versions)
            ours[kind][name] = None
    for domain, kind, version in known.lifts:
        read[_named(domain, kind)].add(version)
    there = _onnx_versions() if format == "onnx" else _openvino_versions()
    return [
        Foreign(kind, tuple(sorted(read[kind])), tuple(sorted(set(there.get(kind, ())) - read[kind])), tuple(ours[kind]))
        for kind in sorted(set(there) | {kind for kind in read if read[kind]})
    ]


def _named(domain: str, kind: str) -> str:
    return f"{domain}:{kind}" if domain else kind


def _onnx_versions() -> dict[str, tuple[int, ...]]:
    """The versions of the operators of all domains of the onnx package, but for those that are deprecated."""
    import onnx

    found: dict[str, list[int]] = defaultdict(list)
    for schema in onnx.defs.get_all_schemas_with_history():
        if not schema.deprecated:
            found[_named(schema.domain, schema.name)].append(schema.since_version)
    return {kind: tuple(versions) for kind, versions in found.items()}


def _openvino_versions() -> dict[str, tuple[int, ...]]:
    from dovetail.formats.openvino.opsets import VERSIONS

    return {kind: versions for kind, versions in VERSIONS.items() if kind not in ("Parameter", "Result", "Constant", "Const")}


def plain(items: list[Any]) -> list[dict[str, Any]]:
    """The rows as JSON has them."""
    return [{name: list(item) if isinstance(item, tuple) else item for name, item in each._asdict().items()} for each in items]


__all__ = ["FORMATS", "Foreign", "Known", "catalog", "foreign", "plain", "shown", "spelled"]

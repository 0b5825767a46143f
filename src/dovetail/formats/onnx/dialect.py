"""ONNX as lift and lower see it. What each version of an operator allows is asked of the schemas of the ``onnx`` package."""

from __future__ import annotations

from collections.abc import Sequence as Seq
from functools import cache
from typing import Any, NamedTuple

from dovetail.dtypes import DType
from dovetail.errors import RuleError, UnsupportedError
from dovetail.formats.dialect import Dialect
from dovetail.formats.foreign import ForeignNode
from dovetail.graph import Value
from dovetail.types import Optional, Sequence, Tensor, Type

_ELEMENTS = {
    "float": "f32", "double": "f64", "float16": "f16", "bfloat16": "bf16", "bool": "boolean", "string": "string",
    "complex64": "complex64", "complex128": "complex128",
    **{f"int{bits}": f"i{bits}" for bits in (2, 4, 8, 16, 32, 64)},
    **{f"uint{bits}": f"u{bits}" for bits in (2, 4, 8, 16, 32, 64)},
    "float8e4m3fn": "f8e4m3", "float8e4m3fnuz": "f8e4m3fnuz", "float8e5m2": "f8e5m2", "float8e5m2fnuz": "f8e5m2fnuz",
    "float8e8m0": "f8e8m0", "float4e2m1": "f4e2m1", "float6e2m3": "f6e2m3", "float6e3m2": "f6e3m2",
}  # fmt: skip
_SPELLED = {ours: theirs for theirs, ours in _ELEMENTS.items()}


@cache
def since_version(domain: str, kind: str, opset: int) -> int | None:
    """The version of an operator that is in force at ``opset`` of its domain; None where there is none."""
    import onnx

    try:
        return int(onnx.defs.get_schema(kind, opset, domain).since_version)
    except onnx.defs.SchemaError:
        return None


class _Constraints(NamedTuple):
    """For each formal input and output the texts of its allowed types; whether the last input repeats."""

    inputs: tuple[frozenset[str], ...]
    outputs: tuple[frozenset[str], ...]
    is_repeated: bool

    def inputs_of(self, count: int) -> tuple[frozenset[str], ...]:
        """As many as a node may have of its ``count`` inputs."""
        more = count - len(self.inputs)
        return self.inputs + self.inputs[-1:] * more if more > 0 and self.is_repeated else self.inputs

    def outputs_of(self, count: int) -> tuple[frozenset[str], ...]:
        return self.outputs + self.outputs[-1:] * (count - len(self.outputs))


@cache
def _constraints(domain: str, kind: str, version: int) -> _Constraints | None:
    import onnx

    try:
        schema = onnx.defs.get_schema(kind, version, domain)
    except onnx.defs.SchemaError:
        return None
    inputs, outputs = (tuple(frozenset(map(_plain, item.types)) for item in side) for side in (schema.inputs, schema.outputs))
    option = onnx.defs.OpSchema.FormalParameterOption.Variadic
    return _Constraints(inputs, outputs, bool(schema.inputs) and schema.inputs[-1].option == option)


def _plain(text: str) -> str:
    """A schema's type as :func:`type_text` writes it."""
    return _ELEMENTS.get(text[7:-1], text) if text.startswith("tensor(") else text


def type_text(type: Type) -> str | None:
    """A tensor type by its element type's name, another as ONNX's schemas write it; None where an element type is unknown."""
    if isinstance(type, Tensor):
        return None if type.dtype is None else type.dtype.name
    inner = type_text(type.element)
    if inner is None:
        return None
    inner = f"tensor({_SPELLED.get(inner, inner)})" if isinstance(type.element, Tensor) else inner
    return f"seq({inner})" if isinstance(type, Sequence) else f"optional({inner})" if isinstance(type, Optional) else None


def check_types(node: ForeignNode, xs: Seq[Value | None], ys: Seq[Value]) -> None:
    """Raise RuleError [type.version] where this version of the operator does not allow an element type."""
    found = _constraints(node.domain, node.kind, node.version)
    if found is None:
        return
    for index, (x, allowed) in enumerate(zip(xs, found.inputs_of(len(xs)), strict=False)):
        if x is not None and not _is_allowed(x.type, allowed):
            raise RuleError("type.version", f"{node.kind}-{node.version} does not allow {x.type} as input {index}")
    for index, (y, allowed) in enumerate(zip(ys, found.outputs_of(len(ys)), strict=False)):
        if not _is_allowed(y.type, allowed):
            raise RuleError("type.version", f"{node.kind}-{node.version} does not make {y.type} as output {index}")


def _is_allowed(type: Type, allowed: frozenset[str]) -> bool:
    if type.__class__ is Tensor and type.dtype is not None and type.dtype.name in allowed:
        return True
    text = type_text(type)
    return text is None or not allowed or text in allowed


def spell(value: Any) -> Any:
    """A core attribute value as an ONNX attribute value."""
    if isinstance(value, bool):
        return int(value)
    if isinstance(value, DType):
        if value.onnx is None:
            raise UnsupportedError("type.version", f"ONNX has no element type {value}")
        return value.onnx
    if isinstance(value, tuple):
        return [spell(item) for item in value]
    return value


ONNX = Dialect("onnx", lambda cls: cls.onnx, check_types, spell=spell)

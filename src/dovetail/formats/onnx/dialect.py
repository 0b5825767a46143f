"""ONNX as lift and lower see it. What each version of an operator allows is asked of the schemas of the ``onnx`` package."""

from __future__ import annotations

from collections.abc import Iterable
from functools import lru_cache
from typing import Any

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


@lru_cache(maxsize=None)
def since_version(domain: str, kind: str, opset: int) -> int | None:
    """The version of an operator that is in force at ``opset`` of its domain; None where there is none."""
    import onnx

    try:
        return int(onnx.defs.get_schema(kind, opset, domain).since_version)
    except onnx.defs.SchemaError:
        return None


@lru_cache(maxsize=None)
def _constraints(domain: str, kind: str, version: int) -> tuple[tuple[tuple[str, frozenset[str]], ...], bool, bool, Any] | None:
    """For each formal input its name and allowed types, whether the last repeats and is of one type, and the outputs'
    likewise."""
    import onnx

    try:
        schema = onnx.defs.get_schema(kind, version, domain)
    except onnx.defs.SchemaError:
        return None
    inputs = tuple((item.type_str, frozenset(item.types)) for item in schema.inputs)
    outputs = tuple((item.type_str, frozenset(item.types)) for item in schema.outputs)
    option = onnx.defs.OpSchema.FormalParameterOption.Variadic
    repeated = bool(schema.inputs) and schema.inputs[-1].option == option
    return inputs, repeated, repeated and schema.inputs[-1].is_homogeneous, outputs


@lru_cache(maxsize=None)
def _spelled(dtype: DType) -> str:
    return f"tensor({_SPELLED.get(dtype.name, dtype.name)})"


def type_text(type: Type) -> str | None:
    """A type as ONNX's schemas write it; None where the element type is unknown."""
    if isinstance(type, Tensor):
        return None if type.dtype is None else _spelled(type.dtype)
    inner = type_text(type.element)
    if inner is None:
        return None
    return f"seq({inner})" if isinstance(type, Sequence) else f"optional({inner})" if isinstance(type, Optional) else None


def check_types(node: ForeignNode, xs: Iterable[Value | None], ys: Iterable[Value]) -> None:
    """Raise RuleError [type.version] where this version of the operator does not allow an element type."""
    found = _constraints(node.domain, node.kind, node.version)
    if found is None:
        return
    inputs, repeated, _, outputs = found
    last = len(inputs) - 1
    for index, x in enumerate(xs):
        if x is None:
            continue
        if index > last and not repeated:
            break
        allowed = inputs[min(index, last)][1]
        text = type_text(x.type)
        if text is not None and allowed and text not in allowed:
            raise RuleError("type.version", f"{node.kind}-{node.version} does not allow {x.type} as input {index}")
    last = len(outputs) - 1
    for index, y in enumerate(ys):
        if last < 0 or y is None:
            break
        allowed = outputs[min(index, last)][1]
        text = type_text(y.type)
        if text is not None and allowed and text not in allowed:
            raise RuleError("type.version", f"{node.kind}-{node.version} does not make {y.type} as output {index}")


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

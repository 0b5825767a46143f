"""ONNX as lift and lower see it. What each version of an operator allows is asked of the schemas of the ``onnx`` package."""

from __future__ import annotations

from collections.abc import Iterable, Sequence as Seq
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
    """For each formal input and output the texts of its allowed types; whether the last input repeats; the type variable of each
    input, None where each of its repetitions may have a type of its own."""

    inputs: tuple[frozenset[str], ...]
    outputs: tuple[frozenset[str], ...]
    is_repeated: bool
    variables: tuple[str | None, ...]

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
    variables = tuple(item.type_str if item.is_homogeneous else None for item in schema.inputs)
    return _Constraints(inputs, outputs, bool(schema.inputs) and schema.inputs[-1].option == option, variables)


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
    for values, allowed, fact in (
        (xs, found.inputs_of(len(xs)), "does not allow {} as input {}"),
        (ys, found.outputs_of(len(ys)), "does not make {} as output {}"),
    ):
        refused = _refused(values, allowed)
        if refused is not None:
            raise RuleError("type.version", f"{node.kind}-{node.version} {fact.format(*refused)}")
    if len(xs) > 1:
        _check_agreement(node, xs, found)


def _refused(values: Seq[Value | None], allowed: Iterable[frozenset[str]]) -> tuple[Type, int] | None:
    """The first type that is not among those allowed in its place, and that place."""
    for place, (value, texts) in enumerate(zip(values, allowed, strict=False)):
        if value is None or not texts:
            continue
        type = value.type
        text = type.dtype.name if type.__class__ is Tensor and type.dtype is not None else type_text(type)
        if text not in texts and text is not None:
            return type, place
    return None


def _check_agreement(node: ForeignNode, xs: Seq[Value | None], found: _Constraints) -> None:
    """Raise RuleError [type.disagree] where inputs that share a type variable are of different types."""
    bound: dict[str, tuple[int, Type]] = {}
    last = len(found.variables) - 1
    for index, x in enumerate(xs):
        variable = found.variables[min(index, last)]
        if x is None or variable is None:
            continue
        first, known = bound.setdefault(variable, (index, x.type))
        if known is not x.type and type_text(known) != type_text(x.type) and None not in (type_text(known), type_text(x.type)):
            raise RuleError(
                "type.disagree", f"{node.kind}-{node.version} takes inputs {first}, {index} of one type, not {known}, {x.type}"
            )


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

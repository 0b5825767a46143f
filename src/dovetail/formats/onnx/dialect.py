"""The ONNX dialect: operator versions and type constraints, taken from the ONNX schemas."""

from __future__ import annotations

from collections.abc import Callable, Sequence as Seq
from dataclasses import replace
from functools import cache, lru_cache
from typing import Any, NamedTuple

from dovetail.errors import DovetailError, FormatError, RuleError, UnsupportedError
from dovetail.formats.dialect import Dialect
from dovetail.formats.foreign import ForeignNode
from dovetail.formats.onnx.importer_index import CONVERTERS, IMPORTERS
from dovetail.formats.onnx.schemas import schema
from dovetail.ir.dtypes import DType
from dovetail.ir.graph import Value
from dovetail.ir.types import UNKNOWN, Map, Optional, Sequence, Tensor, Type

_DTYPE_NAMES = {
    "float": "f32", "double": "f64", "float16": "f16", "bfloat16": "bf16", "bool": "boolean", "string": "string",
    "complex64": "complex64", "complex128": "complex128",
    **{f"int{bits}": f"i{bits}" for bits in (2, 4, 8, 16, 32, 64)},
    **{f"uint{bits}": f"u{bits}" for bits in (2, 4, 8, 16, 32, 64)},
    "float8e4m3fn": "f8e4m3", "float8e4m3fnuz": "f8e4m3fnuz", "float8e5m2": "f8e5m2", "float8e5m2fnuz": "f8e5m2fnuz",
    "float8e8m0": "f8e8m0", "float4e2m1": "f4e2m1", "float6e2m3": "f6e2m3", "float6e3m2": "f6e3m2",
}  # fmt: skip
_ONNX_NAMES = {ours: theirs for theirs, ours in _DTYPE_NAMES.items()}


@cache
def since_version(domain: str, kind: str, opset: int) -> int | None:
    """Return the version of an operator at ``opset`` of its domain; None if the opset has no such operator."""
    definition = schema(domain, kind, opset)
    return None if definition is None else definition.since_version


class _Constraints(NamedTuple):
    """_Constraints holds the type constraints of one operator version.

    ``inputs`` and ``outputs`` hold the allowed types, as texts, of each formal input and output. ``is_repeated`` states that the
    last formal input is variadic. ``variables`` holds the type variable of each formal input, None for a variadic input of mixed
    types.
    """

    inputs: tuple[frozenset[str], ...]
    outputs: tuple[frozenset[str], ...]
    is_repeated: bool
    variables: tuple[str | None, ...]

    def inputs_of(self, count: int) -> tuple[frozenset[str], ...]:
        """Return the allowed types of ``count`` actual inputs."""
        repetitions = count - len(self.inputs)
        return self.inputs + self.inputs[-1:] * repetitions if repetitions > 0 and self.is_repeated else self.inputs

    def outputs_of(self, count: int) -> tuple[frozenset[str], ...]:
        return self.outputs + self.outputs[-1:] * (count - len(self.outputs))


@cache
def constraints_of(domain: str, kind: str, version: int) -> _Constraints | None:
    """Return the type constraints of an operator version; None for an unknown operator."""
    definition = schema(domain, kind, version)
    if definition is None:
        return None
    inputs, outputs = (
        tuple(frozenset(map(_type_text_of_schema, types)) for types in side) for side in (definition.inputs, definition.outputs)
    )
    return _Constraints(inputs, outputs, definition.is_repeated, definition.variables)


def _type_text_of_schema(text: str) -> str:
    """Convert the text of a type in an ONNX schema to the text that :func:`type_text` returns."""
    return _DTYPE_NAMES.get(text[7:-1], text) if text.startswith("tensor(") else text


def type_text(type: Type) -> str | None:
    """Return a tensor type's element type name, or the ONNX schema text of another type; None for an unknown element type."""
    if isinstance(type, Tensor):
        return None if type.dtype is None else type.dtype.name
    inner = type_text(type.element)
    if inner is None:
        return None
    inner = f"tensor({_ONNX_NAMES.get(inner, inner)})" if isinstance(type.element, Tensor) else inner
    if isinstance(type, Map):
        return f"map({_ONNX_NAMES.get(type.key.name, type.key.name)},{inner})"
    return f"seq({inner})" if isinstance(type, Sequence) else f"optional({inner})" if isinstance(type, Optional) else None


def check_types(node: ForeignNode, xs: Seq[Value | None], ys: Seq[Value]) -> None:
    """Check the types of a node against the schema of the operator's version.

    Raises RuleError [type.version] for an element type that the schema does not allow, and RuleError [type.disagree] if inputs
    that share a type variable have different types.
    """
    check = _find_fault if len(xs) + len(ys) <= _FEW else _find_fault.__wrapped__
    fault = check(node.domain, node.kind, node.version, _type_texts(xs), _type_texts(ys))
    if fault is None:
        return
    which, first, second = fault
    types = [None if value is None else value.type for value in (ys if which == "output" else xs)]
    if which == "input":
        raise RuleError("type.version", f"{node.kind}-{node.version} does not allow {types[first]} as input {first}")
    if which == "output":
        raise RuleError("type.version", f"{node.kind}-{node.version} does not allow {types[first]} as output {first}")
    actual = f"got {types[first]}, {types[second]}"
    raise RuleError("type.disagree", f"{node.kind}-{node.version}: inputs {first}, {second} must have one type, {actual}")


def _type_texts(values: Seq[Value | None]) -> tuple[str | None, ...]:
    """Return the text of each value's type by :func:`type_text`; None for an absent value."""
    texts: list[str | None] = []
    for value in values:
        type = UNKNOWN if value is None else value.type
        texts.append(type.dtype.name if type.__class__ is Tensor and type.dtype is not None else type_text(type))
    return tuple(texts)


_FEW = 16


@lru_cache(4096)
def _find_fault(
    domain: str, kind: str, version: int, inputs: tuple[str | None, ...], outputs: tuple[str | None, ...]
) -> tuple[str, int, int] | None:
    """Return the first type fault of a node as (kind, index, index), or None.

    The kind "input" or "output" means that the type at the first index is not allowed. The kind "inputs" means that the types of
    two inputs with one type variable differ.
    """
    constraints = constraints_of(domain, kind, version)
    if constraints is None:
        return None
    for which, texts, allowed in (
        ("input", inputs, constraints.inputs_of(len(inputs))),
        ("output", outputs, constraints.outputs_of(len(outputs))),
    ):
        for index, (text, allowed_types) in enumerate(zip(texts, allowed, strict=False)):
            if text is not None and allowed_types and text not in allowed_types:
                return which, index, index
    bound: dict[str, int] = {}
    for index, text in enumerate(inputs if constraints.variables else ()):
        variable = constraints.variables[min(index, len(constraints.variables) - 1)]
        if text is not None and variable is not None:
            first = bound.setdefault(variable, index)
            if inputs[first] != text:
                return "inputs", first, index
    return None


def encode_attribute(value: object) -> Any:
    """Convert a core attribute value to an ONNX attribute value."""
    if isinstance(value, bool):
        return int(value)
    if isinstance(value, DType):
        if value.onnx is None:
            raise UnsupportedError("type.version", f"the element type must be one of ONNX, got {value}")
        return value.onnx
    if isinstance(value, tuple):
        return [encode_attribute(item) for item in value]
    return value


def input_arity(domain: str, kind: str, version: int) -> tuple[int, int]:
    """Return the number of non-variadic inputs, and the minimum number of inputs.

    Optional inputs before a required or variadic input count as inputs, as the first two of Loop do.
    """
    definition = schema(domain, kind, version)
    return (0, 0) if definition is None else (len(definition.inputs) - definition.is_repeated, definition.min_inputs)


def first_version(domain: str, kind: str) -> int | None:
    """Return the oldest version of an operator; None for an unknown operator."""
    return next((version for opset in range(1, 64) if (version := since_version(domain, kind, opset)) is not None), None)


_WITH_PADS = frozenset(("Conv", "MaxPool", "AveragePool"))


def normalize(node: ForeignNode, deviate: Callable[[DovetailError], None]) -> ForeignNode:
    """Drop an empty ``auto_pad``, and the ``pads`` that every runtime ignores because ``auto_pad`` is not NOTSET."""
    word = node.attributes.get("auto_pad")
    if word is None or node.domain or node.kind not in _WITH_PADS:
        return node
    if not word:
        deviate(FormatError("attribute.value", f"{node.kind}: auto_pad must not be empty"))
        return _without_attribute(node, "auto_pad")
    pads = node.attributes.get("pads")
    if word == "NOTSET" or not isinstance(pads, list) or not any(pads):
        return node
    deviate(RuleError("attribute.conflict", f"pads must be absent if auto_pad is {word}, got {pads}"))
    return _without_attribute(node, "pads")


def _without_attribute(node: ForeignNode, name: str) -> ForeignNode:
    return replace(node, attributes={key: value for key, value in node.attributes.items() if key != name})


ONNX = Dialect(
    "onnx",
    lambda cls: cls.onnx,
    check_types,
    encode_attribute=encode_attribute,
    # AttributeProto.AttributeType: FLOATS, INTS, STRINGS.
    list_kinds={
        "tuple[float, ...]": 6,
        "tuple[int, ...]": 7,
        "tuple[bool, ...]": 7,
        "tuple[DType, ...]": 7,
        "tuple[str, ...]": 8,
    },
    has_opsets=True,
    subgraphs_capture=True,
    input_arity=input_arity,
    first_version=first_version,
    normalize=normalize,
    converters=CONVERTERS,
    importer_modules=IMPORTERS,
)

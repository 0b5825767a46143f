"""ONNX as lift and lower see it. What each version of an operator allows, ONNX's schemas say."""

from __future__ import annotations

from collections.abc import Callable, Sequence as Seq
from dataclasses import replace
from functools import cache, lru_cache
from typing import Any, NamedTuple

from dovetail.dtypes import DType
from dovetail.errors import DovetailError, FormatError, RuleError, UnsupportedError
from dovetail.formats.dialect import Dialect
from dovetail.formats.foreign import ForeignNode
from dovetail.formats.onnx.schemas import schema
from dovetail.ir.graph import Value
from dovetail.ir.types import UNKNOWN, Map, Optional, Sequence, Tensor, Type

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
    found = schema(domain, kind, opset)
    return None if found is None else found.since_version


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
    found = schema(domain, kind, version)
    if found is None:
        return None
    inputs, outputs = (tuple(frozenset(map(_plain, types)) for types in side) for side in (found.inputs, found.outputs))
    return _Constraints(inputs, outputs, found.is_repeated, found.variables)


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
    if isinstance(type, Map):
        return f"map({_SPELLED.get(type.key.name, type.key.name)},{inner})"
    return f"seq({inner})" if isinstance(type, Sequence) else f"optional({inner})" if isinstance(type, Optional) else None


def check_types(node: ForeignNode, xs: Seq[Value | None], ys: Seq[Value]) -> None:
    """Hold the types of a node against the schema of its version.

    Raises RuleError [type.version] for an element type that it does not allow, [type.disagree] where inputs that share a type
    variable are of different types.
    """
    check = _fault if len(xs) + len(ys) <= _FEW else _fault.__wrapped__
    fault = check(node.domain, node.kind, node.version, _texts(xs), _texts(ys))
    if fault is None:
        return
    which, first, second = fault
    types = [None if value is None else value.type for value in (ys if which == "output" else xs)]
    if which == "input":
        raise RuleError("type.version", f"{node.kind}-{node.version} does not allow {types[first]} as input {first}")
    if which == "output":
        raise RuleError("type.version", f"{node.kind}-{node.version} does not make {types[first]} as output {first}")
    unlike = f"not {types[first]}, {types[second]}"
    raise RuleError("type.disagree", f"{node.kind}-{node.version} takes inputs {first}, {second} of one type, {unlike}")


def _texts(values: Seq[Value | None]) -> tuple[str | None, ...]:
    """The values' types as :func:`type_text` writes them, None for those left out too."""
    found: list[str | None] = []
    for value in values:
        type = UNKNOWN if value is None else value.type
        found.append(type.dtype.name if type.__class__ is Tensor and type.dtype is not None else type_text(type))
    return tuple(found)


_FEW = 16


@lru_cache(4096)
def _fault(
    domain: str, kind: str, version: int, inputs: tuple[str | None, ...], outputs: tuple[str | None, ...]
) -> tuple[str, int, int] | None:
    """The first fault: an input or output of a type that is not allowed, by its place, or two inputs that disagree."""
    found = _constraints(domain, kind, version)
    if found is None:
        return None
    for which, texts, allowed in (
        ("input", inputs, found.inputs_of(len(inputs))),
        ("output", outputs, found.outputs_of(len(outputs))),
    ):
        for place, (text, known) in enumerate(zip(texts, allowed, strict=False)):
            if text is not None and known and text not in known:
                return which, place, place
    bound: dict[str, int] = {}
    for place, text in enumerate(inputs if found.variables else ()):
        variable = found.variables[min(place, len(found.variables) - 1)]
        if text is not None and variable is not None:
            first = bound.setdefault(variable, place)
            if inputs[first] != text:
                return "inputs", first, place
    return None


def encode_attribute(value: Any) -> Any:
    """A core attribute value as an ONNX attribute value."""
    if isinstance(value, bool):
        return int(value)
    if isinstance(value, DType):
        if value.onnx is None:
            raise UnsupportedError("type.version", f"ONNX has no element type {value}")
        return value.onnx
    if isinstance(value, tuple):
        return [encode_attribute(item) for item in value]
    return value


def input_arity(domain: str, kind: str, version: int) -> tuple[int, int]:
    """How many inputs do not repeat, and how many a node has at least: those of Loop may be left out, and are counted."""
    found = schema(domain, kind, version)
    return (0, 0) if found is None else (len(found.inputs) - found.is_repeated, found.least_inputs)


def first_version(domain: str, kind: str) -> int | None:
    """The oldest version of an operator."""
    return next((version for opset in range(1, 64) if (version := since_version(domain, kind, opset)) is not None), None)


_PADDED = frozenset(("Conv", "MaxPool", "AveragePool"))


def normalize(node: ForeignNode, deviate: Callable[[DovetailError], None]) -> ForeignNode:
    """A window whose ``auto_pad`` is a word other than NOTSET ignores ``pads`` in every runtime that takes both, and an empty
    ``auto_pad`` is NOTSET."""
    word = node.attributes.get("auto_pad")
    if word is None or node.domain or node.kind not in _PADDED:
        return node
    if not word:
        deviate(FormatError("attribute.value", f"{node.kind}: auto_pad is empty"))
        return _without(node, "auto_pad")
    pads = node.attributes.get("pads")
    if word == "NOTSET" or not isinstance(pads, list) or not any(pads):
        return node
    deviate(RuleError("window.pads", f"pads {pads} beside auto_pad {word}"))
    return _without(node, "pads")


def _without(node: ForeignNode, name: str) -> ForeignNode:
    return replace(node, attributes={key: value for key, value in node.attributes.items() if key != name})


ONNX = Dialect(
    "onnx",
    lambda cls: cls.onnx,
    check_types,
    encode_attribute=encode_attribute,
    has_opsets=True,
    input_arity=input_arity,
    first_version=first_version,
    normalize=normalize,
)

"""Checks of operators' attributes against their annotations, compiled once per annotation.

A check accepts and converts substitutes for a value of its type: a list for a tuple, a numpy scalar for a number, 0 and 1 for
booleans, a name for an element type.
"""

from __future__ import annotations

import re
import types
from ast import literal_eval
from collections.abc import Callable, Sequence
from functools import cache
from operator import index
from typing import Any, Literal, NamedTuple, Union, get_args, get_origin

import numpy as np

from dovetail.errors import DovetailError
from dovetail.ir import dtypes
from dovetail.ir.dtypes import DType
from dovetail.ir.graph import Graph
from dovetail.ir.packed_elements import PackedElements
from dovetail.ir.symbolic import Inexact
from dovetail.ir.types import Map, Optional, Sequence as SequenceType, Tensor


class WrongType(Exception):
    """WrongType is raised for a value that is not of the type that an annotation names."""


class Field(NamedTuple):
    """Field is one attribute: its name, the text of its annotation, and its default (``REQUIRED`` if it has none)."""

    name: str
    annotation: str
    default: Any


class _Required:
    def __repr__(self) -> str:
        return "REQUIRED"


REQUIRED = _Required()


class AttributeType(NamedTuple):
    """AttributeType is the check of one annotation.

    ``text`` names the type in messages. Values of a class in ``classes`` need no conversion. ``convert`` returns the value that
    the attribute stores, or raises WrongType.
    """

    text: str
    classes: frozenset[type]
    convert: Callable[[Any], Any]


def _to_bool(value: object) -> bool:
    if isinstance(value, bool | np.bool_) or (isinstance(value, int | np.integer) and value in (0, 1)):
        return bool(value)
    raise WrongType


def _to_int(value: Any) -> int:
    try:
        return int(index(value))
    except (TypeError, Inexact):
        raise WrongType from None


def _to_float(value: object) -> float:
    if isinstance(value, float | int | np.floating | np.integer) and not isinstance(value, bool):
        return float(value)
    raise WrongType


def _to_str(value: object) -> str:
    if isinstance(value, str):
        return str(value)
    raise WrongType


def _to_dtype(value: object) -> DType:
    if isinstance(value, str | type | np.dtype):
        return dtypes.dtype(value)
    raise WrongType


def _instance_of(*classes: type) -> Callable[[Any], Any]:
    def convert(value: object) -> Any:
        if isinstance(value, classes):
            return value
        raise WrongType

    return convert


# An integer that is passed for a float stays an integer, so that the operator's printed text does not change.
_SCALARS = {
    "bool": AttributeType("a boolean", frozenset((bool,)), _to_bool),
    "int": AttributeType("an integer", frozenset((int,)), _to_int),
    "float": AttributeType("a number", frozenset((float, int)), _to_float),
    "str": AttributeType("a string", frozenset((str,)), _to_str),
    "DType": AttributeType("an element type", frozenset((DType,)), _to_dtype),
    "None": AttributeType("None", frozenset((type(None),)), _instance_of(type(None))),
    "Graph": AttributeType("a Graph", frozenset((Graph,)), _instance_of(Graph)),
    "DovetailError": AttributeType("an error", frozenset(), _instance_of(DovetailError)),
    "Type": AttributeType(
        "a type", frozenset((Tensor, SequenceType, Optional, Map)), _instance_of(Tensor, SequenceType, Optional, Map)
    ),
    "np.ndarray[Any, Any]": AttributeType(
        "a numpy array", frozenset((np.ndarray, PackedElements)), _instance_of(np.ndarray, PackedElements)
    ),
}
_LISTS = {"bool": "booleans", "int": "integers", "float": "numbers", "str": "strings"}
_ANYTHING = AttributeType("anything", frozenset(), lambda value: value)


@cache
def attribute_type(annotation: str) -> AttributeType:
    """Return the check of an annotation's text. An annotation that names an unlisted class accepts every value."""
    members = _split(annotation, "|")
    if len(members) > 1:
        return _union([attribute_type(member) for member in members])
    if annotation in _SCALARS:
        return _SCALARS[annotation]
    generic = re.fullmatch(r"(tuple|Literal)\[(.*)\]", annotation)
    if generic is None:
        return _ANYTHING
    arguments = _split(generic[2], ",")
    if generic[1] == "Literal":
        return _literal(annotation)
    if arguments[-1] == "...":
        return _list_of(arguments[0], attribute_type(arguments[0]))
    return _row_of([attribute_type(argument) for argument in arguments])


_QUALIFIED = re.compile(r"\b(?:typing|dovetail(?:\.\w+)*)\.(?=\w)")


def annotation_text(annotation: object) -> str:
    """Return the text of an annotation without modules: "float" for the class ``float`` and for its name.

    Annotations are texts in modules with ``from __future__ import annotations``, and objects in all others.
    """
    if isinstance(annotation, str):
        return _QUALIFIED.sub("", annotation)
    origin, arguments = get_origin(annotation), get_args(annotation)
    if origin in (Union, types.UnionType):
        return " | ".join(map(annotation_text, arguments))
    if origin is Literal:
        return f"Literal[{', '.join(map(repr, arguments))}]"
    if origin is tuple:
        return f"tuple[{', '.join('...' if item is Ellipsis else annotation_text(item) for item in arguments)}]"
    if np.ndarray in (annotation, origin):
        return "np.ndarray[Any, Any]"
    if annotation is None or annotation is types.NoneType:
        return "None"
    return annotation.__name__ if isinstance(annotation, type) else _QUALIFIED.sub("", str(annotation))


def _split(text: str, separator: str) -> list[str]:
    """Split an annotation's text at the separators that are outside of brackets."""
    parts, depth = [""], 0
    for character in text:
        depth += (character == "[") - (character == "]")
        if character == separator and not depth:
            parts.append("")
        else:
            parts[-1] += character
    return [part.strip() for part in parts]


def _union(members: Sequence[AttributeType]) -> AttributeType:
    def convert(value: object) -> Any:
        for member in members:
            try:
                return member.convert(value)
            except WrongType:
                continue
        raise WrongType

    return AttributeType(
        " or ".join(member.text for member in members), frozenset().union(*(m.classes for m in members)), convert
    )


def _literal(annotation: str) -> AttributeType:
    words = literal_eval(f"({annotation.removeprefix('Literal[').removesuffix(']')},)")

    def convert(value: object) -> Any:
        if isinstance(value, str) and value in words:
            return str(value)
        raise WrongType

    return AttributeType("one of " + ", ".join(map(repr, words)), frozenset(), convert)


def _list_of(annotation: str, item: AttributeType) -> AttributeType:
    classes, convert_item = item.classes, item.convert

    def convert(value: object) -> tuple[Any, ...]:
        if value.__class__ is tuple and classes.issuperset(map(type, value)):
            return value
        return tuple(part if part.__class__ in classes else convert_item(part) for part in _items(value))

    return AttributeType(f"a list of {_LISTS.get(annotation, item.text)}", frozenset(), convert)


def _row_of(items: Sequence[AttributeType]) -> AttributeType:
    def convert(value: object) -> tuple[Any, ...]:
        parts = _items(value)
        if len(parts) != len(items):
            raise WrongType
        return tuple(
            part if part.__class__ in item.classes else item.convert(part) for item, part in zip(items, parts, strict=True)
        )

    return AttributeType(f"({', '.join(item.text for item in items)})", frozenset(), convert)


def _items(value: object) -> Sequence[Any]:
    if isinstance(value, tuple | list | range):
        return value
    if isinstance(value, np.ndarray) and value.ndim:
        return list(value)
    raise WrongType

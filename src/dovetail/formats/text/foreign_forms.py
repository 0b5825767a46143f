"""The valid forms of foreign subgraphs in a text. A text may contain arbitrary values, and its author is not trusted."""

from __future__ import annotations

from dataclasses import fields
from typing import Any

from dovetail.formats.foreign import ForeignGraph, ForeignNode, ForeignTensor, ForeignValue
from dovetail.formats.text.metadata_forms import Form, list_of, map_of, wrong_entry
from dovetail.ir.types import Map, Optional, Sequence, Tensor

KINDS: dict[str, type[Any]] = {cls.__name__: cls for cls in (ForeignGraph, ForeignNode, ForeignValue)}


def _text(value: Any) -> bool:
    return isinstance(value, str)


def _instance_of(*classes: type[Any]) -> Form:
    return lambda value: isinstance(value, classes)


_KEYS = list_of(lambda value: value is None or _text(value))
_VALUES = list_of(_instance_of(ForeignValue))
_FORMS: dict[str, Form] = {
    "key": _text, "name": _text, "doc": _text, "kind": _text, "domain": _text, "place": _text,
    "type": _instance_of(Tensor, Sequence, Optional, Map, type(None)),
    "names": lambda value: isinstance(value, tuple) and all(map(_text, value)),
    "version": lambda value: type(value) is int and 0 <= value < 2**31,
    "metadata": lambda value: isinstance(value, dict) and wrong_entry(value) is None,
    "attributes": map_of(_text, lambda value: True),
    "nodes": list_of(_instance_of(ForeignNode)),
    "constants": map_of(_text, _instance_of(ForeignTensor)),
    "values": map_of(_text, _instance_of(ForeignValue)),
}  # fmt: skip


def has_form(cls: type[Any], items: dict[Any, Any]) -> bool:
    """Return whether ``items`` has exactly the fields of ``cls``, each with a value of the valid form."""
    ports = _VALUES if cls is ForeignGraph else _KEYS
    forms = {**_FORMS, "inputs": ports, "outputs": ports}
    return items.keys() == {field.name for field in fields(cls)} and all(forms[name](item) for name, item in items.items())

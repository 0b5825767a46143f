"""The valid forms of metadata for the writers of ONNX and IR. A text may contain any values, and its author is not trusted."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeAlias

from dovetail.formats.text.grammar import MAX_LEVELS
from dovetail.ir.types import Map, Optional, Sequence, Tensor

Form: TypeAlias = Callable[[Any], bool]
_INT64 = range(-(2**63), 2**63)


def _is_text(value: object) -> bool:
    return isinstance(value, str)


def _is_bytes(value: object) -> bool:
    return isinstance(value, bytes)


def _is_bool(value: object) -> bool:
    return isinstance(value, bool)


def _is_int64(value: object) -> bool:
    return type(value) is int and value in _INT64


def _is_version(value: Any) -> bool:
    return _is_int64(value) and value > 0


def _is_type(value: object) -> bool:
    return isinstance(value, Tensor | Sequence | Optional | Map)


def list_of(form: Form) -> Form:
    """Return the form of lists and tuples whose items have ``form``."""
    return lambda value: isinstance(value, list | tuple) and all(form(item) for item in value)


def map_of(key: Form, form: Form) -> Form:
    """Return the form of dicts whose keys have the form ``key``, and whose values have ``form``."""
    return lambda value: isinstance(value, dict) and all(key(name) and form(item) for name, item in value.items())


def _row_of(*forms: Form) -> Form:
    return lambda value: (
        isinstance(value, list | tuple)
        and len(value) == len(forms)
        and all(form(item) for form, item in zip(forms, value, strict=True))
    )


def _fields_of(forms: dict[str, Form]) -> Form:
    return lambda value: isinstance(value, dict) and all(name in forms and forms[name](item) for name, item in value.items())


def _is_path(value: object) -> bool:
    """Return whether a value is the path of an unknown field, a hashable tuple of (field name, key) pairs."""
    return isinstance(value, tuple) and all(
        isinstance(step, tuple) and len(step) == 2 and _is_text(step[0]) and (_is_text(step[1]) or _is_int64(step[1]))
        for step in value
    )


def _are_items(value: object, depth: int = 0) -> bool:
    """Return whether a value is a valid list of ``rt_info`` items."""
    return (
        depth < MAX_LEVELS // 2
        and isinstance(value, list)
        and all(
            isinstance(item, dict)
            and {"tag", "attributes", "children"} <= item.keys() <= {"tag", "attributes", "children", "text"}
            and _is_text(item["tag"])
            and _TEXTS(item["attributes"])
            and _is_text(item.get("text", ""))
            and _are_items(item["children"], depth + 1)
            for item in value
        )
    )


_TEXTS = map_of(_is_text, _is_text)
_NAMES = list_of(_is_text)
_STORED = list_of(_is_bytes)
_NOTES = map_of(_is_text, _fields_of({"doc": _is_text, "metadata_props": _TEXTS}))
FORMS: dict[str, Form] = {
    "ir_version": _is_version, "domain": _is_text, "model_version": _is_int64, "metadata_props": _TEXTS,
    "configuration": _STORED, "training_info": _STORED, "device_configurations": _STORED,
    "unknown_fields": list_of(_row_of(_is_path, _is_bytes)),
    "rt_info": _are_items, "meta_data": _are_items, "quantization_parameters": _are_items, "layer_rt_info": _are_items,
    "result_rt_info": _are_items, "result_port_rt_info": _are_items, "input_rt_info": map_of(_is_text, _are_items),
    "quantization_annotation": list_of(_row_of(_is_text, _TEXTS)), "notes": _NOTES, "sparse": _NAMES,
    "overridable": _NAMES, "defaults": _NAMES,
    "inputs": _NAMES, "overload": _is_text, "attribute_docs": _TEXTS, "empty": map_of(_is_text, _is_int64),
    "denotations": lambda value: isinstance(value, dict) and all(map(_is_text, value.values())),
    "name": _is_text, "layer": _is_text, "result": _is_text, "folded": _is_bool, "declared": _is_type, "inferred": _TEXTS,
    "names": map_of(_is_text, _NAMES),
}  # fmt: skip
"""Maps the keys of metadata entries of models, graphs, nodes and values to the valid forms of the entries."""
FORMS["onnx"] = lambda value: (
    isinstance(value, dict)
    and all(
        {"producer": _NAMES, "doc": _is_text, "graph": _is_text, "graph_doc": _is_text, **FORMS}.get(name, _is_text)(item)
        for name, item in value.items()
        if item is not None
    )
)


def wrong_entry(metadata: dict[Any, Any]) -> str | None:
    """Return the key of the first metadata entry with an invalid form; None if all entries are valid."""
    for name, value in metadata.items():
        if not isinstance(name, str) or not FORMS.get(name, lambda value: True)(value):
            return str(name)
    return None

"""Helpers for the messages of onnx.proto: each reader takes the fields that it knows, so that none is dropped unseen."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable, Mapping
from functools import cache
from importlib import util
from pathlib import Path
from typing import Any

from dovetail.errors import DovetailError, FormatError, UnsupportedError

# Fields whose type is bytes.
_BYTES = frozenset(("s", "raw_data"))


def present(proto: Any, message_name: str) -> dict[str, Any]:
    """Return the present fields of ``proto`` by name; a reader takes the known ones and refuses the rest.

    Raises UnsupportedError [proto.unknown] for fields or enumeration values that the ``onnx`` package does not know,
    FormatError [proto.text] for text that is not UTF-8.
    """
    unknown = _unknown_fields()(proto)
    if len(unknown):
        numbers = sorted({field.field_number for field in unknown})[:8]
        raise UnsupportedError("proto.unknown", f"a {message_name} has unknown fields or values with the numbers {numbers}")
    fields = {field.name: value for field, value in proto.ListFields()}
    if bytes in map(type, fields.values()):
        _refuse_bytes(fields, message_name)
    return fields


def parse_message(proto: Any, stored: bytes) -> bool:
    """Fill a message from bytes of the metadata. Returns whether they are a message."""
    from google.protobuf.message import DecodeError  # type: ignore[import-untyped]

    try:
        proto.MergeFromString(stored)
    except DecodeError:
        return False
    return True


@cache
def message_classes() -> Any:
    """Import the module of the ``onnx`` package with the message classes, which ``import onnx`` also provides.

    It is loaded without the rest of the package, whose import takes longer than reading most models.
    """
    result = None if "onnx" in sys.modules else util.find_spec("onnx")
    for folder in (result and result.submodule_search_locations) or ():
        spec = util.spec_from_file_location("onnx.onnx_ml_pb2", Path(folder) / "onnx_ml_pb2.py")
        if spec is not None and spec.loader is not None and Path(folder, "onnx_ml_pb2.py").is_file():
            module = util.module_from_spec(spec)
            spec.loader.exec_module(module)
            return module
    import onnx

    return onnx


@cache
def _unknown_fields() -> Any:
    # Imported at the first message, for the start-up time.
    from google.protobuf.unknown_fields import UnknownFieldSet  # type: ignore[import-untyped]

    return UnknownFieldSet


def refuse_rest(fields: Mapping[str, Any], message_name: str) -> None:
    """Refuse the fields that a reader has not taken."""
    if fields:
        raise UnsupportedError("proto.field", f"a {message_name} has unsupported fields: {', '.join(sorted(fields))}")


def _refuse_bytes(fields: Mapping[str, Any], message_name: str) -> None:
    """Refuse text that is not UTF-8, which protobuf returns as bytes."""
    for name, value in fields.items():
        if type(value) is bytes and name not in _BYTES:
            raise FormatError("proto.text", f"the {name} of a {message_name} must be UTF-8")


def text(value: str | bytes, label: str) -> str:
    """Return a text field. Raises FormatError [proto.text]."""
    if isinstance(value, bytes):
        raise FormatError("proto.text", f"{label} must be UTF-8")
    return value


def texts(values: Iterable[str], label: str) -> list[str]:
    """Return a repeated text field. Raises FormatError [proto.text]."""
    items = list(values)
    if bytes in map(type, items):
        raise FormatError("proto.text", f"{label} must be UTF-8")
    return items


def refuse(error: DovetailError) -> None:
    """Raise the error: the ``accept`` of strict readers."""
    raise error


def properties(entries: Iterable[Any], code: str, accept: Callable[[DovetailError], None] = refuse) -> dict[str, str]:
    """Return StringStringEntryProtos as a dict, in order.

    For a repeated key ``accept`` gets a FormatError ``code``; if it returns, the last value is used, as in onnxruntime.
    """
    entries_by_key: dict[str, str] = {}
    for entry in entries:
        fields = present(entry, "property")
        key = fields.get("key", "")
        if key in entries_by_key:
            accept(FormatError(code, f"the key {key!r} is repeated"))
        entries_by_key[key] = fields.get("value", "")
    return entries_by_key


def put_properties(entries: Any, entries_by_key: Mapping[str, str]) -> None:
    """Append ``entries_by_key`` to a repeated StringStringEntryProto."""
    for key, value in entries_by_key.items():
        entry = entries.add()
        entry.key = key
        entry.value = value

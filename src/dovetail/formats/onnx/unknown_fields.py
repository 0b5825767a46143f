"""Handle unknown protobuf fields and comments that are not UTF-8; every reader ignores both.

Unknown fields are removed and stored with the path of their message, and a save writes them back. A path consists of field
names. A step into a repeated field also has the name of the entry (for a node, its first output), so that the path stays valid
when nodes are reordered.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any

from dovetail.errors import FormatError, UnsupportedError
from dovetail.formats.onnx.messages import parse_message
from dovetail.formats.onnx.protobuf_scan import encode_varint

if TYPE_CHECKING:
    from onnx import ModelProto

FieldPath = tuple[tuple[str, str | int], ...]
Unknown = tuple[FieldPath, bytes]
"""The path of a message, and the encoded unknown fields of the message."""

# Text fields without meaning, by message.
_REMARKS = {
    "ModelProto": ("doc_string", "producer_name", "producer_version"),
    "GraphProto": ("doc_string", "name"),
    "NodeProto": ("doc_string", "name"),
    "AttributeProto": ("doc_string",),
    "TensorProto": ("doc_string",),
    "ValueInfoProto": ("doc_string",),
    "FunctionProto": ("doc_string",),
}
_KEYS = {
    "AttributeProto": "name", "TensorProto": "name", "ValueInfoProto": "name", "FunctionProto": "name",
    "OperatorSetIdProto": "domain", "StringStringEntryProto": "key",
}  # fmt: skip
_VARINT, _FIXED64, _BYTES, _GROUP, _GROUP_END, _FIXED32 = range(6)


def take_unknown_fields(proto: ModelProto, note: Callable[[FormatError | UnsupportedError, str], None]) -> list[Unknown]:
    """Remove and return the unknown fields of ``proto``, and convert its comments to UTF-8.

    ``note`` receives each deviation with the path of its message. Raises UnsupportedError [proto.unknown] for a known field with
    an unknown value.
    """
    unknown: list[Unknown] = []
    for index, message in _messages(proto, ()):
        if encoded := _take(message):
            unknown.append((index, encoded))
            label = _text_of_path(index)
            note(
                UnsupportedError("proto.unknown", f"{label} must have known fields only, got others, which are preserved"), label
            )
        for name in _REMARKS.get(message.DESCRIPTOR.name, ()):
            value: Any = getattr(message, name)
            if isinstance(value, bytes):
                setattr(message, name, value.decode("utf-8", "backslashreplace"))
                note(
                    FormatError("proto.text", f"the field {name!r} of {_text_of_path(index)} must be UTF-8"), _text_of_path(index)
                )
    proto.DiscardUnknownFields()
    return unknown


def put_back(proto: ModelProto, unknown: list[Unknown]) -> bool:
    """Write unknown fields back to their messages, and return whether all of them are valid encodings of fields.

    Unknown fields of messages that no longer exist are dropped.
    """
    remaining = dict(unknown)
    return all(
        parse_message(message, remaining[index])
        for index, message in (list(_messages(proto, ())) if remaining else ())
        if index in remaining
    )


def _messages(message: Any, path: FieldPath) -> Iterator[tuple[FieldPath, Any]]:
    yield path, message
    for field, value in message.ListFields():
        if field.message_type is None:
            continue
        if not _is_repeated(field):
            yield from _messages(value, (*path, (field.name, "")))
            continue
        keys: set[str | int] = set()
        for index, item in enumerate(value):
            name = _key(item)
            key: str | int = index if name == "" or name in keys else name
            keys.add(key)
            yield from _messages(item, (*path, (field.name, key)))


def _is_repeated(field: Any) -> bool:
    return bool(field.is_repeated) if hasattr(field, "is_repeated") else field.label == field.LABEL_REPEATED


def _key(message: Any) -> str:
    kind = message.DESCRIPTOR.name
    name_ = next(filter(None, message.output), "") if kind == "NodeProto" else getattr(message, _KEYS.get(kind, ""), "")
    return name_ if isinstance(name_, str) else ""


def _text_of_path(path: FieldPath) -> str:
    return "/".join(f"{name} {key!r}" if key != "" else name for name, key in path) or "the model"


def _take(message: Any) -> bytes:
    from google.protobuf.unknown_fields import UnknownFieldSet

    fields = UnknownFieldSet(message)
    if not len(fields):
        return b""
    known_numbers = sorted({field.field_number for field in fields} & set(message.DESCRIPTOR.fields_by_number))
    if known_numbers:
        names = ", ".join(message.DESCRIPTOR.fields_by_number[number].name for number in known_numbers)
        raise UnsupportedError(
            "proto.unknown", f"a {message.DESCRIPTOR.name} must have known values only, got others for {names}"
        )
    return b"".join(map(_encode_field, fields))


def _encode_field(field: Any) -> bytes:
    """Encode one unknown field in its original encoding. Source: protobuf's encoding guide."""
    head = encode_varint(field.field_number << 3 | field.wire_type)
    if field.wire_type == _VARINT:
        return head + encode_varint(field.data)
    if field.wire_type in (_FIXED64, _FIXED32):
        return head + int(field.data).to_bytes(8 if field.wire_type == _FIXED64 else 4, "little")
    if field.wire_type == _BYTES:
        return head + encode_varint(len(field.data)) + bytes(field.data)
    return head + b"".join(map(_encode_field, field.data)) + encode_varint(field.field_number << 3 | _GROUP_END)

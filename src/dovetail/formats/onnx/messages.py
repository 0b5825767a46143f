"""The messages of onnx.proto; readers refuse fields that they do not handle, so that no field is lost silently.

``messages.binpb`` is the serialized ``google.protobuf.FileDescriptorProto`` of onnx-ml.proto, with names, numbers and types of
all fields. Source: the ``onnx`` package; ``python -m dovetail.formats.onnx.messages`` writes the file.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Mapping
from functools import cache
from types import SimpleNamespace
from typing import Any

from dovetail.errors import DovetailError, FormatError, UnsupportedError

_DESCRIPTOR = os.path.join(os.path.dirname(__file__), "messages.binpb")
_FILE = "onnx/onnx-ml.proto"
# Fields whose type is bytes.
_BYTES = frozenset(("s", "raw_data"))


def present(proto: Any, message_name: str) -> dict[str, Any]:
    """Map the names of the fields that are set in ``proto`` to their values.

    A reader removes the fields that it handles from the result, and refuses the remaining fields.

    Raises UnsupportedError [proto.unknown] for fields or enumeration values that onnx.proto does not have,
    FormatError [proto.text] for text that is not UTF-8.
    """
    unknown = _unknown_fields()(proto)
    if len(unknown):
        numbers = sorted({field.field_number for field in unknown})[:8]
        raise UnsupportedError(
            "proto.unknown", f"a {message_name} must have known fields and enumeration values only, got field numbers {numbers}"
        )
    fields = {field.name: value for field, value in proto.ListFields()}
    if bytes in map(type, fields.values()):
        _refuse_bytes(fields, message_name)
    return fields


def parse_message(proto: Any, stored: bytes) -> bool:
    """Parse ``stored`` into the message ``proto``; return whether ``stored`` is a valid message."""
    from google.protobuf.message import DecodeError

    try:
        proto.MergeFromString(stored)
    except DecodeError:
        return False
    return True


@cache
def message_classes() -> Any:
    """Return the message classes of onnx.proto as attributes of an object, such as ``ModelProto``.

    They are in a descriptor pool of their own, so that they exist beside those of any version of the ``onnx`` package.
    """
    from google.protobuf.message_factory import GetMessageClass

    return SimpleNamespace(**{name: GetMessageClass(message) for name, message in _file().message_types_by_name.items()})


@cache
def newest_ir_version() -> int:
    """Return the newest IR version of onnx.proto."""
    return int(_file().enum_types_by_name["Version"].values_by_name["IR_VERSION"].number)


@cache
def _file() -> Any:
    from google.protobuf.descriptor_pool import DescriptorPool

    pool = DescriptorPool()
    with open(_DESCRIPTOR, "rb") as file:
        pool.AddSerializedFile(file.read())
    return pool.FindFileByName(_FILE)


@cache
def _unknown_fields() -> Any:
    # Deferred to the first message for start-up time.
    from google.protobuf.unknown_fields import UnknownFieldSet

    return UnknownFieldSet


def refuse_rest(fields: Mapping[str, Any], message_name: str) -> None:
    """Raise UnsupportedError [proto.field] if ``fields`` still has fields that the reader did not remove."""
    if fields:
        raise UnsupportedError(
            "proto.field", f"a {message_name} must have supported fields only, got {', '.join(sorted(fields))}"
        )


def _refuse_bytes(fields: Mapping[str, Any], message_name: str) -> None:
    """Raise FormatError [proto.text] for text that is not UTF-8, which protobuf returns as bytes."""
    for name, value in fields.items():
        if type(value) is bytes and name not in _BYTES:
            raise FormatError("proto.text", f"the field {name!r} of a {message_name} must be UTF-8 text")


def text(value: str | bytes, label: str) -> str:
    """Return the value of a text field. Raises FormatError [proto.text] if it is not UTF-8."""
    if isinstance(value, bytes):
        raise FormatError("proto.text", f"{label} must be UTF-8")
    return value


def texts(values: Iterable[str], label: str) -> list[str]:
    """Return the values of a repeated text field. Raises FormatError [proto.text] if one is not UTF-8."""
    items = list(values)
    if bytes in map(type, items):
        raise FormatError("proto.text", f"{label} must be UTF-8")
    return items


def refuse(error: DovetailError) -> None:
    """Raise ``error``; strict readers pass this function as ``accept``."""
    raise error


def properties(entries: Iterable[Any], code: str, accept: Callable[[DovetailError], None] = refuse) -> dict[str, str]:
    """Return a list of StringStringEntryProto as a dict, in order.

    A repeated key is reported to ``accept`` as a FormatError ``code``; if ``accept`` returns, the last value is used, as in
    onnxruntime.
    """
    entries_by_key: dict[str, str] = {}
    for entry in entries:
        fields = present(entry, "property")
        key = fields.get("key", "")
        if key in entries_by_key:
            accept(FormatError(code, f"metadata keys must be unique, got {key!r} twice"))
        entries_by_key[key] = fields.get("value", "")
    return entries_by_key


def put_properties(entries: Any, entries_by_key: Mapping[str, str]) -> None:
    """Append ``entries_by_key`` to a repeated StringStringEntryProto."""
    for key, value in entries_by_key.items():
        entry = entries.add()
        entry.key = key
        entry.value = value


def _descriptor_of_package() -> bytes:
    from onnx import onnx_ml_pb2

    return bytes(onnx_ml_pb2.DESCRIPTOR.serialized_pb)


if __name__ == "__main__":
    with open(_DESCRIPTOR, "wb") as stream:
        stream.write(_descriptor_of_package())

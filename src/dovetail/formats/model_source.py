"""Sources of models for ``load``: a path, bytes, a binary file object, or an ``onnx.ModelProto``."""

from __future__ import annotations

import io
import os
from os import PathLike
from typing import BinaryIO, NamedTuple, Protocol, TypeAlias

from dovetail.errors import FormatError, MissingFileError, UnsupportedError
from dovetail.ir.host import plugins

SUFFIXES = {".onnx": "onnx", ".xml": "openvino", ".dt": "text"}
UTF8_MARK = b"\xef\xbb\xbf"


class Serializable(Protocol):
    """Serializable is a protobuf message, such as an ``onnx.ModelProto``."""

    def SerializeToString(self) -> bytes: ...  # noqa: N802 - protobuf's name


Source: TypeAlias = str | PathLike[str] | bytes | bytearray | memoryview | BinaryIO | Serializable


class ModelSource(NamedTuple):
    """ModelSource is a source of a model together with its format.

    ``content`` is the path to open, or the bytes of the model. ``file`` is the path that messages name and in whose folder
    external data is; it is None for bytes without a path.
    """

    content: str | bytes
    file: str | None
    format: str


def format_of(path: str | PathLike[str]) -> str:
    """Return the format that a path's suffix names; for a format of a plug-in, the suffix without the point.

    Raises UnsupportedError [format.unknown].
    """
    suffix = os.path.splitext(os.fspath(path).rstrip(os.sep))[1].lower()
    format = SUFFIXES.get(suffix)
    if format is None and suffix[1:] in plugins.load("formats", [name[1:] for name in SUFFIXES]):
        return suffix[1:]
    if format is None:
        raise UnsupportedError(
            "format.unknown",
            f"the name of a model file must end in {' or '.join(SUFFIXES)}, got {os.path.basename(os.fspath(path))!r}",
        )
    return format


def resolve_source(source: Source) -> ModelSource:
    """Return ``source`` with its format, from the suffix of a path or else from the first bytes.

    Bytes that begin with ``<`` are IR, with ``dovetail`` the text form, any others ONNX. Raises MissingFileError [file.missing],
    UnsupportedError [format.unknown], and FormatError [argument.type] for other objects and for text streams.
    """
    if isinstance(source, str | PathLike):
        path = os.fspath(source)
        kind = format_of(path)
        if not os.path.exists(path):
            raise MissingFileError("file.missing", f"the file {path!r} does not exist", file=path)
        return ModelSource(path, path, kind)
    content = bytes_of(source)
    name = getattr(source, "name", None)
    file = name if isinstance(name, str) and os.path.isfile(name) else None
    text = content[:64].removeprefix(UTF8_MARK).lstrip()
    format = "openvino" if text.startswith(b"<") else "text" if text.startswith(b"dovetail ") else "onnx"
    return ModelSource(content, file, format)


def bytes_of(source: object) -> bytes:
    """Return the content of bytes, a binary file object or a message. Raises FormatError [argument.type]."""
    if isinstance(source, bytes | bytearray | memoryview):
        return bytes(source)
    if isinstance(source, io.TextIOBase):
        raise FormatError("argument.type", 'a model file must be opened in binary mode ("rb"), got a text stream')
    for method in ("SerializeToString", "read"):
        if hasattr(source, method):
            content = getattr(source, method)()
            if isinstance(content, bytes):
                return content
            raise FormatError("argument.type", f"{method}() of the source must return bytes, got {type(content).__name__}")
    raise FormatError(
        "argument.type", f"source must be a path, bytes, a binary file object or an onnx.ModelProto, got {type(source).__name__}"
    )

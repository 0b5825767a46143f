"""The OpenVINO dialect: type checks and the encoding of attributes."""

from __future__ import annotations

from collections.abc import Iterable

from dovetail.errors import RuleError, UnsupportedError
from dovetail.formats.dialect import Dialect
from dovetail.formats.foreign import ForeignNode
from dovetail.formats.openvino.importer_index import CONVERTERS, IMPORTERS
from dovetail.ir.dtypes import DType
from dovetail.ir.graph import Value
from dovetail.ir.types import Tensor


def check_types(node: ForeignNode, xs: Iterable[Value | None], ys: Iterable[Value]) -> None:
    """Raise RuleError [type.version] if a value is not a tensor, or has an element type that OpenVINO lacks."""
    for value in (*xs, *ys):
        if value is None:
            continue
        if not isinstance(value.type, Tensor):
            raise RuleError("type.version", f"a value in OpenVINO must be a tensor, got {value.type}")
        if value.type.dtype is not None and value.type.dtype.openvino is None:
            raise RuleError("type.version", f"the element type must be one of OpenVINO, got {value.type.dtype}")


def encode_attribute(value: object) -> str:
    """Convert a core attribute value to the text of an XML attribute."""
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, DType):
        if value.openvino is None:
            raise UnsupportedError("type.version", f"the element type must be one of OpenVINO, got {value}")
        return value.openvino
    if isinstance(value, tuple | list):
        return ", ".join(map(encode_attribute, value))
    if isinstance(value, float):
        return repr(value)
    return str(value)


OPENVINO = Dialect(
    "openvino",
    lambda cls: cls.openvino,
    check_types,
    is_text=True,
    encode_attribute=encode_attribute,
    converters=CONVERTERS,
    importer_modules=IMPORTERS,
)

"""Element types: one table of bits, numpy dtype, ONNX number and OpenVINO name.

A numpy array stores one sub-byte element per byte: in a type of ml_dtypes, or as uint8 codes for the types that ml_dtypes lacks
(u1, u3, u6, nf4).
Sources: onnx.proto ``TensorProto.DataType``; OpenVINO ``element::Type``.
"""

from __future__ import annotations

from functools import cache
from typing import Any, TypeAlias

import numpy as np

from dovetail.errors import UnsupportedError


class DType:
    """DType is an element type. Instances are interned: compare them with ``is`` or ``==``.

    A DType equals its name (``dtype == "f32"``) and prints as its name.
    """

    __slots__ = (
        "_extension",
        "bits",
        "is_float",
        "is_integer",
        "is_number",
        "kind",
        "name",
        "numpy",
        "onnx",
        "openvino",
        "standard",
    )

    numpy: np.dtype[Any]
    """The numpy dtype; the first use of one of ml_dtypes imports that package."""

    def __init__(self, name: str, bits: int, kind: str, numpy: Any, onnx: int | None, openvino: str | None) -> None:
        self.name = name
        self.bits = bits
        self.kind = kind
        self._extension = numpy if isinstance(numpy, str) else ""
        if not self._extension:
            self.numpy = np.dtype(numpy)
        self.onnx = onnx
        self.openvino = openvino
        self.standard = name in _STANDARD
        self.is_float = kind == "float"
        self.is_integer = kind in ("int", "uint")
        self.is_number = kind in ("float", "int", "uint", "complex")

    def __getattr__(self, name: str) -> Any:
        # Called for an empty slot: that of a dtype of ml_dtypes before its first use.
        if name != "numpy" or not self._extension:
            raise AttributeError(f"{type(self).__name__} has no attribute {name!r}")
        import ml_dtypes

        self.numpy = np.dtype(getattr(ml_dtypes, self._extension))
        return self.numpy

    @property
    def is_extension(self) -> bool:
        """True for a type whose numpy dtype is one of ml_dtypes."""
        return bool(self._extension)

    def __repr__(self) -> str:
        return self.name

    def __eq__(self, other: object) -> bool:
        return self is other or (isinstance(other, str) and self.name == other)

    def __hash__(self) -> int:
        return hash(self.name)

    def __reduce__(self) -> tuple[Any, ...]:
        return dtype, (self.name,)

    def range(self) -> tuple[int, int]:
        """Return the minimum and maximum value of an integer type."""
        if self.kind == "uint":
            return 0, 2**self.bits - 1
        assert self.kind == "int"
        return -(2 ** (self.bits - 1)), 2 ** (self.bits - 1) - 1


DTypeLike: TypeAlias = DType | str | type | np.dtype[Any]
"""Arguments that name an element type: a DType, a name, or a type or dtype of numpy."""

_STANDARD = frozenset("f32 f64 i8 i16 i32 i64 u8 u16 u32 u64 boolean complex64 complex128".split())

# name, bits, kind, numpy (a text: of ml_dtypes), ONNX number, OpenVINO name (None: the format has no such type)
_TABLE: tuple[tuple[str, int, str, Any, int | None, str | None], ...] = (
    ("f64", 64, "float", np.float64, 11, "f64"),
    ("f32", 32, "float", np.float32, 1, "f32"),
    ("f16", 16, "float", np.float16, 10, "f16"),
    ("bf16", 16, "float", "bfloat16", 16, "bf16"),
    ("f8e4m3", 8, "float", "float8_e4m3fn", 17, "f8e4m3"),
    ("f8e4m3fnuz", 8, "float", "float8_e4m3fnuz", 18, None),
    ("f8e5m2", 8, "float", "float8_e5m2", 19, "f8e5m2"),
    ("f8e5m2fnuz", 8, "float", "float8_e5m2fnuz", 20, None),
    ("f8e8m0", 8, "float", "float8_e8m0fnu", 24, "f8e8m0"),
    ("f6e2m3", 6, "float", "float6_e2m3fn", 27, None),
    ("f6e3m2", 6, "float", "float6_e3m2fn", 28, None),
    ("f4e2m1", 4, "float", "float4_e2m1fn", 23, "f4e2m1"),
    ("nf4", 4, "float", np.uint8, None, "nf4"),
    ("i64", 64, "int", np.int64, 7, "i64"),
    ("i32", 32, "int", np.int32, 6, "i32"),
    ("i16", 16, "int", np.int16, 5, "i16"),
    ("i8", 8, "int", np.int8, 3, "i8"),
    ("i4", 4, "int", "int4", 22, "i4"),
    ("i2", 2, "int", "int2", 26, None),
    ("u64", 64, "uint", np.uint64, 13, "u64"),
    ("u32", 32, "uint", np.uint32, 12, "u32"),
    ("u16", 16, "uint", np.uint16, 4, "u16"),
    ("u8", 8, "uint", np.uint8, 2, "u8"),
    ("u6", 6, "uint", np.uint8, None, "u6"),
    ("u4", 4, "uint", "uint4", 21, "u4"),
    ("u3", 3, "uint", np.uint8, None, "u3"),
    ("u2", 2, "uint", "uint2", 25, "u2"),
    ("u1", 1, "uint", np.uint8, None, "u1"),
    ("boolean", 8, "bool", np.bool_, 9, "boolean"),
    ("string", 0, "string", np.object_, 8, "string"),
    ("complex64", 64, "complex", np.complex64, 14, None),
    ("complex128", 128, "complex", np.complex128, 15, None),
)

ALL: tuple[DType, ...] = tuple(DType(*row) for row in _TABLE)
_BY_NAME: dict[str, DType] = {item.name: item for item in ALL}
_ALIASES = {
    "float32": "f32", "float64": "f64", "float16": "f16", "bfloat16": "bf16", "float": "f32", "double": "f64",
    "int8": "i8", "int16": "i16", "int32": "i32", "int64": "i64",
    "uint8": "u8", "uint16": "u16", "uint32": "u32", "uint64": "u64", "bool": "boolean", "str": "string",
}  # fmt: skip
# The code types and u8 share numpy's uint8; dtype() maps uint8 to u8.
_BY_NUMPY: dict[np.dtype[Any], DType] = {
    item.numpy: item for item in reversed(ALL) if not item.is_extension and item.name not in ("nf4", "u6", "u3", "u1")
}
BY_ONNX: dict[int, DType] = {item.onnx: item for item in ALL if item.onnx is not None}
BY_OPENVINO: dict[str, DType] = {item.openvino: item for item in ALL if item.openvino is not None}

f64, f32, f16, bf16 = (_BY_NAME[name] for name in ("f64", "f32", "f16", "bf16"))
i64, i32, i8, u8 = (_BY_NAME[name] for name in ("i64", "i32", "i8", "u8"))
boolean, string = _BY_NAME["boolean"], _BY_NAME["string"]


def by_name(name: str) -> DType | None:
    """Return the element type with the name ``f32``, ``i64`` and so on; None if the text names no element type."""
    return _BY_NAME.get(name)


@cache
def _extensions() -> dict[np.dtype[Any], DType]:
    return {item.numpy: item for item in ALL if item.is_extension}


def dtype(item: Any) -> DType:
    """Convert a DType, a name (``"f32"``, ``"float32"``), or anything that ``numpy.dtype`` takes to an element type.

    Raises UnsupportedError [dtype.unknown] for anything else.
    """
    if isinstance(item, DType):
        return item
    if isinstance(item, str):
        named = _BY_NAME.get(_ALIASES.get(item, item))
        if named is not None:
            return named
        # numpy knows the names of ml_dtypes once that package is imported.
        _extensions()
    try:
        plain = np.dtype(item)
    except TypeError:
        raise UnsupportedError("dtype.unknown", f"{item!r} is no element type that dovetail knows") from None
    if plain.kind in "SUO" or plain.kind == "T":
        return string
    plain = plain.newbyteorder("=")
    element_type = _BY_NUMPY.get(plain) or _extensions().get(plain)
    if element_type is None:
        raise UnsupportedError("dtype.unknown", f"numpy's {plain} is no element type that dovetail knows")
    return element_type

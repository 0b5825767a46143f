"""Type: the element types of the ``openvino`` package."""

from __future__ import annotations

from typing import ClassVar, TypeAlias

import numpy as np

from dovetail.errors import EngineError
from dovetail.ir import dtypes

# name, name in repr, bits, numpy dtype; then r for reals, s for signed types, q for quantized types
_TABLE = (
    ("dynamic", "dynamic", 0, None, ""),
    ("boolean", "char", 8, "bool", "s"),
    ("bf16", "bfloat16", 16, "float16", "rs"),
    ("f16", "float16", 16, "float16", "rs"),
    ("f32", "float32", 32, "float32", "rs"),
    ("f64", "double64", 64, "float64", "rs"),
    ("i4", "int4_t", 4, "int8", "sq"),
    ("i8", "int8_t", 8, "int8", "sq"),
    ("i16", "int16_t", 16, "int16", "s"),
    ("i32", "int32_t", 32, "int32", "sq"),
    ("i64", "int64_t", 64, "int64", "s"),
    ("u1", "uint1_t", 1, "uint8", ""),
    ("u2", "uint2_t", 2, "uint8", ""),
    ("u3", "uint3_t", 3, "uint8", ""),
    ("u4", "uint4_t", 4, "uint8", ""),
    ("u6", "uint6_t", 6, "uint8", ""),
    ("u8", "uint8_t", 8, "uint8", "q"),
    ("u16", "uint16_t", 16, "uint16", ""),
    ("u32", "uint32_t", 32, "uint32", ""),
    ("u64", "uint64_t", 64, "uint64", ""),
    ("nf4", "nfloat4", 4, "uint8", "q"),
    ("f4e2m1", "f4e2m1", 4, "uint8", "rsq"),
    ("f8e4m3", "f8e4m3", 8, "uint8", "rsq"),
    ("f8e5m2", "f8e5m2", 8, "uint8", "rsq"),
    ("f8e8m0", "f8e8m0", 8, "uint8", "rsq"),
    ("string", "string", 256, "S", ""),
)
_NUMPY_NAMES = ("f64 f32 f16 i64 i32 i16 i8 u64 u32 u16 u8 boolean").split()


class Type:
    """Type is an element type; ``Type(dtype)`` takes anything that ``numpy.dtype`` takes. Instances are interned.

    >>> Type(np.float32), Type.f32.to_string(), Type.f32 == np.float32
    (<Type: 'float32'>, 'f32', False)
    """

    dynamic: ClassVar[Type]
    boolean: ClassVar[Type]
    bf16: ClassVar[Type]
    f16: ClassVar[Type]
    f32: ClassVar[Type]
    f64: ClassVar[Type]
    i4: ClassVar[Type]
    i8: ClassVar[Type]
    i16: ClassVar[Type]
    i32: ClassVar[Type]
    i64: ClassVar[Type]
    u1: ClassVar[Type]
    u2: ClassVar[Type]
    u3: ClassVar[Type]
    u4: ClassVar[Type]
    u6: ClassVar[Type]
    u8: ClassVar[Type]
    u16: ClassVar[Type]
    u32: ClassVar[Type]
    u64: ClassVar[Type]
    nf4: ClassVar[Type]
    f4e2m1: ClassVar[Type]
    f8e4m3: ClassVar[Type]
    f8e5m2: ClassVar[Type]
    f8e8m0: ClassVar[Type]
    string: ClassVar[Type]

    _name: str
    _text: str
    _flags: str
    _numpy: np.dtype[np.generic] | None
    bitwidth: int

    def __new__(cls, dtype: object) -> Type:
        plain = np.dtype(dtype)  # type: ignore[call-overload]
        if plain.kind in "SU":
            return cls.string
        name = next((name for name in _NUMPY_NAMES if plain == _BY_NAME[name]._numpy), None)
        if name is None:
            raise EngineError("dtype.unknown", f"Unsupported data type: {plain}")
        return _BY_NAME[name]

    @property
    def size(self) -> int:
        """The bytes of an element, rounded up."""
        return (self.bitwidth + 7) // 8

    @property
    def type_name(self) -> str:
        return self._name

    def to_string(self) -> str:
        return self._name

    get_type_name = to_string

    def to_dtype(self) -> np.dtype[np.generic]:
        """Return the numpy type of an array with these elements. Types that numpy lacks are bit patterns: bf16 is float16."""
        if self._numpy is None:
            raise IndexError("the type dynamic has no numpy type")
        return self._numpy

    def get_bitwidth(self) -> int:
        return self.bitwidth

    def get_size(self) -> int:
        return self.size

    def is_static(self) -> bool:
        return self is not Type.dynamic

    def is_dynamic(self) -> bool:
        return self is Type.dynamic

    def is_real(self) -> bool:
        return "r" in self._flags

    def is_signed(self) -> bool:
        return "s" in self._flags

    def is_quantized(self) -> bool:
        return "q" in self._flags

    def is_integral(self) -> bool:
        return not self.is_real()

    def is_integral_number(self) -> bool:
        return not self.is_real() and self is not Type.boolean

    real, signed, quantized = property(is_real), property(is_signed), property(is_quantized)
    integral, integral_number = property(is_integral), property(is_integral_number)

    def compatible(self, other: Type) -> bool:
        """Return whether the types are equal or one of them is dynamic."""
        return self is other or Type.dynamic in (self, other)

    def merge(self, other: Type) -> Type | None:
        """Return the type that both types allow; None if there is none."""
        if not self.compatible(other):
            return None
        return other if self.is_dynamic() else self

    def __hash__(self) -> int:
        return hash(self._name)

    def __repr__(self) -> str:
        return f"<Type: '{self._text}'>"

    def __reduce__(self) -> tuple[object, ...]:
        return type_of, (self._name,)


_BY_NAME: dict[str, Type] = {}
for _row in _TABLE:
    _type = object.__new__(Type)
    _type._name, _type._text, _type.bitwidth, _numpy, _type._flags = _row
    _type._numpy = None if _numpy is None else np.dtype(_numpy)
    _BY_NAME[_type._name] = _type
    setattr(Type, _type._name, _type)

TypeLike: TypeAlias = Type | type | str | np.dtype[np.generic]
"""Arguments that name an element type: a Type, or anything that ``numpy.dtype`` takes."""


def type_of(dtype: dtypes.DType | str | None) -> Type:
    """Return the Type of an element type of dovetail, or of that name; dynamic for None. Raises EngineError [dtype.unknown]."""
    if dtype is None:
        return Type.dynamic
    found = _BY_NAME.get(str(dtype))
    if found is None:
        raise EngineError("dtype.unknown", f"OpenVINO has no element type {dtype}")
    return found


def to_type(item: object) -> Type:
    """Return ``item`` as a Type; a Type is returned as it is."""
    return item if isinstance(item, Type) else Type(item)

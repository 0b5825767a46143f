"""Laws of elementwise operators with a constant operand (x * 1 = x), and the types for which a law keeps all bits."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from dovetail.ir import dtypes
from dovetail.ir.dtypes import DType

INTEGERS = frozenset(item.name for item in dtypes.ALL if item.is_integer)
"""The names of the integer types."""
FLOATS = frozenset(item.name for item in dtypes.ALL if item.is_float)
"""The names of the float types."""
REALS = INTEGERS | FLOATS
"""The names of all types of real numbers."""
BOOLEANS = frozenset(("boolean",))
"""The names of the types of logical operators."""
EXACT_IN_F64 = REALS - {"i64", "u64"}
"""The names of the types of real numbers whose values f64 represents exactly."""
MAX_ELEMENTS = 1 << 16
"""Largest number of elements of a constant that is tested against a law; a larger constant satisfies no law."""


@dataclass(frozen=True, slots=True)
class OperandLaw:
    """OperandLaw describes a constant operand that determines the result of a binary operator.

    Operand ``index`` is a constant whose elements all equal ``number``. Elements of floats must also have the sign bit
    ``sign``, unless ``sign`` is None. The law holds where the type of the other operand is in ``types``, and the type of the
    constant is in ``beside``. Where ``beside`` is None, both operands must have the same type.
    """

    index: int
    number: float
    types: frozenset[str]
    beside: frozenset[str] | None = None
    sign: bool | None = None

    def holds(self, dtype: DType, constant: np.ndarray[Any, Any] | None, constant_dtype: DType) -> bool:
        """Return whether the law holds for an operand of the type ``dtype`` and the other operand ``constant``."""
        if dtype.name not in self.types:
            return False
        if constant_dtype is not dtype if self.beside is None else constant_dtype.name not in self.beside:
            return False
        return is_all(constant, self.number, self.sign)


def is_all(data: np.ndarray[Any, Any] | None, number: float, sign: bool | None = None) -> bool:
    """Return whether all elements of ``data`` equal ``number`` and, for floats, have the sign bit ``sign`` (None: any).

    The result is False for None, for no elements, for objects, and for more than MAX_ELEMENTS elements.
    """
    if data is None or not data.size or data.dtype.hasobject or data.size > MAX_ELEMENTS:
        return False
    wide = np.asarray(data, dtype=np.float64) if data.dtype.kind not in "iub" else data
    if not bool(np.all(wide == number)):
        return False
    return sign is None or data.dtype.kind in "iub" or bool(np.all(np.signbit(wide) == sign))


def both(number: float, types: frozenset[str], sign: bool | None = None) -> tuple[OperandLaw, ...]:
    """Return the laws of a commutative operator: one law for a constant first operand, one for a constant second operand."""
    return tuple(OperandLaw(index, number, types, sign=sign) for index in (0, 1))

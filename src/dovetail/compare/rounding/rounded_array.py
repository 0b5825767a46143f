"""RoundedArray: the elements of an array over the real numbers, and how far a run in floats is from them."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, TypeAlias

import numpy as np
import numpy.typing as npt

from dovetail.errors import UnsupportedError

if TYPE_CHECKING:
    from dovetail.compare.rounding.element_functions import ElementFunctions

Floats = np.ndarray[Any, Any]
Operand: TypeAlias = "RoundedArray | Floats | float"
Axis = int | tuple[int, ...] | None
Ints = int | tuple[int, ...]


class RoundedArray:
    """RoundedArray is an array of the namespace RoundingFunctions.

    ``value`` has the elements, computed in f64 where ``dtype`` is a float type. ``radius``: a bound of the difference between
    ``value`` and the element for any inputs in their ranges, None for 0. ``error``: a bound of the difference between that
    element and the one of a run in ``dtype``, None for 0.
    """

    __slots__ = ("dtype", "error", "radius", "value", "xp")

    def __init__(
        self, xp: ElementFunctions, value: Floats, dtype: npt.DTypeLike, error: Floats | None = None, radius: Floats | None = None
    ) -> None:
        self.xp = xp
        self.value: Floats = np.asarray(value)
        self.dtype = np.dtype(dtype)
        self.error = error
        self.radius = radius

    def __array_namespace__(self, api_version: str | None = None) -> ElementFunctions:
        return self.xp

    def __array__(self, dtype: npt.DTypeLike | None = None, copy: bool | None = None) -> Floats:
        """Return the elements if no rounding and no input in its range changes them. Raises UnsupportedError [array.library]."""
        if self.spread is not None and bool(np.any(self.spread)):
            raise UnsupportedError("array.library", "a size, an index or a condition depends on rounding; no bound is known")
        return self.value.astype(self.dtype if dtype is None else dtype)

    @property
    def shape(self) -> tuple[int, ...]:
        shape: tuple[int, ...] = self.value.shape
        return shape

    @property
    def ndim(self) -> int:
        return self.value.ndim

    @property
    def size(self) -> int:
        return self.value.size

    @property
    def is_float(self) -> bool:
        return self.value.dtype.kind in "fc"

    @property
    def spread(self) -> Floats | None:
        """The sum of ``error`` and ``radius``; None for 0."""
        if self.error is None or self.radius is None:
            return self.radius if self.error is None else self.error
        return self.error + self.radius

    @property
    def magnitude(self) -> Floats:
        """The largest magnitude of each element over the ranges of the inputs, with rounding."""
        size = np.abs(self.value)
        return size if self.spread is None else size + self.spread

    def ends(self) -> tuple[Floats, Floats]:
        """Return the smallest and the largest value of each element, with rounding."""
        spread = 0.0 if self.spread is None else self.spread
        return self.value - spread, self.value + spread

    def interval(self) -> tuple[Floats, Floats]:
        """Return the smallest and the largest value of each element over the real numbers."""
        radius = 0.0 if self.radius is None else self.radius
        return self.value - radius, self.value + radius

    def map(self, function: Callable[..., Floats]) -> RoundedArray:
        """Apply a function that only moves elements."""
        error, radius = (None if each is None else function(each) for each in (self.error, self.radius))
        return RoundedArray(self.xp, function(self.value), self.dtype, error, radius)

    def __getitem__(self, key: int | slice | tuple[Any, ...] | None) -> RoundedArray:
        return self.map(lambda array: array[key])

    def __bool__(self) -> bool:
        return bool(np.asarray(self))

    def __int__(self) -> int:
        return int(np.asarray(self))

    __index__ = __int__

    def __float__(self) -> float:
        return float(np.asarray(self))

    def __len__(self) -> int:
        return len(self.value)

    def __hash__(self) -> int:
        return id(self)


def _operator(name: str, reflected: bool = False) -> Any:
    def apply(self: RoundedArray, other: Operand) -> Any:
        return getattr(self.xp, name)(*((other, self) if reflected else (self, other)))

    return apply


for _name, _function in {
    "add": "add", "sub": "subtract", "mul": "multiply", "truediv": "divide", "floordiv": "floor_divide", "mod": "remainder",
    "pow": "pow", "matmul": "matmul", "and": "bitwise_and", "or": "bitwise_or", "xor": "bitwise_xor",
    "lshift": "bitwise_left_shift", "rshift": "bitwise_right_shift",
}.items():  # fmt: skip
    setattr(RoundedArray, f"__{_name}__", _operator(_function))
    setattr(RoundedArray, f"__r{_name}__", _operator(_function, reflected=True))
for _name, _function in {
    "eq": "equal", "ne": "not_equal", "lt": "less", "le": "less_equal", "gt": "greater", "ge": "greater_equal",
}.items():  # fmt: skip
    setattr(RoundedArray, f"__{_name}__", _operator(_function))
for _name, _function in {"neg": "negative", "abs": "abs", "invert": "bitwise_invert"}.items():
    setattr(RoundedArray, f"__{_name}__", lambda self, name=_function: getattr(self.xp, name)(self))

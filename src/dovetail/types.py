"""What is known of a value before it exists: tensor, sequence and optional types, and the questions that rules ask of shapes."""

from __future__ import annotations

from collections.abc import Iterable, Sequence as Seq
from dataclasses import dataclass
from typing import Any, TypeAlias

from dovetail import dims
from dovetail.dims import Dim
from dovetail.dtypes import DType
from dovetail.errors import RuleError

Size: TypeAlias = int | Dim
Shape: TypeAlias = tuple[Size, ...]


class Unknown(Exception):
    """Raised by a question whose answer is not known yet; the inference walk turns it into an unknown type."""


def _shape_text(shape: Shape | None) -> str:
    return "..." if shape is None else ", ".join(map(str, shape))


@dataclass(frozen=True, slots=True)
class Tensor:
    """A tensor of ``dtype`` (None: not known, as for an operator we have no rule for) and ``shape`` (None: rank not known)."""

    dtype: DType | None
    shape: Shape | None = None

    def __str__(self) -> str:
        return f"{self.dtype or '?'}[{_shape_text(self.shape)}]"


@dataclass(frozen=True, slots=True)
class Sequence:
    """A list of values of one type."""

    element: Type

    def __str__(self) -> str:
        return f"sequence({self.element})"


@dataclass(frozen=True, slots=True)
class Optional:
    """A value of one type, or nothing."""

    element: Type

    def __str__(self) -> str:
        return f"optional({self.element})"


Type: TypeAlias = Tensor | Sequence | Optional
UNKNOWN = Tensor(None, None)


class View:
    """What a rule sees of an input: its type and, where known, its value as an exact array of dims.

    ``dtype``, ``shape`` (None: rank unknown) and ``value`` (None: unknown) are plain facts; ``dims`` and ``exact`` are the
    same facts demanded, and raise Unknown where they are missing. ``graph.Value`` offers the same five names.
    """

    __slots__ = ("type", "value")

    def __init__(self, type: Type, value: Any = None) -> None:
        self.type = type
        self.value = value

    @property
    def dtype(self) -> DType:
        return dtype_of(self.type)

    @property
    def shape(self) -> Shape | None:
        return shape_of(self.type)

    @property
    def dims(self) -> Shape:
        return dims_of(self.type)

    @property
    def exact(self) -> Any:
        if self.value is None:
            raise Unknown
        return self.value

    def __repr__(self) -> str:
        return str(self.type)


def dtype_of(type: Type) -> DType:
    """The element type, raising Unknown where it is not known and RuleError where the value is no tensor."""
    if not isinstance(type, Tensor):
        raise RuleError("type.tensor", f"a tensor is needed, not {type}")
    if type.dtype is None:
        raise Unknown
    return type.dtype


def shape_of(type: Type) -> Shape | None:
    if not isinstance(type, Tensor):
        raise RuleError("type.tensor", f"a tensor is needed, not {type}")
    return type.shape


def dims_of(type: Type) -> Shape:
    shape = shape_of(type)
    if shape is None:
        raise Unknown
    return shape


INT64_MAX = 2**63 - 1


def agree(first: Size, second: Size) -> Size:
    """The one size that two sizes which must be equal have; the more definite one where only run time can tell.

    Raises RuleError [shape.disagree] when they cannot be equal.
    """
    if first is second:
        return first
    equal = dims.equal(first, second)
    if equal is False:
        raise RuleError("shape.disagree", f"dimensions {first}, {second} should be equal")
    return second if isinstance(second, int) else first


def agree_shapes(first: Shape | None, second: Shape | None) -> Shape | None:
    """Two shapes that must be equal, as one."""
    if first is None or second is None:
        return second if first is None else first
    if len(first) != len(second):
        raise RuleError("shape.rank", f"ranks {len(first)}, {len(second)} should be equal")
    return tuple(map(agree, first, second))


def total(shape: Iterable[Size]) -> Size:
    """The number of elements. Raises RuleError [shape.overflow] where a known product passes 2**63 - 1."""
    product: Size = dims.product(shape)
    if isinstance(product, int) and product > INT64_MAX:
        raise RuleError("shape.overflow", f"{product} elements are more than 2**63 - 1")
    return product


def axis_in(axis: int, rank: int, negative: bool = True) -> int:
    """``axis`` counted from the front. Raises RuleError [axis.range] outside [-rank, rank - 1] (or [0, rank - 1])."""
    low = -rank if negative else 0
    if not low <= axis < rank:
        raise RuleError("axis.range", f"axis {axis} is not in [{low}, {rank - 1}]")
    return axis + rank if axis < 0 else axis


def axes_in(axes: Seq[int], rank: int) -> tuple[int, ...]:
    """Each axis counted from the front. Raises RuleError [axis.repeated] where one comes twice."""
    found = tuple(axis_in(int(axis), rank) for axis in axes)
    if len(set(found)) != len(found):
        raise RuleError("axis.repeated", f"axes {list(map(int, axes))} name one axis twice")
    return found


def broadcast_size(first: Size, second: Size) -> Size | None:
    """One axis of a numpy broadcast; None where it depends on what the symbols turn out to be."""
    if first == second or dims.equal(first, second) is True or second == 1:
        return first
    if first == 1:
        return second
    for known, other in ((first, second), (second, first)):
        # A size that cannot be 1 decides: the other one is it, or 1.
        if dims.equal(known, 1) is False:
            if dims.equal(other, 1) is False:
                return agree(known, other)
            return known
    return None


def broadcast(*shapes: Shape | None) -> tuple[Size | None, ...] | None:
    """The shape of numpy-style broadcasting; None where a rank is unknown, None for a size that only run time can tell.

    Raises RuleError [shape.broadcast].
    """
    if None in shapes:
        return None
    if len(shapes) == 2 and shapes[0] == shapes[1]:
        return shapes[0]
    result: list[Size | None] = []
    known = [shape for shape in shapes if shape is not None]
    rank = max(map(len, known), default=0)
    for axis in range(-rank, 0):
        size: Size | None = 1
        for shape in known:
            if -axis > len(shape) or size is None:
                continue
            try:
                size = broadcast_size(size, shape[axis])
            except RuleError:
                text = ", ".join(f"[{_shape_text(each)}]" for each in known)
                raise RuleError("shape.broadcast", f"shapes {text} do not broadcast") from None
        result.append(size)
    return tuple(result)


def static(shape: Shape | None) -> tuple[int, ...]:
    """The shape as integers, raising Unknown where one is not."""
    if shape is None:
        raise Unknown
    sizes = tuple(size for size in shape if isinstance(size, int))
    if len(sizes) != len(shape):
        raise Unknown
    return sizes


def is_static(type: Type) -> bool:
    return isinstance(type, Tensor) and type.shape is not None and all(isinstance(size, int) for size in type.shape)


def is_unnamed(size: Size) -> bool:
    """A symbol that was made up because nothing was known: its name begins with "?"."""
    if isinstance(size, int):
        return False
    name = dims.name_of(size)
    return name is not None and name.startswith("?")

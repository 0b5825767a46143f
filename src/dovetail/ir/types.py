"""Types of values: Tensor, Sequence, Optional, Map and View; and helpers of shape rules."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence as Seq
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass
from itertools import repeat
from typing import Any, NamedTuple, TypeAlias, overload

import numpy as np

from dovetail.errors import MissingAttributeError, RuleError, printable
from dovetail.ir import symbolic
from dovetail.ir.dtypes import DType
from dovetail.ir.limits import MAX_AXES
from dovetail.ir.symbolic import Dim

Size: TypeAlias = int | Dim
Shape: TypeAlias = tuple[Size, ...]


class Unknown(Exception):
    """Unknown is raised by a rule that needs an unknown fact; inference then makes the type unknown."""


def _shape_text(shape: Shape | None) -> str:
    return "..." if shape is None else ", ".join("?" if size is None else str(size) for size in shape)


@dataclass(frozen=True, slots=True)
class Tensor:
    """Tensor is the type of a tensor. ``dtype`` is None if the element type is unknown, ``shape`` None if the rank is unknown."""

    dtype: DType | None
    shape: Shape | None = None

    def __str__(self) -> str:
        return f"{self.dtype or '?'}[{_shape_text(self.shape)}]"


class _NotTensor:
    """_NotTensor is the base of all types but Tensor: reading ``dtype`` or ``shape`` raises MissingAttributeError [type.kind]."""

    __slots__ = ()

    @property
    def dtype(self) -> DType | None:
        raise MissingAttributeError("type.kind", f"{self} is no tensor and has no element type")

    @property
    def shape(self) -> Shape | None:
        raise MissingAttributeError("type.kind", f"{self} is no tensor and has no shape")


@dataclass(frozen=True, slots=True)
class Sequence(_NotTensor):
    """Sequence is the type of a list of values of the type ``element``; ``length`` is None if the length is unknown.

    A size of None in ``element`` is unknown or differs between elements; any other size applies to all elements.
    """

    element: Type
    length: Size | None = None

    def __str__(self) -> str:
        return f"sequence({self.element})" if self.length is None else f"sequence({self.element}; {self.length})"


@dataclass(frozen=True, slots=True)
class Optional(_NotTensor):
    """Optional is the type of a value that may be absent, and that otherwise has the type ``element``."""

    element: Type

    def __str__(self) -> str:
        return f"optional({self.element})"


@dataclass(frozen=True, slots=True)
class Map(_NotTensor):
    """Map is the type of a map, in a run a Python dict: ``key`` is the type of its keys, ``element`` the type of its values.

    The keys are integers or strings.
    """

    key: DType
    element: Type

    def __str__(self) -> str:
        return f"map({self.key}, {self.element})"


Type: TypeAlias = Tensor | Sequence | Optional | Map
UNKNOWN = Tensor(None, None)


class View:
    """View is an input of a rule: its type and, if known, its value as an exact array of integers and Dims.

    ``shape`` is None for an unknown rank, ``value`` None for an unknown value. ``dims`` and ``exact`` return the shape and the
    value, and raise Unknown instead of returning None. A ``graph.Value`` is a View.
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
        value = self.value
        if value is None:
            raise Unknown
        return value

    def __repr__(self) -> str:
        return printable(str(self.type))


def impossible(sizes: Seq[Size | None]) -> str:
    """Explain why no tensor has these sizes: too many axes, or more than 2**63 - 1 elements. Return "" for possible sizes.

    Axes of size 0 are left out of the product, as in numpy, which computes strides from that product.
    """
    if len(sizes) > MAX_AXES:
        return f"{len(sizes)} axes, more than the maximum of {MAX_AXES} axes"
    product = 1
    for size in sizes:
        product *= size if isinstance(size, int) and size else 1
    if product > INT64_MAX:
        return f"the sizes {', '.join(map(str, sizes))} have more than 2**63 - 1 elements"
    return ""


def dtype_of(type: Type) -> DType:
    """Return the element type of a tensor type. Raises Unknown, and RuleError [type.kind] for other types."""
    if not isinstance(type, Tensor):
        raise RuleError("type.kind", f"the value must be a tensor, got {type}")
    if type.dtype is None:
        raise Unknown
    return type.dtype


def sequence_of(type: Type) -> Sequence:
    """Return ``type`` if it is a Sequence. Raises Unknown for an unknown type, and RuleError [type.kind] for other types."""
    if isinstance(type, Sequence):
        return type
    if type == UNKNOWN:
        raise Unknown
    raise RuleError("type.kind", f"the value must be a sequence, got {type}")


def shape_of(type: Type) -> Shape | None:
    """Return the shape of a tensor type, None for an unknown rank. Raises RuleError [type.kind] for other types."""
    if not isinstance(type, Tensor):
        raise RuleError("type.kind", f"the value must be a tensor, got {type}")
    return type.shape


def dims_of(type: Type) -> Shape:
    """Return the shape of a tensor type. Raises Unknown for an unknown rank, and RuleError [type.kind] for other types."""
    shape = shape_of(type)
    if shape is None:
        raise Unknown
    return shape


def axes_of(axes: int | Iterable[int]) -> list[int]:
    """Convert one axis, or a sequence or array of axes, to a list of integers."""
    return [int(axis) for axis in np.atleast_1d(np.asarray(axes)).tolist()]


INT64_MAX = 2**63 - 1


class Bounded(NamedTuple):
    """Bounded is a size of which a shape rule knows only inclusive bounds; ``high`` is None if there is no upper bound."""

    low: int
    high: int | None


_demanded: ContextVar[list[tuple[Size, Size]] | None] = ContextVar("demanded", default=None)


@contextmanager
def collect_equations() -> Iterator[list[tuple[Size, Size]]]:
    """Collect the pairs of sizes that must be equal in every run and that ``agree`` cannot decide."""
    pairs: list[tuple[Size, Size]] = []
    token = _demanded.set(pairs)
    try:
        yield pairs
    finally:
        _demanded.reset(token)


AxisName: TypeAlias = str | tuple[str | int, int]
"""The name of a size in errors: a text, or an operand, by its name or its position among the inputs, and an axis."""


def _axis_text(name: AxisName) -> str:
    return name if isinstance(name, str) else f"axis {name[1]} of {_operand_text(name[0])}"


def _operand_text(name: str | int) -> str:
    return name if isinstance(name, str) else f"input {name}"


def agree(first: Size, second: Size, first_name: AxisName, second_name: AxisName) -> Size:
    """Unify two sizes that must be equal. Returns ``second`` if it is an integer, else ``first``.

    Raises RuleError [shape.disagree], with the names of both sizes, if the sizes can never be equal.
    """
    if first is second:
        return first
    equal = symbolic.equal(first, second)
    if equal is False:
        texts = _axis_text(first_name), _axis_text(second_name)
        raise RuleError("shape.disagree", f"{texts[0]} ({first}) must equal {texts[1]} ({second})")
    if equal is None and (pairs := _demanded.get()) is not None:
        pairs.append((first, second))
    return second if isinstance(second, int) else first


_NO_NAMES = repeat("")


@overload
def agree_shapes(first: Shape, second: Shape, first_name: AxisName, second_name: AxisName) -> Shape: ...
@overload
def agree_shapes(first: Shape | None, second: Shape | None, first_name: AxisName, second_name: AxisName) -> Shape | None: ...
def agree_shapes(first: Shape | None, second: Shape | None, first_name: AxisName, second_name: AxisName) -> Shape | None:
    """Unify two shapes, or parts of shapes, that must be equal.

    The names are those of the operands, or of their first axes that are compared. Raises RuleError [shape.rank] for different
    ranks, and [shape.disagree] with the first axis whose sizes can never be equal.
    """
    if first is None or second is None:
        return second if first is None else first
    if len(first) == len(second):
        try:
            return tuple(map(agree, first, second, _NO_NAMES, _NO_NAMES))
        except RuleError:
            # The names of the axes are made only for an error.
            pass
    (one, start), (other, other_start) = [(name, 0) if isinstance(name, str) else name for name in (first_name, second_name)]
    if len(first) != len(second):
        ranks = f"{_operand_text(one)} ({start + len(first)}) and {_operand_text(other)} ({other_start + len(second)})"
        raise RuleError("shape.rank", f"ranks must be equal, got those of {ranks}")
    pairs = enumerate(zip(first, second, strict=True))
    axis = next(axis for axis, sizes in pairs if symbolic.equal(*sizes) is False)
    return (agree(first[axis], second[axis], (one, start + axis), (other, other_start + axis)),)


def are_equal_shapes(first: Shape | None, second: Shape | None) -> bool:
    """Return whether two shapes are equal for all values of their symbols."""
    return (
        first is not None
        and second is not None
        and len(first) == len(second)
        and all(a is b or a == b or symbolic.equal(a, b) is True for a, b in zip(first, second, strict=True))
    )


def common_type(first: Type, second: Type) -> Type:
    """Return the narrowest type that includes the values of both types; sizes in which the types differ become None.

    Raises RuleError [type.disagree] if no type includes both, for example for different element types.
    """
    if isinstance(first, Sequence) and isinstance(second, Sequence):
        element = common_type(first.element, second.element)
        if first.length == 0 or second.length == 0:
            # An empty sequence does not constrain the sizes of elements.
            element = second.element if first.length == 0 else first.element
        return Sequence(element, first.length if first.length == second.length else None)
    if isinstance(first, Map) and isinstance(second, Map) and first.key is second.key:
        return Map(first.key, common_type(first.element, second.element))
    if isinstance(first, Optional) or isinstance(second, Optional):
        inner = (type.element if isinstance(type, Optional) else type for type in (first, second))
        return Optional(common_type(*inner))
    if UNKNOWN in (first, second) and not (isinstance(first, Tensor) and isinstance(second, Tensor)):
        return UNKNOWN
    if not isinstance(first, Tensor) or not isinstance(second, Tensor):
        raise RuleError("type.disagree", f"types must be equal, got {first} and {second}")
    if first.dtype is not None and second.dtype is not None and first.dtype is not second.dtype:
        raise RuleError("type.disagree", f"element types must be equal, got {first.dtype} and {second.dtype}")
    dtype = first.dtype or second.dtype
    if first.shape is None or second.shape is None or len(first.shape) != len(second.shape):
        return Tensor(dtype, None)
    sizes: Any = tuple(a if a == b else None for a, b in zip(first.shape, second.shape, strict=True))
    return Tensor(dtype, sizes)


def total(shape: Iterable[Size]) -> Size:
    """Return the number of elements. Raises RuleError [shape.range] for a known number above 2**63 - 1."""
    product: Size = symbolic.product(shape)
    if isinstance(product, int) and product > INT64_MAX:
        raise RuleError("shape.range", f"the number of elements must be at most 2**63 - 1, got {product}")
    return product


def axis_in(axis: int, rank: int, negative: bool = True) -> int:
    """Return an axis counted from the front. Raises RuleError [axis.range] for an axis out of range.

    The permitted range is [-rank, rank - 1] with ``negative``, otherwise [0, rank - 1].
    """
    low = -rank if negative else 0
    if not low <= axis < rank:
        raise RuleError("axis.range", f"axis must be in [{low}, {rank - 1}], got {axis}")
    return axis + rank if axis < 0 else axis


def axes_in(axes: Seq[int], rank: int) -> tuple[int, ...]:
    """Return axes counted from the front. Raises RuleError [axis.range], and [axis.repeated] for a repeated axis."""
    normalized = tuple(axis_in(int(axis), rank) for axis in axes)
    if len(set(normalized)) != len(normalized):
        raise RuleError("axis.repeated", f"axes must differ, got {list(map(int, axes))}")
    return normalized


def broadcast_size(
    first: Size, second: Size, first_name: AxisName = "one size", second_name: AxisName = "the other size"
) -> Size | None:
    """Broadcast one axis by numpy's rules; return None if the expression grows too large. Raises RuleError [shape.disagree]."""
    if first == second or symbolic.equal(first, second) is True or second == 1:
        return first
    if first == 1:
        return second
    # A size that cannot be 1 is the result, because the other size equals it or is 1.
    if symbolic.equal(first, 1) is False:
        return agree(first, second, first_name, second_name) if symbolic.equal(second, 1) is False else first
    if symbolic.equal(second, 1) is False:
        return second
    try:
        return symbolic.broadcast_sizes((first, second))
    except symbolic.Inexact:
        return None


def broadcast(*shapes: Shape | None) -> tuple[Size | None, ...] | None:
    """Broadcast shapes by numpy's rules; return None if a rank is unknown.

    A size whose expression grows too large is None. Raises RuleError [shape.broadcast].
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
                text = ", ".join(f"[{_shape_text(item)}]" for item in known)
                raise RuleError("shape.broadcast", f"shapes {text} cannot be broadcast together") from None
        result.append(size)
    return tuple(result)


def static(shape: Shape | None) -> tuple[int, ...]:
    """Return the shape as integers. Raises Unknown if a size is unknown or symbolic."""
    if shape is None:
        raise Unknown
    sizes = tuple(size for size in shape if isinstance(size, int))
    if len(sizes) != len(shape):
        raise Unknown
    return sizes


def sizes_in(type: Type) -> Iterator[Size]:
    """Yield every known size of a type, including the lengths of sequences."""
    if isinstance(type, Sequence) and type.length is not None:
        yield type.length
    if not isinstance(type, Tensor):
        yield from sizes_in(type.element)
    else:
        yield from (size for size in type.shape or () if size is not None)


def dtype_in(type: Type) -> DType | None:
    """Return the element type of a tensor type, or of the tensors inside a sequence, optional or map."""
    return type.dtype if isinstance(type, Tensor) else dtype_in(type.element)


def is_static(type: Type) -> bool:
    """Return whether a type is a tensor of integer sizes."""
    return isinstance(type, Tensor) and type.shape is not None and all(isinstance(size, int) for size in type.shape)


def is_shape_of(shape: Shape | None, sizes: Shape | None) -> bool:
    """Return whether the integer sizes of a declared shape equal the ``sizes`` of an array; unknown ranks always match."""
    if shape is None or sizes is None:
        return True
    pairs = zip(shape, sizes, strict=False)
    return len(shape) == len(sizes) and all(not isinstance(ours, int) or ours == theirs for ours, theirs in pairs)


def forget_element_sizes(type: Type) -> Type:
    """Return a declared type with the symbolic sizes of sequence elements made unknown.

    A named size of the element type may differ between elements, as in onnx's node test sequence_map_extract_shapes.
    """
    if isinstance(type, Optional):
        return Optional(forget_element_sizes(type.element))
    if isinstance(type, Map):
        return Map(type.key, forget_element_sizes(type.element))
    if not isinstance(type, Sequence):
        return type
    element = forget_element_sizes(type.element)
    if isinstance(element, Tensor) and element.shape is not None:
        sizes: Any = tuple(size if isinstance(size, int) else None for size in element.shape)
        element = Tensor(element.dtype, sizes)
    return Sequence(element, type.length)


def is_unnamed(size: Size) -> bool:
    """Return whether a size is a symbol that inference named, not a file: its name begins with "?"."""
    if isinstance(size, int):
        return False
    name = symbolic.name_of(size)
    return name is not None and name.startswith("?")

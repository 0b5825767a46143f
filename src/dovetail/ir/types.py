"""Types of values: Tensor, Sequence, Optional, Map and View; and helpers of shape rules."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence as Seq
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass
from typing import Any, NamedTuple, TypeAlias

import numpy as np

from dovetail.errors import MissingAttributeError, RuleError, printable
from dovetail.ir import symbolic
from dovetail.ir.dtypes import DType
from dovetail.ir.limits import MAX_AXES
from dovetail.ir.symbolic import Dim

Size: TypeAlias = int | Dim
Shape: TypeAlias = tuple[Size, ...]


class Unknown(Exception):
    """Raised by a rule for a fact that is not known; inference then makes the type unknown."""


def _shape_text(shape: Shape | None) -> str:
    return "..." if shape is None else ", ".join("?" if size is None else str(size) for size in shape)


@dataclass(frozen=True, slots=True)
class Tensor:
    """A tensor of ``dtype`` (None: unknown, as for an operator without rules) and ``shape`` (None: unknown rank)."""

    dtype: DType | None
    shape: Shape | None = None

    def __str__(self) -> str:
        return f"{self.dtype or '?'}[{_shape_text(self.shape)}]"


class _NotTensor:
    """The properties of Tensor that the other types lack: reading one raises MissingAttributeError [type.kind]."""

    __slots__ = ()

    @property
    def dtype(self) -> DType | None:
        raise MissingAttributeError("type.kind", f"{self} is no tensor and has no element type")

    @property
    def shape(self) -> Shape | None:
        raise MissingAttributeError("type.kind", f"{self} is no tensor and has no shape")


@dataclass(frozen=True, slots=True)
class Sequence(_NotTensor):
    """A list of tensors of the type ``element``; ``length`` None: unknown.

    A size of None in ``element`` is unknown or differs between elements; any other size is that of all elements.
    """

    element: Type
    length: Size | None = None

    def __str__(self) -> str:
        return f"sequence({self.element})" if self.length is None else f"sequence({self.element}; {self.length})"


@dataclass(frozen=True, slots=True)
class Optional(_NotTensor):
    """A value of one type, or nothing."""

    element: Type

    def __str__(self) -> str:
        return f"optional({self.element})"


@dataclass(frozen=True, slots=True)
class Map(_NotTensor):
    """A map from keys of the type ``key``, integers or strings, to values of the type ``element``: a Python dict in a run."""

    key: DType
    element: Type

    def __str__(self) -> str:
        return f"map({self.key}, {self.element})"


Type: TypeAlias = Tensor | Sequence | Optional | Map
UNKNOWN = Tensor(None, None)


class View:
    """An input as a rule sees it: its type and, where known, its value as an exact array of integers and Dims.

    ``shape`` is None for an unknown rank and ``value`` None where it is unknown; ``dims`` and ``exact`` are the same but raise
    Unknown there. A ``graph.Value`` is a View.
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
    """Explain why no tensor has these sizes: too many axes, or more elements than i64 counts. Empty where one may.

    Axes of size 0 are left out of the product, as in numpy, which computes strides of it.
    """
    if len(sizes) > MAX_AXES:
        return f"{len(sizes)} axes, of which a tensor has at most {MAX_AXES}"
    product = 1
    for size in sizes:
        product *= size if isinstance(size, int) and size else 1
    if product > INT64_MAX:
        return f"the sizes {', '.join(map(str, sizes))} have more than 2**63 - 1 elements"
    return ""


def dtype_of(type: Type) -> DType:
    """Return the element type. Raises Unknown, and RuleError [type.kind] where the value is no tensor."""
    if not isinstance(type, Tensor):
        raise RuleError("type.kind", f"the value must be a tensor, got {type}")
    if type.dtype is None:
        raise Unknown
    return type.dtype


def sequence_of(type: Type) -> Sequence:
    """Return the type as a Sequence. Raises Unknown, and RuleError [type.kind] for any other type."""
    if isinstance(type, Sequence):
        return type
    if type == UNKNOWN:
        raise Unknown
    raise RuleError("type.kind", f"the value must be a sequence, got {type}")


def shape_of(type: Type) -> Shape | None:
    """Return the shape, None for an unknown rank. Raises RuleError [type.kind] where the value is no tensor."""
    if not isinstance(type, Tensor):
        raise RuleError("type.kind", f"the value must be a tensor, got {type}")
    return type.shape


def dims_of(type: Type) -> Shape:
    """Return the shape. Raises Unknown for an unknown rank, and RuleError [type.kind]."""
    shape = shape_of(type)
    if shape is None:
        raise Unknown
    return shape


def axes_of(axes: int | Iterable[int]) -> list[int]:
    """Return one axis, a sequence or an array of axes as a list of integers."""
    return [int(axis) for axis in np.atleast_1d(np.asarray(axes)).tolist()]


INT64_MAX = 2**63 - 1


class Bounded(NamedTuple):
    """A size of which a shape rule knows only inclusive bounds; ``high`` None: no upper bound."""

    low: int
    high: int | None


_demanded: ContextVar[list[tuple[Size, Size]] | None] = ContextVar("demanded", default=None)


@contextmanager
def collect_equations() -> Iterator[list[tuple[Size, Size]]]:
    """Collect the pairs of sizes that ``agree`` cannot decide, which every run must make equal."""
    pairs: list[tuple[Size, Size]] = []
    token = _demanded.set(pairs)
    try:
        yield pairs
    finally:
        _demanded.reset(token)


def agree(first: Size, second: Size) -> Size:
    """Unify two sizes that must be equal. Returns the integer one where only run time can tell.

    Raises RuleError [shape.disagree] where they cannot be equal.
    """
    if first is second:
        return first
    equal = symbolic.equal(first, second)
    if equal is False:
        raise RuleError("shape.disagree", f"dimensions must be equal, got {first} and {second}")
    if equal is None and (pairs := _demanded.get()) is not None:
        pairs.append((first, second))
    return second if isinstance(second, int) else first


def agree_shapes(first: Shape | None, second: Shape | None) -> Shape | None:
    """Unify two shapes that must be equal. Raises RuleError [shape.rank], [shape.disagree]."""
    if first is None or second is None:
        return second if first is None else first
    if len(first) != len(second):
        raise RuleError("shape.rank", f"ranks must be equal, got {len(first)} and {len(second)}")
    return tuple(map(agree, first, second))


def are_equal_shapes(first: Shape | None, second: Shape | None) -> bool:
    """Return whether two shapes are equal for all values of their symbols."""
    return (
        first is not None
        and second is not None
        and len(first) == len(second)
        and all(a is b or a == b or symbolic.equal(a, b) is True for a, b in zip(first, second, strict=True))
    )


def common_type(first: Type, second: Type) -> Type:
    """Return the least type of values of both types: their element type, and None for each size in which they differ.

    Raises RuleError [type.disagree] where there is none.
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
    """Return the number of elements. Raises RuleError [shape.range] where a known product exceeds 2**63 - 1."""
    product: Size = symbolic.product(shape)
    if isinstance(product, int) and product > INT64_MAX:
        raise RuleError("shape.range", f"the number of elements must be at most 2**63 - 1, got {product}")
    return product


def axis_in(axis: int, rank: int, negative: bool = True) -> int:
    """Count an axis from the front. Raises RuleError [axis.range] outside of [-rank, rank - 1], or [0, rank - 1]."""
    low = -rank if negative else 0
    if not low <= axis < rank:
        raise RuleError("axis.range", f"axis must be in [{low}, {rank - 1}], got {axis}")
    return axis + rank if axis < 0 else axis


def axes_in(axes: Seq[int], rank: int) -> tuple[int, ...]:
    """Count axes from the front. Raises RuleError [axis.range], and [axis.repeated] where one comes twice."""
    normalized = tuple(axis_in(int(axis), rank) for axis in axes)
    if len(set(normalized)) != len(normalized):
        raise RuleError("axis.repeated", f"axes must differ, got {list(map(int, axes))}")
    return normalized


def broadcast_size(first: Size, second: Size) -> Size | None:
    """Broadcast one axis as numpy does; None where the expression grows too large. Raises RuleError [shape.disagree]."""
    if first == second or symbolic.equal(first, second) is True or second == 1:
        return first
    if first == 1:
        return second
    for known, other in ((first, second), (second, first)):
        # A size that cannot be 1 is the result: the other one equals it or is 1.
        if symbolic.equal(known, 1) is False:
            if symbolic.equal(other, 1) is False:
                return agree(known, other)
            return known
    try:
        return symbolic.broadcast_sizes((first, second))
    except symbolic.Inexact:
        return None


def broadcast(*shapes: Shape | None) -> tuple[Size | None, ...] | None:
    """Broadcast shapes as numpy does: None where a rank is unknown, and for a size whose expression grows too large.

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
                text = ", ".join(f"[{_shape_text(item)}]" for item in known)
                raise RuleError("shape.broadcast", f"shapes {text} do not broadcast") from None
        result.append(size)
    return tuple(result)


def static(shape: Shape | None) -> tuple[int, ...]:
    """Return the shape as integers. Raises Unknown where a size is not known."""
    if shape is None:
        raise Unknown
    sizes = tuple(size for size in shape if isinstance(size, int))
    if len(sizes) != len(shape):
        raise Unknown
    return sizes


def sizes_in(type: Type) -> Iterator[Size]:
    """Yield every known size of a type, lengths of sequences included."""
    if isinstance(type, Sequence) and type.length is not None:
        yield type.length
    if not isinstance(type, Tensor):
        yield from sizes_in(type.element)
    else:
        yield from (size for size in type.shape or () if size is not None)


def dtype_in(type: Type) -> DType | None:
    """Return the element type of a tensor, or of the tensors in a value."""
    return type.dtype if isinstance(type, Tensor) else dtype_in(type.element)


def is_static(type: Type) -> bool:
    """Return whether a type is a tensor of integer sizes."""
    return isinstance(type, Tensor) and type.shape is not None and all(isinstance(size, int) for size in type.shape)


def is_shape_of(shape: Shape | None, sizes: Shape | None) -> bool:
    """Tell whether the numbers of a declared shape are the ``sizes`` of an array."""
    if shape is None or sizes is None:
        return True
    pairs = zip(shape, sizes, strict=False)
    return len(shape) == len(sizes) and all(not isinstance(ours, int) or ours == theirs for ours, theirs in pairs)


def forget_element_sizes(type: Type) -> Type:
    """Make the symbolic sizes of sequence elements in a declared type unknown.

    A named size there may differ between elements, as in the node test sequence_map_extract_shapes of the onnx package.
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
    """Return whether a size is a symbol of inference rather than of a file: its name begins with "?"."""
    if isinstance(size, int):
        return False
    name = symbolic.name_of(size)
    return name is not None and name.startswith("?")

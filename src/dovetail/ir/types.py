"""The types of values: tensors, sequences, optionals and maps; and the questions that rules ask of shapes."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence as Seq
from dataclasses import dataclass
from typing import Any, NamedTuple, TypeAlias

import numpy as np

from dovetail import symbolic
from dovetail.dtypes import DType
from dovetail.errors import MissingAttributeError, RuleError, printable
from dovetail.limits import MOST_AXES
from dovetail.symbolic import Dim

Size: TypeAlias = int | Dim
Shape: TypeAlias = tuple[Size, ...]


class Unknown(Exception):
    """Raised by a question whose answer is not known yet; the inference walk turns it into an unknown type."""


def _shape_text(shape: Shape | None) -> str:
    return "..." if shape is None else ", ".join("?" if size is None else str(size) for size in shape)


@dataclass(frozen=True, slots=True)
class Tensor:
    """A tensor of ``dtype`` (None: not known, as for an operator we have no rule for) and ``shape`` (None: rank not known)."""

    dtype: DType | None
    shape: Shape | None = None

    def __str__(self) -> str:
        return f"{self.dtype or '?'}[{_shape_text(self.shape)}]"


class _NotTensor:
    """The properties of Tensor that the other types lack: reading one raises MissingAttributeError [type.tensor]."""

    __slots__ = ()

    @property
    def dtype(self) -> DType | None:
        raise MissingAttributeError("type.tensor", f"{self} is no tensor and has no element type")

    @property
    def shape(self) -> Shape | None:
        raise MissingAttributeError("type.tensor", f"{self} is no tensor and has no shape")


@dataclass(frozen=True, slots=True)
class Sequence(_NotTensor):
    """A list of tensors, ``length`` of them (None: not known).

    A size of ``element`` that is None differs from one to another, or is not known; any other is that of all of them.
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
    """A map from keys of the type ``key`` (an integer type, or strings) to values of one type, as a Python dict in a run."""

    key: DType
    element: Type

    def __str__(self) -> str:
        return f"map({self.key}, {self.element})"


Type: TypeAlias = Tensor | Sequence | Optional | Map
UNKNOWN = Tensor(None, None)


class View:
    """What a rule sees of an input: its type and, where known, its value as an exact array of dims.

    ``dtype``, ``shape`` (None: rank unknown) and ``value`` (None: unknown) are plain facts; ``dims`` and ``exact`` are the
    same facts demanded, and raise Unknown where they are missing. A ``graph.Value`` is a View of itself.
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
    """Why nothing can have these sizes, if that is so: more axes than an array has, or more elements than i64 counts.

    Axes of size 0 are left out of the product, as numpy does: strides are made of it.
    """
    if len(sizes) > MOST_AXES:
        return f"{len(sizes)} axes, of which a tensor has at most {MOST_AXES}"
    product = 1
    for size in sizes:
        product *= size if isinstance(size, int) and size else 1
    if product > INT64_MAX:
        return f"the sizes {', '.join(map(str, sizes))} have more than 2**63 - 1 elements"
    return ""


def dtype_of(type: Type) -> DType:
    """The element type, raising Unknown where it is not known and RuleError where the value is no tensor."""
    if not isinstance(type, Tensor):
        raise RuleError("type.tensor", f"a tensor is needed, not {type}")
    if type.dtype is None:
        raise Unknown
    return type.dtype


def sequence_of(type: Type) -> Sequence:
    """The type as that of a sequence, raising Unknown where nothing is known of it and RuleError where it is another."""
    if isinstance(type, Sequence):
        return type
    if type == UNKNOWN:
        raise Unknown
    raise RuleError("type.sequence", f"a sequence is needed, not {type}")


def shape_of(type: Type) -> Shape | None:
    if not isinstance(type, Tensor):
        raise RuleError("type.tensor", f"a tensor is needed, not {type}")
    return type.shape


def dims_of(type: Type) -> Shape:
    shape = shape_of(type)
    if shape is None:
        raise Unknown
    return shape


def axes_of(axes: Any) -> list[int]:
    """Return one axis, a sequence or an array of axes as a list of integers."""
    return [int(axis) for axis in np.atleast_1d(np.asarray(axes)).tolist()]


INT64_MAX = 2**63 - 1


class Bounded(NamedTuple):
    """A size of which a shape rule knows nothing but bounds, both included; ``high`` None: no upper bound."""

    low: int
    high: int | None


def agree(first: Size, second: Size) -> Size:
    """The one size that two sizes which must be equal have; the more definite one where only run time can tell.

    Raises RuleError [shape.disagree] when they cannot be equal.
    """
    if first is second:
        return first
    equal = symbolic.equal(first, second)
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


def common_type(first: Type, second: Type) -> Type:
    """What holds values of both types: their element type, and the sizes in which they agree (None for the others).

    Raises RuleError [type.disagree] where there is no such type.
    """
    if isinstance(first, Sequence) and isinstance(second, Sequence):
        element = common_type(first.element, second.element)
        if first.length == 0 or second.length == 0:
            # What is empty says nothing of sizes.
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
        raise RuleError("type.disagree", f"types {first} and {second} should be equal")
    if first.dtype is not None and second.dtype is not None and first.dtype is not second.dtype:
        raise RuleError("type.disagree", f"element types {first.dtype}, {second.dtype} should be equal")
    dtype = first.dtype or second.dtype
    if first.shape is None or second.shape is None or len(first.shape) != len(second.shape):
        return Tensor(dtype, None)
    sizes: Any = tuple(a if a == b else None for a, b in zip(first.shape, second.shape, strict=True))
    return Tensor(dtype, sizes)


def total(shape: Iterable[Size]) -> Size:
    """The number of elements. Raises RuleError [shape.overflow] where a known product passes 2**63 - 1."""
    product: Size = symbolic.product(shape)
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
    if first == second or symbolic.equal(first, second) is True or second == 1:
        return first
    if first == 1:
        return second
    for known, other in ((first, second), (second, first)):
        # A size that cannot be 1 decides: the other one is it, or 1.
        if symbolic.equal(known, 1) is False:
            if symbolic.equal(other, 1) is False:
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


def sizes_in(type: Type) -> Iterator[Size]:
    """Every size that a type speaks of and says."""
    if isinstance(type, Sequence) and type.length is not None:
        yield type.length
    if not isinstance(type, Tensor):
        yield from sizes_in(type.element)
    else:
        yield from (size for size in type.shape or () if size is not None)


def dtype_in(type: Type) -> DType | None:
    """The element type of a tensor, or of those that a value holds."""
    return type.dtype if isinstance(type, Tensor) else dtype_in(type.element)


def is_static(type: Type) -> bool:
    return isinstance(type, Tensor) and type.shape is not None and all(isinstance(size, int) for size in type.shape)


def opened(type: Type) -> Type:
    """A type that a file declares, as it holds for each element of a sequence: where the sizes of these have names, each element
    has sizes of its own (as in the node test sequence_map_extract_shapes of the onnx package)."""
    if isinstance(type, Optional):
        return Optional(opened(type.element))
    if isinstance(type, Map):
        return Map(type.key, opened(type.element))
    if not isinstance(type, Sequence):
        return type
    element = opened(type.element)
    if isinstance(element, Tensor) and element.shape is not None:
        sizes: Any = tuple(size if isinstance(size, int) else None for size in element.shape)
        element = Tensor(element.dtype, sizes)
    return Sequence(element, type.length)


def is_unnamed(size: Size) -> bool:
    """A symbol that was made up because nothing was known: its name begins with "?"."""
    if isinstance(size, int):
        return False
    name = symbolic.name_of(size)
    return name is not None and name.startswith("?")

"""Dimension, PartialShape and Shape: sizes that are known, bounded or unknown."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import TypeAlias

import numpy as np

from dovetail.errors import EngineError
from dovetail.ir import symbolic
from dovetail.ir.symbolic.compare import bounds
from dovetail.ir.types import Size

NO_LIMIT = -1
"""The maximum of a dimension without an upper bound."""


def _text_bounds(text: str) -> tuple[int, int]:
    """Return the bounds that a text such as "5", "1..8", "2..", "?" or "-1" describes. Raises EngineError [dims.text]."""
    text = text.strip()
    if text in ("?", "-1"):
        return 0, NO_LIMIT
    low, dots, high = text.partition("..")
    if not all(not part or part.isdigit() for part in (low, high)) or not (low or high):
        raise EngineError("dims.text", f'Cannot parse dimension: "{text}"')
    return int(low or 0), (int(high) if high else NO_LIMIT) if dots else int(low)


class Dimension:
    """Dimension is a size: static, or dynamic between two bounds (a maximum of -1: no bound).

    >>> Dimension(3), Dimension(), Dimension(1, 8), Dimension("2..")
    (<Dimension: 3>, <Dimension: ?>, <Dimension: 1..8>, <Dimension: 2..>)
    """

    __hash__ = None  # type: ignore[assignment]

    def __init__(self, minimum: int | str = NO_LIMIT, maximum: int | None = None) -> None:
        if isinstance(minimum, str):
            self._low, self._high = _text_bounds(minimum)
        elif maximum is None:
            self._low, self._high = (0, NO_LIMIT) if minimum == -1 else (int(minimum), int(minimum))
        else:
            self._low, self._high = max(int(minimum), 0), int(maximum)
        self.size: Size | None = None
        """The size of the model from which the dimension was read; None for others."""

    @staticmethod
    def dynamic() -> Dimension:
        return Dimension()

    @staticmethod
    def of(item: DimensionLike) -> Dimension:
        """Return an integer, a text, a pair of bounds or a Dimension as a Dimension. Raises TypeError for other objects."""
        if isinstance(item, Dimension):
            return item
        if isinstance(item, str | int | np.integer):
            return Dimension(item if isinstance(item, str) else int(item))
        if isinstance(item, list | tuple) and len(item) == 2:
            return Dimension(*item)
        raise TypeError(
            f"Incorrect type {type(item)} for dimension. Expected types are: int, str, openvino.Dimension, list/tuple with lower "
            "and upper values for dynamic dimension."
        )

    @staticmethod
    def of_size(size: Size) -> Dimension:
        """Return the bounds of a size of a model."""
        if isinstance(size, int):
            return Dimension(size)
        low, high = bounds(size)
        dimension = Dimension(max(low or 0, 0), NO_LIMIT if high is None else high)
        dimension.size = size
        return dimension

    def to_size(self, name: str) -> Size:
        """Return the size of a model: an integer, the size that the dimension was read from, or else the symbol ``name``."""
        if self.is_static:
            return self._low
        if self.size is not None:
            return self.size
        return symbolic.symbol(name, self._low, None if self._high == NO_LIMIT else self._high)

    @property
    def is_static(self) -> bool:
        return self._low == self._high

    @property
    def is_dynamic(self) -> bool:
        return not self.is_static

    @property
    def min_length(self) -> int:
        return self._low

    @property
    def max_length(self) -> int:
        return self._high

    def get_min_length(self) -> int:
        return self._low

    def get_max_length(self) -> int:
        return self._high

    def get_length(self) -> int:
        if self.is_dynamic:
            raise EngineError("argument.value", "Cannot get length of dynamic dimension")
        return self._low

    def __len__(self) -> int:
        return self.get_length()

    def _limit(self) -> float:
        return float("inf") if self._high == NO_LIMIT else self._high

    def compatible(self, other: Dimension) -> bool:
        """Return whether a size exists that both dimensions allow."""
        return max(self._low, other._low) <= min(self._limit(), other._limit())

    def refines(self, other: Dimension) -> bool:
        """Return whether ``other`` allows every size that this dimension allows."""
        return self._low >= other._low and self._limit() <= other._limit()

    def relaxes(self, other: Dimension) -> bool:
        return other.refines(self)

    def same_scheme(self, other: Dimension) -> bool:
        return self == other or (self._limit() == other._limit() == float("inf"))

    def __eq__(self, other: object) -> bool:
        if isinstance(other, int):
            other = Dimension(other)
        return isinstance(other, Dimension) and (self._low, self._high) == (other._low, other._high)

    def to_string(self) -> str:
        if self.is_static:
            return str(self._low)
        if self._high == NO_LIMIT:
            return f"{self._low}.." if self._low else "?"
        return f"{self._low or ''}..{self._high}"

    __str__ = to_string

    def __repr__(self) -> str:
        return f"<Dimension: {self}>"


DimensionLike: TypeAlias = Dimension | int | str | list[int] | tuple[int, int]
"""Arguments that describe a dimension."""


class Shape(Sequence[int]):
    """Shape is a list of sizes. It equals lists and tuples of the same sizes.

    >>> Shape([1, 3]) == (1, 3), tuple(Shape("[1,3]"))
    (True, (1, 3))
    """

    __hash__ = None  # type: ignore[assignment]

    def __init__(self, sizes: Iterable[int] | str = ()) -> None:
        items = [item for item in sizes.strip("[] ").split(",") if item.strip()] if isinstance(sizes, str) else sizes
        self._sizes = [int(item) for item in items]
        if any(size < 0 for size in self._sizes):
            raise TypeError(f"the sizes of a Shape must not be negative, got {self._sizes}")

    def __getitem__(self, index: int | slice) -> int | Shape:  # type: ignore[override]
        return Shape(self._sizes[index]) if isinstance(index, slice) else self._sizes[index]

    def __setitem__(self, index: int, size: int) -> None:
        self._sizes[index] = size

    def __iter__(self) -> Iterator[int]:
        return iter(self._sizes)

    def __len__(self) -> int:
        return len(self._sizes)

    def __eq__(self, other: object) -> bool:
        if isinstance(other, PartialShape):
            return other == self
        return isinstance(other, Shape | list | tuple | np.ndarray) and self._sizes == list(other)

    def to_string(self) -> str:
        return f"[{','.join(map(str, self._sizes))}]"

    __str__ = to_string

    def __repr__(self) -> str:
        return f"<Shape: {self}>"


class PartialShape:
    """PartialShape is a list of dimensions, or unknown in its rank too.

    >>> PartialShape([-1, 3, (2, 5)]), PartialShape("1,?"), PartialShape("...")
    (<PartialShape: [?,3,2..5]>, <PartialShape: [1,?]>, <PartialShape: [...]>)
    """

    __hash__ = None  # type: ignore[assignment]

    def __init__(self, shape: ShapeLike) -> None:
        self._dims: list[Dimension] | None
        if isinstance(shape, PartialShape):
            self._dims = None if shape._dims is None else list(shape._dims)
        elif isinstance(shape, str):
            inner = shape.strip()
            inner = inner[1:-1].strip() if inner.startswith("[") and inner.endswith("]") else inner
            self._dims = None if inner == "..." else [Dimension(item) for item in inner.split(",")] if inner else []
        else:
            self._dims = [Dimension.of(item) for item in shape]

    @staticmethod
    def dynamic(rank: Dimension | int | None = None) -> PartialShape:
        """Return a shape of unknown dimensions; without ``rank`` its rank is unknown too."""
        if rank is None or (isinstance(rank, Dimension) and rank.is_dynamic):
            return PartialShape("...")
        return PartialShape([-1] * (rank.get_length() if isinstance(rank, Dimension) else rank))

    @staticmethod
    def of_sizes(sizes: Iterable[Size] | None) -> PartialShape:
        """Return the shape of sizes of a model; None stands for an unknown rank."""
        return PartialShape("...") if sizes is None else PartialShape([Dimension.of_size(size) for size in sizes])

    def to_sizes(self, name: str) -> tuple[Size, ...] | None:
        """Return the sizes for a value ``name`` of a model; None for an unknown rank."""
        if self._dims is None:
            return None
        return tuple(dimension.to_size(f"?{name}.{axis}") for axis, dimension in enumerate(self._dims))

    def _require_dimensions(self) -> list[Dimension]:
        if self._dims is None:
            raise EngineError("shape.rank", "the rank of the shape must be known, got [...]")
        return self._dims

    @property
    def is_static(self) -> bool:
        return self._dims is not None and all(dimension.is_static for dimension in self._dims)

    @property
    def is_dynamic(self) -> bool:
        return not self.is_static

    @property
    def rank(self) -> Dimension:
        return Dimension() if self._dims is None else Dimension(len(self._dims))

    @property
    def all_non_negative(self) -> bool:
        return True

    def to_shape(self) -> Shape:
        """Return the shape. Raises EngineError [argument.value] if a dimension is dynamic."""
        if self.is_dynamic:
            raise EngineError("argument.value", f"to_shape was called on a dynamic shape. The shape is {self}")
        return Shape([dimension.get_length() for dimension in self._require_dimensions()])

    get_shape = to_shape

    def get_min_shape(self) -> Shape:
        return Shape([dimension.min_length for dimension in self._require_dimensions()])

    def get_max_shape(self) -> Shape:
        """Return the upper bounds; a dimension without a bound is the greatest 64-bit integer."""
        sizes = [dimension.max_length for dimension in self._require_dimensions()]
        return Shape([2**63 - 1 if size == NO_LIMIT else size for size in sizes])

    def get_dimension(self, index: int) -> Dimension:
        return self._require_dimensions()[index]

    def compatible(self, other: PartialShape) -> bool:
        """Return whether a shape exists that both partial shapes allow."""
        return self._relates(other, Dimension.compatible) or self._dims is None or other._dims is None

    def refines(self, other: PartialShape) -> bool:
        return other._dims is None or self._relates(other, Dimension.refines)

    def relaxes(self, other: PartialShape) -> bool:
        return other.refines(self)

    def same_scheme(self, other: PartialShape) -> bool:
        return (self._dims is None and other._dims is None) or self._relates(other, Dimension.same_scheme)

    def _relates(self, other: PartialShape, relation: object) -> bool:
        assert callable(relation)
        if self._dims is None or other._dims is None or len(self._dims) != len(other._dims):
            return False
        return all(relation(first, second) for first, second in zip(self._dims, other._dims, strict=True))

    def __getitem__(self, index: int | slice) -> Dimension | PartialShape:
        dims = self._require_dimensions()
        if isinstance(index, slice):
            return PartialShape(dims[index])
        if not -len(dims) <= index < len(dims):
            raise EngineError("index.range", f"Accessing out-of-range dimension {index} of {self}")
        return dims[index]

    def __setitem__(self, index: int, dimension: Dimension | int) -> None:
        if not isinstance(dimension, Dimension | int):
            raise TypeError(f"a dimension must be an int or a Dimension, got {type(dimension)}")
        self._require_dimensions()[index] = Dimension.of(dimension)

    def __iter__(self) -> Iterator[Dimension]:
        return iter(self._require_dimensions())

    def __len__(self) -> int:
        return len(self._require_dimensions())

    def __eq__(self, other: object) -> bool:
        if isinstance(other, Shape | list | tuple):
            other = PartialShape(list(other))
        return isinstance(other, PartialShape) and self._dims == other._dims

    def __copy__(self) -> PartialShape:
        return PartialShape(self)

    def __deepcopy__(self, memo: dict[int, object]) -> PartialShape:
        return PartialShape(self)

    def to_string(self) -> str:
        return "[...]" if self._dims is None else f"[{','.join(map(str, self._dims))}]"

    __str__ = to_string

    def __repr__(self) -> str:
        return f"<PartialShape: {self}>"


ShapeLike: TypeAlias = PartialShape | Shape | str | Sequence[DimensionLike]
"""Arguments that describe a partial shape."""

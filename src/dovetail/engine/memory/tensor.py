"""What a program does, before anything has a place: pieces of work that read and write values of known shape."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from math import prod
from typing import Any

import numpy as np

from dovetail import symbolic
from dovetail.dtypes import DType
from dovetail.errors import printable
from dovetail.ir.graph import Graph, Node, Value
from dovetail.ir.op import Windows
from dovetail.ir.types import Tensor, Type, View
from dovetail.limits import MOST_AXES, refuse_array

MOVE, INTERPRET = "move", "interpret"


class RunTensor:
    """One tensor of a program: a value of the graph at the sizes of this run, or one that the planner needs (a copy).

    ``shape`` is None where it is known only when the program runs (a loose tensor, which is held by Python). ``data`` are the
    elements where they are known beforehand. Compared by identity.
    """

    __slots__ = ("count", "data", "dtype", "is_dynamic", "itemsize", "name", "nbytes", "shape", "type")

    def __init__(
        self, name: str, type: Type, shape: tuple[int, ...] | None, dtype: DType | None, data: np.ndarray[Any, Any] | None = None
    ) -> None:
        self.name = name
        self.type = type
        self.shape = shape
        self.dtype = dtype
        self.data = data
        self.is_dynamic = shape is None
        # A plan asks for these tens of thousands of times.
        self.count = 0 if shape is None else prod(shape)
        self.itemsize = dtype.numpy.itemsize if dtype is not None else 0
        self.nbytes = self.count * self.itemsize

    @property
    def sizes(self) -> tuple[int, ...]:
        assert self.shape is not None
        return self.shape

    def view(self) -> View:
        """What an operator's rules see of it."""
        type = self.type if self.shape is None else Tensor(self.dtype, self.shape)
        found = _Known(type)
        if self.data is not None:
            found.constant = self.data
            if self.data.dtype.kind in "biu" and self.data.size <= 1024:
                found.value = self.data if self.data.dtype.kind == "b" else self.data.astype(np.int64)
        return found

    def __repr__(self) -> str:
        return printable(f"<{self.name}: {self.dtype}{list(self.shape) if self.shape is not None else '[...]'}>")


class _Known(View):
    """A view that offers the elements of a constant too, as a graph's values do."""

    __slots__ = ("constant",)

    def __init__(self, type: Type) -> None:
        super().__init__(type)
        self.constant: np.ndarray[Any, Any] | None = None


@dataclass(eq=False, slots=True)
class KernelCall:
    """One step to come: ``kernel`` over ``reads`` (None: an optional input left out) and ``writes``, for ``nodes`` of the graph.

    ``images`` are the tensors among them that the kernel wants channels-last (their axis 1 the one that moves fastest).
    ``windows`` says where the data goes when the kernel is MOVE.
    """

    kernel: str
    nodes: tuple[Node, ...]
    reads: list[RunTensor | None]
    writes: list[RunTensor]
    attributes: dict[str, Any] = field(default_factory=dict)
    images: tuple[RunTensor, ...] = ()
    windows: Windows | None = None
    reason: str = ""

    @property
    def label(self) -> str:
        return self.nodes[-1].label if self.nodes else self.writes[0].name

    @property
    def given(self) -> list[RunTensor]:
        """The tensors that it reads, without optional inputs left out."""
        return [tensor for tensor in self.reads if tensor is not None]

    def tensors(self) -> list[RunTensor]:
        return [*self.given, *self.writes]


class TensorMap:
    """The tensors of one run: the sizes of every value of a prepared graph, from the sizes of the symbols of its inputs.

    ``shared``: the identities of the arrays that are constants of every plan of the model; None: all are. ``early``: the tensors
    whose elements were computed from sizes, of which inference knows nothing.
    """

    def __init__(
        self,
        graph: Graph,
        sizes: Mapping[str, int],
        shapes: Sequence[tuple[int, ...] | None],
        shared: frozenset[int] | None = None,
    ) -> None:
        self.early: set[RunTensor] = set()
        self._shared = shared
        self._sizes = dict(sizes)
        self._tensors: dict[int, RunTensor] = {}
        self.inputs = [
            self._put(value, RunTensor(value.name, value.type, shape if _dtype(value) is not None else None, _dtype(value)))
            for value, shape in zip(graph.inputs, shapes, strict=True)
        ]

    def of(self, value: Value) -> RunTensor:
        found = self._tensors.get(id(value))
        return found if found is not None else self._put(value, self._made(value))

    def shares(self, constants: Iterable[np.ndarray[Any, Any]]) -> bool:
        """Whether all of these are constants of every plan of the model, not of this one alone."""
        return self._shared is None or all(id(data) in self._shared for data in constants)

    def has(self, value: Value) -> bool:
        """Whether anything asked for this value."""
        return id(value) in self._tensors

    def _put(self, value: Value, tensor: RunTensor) -> RunTensor:
        self._tensors[id(value)] = tensor
        return tensor

    def _made(self, value: Value) -> RunTensor:
        dtype = _dtype(value)
        data = value.constant
        if data is not None and dtype is not None:
            # Strings are Python's objects, which are never moved as bytes.
            shape = None if dtype.name == "string" else tuple(data.shape)
            return RunTensor(value.name, value.type, shape, dtype, dense(data))
        shape = None if dtype is None or dtype.name == "string" else self._shape(value.type)
        tensor = RunTensor(value.name, value.type, shape, dtype)
        if shape is not None and dtype is not None and dtype.is_integer and value._value is not None:
            tensor.data = self._elements(value._value, shape, dtype)
        return tensor

    def _shape(self, type: Type) -> tuple[int, ...] | None:
        if not isinstance(type, Tensor) or type.shape is None:
            return None
        found = tuple(size if isinstance(size, int) else self._size(size) for size in type.shape)
        if any(size is None or size < 0 for size in found):
            return None
        if 0 in found or len(found) > MOST_AXES:
            # The memory that a plan takes says nothing of these.
            refuse_array(found, 16, "a tensor")  # type: ignore[arg-type]
        return found  # type: ignore[return-value]

    def _size(self, size: Any) -> int | None:
        try:
            found = symbolic.substitute(size, self._sizes)
        except (symbolic.Inexact, ArithmeticError):
            return None
        return found if isinstance(found, int) else None

    def _elements(self, value: Any, shape: tuple[int, ...], dtype: DType) -> np.ndarray[Any, Any] | None:
        """A shape value's elements at these sizes, where all are known and the type holds them."""
        items = [
            each if isinstance(each, int) else self._size(each) for each in np.asarray(value, dtype=object).reshape(-1).tolist()
        ]
        return fitting_elements(items, shape, dtype)


def fitting_elements(value: Any, shape: tuple[int, ...], dtype: DType) -> np.ndarray[Any, Any] | None:
    """A shape value as an array, where all its elements are integers (or booleans) that the type holds; None otherwise."""
    items = np.asarray(value, dtype=object).reshape(-1).tolist()
    low, high = dtype.range() if dtype.is_integer else (0, 1)
    if len(items) != prod(shape) or any(
        not isinstance(each, int | np.integer | np.bool_) or not low <= each <= high for each in items
    ):
        return None
    return np.array(items, dtype=dtype.numpy).reshape(shape)


def dense(array: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
    """The array itself where it is row-major and lies at a multiple of its element type's alignment, as kernels read it; else a
    copy."""
    flags = array.flags
    return array if flags.c_contiguous and flags.aligned else np.array(array, order="C")


def _dtype(value: Value) -> DType | None:
    return value.type.dtype if isinstance(value.type, Tensor) else None

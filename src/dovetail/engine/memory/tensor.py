"""Tensors of one run and kernel calls: the plan's input, before any tensor has a buffer."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence, Set as AbstractSet
from dataclasses import dataclass, field
from math import prod
from typing import Any

import numpy as np

from dovetail.engine.rewrite.compressed_product import is_packed
from dovetail.errors import printable
from dovetail.ir import symbolic
from dovetail.ir.arrays import Array
from dovetail.ir.dtypes import DType
from dovetail.ir.graph import Graph, Node, Value
from dovetail.ir.limits import MAX_AXES, refuse_array
from dovetail.ir.op import Windows
from dovetail.ir.types import Size, Tensor, Type, View

MOVE, INTERPRET = "move", "interpret"


class RunTensor:
    """RunTensor is one tensor of a run: a value of the graph at concrete sizes, or a temporary of the planner (a copy).

    ``shape`` is None for a dynamic tensor, whose shape is known only when the program runs; Python holds the array of a dynamic
    tensor. ``data`` holds the elements if they are known at planning time. RunTensors compare by identity.
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
        # Attributes rather than properties: a plan reads them tens of thousands of times.
        self.count = 0 if shape is None else prod(shape)
        self.itemsize = dtype.numpy.itemsize if dtype is not None else 0
        self.nbytes = self.count * self.itemsize

    @property
    def sizes(self) -> tuple[int, ...]:
        assert self.shape is not None
        return self.shape

    def like(self, name: str) -> RunTensor:
        """Return a tensor of the same type and shape, without data."""
        return RunTensor(name, self.type, self.shape, self.dtype)

    def as_view(self) -> View:
        """Return the tensor as the View that operators' rules take."""
        type = self.type if self.shape is None else Tensor(self.dtype, self.shape)
        view = _ConstantView(type)
        if self.data is not None:
            view.constant = self.data
            if self.data.dtype.kind in "biu" and self.data.size <= 1024:
                view.value = self.data if self.data.dtype.kind == "b" else self.data.astype(np.int64)
        return view

    def __repr__(self) -> str:
        return printable(f"<{self.name}: {self.dtype}{list(self.shape) if self.shape is not None else '[...]'}>")


class _ConstantView(View):
    """_ConstantView is a View with the attribute ``constant`` of graph values: the elements of a constant."""

    __slots__ = ("constant",)

    def __init__(self, type: Type) -> None:
        super().__init__(type)
        self.constant: np.ndarray[Any, Any] | None = None


@dataclass(eq=False, slots=True)
class KernelCall:
    """KernelCall is a call of ``kernel`` that computes ``nodes`` of the graph from ``reads`` (None: omitted) into ``writes``.

    ``channels_last``: operands that the kernel needs in channels-last layout (axis 1 contiguous). ``windows``: the data movement
    if the kernel is MOVE. ``reason``: the reason why the kernel is INTERPRET.
    """

    kernel: str
    nodes: tuple[Node, ...]
    reads: list[RunTensor | None]
    writes: list[RunTensor]
    attributes: dict[str, Any] = field(default_factory=dict)
    channels_last: tuple[RunTensor, ...] = ()
    windows: Windows | None = None
    reason: str = ""

    @property
    def label(self) -> str:
        return self.nodes[-1].label if self.nodes else self.writes[0].name

    @property
    def present_reads(self) -> list[RunTensor]:
        """The reads without omitted optional inputs."""
        return [tensor for tensor in self.reads if tensor is not None]

    def operands(self) -> list[RunTensor]:
        """Return the present reads, then the writes."""
        return [*self.present_reads, *self.writes]


class TensorMap:
    """TensorMap maps each value of a rewritten graph to a RunTensor, at concrete sizes of the inputs' symbols.

    ``shared``: the ``id`` of each array that is a constant of every plan of the model; None means all arrays. ``shape_tensors``:
    tensors that are computed at planning time from sizes alone, and whose elements type inference does not know.
    """

    def __init__(
        self,
        graph: Graph,
        sizes: Mapping[str, int],
        shapes: Sequence[tuple[int, ...] | None],
        shared: AbstractSet[int] | None = None,
    ) -> None:
        self.shape_tensors: set[RunTensor] = set()
        self._shared = shared
        self._sizes = dict(sizes)
        self._tensors: dict[int, RunTensor] = {}
        self.inputs = [
            self._store(
                value, RunTensor(value.name, value.type, shape if _dtype_of(value) is not None else None, _dtype_of(value))
            )
            for value, shape in zip(graph.inputs, shapes, strict=True)
        ]

    def of(self, value: Value) -> RunTensor:
        """Return the tensor of a value, created at the first request."""
        tensor = self._tensors.get(id(value))
        return tensor if tensor is not None else self._store(value, self._create(value))

    def shares(self, constants: Iterable[np.ndarray[Any, Any]]) -> bool:
        """Return whether all of these arrays are constants of every plan of the model, not of this plan alone."""
        return self._shared is None or all(id(data) in self._shared for data in constants)

    def _store(self, value: Value, tensor: RunTensor) -> RunTensor:
        self._tensors[id(value)] = tensor
        return tensor

    def _create(self, value: Value) -> RunTensor:
        dtype = _dtype_of(value)
        data = value.constant
        if data is not None and dtype is not None:
            # A string tensor holds Python objects, which no kernel copies.
            shape = None if dtype.name == "string" else tuple(data.shape)
            is_kept = data.flags.c_contiguous and is_packed(value)
            return RunTensor(value.name, value.type, shape, dtype, data if is_kept else as_row_major(data))
        shape = None if dtype is None or dtype.name == "string" else self._shape_of(value.type)
        tensor = RunTensor(value.name, value.type, shape, dtype)
        if shape is not None and dtype is not None and dtype.is_integer and value._value is not None:
            tensor.data = self._elements_of(value._value, shape, dtype)
        return tensor

    def _shape_of(self, type: Type) -> tuple[int, ...] | None:
        if not isinstance(type, Tensor) or type.shape is None:
            return None
        shape = tuple(size if isinstance(size, int) else self._size_of(size) for size in type.shape)
        if any(size is None or size < 0 for size in shape):
            return None
        if 0 in shape or len(shape) > MAX_AXES:
            # The memory limit does not bound the axes of an empty array.
            refuse_array(shape, 16, "a tensor")  # type: ignore[arg-type]
        return shape  # type: ignore[return-value]

    def _size_of(self, size: Size) -> int | None:
        try:
            number = symbolic.substitute(size, self._sizes)
        except (symbolic.Inexact, ArithmeticError):
            return None
        return number if isinstance(number, int) else None

    def _elements_of(self, value: Array, shape: tuple[int, ...], dtype: DType) -> np.ndarray[Any, Any] | None:
        """Return a shape value's elements at these sizes; None unless all are known and the element type can represent them."""
        elements = [
            size if isinstance(size, int) else self._size_of(size)
            for size in np.asarray(value, dtype=object).reshape(-1).tolist()
        ]
        return elements_as_array(elements, shape, dtype)


def elements_as_array(value: Array, shape: tuple[int, ...], dtype: DType) -> np.ndarray[Any, Any] | None:
    """Return a shape value as an array; None unless all elements are integers or booleans within the element type's range."""
    elements = np.asarray(value, dtype=object).reshape(-1).tolist()
    low, high = dtype.range() if dtype.is_integer else (0, 1)
    if len(elements) != prod(shape) or any(
        not isinstance(element, int | np.integer | np.bool_) or not low <= element <= high for element in elements
    ):
        return None
    return np.array(elements, dtype=dtype.numpy).reshape(shape)


def as_row_major(array: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
    """Return ``array`` if it is row-major and aligned to its element type, as kernels require; else an aligned row-major copy."""
    flags = array.flags
    return array if flags.c_contiguous and flags.aligned else np.array(array, order="C")


def is_array(value: object) -> bool:
    """Return whether a value is an array of plain elements, which kernels read without a copy."""
    return isinstance(value, np.ndarray) and value.dtype.kind != "O"


def _dtype_of(value: Value) -> DType | None:
    return value.type.dtype if isinstance(value.type, Tensor) else None

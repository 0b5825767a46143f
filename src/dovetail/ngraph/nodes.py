"""Node, Output, Parameter and Constant of nGraph's interface."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from types import SimpleNamespace
from typing import Any, TypeAlias

import numpy as np

from dovetail.errors import RuleError, printable
from dovetail.ir import dtypes
from dovetail.ir.builder import Builder, dimension
from dovetail.ir.dtypes import DType
from dovetail.ir.graph import VALUE_LIMIT, Value
from dovetail.ir.types import Shape, Tensor, Type

Sizes: TypeAlias = Sequence[Any]


class Output:
    """Output is one output of a node, usable as an argument."""

    __slots__ = ("index", "node")

    def __init__(self, node: Node, index: int) -> None:
        self.node = node
        self.index = index

    def get_shape(self) -> Shape | None:
        return self.node.get_output_shape(self.index)

    def get_element_type(self) -> DType | None:
        return self.node.get_output_element_type(self.index)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Output) and self.node is other.node and self.index == other.index

    def __hash__(self) -> int:
        return hash((id(self.node), self.index))

    def __repr__(self) -> str:
        return f"<output {self.index} of {self.node!r}>"


class Node:
    """Node is an operation with its arguments. Construction validates the node; ``arguments`` are Outputs.

    ``version``: the namespace of a version of nGraph's operators, to which the class is added under the operator's name.
    """

    def __init_subclass__(cls, version: SimpleNamespace | None = None) -> None:
        if version is not None:
            setattr(version, cls.__name__.removesuffix("V1"), cls)

    def __init__(self, *arguments: Node | Output) -> None:
        self.arguments = [output_of(argument) for argument in arguments]
        self.name = ""
        self.types: list[Type] = []
        self.values: list[Any] = []
        self.validate_and_infer_types()

    def write(self, b: Builder, *xs: Value) -> Value | list[Value]:
        """Emit the operation with the Builder ``b``; return its outputs."""
        raise NotImplementedError

    def validate_and_infer_types(self) -> None:
        """Infer the outputs' types. Raises RuleError where the node is invalid."""
        b = Builder()
        xs = []
        for argument in self.arguments:
            x = b.input_of(b.graph.claim("x"), argument.node.types[argument.index])
            x.value = argument.node.values[argument.index]
            xs.append(x)
        ys = as_list(self.write(b, *xs))
        self.types = [y.type for y in ys]
        self.values = [y._value for y in ys]

    def as_constants(self) -> list[Constant]:
        """Fold the node: return a Constant per output, bit-identical to a run, or an empty list if the node does not fold."""
        constants_of: dict[int, list[Constant]] = {}
        for node in in_order([self], lambda node: id(node) in constants_of):
            constants = [constants_of[id(argument.node)][argument.index : argument.index + 1] for argument in node.arguments]
            constants_of[id(node)] = node.fold([constant for row in constants for constant in row])
        return constants_of[id(self)]

    def fold(self, constants: Sequence[Constant]) -> list[Constant]:
        """Fold the node for constant arguments: return a Constant per output, or an empty list if the node does not fold."""
        if not constants or len(constants) < len(self.arguments):
            return []
        b = Builder(fold=True)
        xs = [b.constant(constant.data, constant.dtype) for constant in constants]
        ys = as_list(self.write(b, *xs))
        folded = [Constant(y.dtype, y.constant.shape, y.constant) for y in ys if y.constant is not None]
        return folded if len(folded) == len(ys) else []

    def output(self, index: int) -> Output:
        """Return one output. Raises RuleError [node.outputs]."""
        if not 0 <= index < len(self.types):
            raise RuleError("node.outputs", f"the index must be one of {len(self.types)} outputs of {self!r}, got {index}")
        return Output(self, index)

    def outputs(self) -> list[Output]:
        return [Output(self, index) for index in range(len(self.types))]

    def get_output_size(self) -> int:
        return len(self.types)

    def get_output_shape(self, index: int) -> Shape | None:
        type = self.types[index]
        return type.shape if isinstance(type, Tensor) else None

    def get_output_element_type(self, index: int) -> DType | None:
        type = self.types[index]
        return type.dtype if isinstance(type, Tensor) else None

    def get_shape(self) -> Shape | None:
        return self.get_output_shape(0)

    def get_element_type(self) -> DType | None:
        return self.get_output_element_type(0)

    def __getitem__(self, index: int) -> Output:
        return self.output(index)

    def __iter__(self) -> Iterator[Output]:
        return iter(self.outputs())

    def __repr__(self) -> str:
        return printable(f"<{type(self).__name__}{' ' + self.name if self.name else ''}: {', '.join(map(str, self.types))}>")

    def __add__(self, other: Node | Output) -> Node:
        return ARITHMETIC["Add"](self, other)

    def __sub__(self, other: Node | Output) -> Node:
        return ARITHMETIC["Subtract"](self, other)

    def __mul__(self, other: Node | Output) -> Node:
        return ARITHMETIC["Multiply"](self, other)


ARITHMETIC: dict[str, Callable[[Node | Output, Node | Output], Node]] = {}
"""Maps a name such as "Add" to the node class for Python's arithmetic operator; dovetail.ngraph.operators fills the dict."""


def output_of(argument: Node | Output) -> Output:
    if isinstance(argument, Output):
        return argument
    if not isinstance(argument, Node):
        raise RuleError("node.inputs", f"an argument must be a node, got {argument!r}")
    if len(argument.types) != 1:
        raise RuleError("node.outputs", f"an argument must be one output, got {argument!r} with {len(argument.types)} outputs")
    return Output(argument, 0)


def check_integers(numbers: Iterable[object], subject: str) -> tuple[int, ...]:
    """Check and return integers of 64 bits. Raises RuleError [argument.type]."""
    integers = []
    for number in numbers:
        if isinstance(number, bool | np.bool_) or not isinstance(number, int | np.integer) or not -(2**63) <= int(number) < 2**63:
            raise RuleError("argument.type", f"{subject} must be an integer of 64 bits, got {number!r}")
        integers.append(int(number))
    return tuple(integers)


def as_list(outputs: Value | Sequence[Value]) -> list[Value]:
    return [outputs] if isinstance(outputs, Value) else list(outputs)


def constant_of(argument: Output) -> Constant | None:
    """Return an argument as a Constant, folded if needed; None for an argument that is not constant."""
    constants = argument.node.as_constants()
    return constants[argument.index] if constants else None


class Parameter(Node):
    """Parameter is an argument of a Function. A size may be an integer, a symbol's name, or None for an unknown size."""

    _count = 0

    def __init__(self, dtype: Any, shape: Sizes | None, name: str = "") -> None:
        Parameter._count += 1
        own_name = name or f"parameter_{Parameter._count}"
        sizes = None if shape is None else tuple(dimension(size, own_name, axis) for axis, size in enumerate(shape))
        for size in sizes or ():
            if isinstance(size, int) and size < 0:
                raise RuleError("shape.range", f"a dimension must be at least 0, got {size}")
        self.type = Tensor(dtypes.dtype(dtype), sizes)
        super().__init__()
        self.name = own_name

    def validate_and_infer_types(self) -> None:
        self.types, self.values = [self.type], [None]

    def fold(self, constants: Sequence[Constant]) -> list[Constant]:
        return []


class Constant(Node):
    """Constant is a tensor of ``shape`` from a copy of ``data`` in row-major order; a single element fills the tensor."""

    def __init__(self, dtype: Any, shape: Sizes, data: object) -> None:
        self.dtype = dtypes.dtype(dtype)
        sizes = check_integers(shape, "a size")
        if any(size < 0 for size in sizes):
            raise RuleError("shape.range", f"dimensions must be at least 0, got {list(sizes)}")
        array = np.asarray(data)
        # NaN and infinity have no integer value; the range check below refuses these elements.
        with np.errstate(invalid="ignore"):
            flat = np.array(array, dtype=self.dtype.numpy).reshape(-1)
        count = int(np.prod(np.array(sizes, dtype=object), initial=1))
        if self.dtype.is_integer and array.size and array.dtype.kind in "iuf":
            low, high = self.dtype.range()
            for item in array.reshape(-1).tolist():
                if not low <= item <= high or item != int(item):
                    raise RuleError("constant.data", f"elements must be integers in the range of {self.dtype}, got {item}")
        if flat.size not in (count, 1):
            raise RuleError("constant.data", f"the shape {list(sizes)} needs {count} elements or 1, got {flat.size}")
        self.data = np.array(np.broadcast_to(flat, (count,)) if flat.size == 1 else flat).reshape(sizes)
        self.data.flags.writeable = False
        super().__init__()

    def validate_and_infer_types(self) -> None:
        is_followed = self.dtype.is_integer and self.data.size <= VALUE_LIMIT
        value = self.data.astype(object if self.dtype == "u64" else np.int64) if is_followed else None
        self.types, self.values = [Tensor(self.dtype, self.data.shape)], [value]

    def fold(self, constants: Sequence[Constant]) -> list[Constant]:
        return [self]

    def write(self, b: Builder, *xs: Value) -> Value:
        return b.constant(self.data, self.dtype)


def in_order(roots: Sequence[Node], is_done: Callable[[Node], bool]) -> list[Node]:
    """Return ``roots`` and the nodes that they need, in topological order, without nodes for which ``is_done`` is true."""
    order: list[Node] = []
    state: dict[int, bool] = {}
    stack = list(reversed(roots))
    while stack:
        node = stack[-1]
        if state.get(id(node)) or is_done(node):
            stack.pop()
            continue
        waiting = [
            argument.node for argument in node.arguments if not state.get(id(argument.node)) and not is_done(argument.node)
        ]
        if waiting:
            stack.extend(reversed(waiting))
            continue
        state[id(node)] = True
        order.append(stack.pop())
    return order

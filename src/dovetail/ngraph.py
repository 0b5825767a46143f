"""nGraph's operator interface over the Builder: nodes that validate when they are made, fold to constants, and pull
gradients back.

``Reshape``, ``Slice`` and ``Split`` are nGraph's v0; ``v1`` holds ``Reshape``, ``Split`` and ``VariadicSplit``. A Function
is an ordinary Model to
everything else. Source: nGraph's operation documents (Concat) and its operators of version 0 and 1.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from types import SimpleNamespace
from typing import Any, TypeAlias

import numpy as np

from dovetail import dims, dtypes
from dovetail.autodiff import adjoints as pull_back
from dovetail.build import Builder, dimension
from dovetail.dtypes import DType
from dovetail.errors import RuleError
from dovetail.evaluate import folded
from dovetail.graph import VALUE_LIMIT, Graph, Model, Value
from dovetail.op import Op
from dovetail.types import Shape, Tensor, Type, axis_in

Sizes: TypeAlias = Sequence[Any]


class Output:
    """One output of a node, to be used as an argument."""

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
    """An operation with its arguments. Construction validates; ``arguments`` are Outputs."""

    def __init__(self, *arguments: Node | Output) -> None:
        self.arguments = [_output(argument) for argument in arguments]
        self.name = ""
        self.types: list[Type] = []
        self.values: list[Any] = []
        self.validate_and_infer_types()

    def write(self, b: Builder, *xs: Value) -> Value | list[Value]:
        """Write the operation through ``b``."""
        raise NotImplementedError

    def validate_and_infer_types(self) -> None:
        """Infer the outputs' types. Raises RuleError where the node is invalid."""
        b = Builder()
        xs = []
        for argument in self.arguments:
            x = b.input_of(b.graph.claim("x"), argument.node.types[argument.index])
            x.value = argument.node.values[argument.index]
            xs.append(x)
        ys = _listed(self.write(b, *xs))
        self.types = [y.type for y in ys]
        self.values = [y._value for y in ys]

    def as_constants(self) -> list[Constant]:
        """Constants that can replace the outputs, bit for bit the run-time values; empty where that is not done."""
        found: dict[int, list[Constant]] = {}
        for node in _in_order([self], lambda node: id(node) in found):
            constants = [found[id(argument.node)][argument.index : argument.index + 1] for argument in node.arguments]
            found[id(node)] = node.fold([constant for each in constants for constant in each])
        return found[id(self)]

    def fold(self, constants: Sequence[Constant]) -> list[Constant]:
        """Constants in place of the outputs where ``constants`` are the arguments; empty where that is not done."""
        if not constants or len(constants) < len(self.arguments):
            return []
        b = Builder(fold=True)
        xs = [b.constant(constant.data, constant.dtype) for constant in constants]
        ys = _listed(self.write(b, *xs))
        return (
            [Constant(_dtype_of(y), y.constant.shape, y.constant) for y in ys if y.constant is not None]
            if _all_constant(ys)
            else []
        )

    def output(self, index: int) -> Output:
        """One output. Raises RuleError [node.outputs]."""
        if not 0 <= index < len(self.types):
            raise RuleError("node.outputs", f"{self!r} has {len(self.types)} outputs, and no output {index}")
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
        return f"<{type(self).__name__}{' ' + self.name if self.name else ''}: {', '.join(map(str, self.types))}>"

    def __add__(self, other: Node | Output) -> Add:
        return Add(self, other)

    def __sub__(self, other: Node | Output) -> Subtract:
        return Subtract(self, other)

    def __mul__(self, other: Node | Output) -> Multiply:
        return Multiply(self, other)


def _output(argument: Node | Output) -> Output:
    if isinstance(argument, Output):
        return argument
    if not isinstance(argument, Node):
        raise RuleError("node.inputs", f"{argument!r} is no node")
    if len(argument.types) != 1:
        raise RuleError("node.outputs", f"{argument!r} has {len(argument.types)} outputs; say which")
    return Output(argument, 0)


def _whole(numbers: Any, what: str) -> tuple[int, ...]:
    """Integers of 64 bits. Raises RuleError [node.number]: nothing is rounded or wrapped."""
    found = []
    for number in numbers:
        if isinstance(number, bool | np.bool_) or not isinstance(number, int | np.integer) or not -(2**63) <= int(number) < 2**63:
            raise RuleError("node.number", f"{what} should be an integer of 64 bits, not {number!r}")
        found.append(int(number))
    return tuple(found)


def _listed(made: Value | Sequence[Value]) -> list[Value]:
    return [made] if isinstance(made, Value) else list(made)


def _dtype_of(value: Value) -> DType:
    return value.dtype


def _all_constant(values: Sequence[Value]) -> bool:
    return all(value.constant is not None for value in values)


def _constant_of(argument: Output) -> Constant | None:
    """The constant that an argument is, or can be replaced by."""
    found = argument.node.as_constants()
    return found[argument.index] if found else None


class Parameter(Node):
    """An argument of a Function. A size may be an integer, a symbol's name, or None for an unknown one."""

    _count = 0

    def __init__(self, dtype: Any, shape: Sizes | None, name: str = "") -> None:
        Parameter._count += 1
        wished = name or f"parameter_{Parameter._count}"
        sizes = None if shape is None else tuple(dimension(size, wished, axis) for axis, size in enumerate(shape))
        for size in sizes or ():
            if isinstance(size, int) and size < 0:
                raise RuleError("shape.range", f"dimension {size} is negative")
        self.type = Tensor(dtypes.dtype(dtype), sizes)
        super().__init__()
        self.name = wished

    def validate_and_infer_types(self) -> None:
        self.types, self.values = [self.type], [None]

    def fold(self, constants: Sequence[Constant]) -> list[Constant]:
        return []


class Constant(Node):
    """A tensor of ``shape`` from ``data`` in row-major order; a single element fills it. The data is copied."""

    def __init__(self, dtype: Any, shape: Sizes, data: Any) -> None:
        self.dtype = dtypes.dtype(dtype)
        sizes = _whole(shape, "a size")
        if any(size < 0 for size in sizes):
            raise RuleError("shape.range", f"a dimension of {list(sizes)} is negative")
        given = np.asarray(data)
        flat = np.array(given, dtype=self.dtype.numpy).reshape(-1)
        count = int(np.prod(np.array(sizes, dtype=object), initial=1))
        if self.dtype.is_integer and given.size and given.dtype.kind in "iuf":
            low, high = self.dtype.range()
            if any(not low <= item <= high or item != int(item) for item in given.reshape(-1).tolist()):
                raise RuleError("constant.range", f"an element does not fit {self.dtype}")
        if flat.size not in (count, 1):
            raise RuleError("constant.size", f"{flat.size} elements for the shape {list(sizes)} of {count}")
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


class Concat(Node):
    """Concatenation of ``args`` along ``concatenation_axis``, which may count from the end."""

    def __init__(self, args: Sequence[Node | Output], concatenation_axis: int) -> None:
        (self.axis,) = _whole([concatenation_axis], "the axis")
        super().__init__(*args)

    def write(self, b: Builder, *xs: Value) -> Any:
        return b.Concat(*xs, axis=self.axis)

    def get_concatenation_axis(self) -> int:
        """The axis, counted from the front once the rank is known."""
        rank = next((len(shape) for shape in (argument.get_shape() for argument in self.arguments) if shape is not None), None)
        return self.axis if rank is None else axis_in(self.axis, rank)


class Reshape(Node):
    """Version 0: transpose by ``input_order``, a permutation of the axes, then reshape to ``output_shape``."""

    def __init__(self, arg: Node | Output, input_order: Sequence[int], output_shape: Sizes) -> None:
        self.input_order = _whole(input_order, "an axis")
        self.output_shape = _whole(output_shape, "a size")
        super().__init__(arg)

    def write(self, b: Builder, *xs: Value) -> Any:
        (x,) = xs
        if any(size < 0 for size in self.output_shape):
            raise RuleError("reshape.target", f"sizes {list(self.output_shape)} should not be negative")
        rank = len(self.input_order) if x.shape is None else len(x.shape)
        if sorted(self.input_order) != list(range(rank)):
            raise RuleError("reshape.order", f"{list(self.input_order)} is no permutation of {rank} axes")
        # Where the rank is not known yet, the transpose sees to it that it is this one.
        if self.input_order != tuple(range(rank)) or x.shape is None:
            x = b.Transpose(x, self.input_order)
        return b.Reshape(x, list(self.output_shape), copy_zeros=False)


class ReshapeV1(Node):
    """Version 1: reshape to ``pattern``. With ``special_zero`` a 0 copies the dimension at its index; -1 is computed."""

    def __init__(self, arg: Node | Output, pattern: Node | Output, special_zero: bool) -> None:
        self.special_zero = bool(special_zero)
        super().__init__(arg, pattern)

    def write(self, b: Builder, *xs: Value) -> Any:
        x, pattern = xs
        return b.Reshape(x, pattern, copy_zeros=self.special_zero, empty="zero")


class Slice(Node):
    """Version 0: elements from ``lower_bounds`` up to ``upper_bounds`` in steps of ``strides``. Bounds are checked, never
    clamped."""

    def __init__(
        self, arg: Node | Output, lower_bounds: Sequence[int], upper_bounds: Sequence[int], strides: Sequence[int] | None = None
    ) -> None:
        self.lower_bounds = _whole(lower_bounds, "a bound")
        self.upper_bounds = _whole(upper_bounds, "a bound")
        self.strides = (1,) * len(self.lower_bounds) if strides is None else _whole(strides, "a stride")
        super().__init__(arg)

    def write(self, b: Builder, *xs: Value) -> Any:
        (x,) = xs
        counts = {len(self.lower_bounds), len(self.upper_bounds), len(self.strides)}
        if len(counts) != 1 or (x.shape is not None and counts != {len(x.shape)}):
            raise RuleError("slice.rank", f"{sorted(counts)} bounds and strides for {x.type}")
        for axis, (low, high, stride) in enumerate(zip(self.lower_bounds, self.upper_bounds, self.strides, strict=True)):
            size = None if x.shape is None else x.shape[axis]
            if not 0 <= low <= high or (size is not None and dims.less_equal(high, size) is False):
                raise RuleError("slice.bounds", f"bounds [{low}, {high}) along axis {axis} do not lie in [0, {size}]")
            if stride < 1:
                raise RuleError("slice.stride", f"stride {stride} along axis {axis} is below 1")
        axes = list(range(len(self.lower_bounds)))
        if not axes:
            return b.Identity(x)
        if x.shape is None:
            x = b.Transpose(x, tuple(axes))
        lows, highs = list(self.lower_bounds), list(self.upper_bounds)
        for axis in axes:
            if dims.less_equal(highs[axis], x.dims[axis]) is not True:
                # A cut refuses at run time what a slice would clamp.
                x = b.Split(x, [lows[axis], highs[axis] - lows[axis], -1], axis=axis, outputs=3, wildcard=True)[1]
                lows[axis], highs[axis] = 0, highs[axis] - lows[axis]
        return b.Slice(x, lows, highs, axes, list(self.strides))


class Split(Node):
    """Version 0: cut along ``axis``, a scalar Constant (or an integer), into ``splits`` pieces, or pieces of the lengths
    ``splits``."""

    def __init__(self, arg: Node | Output, axis: Node | Output | int, splits: int | Sequence[int]) -> None:
        self.axis = _scalar_axis(axis)
        self.lengths = _whole(splits, "a length") if isinstance(splits, Sequence | np.ndarray) else None
        (self.count,) = [len(self.lengths)] if self.lengths is not None else _whole([splits], "the number of pieces")
        super().__init__(arg)

    def write(self, b: Builder, *xs: Value) -> list[Value]:
        if self.lengths is None:
            made: list[Value] = b.Split(xs[0], axis=self.axis, outputs=self.count)
            return made
        if any(length <= 0 for length in self.lengths):
            raise RuleError("split.sizes", f"lengths {list(self.lengths)} should be positive")
        made = b.Split(xs[0], list(self.lengths), axis=self.axis, outputs=self.count)
        return made


def _scalar_axis(axis: Node | Output | int) -> int:
    if not isinstance(axis, Node | Output):
        return _whole([axis], "the axis")[0]
    constant = _constant_of(_output(axis))
    if constant is None or constant.data.ndim != 0 or not constant.dtype.is_integer:
        raise RuleError("split.axis", f"the axis should be a scalar integer constant, not {axis!r}")
    return int(constant.data)


class SplitV1(Node):
    """Version 1: cut along ``axis``, a scalar integer node, into ``num_splits`` equal pieces."""

    def __init__(self, data: Node | Output, axis: Node | Output | int, num_splits: int) -> None:
        self.axis = _scalar_axis(axis)
        (self.num_splits,) = _whole([num_splits], "the number of pieces")
        super().__init__(data)

    def write(self, b: Builder, *xs: Value) -> list[Value]:
        made: list[Value] = b.Split(xs[0], axis=self.axis, outputs=self.num_splits)
        return made


class VariadicSplit(Node):
    """Version 1: cut along ``axis`` (a scalar or a vector of one) into pieces of ``split_lengths``, one of which may be -1,
    the rest."""

    def __init__(self, data: Node | Output, axis: Node | Output | int, split_lengths: Node | Output | Sequence[int]) -> None:
        self.axis = _vector_axis(axis)
        if isinstance(split_lengths, Node | Output):
            lengths: Node | Output = split_lengths
        else:
            lengths = Constant("i64", (len(split_lengths),), list(_whole(split_lengths, "a length")))
        shape = lengths.get_shape()
        if shape is None or len(shape) != 1 or not isinstance(shape[0], int):
            raise RuleError("split.sizes", f"the lengths should be a vector of known length, not {lengths!r}")
        self.count = shape[0]
        super().__init__(data, lengths)

    def write(self, b: Builder, *xs: Value) -> list[Value]:
        made: list[Value] = b.Split(xs[0], xs[1], axis=self.axis, outputs=self.count, wildcard=True)
        return made


def _vector_axis(axis: Node | Output | int) -> int:
    constant = _constant_of(_output(axis)) if isinstance(axis, Node | Output) else None
    if constant is not None and constant.data.shape == (1,) and constant.dtype.is_integer:
        return int(constant.data[0])
    return _scalar_axis(axis)


class _Binary(Node):
    """Elementwise on two arguments of one shape and type; nGraph's version 0 does not broadcast."""

    kind = ""

    def __init__(self, arg0: Node | Output, arg1: Node | Output) -> None:
        super().__init__(arg0, arg1)

    def write(self, b: Builder, *xs: Value) -> Any:
        from dovetail.types import agree_shapes

        agree_shapes(xs[0].shape, xs[1].shape)
        return b.apply(self.kind, *xs, broadcast=False)


class Add(_Binary):
    """arg0 + arg1, elementwise."""

    kind = "Add"


class Subtract(_Binary):
    """arg0 - arg1, elementwise."""

    kind = "Subtract"


class Multiply(_Binary):
    """arg0 * arg1, elementwise."""

    kind = "Multiply"


class Core(Node):
    """One operator of dovetail's own as a node, as gradients are made of."""

    def __init__(self, op: Op, *arguments: Node | Output) -> None:
        self.op = op
        super().__init__(*arguments)

    def write(self, b: Builder, *xs: Value) -> list[Value]:
        return b.add(self.op, *xs)


v0 = SimpleNamespace(Reshape=Reshape, Slice=Slice, Split=Split, Concat=Concat, Add=Add, Subtract=Subtract, Multiply=Multiply)
v1 = SimpleNamespace(Reshape=ReshapeV1, Split=SplitV1, VariadicSplit=VariadicSplit)


class _Writer:
    """Writes nodes, each once, into one graph."""

    def __init__(self, graph: Graph | None = None) -> None:
        self.b = Builder(graph=graph)
        self.found: dict[Output, Value] = {}
        self.owners: dict[int, Output] = {}

    def value(self, output: Output) -> Value:
        for node in _in_order([output.node], self._is_written):
            xs = [self.found[argument] for argument in node.arguments]
            if isinstance(node, Parameter):
                ys = [self.b.input_of(node.name, node.type)]
            else:
                ys = _listed(node.write(self.b, *xs))
            for index, y in enumerate(ys):
                self.found[Output(node, index)] = y
                self.owners[id(y)] = Output(node, index)
                if node.name and not isinstance(node, Parameter) and len(ys) == 1 and not self.b.graph.is_taken(node.name):
                    self.b.graph.release(y.name)
                    y.name = self.b.graph.claim(node.name)
        return self.found[output]

    def _is_written(self, node: Node) -> bool:
        return Output(node, 0) in self.found


def _in_order(roots: Sequence[Node], is_done: Any) -> list[Node]:
    """The nodes that ``roots`` need, each after its arguments."""
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


class Function(Model):
    """``results`` as a function of ``parameters``: an ordinary Model. Every Parameter that the results need has to be listed."""

    def __init__(self, results: Node | Output | Sequence[Node | Output], parameters: Sequence[Parameter], name: str = "") -> None:
        super().__init__(Graph(name))
        wanted = [_output(result) for result in ([results] if isinstance(results, Node | Output) else results)]
        writer = _Writer(self.graph)
        for parameter in parameters:
            writer.value(Output(parameter, 0))
        known = len(self.graph.inputs)
        if known != len(parameters):
            raise RuleError("function.parameters", "a Parameter is listed twice")
        values = [writer.value(result) for result in wanted]
        extra = [value.name for value in self.graph.inputs[known:]]
        if extra:
            raise RuleError("function.parameters", f"the results need {', '.join(extra)}, not listed as parameters")
        for value in values:
            writer.b.output(value.name if not _is_out(self.graph, value) else f"{value.name}_result", value)
        self.results = wanted
        self.parameters = list(parameters)


def _is_out(graph: Graph, value: Value) -> bool:
    return any(value is other for other in (*graph.inputs, *graph.outputs))


class Adjoints(dict[Parameter, Node]):
    """For each Parameter the node of its gradient."""

    def backprop_node(self, parameter: Parameter) -> Node:
        """The gradient with respect to ``parameter``. Raises RuleError [grad.unknown]."""
        if parameter not in self:
            raise RuleError("grad.unknown", f"the outputs do not depend on {parameter!r}")
        return self[parameter]


def adjoints(outputs: Sequence[Node | Output] | Node | Output, deltas: Sequence[Node | Output] | Node | Output) -> Adjoints:
    """The gradients of ``outputs``, with ``deltas`` coming in, as a node for each float Parameter that the outputs are made
    from."""
    ends = [_output(each) for each in ([outputs] if isinstance(outputs, Node | Output) else outputs)]
    starts = [_output(each) for each in ([deltas] if isinstance(deltas, Node | Output) else deltas)]
    if len(ends) != len(starts):
        raise RuleError("grad.deltas", f"{len(starts)} deltas for {len(ends)} outputs")
    parameters = [node for node in _in_order([end.node for end in ends], lambda node: False) if isinstance(node, Parameter)]
    parameters = [node for node in parameters if node.type.dtype is not None and node.type.dtype.is_float]
    writer = _Writer()
    targets = [writer.value(end) for end in ends]
    incoming = [writer.value(start) for start in starts]
    for target, delta in zip(targets, incoming, strict=True):
        if target.dtype is not delta.dtype:
            raise RuleError("type.disagree", f"an output of {target.dtype} and a delta of {delta.dtype}")
        from dovetail.types import agree_shapes

        agree_shapes(target.shape, delta.shape)
    sources = [writer.found[Output(parameter, 0)] for parameter in parameters]
    gradients = pull_back(writer.b, targets, incoming, sources)
    for core in writer.b.graph.nodes:
        _wrap(writer, core)
    return Adjoints(zip(parameters, (_node_of(writer.owners[id(gradient)]) for gradient in gradients), strict=True))


def _wrap(writer: _Writer, core: Any) -> None:
    """A core node that no node of ours stands for becomes one."""
    if all(id(y) in writer.owners for y in core.outputs):
        return
    data = core.outputs[0].constant
    if data is not None:
        made: Node = Constant(core.op.dtype, data.shape, data)
    else:
        made = Core(core.op, *(writer.owners[id(x)] for x in core.inputs))
    for index, y in enumerate(core.outputs):
        writer.owners.setdefault(id(y), Output(made, index))


def _node_of(output: Output) -> Node:
    return output.node if len(output.node.types) == 1 else Core(_identity(), output)


def _identity() -> Op:
    from dovetail.ops.source import Identity

    return Identity()


__all__ = [
    "Add",
    "Adjoints",
    "Concat",
    "Constant",
    "Function",
    "Multiply",
    "Node",
    "Output",
    "Parameter",
    "Reshape",
    "Slice",
    "Split",
    "Subtract",
    "VariadicSplit",
    "adjoints",
    "folded",
    "v0",
    "v1",
]

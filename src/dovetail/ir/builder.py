"""Builder: construction of graphs in the style of numpy.

::

    with dovetail.Builder() as b:
        x = b.input("x", "f32", ("n", 3))
        y = b.output("y", b.Concat(x, x * 2, axis=1))
    model = b.model

Every operator is a method: ``b.Concat(x, y, axis=1)`` takes inputs by position and attributes by name. Numbers and arrays among
the inputs become constants. An integer attribute, such as an axis, may be a Value, which is read at run time. When a node is
added, its types are inferred and the rules of its operator are checked.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from contextvars import ContextVar, Token
from operator import index as operator_index
from typing import Any, SupportsIndex, TypeAlias

import numpy as np

from dovetail.errors import DovetailError, RuleError
from dovetail.ir import dtypes, symbolic
from dovetail.ir.dtypes import DType, DTypeLike
from dovetail.ir.edit import connect
from dovetail.ir.graph import EXTENSIONS, Graph, Model, Node, Operand, Value
from dovetail.ir.op import REGISTRY, Op, has, infer_types, infer_values, output_count, raise_fault, unknown_attribute
from dovetail.ir.operator_methods import OperatorMethods, operator_class
from dovetail.ir.packed_elements import PackedElements
from dovetail.ir.signature import allows
from dovetail.ir.suggestions import check_keywords
from dovetail.ir.types import INT64_MAX, Shape, Size, Tensor, Type

SizeLike: TypeAlias = SupportsIndex | symbolic.Dim | str | None

_CURRENT: ContextVar[Builder] = ContextVar("dovetail.builder")


def current() -> Builder:
    """Return the builder of the innermost ``with`` block. Raises RuleError [builder.none] outside of such a block."""
    try:
        return _CURRENT.get()
    except LookupError:
        raise RuleError("builder.none", "arithmetic on values needs a `with dovetail.Builder()` block") from None


def dimension(size: SizeLike, name: str, axis: int) -> Size:
    """Convert a size argument to an integer or a Dim; None becomes the symbol ``?name.axis``.

    Raises RuleError [argument.type] for anything but an integer, a Dim, None, or the text of a symbol or expression.
    """
    if isinstance(size, str):
        return symbolic.parse(size)
    if size is None:
        return symbolic.symbol(f"?{name}.{axis}")
    if isinstance(size, symbolic.Dim):
        return size
    try:
        return int(operator_index(size))
    except TypeError:
        raise RuleError("argument.type", f"a size must be an integer, a name or None, got {size!r}") from None


@check_keywords
class Builder(OperatorMethods):
    """Builder appends nodes to ``graph``, by default a new graph. With ``fold``, operators on constants are folded immediately.

    ``strict`` rejects an operator with a subgraph that cannot run. Each new node gets the location ``location``.
    ``folded_inputs`` holds the identities of the constants that folded operators have read. With ``fold``, data movement is not
    evaluated for a constant of more than ``copy_limit`` bytes with several readers, because the constant would be stored twice.
    """

    def __init__(self, name: str = "", *, graph: Graph | None = None, fold: bool = False, strict: bool = True) -> None:
        self.graph = Graph(name) if graph is None else graph
        self.fold = fold
        self.strict = strict
        self.location = ""
        self.copy_limit: int | None = None
        self.folded_inputs: set[int] = set()
        self._tokens: list[Token[Builder]] = []
        self._borders: dict[int, Value] = {}
        """The inputs and outputs of ``graph`` by identity, as they were at the last call of ``_is_border``."""
        self._border_sizes = (0, 0)

    def __enter__(self) -> Builder:
        self._tokens.append(_CURRENT.set(self))
        return self

    def __exit__(self, *error: object) -> None:
        _CURRENT.reset(self._tokens.pop())

    @property
    def model(self) -> Model:
        """The graph as a Model."""
        return Model(self.graph)

    def input(self, name: str, dtype: DTypeLike, shape: Sequence[SizeLike] | None = None) -> Value:
        """Add a graph input. A size is an integer, a symbol's name, an expression or None (unknown).

        Without ``shape`` the rank is unknown.

        Raises RuleError [argument.type], UnsupportedError [dtype.unknown].
        """
        if shape is not None and (isinstance(shape, str) or not isinstance(shape, Iterable)):
            raise RuleError("argument.type", f"a shape must be a list of sizes or None, got {shape!r}")
        sizes = None if shape is None else tuple(dimension(size, name, axis) for axis, size in enumerate(shape))
        return self.input_of(name, Tensor(dtypes.dtype(dtype), sizes))

    def input_of(self, name: str, type: Type) -> Value:
        """Add a graph input of any type."""
        value = Value(self.graph.claim(_checked_name(name)), type)
        self.graph.inputs.append(value)
        return value

    def output(self, name: str, value: Value) -> Value:
        """Make ``value`` the next graph output and rename it to ``name``.

        For a graph input or a value that is an output already, an Identity is added. Raises RuleError [name.taken],
        [argument.type], [node.inputs].
        """
        _checked_name(name)
        if not isinstance(value, Value):
            raise RuleError("node.inputs", f"a graph output must be a Value, got {type(value).__name__}")
        if self._is_border(value):
            value = self.Identity(value)
        if value.name != name:
            self.graph.release(value.name)
            if self.graph.is_taken(name):
                raise RuleError("name.taken", f"the name {name!r} is taken")
            value.name = self.graph.claim(name)
        self.graph.outputs.append(value)
        return value

    def _is_border(self, value: Value) -> bool:
        """Return whether ``value`` is a graph input or output. A call scans only what was added since the previous call."""
        inputs, outputs = self.graph.inputs, self.graph.outputs
        old = self._border_sizes
        is_longer = old[0] <= len(inputs) and old[1] <= len(outputs)
        last = [values[size - 1] for values, size in zip((inputs, outputs), old, strict=True) if size and is_longer]
        if not is_longer or any(id(other) not in self._borders for other in last):
            self._borders, old = {}, (0, 0)
        self._borders.update((id(other), other) for other in (*inputs[old[0] :], *outputs[old[1] :]))
        self._border_sizes = len(inputs), len(outputs)
        return id(value) in self._borders

    def constant(self, data: Operand, dtype: DTypeLike | None = None, name: str | None = None) -> Value:
        """Add a Constant. ``dtype`` defaults to the type of the data; Python integers become i64, Python floats f32.

        Raises RuleError [constant.data] for data that cannot be converted to a tensor of that type.
        """
        try:
            array, element_type = _tensor_of(data, dtype)
        except DovetailError:
            raise
        except (TypeError, ValueError, OverflowError, RecursionError) as error:
            raise RuleError("constant.data", f"data of the type {type(data).__name__} cannot become a tensor: {error}") from None
        value = Value(self.graph.claim(name or "constant"), Tensor(element_type, array.shape))
        constant = REGISTRY["Constant"](data=array, dtype=element_type)
        self.graph.nodes.append(connect(Node(constant, [], [value], "", self.location)))
        return value

    def add(self, op: Op, *inputs: Operand | None, names: Sequence[str | None] | None = None, name: str = "") -> list[Value]:
        """Add one node and return its outputs. ``names`` are proposed output names; a name in use gets a numeric suffix.

        Raises RuleError with the node's name if the inputs break a rule of the operator.
        """
        xs = self._values(op, inputs)
        while xs and xs[-1] is None:
            xs.pop()
        if self.fold and (constants := self._fold(op, xs)) is not None:
            return constants
        graph = self.graph
        count = output_count(op)
        stem = op.title.lower()
        proposed = [*(names or ()), *[None] * count]
        claimed = [graph.claim(proposed[index] or stem) for index in range(count)]
        try:
            types = infer_types(op, tuple(xs), graph.stem(claimed[0]) if claimed else "")
            if self.strict and op.holds_graphs:
                raise_fault(op)
            values = infer_values(op, tuple(xs), types)
        except DovetailError as error:
            for output_name in claimed:
                graph.release(output_name)
            raise error.at(node=name or (claimed[0] if claimed else stem), op=describe_op(op, xs)) from None
        outputs = [Value(output_name, type) for output_name, type in zip(claimed, types, strict=True)]
        for y, value in zip(outputs, values, strict=True):
            if value is not None:
                y.value = value
        graph.nodes.append(connect(Node(op, xs, outputs, name, self.location)))
        return outputs

    def apply(self, kind: str, /, *inputs: Operand | None, **attributes: object) -> Any:
        """Add a node of the operator ``kind``. Returns a single output as a Value, several outputs as a list.

        Raises MissingAttributeError [name.unknown] for an unknown name, and RuleError [attribute.unknown],
        [attribute.missing], [attribute.value] for wrong attributes.
        """
        cls = operator_class(kind)
        runtime = {name: value for name, value in attributes.items() if isinstance(value, Value)}
        for name in runtime:
            if name not in cls.fields_by_name:
                raise unknown_attribute(cls, name)
        if runtime:
            with_inputs: Any = REGISTRY["RuntimeAttributes"]
            op, operands = with_inputs.with_inputs(cls, attributes, inputs, runtime)
            outputs = self.add(op, *operands)
        else:
            outputs = self.add(cls(**attributes), *inputs)
        return outputs[0] if len(outputs) == 1 and not cls.signature.outputs[0].repeated else outputs

    def index(self, x: Value, key: object) -> Value:
        """Add nodes that compute ``x[key]`` by numpy's basic indexing: integers, slices, None and one Ellipsis.

        Raises RuleError [argument.type] for other keys, and for more keys than axes.
        """
        keys = _expand_ellipsis(key if isinstance(key, tuple) else (key,), len(x.dims))
        bounds: list[tuple[int, int, int, int]] = []
        squeezed: list[int] = []
        added: list[int] = []
        axis = result_axis = 0
        for item in keys:
            if item is None:
                added.append(result_axis)
                result_axis += 1
                continue
            if isinstance(item, slice):
                if item != slice(None):
                    bounds.append((axis, *_slice_bounds(item)))
                result_axis += 1
            else:
                number = _key_index(item)
                bounds.append((axis, number, number + 1 if number != -1 else INT64_MAX, 1))
                squeezed.append(axis)
            axis += 1
        if bounds:
            axes, starts, stops, steps = (list(column) for column in zip(*bounds, strict=True))
            x = self.Slice(x, starts, stops, axes, steps)
        if squeezed:
            x = self.Squeeze(x, squeezed)
        if added:
            x = self.Unsqueeze(x, added)
        return x

    def _values(self, op: Op, inputs: Sequence[Operand | None]) -> list[Value | None]:
        return [
            x if x is None or isinstance(x, Value) else self._value(x, _sibling_dtype(op, inputs, index))
            for index, x in enumerate(inputs)
        ]

    def _value(self, x: Operand, dtype: DType | None) -> Value:
        if isinstance(x, int | float) and not isinstance(x, bool) and dtype is not None:
            return self.constant(x, dtype)
        if isinstance(x, Sequence) and not len(x):
            return self.constant(x, dtypes.i64)
        return self.constant(x)

    def _fold(self, op: Op, xs: list[Value | None]) -> list[Value] | None:
        """Evaluate an operator on constants; return None if an input is not constant or the operator is not folded."""
        if not xs or not all(x is None or x.storage is not None for x in xs):
            return None
        if self.copy_limit is not None and has(op, "windows") and any(self._is_shared(x) for x in xs):
            return None
        arrays = EXTENSIONS.fold_operator(op, xs)
        if arrays is None:
            return None
        self.folded_inputs.update(map(id, xs))
        return [self.constant(array, dtype) for array, dtype in arrays]

    def _is_shared(self, x: Value | None) -> bool:
        """Return whether ``x`` is a constant of more than ``copy_limit`` bytes with several readers."""
        if x is None or self.copy_limit is None or len(x.uses) < 2 or x.constant is None or x.constant.nbytes <= self.copy_limit:
            return False
        return len({id(user) for user, _ in x.uses}) > 1


def _checked_name(name: str) -> str:
    if not isinstance(name, str):
        raise RuleError("argument.type", f"a name must be a string, got {name!r}")
    return name


def _tensor_of(data: Operand, dtype: DTypeLike | None) -> tuple[np.ndarray[Any, Any] | PackedElements, DType]:
    """Return a read-only array of the data, and its element type. Data that the caller can still write is copied."""
    if isinstance(data, PackedElements):
        return data, data.dtype
    own: DTypeLike | None = getattr(data, "dtype", None)
    if dtype is None and own is None:
        array = np.asarray(data)
        dtype = dtypes.f32 if array.dtype.kind == "f" else array.dtype
    element_type = dtypes.dtype(own if dtype is None else dtype)
    array = np.asarray(data, dtype=element_type.numpy)
    if element_type.name == "string" and (others := [item for item in array.flat if not isinstance(item, str)]):
        raise TypeError(f"elements must be strings, got {type(others[0]).__name__}")
    if array.flags.writeable and (array is data or not array.flags.owndata):
        array = array.copy()
    array.flags.writeable = False
    return array, element_type


def _expand_ellipsis(keys: tuple[object, ...], rank: int) -> tuple[object, ...]:
    """Replace the Ellipsis among ``keys`` by full slices."""
    positions = [position for position, item in enumerate(keys) if item is Ellipsis]
    count = sum(item is not None and item is not Ellipsis for item in keys)
    if len(positions) > 1 or count > rank:
        raise RuleError(
            "argument.type", f"a value of rank {rank} takes at most {rank} keys and one Ellipsis, got {len(keys)} keys"
        )
    if not positions:
        return keys
    (position,) = positions
    return (*keys[:position], *(slice(None),) * (rank - count), *keys[position + 1 :])


def _slice_bounds(key: slice) -> tuple[int, int, int]:
    """Return the start, stop and step of a slice as inputs of Slice, which clamps to the axis."""
    step = 1 if key.step is None else _key_index(key.step)
    start = (0 if step > 0 else INT64_MAX) if key.start is None else _key_index(key.start)
    stop = (INT64_MAX if step > 0 else -INT64_MAX - 1) if key.stop is None else _key_index(key.stop)
    return start, stop, step


def _key_index(key: object) -> int:
    try:
        return int(operator_index(key))  # type: ignore[arg-type]
    except TypeError:
        raise RuleError("argument.type", f"a key must be an integer, a slice, None or Ellipsis, got {key!r}") from None


def _sibling_dtype(op: Op, inputs: Sequence[Operand | None], index: int) -> DType | None:
    """Return the element type to which a Python number is converted that is passed as input ``index``; None if undetermined.

    That is the element type of an input with the same type variable, or else of the first Value, if the signature allows it.
    """
    signature, count = op.signature, len(inputs)
    if signature.repeated is None and count > len(signature.inputs):
        return None
    variable = signature.port(index, count).type
    tensors = [(position, x.type) for position, x in enumerate(inputs) if isinstance(x, Value) and isinstance(x.type, Tensor)]
    siblings = (type for position, type in tensors if signature.port(position, count).type == variable)
    tensor = next(siblings, tensors[0][1] if tensors else None)
    return tensor.dtype if tensor is not None and tensor.dtype is not None and allows(variable, tensor.dtype) else None


def describe_op(op: Op, xs: Iterable[Value | None]) -> str:
    """Return the text of an operator with the types of its inputs, for messages."""
    return f"{op}({', '.join('-' if x is None else str(x.type) for x in xs)})"


def shape_value(b: Builder, x: Value, axes: Iterable[int] | None = None) -> Value | list[int]:
    """Return the sizes of ``x`` along ``axes`` (default: all): a list if all these sizes are known, else an i64 vector."""
    shape: Shape | None = x.shape
    selected = None if axes is None else list(axes)
    if shape is not None:
        sizes = [shape[axis] for axis in (range(len(shape)) if selected is None else selected)]
        if all(isinstance(size, int) for size in sizes):
            return [int(size) for size in sizes]
    vector = b.Shape(x, output_type=dtypes.i64)
    return vector if selected is None else b.Gather(vector, selected, axis=0)


def _apply_in_current(kind: str, operands: Sequence[Operand]) -> Value:
    value: Value = current().apply(kind, *operands)
    return value


def _index_in_current(x: Value, key: object) -> Value:
    return current().index(x, key)


EXTENSIONS.apply_operator = _apply_in_current
EXTENSIONS.index_value = _index_in_current

"""Builder: write graphs the way one writes numpy.

::

    with dovetail.Builder() as b:
        x = b.input("x", "f32", ("n", 3))
        y = b.output("y", b.Concat(x, x * 2, axis=1))
    model = b.model

Every operator is a method (``b.Concat(...)``: values first, attributes by name); numbers and arrays among the inputs become
constants. An integer attribute, an axis for example, may be a value too: then it is read at run time.
Types are inferred, and the operator's rules are held, as each node is written.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from contextvars import ContextVar, Token
from typing import Any

import numpy as np

from dovetail import dtypes, symbolic
from dovetail.dtypes import DType
from dovetail.errors import DovetailError, RuleError
from dovetail.ir.edit import connect
from dovetail.ir.graph import Graph, Model, Node, Value
from dovetail.ir.op import REGISTRY, Op, infer_types, infer_values, output_count, raise_fault
from dovetail.ir.operator_methods import OperatorMethods, operator_class
from dovetail.ir.signature import allows
from dovetail.ir.types import Shape, Size, Tensor, Type

_CURRENT: ContextVar[Builder] = ContextVar("dovetail.builder")


def current() -> Builder:
    """The builder whose ``with`` block is running. Raises RuleError [builder.none] outside of one."""
    try:
        return _CURRENT.get()
    except LookupError:
        raise RuleError("builder.none", "arithmetic on values needs a `with dovetail.Builder()` block") from None


def dimension(what: Size | str | None, name: str, axis: int) -> Size:
    """A size as users write it: an integer, a symbol's name or expression, a Dim, or None for an unnamed one."""
    if isinstance(what, str):
        return symbolic.parse(what)
    if what is None:
        return symbolic.symbol(f"?{name}.{axis}")
    if isinstance(what, symbolic.Dim):
        return what
    return int(what)


class Builder(OperatorMethods):
    """Writes nodes into ``graph`` (a new one when left out). With ``fold``, pure movement of constants is done at once."""

    def __init__(self, name: str = "", *, graph: Graph | None = None, fold: bool = False, strict: bool = True) -> None:
        self.graph = Graph(name) if graph is None else graph
        self.fold = fold
        # Whether a body that cannot run is refused before it does.
        self.strict = strict
        self.place = ""
        self._tokens: list[Token[Builder]] = []
        # Constants that something folded away has read.
        self.spent: set[int] = set()

    def __enter__(self) -> Builder:
        self._tokens.append(_CURRENT.set(self))
        return self

    def __exit__(self, *error: object) -> None:
        _CURRENT.reset(self._tokens.pop())

    @property
    def model(self) -> Model:
        """The graph so far, as a Model."""
        return Model(self.graph)

    def input(self, name: str, dtype: Any, shape: Sequence[Size | str | None] | None = None) -> Value:
        """A new graph input; a size may be an integer, a symbol's name, or None (unknown); ``shape`` None leaves the rank
        open."""
        sizes = None if shape is None else tuple(dimension(size, name, axis) for axis, size in enumerate(shape))
        return self.input_of(name, Tensor(dtypes.dtype(dtype), sizes))

    def input_of(self, name: str, type: Type) -> Value:
        """A new graph input of any type."""
        value = Value(self.graph.claim(name), type)
        self.graph.inputs.append(value)
        return value

    def output(self, name: str, value: Value) -> Value:
        """Make ``value`` the next graph output, under ``name``."""
        if any(value is other for other in (*self.graph.inputs, *self.graph.outputs)):
            value = self.apply("Identity", value)
        if value.name != name:
            self.graph.release(value.name)
            if self.graph.is_taken(name):
                raise RuleError("name.taken", f"the name {name!r} is taken")
            value.name = self.graph.claim(name)
        self.graph.outputs.append(value)
        return value

    def constant(self, data: Any, dtype: Any = None, name: str | None = None) -> Value:
        """A Constant; ``dtype`` defaults to the data's own (Python integers: i64, Python floats: f32)."""
        if dtype is None and not hasattr(data, "dtype"):
            array = np.asarray(data)
            dtype = dtypes.f32 if array.dtype.kind == "f" else dtypes.dtype(array.dtype)
        kind = dtypes.dtype(data.dtype if dtype is None else dtype)
        array = np.asarray(data, dtype=kind.numpy)
        if array.flags.writeable and (array is data or not array.flags.owndata):
            # The caller may go on writing into it; a constant stays what it was.
            array = array.copy()
        array.flags.writeable = False
        value = Value(self.graph.claim(name or "constant"), Tensor(kind, array.shape))
        self.graph.nodes.append(connect(Node(REGISTRY["Constant"](array, kind), [], [value], "", self.place)))
        return value

    def add(self, op: Op, *inputs: Any, names: Sequence[str | None] | None = None, name: str = "") -> list[Value]:
        """Write one node and return its outputs. ``names`` are wished for its outputs; a taken one gets a number."""
        xs = self._values(op, list(inputs))
        while xs and xs[-1] is None:
            xs.pop()
        if self.fold and (folded := self._folded(op, xs)) is not None:
            return folded
        graph = self.graph
        count = output_count(op)
        stem = op.title.lower()
        wished = [*(names or ()), *[None] * count]
        taken = [graph.claim(wished[index] or stem) for index in range(count)]
        try:
            types = infer_types(op, tuple(xs), graph.stem(taken[0]) if taken else "")
            if self.strict and op.holds_graphs:
                raise_fault(op)
        except DovetailError as error:
            for each in taken:
                graph.release(each)
            raise error.at(node=name or (taken[0] if taken else stem), op=written(op, xs)) from None
        outputs = [Value(each, type) for each, type in zip(taken, types, strict=True)]
        for y, value in zip(outputs, infer_values(op, tuple(xs), types), strict=True):
            if value is not None:
                y.value = value
        graph.nodes.append(connect(Node(op, xs, outputs, name, self.place)))
        return outputs

    def apply(self, kind: str, /, *inputs: Any, **attributes: Any) -> Any:
        """Write the operator named ``kind``; one output comes back alone, several as a list."""
        found = operator_class(kind)
        for name, value in attributes.items():
            field = found.fields_by_name.get(name)
            if field is not None and isinstance(value, str | type | np.dtype) and field.annotation.startswith("DType"):
                attributes[name] = dtypes.dtype(value)
        given = {name: value for name, value in attributes.items() if isinstance(value, Value)}
        if given:
            late: Any = REGISTRY["RuntimeAttributes"]
            op, inputs = late.with_inputs(found, attributes, inputs, given)
            outputs = self.add(op, *inputs)
        else:
            outputs = self.add(found(**attributes), *inputs)
        return outputs[0] if len(outputs) == 1 and not found.signature.outputs[0].repeated else outputs

    def index(self, x: Value, key: Any) -> Value:
        """``x[key]`` with integers, slices, None and one Ellipsis, as numpy has it."""
        keys = key if isinstance(key, tuple) else (key,)
        rank = len(x.dims)
        if Ellipsis in keys:
            place = keys.index(Ellipsis)
            missing = rank - sum(1 for each in keys if each is not None and each is not Ellipsis)
            keys = (*keys[:place], *(slice(None),) * missing, *keys[place + 1 :])
        axis = 0
        bounds: list[tuple[int, int, int, int]] = []
        squeezed: list[int] = []
        added: list[int] = []
        at = 0
        for each in keys:
            if each is None:
                added.append(at)
                at += 1
                continue
            if isinstance(each, slice):
                if each != slice(None):
                    step = 1 if each.step is None else int(each.step)
                    start = (0 if step > 0 else 2**63 - 1) if each.start is None else int(each.start)
                    stop = (2**63 - 1 if step > 0 else -(2**63)) if each.stop is None else int(each.stop)
                    bounds.append((axis, start, stop, step))
                at += 1
            else:
                number = int(each)
                bounds.append((axis, number, number + 1 if number != -1 else 2**63 - 1, 1))
                squeezed.append(axis)
            axis += 1
        if bounds:
            axes, starts, stops, steps = (list(column) for column in zip(*bounds, strict=True))
            x = self.apply("Slice", x, starts, stops, axes, steps)
        if squeezed:
            x = self.apply("Squeeze", x, squeezed)
        if added:
            x = self.apply("Unsqueeze", x, added)
        return x

    def _values(self, op: Op, inputs: list[Any]) -> list[Value | None]:
        return [
            x if x is None or isinstance(x, Value) else self._value(x, _beside(op, inputs, index))
            for index, x in enumerate(inputs)
        ]

    def _value(self, x: Any, dtype: DType | None) -> Value:
        if isinstance(x, int | float) and not isinstance(x, bool) and dtype is not None:
            return self.constant(x, dtype)
        if isinstance(x, Sequence) and not len(x):
            return self.constant(x, dtypes.i64)
        return self.constant(x)

    def _folded(self, op: Op, xs: list[Value | None]) -> list[Value] | None:
        if not xs or not all(x is None or x.constant is not None for x in xs):
            return None
        from dovetail.interpreter.evaluate import FOLD_LIMIT, FOLD_WRITTEN, folded

        arrays = folded(op, xs, FOLD_LIMIT, FOLD_WRITTEN)
        if arrays is None:
            return None
        self.spent.update(map(id, xs))
        return [self.constant(array, dtype) for array, dtype in arrays]


def _beside(op: Op, inputs: list[Any], index: int) -> DType | None:
    """The element type of a number among the inputs: that of an input which must have the same, else of the first, if it may."""
    ports, count = op.signature, len(inputs)
    if ports.repeated is None and count > len(ports.inputs):
        return None
    variable = ports.port(index, count).type
    values = [(place, x) for place, x in enumerate(inputs) if isinstance(x, Value) and isinstance(x.type, Tensor)]
    same = next((x for place, x in values if ports.port(place, count).type == variable), values[0][1] if values else None)
    return same.dtype if same is not None and allows(variable, same.dtype) else None


def written(op: Op, xs: Iterable[Value | None]) -> str:
    """The operator as written with the types of its inputs, for messages."""
    return f"{op}({', '.join('-' if x is None else str(x.type) for x in xs)})"


def shape_value(b: Builder, x: Value, axes: Iterable[int] | None = None) -> Value | list[int]:
    """The sizes of ``x`` (of some axes) as an i64 vector: a list where all are known, else read at run time."""
    shape: Shape | None = x.shape
    wanted = None if axes is None else list(axes)
    if shape is not None:
        sizes = [shape[axis] for axis in (range(len(shape)) if wanted is None else wanted)]
        if all(isinstance(size, int) for size in sizes):
            return [int(size) for size in sizes]
    found: Value = b.apply("Shape", x, dtype=dtypes.i64)
    return found if wanted is None else b.apply("Gather", found, wanted, axis=0)


__all__ = ["Builder", "DType", "current", "dimension", "shape_value", "written"]

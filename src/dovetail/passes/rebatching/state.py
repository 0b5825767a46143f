"""The state of a repair: the changed graph, the types before the change, and helpers that emit sizes and expanded operands."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from dovetail.ir import dtypes, symbolic
from dovetail.ir.builder import Builder
from dovetail.ir.edit import set_input
from dovetail.ir.evaluate import constant_value
from dovetail.ir.graph import Graph, Node, Value
from dovetail.ir.op import draws
from dovetail.ir.types import Shape, Size, Tensor, Type, is_static, static
from dovetail.ops.control_flow.if_op import types_in
from dovetail.passes.rebatching.axes import BatchAxis, FreedSize, axes_of, carries, has_symbol


class ChangedConstant(NamedTuple):
    """ChangedConstant is a constant or attribute that depended on the old size: its node, both values as text, and the reason."""

    node: str
    op: str
    old: str
    new: str
    reason: str


class Restart(Exception):
    """Restart means that a node visited before must carry the batch: the analysis starts again with this node in ``forced``."""

    def __init__(self, node: str, axis: int, name: str) -> None:
        super().__init__(node)
        self.node, self.axis, self.name = node, axis, name


class RepairState:
    """RepairState holds the changed graph and the facts that the repairs need.

    - ``old_types`` and ``old_values``: types and shape values before the change, by the id of the value
    - ``inner``: inner sizes of merged batch axes; ``factors``: factors of other merged axes, by the id of the value and the axis
    - ``choices``: the alternative to take at a node, by the key of the node or by its kind
    - ``alternatives``: the kind and the number of alternatives, by the key of the node
    - ``forced``: the axis and the symbol of random nodes that must carry the batch, by the key of the node
    - ``dead``: ids of the nodes that had no reader before the change
    - ``prefix``: the path of the node with the subgraph, which starts the keys; empty for the graph of the model
    - ``captures``: the inputs that a subgraph needs for freed sizes, by the name of the size
    """

    def __init__(
        self,
        graph: Graph,
        freed: Sequence[FreedSize],
        choices: Mapping[str, int],
        forced: Mapping[str, tuple[int, str]],
        prefix: str = "",
    ) -> None:
        self.graph = graph
        self.freed = list(freed)
        self.choices = choices
        self.factors: dict[tuple[int, int], tuple[Size, ...]] = {}
        self.forced = forced
        self.prefix = prefix
        self.captures: dict[str, Value] = {}
        self.alternatives: dict[str, tuple[str, int]] = {}
        self.b = Builder(graph=graph, strict=False)
        known = types_in(graph)
        self.old_types: dict[int, Type] = {id(value): type for value, type, _ in known}
        self.old_values: dict[int, Any] = {id(value): elements for value, _, elements in known}
        self.inner: dict[int, dict[tuple[int, str], Size]] = {}
        self.dead: set[int] = set()
        self.changes: list[ChangedConstant] = []
        self._sizes: dict[str, Value] = {}
        self._expanded: dict[tuple[int, BatchAxis, bool], Value] = {}

    def old_shape(self, value: Value) -> Shape | None:
        type = self.old_types.get(id(value), value.type)
        return type.shape if isinstance(type, Tensor) else None

    def axes(self, value: Value | None, freed: FreedSize) -> list[BatchAxis]:
        """Return the batch axes of a value for one freed size."""
        if value is None or not isinstance(value.type, Tensor):
            return []
        return axes_of(value.type.shape, freed, self.inner.get(id(value)))

    def factors_of(self, value: Value, axis: int) -> tuple[Size, ...]:
        """Return the factors of the size of an axis in row-major order; the size itself for an axis that was not merged."""
        size = value.dims[axis]
        own = self.factors.get((id(value), axis), ())
        return own if own and symbolic.product(own) == size else (size,)

    def set_factors(self, value: Value, axis: int, factors: tuple[Size, ...]) -> None:
        """Record the factors of a merged axis."""
        if len(factors) > 1:
            self.factors[id(value), axis] = factors

    def old_size(self, size: Size) -> int:
        """Return a size of the new graph at the old sizes. Raises Inexact if the size depends on other symbols."""
        old = self.at_old_sizes(size)
        if not isinstance(old, int):
            raise symbolic.Inexact(f"{size} at the old sizes")
        return old

    def carries_any(self, value: Value | None) -> bool:
        return value is not None and any(carries(value.type, freed.name) for freed in self.freed)

    def at_old_sizes(self, size: Size) -> Any:
        """Evaluate a size of the new graph at the old sizes."""
        if not isinstance(size, symbolic.Dim):
            return size
        return symbolic.substitute(size, {freed.name: freed.old for freed in self.freed})

    def at_new_sizes(self, size: Size) -> Any:
        """Replace the symbols of the analysis by the requested sizes."""
        if not isinstance(size, symbolic.Dim):
            return size
        return symbolic.substitute(size, {freed.name: freed.new for freed in self.freed})

    def add_change(self, node: Node, old: object, new: object, reason: str) -> None:
        self.changes.append(ChangedConstant(node.label, type(node.op).__name__, str(old), str(new), reason))

    def text(self, sizes: Iterable[Any]) -> str:
        return f"[{', '.join(str(self.at_new_sizes(size)) for size in sizes)}]"

    def choose(self, node: Node, kind: str, count: int) -> int:
        """Return the index of one of ``count`` alternatives: the choice for the node, else the choice for ``kind``, else 0."""
        key = self.key_of(node)
        kind = f"{self.prefix}{kind}"
        self.alternatives[key] = (kind, count)
        return min(self.choices.get(key, self.choices.get(kind, 0)), count - 1)

    def key_of(self, node: Node) -> str:
        """Return the name of a node in ``choices`` and ``forced``."""
        return f"{self.prefix}{node.outputs[0].name}"

    def new_capture(self, freed: FreedSize) -> Value:
        """Return a new value, an i64 vector of one element, that becomes a subgraph's input for a freed size."""
        value = Value(self.graph.claim("size"), Tensor(dtypes.i64, (1,)))
        value.value = symbolic.xp.asarray([freed.symbol])
        return value

    def write_size(self, freed: FreedSize) -> Value:
        """Emit the freed size as an i64 vector of one element, read from the shape of an input.

        A subgraph without such an input gets a capture, which the node with the subgraph must pass.
        """
        if freed.name not in self._sizes:
            for value in self.graph.inputs:
                for axis, name, inner in self.axes(value, freed):
                    if inner == 1 and name == freed.name:
                        sizes = self.b.Shape(value, output_type=dtypes.i64)
                        self._sizes[freed.name] = self.b.Gather(sizes, [axis], axis=0)
                        return self._sizes[freed.name]
            self.captures[freed.name] = self._sizes[freed.name] = self.new_capture(freed)
        return self._sizes[freed.name]

    def write_element(self, size: Size) -> Value:
        """Emit a size as an i64 vector of one element: an integer, a multiple or quotient of a freed size, or a dimension.

        Raises Inexact for any other expression.
        """
        if isinstance(size, int):
            return self.b.constant(np.array([size], np.int64))
        for freed in self.freed:
            factor = symbolic.exact_quotient(size, freed.symbol) if has_symbol(size, freed.name) else None
            if isinstance(factor, int):
                value = self.write_size(freed)
                return value if factor == 1 else self.b.Multiply(value, self.b.constant(np.array([factor], np.int64)))
        for source in (*self.graph.inputs, *(y for node in self.graph.nodes for y in node.outputs)):
            if isinstance(source.type, Tensor) and size in (source.shape or ()):
                return self.b.Gather(self.b.Shape(source, output_type=dtypes.i64), [source.dims.index(size)], axis=0)
        for freed in self.freed:
            quotient = next((count for count in range(2, freed.old + 1) if freed.symbol // count == size), None)
            if quotient is not None:
                return self.b.Divide(self.write_size(freed), self.b.constant(np.array([quotient], np.int64)))
        raise symbolic.Inexact(f"the size {size} is no multiple of one symbol")

    def write_sizes(self, sizes: Sequence[Size]) -> Value:
        """Emit sizes as an i64 vector, which is a constant if all sizes are integers."""
        parts: list[Value] = []
        run: list[int] = []
        for size in sizes:
            if isinstance(size, int):
                run.append(size)
                continue
            if run:
                parts.append(self.b.constant(np.array(run, np.int64)))
                run = []
            parts.append(self.write_element(size))
        if run:
            parts.append(self.b.constant(np.array(run, np.int64)))
        joined: Value = parts[0] if len(parts) == 1 else self.b.Concat(*parts, axis=0)
        return joined

    def expanded_shape(self, value: Value, place: BatchAxis, cut: bool) -> Shape:
        """Return the shape of the result of ``write_rows`` for the same arguments."""
        freed = self.freed_of(place.name)
        shape = list(value.shape or ())
        old = shape[place.axis]
        assert isinstance(old, int)
        shape[place.axis] = old // freed.old if cut else old // freed.old * freed.symbol
        return tuple(shape)

    def freed_of(self, name: str) -> FreedSize:
        return next(freed for freed in self.freed if freed.name == name)

    def write_rows(self, value: Value, place: BatchAxis, cut: bool) -> Value:
        """Emit ``value``, whose rows are equal for all old samples, with one row (``cut``) or with a row for each new sample."""
        key = (id(value), place, cut)
        if key not in self._expanded:
            self._check_random(value, place)
            self._expanded[key] = self._write_new_rows(value, place, cut)
        return self._expanded[key]

    def _write_new_rows(self, value: Value, place: BatchAxis, cut: bool) -> Value:
        b, freed, axis = self.b, self.freed_of(place.name), place.axis
        shape = static(value.shape)
        inner = place.inner
        assert isinstance(inner, int)
        outer = shape[axis] // (freed.old * inner)
        is_split = outer != 1 or inner != 1
        row_axis = axis + 1 if is_split else axis
        data = value.constant
        if data is not None and freed.old > 1:
            split = data.reshape(*shape[:axis], outer, freed.old, inner, *shape[axis + 1 :])
            row = split[(slice(None),) * (axis + 1) + (slice(0, 1),)]
            x = b.constant(
                row.reshape(*shape[:axis], outer, 1, inner, *shape[axis + 1 :]) if is_split else np.take(data, [0], axis)
            )
        else:
            x = b.Reshape(value, [*shape[:axis], outer, freed.old, inner, *shape[axis + 1 :]]) if is_split else value
            if freed.old > 1:
                x = b.Slice(x, [0], [1], [row_axis])
        if not cut:
            target = self.write_sizes([freed.symbol, *[1] * (len(x.dims) - row_axis - 1)])
            x = b.Expand(x, target)
        if is_split:
            size = self.expanded_shape(value, place, cut)[axis]
            x = b.Reshape(x, [*shape[:axis], size if isinstance(size, int) else -1, *shape[axis + 1 :]])
        return x

    def has_old_rows(self, value: Value, place: BatchAxis) -> bool:
        """Return whether a value has a static shape, and the size of its axis ``place`` is a multiple of the old batch."""
        if not is_static(value.type) or not isinstance(place.inner, int) or place.axis >= len(value.dims):
            return False
        size = static(value.shape)[place.axis]
        return size > 0 and size % (self.freed_of(place.name).old * place.inner) == 0

    def has_equal_rows(self, value: Value, place: BatchAxis) -> bool:
        """Return whether a value has equal elements for all old samples; True for a value that is not constant."""
        freed = self.freed_of(place.name)
        if freed.old == 1:
            return True
        data = constant_value(value)
        if data is None:
            return True
        assert isinstance(place.inner, int)
        split = data.reshape(*data.shape[: place.axis], -1, freed.old, place.inner, *data.shape[place.axis + 1 :])
        rows = np.moveaxis(split, place.axis + 1, 0)
        return all(np.array_equal(rows[0], row, equal_nan=row.dtype.kind == "f") for row in rows[1:])

    def rows_of(self, numbers: np.ndarray[Any, Any], place: BatchAxis) -> np.ndarray[Any, Any] | None:
        """Return the rows of the old samples as [batch, ..., outer, inner, ...]; None if the axis is no multiple of the batch."""
        old = self.freed_of(place.name).old
        if not isinstance(place.inner, int) or numbers.shape[place.axis] % (old * place.inner):
            return None
        split = numbers.reshape(*numbers.shape[: place.axis], -1, old, place.inner, *numbers.shape[place.axis + 1 :])
        return np.moveaxis(split, place.axis + 1, 0)

    def write_counts(self, freed: FreedSize, trailing: int, step: np.ndarray[Any, Any], dtype: dtypes.DType) -> Value:
        """Emit ``step`` times the index of each sample.

        The indices have the shape [batch, 1, ...] with ``trailing`` ones, and broadcast with ``step``.
        """
        b = self.b
        counts = b.Range(b.constant(np.int64(0)), b.Squeeze(self.write_size(freed), [0]), b.constant(np.int64(1)))
        counts = b.Reshape(counts, [-1, *[1] * trailing])
        if not (step == 1).all():
            counts = b.Multiply(counts, b.constant(np.array(step, np.int64)))
        return counts if dtype is dtypes.i64 else b.Cast(counts, to=dtype)

    def write_counted_rows(
        self, numbers: np.ndarray[Any, Any], place: BatchAxis, step: np.ndarray[Any, Any], dtype: dtypes.DType
    ) -> Value:
        """Emit integers whose row of sample i is the row of sample 0 plus ``i * step``; ``step`` broadcasts with a row."""
        b, freed, axis = self.b, self.freed_of(place.name), place.axis
        rows = self.rows_of(numbers, place)
        assert rows is not None
        row = np.expand_dims(rows[0], axis + 1).astype(dtype.numpy)
        first = b.constant(np.ascontiguousarray(row))
        if step.any():
            y = b.Add(first, self.write_counts(freed, row.ndim - axis - 2, step, dtype))
        else:
            y = b.Expand(first, self.write_sizes([freed.symbol, *[1] * (row.ndim - axis - 2)]))
        return b.Reshape(y, [*numbers.shape[:axis], -1, *numbers.shape[axis + 1 :]])

    def step_of(self, value: Value, place: BatchAxis) -> np.ndarray[Any, Any] | None:
        """Return the difference of consecutive rows of an integer constant, if it is equal for all samples; else None."""
        data = constant_value(value) if value.dtype.is_integer else None
        rows = None if data is None else self.rows_of(data.astype(np.int64), place)
        if rows is None or len(rows) < 2:
            return None
        steps = np.diff(rows, axis=0)
        return np.expand_dims(steps[0], place.axis + 1) if (steps == steps[0]).all() else None

    def _check_random(self, value: Value, place: BatchAxis) -> None:
        """Raise Restart if ``value`` depends on a random operator that must draw different numbers for each new sample."""
        seen: set[int] = set()
        stack = [value]
        while stack:
            node = stack.pop().node
            if node is None or id(node) in seen:
                continue
            seen.add(id(node))
            if draws(node.op, node.inputs) and self.key_of(node) not in self.forced:
                shape = node.outputs[0].shape
                if shape is not None and place.axis < len(shape) and shape[place.axis] == self.freed_of(place.name).old:
                    raise Restart(self.key_of(node), place.axis, place.name)
            stack += [x for x in node.inputs if x is not None]

    def replace_input(self, node: Node, index: int, value: Value) -> None:
        set_input(node, index, value)


def is_plain(value: Value | None) -> bool:
    """Return whether a value is a tensor of static shape."""
    return value is not None and is_static(value.type)

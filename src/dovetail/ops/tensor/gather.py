"""Elements read by index: Gather, GatherElements, GatherND."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from dovetail import arrays, symbolic
from dovetail.errors import EngineError, RuleError
from dovetail.ir.op import Op
from dovetail.ir.types import Shape, View, agree, axis_in
from dovetail.ops.builders import zeros_like
from dovetail.ops.shape_values import elements_of
from dovetail.ops.tensor.transpose_expand_tile import inverse

if TYPE_CHECKING:
    from dovetail.arrays import Array, Namespace
    from dovetail.ir.builder import Builder
    from dovetail.ir.graph import Value


def check_indices(indices: View, size: Any, natural: bool = False) -> None:
    """Hold known indices against the size of the axis. Raises RuleError [index.range]."""
    found = elements_of(indices)
    if found is None or not isinstance(size, int):
        return
    low = 0 if natural else -size
    for index in found:
        if isinstance(index, int) and not low <= index < size:
            raise RuleError("index.range", f"the index {index} is not in [{low}, {size - 1}]")


def check_smaller(shape: Shape, indices: Any, axis: int) -> None:
    """Indices of the rank of a tensor, no larger than it off the axis. Raises RuleError [shape.rank], [scatter.shape]."""
    if len(shape) != len(indices):
        raise RuleError("shape.rank", f"ranks {len(shape)}, {len(indices)} should be equal")
    for place, (size, count) in enumerate(zip(shape, indices, strict=True)):
        if place != axis and symbolic.less(size, count) is True:
            raise RuleError("scatter.shape", f"{count} indices along axis {place}, which has the size {size}")


class Gather(
    Op,
    sig="data: T, indices: I -> output: T",
    onnx=(
        "Gather-1(data, indices; axis=0 | bounds=natural)",
        "Gather-11,13(data, indices; axis=0 | bounds=error)",
    ),
    openvino=(
        "Gather-1(data, indices, axis | bounds=natural)",
        "Gather-7(data, indices, axis; batch_dims=0 | bounds=natural)",
        "Gather-8(data, indices, axis; batch_dims=0 | bounds=zero/error/natural)",
    ),
):
    """The slices of ``x`` at ``indices`` along ``axis``: x.shape[:axis] + indices.shape[batch_dims:] + x.shape[axis + 1:].

    The first ``batch_dims`` axes of both go together; a negative number counts from the rank of ``indices``. An index counts
    from the end when negative; ``bounds`` rules on others outside the axis: an ``error``, or ``zero`` in their place. With
    ``natural`` a negative one is an error too. Sources: ONNX Gather 1 (no negative indices), 11, 13; OpenVINO Gather-1, -7 (no
    negative indices), -8 (zero).
    """

    axis: int = 0
    batch_dims: int = 0
    bounds: str = "error"

    def validate(self) -> None:
        if self.bounds not in ("error", "zero", "natural"):
            raise RuleError("gather.bounds", f"{self.bounds!r} is none of error, zero, natural")

    def shape(self, data: View, indices: View) -> Any:
        if data.shape is None:
            return None
        if not data.shape:
            raise RuleError("shape.scalar", "a scalar has no axis to gather from")
        axis = axis_in(self.axis, len(data.shape))
        if self.bounds != "zero":
            check_indices(indices, data.shape[axis], natural=self.bounds == "natural")
        if indices.shape is None:
            return None
        count = self._batch(len(data.shape), len(indices.shape))
        batch = tuple(map(agree, data.shape[:count], indices.shape[:count]))
        return (*batch, *data.shape[count:axis], *indices.shape[count:], *data.shape[axis + 1 :])

    def _batch(self, rank: int, count: int) -> int:
        """The number of batch axes. Raises RuleError [gather.batch]."""
        axis = axis_in(self.axis, rank)
        batch = self.batch_dims + count if self.batch_dims < 0 else self.batch_dims
        if not 0 <= batch <= min(axis, count):
            raise RuleError("gather.batch", f"{self.batch_dims} batch axes of {rank} and {count}, gathered from axis {axis}")
        return batch

    def canonical(self, data: View, indices: View) -> Op:
        changes: dict[str, Any] = {}
        if data.shape is not None:
            changes["axis"] = axis_in(self.axis, len(data.shape))
            if indices.shape is not None:
                changes["batch_dims"] = self._batch(len(data.shape), len(indices.shape))
        found = elements_of(indices)
        if found is not None and all(symbolic.less_equal(0, index) is True for index in found):
            size = data.shape[axis_in(self.axis, len(data.shape))] if data.shape is not None else None
            inside = size is not None and all(symbolic.less(index, size) is True for index in found)
            if inside or self.bounds == "error":
                changes["bounds"] = "natural"
        return self.with_(**changes) if changes else self

    def evaluate(self, xp: Namespace, data: Array, indices: Array) -> Any:
        batch, axis = self._batch(data.ndim, indices.ndim), axis_in(self.axis, data.ndim)
        if self.bounds == "natural" and arrays.element(indices).kind != "uint" and bool(xp.any(indices < 0)):
            raise EngineError("array.index-range", "an index is negative")
        if self.bounds != "zero":
            return arrays.take(xp, data, indices, axis, batch)
        inside = (indices >= -data.shape[axis]) & (indices < data.shape[axis])
        if bool(xp.all(inside)):
            return arrays.take(xp, data, indices, axis, batch)
        if not data.shape[axis]:
            shape = (*data.shape[:axis], *indices.shape[batch:], *data.shape[axis + 1 :])
            return xp.zeros(shape, dtype=data.dtype)
        safe = xp.where(inside, indices, xp.zeros_like(indices))
        found = arrays.take(xp, data, safe, axis, batch)
        shape = (*indices.shape[:batch], *(1,) * (axis - batch), *indices.shape[batch:], *(1,) * (data.ndim - axis - 1))
        return xp.where(xp.reshape(inside, shape), found, xp.zeros_like(found))

    def vjp(self, b: Builder, g: Value, y: Value, data: Value, indices: Value) -> Any:
        from dovetail.ir.builder import shape_value
        from dovetail.ops.tensor.scatter import added_back

        axis = axis_in(self.axis, len(data.dims))
        batch = self._batch(len(data.dims), len(indices.dims))
        if self.bounds == "zero":
            g, indices = _inside(b, g, data, indices, axis, batch)
        if not batch:
            return [added_back(b, g, indices, axis, shape_value(b, data, [axis])), None]
        order, back = _front_orders(len(data.dims), len(indices.dims), axis, batch)
        base = b.Transpose(data, order)
        columns = _with_batch(b, b.Unsqueeze(indices, [-1]), base, batch)
        found = b.ScatterND(zeros_like(b, base), columns, b.Transpose(g, inverse(back)), reduction="add")
        return [b.Transpose(found, inverse(order)), None]

    def decompose(self, b: Builder, data: Value, indices: Value) -> Any:
        """With more indices allowed; with batch axes: by GatherND, the axis moved behind them."""
        if self.bounds == "natural":
            return b.add(self.with_(bounds="error"), data, indices)[0]
        if not self.batch_dims:
            return None
        axis, batch = axis_in(self.axis, len(data.dims)), self._batch(len(data.dims), len(indices.dims))
        if not batch:
            return b.Gather(data, indices, axis=axis, bounds=self.bounds)
        order, back = _front_orders(len(data.dims), len(indices.dims), axis, batch)
        front = data if axis == batch else b.Transpose(data, order)
        rows = b.GatherND(front, b.Unsqueeze(indices, [-1]), batch_dims=batch)
        return rows if axis == batch else b.Transpose(rows, back)


def _front_orders(rank: int, count: int, axis: int, batch: int) -> tuple[list[int], list[int]]:
    """The axes of ``x`` with the gathered one moved behind the batch, and the way back for the result of GatherND."""
    order = [*range(batch), axis, *range(batch, axis), *range(axis + 1, rank)]
    rest = count - batch
    between = [count + place for place in range(axis - batch)]
    back = [*range(batch), *between, *range(batch, batch + rest), *range(count + axis - batch, rank - 1 + rest)]
    return order, back


def _inside(b: Builder, g: Any, x: Value, indices: Value, axis: int, batch: int) -> tuple[Any, Any]:
    """The gradient without the slices that no index made, and indices that are all inside."""
    size = b.Cast(b.Gather(b.Shape(x), b.constant(np.array(axis)), axis=0), to=indices.dtype)
    zero = b.constant(np.zeros((), dtype=indices.dtype.numpy), indices.dtype)
    inside = b.And(b.GreaterEqual(indices, b.Subtract(zero, size)), b.Less(indices, size))
    rank, count = len(x.dims), len(indices.dims)
    new = [*range(batch, axis), *range(axis + count - batch, rank - 1 + count - batch)]
    mask = b.Unsqueeze(inside, new) if new else inside
    nothing = b.constant(np.zeros((), dtype=g.dtype.numpy), g.dtype)
    return b.Where(mask, g, nothing), b.Where(inside, indices, zero)


def _with_batch(b: Builder, indices: Value, x: Value, batch: int) -> Any:
    """Tuples of coordinates behind the first ``batch`` axes, with the coordinates of these axes before them."""
    from dovetail.ir.builder import shape_value
    from dovetail.ops.shape_values import indices_of_axis, join_sizes

    rank = len(indices.dims)
    shape = join_sizes(b, [shape_value(b, indices, range(rank - 1)), 1])
    columns = []
    for axis in range(batch):
        places = b.Cast(indices_of_axis(b, x, axis), to=indices.dtype) if indices.dtype != "i64" else indices_of_axis(b, x, axis)
        upright = b.Unsqueeze(places, [place for place in range(rank) if place != axis])
        columns.append(b.Expand(upright, shape))
    return b.Concat(*columns, indices, axis=-1)


class GatherElements(
    Op,
    sig="data: T, indices: I -> output: T",
    onnx="GatherElements-11,13(data, indices; axis=0)",
    openvino="GatherElements-6(data, indices; axis)",
):
    """``x`` read at ``indices`` along ``axis`` and at the place itself on every other axis; the result has the shape of
    ``indices``.

    Off the axis ``indices`` is no larger than ``x``. Indices count from the end when negative; others outside the axis are an
    error. Sources: ONNX GatherElements 11, 13; OpenVINO GatherElements-6.
    """

    axis: int = 0

    def shape(self, data: View, indices: View) -> Any:
        if data.shape is None:
            return indices.shape
        if not data.shape:
            raise RuleError("shape.scalar", "a scalar has no axis to gather from")
        axis = axis_in(self.axis, len(data.shape))
        check_indices(indices, data.shape[axis])
        if indices.shape is not None:
            check_smaller(data.shape, indices.shape, axis)
        return indices.shape

    def canonical(self, data: View, indices: View) -> Op:
        return self if data.shape is None else GatherElements(axis_in(self.axis, len(data.shape)))

    def evaluate(self, xp: Namespace, data: Array, indices: Array) -> Any:
        return arrays.take_along(xp, data, indices, self.axis)

    def vjp(self, b: Builder, g: Value, y: Value, data: Value, indices: Value) -> Any:
        return [b.ScatterElements(zeros_like(b, data), indices, g, axis=self.axis, reduction="add"), None]


def check_tuples(shape: Shape, indices: View, batch: int) -> int | None:
    """How many coordinates the last axis of ``indices`` holds. Raises RuleError [index.tuples], [index.range]."""
    if not shape or not indices.shape:
        raise RuleError("shape.scalar", "scalars have no axes to index")
    depth = indices.shape[-1]
    if not isinstance(depth, int):
        return None
    if not depth <= len(shape) - batch:
        raise RuleError("index.tuples", f"{depth} coordinates for {len(shape) - batch} axes")
    if indices.value is not None:
        columns = np.asarray(indices.value)
        for place in range(depth):
            size = shape[batch + place]
            known = [int(index) for index in columns[..., place].reshape(-1).tolist() if not isinstance(index, symbolic.Dim)]
            if isinstance(size, int) and any(not -size <= index < size for index in known):
                wrong = next(index for index in known if not -size <= index < size)
                raise RuleError("index.range", f"the index {wrong} is not in [{-size}, {size - 1}]")
    return depth


class GatherND(
    Op,
    sig="data: T, indices: I -> output: T",
    onnx=("GatherND-11(data, indices)", "GatherND-12,13(data, indices; batch_dims=0)"),
    openvino=("GatherND-5(data, indices; batch_dims=0)", "GatherND-8(data, indices; batch_dims=0)"),
):
    """The slices ``x[indices[i]]``, where the last axis of ``indices`` holds k coordinates of the axes behind the first
    ``batch_dims``.

    The shape is indices.shape[:-1] + x.shape[batch_dims + k:]; the batch axes of both are equal. Coordinates count from the end
    when negative; others outside are an error. Sources: ONNX GatherND 11 to 13; OpenVINO GatherND-5 (at most one batch axis),
    -8.
    """

    batch_dims: int = 0

    def shape(self, data: View, indices: View) -> Any:
        batch = self.batch_dims
        if data.shape is None or indices.shape is None:
            return None
        if not 0 <= batch < max(min(len(data.shape), len(indices.shape)), 1):
            raise RuleError("gather.batch", f"{batch} batch axes of {len(data.shape)} and {len(indices.shape)}")
        depth = check_tuples(data.shape, indices, batch)
        if depth is None:
            return None
        common = tuple(map(agree, data.shape[:batch], indices.shape[:batch]))
        return (*common, *indices.shape[batch:-1], *data.shape[batch + depth :])

    def evaluate(self, xp: Namespace, data: Array, indices: Array) -> Any:
        return arrays.gather_nd(xp, data, indices, self.batch_dims)

    def vjp(self, b: Builder, g: Value, y: Value, data: Value, indices: Value) -> Any:
        if self.batch_dims:
            indices = _with_batch(b, indices, data, self.batch_dims)
        return [b.ScatterND(zeros_like(b, data), indices, g, reduction="add"), None]

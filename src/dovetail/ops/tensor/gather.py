"""Gather, GatherElements and GatherND."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from dovetail.errors import RuleError
from dovetail.ir import arrays, symbolic
from dovetail.ir.builder import shape_value
from dovetail.ir.op import Op
from dovetail.ir.types import Shape, Size, View, agree_shapes, axis_in
from dovetail.ops.builders import zeros_like
from dovetail.ops.shape_values import elements_of, indices_of_axis, join_sizes
from dovetail.ops.tensor.transpose_expand_tile import inverse_of

if TYPE_CHECKING:
    from dovetail.ir.arrays import Array, Namespace
    from dovetail.ir.builder import Builder
    from dovetail.ir.graph import Value


def check_indices(indices: View, size: Size | None, natural: bool = False) -> None:
    """Check known indices against the size of the axis; ``natural`` refuses negative indices. Raises RuleError [index.range]."""
    result = elements_of(indices)
    if result is None or not isinstance(size, int):
        return
    low = 0 if natural else -size
    for index in result:
        if isinstance(index, int) and not low <= index < size:
            raise RuleError("index.range", f"indices must be in [{low}, {size - 1}], got {index}")


def check_indices_shape(shape: Shape, indices: Shape, axis: int) -> None:
    """Check that ``indices`` has the rank of the data, and no larger sizes along axes other than ``axis``.

    Raises RuleError [shape.rank], [shape.disagree].
    """
    if len(shape) != len(indices):
        raise RuleError("shape.rank", f"ranks of data ({len(shape)}) and indices ({len(indices)}) must be equal")
    for index, (size, count) in enumerate(zip(shape, indices, strict=True)):
        if index != axis and symbolic.less(size, count) is True:
            raise RuleError("shape.disagree", f"indices must not be larger than axis {index} (size {size}), got {count}")


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
    """Gather slices of ``data`` at ``indices`` along ``axis``.

    The output shape is data.shape[:axis] + indices.shape[batch_dims:] + data.shape[axis + 1:]. The first ``batch_dims`` axes of
    ``data`` and ``indices`` are batch axes; a negative ``batch_dims`` counts from the rank of ``indices``. A negative index
    counts from the end. An index outside the axis is an error with ``bounds`` ``error``, and gives elements 0 with ``zero``.
    With ``natural`` a negative index is an error too. Sources: ONNX Gather 1 (no negative indices), 11, 13; OpenVINO Gather-1,
    -7 (no negative indices), -8 (zero).
    """

    moves_elements = True

    axis: int = 0
    batch_dims: int = 0
    bounds: str = "error"

    def validate(self) -> None:
        if self.bounds not in ("error", "zero", "natural"):
            raise RuleError("attribute.value", f"bounds must be error, zero or natural, got {self.bounds!r}")

    @property
    def fills_with_zeros(self) -> bool:
        return self.bounds == "zero"

    def shape(self, data: View, indices: View) -> Any:
        if data.shape is None:
            return None
        if not data.shape:
            raise RuleError("shape.rank", "data must have a rank of at least 1, got a scalar")
        axis = axis_in(self.axis, len(data.shape))
        if self.bounds != "zero":
            check_indices(indices, data.shape[axis], natural=self.bounds == "natural")
        if indices.shape is None:
            return None
        count = self._batch(len(data.shape), len(indices.shape))
        batch = agree_shapes(data.shape[:count], indices.shape[:count], "data", "indices")
        return (*batch, *data.shape[count:axis], *indices.shape[count:], *data.shape[axis + 1 :])

    def _batch(self, rank: int, count: int) -> int:
        """Return the number of batch axes. Raises RuleError [attribute.range]."""
        axis = axis_in(self.axis, rank)
        batch = self.batch_dims + count if self.batch_dims < 0 else self.batch_dims
        if not 0 <= batch <= min(axis, count):
            raise RuleError(
                "attribute.range",
                f"batch_dims must be at most the axis ({axis}) and the rank of the indices ({count}), got {self.batch_dims}",
            )
        return batch

    def canonical(self, data: View, indices: View) -> Op:
        changes: dict[str, Any] = {}
        if data.shape is not None:
            changes["axis"] = axis_in(self.axis, len(data.shape))
            if indices.shape is not None:
                changes["batch_dims"] = self._batch(len(data.shape), len(indices.shape))
        result = elements_of(indices)
        if result is not None and all(symbolic.less_equal(0, index) is True for index in result):
            size = data.shape[axis_in(self.axis, len(data.shape))] if data.shape is not None else None
            inside = size is not None and all(symbolic.less(index, size) is True for index in result)
            if inside or self.bounds == "error":
                changes["bounds"] = "natural"
        return self.with_(**changes) if changes else self

    def evaluate(self, xp: Namespace, data: Array, indices: Array) -> Any:
        batch, axis = self._batch(data.ndim, indices.ndim), axis_in(self.axis, data.ndim)
        if self.bounds == "natural" and arrays.element(indices).kind != "uint":
            arrays.refuse_elements(xp, indices < 0, "index.range", "indices must not be negative")
        if self.bounds != "zero":
            return arrays.take(xp, data, indices, axis, batch)
        inside = (indices >= -data.shape[axis]) & (indices < data.shape[axis])
        if not arrays.is_deferring(xp) and bool(xp.all(inside)):
            return arrays.take(xp, data, indices, axis, batch)
        if not data.shape[axis]:
            shape = (*data.shape[:axis], *indices.shape[batch:], *data.shape[axis + 1 :])
            return xp.zeros(shape, dtype=data.dtype)
        safe = xp.where(inside, indices, xp.zeros_like(indices))
        result = arrays.take(xp, data, safe, axis, batch)
        shape = (*indices.shape[:batch], *(1,) * (axis - batch), *indices.shape[batch:], *(1,) * (data.ndim - axis - 1))
        return xp.where(xp.reshape(inside, shape), result, xp.zeros_like(result))

    def vjp(self, b: Builder, g: Value, y: Value, data: Value, indices: Value) -> Any:
        from dovetail.ops.tensor.scatter import gradient_of_gather

        axis = axis_in(self.axis, len(data.dims))
        batch = self._batch(len(data.dims), len(indices.dims))
        if self.bounds == "zero":
            g, indices = _mask_out_of_range(b, g, data, indices, axis, batch)
        if not batch:
            return [gradient_of_gather(b, g, indices, axis, shape_value(b, data, [axis])), None]
        order, back = _batch_permutations(len(data.dims), len(indices.dims), axis, batch)
        base = b.Transpose(data, order)
        columns = _with_batch_coordinates(b, b.Unsqueeze(indices, [-1]), base, batch)
        result = b.ScatterND(zeros_like(b, base), columns, b.Transpose(g, inverse_of(back)), reduction="add")
        return [b.Transpose(result, inverse_of(order)), None]

    def decompose(self, b: Builder, data: Value, indices: Value) -> Any:
        """Lower ``bounds`` natural to ``bounds`` error, and batch axes to GatherND with ``axis`` moved behind the batch axes."""
        if self.bounds == "natural":
            return b.add(self.with_(bounds="error"), data, indices)[0]
        if not self.batch_dims:
            return None
        axis, batch = axis_in(self.axis, len(data.dims)), self._batch(len(data.dims), len(indices.dims))
        if not batch:
            return b.Gather(data, indices, axis=axis, bounds=self.bounds)
        order, back = _batch_permutations(len(data.dims), len(indices.dims), axis, batch)
        front = data if axis == batch else b.Transpose(data, order)
        rows = b.GatherND(front, b.Unsqueeze(indices, [-1]), batch_dims=batch)
        return rows if axis == batch else b.Transpose(rows, back)


def _batch_permutations(rank: int, count: int, axis: int, batch: int) -> tuple[list[int], list[int]]:
    """Return a permutation of ``data`` that moves ``axis`` behind the batch axes, and one for the result of GatherND."""
    order = [*range(batch), axis, *range(batch, axis), *range(axis + 1, rank)]
    rest = count - batch
    between = [count + index for index in range(axis - batch)]
    back = [*range(batch), *between, *range(batch, batch + rest), *range(count + axis - batch, rank - 1 + rest)]
    return order, back


def _mask_out_of_range(b: Builder, g: Value, x: Value, indices: Value, axis: int, batch: int) -> tuple[Any, Any]:
    """Return the gradient with 0 for indices out of range, and the indices with 0 in place of indices out of range."""
    size = b.Cast(b.Gather(b.Shape(x), b.constant(np.array(axis)), axis=0), to=indices.dtype)
    zero = b.constant(np.zeros((), dtype=indices.dtype.numpy), indices.dtype)
    inside = b.And(b.GreaterEqual(indices, b.Subtract(zero, size)), b.Less(indices, size))
    rank, count = len(x.dims), len(indices.dims)
    new = [*range(batch, axis), *range(axis + count - batch, rank - 1 + count - batch)]
    mask = b.Unsqueeze(inside, new) if new else inside
    zero_slices = b.constant(np.zeros((), dtype=g.dtype.numpy), g.dtype)
    return b.Where(mask, g, zero_slices), b.Where(inside, indices, zero)


def _with_batch_coordinates(b: Builder, indices: Value, x: Value, batch: int) -> Any:
    """Prepend the coordinates of the first ``batch`` axes to the coordinate tuples of ``indices``."""
    rank = len(indices.dims)
    shape = join_sizes(b, [shape_value(b, indices, range(rank - 1)), 1])
    columns = []
    for axis in range(batch):
        positions = (
            b.Cast(indices_of_axis(b, x, axis), to=indices.dtype) if indices.dtype != "i64" else indices_of_axis(b, x, axis)
        )
        column = b.Unsqueeze(positions, [index for index in range(rank) if index != axis])
        columns.append(b.Expand(column, shape))
    return b.Concat(*columns, indices, axis=-1)


class GatherElements(
    Op,
    sig="data: T, indices: I -> output: T",
    onnx="GatherElements-11,13(data, indices; axis=0)",
    openvino="GatherElements-6(data, indices; axis)",
):
    """Gather single elements of ``data``: along ``axis`` at ``indices``, along the other axes at the position of the index.

    The result has the shape of ``indices``, which is no larger than ``data`` along the other axes. Negative indices count from
    the end; an index outside the axis is an error. Sources: ONNX GatherElements 11, 13; OpenVINO GatherElements-6.
    """

    moves_elements = True

    axis: int = 0

    def shape(self, data: View, indices: View) -> Any:
        if data.shape is None:
            return indices.shape
        if not data.shape:
            raise RuleError("shape.rank", "data must have a rank of at least 1, got a scalar")
        axis = axis_in(self.axis, len(data.shape))
        check_indices(indices, data.shape[axis])
        if indices.shape is not None:
            check_indices_shape(data.shape, indices.shape, axis)
        return indices.shape

    def canonical(self, data: View, indices: View) -> Op:
        return self if data.shape is None else GatherElements(axis_in(self.axis, len(data.shape)))

    def evaluate(self, xp: Namespace, data: Array, indices: Array) -> Any:
        return arrays.take_along(xp, data, indices, self.axis)

    def vjp(self, b: Builder, g: Value, y: Value, data: Value, indices: Value) -> Any:
        return [b.ScatterElements(zeros_like(b, data), indices, g, axis=self.axis, reduction="add"), None]


def check_tuples(shape: Shape, indices: View, batch: int) -> int | None:
    """Return the number of coordinates in the last axis of ``indices``, or None. Raises RuleError [shape.rank], [index.range]."""
    if not shape or not indices.shape:
        raise RuleError("shape.rank", "data and indices must have a rank of at least 1, got a scalar")
    depth = indices.shape[-1]
    if not isinstance(depth, int):
        return None
    if not depth <= len(shape) - batch:
        raise RuleError(
            "index.range", f"the number of coordinates ({depth}) must not exceed the number of axes ({len(shape) - batch})"
        )
    if indices.value is not None:
        columns = np.asarray(indices.value)
        for position in range(depth):
            size = shape[batch + position]
            known = [int(index) for index in columns[..., position].reshape(-1).tolist() if not isinstance(index, symbolic.Dim)]
            if isinstance(size, int) and any(not -size <= index < size for index in known):
                wrong = next(index for index in known if not -size <= index < size)
                raise RuleError("index.range", f"indices must be in [{-size}, {size - 1}], got {wrong}")
    return depth


class GatherND(
    Op,
    sig="data: T, indices: I -> output: T",
    onnx=("GatherND-11(data, indices)", "GatherND-12,13(data, indices; batch_dims=0)"),
    openvino=("GatherND-5(data, indices; batch_dims=0)", "GatherND-8(data, indices; batch_dims=0)"),
):
    """Gather slices of ``data``: the last axis of ``indices`` has k coordinates for the k axes after ``batch_dims`` batch axes.

    The output shape is indices.shape[:-1] + data.shape[batch_dims + k:]; the batch axes of ``data`` and ``indices`` have equal
    sizes. Negative coordinates count from the end; a coordinate outside its axis is an error. Sources: ONNX GatherND 11 to 13;
    OpenVINO GatherND-5 (at most one batch axis), -8.
    """

    moves_elements = True

    batch_dims: int = 0

    def shape(self, data: View, indices: View) -> Any:
        batch = self.batch_dims
        if data.shape is None or indices.shape is None:
            return None
        if not 0 <= batch < max(min(len(data.shape), len(indices.shape)), 1):
            raise RuleError(
                "attribute.range", f"batch_dims must be below the ranks ({len(data.shape)} and {len(indices.shape)}), got {batch}"
            )
        depth = check_tuples(data.shape, indices, batch)
        if depth is None:
            return None
        common = agree_shapes(data.shape[:batch], indices.shape[:batch], "data", "indices")
        return (*common, *indices.shape[batch:-1], *data.shape[batch + depth :])

    def evaluate(self, xp: Namespace, data: Array, indices: Array) -> Any:
        return arrays.gather_nd(xp, data, indices, self.batch_dims)

    def vjp(self, b: Builder, g: Value, y: Value, data: Value, indices: Value) -> Any:
        if self.batch_dims:
            indices = _with_batch_coordinates(b, indices, data, self.batch_dims)
        return [b.ScatterND(zeros_like(b, data), indices, g, reduction="add"), None]

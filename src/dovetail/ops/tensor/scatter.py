"""ScatterElements, ScatterND, ScatterUpdate and TensorScatter."""

from __future__ import annotations

import operator
from collections.abc import Callable, Iterable
from math import prod
from typing import TYPE_CHECKING, Any, TypeAlias

import numpy as np

from dovetail.errors import EngineError, RuleError
from dovetail.ir import arrays, dtypes, symbolic
from dovetail.ir.builder import shape_value
from dovetail.ir.graph import Operand
from dovetail.ir.op import Op
from dovetail.ir.types import Unknown, View, agree, agree_shapes, axis_in
from dovetail.ops.builders import zeros_like
from dovetail.ops.elementwise.broadcast import scalar_like
from dovetail.ops.shape_values import join_sizes
from dovetail.ops.tensor.gather import check_indices, check_indices_shape, check_tuples
from dovetail.ops.tensor.transpose_expand_tile import inverse_of

if TYPE_CHECKING:
    from dovetail.ir.arrays import Array, Namespace
    from dovetail.ir.builder import Builder
    from dovetail.ir.graph import Value

_TO_16 = "reduction~{none:replace,add:add,mul:mul}=none"
_TO_18 = "reduction~{none:replace,add:add,mul:mul,max:max,min:min}=none"
_OPENVINO = "reduction~{none:replace,sum:add,prod:mul,max:max,min:min%s}=none"


ScatterFunction: TypeAlias = Callable[[Any, Any, str], Any]
"""Function ``scatter(data, updates, reduction)`` that scatters ``updates`` into ``data`` at the operator's indices."""
GatherFunction: TypeAlias = Callable[[Any], Any]
"""Function ``gather(data)`` that returns the elements of ``data`` at the operator's indices."""


class ScatterOp(Op):
    """ScatterOp is the base of operators that return the first input with some elements changed."""

    rounds_half_once = False
    cache_ports = ((0, 0),)


class _ReducingScatter(ScatterOp):
    """_ReducingScatter is the base of scatter operators whose ``reduction`` combines updates with existing elements."""

    reduction: str = "replace"

    def validate(self) -> None:
        if self.reduction not in ("replace", "add", "mul", "min", "max", "mean"):
            raise RuleError("attribute.value", f"reduction must be replace, add, mul, min, max or mean, got {self.reduction!r}")

    def scatter_sizes(self, x: Array, rows: Iterable[tuple[Any, ...]], updates: Array) -> Any:
        """Scatter into shape values, one update after the other. Raises Inexact unless ``reduction`` is ``replace``."""
        if self.reduction != "replace":
            raise symbolic.Inexact(f"the reduction {self.reduction} of dimensions")
        result = np.array(x, dtype=object)
        for row, update in zip(rows, updates, strict=True):
            result[tuple(map(operator.index, row))] = update
        return symbolic.xp.asarray(result)

    def gradients(
        self,
        b: Builder,
        g: Value,
        y: Value,
        x: Value,
        updates: Value,
        scatter: ScatterFunction,
        gather: GatherFunction,
        initial: bool = True,
    ) -> tuple[Any, Any]:
        """Return the gradients of ``x`` and ``updates``; for min and max equal elements share the gradient."""
        zero_updates = zeros_like(b, updates)
        untouched = g if initial and self.reduction != "replace" else scatter(g, zero_updates, "replace")
        match self.reduction:
            case "replace" | "add":
                return untouched, gather(g)
            case "mean":
                counts = scatter(
                    b.Add(zeros_like(b, x), scalar_like(b, float(initial), x)), b.Add(zero_updates, scalar_like(b, 1, x)), "add"
                )
                share = b.Divide(g, b.Maximum(counts, scalar_like(b, 1, x)))
                return (share if initial else untouched), gather(share)
            case "mul":
                return self._product_gradients(b, g, x, updates, scatter, gather, initial)
        x_mask, updates_mask = (b.Cast(b.Equal(*pair), to=x.dtype) for pair in ((x, y), (updates, gather(y))))
        x_mask = x_mask if initial else scatter(x_mask, zero_updates, "replace")
        share = b.Divide(g, scatter(x_mask, updates_mask, "add"))
        return b.Multiply(share, x_mask), b.Multiply(gather(share), updates_mask)

    def _product_gradients(
        self, b: Builder, g: Value, x: Value, updates: Value, scatter: ScatterFunction, gather: GatherFunction, initial: bool
    ) -> tuple[Any, Any]:
        """Return the gradients for the reduction ``mul``: ``g`` times the product of the other factors.

        For a factor that is not 0, the product of the other factors is the full product divided by the factor. For the only
        factor of 0, it is the product of the factors that are not 0.
        """
        zero, one = scalar_like(b, 0, x), scalar_like(b, 1, x)
        first = x if initial else scatter(x, b.Add(zeros_like(b, updates), one), "replace")
        is_zero = [b.Equal(item, zero) for item in (first, updates)]
        zeros = scatter(b.Cast(is_zero[0], to=x.dtype), b.Cast(is_zero[1], to=x.dtype), "add")
        factors = [b.Where(item, one, value) for item, value in zip(is_zero, (first, updates), strict=True)]
        product = scatter(factors[0], factors[1], "mul")
        single = b.Where(b.Equal(zeros, one), b.Multiply(g, product), zero)
        other = b.Where(b.Equal(zeros, zero), b.Multiply(g, product), zero)
        x_gradient, updates_gradient = (
            b.Where(item, alone, b.Divide(others, factor))
            for item, alone, others, factor in (
                (is_zero[0], single, other, factors[0]),
                (is_zero[1], gather(single), gather(other), factors[1]),
            )
        )
        return (x_gradient if initial else scatter(x_gradient, zeros_like(b, updates), "replace")), updates_gradient


class ScatterElements(
    _ReducingScatter,
    sig="data: T, indices: I, updates: T -> output: T",
    onnx=(
        "Scatter-9,11(data, indices, updates; axis=0)",
        "ScatterElements-11,13(data, indices, updates; axis=0)",
        f"ScatterElements-16(data, indices, updates; axis=0, {_TO_16})",
        f"ScatterElements-18(data, indices, updates; axis=0, {_TO_18})",
    ),
    openvino=(
        "ScatterElementsUpdate-3(data, indices, updates, axis)",
        f"ScatterElementsUpdate-12(data, indices, updates, axis; {_OPENVINO % ',mean:mean'}, use_init_val=true)",
    ),
):
    """Scatter ``updates`` into ``data``: along ``axis`` to ``indices``, along the other axes to the update's position.

    ``indices`` has the rank of ``data`` and the shape of ``updates``, and is no larger than ``data`` along the other axes.
    Negative indices count from the end; an index outside the axis is an error. ``reduction`` combines the updates of a position,
    one after the other, with the existing element. With ``replace`` the last update is kept; ``mean`` is the mean of the existing
    element and all updates, for integers rounded down. Without ``use_init_val`` an updated position ignores the existing element.
    Sources: ONNX Scatter 9, 11, ScatterElements 11 to 18; OpenVINO ScatterElementsUpdate-3, -12.
    """

    axis: int = 0
    reduction: str = "replace"
    use_init_val: bool = True

    def shape(self, data: View, indices: View, updates: View) -> Any:
        shape = agree_shapes(indices.shape, updates.shape, "indices", "updates")
        if data.shape is None:
            return None
        axis = axis_in(self.axis, len(data.shape))
        if shape is not None:
            check_indices_shape(data.shape, shape, axis)
        check_indices(indices, data.shape[axis])
        return data.shape

    def canonical(self, data: View, indices: View, updates: View) -> Op:
        changes: dict[str, Any] = {} if data.shape is None else {"axis": axis_in(self.axis, len(data.shape))}
        if self.reduction == "replace":
            changes["use_init_val"] = True
        return self.with_(**changes)

    def evaluate(self, xp: Namespace, data: Array, indices: Array, updates: Array) -> Any:
        if xp is symbolic.xp:
            axis = axis_in(self.axis, data.ndim)
            rows = ((*position[:axis], index, *position[axis + 1 :]) for position, index in np.ndenumerate(np.asarray(indices)))
            return self.scatter_sizes(data, rows, np.asarray(updates).reshape(-1))
        if self.reduction == "replace" or (self.use_init_val and self.reduction != "mean"):
            return arrays.scatter_along(xp, data, indices, updates, self.axis, _reduction_name(self.reduction))
        ones, zeros = xp.ones_like(updates), xp.zeros_like(data)
        counts = arrays.scatter_along(xp, zeros, indices, ones, self.axis, "add")
        if self.reduction != "mean":
            base = xp.where(counts != 0, _neutral_like(xp, data, self.reduction), data)
            return arrays.scatter_along(xp, base, indices, updates, self.axis, self.reduction)
        if self.use_init_val:
            counts = counts + xp.ones_like(counts)
        base = data if self.use_init_val else xp.where(counts != 0, zeros, data)
        total = arrays.scatter_along(xp, base, indices, updates, self.axis, "add")
        safe = xp.where(counts != 0, counts, xp.ones_like(counts))
        integer = arrays.element(data).is_integer
        return arrays.floor_divide(xp, total, safe) if integer else xp.where(counts != 0, total / safe, total)

    def vjp(self, b: Builder, g: Value, y: Value, data: Value, indices: Value, updates: Value) -> Any:
        def scatter(base: Value, values: Value, reduction: str) -> Any:
            return b.ScatterElements(base, indices, values, axis=self.axis, reduction=reduction)

        data_gradient, updates_gradient = self.gradients(
            b, g, y, data, updates, scatter, lambda v: b.GatherElements(v, indices, axis=self.axis), self.use_init_val
        )
        return [data_gradient, None, updates_gradient]

    def decompose(self, b: Builder, data: Value, indices: Value, updates: Value) -> Any:
        """Replace ignored elements by the reduction's neutral element; for ``mean`` divide the sum by the number of elements."""
        if self.reduction == "replace" or (self.use_init_val and self.reduction != "mean"):
            return None

        def scatter(base: Value, values: Value, reduction: str) -> Any:
            return b.ScatterElements(base, indices, values, axis=self.axis, reduction=reduction)

        if self.reduction != "mean":
            neutral = b.constant(np.array(_neutral_element(data.dtype, self.reduction)).astype(data.dtype.numpy), data.dtype)
            return scatter(scatter(data, b.Expand(neutral, shape_value(b, updates)), "replace"), updates, self.reduction)
        zero_updates = zeros_like(b, updates)
        counts = scatter(zeros_like(b, data), b.Add(zero_updates, scalar_like(b, 1, data)), "add")
        counts = b.Add(counts, scalar_like(b, 1, data)) if self.use_init_val else b.Maximum(counts, scalar_like(b, 1, data))
        total = scatter(data if self.use_init_val else scatter(data, zero_updates, "replace"), updates, "add")
        return b.Divide(total, counts, m_pythondiv=data.dtype.is_integer)


def _reduction_name(reduction: str) -> str:
    """Return the name of a reduction in ``arrays``."""
    return "none" if reduction == "replace" else reduction


def _neutral_like(xp: Namespace, x: Array, reduction: str) -> Any:
    """Return the neutral element of a reduction, as an array of the shape of ``x``."""
    if reduction in ("add", "mul"):
        return xp.zeros_like(x) if reduction == "add" else xp.ones_like(x)
    return xp.full_like(x, _neutral_element(arrays.element(x), reduction))


def _neutral_element(kind: dtypes.DType, reduction: str) -> Any:
    """Return the neutral element of a reduction."""
    if reduction in ("add", "mul"):
        return int(reduction == "mul")
    if kind == "boolean":
        return reduction == "min"
    if kind.is_integer:
        return kind.range()[reduction == "min"]
    return np.inf if reduction == "min" else -np.inf


class ScatterND(
    _ReducingScatter,
    sig="data: T, indices: I, updates: T -> output: T",
    onnx=(
        "ScatterND-11,13(data, indices, updates)",
        f"ScatterND-16(data, indices, updates; {_TO_16})",
        f"ScatterND-18(data, indices, updates; {_TO_18})",
    ),
    openvino=(
        "ScatterNDUpdate-3,4(data, indices, updates)",
        f"ScatterNDUpdate-15(data, indices, updates; {_OPENVINO % ''})",
    ),
):
    """Scatter the slices ``updates[i]`` into ``data[indices[i]]``.

    The last axis of ``indices`` holds k coordinates, for the first k axes of ``data``; ``updates`` has the shape
    indices.shape[:-1] + data.shape[k:]. Negative coordinates and ``reduction`` are defined as in ScatterElements. Sources: ONNX
    ScatterND 11 to 18; OpenVINO ScatterNDUpdate-3, -15.
    """

    def shape(self, data: View, indices: View, updates: View) -> Any:
        if data.shape is None or indices.shape is None:
            return data.shape
        depth = check_tuples(data.shape, indices, 0)
        if depth is not None:
            expected = (*indices.shape[:-1], *data.shape[depth:])
            agree_shapes(expected, updates.shape, "the shape that indices and data give", "updates")
        return data.shape

    def evaluate(self, xp: Namespace, data: Array, indices: Array, updates: Array) -> Any:
        if xp is symbolic.xp:
            table = np.asarray(indices)
            rows = (tuple(table[index].tolist()) for index in np.ndindex(table.shape[:-1]))
            return self.scatter_sizes(
                data, rows, np.asarray(updates).reshape((prod(table.shape[:-1]), *data.shape[table.shape[-1] :]))
            )
        return arrays.scatter_nd(xp, data, indices, updates, _reduction_name(self.reduction))

    def vjp(self, b: Builder, g: Value, y: Value, data: Value, indices: Value, updates: Value) -> Any:
        def scatter(base: Value, values: Value, reduction: str) -> Any:
            return b.ScatterND(base, indices, values, reduction=reduction)

        data_gradient, updates_gradient = self.gradients(
            b, g, y, data, updates, scatter, lambda values: b.GatherND(values, indices)
        )
        return [data_gradient, None, updates_gradient]


class ScatterUpdate(
    ScatterOp,
    sig="data: T, indices: I, updates: T -> output: T",
    openvino="ScatterUpdate-3(data, indices, updates, axis)",
):
    """Replace the slice of ``data`` at index ``indices[i]`` along ``axis`` by ``updates[..., i, ...]``.

    Indices are in [0, size - 1]. ``updates`` has the shape data.shape[:axis] + indices.shape + data.shape[axis + 1:]. Source:
    OpenVINO ScatterUpdate-3.
    """

    axis: int = 0

    def shape(self, data: View, indices: View, updates: View) -> Any:
        if data.shape is None or indices.shape is None:
            return data.shape
        if not data.shape:
            raise RuleError("shape.rank", "data must have a rank of at least 1, got a scalar")
        axis = axis_in(self.axis, len(data.shape))
        expected = (*data.shape[:axis], *indices.shape, *data.shape[axis + 1 :])
        agree_shapes(expected, updates.shape, "the shape that indices and data give", "updates")
        check_indices(indices, data.shape[axis], natural=True)
        return data.shape

    def canonical(self, data: View, indices: View, updates: View) -> Op:
        return self if data.shape is None else ScatterUpdate(axis_in(self.axis, len(data.shape)))

    def _orders(self, rank: int, count: int) -> tuple[list[int], list[int]]:
        """Return two permutations: one moves ``axis`` of ``data`` to the front, the other the index axes of ``updates``."""
        axis = axis_in(self.axis, rank)
        data_order = [axis, *range(axis), *range(axis + 1, rank)]
        updates_order = [*range(axis, axis + count), *range(axis), *range(axis + count, rank - 1 + count)]
        return data_order, updates_order

    def evaluate(self, xp: Namespace, data: Array, indices: Array, updates: Array) -> Any:
        data_order, updates_order = self._orders(data.ndim, indices.ndim)
        arrays.refuse_elements(xp, indices < 0, "index.range", "indices must not be negative")
        front = xp.permute_dims(data, tuple(data_order))
        result = arrays.scatter_nd(xp, front, indices[..., None], xp.permute_dims(updates, tuple(updates_order)))
        return xp.permute_dims(result, tuple(inverse_of(data_order)))

    def vjp(self, b: Builder, g: Value, y: Value, data: Value, indices: Value, updates: Value) -> Any:
        data_gradient = b.ScatterUpdate(g, indices, zeros_like(b, updates), axis=self.axis)
        return [data_gradient, None, b.Gather(g, indices, axis=self.axis)]

    def decompose(self, b: Builder, data: Value, indices: Value, updates: Value) -> Any:
        data_order, updates_order = self._orders(len(data.dims), len(indices.dims))
        columns = b.Unsqueeze(indices, [-1])
        if data_order[0] == 0:
            return b.ScatterND(data, columns, updates)
        result = b.ScatterND(b.Transpose(data, data_order), columns, b.Transpose(updates, updates_order))
        return b.Transpose(result, inverse_of(data_order))


def gradient_of_gather(b: Builder, g: Value, indices: Value, axis: int, size: Operand) -> Any:
    """Return the gradient of ``Gather(x, indices, axis)`` for ``x``: add the slices of ``g`` to their sources.

    ``size`` is the size of ``x`` along ``axis``, as a list of one number or a vector of one element.
    """
    count, rank = len(indices.dims), len(g.dims) - len(indices.dims) + 1
    others = [*range(axis), *range(axis + count, rank - 1 + count)]
    order = [*range(axis, axis + count), *others]
    moved = g if order == list(range(len(order))) else b.Transpose(g, order)
    whole = join_sizes(b, [size, shape_value(b, g, others)])
    zero = b.constant(np.zeros((), dtype=g.dtype.numpy), g.dtype)
    result = b.ScatterND(b.Expand(zero, whole), b.Unsqueeze(indices, [-1]), moved, reduction="add")
    front = [axis, *range(axis), *range(axis + 1, rank)]
    return result if axis == 0 else b.Transpose(result, inverse_of(front))


class TensorScatter(
    ScatterOp,
    sig="past_cache: T, update: T, write_indices?: i64 -> present_cache: T",
    onnx="TensorScatter-24(past_cache, update, write_indices?; axis=-2, mode~{linear:linear,circular:circular}=linear)",
):
    """Write ``update`` into ``past_cache`` along ``axis``, from the position ``write_indices[i]`` on for batch item i.

    Without ``write_indices`` all positions start at 0. With ``mode`` ``circular`` positions past the end wrap around; otherwise
    such positions are an error. ``axis`` must not be 0, the batch axis. Source: ONNX TensorScatter 24.
    """

    axis: int = -2
    mode: str = "linear"

    def validate(self) -> None:
        if self.mode not in ("linear", "circular"):
            raise RuleError("attribute.value", f"mode must be linear or circular, got {self.mode!r}")

    def shape(self, past_cache: View, update: View, write_indices: View | None = None) -> Any:
        if write_indices is not None and write_indices.shape is not None and len(write_indices.shape) != 1:
            raise RuleError("shape.rank", f"write_indices must be a vector, got {write_indices.type}")
        if past_cache.shape is None:
            return None
        axis = axis_in(self.axis, len(past_cache.shape))
        if axis == 0:
            raise RuleError("axis.range", "the axis must not be the batch axis (0)")
        if write_indices is not None and write_indices.shape is not None:
            agree(write_indices.shape[0], past_cache.shape[0], ("write_indices", 0), ("past_cache", 0))
        if update.shape is not None:
            agree_shapes(past_cache.shape[:axis], update.shape[:axis], "past_cache", "update")
            agree_shapes(past_cache.shape[axis + 1 :], update.shape[axis + 1 :], ("past_cache", axis + 1), ("update", axis + 1))
            if symbolic.less(past_cache.shape[axis], update.shape[axis]) is True:
                raise RuleError(
                    "shape.disagree",
                    f"the update ({update.shape[axis]}) must not exceed the cache ({past_cache.shape[axis]}) along the axis",
                )
        return past_cache.shape

    def value(self, *xs: View) -> Any:
        raise Unknown

    def canonical(self, past_cache: View, update: View, write_indices: View | None = None) -> Op:
        return self if past_cache.shape is None else self.with_(axis=axis_in(self.axis, len(past_cache.shape)))

    def evaluate(self, xp: Namespace, past_cache: Array, update: Array, write_indices: Array | None = None) -> Any:
        axis, size = axis_in(self.axis, past_cache.ndim), past_cache.shape[self.axis]
        rows = (
            np.zeros((past_cache.shape[0], 1), np.int64)
            if write_indices is None
            else arrays.to_numpy(write_indices).reshape(-1, 1)
        )
        indices = rows + np.arange(update.shape[axis])
        if self.mode == "circular":
            indices = indices % max(size, 1)
        elif indices.size and (indices.min() < 0 or indices.max() >= size):
            raise EngineError("index.range", f"positions must be in [0, {size - 1}], got {indices.min()} to {indices.max()}")
        shape = [1] * past_cache.ndim
        shape[0], shape[axis] = indices.shape
        wide = np.ascontiguousarray(np.broadcast_to(indices.reshape(shape), tuple(update.shape)))
        return arrays.scatter_along(xp, past_cache, arrays.from_numpy(xp, wide, past_cache), update, axis)

    def decompose(self, b: Builder, past_cache: Value, update: Value, write_indices: Value | None = None) -> Any:
        rank = len(past_cache.dims)
        axis = axis_in(self.axis, rank)
        count = update.dims[axis]
        stop = b.constant(count, dtypes.i64) if isinstance(count, int) else b.Reshape(shape_value(b, update, [axis]), [])
        indices = b.Range(b.constant(0, dtypes.i64), stop, b.constant(1, dtypes.i64))
        indices = b.Unsqueeze(indices, [index for index in range(rank) if index != axis])
        if write_indices is not None:
            indices = b.Add(indices, b.Unsqueeze(write_indices, list(range(1, rank))))
        if self.mode == "circular":
            size = past_cache.dims[axis]
            indices = b.Mod(
                indices, b.constant(size, dtypes.i64) if isinstance(size, int) else shape_value(b, past_cache, [axis])
            )
        return b.ScatterElements(past_cache, b.Expand(indices, shape_value(b, update)), update, axis=axis)

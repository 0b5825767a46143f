"""Tensors with some elements replaced or combined: ScatterElements, ScatterND, ScatterUpdate."""

from __future__ import annotations

import operator
from collections.abc import Callable, Iterable
from math import prod
from typing import TYPE_CHECKING, Any, TypeAlias

import numpy as np

from dovetail import arrays, dtypes, symbolic
from dovetail.errors import EngineError, RuleError
from dovetail.ir.builder import shape_value
from dovetail.ir.op import Op
from dovetail.ir.types import Unknown, View, agree, agree_shapes, axis_in
from dovetail.ops.builders import zeros_like
from dovetail.ops.elementwise.broadcast import scalar_like
from dovetail.ops.shape_values import join_sizes
from dovetail.ops.tensor.gather import check_indices, check_smaller, check_tuples
from dovetail.ops.tensor.transpose_expand_tile import inverse

if TYPE_CHECKING:
    from dovetail.arrays import Array, Namespace
    from dovetail.ir.builder import Builder
    from dovetail.ir.graph import Value

_TO_16 = "reduction~{none:replace,add:add,mul:mul}=none"
_TO_18 = "reduction~{none:replace,add:add,mul:mul,max:max,min:min}=none"
_OPENVINO = "reduction~{none:replace,sum:add,prod:mul,max:max,min:min%s}=none"


Put: TypeAlias = Callable[[Any, Any, str], Any]
Read: TypeAlias = Callable[[Any], Any]


class _Scatter(Op):
    """What the operators share: how updates combine with what is there."""

    reduction: str = "replace"

    def validate(self) -> None:
        if self.reduction not in ("replace", "add", "mul", "min", "max", "mean"):
            raise RuleError("scatter.reduction", f"{self.reduction!r} is no reduction")

    def on_sizes(self, x: Array, rows: Iterable[tuple[Any, ...]], updates: Array) -> Any:
        """Shape values, with those of ``updates`` put in one after the other."""
        if self.reduction != "replace":
            raise symbolic.Inexact(f"the reduction {self.reduction} of dimensions")
        found = np.array(x, dtype=object)
        for row, update in zip(rows, updates, strict=True):
            found[tuple(map(operator.index, row))] = update
        return symbolic.xp.asarray(found)

    def slopes(
        self, b: Builder, g: Any, y: Value, x: Value, updates: Value, put: Put, read: Read, initial: bool = True
    ) -> tuple[Any, Any]:
        """The gradients of ``x`` and ``updates``; ``put`` scatters updates, ``read`` gathers from where they went."""
        nothing = zeros_like(b, updates)
        untouched = g if initial and self.reduction != "replace" else put(g, nothing, "replace")
        match self.reduction:
            case "replace" | "add":
                return untouched, read(g)
            case "mean":
                counts = put(
                    b.Add(zeros_like(b, x), scalar_like(b, float(initial), x)), b.Add(nothing, scalar_like(b, 1, x)), "add"
                )
                share = b.Divide(g, b.Maximum(counts, scalar_like(b, 1, x)))
                return (share if initial else untouched), read(share)
            case "mul":
                return self._of_product(b, g, x, updates, put, read, initial)
        mine, theirs = (b.Cast(b.Equal(*pair), to=x.dtype) for pair in ((x, y), (updates, read(y))))
        mine = mine if initial else put(mine, nothing, "replace")
        share = b.Divide(g, put(mine, theirs, "add"))
        return b.Multiply(share, mine), b.Multiply(read(share), theirs)

    def _of_product(self, b: Builder, g: Any, x: Value, updates: Value, put: Put, read: Read, initial: bool) -> tuple[Any, Any]:
        """The product of the others: that of all over the own factor, and for a factor that alone is 0 that of the rest."""
        zero, one = scalar_like(b, 0, x), scalar_like(b, 1, x)
        first = x if initial else put(x, b.Add(zeros_like(b, updates), one), "replace")
        is_zero = [b.Equal(each, zero) for each in (first, updates)]
        zeros = put(b.Cast(is_zero[0], to=x.dtype), b.Cast(is_zero[1], to=x.dtype), "add")
        factors = [b.Where(each, one, value) for each, value in zip(is_zero, (first, updates), strict=True)]
        product = put(factors[0], factors[1], "mul")
        lone = b.Where(b.Equal(zeros, one), b.Multiply(g, product), zero)
        none = b.Where(b.Equal(zeros, zero), b.Multiply(g, product), zero)
        mine, theirs = (
            b.Where(each, alone, b.Divide(others, factor))
            for each, alone, others, factor in (
                (is_zero[0], lone, none, factors[0]),
                (is_zero[1], read(lone), read(none), factors[1]),
            )
        )
        return (mine if initial else put(mine, zeros_like(b, updates), "replace")), theirs


class ScatterElements(
    _Scatter,
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
    """``x`` with each element of ``updates`` at its own place, but ``indices`` along ``axis``.

    ``indices`` has the rank of ``x`` and the shape of ``updates``, and is no larger than ``x`` off the axis. Indices count from
    the end when negative; others outside the axis are an error. ``reduction`` combines an update with what is there, one after
    the other: ``replace`` (of several updates of one place the last stays); ``mean`` is the mean of all, of integers rounded
    down. Without ``initial`` a place that is updated forgets what ``x`` had. Sources: ONNX Scatter 9, 11, ScatterElements 11 to
    18; OpenVINO ScatterElementsUpdate-3, -12.
    """

    axis: int = 0
    reduction: str = "replace"
    use_init_val: bool = True

    def shape(self, data: View, indices: View, updates: View) -> Any:
        shape = agree_shapes(indices.shape, updates.shape)
        if data.shape is None:
            return None
        axis = axis_in(self.axis, len(data.shape))
        if shape is not None:
            check_smaller(data.shape, shape, axis)
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
            rows = ((*place[:axis], index, *place[axis + 1 :]) for place, index in np.ndenumerate(np.asarray(indices)))
            return self.on_sizes(data, rows, np.asarray(updates).reshape(-1))
        if self.reduction == "replace" or (self.use_init_val and self.reduction != "mean"):
            return arrays.scatter_along(xp, data, indices, updates, self.axis, _word(self.reduction))
        ones, zeros = xp.ones_like(updates), xp.zeros_like(data)
        counts = arrays.scatter_along(xp, zeros, indices, ones, self.axis, "add")
        if self.reduction != "mean":
            base = xp.where(counts != 0, _identity(xp, data, self.reduction), data)
            return arrays.scatter_along(xp, base, indices, updates, self.axis, self.reduction)
        if self.use_init_val:
            counts = counts + xp.ones_like(counts)
        base = data if self.use_init_val else xp.where(counts != 0, zeros, data)
        total = arrays.scatter_along(xp, base, indices, updates, self.axis, "add")
        safe = xp.where(counts != 0, counts, xp.ones_like(counts))
        integer = arrays.element(data).is_integer
        return arrays.floor_divide(xp, total, safe) if integer else xp.where(counts != 0, total / safe, total)

    def vjp(self, b: Builder, g: Value, y: Value, data: Value, indices: Value, updates: Value) -> Any:
        def put(base: Value, values: Value, reduction: str) -> Any:
            return b.ScatterElements(base, indices, values, axis=self.axis, reduction=reduction)

        mine, theirs = self.slopes(
            b, g, y, data, updates, put, lambda v: b.GatherElements(v, indices, axis=self.axis), self.use_init_val
        )
        return [mine, None, theirs]

    def decompose(self, b: Builder, data: Value, indices: Value, updates: Value) -> Any:
        """What ``x`` had is replaced by what changes nothing; a mean is the sum over the count."""
        if self.reduction == "replace" or (self.use_init_val and self.reduction != "mean"):
            return None

        def put(base: Value, values: Value, reduction: str) -> Any:
            return b.ScatterElements(base, indices, values, axis=self.axis, reduction=reduction)

        if self.reduction != "mean":
            nothing = b.constant(np.array(_bound(data.dtype, self.reduction)).astype(data.dtype.numpy), data.dtype)
            return put(put(data, b.Expand(nothing, shape_value(b, updates)), "replace"), updates, self.reduction)
        nothing = zeros_like(b, updates)
        counts = put(zeros_like(b, data), b.Add(nothing, scalar_like(b, 1, data)), "add")
        counts = b.Add(counts, scalar_like(b, 1, data)) if self.use_init_val else b.Maximum(counts, scalar_like(b, 1, data))
        total = put(data if self.use_init_val else put(data, nothing, "replace"), updates, "add")
        return b.Divide(total, counts, m_pythondiv=data.dtype.is_integer)


def _word(reduction: str) -> str:
    """What ``arrays`` calls a reduction."""
    return "none" if reduction == "replace" else reduction


def _identity(xp: Namespace, x: Array, reduction: str) -> Any:
    """What changes nothing: of an element type, as an array of the shape of ``x``."""
    if reduction in ("add", "mul"):
        return xp.zeros_like(x) if reduction == "add" else xp.ones_like(x)
    return xp.full_like(x, _bound(arrays.element(x), reduction))


def _bound(kind: dtypes.DType, reduction: str) -> Any:
    """The number that changes nothing."""
    if reduction in ("add", "mul"):
        return int(reduction == "mul")
    if kind == "boolean":
        return reduction == "min"
    if kind.is_integer:
        return kind.range()[reduction == "min"]
    return np.inf if reduction == "min" else -np.inf


class ScatterND(
    _Scatter,
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
    """``x`` with the slices ``updates[i]`` at ``x[indices[i]]``, where the last axis of ``indices`` holds k coordinates of the
    first k axes.

    ``updates`` has the shape indices.shape[:-1] + x.shape[k:]. Coordinates and ``reduction`` as in ScatterElements.
    Sources: ONNX ScatterND 11 to 18; OpenVINO ScatterNDUpdate-3, -15.
    """

    def shape(self, data: View, indices: View, updates: View) -> Any:
        if data.shape is None or indices.shape is None:
            return data.shape
        depth = check_tuples(data.shape, indices, 0)
        if depth is not None:
            agree_shapes((*indices.shape[:-1], *data.shape[depth:]), updates.shape)
        return data.shape

    def evaluate(self, xp: Namespace, data: Array, indices: Array, updates: Array) -> Any:
        if xp is symbolic.xp:
            table = np.asarray(indices)
            rows = (tuple(table[place].tolist()) for place in np.ndindex(table.shape[:-1]))
            return self.on_sizes(
                data, rows, np.asarray(updates).reshape((prod(table.shape[:-1]), *data.shape[table.shape[-1] :]))
            )
        return arrays.scatter_nd(xp, data, indices, updates, _word(self.reduction))

    def vjp(self, b: Builder, g: Value, y: Value, data: Value, indices: Value, updates: Value) -> Any:
        def put(base: Value, values: Value, reduction: str) -> Any:
            return b.ScatterND(base, indices, values, reduction=reduction)

        mine, theirs = self.slopes(b, g, y, data, updates, put, lambda values: b.GatherND(values, indices))
        return [mine, None, theirs]


class ScatterUpdate(
    Op,
    sig="data: T, indices: I, updates: T -> output: T",
    openvino="ScatterUpdate-3(data, indices, updates, axis)",
):
    """``x`` with the slices ``updates[..., i, ...]`` at ``indices[i]`` along ``axis``; an index lies in [0, size - 1].

    ``updates`` has the shape x.shape[:axis] + indices.shape + x.shape[axis + 1:]. Source: OpenVINO ScatterUpdate-3.
    """

    axis: int = 0

    def shape(self, data: View, indices: View, updates: View) -> Any:
        if data.shape is None or indices.shape is None:
            return data.shape
        if not data.shape:
            raise RuleError("shape.scalar", "a scalar has no axis to write along")
        axis = axis_in(self.axis, len(data.shape))
        agree_shapes((*data.shape[:axis], *indices.shape, *data.shape[axis + 1 :]), updates.shape)
        check_indices(indices, data.shape[axis], natural=True)
        return data.shape

    def canonical(self, data: View, indices: View, updates: View) -> Op:
        return self if data.shape is None else ScatterUpdate(axis_in(self.axis, len(data.shape)))

    def _orders(self, rank: int, count: int) -> tuple[list[int], list[int]]:
        """The axes of ``x`` with this one in front, and those of ``updates`` with the indices' in front."""
        axis = axis_in(self.axis, rank)
        ours = [axis, *range(axis), *range(axis + 1, rank)]
        theirs = [*range(axis, axis + count), *range(axis), *range(axis + count, rank - 1 + count)]
        return ours, theirs

    def evaluate(self, xp: Namespace, data: Array, indices: Array, updates: Array) -> Any:
        ours, theirs = self._orders(data.ndim, indices.ndim)
        if bool(xp.any(indices < 0)):
            raise EngineError("array.index-range", "an index is negative")
        front = xp.permute_dims(data, tuple(ours))
        found = arrays.scatter_nd(xp, front, indices[..., None], xp.permute_dims(updates, tuple(theirs)))
        return xp.permute_dims(found, tuple(inverse(ours)))

    def vjp(self, b: Builder, g: Value, y: Value, data: Value, indices: Value, updates: Value) -> Any:
        mine = b.ScatterUpdate(g, indices, zeros_like(b, updates), axis=self.axis)
        return [mine, None, b.Gather(g, indices, axis=self.axis)]

    def decompose(self, b: Builder, data: Value, indices: Value, updates: Value) -> Any:
        ours, theirs = self._orders(len(data.dims), len(indices.dims))
        columns = b.Unsqueeze(indices, [-1])
        if ours[0] == 0:
            return b.ScatterND(data, columns, updates)
        found = b.ScatterND(b.Transpose(data, ours), columns, b.Transpose(updates, theirs))
        return b.Transpose(found, inverse(ours))


def added_back(b: Builder, g: Any, indices: Value, axis: int, size: Any) -> Any:
    """The gradient of ``Gather(x, indices, axis)`` for ``x``: the slices of ``g`` added up where they came from.

    ``size``: that of ``x`` along ``axis``, as a list of one number or a vector of one element.
    """
    from dovetail.ir.builder import shape_value

    count, rank = len(indices.dims), len(g.dims) - len(indices.dims) + 1
    others = [*range(axis), *range(axis + count, rank - 1 + count)]
    order = [*range(axis, axis + count), *others]
    moved = g if order == list(range(len(order))) else b.Transpose(g, order)
    whole = join_sizes(b, [size, shape_value(b, g, others)])
    zero = b.constant(np.zeros((), dtype=g.dtype.numpy), g.dtype)
    found = b.ScatterND(b.Expand(zero, whole), b.Unsqueeze(indices, [-1]), moved, reduction="add")
    ours = [axis, *range(axis), *range(axis + 1, rank)]
    return found if axis == 0 else b.Transpose(found, inverse(ours))


class TensorScatter(
    Op,
    sig="past_cache: T, update: T, write_indices?: i64 -> present_cache: T",
    onnx="TensorScatter-24(past_cache, update, write_indices?; axis=-2, mode~{linear:linear,circular:circular}=linear)",
):
    """``x`` with ``updates`` along ``axis`` from a place on that ``starts`` gives for each item of the batch (left out: from 0).

    Places past the end are those from the beginning when ``circular``, and an error otherwise. The axis is not that of the batch,
    which is the first. Source: ONNX TensorScatter 24.
    """

    axis: int = -2
    mode: str = "linear"

    def validate(self) -> None:
        if self.mode not in ("linear", "circular"):
            raise RuleError("scatter.reduction", f"{self.mode!r} is neither linear nor circular")

    def shape(self, past_cache: View, update: View, write_indices: View | None = None) -> Any:
        if write_indices is not None and write_indices.shape is not None and len(write_indices.shape) != 1:
            raise RuleError("scatter.shape", f"a vector of places is needed, not {write_indices.type}")
        if past_cache.shape is None:
            return None
        axis = axis_in(self.axis, len(past_cache.shape))
        if axis == 0:
            raise RuleError("scatter.shape", "the axis of the batch is not scattered along")
        if write_indices is not None and write_indices.shape is not None:
            agree(write_indices.shape[0], past_cache.shape[0])
        if update.shape is not None:
            agree_shapes(
                (*past_cache.shape[:axis], *past_cache.shape[axis + 1 :]), (*update.shape[:axis], *update.shape[axis + 1 :])
            )
            if symbolic.less(past_cache.shape[axis], update.shape[axis]) is True:
                raise RuleError("scatter.shape", f"{update.shape[axis]} places in {past_cache.shape[axis]}")
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
        places = rows + np.arange(update.shape[axis])
        if self.mode == "circular":
            places = places % max(size, 1)
        elif places.size and (places.min() < 0 or places.max() >= size):
            raise EngineError("scatter.range", f"places {places.min()} to {places.max()} of {size}")
        shape = [1] * past_cache.ndim
        shape[0], shape[axis] = places.shape
        wide = np.ascontiguousarray(np.broadcast_to(places.reshape(shape), tuple(update.shape)))
        return arrays.scatter_along(xp, past_cache, arrays.from_numpy(xp, wide, past_cache), update, axis)

    def decompose(self, b: Builder, past_cache: Value, update: Value, write_indices: Value | None = None) -> Any:
        from dovetail.ir.builder import shape_value

        rank = len(past_cache.dims)
        axis = axis_in(self.axis, rank)
        count = update.dims[axis]
        stop = b.constant(count, dtypes.i64) if isinstance(count, int) else b.Reshape(shape_value(b, update, [axis]), [])
        places = b.Range(b.constant(0, dtypes.i64), stop, b.constant(1, dtypes.i64))
        places = b.Unsqueeze(places, [place for place in range(rank) if place != axis])
        if write_indices is not None:
            places = b.Add(places, b.Unsqueeze(write_indices, list(range(1, rank))))
        if self.mode == "circular":
            size = past_cache.dims[axis]
            places = b.Mod(places, b.constant(size, dtypes.i64) if isinstance(size, int) else shape_value(b, past_cache, [axis]))
        return b.ScatterElements(past_cache, b.Expand(places, shape_value(b, update)), update, axis=axis)

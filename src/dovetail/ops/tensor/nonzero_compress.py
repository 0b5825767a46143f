"""Elements chosen by a condition, and masks: NonZero, Compress, OneHot, Trilu, EyeLike, ReverseSequence."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from dovetail import arrays, dtypes, symbolic
from dovetail.dtypes import DType
from dovetail.errors import RuleError
from dovetail.ir.op import Op, check_inputs
from dovetail.ir.types import Tensor, Type, View, agree, axis_in, dtype_in, total
from dovetail.ops.shape_values import elements_of, host_view_of, integers_of, is_size

if TYPE_CHECKING:
    from dovetail.arrays import Array, Namespace
    from dovetail.ir.builder import Builder
    from dovetail.ir.graph import Value


def _elements(x: View) -> Any:
    """The elements of an input as a numpy array, where all of them are known."""
    data = getattr(x, "constant", None)
    if data is not None:
        return data
    value = None if x.value is None else np.asarray(x.value)
    return None if value is None or any(isinstance(item, symbolic.Dim) for item in value.reshape(-1).tolist()) else value


class NonZero(
    Op,
    sig="x: T -> y: I",
    onnx="NonZero-9,13(x)",
    openvino="NonZero-3(x; output_type=i64)",
):
    """The coordinates of the elements that are not 0, in row-major order: [rank, how many].

    Of a scalar: [0, 1] or [0, 0]. Sources: ONNX NonZero 9, 13; OpenVINO NonZero-3.
    """

    output_type: DType = dtypes.i64

    def types(self, x: View) -> list[Type]:
        check_inputs(self, (x,))
        data = _elements(x)
        count = None if data is None else int(np.count_nonzero(data != 0))
        return [Tensor(self.output_type, (None if x.shape is None else len(x.shape), count))]  # type: ignore[arg-type]

    def value(self, x: View) -> Any:
        raise symbolic.Inexact

    def evaluate(self, xp: Namespace, x: Array) -> Any:
        kind = arrays.dtype_in(xp, self.output_type)
        hit = x if arrays.element(x) == "boolean" else x != 0
        if not x.ndim:
            return xp.zeros((0, int(bool(hit))), dtype=kind)
        return xp.stack([xp.astype(row, kind) for row in xp.nonzero(hit)], axis=0)

    def vjp(self, b: Builder, g: Value, y: Value, x: Value) -> Any:
        return [None]

    def decompose(self, b: Builder, x: Value) -> Any:
        return None if self.output_type == "i64" else b.Cast(b.NonZero(x), to=self.output_type)


class Compress(
    Op,
    sig="input: T, condition: boolean -> output: T",
    onnx=("Compress-9(input, condition; axis~front?)", "Compress-11,28(input, condition; axis?)"),
):
    """The slices of ``x`` along ``axis`` (without one: the elements, in row-major order) whose place in ``condition``, a
    vector, is true.

    What lies beyond the end of ``condition`` is left out. Source: ONNX Compress 9 to 28.
    """

    axis: int | None = None

    def shape(self, input: View, condition: View) -> Any:
        if condition.shape is not None and len(condition.shape) != 1:
            raise RuleError("input.rank", f"the condition should be a vector, not of rank {len(condition.shape)}")
        data = _elements(condition)
        count = None if data is None else int(np.count_nonzero(data))
        if self.axis is None:
            return (count,)
        if input.shape is None:
            return None
        axis = axis_in(self.axis, len(input.shape))
        if condition.shape is not None and symbolic.less(input.shape[axis], condition.shape[0]) is True:
            raise RuleError("compress.condition", f"a condition of {condition.shape[0]} for {input.shape[axis]} slices")
        return (*input.shape[:axis], count, *input.shape[axis + 1 :])

    def evaluate(self, xp: Namespace, input: Array, condition: Array) -> Any:
        (places,) = xp.nonzero(condition)
        source, axis = (xp.reshape(input, (-1,)), 0) if self.axis is None else (input, axis_in(self.axis, input.ndim))
        return arrays.take(xp, source, places, axis)

    def decompose(self, b: Builder, input: Value, condition: Value) -> Any:
        places = b.Squeeze(b.NonZero(condition), [0])
        return b.Gather(b.Reshape(input, [-1]), places, axis=0) if self.axis is None else b.Gather(input, places, axis=self.axis)


_NEGATIVE = "negative_indices_mode~{ignore_negative:false,normalize:true}:negative_indices=ignore_negative"


class OneHot(
    Op,
    sig="indices: R, depth!: R1, on_value: T, off_value: T -> output: T",
    openvino=(
        "OneHot-1(indices, depth, on_value, off_value; axis | negative_indices=false)",
        f"OneHot-16(indices, depth, on_value, off_value; axis, {_NEGATIVE})",
    ),
):
    """A new axis of size ``depth`` at ``axis`` of the result, ``on`` where its place is the index and ``off`` elsewhere.

    With ``negative`` indices in [-depth, -1] count from the end; any other index outside [0, depth - 1] gives ``off``
    everywhere. Indices and depths that are not integers are cut toward zero. Sources: ONNX OneHot 9 (no negative indices), 11,
    28; OpenVINO OneHot-1, -16.
    """

    axis: int = -1
    negative_indices: bool = True

    def shape(self, indices: View, depth: View, on_value: View, off_value: View) -> Any:
        size = _depth(depth)
        if isinstance(size, int) and size < 0:
            raise RuleError("onehot.depth", f"a depth of {size}")
        if indices.shape is None:
            return None
        axis = axis_in(self.axis, len(indices.shape) + 1)
        known = size is not None and is_size(size)
        return (*indices.shape[:axis], size if known else None, *indices.shape[axis:])

    def canonical(self, indices: View, depth: View, on_value: View, off_value: View) -> Op:
        return self if indices.shape is None else self.with_(axis=axis_in(self.axis, len(indices.shape) + 1))

    def evaluate(self, xp: Namespace, indices: Array, depth: Array, on_value: Array, off_value: Array) -> Any:
        size = int(np.asarray(depth).reshape(()).item())
        if size < 0:
            raise RuleError("onehot.depth", f"a depth of {size}")
        if not arrays.element(indices).is_integer:
            indices = arrays.cast(xp, indices, dtypes.i64)
        values = (xp.reshape(on_value, ()), xp.reshape(off_value, ()))
        return arrays.one_hot(xp, indices, size, *values, axis_in(self.axis, indices.ndim + 1), self.negative_indices)

    def vjp(self, b: Builder, g: Value, y: Value, indices: Value, depth: Value, on_value: Value, off_value: Value) -> Any:
        one, zero = (b.constant(np.array(value, dtype=g.dtype.numpy), g.dtype) for value in (1, 0))
        hot = b.apply("OneHot", indices, depth, one, zero, axis=self.axis, negative_indices=self.negative_indices)
        sums = [_sum(b, b.Multiply(g, hot)), _sum(b, b.Multiply(g, b.Subtract(one, hot)))]
        return [
            None,
            None,
            *(b.Reshape(s, [int(size) for size in x.dims]) for s, x in zip(sums, (on_value, off_value), strict=True)),
        ]


def _sum(b: Builder, x: Value) -> Any:
    return b.ReduceSum(b.Reshape(x, [-1]), [0], keepdims=True)


def _depth(depth: View) -> Any:
    found = elements_of(depth)
    if found is not None:
        return found[0] if len(found) == 1 else None
    data = getattr(depth, "constant", None)
    return int(data.reshape(()).item()) if data is not None and data.size == 1 else None


class Trilu(Op, sig="input: T, k?!: I -> output: T", onnx="Trilu-14(input, k?; upper=1)"):
    """The matrices in the last two axes of ``x`` on and above (without ``upper``: below) the ``k``-th diagonal, and 0 elsewhere.

    Source: ONNX Trilu 14.
    """

    upper: bool = True

    def shape(self, input: View, k: View | None = None) -> Any:
        if input.shape is not None and len(input.shape) < 2:
            raise RuleError("shape.rank", f"matrices are needed, not rank {len(input.shape)}")
        if k is not None and k.shape is not None and symbolic.equal(total(k.shape), 1) is False:
            raise RuleError("trilu.diagonal", f"k should be one number, not of shape {list(map(str, k.shape))}")
        return input.shape

    def evaluate(self, xp: Namespace, input: Array, k: Array | None = None) -> Any:
        found = [0] if k is None else integers_of(host_view_of(k))
        if not found:
            raise symbolic.Inexact("the diagonal is not known")
        return arrays.triangle(xp, input, found[0], self.upper)

    def vjp(self, b: Builder, g: Value, y: Value, input: Value, k: Value | None = None) -> Any:
        return [b.apply("Trilu", g, k, upper=self.upper), None][: 1 if k is None else 2]

    def decompose(self, b: Builder, input: Value, k: Value | None = None) -> Any:
        """By a mask: column - row is at least (at most) k."""
        from dovetail.ops.shape_values import indices_of_axis

        rows, columns = (indices_of_axis(b, input, len(input.dims) - 2 + place) for place in (0, 1))
        distance = b.Subtract(columns, b.Unsqueeze(rows, [1]))
        limit = b.constant([0]) if k is None else b.Reshape(k, [1])
        limit = limit if limit.dtype == "i64" else b.Cast(limit, to=dtypes.i64)
        keep = b.GreaterEqual(distance, limit) if self.upper else b.LessEqual(distance, limit)
        return b.Where(keep, input, b.constant(np.zeros((), dtype=input.dtype.numpy), input.dtype))


class EyeLike(Op, sig="input: T -> output: T1", onnx="EyeLike-9,22(input; dtype?, k=0)"):
    """A matrix of the shape of ``x`` with 1 on the ``k``-th diagonal and 0 elsewhere, of ``dtype`` or else of the type of ``x``.

    Source: ONNX EyeLike 9, 22.
    """

    k: int = 0
    dtype: DType | None = None

    def types(self, input: View) -> list[Type]:
        check_inputs(self, (input,))
        if input.shape is not None and len(input.shape) != 2:
            raise RuleError("shape.rank", f"a matrix is needed, not rank {len(input.shape)}")
        return [Tensor(self.dtype or dtype_in(input.type), input.shape or (None, None))]  # type: ignore[arg-type]

    def value(self, input: View) -> Any:
        raise symbolic.Inexact

    def evaluate(self, xp: Namespace, input: Array) -> Any:
        kind = self.dtype or arrays.element(input)
        return arrays.from_numpy(xp, np.eye(int(input.shape[0]), int(input.shape[1]), k=self.k).astype(kind.numpy), input)

    def vjp(self, b: Builder, g: Value, y: Value, input: Value) -> Any:
        return [None]

    def decompose(self, b: Builder, input: Value) -> Any:
        """By comparing column and row."""
        from dovetail.ops.shape_values import indices_of_axis

        rows, columns = (indices_of_axis(b, input, axis) for axis in (0, 1))
        return b.Cast(b.Equal(b.Subtract(columns, b.Unsqueeze(rows, [1])), self.k), to=self.dtype or input.dtype)


class ReverseSequence(
    Op,
    sig="input: T, sequence_lens: R -> y: T",
    onnx="ReverseSequence-10,28(input, sequence_lens; batch_axis=1, time_axis=0)",
    openvino="ReverseSequence-1(input, sequence_lens; batch_axis=0, seq_axis:time_axis=1)",
):
    """For each place i along ``batch_axis``, the first ``lengths[i]`` elements along ``time_axis`` in reverse order, the others
    as they are.

    Sources: ONNX ReverseSequence 10, 28; OpenVINO ReverseSequence-1.
    """

    batch_axis: int = 1
    time_axis: int = 0

    def shape(self, input: View, sequence_lens: View) -> Any:
        if sequence_lens.shape is not None and len(sequence_lens.shape) != 1:
            raise RuleError("input.rank", f"the lengths should be a vector, not of rank {len(sequence_lens.shape)}")
        if input.shape is None:
            return None
        batch, time = (axis_in(axis, len(input.shape)) for axis in (self.batch_axis, self.time_axis))
        if batch == time:
            raise RuleError("axis.repeated", f"axis {batch} as batch and as time")
        if sequence_lens.shape is not None:
            agree(input.shape[batch], sequence_lens.shape[0])
        found = integers_of(sequence_lens)
        size = input.shape[time]
        if found is not None and any(length < 0 or (isinstance(size, int) and length > size) for length in found):
            raise RuleError("sequence.length", f"lengths {found} of sequences of {size}")
        return input.shape

    def canonical(self, input: View, sequence_lens: View) -> Op:
        if input.shape is None:
            return self
        rank = len(input.shape)
        return ReverseSequence(axis_in(self.batch_axis, rank), axis_in(self.time_axis, rank))

    def evaluate(self, xp: Namespace, input: Array, sequence_lens: Array) -> Any:
        batch, time = (axis_in(axis, input.ndim) for axis in (self.batch_axis, self.time_axis))
        counts = np.asarray(arrays.to_numpy(sequence_lens)).astype(np.int64)[:, None]
        places = np.arange(input.shape[time], dtype=np.int64)[None, :]
        if counts.size and (counts.min() < 0 or counts.max() > input.shape[time]):
            raise RuleError("sequence.length", f"lengths {counts[:, 0].tolist()} of sequences of {input.shape[time]}")
        indices = arrays.from_numpy(xp, np.where(places < counts, counts - 1 - places, places), input)
        front = xp.moveaxis(input, (batch, time), (0, 1))
        return xp.moveaxis(arrays.take(xp, front, indices, 1, 1), (0, 1), (batch, time))

    def vjp(self, b: Builder, g: Value, y: Value, input: Value, sequence_lens: Value) -> Any:
        return [b.apply("ReverseSequence", g, sequence_lens, batch_axis=self.batch_axis, time_axis=self.time_axis), None]

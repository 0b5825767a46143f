"""Transpose, Expand and Tile."""

from __future__ import annotations

from collections.abc import Sequence
from math import prod
from typing import TYPE_CHECKING, Any

import numpy as np

from dovetail.errors import RuleError, UnsupportedError
from dovetail.ir import arrays, symbolic
from dovetail.ir.builder import shape_value
from dovetail.ir.op import Op, Window, Windows
from dovetail.ir.types import Size, View, broadcast_size, static
from dovetail.ops.shape_values import (
    as_i64,
    elements_of,
    host_view_of,
    integers_of,
    is_size,
    length_of_vector,
    shape_of_rank,
    view_of,
)

if TYPE_CHECKING:
    from dovetail.ir.arrays import Array, Namespace
    from dovetail.ir.builder import Builder
    from dovetail.ir.graph import Value


def with_leading_ones(sizes: Sequence[Any], rank: int) -> list[Any]:
    """Prepend 1s to ``sizes`` so that the result has ``rank`` sizes."""
    return [1] * (rank - len(sizes)) + list(sizes)


def strides_of(shape: Sequence[int]) -> tuple[int, ...]:
    """Return the strides of a row-major array, in elements."""
    return tuple(prod(shape[axis + 1 :]) for axis in range(len(shape)))


class Transpose(
    Op,
    sig="data: T, perm?!: I -> transposed: T",
    onnx="Transpose-1,13,21,23,24,25(data; perm~natural?)",
    openvino="Transpose-1(data, perm)",
):
    """Transpose ``data``: axis i of the result is axis ``perm[i]`` of ``data``; an absent or empty ``perm`` reverses the axes.

    ``perm`` is a permutation of 0 .. rank - 1. Sources: ONNX Transpose 1 to 25; OpenVINO Transpose-1.
    """

    def shape(self, data: View, perm: View | None = None) -> Any:
        length = None if perm is None else length_of_vector(perm, "perm")
        if data.shape is None:
            return shape_of_rank(length or None)
        indices = _permutation(len(data.shape), perm)
        return shape_of_rank(len(data.shape)) if indices is None else tuple(data.shape[index] for index in indices)

    def evaluate(self, xp: Namespace, data: Array, perm: Array | None = None) -> Any:
        indices = _permutation(data.ndim, host_view_of(perm))
        if indices is None:
            raise symbolic.Inexact
        return xp.permute_dims(data, tuple(indices))

    def vjp(self, b: Builder, g: Value, y: Value, data: Value, perm: Value | None = None) -> Any:
        if perm is None:
            return [b.Transpose(g)]
        indices = integers_of(perm)
        if indices is None:
            raise UnsupportedError("constant.needed", "the gradient of Transpose needs a constant perm")
        return [b.Transpose(g, inverse_of(indices)) if indices else b.Transpose(g), None]

    def windows(self, data: View, perm: View | None = None) -> Windows:
        shape = static(data.shape)
        indices = _permutation(len(shape), perm)
        if indices is None:
            raise UnsupportedError("constant.needed", "windows of Transpose need a constant perm")
        sizes = tuple(shape[index] for index in indices)
        strides = strides_of(shape)
        return Windows((Window(0, 0, sizes, 0, tuple(strides[index] for index in indices), 0, strides_of(sizes)),))

    def decompose(self, b: Builder, data: Value, perm: Value | None = None) -> Any:
        """Emit an explicit ``perm``; return None if ``perm`` is given."""
        if perm is not None:
            return None
        reverse = [] if data.shape is None else list(reversed(range(len(data.shape))))
        return b.Transpose(data, b.constant(np.array(reverse, dtype=np.int64)))


def _permutation(rank: int, order: View | None) -> list[int] | None:
    indices = [] if order is None else integers_of(order)
    if indices is None:
        return None
    if not indices:
        return list(reversed(range(rank)))
    if sorted(indices) != list(range(rank)):
        raise RuleError("axis.repeated", f"perm must be a permutation of the {rank} axes, got {indices}")
    return indices


def inverse_of(order: Sequence[int]) -> list[int]:
    """Return the inverse of a permutation."""
    return sorted(range(len(order)), key=order.__getitem__)


class Expand(
    Op,
    sig="input: T, shape!: I -> output: T",
    onnx="Expand-8,13(input, shape | bidirectional=true)",
    openvino=(
        "Broadcast-1(input, shape; mode~{numpy:false}:bidirectional=numpy)",
        "Broadcast-3(input, shape; mode~{bidirectional:true,numpy:false}:bidirectional=numpy)",
    ),
):
    """Broadcast ``input`` to ``shape``, a vector, aligned at the last axis: a size of 1 is repeated.

    With ``bidirectional``, the result takes the sizes of ``input`` for sizes of 1 and for missing axes in ``shape``; otherwise
    the result has exactly ``shape``. Sources: ONNX Expand 8, 13; OpenVINO Broadcast-1 (numpy), -3 (numpy, bidirectional).
    """

    bidirectional: bool = True

    def shape(self, input: View, shape: View) -> Any:
        length = length_of_vector(shape, "shape")
        if input.shape is None:
            return self._shape_without_input(shape, length)
        if not isinstance(length, int):
            return None
        wanted = elements_of(shape) or shape_of_rank(length)
        if wanted is None:
            return None
        rank = max(length, len(input.shape)) if self.bidirectional else length
        if len(input.shape) > rank:
            raise RuleError(
                "shape.broadcast", f"the rank of the input ({len(input.shape)}) must not exceed the length of the shape ({rank})"
            )
        return tuple(
            map(
                self._broadcast_size,
                with_leading_ones(input.shape, rank),
                with_leading_ones([self._size(size) for size in wanted], rank),
            )
        )

    def canonical(self, input: View, shape: View) -> Op:
        """Set ``bidirectional`` if the result is known to have exactly ``shape``, because both settings then agree."""
        sizes = elements_of(shape)
        if self.bidirectional or sizes is None or input.shape is None or len(sizes) < len(input.shape):
            return self
        result = Expand().shape(input, shape)
        same = all(size is not None and symbolic.equal(size, wanted) is True for size, wanted in zip(result, sizes, strict=True))
        return Expand() if same else self

    def _shape_without_input(self, shape: View, length: Size | None) -> Any:
        if self.bidirectional or not isinstance(length, int):
            return None
        wanted = elements_of(shape)
        return shape_of_rank(length) if wanted is None else tuple(map(self._size, wanted))

    def _size(self, size: Any) -> Any:
        """Return a size of ``shape``, at least 0 because a run with a negative size is an error; None if it is unknown."""
        if isinstance(size, int) and size < 0:
            raise RuleError("shape.range", f"sizes must not be negative, got {size}")
        return size if size is None or is_size(size) else symbolic.maximum(size, 0)

    def _broadcast_size(self, size: Any, target: Any) -> Any:
        if target is None:
            return size if symbolic.equal(size, 1) is False else None
        try:
            result = broadcast_size(size, target)
        except RuleError:
            raise RuleError("shape.broadcast", f"a size must be 1 or {target} to broadcast to {target}, got {size}") from None
        if self.bidirectional:
            return result
        if target == 1 and symbolic.equal(size, 1) is False:
            raise RuleError("shape.broadcast", f"a size must be 1 to broadcast to 1, got {size}")
        return target

    def evaluate(self, xp: Namespace, input: Array, shape: Array) -> Any:
        result = self.shape(view_of(input), host_view_of(shape))
        if result is None or None in result:
            raise symbolic.Inexact
        return xp.broadcast_to(input, tuple(result))

    def vjp(self, b: Builder, g: Value, y: Value, input: Value, shape: Value) -> Any:
        from dovetail.ops.elementwise.broadcast import unbroadcast

        return [unbroadcast(b, g, input), None]

    def windows(self, input: View, shape: View) -> Windows:
        sizes = static(self.shape(input, shape))
        sizes_in = with_leading_ones(static(input.shape), len(sizes))
        strides = tuple(0 if size == 1 else stride for size, stride in zip(sizes_in, strides_of(sizes_in), strict=True))
        return Windows((Window(0, 0, sizes, 0, strides, 0, strides_of(sizes)),))


class Tile(
    Op,
    sig="input: T, repeats!: I -> output: T",
    onnx="Tile-6,13(input, repeats | extend=false)",
    openvino="Tile-1(input, repeats | extend=true/false)",
):
    """Repeat ``input`` ``repeats[i]`` times along each axis i.

    ``repeats`` has one number for each axis. With ``extend`` the number of repeats may differ from the rank; 1s are then
    prepended to the shorter of ``repeats`` and the shape. Sources: ONNX Tile 6, 13; OpenVINO Tile-1.
    """

    extend: bool = False

    def shape(self, input: View, repeats: View) -> Any:
        length = length_of_vector(repeats, "repeats")
        shape = input.shape
        if shape is None:
            return None if self.extend else shape_of_rank(length)
        if not isinstance(length, int):
            return None if self.extend else shape_of_rank(len(shape))
        if length != len(shape) and not self.extend:
            raise RuleError("attribute.length", f"the number of repeats ({length}) must equal the rank ({len(shape)})")
        counts = elements_of(repeats)
        if counts is None:
            return shape_of_rank(max(length, len(shape)))
        rank = max(len(shape), len(counts))
        return tuple(map(self._size, with_leading_ones(shape, rank), with_leading_ones(counts, rank)))

    def _size(self, size: Any, count: Size) -> Any:
        if isinstance(count, int) and count < 0:
            raise RuleError("attribute.range", f"repeats must not be negative, got {count}")
        return size * count if is_size(count) else None

    def canonical(self, input: View, repeats: View) -> Op:
        same = input.shape is not None and repeats.shape is not None and repeats.shape[0] == len(input.shape)
        return self.with_(extend=False) if self.extend and same else self

    def evaluate(self, xp: Namespace, input: Array, repeats: Array) -> Any:
        view = host_view_of(repeats)
        self.shape(view_of(input), view)
        counts = integers_of(view)
        if counts is None:
            raise symbolic.Inexact
        rank = max(input.ndim, len(counts))
        if rank > input.ndim:
            input = arrays.reshape(xp, input, tuple(with_leading_ones(input.shape, rank)))
        return arrays.tile(xp, input, with_leading_ones(counts, rank))

    def vjp(self, b: Builder, g: Value, y: Value, input: Value, repeats: Value) -> Any:
        from dovetail.ops.builders import reshape_like

        sizes, counts = shape_value(b, input), integers_of(repeats)
        rank = len(y.dims)
        if isinstance(sizes, list) and counts is not None:
            pairs = zip(with_leading_ones(counts, rank), with_leading_ones(sizes, rank), strict=True)
            split: Any = [size for pair in pairs for size in pair]
        else:
            columns = [b.Unsqueeze(_pad_with_ones(b, vector, rank), [1]) for vector in (as_i64(b, repeats), sizes)]
            split = b.Reshape(b.Concat(*columns, axis=1), [-1])
        wide = b.Reshape(g, split, special_zero=False)
        summed = b.ReduceSum(wide, list(range(0, 2 * rank, 2)), keepdims=False)
        return [reshape_like(b, summed, input) if rank != len(input.dims) else summed, None]

    def windows(self, input: View, repeats: View) -> Windows:
        shape, counts = static(input.shape), integers_of(repeats)
        if counts is None:
            raise UnsupportedError("constant.needed", "windows of Tile need constant repeats")
        rank = max(len(shape), len(counts))
        sizes, times = with_leading_ones(shape, rank), with_leading_ones(counts, rank)
        source_strides, target_strides = (
            strides_of(sizes),
            strides_of([size * count for size, count in zip(sizes, times, strict=True)]),
        )
        rows = list(zip(times, sizes, source_strides, target_strides, strict=True))
        return Windows(
            (
                Window(
                    0,
                    0,
                    tuple(n for count, size, _, _ in rows for n in (count, size)),
                    0,
                    tuple(n for _, _, stride, _ in rows for n in (0, stride)),
                    0,
                    tuple(n for _, size, _, stride in rows for n in (size * stride, stride)),
                ),
            )
        )

    def decompose(self, b: Builder, input: Value, repeats: Value) -> Any:
        """Prepend 1s so that there are as many repeats as axes; return None without ``extend``."""
        length = length_of_vector(repeats, "repeats")
        if not self.extend or input.shape is None or not isinstance(length, int):
            return None
        rank = max(length, len(input.shape))
        if rank > len(input.shape):
            input = b.Unsqueeze(input, list(range(rank - len(input.shape))))
        return b.Tile(input, _pad_with_ones(b, repeats, rank))


def _pad_with_ones(b: Builder, vector: Value | list[int], rank: int) -> Any:
    """Prepend 1s to a vector so that the result has ``rank`` elements."""
    if isinstance(vector, list):
        return b.constant(np.array(with_leading_ones(vector, rank), dtype=np.int64))
    missing = rank - vector.dims[0]
    ones = b.constant(np.ones(missing, dtype=vector.dtype.numpy), vector.dtype)
    return b.Concat(ones, vector, axis=0) if missing else vector

"""The same elements in another order, or each several times: Transpose, Expand, Tile."""

from __future__ import annotations

from collections.abc import Sequence
from math import prod
from typing import TYPE_CHECKING, Any

import numpy as np

from dovetail import arrays, symbolic
from dovetail.errors import RuleError, UnsupportedError
from dovetail.ir.op import Op, Window, Windows
from dovetail.ir.types import View, broadcast_size, static
from dovetail.ops.shape_values import elements_of, host_view_of, integers_of, is_size, length_of_vector, shape_of_rank, view_of

if TYPE_CHECKING:
    from dovetail.arrays import Array, Namespace
    from dovetail.ir.builder import Builder
    from dovetail.ir.graph import Value


def aligned(sizes: Sequence[Any], rank: int) -> list[Any]:
    """``sizes`` with as many 1 before them as make ``rank``."""
    return [1] * (rank - len(sizes)) + list(sizes)


def dense(shape: Sequence[int]) -> tuple[int, ...]:
    """The strides of a row-major array, in elements."""
    return tuple(prod(shape[axis + 1 :]) for axis in range(len(shape)))


class Transpose(
    Op,
    sig="data: T, perm?!: I -> transposed: T",
    onnx="Transpose-1,13,21,23,24,25(data; perm~natural?)",
    openvino="Transpose-1(data, perm)",
):
    """Axis i of the result is axis ``order[i]`` of ``x``; without an order, or with an empty one, the axes are reversed.

    ``order`` is a permutation of 0 .. rank - 1. Sources: ONNX Transpose 1 to 25; OpenVINO Transpose-1.
    """

    def shape(self, data: View, perm: View | None = None) -> Any:
        length = None if perm is None else length_of_vector(perm, "order")
        if data.shape is None:
            return shape_of_rank(length or None)
        places = _order(len(data.shape), perm)
        return shape_of_rank(len(data.shape)) if places is None else tuple(data.shape[place] for place in places)

    def evaluate(self, xp: Namespace, data: Array, perm: Array | None = None) -> Any:
        places = _order(data.ndim, host_view_of(perm))
        if places is None:
            raise symbolic.Inexact
        return xp.permute_dims(data, tuple(places))

    def vjp(self, b: Builder, g: Value, y: Value, data: Value, perm: Value | None = None) -> Any:
        if perm is None:
            return [b.Transpose(g)]
        places = integers_of(perm)
        if places is None:
            raise UnsupportedError("grad.order", "the gradient needs the order of the axes to be known")
        return [b.Transpose(g, inverse(places)) if places else b.Transpose(g), None]

    def windows(self, data: View, perm: View | None = None) -> Windows:
        shape = static(data.shape)
        places = _order(len(shape), perm)
        if places is None:
            raise UnsupportedError("windows.order", "the order of the axes is not known")
        sizes = tuple(shape[place] for place in places)
        strides = dense(shape)
        return Windows((Window(0, 0, sizes, 0, tuple(strides[place] for place in places), 0, dense(sizes)),))

    def decompose(self, b: Builder, data: Value, perm: Value | None = None) -> Any:
        """The same with the order spelled out."""
        if perm is not None:
            return None
        reverse = [] if data.shape is None else list(reversed(range(len(data.shape))))
        return b.Transpose(data, b.constant(np.array(reverse, dtype=np.int64)))


def _order(rank: int, order: View | None) -> list[int] | None:
    places = [] if order is None else integers_of(order)
    if places is None:
        return None
    if not places:
        return list(reversed(range(rank)))
    if sorted(places) != list(range(rank)):
        raise RuleError("transpose.order", f"{places} is no permutation of the {rank} axes")
    return places


def inverse(order: Sequence[int]) -> list[int]:
    """The permutation that undoes ``order``."""
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
    """``x`` broadcast with a tensor of ``shape``, a vector: aligned at the end, a size of 1 is repeated to the other size.

    With ``both`` sizes of 1 and missing axes in ``shape`` give way to those of ``x``; otherwise the result has exactly ``shape``.
    Sources: ONNX Expand 8, 13; OpenVINO Broadcast-1 (numpy), -3 (numpy, bidirectional).
    """

    bidirectional: bool = True

    def shape(self, input: View, shape: View) -> Any:
        length = length_of_vector(shape, "shape")
        if input.shape is None:
            return self._open(shape, length)
        if not isinstance(length, int):
            return None
        wanted = elements_of(shape) or shape_of_rank(length)
        if wanted is None:
            return None
        rank = max(length, len(input.shape)) if self.bidirectional else length
        if len(input.shape) > rank:
            raise RuleError("shape.broadcast", f"{len(input.shape)} axes do not broadcast to {rank}")
        return tuple(map(self._meet, aligned(input.shape, rank), aligned([self._size(size) for size in wanted], rank)))

    def canonical(self, input: View, shape: View) -> Op:
        """Where the result has exactly ``shape``, both directions are one."""
        sizes = elements_of(shape)
        if self.bidirectional or sizes is None or input.shape is None or len(sizes) < len(input.shape):
            return self
        found = Expand().shape(input, shape)
        same = all(size is not None and symbolic.equal(size, wanted) is True for size, wanted in zip(found, sizes, strict=True))
        return Expand() if same else self

    def _open(self, shape: Any, length: Any) -> Any:
        if self.bidirectional or not isinstance(length, int):
            return None
        wanted = elements_of(shape)
        return shape_of_rank(length) if wanted is None else tuple(map(self._size, wanted))

    def _size(self, size: Any) -> Any:
        """A size out of ``shape``, None where nothing is known of it."""
        if isinstance(size, int) and size < 0:
            raise RuleError("expand.shape", f"the size {size} should not be negative")
        return size if size is not None and is_size(size) else None

    def _meet(self, ours: Any, theirs: Any) -> Any:
        if theirs is None:
            return ours if symbolic.equal(ours, 1) is False else None
        try:
            found = broadcast_size(ours, theirs)
        except RuleError:
            raise RuleError("shape.broadcast", f"a size of {ours} does not broadcast to {theirs}") from None
        if self.bidirectional:
            return found
        if theirs == 1 and symbolic.equal(ours, 1) is False:
            raise RuleError("shape.broadcast", f"a size of {ours} does not broadcast to 1")
        return theirs

    def evaluate(self, xp: Namespace, input: Array, shape: Array) -> Any:
        found = self.shape(view_of(input), host_view_of(shape))
        if found is None or None in found:
            raise symbolic.Inexact
        return xp.broadcast_to(input, tuple(found))

    def vjp(self, b: Builder, g: Value, y: Value, input: Value, shape: Value) -> Any:
        from dovetail.ops.elementwise.broadcast import unbroadcast

        return [unbroadcast(b, g, input), None]

    def windows(self, input: View, shape: View) -> Windows:
        sizes = static(self.shape(input, shape))
        ours = aligned(static(input.shape), len(sizes))
        strides = tuple(0 if size == 1 else stride for size, stride in zip(ours, dense(ours), strict=True))
        return Windows((Window(0, 0, sizes, 0, strides, 0, dense(sizes)),))


class Tile(
    Op,
    sig="input: T, repeats!: I -> output: T",
    onnx="Tile-6,13(input, repeats | extend=false)",
    openvino="Tile-1(input, repeats | extend=true/false)",
):
    """``x`` laid ``repeats[i]`` times end to end along each axis i.

    ``repeats`` has one number for each axis; with ``extend`` it may have more or fewer, and 1 is understood before the shorter of
    it and the shape. Sources: ONNX Tile 6, 13; OpenVINO Tile-1.
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
            raise RuleError("tile.repeats", f"{length} repeats for {len(shape)} axes")
        counts = elements_of(repeats)
        if counts is None:
            return shape_of_rank(max(length, len(shape)))
        rank = max(len(shape), len(counts))
        return tuple(map(self._size, aligned(shape, rank), aligned(counts, rank)))

    def _size(self, size: Any, count: Any) -> Any:
        if isinstance(count, int) and count < 0:
            raise RuleError("tile.repeats", f"{count} repeats")
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
            input = xp.reshape(input, tuple(aligned(input.shape, rank)))
        return arrays.tile(xp, input, aligned(counts, rank))

    def vjp(self, b: Builder, g: Value, y: Value, input: Value, repeats: Value) -> Any:
        from dovetail.ir.builder import shape_value
        from dovetail.ops.builders import reshape_like
        from dovetail.ops.shape_values import as_i64

        sizes, counts = shape_value(b, input), integers_of(repeats)
        rank = len(y.dims)
        if isinstance(sizes, list) and counts is not None:
            pairs = zip(aligned(counts, rank), aligned(sizes, rank), strict=True)
            split: Any = [size for pair in pairs for size in pair]
        else:
            columns = [b.Unsqueeze(_filled(b, vector, rank), [1]) for vector in (as_i64(b, repeats), sizes)]
            split = b.Reshape(b.Concat(*columns, axis=1), [-1])
        wide = b.Reshape(g, split, special_zero=False)
        summed = b.ReduceSum(wide, list(range(0, 2 * rank, 2)), keepdims=False)
        return [reshape_like(b, summed, input) if rank != len(input.dims) else summed, None]

    def windows(self, input: View, repeats: View) -> Windows:
        shape, counts = static(input.shape), integers_of(repeats)
        if counts is None:
            raise UnsupportedError("windows.repeats", "the repeats are not known")
        rank = max(len(shape), len(counts))
        sizes, times = aligned(shape, rank), aligned(counts, rank)
        ours, theirs = dense(sizes), dense([size * count for size, count in zip(sizes, times, strict=True)])
        rows = list(zip(times, sizes, ours, theirs, strict=True))
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
        """The same with one repeat for each axis."""
        length = length_of_vector(repeats, "repeats")
        if not self.extend or input.shape is None or not isinstance(length, int):
            return None
        rank = max(length, len(input.shape))
        if rank > len(input.shape):
            input = b.Unsqueeze(input, list(range(rank - len(input.shape))))
        return b.Tile(input, _filled(b, repeats, rank))


def _filled(b: Builder, vector: Value | list[int], rank: int) -> Any:
    """A vector, as a value or a list, with as many 1 before it as make ``rank``."""
    if isinstance(vector, list):
        return b.constant(np.array(aligned(vector, rank), dtype=np.int64))
    missing = rank - vector.dims[0]
    ones = b.constant(np.ones(missing, dtype=vector.dtype.numpy), vector.dtype)
    return b.Concat(ones, vector, axis=0) if missing else vector

"""The same elements in another order, or each several times: Transpose, Expand, Tile."""

from __future__ import annotations

from collections.abc import Sequence
from math import prod
from typing import Any

import numpy as np

from dovetail import arrays, symbolic
from dovetail.errors import RuleError, UnsupportedError
from dovetail.ir.op import Op, Window, Windows
from dovetail.ir.types import broadcast_size, static
from dovetail.ops.shape_values import elements_of, host_view_of, integers_of, is_size, length_of_vector, shape_of_rank, view_of


def aligned(sizes: Sequence[Any], rank: int) -> list[Any]:
    """``sizes`` with as many 1 before them as make ``rank``."""
    return [1] * (rank - len(sizes)) + list(sizes)


def dense(shape: Sequence[int]) -> tuple[int, ...]:
    """The strides of a row-major array, in elements."""
    return tuple(prod(shape[axis + 1 :]) for axis in range(len(shape)))


class Transpose(
    Op,
    sig="x: T, order?!: I -> y: T",
    onnx="Transpose-1,13,21,23,24,25(x; perm~natural:order?)",
    openvino="Transpose-1(x, order)",
):
    """Axis i of the result is axis ``order[i]`` of ``x``; without an order, or with an empty one, the axes are reversed.

    ``order`` is a permutation of 0 .. rank - 1. Sources: ONNX Transpose 1 to 25; OpenVINO Transpose-1.
    """

    def shape(self, x: Any, order: Any = None) -> Any:
        length = None if order is None else length_of_vector(order, "order")
        if x.shape is None:
            return shape_of_rank(length or None)
        places = _order(len(x.shape), order)
        return shape_of_rank(len(x.shape)) if places is None else tuple(x.shape[place] for place in places)

    def evaluate(self, xp: Any, x: Any, order: Any = None) -> Any:
        places = _order(x.ndim, host_view_of(order))
        if places is None:
            raise symbolic.Inexact
        return xp.permute_dims(x, tuple(places))

    def vjp(self, b: Any, g: Any, y: Any, x: Any, order: Any = None) -> Any:
        if order is None:
            return [b.Transpose(g)]
        places = integers_of(order)
        if places is None:
            raise UnsupportedError("grad.order", "the gradient needs the order of the axes to be known")
        return [b.Transpose(g, inverse(places)) if places else b.Transpose(g), None]

    def windows(self, x: Any, order: Any = None) -> Windows:
        shape = static(x.shape)
        places = _order(len(shape), order)
        if places is None:
            raise UnsupportedError("windows.order", "the order of the axes is not known")
        sizes = tuple(shape[place] for place in places)
        strides = dense(shape)
        return Windows((Window(0, 0, sizes, 0, tuple(strides[place] for place in places), 0, dense(sizes)),))

    def decompose(self, b: Any, x: Any, order: Any = None) -> Any:
        """The same with the order spelled out."""
        if order is not None:
            return None
        reverse = [] if x.shape is None else list(reversed(range(len(x.shape))))
        return b.Transpose(x, b.constant(np.array(reverse, dtype=np.int64)))


def _order(rank: int, order: Any) -> list[int] | None:
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
    sig="x: T, shape!: I -> y: T",
    onnx="Expand-8,13(x, shape | both=true)",
    openvino=(
        "Broadcast-1(x, shape; mode~{numpy:false}:both=numpy)",
        "Broadcast-3(x, shape; mode~{bidirectional:true,numpy:false}:both=numpy)",
    ),
):
    """``x`` broadcast with a tensor of ``shape``, a vector: aligned at the end, a size of 1 is repeated to the other size.

    With ``both`` sizes of 1 and missing axes in ``shape`` give way to those of ``x``; otherwise the result has exactly ``shape``.
    Sources: ONNX Expand 8, 13; OpenVINO Broadcast-1 (numpy), -3 (numpy, bidirectional).
    """

    both: bool = True

    def shape(self, x: Any, shape: Any) -> Any:
        length = length_of_vector(shape, "shape")
        if x.shape is None:
            return self._open(shape, length)
        if not isinstance(length, int):
            return None
        wanted = elements_of(shape) or shape_of_rank(length)
        if wanted is None:
            return None
        rank = max(length, len(x.shape)) if self.both else length
        if len(x.shape) > rank:
            raise RuleError("shape.broadcast", f"{len(x.shape)} axes do not broadcast to {rank}")
        return tuple(map(self._meet, aligned(x.shape, rank), aligned([self._size(size) for size in wanted], rank)))

    def canonical(self, x: Any, shape: Any) -> Op:
        """Where the result has exactly ``shape``, both directions are one."""
        sizes = elements_of(shape)
        if self.both or sizes is None or x.shape is None or len(sizes) < len(x.shape):
            return self
        found = Expand().shape(x, shape)
        same = all(size is not None and symbolic.equal(size, wanted) is True for size, wanted in zip(found, sizes, strict=True))
        return Expand() if same else self

    def _open(self, shape: Any, length: Any) -> Any:
        if self.both or not isinstance(length, int):
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
        if self.both:
            return found
        if theirs == 1 and symbolic.equal(ours, 1) is False:
            raise RuleError("shape.broadcast", f"a size of {ours} does not broadcast to 1")
        return theirs

    def evaluate(self, xp: Any, x: Any, shape: Any) -> Any:
        found = self.shape(view_of(x), host_view_of(shape))
        if found is None or None in found:
            raise symbolic.Inexact
        return xp.broadcast_to(x, tuple(found))

    def vjp(self, b: Any, g: Any, y: Any, x: Any, shape: Any) -> Any:
        from dovetail.ops.elementwise.broadcast import unbroadcast

        return [unbroadcast(b, g, x), None]

    def windows(self, x: Any, shape: Any) -> Windows:
        sizes = static(self.shape(x, shape))
        ours = aligned(static(x.shape), len(sizes))
        strides = tuple(0 if size == 1 else stride for size, stride in zip(ours, dense(ours), strict=True))
        return Windows((Window(0, 0, sizes, 0, strides, 0, dense(sizes)),))


class Tile(
    Op,
    sig="x: T, repeats!: I -> y: T",
    onnx="Tile-6,13(x, repeats | extend=false)",
    openvino="Tile-1(x, repeats | extend=true/false)",
):
    """``x`` laid ``repeats[i]`` times end to end along each axis i.

    ``repeats`` has one number for each axis; with ``extend`` it may have more or fewer, and 1 is understood before the shorter of
    it and the shape. Sources: ONNX Tile 6, 13; OpenVINO Tile-1.
    """

    extend: bool = False

    def shape(self, x: Any, repeats: Any) -> Any:
        length = length_of_vector(repeats, "repeats")
        shape = x.shape
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

    def canonical(self, x: Any, repeats: Any) -> Op:
        same = x.shape is not None and repeats.shape is not None and repeats.shape[0] == len(x.shape)
        return self.with_(extend=False) if self.extend and same else self

    def evaluate(self, xp: Any, x: Any, repeats: Any) -> Any:
        view = host_view_of(repeats)
        self.shape(view_of(x), view)
        counts = integers_of(view)
        if counts is None:
            raise symbolic.Inexact
        rank = max(x.ndim, len(counts))
        if rank > x.ndim:
            x = xp.reshape(x, tuple(aligned(x.shape, rank)))
        return arrays.tile(xp, x, aligned(counts, rank))

    def vjp(self, b: Any, g: Any, y: Any, x: Any, repeats: Any) -> Any:
        from dovetail.ir.builder import shape_value
        from dovetail.ops.builders import reshape_like
        from dovetail.ops.shape_values import as_i64

        sizes, counts = shape_value(b, x), integers_of(repeats)
        rank = len(y.dims)
        if isinstance(sizes, list) and counts is not None:
            pairs = zip(aligned(counts, rank), aligned(sizes, rank), strict=True)
            split: Any = [size for pair in pairs for size in pair]
        else:
            columns = [b.Unsqueeze(_filled(b, vector, rank), [1]) for vector in (as_i64(b, repeats), sizes)]
            split = b.Reshape(b.Concat(*columns, axis=1), [-1])
        wide = b.Reshape(g, split, copy_zeros=False)
        summed = b.ReduceSum(wide, list(range(0, 2 * rank, 2)), keepdims=False)
        return [reshape_like(b, summed, x) if rank != len(x.dims) else summed, None]

    def windows(self, x: Any, repeats: Any) -> Windows:
        shape, counts = static(x.shape), integers_of(repeats)
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

    def decompose(self, b: Any, x: Any, repeats: Any) -> Any:
        """The same with one repeat for each axis."""
        length = length_of_vector(repeats, "repeats")
        if not self.extend or x.shape is None or not isinstance(length, int):
            return None
        rank = max(length, len(x.shape))
        if rank > len(x.shape):
            x = b.Unsqueeze(x, list(range(rank - len(x.shape))))
        return b.Tile(x, _filled(b, repeats, rank))


def _filled(b: Any, vector: Any, rank: int) -> Any:
    """A vector, as a value or a list, with as many 1 before it as make ``rank``."""
    if isinstance(vector, list):
        return b.constant(np.array(aligned(vector, rank), dtype=np.int64))
    missing = rank - vector.dims[0]
    ones = b.constant(np.ones(missing, dtype=vector.dtype.numpy), vector.dtype)
    return b.Concat(ones, vector, axis=0) if missing else vector

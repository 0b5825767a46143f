"""Reshape, Flatten, Squeeze and Unsqueeze: the same elements in another shape."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

import numpy as np

from dovetail.errors import RuleError
from dovetail.ir import arrays, dtypes, symbolic
from dovetail.ir.op import Op, Windows
from dovetail.ir.types import Shape, Size, View, axes_in, dtype_in, total
from dovetail.ops.builders import reshape_like
from dovetail.ops.shape_values import (
    REFUSED_SIZE,
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


class RowMajorOp(Op):
    """RowMajorOp is the base of operators that change the shape, and keep the elements in row-major order."""


class Reshape(
    RowMajorOp,
    sig="data: T, shape!: I -> reshaped: T",
    onnx=(
        "Reshape-1(data; shape, consumed_inputs:_)",
        "Reshape-5,13(data, shape)",
        "Reshape-14,19,21,23,24,25(data, shape; allowzero~not:special_zero=0)",
    ),
    openvino="Reshape-1(data, shape; special_zero | empty=cancel/refuse)",
):
    """Reshape ``data`` to the sizes in the vector ``shape``, keeping its elements in row-major order.

    With ``special_zero`` a 0 copies the input's dimension at the same index, which must be below the rank; otherwise a 0 is a
    size of zero. One size may be -1: it is computed so that the numbers of elements agree. ``empty`` defines -1 if the other
    sizes multiply to 0: ``refuse`` is an error; ``cancel`` divides the input's sizes by the other sizes, both without copied
    sizes ([0, 3] reshaped to [0, -1] is [0, 3]); ``zero`` makes -1 a size of 0, and refuses the shape [0] unless the 0 copies.
    Without ``special_zero`` a 0 together with -1 is always an error. A symbolic element of ``shape`` does not copy, even if its
    value is 0. ``special_zero`` is the negation of ONNX's ``allowzero``.
    Sources: ONNX Reshape 1 to 25 (allowzero), OpenVINO Reshape-1 (special_zero), nGraph Reshape v1.
    """

    special_zero: bool = True
    empty: str = "refuse"

    def shape(self, data: View, shape: View) -> Any:
        length = self._check_shape_input(shape)
        sizes = elements_of(shape)
        if sizes is None:
            return shape_of_rank(length)
        negative = [size for size in sizes if isinstance(size, int) and size < -1]
        if negative:
            raise RuleError("reshape.target", f"a size of the shape must be at least -1, got {negative[0]}")
        if all(isinstance(size, int) for size in sizes):
            total(size for size in sizes if size != -1)
        if self.empty == "zero" and not self.special_zero and sizes == [0]:
            raise RuleError("reshape.target", "the 0 of the shape [0] must copy a dimension")
        free = [axis for axis, size in enumerate(sizes) if size == -1]
        if len(free) > 1:
            raise RuleError("reshape.target", f"at most one size of the shape may be -1, got {len(free)}")
        copied = [axis for axis, size in enumerate(sizes) if size == 0] if self.special_zero else []
        if free and not self.special_zero and 0 in sizes:
            raise RuleError("reshape.target", f"a shape with -1 must have no size of 0, got {sizes}")
        # Beside a -1 no other size may be -1.
        unknown = [] if free else [axis for axis, size in enumerate(sizes) if self._may_be_special(size, data.shape)]
        if data.shape is None:
            return tuple(None if axis in (*free, *unknown, *copied) else size for axis, size in enumerate(sizes))
        for axis in copied:
            if axis >= len(data.shape):
                raise RuleError("reshape.target", f"the index of a copying 0 ({axis}) must be below the rank ({len(data.shape)})")
        sizes = [data.shape[axis] if axis in copied else size for axis, size in enumerate(sizes)]
        if unknown and not (self.empty == "refuse" and symbolic.equal(total(data.shape), total(sizes)) is True):
            return self._infer_unknown(data.shape, sizes, unknown)
        # With that many elements a size of -1 would leave a product of 0 for the other sizes, which is refused.
        if not free:
            self._check_volume(data.shape, sizes)
            return tuple(sizes)
        (axis,) = free
        sizes[axis] = self._infer_free(data.shape, sizes, axis, copied)
        return tuple(sizes)

    def _check_shape_input(self, shape: View) -> Size | None:
        dtype = dtype_in(shape.type)
        if dtype is not None and dtype.bits < 8:
            raise RuleError("type.class", f"input 'shape' must be an integer type of 8 to 64 bits, got {dtype}")
        if shape.shape is None:
            return None
        if len(shape.shape) != 1:
            raise RuleError("reshape.target", f"the shape must be a vector, got rank {len(shape.shape)}")
        return shape.shape[0]

    def _may_be_special(self, size: Size, dims: Shape | None) -> bool:
        """Test whether a symbolic element of ``shape`` may be -1 at run time; a dimension of the input is never negative."""
        return not isinstance(size, int) and not is_size(size) and size not in (dims or ())

    def _infer_unknown(self, shape: Shape, sizes: list[Any], unknown: list[int]) -> Any:
        """Return the sizes, None for unknown sizes; a single unknown size is computed from the number of elements."""
        size = None
        if len(unknown) == 1:
            rest = total(size for axis, size in enumerate(sizes) if axis not in unknown)
            if symbolic.equal(rest, 0) is False:
                size = symbolic.exact_quotient(total(shape), rest)
        return tuple(size if axis in unknown else other for axis, other in enumerate(sizes))

    def _check_volume(self, shape: Shape, sizes: list[Any]) -> None:
        before, after = total(shape), total(sizes)
        if symbolic.equal(before, after) is False:
            raise RuleError("reshape.volume", f"the shape must have as many elements as the input ({before}), got {after}")

    def _infer_free(self, shape: Shape, sizes: list[Any], free: int, copied: list[int]) -> Any:
        """Return the size for -1, at index ``free``."""
        known = total(size for axis, size in enumerate(sizes) if axis != free)
        literal = total(size for axis, size in enumerate(sizes) if axis != free and axis not in copied)
        if known == 0 and self.empty == "refuse":
            raise RuleError("reshape.target", f"sizes other than -1 must not multiply to 0, for an input of shape {list(shape)}")
        if self.empty == "zero" and symbolic.equal(known, 0) is not False:
            return 0 if isinstance(known, int) else None
        # Copied dimensions occur in the input and in the output, and cancel even if they are 0.
        remaining = total(size for axis, size in enumerate(shape) if axis not in copied)
        if isinstance(remaining, int) and isinstance(literal, int):
            if remaining % literal:
                message = f"the number of elements ({total(shape)}) must be a multiple of the product of the sizes ({known})"
                raise RuleError("reshape.volume", message)
            return remaining // literal
        quotient = symbolic.exact_quotient(remaining, literal)
        if quotient is not None:
            return quotient
        # A run in which the divisor is 0 raises an error.
        return symbolic.quotient_of_nonzero(remaining, literal) if isinstance(literal, symbolic.Dim) else remaining // literal

    def canonical(self, data: View, shape: View) -> Op:
        """Reset attributes without effect: ``empty`` if no -1 occurs with a size of 0, ``special_zero`` if a 0 copies a 0."""
        sizes = elements_of(shape)
        empty = "refuse" if self.empty == "cancel" and not self.special_zero else self.empty
        if sizes is None:
            return self.with_(empty=empty)
        zeros = [axis for axis, size in enumerate(sizes) if symbolic.equal(size, 0) is not False]
        if not zeros:
            return Reshape()
        sources = [data.shape[axis] if data.shape is not None and axis < len(data.shape) else None for axis in zeros]
        if not any(self._may_be_special(size, data.shape) or size == -1 for size in sizes):
            empty = "refuse"
        if all(size is not None and symbolic.equal(size, 0) is False for size in sources):
            empty = "refuse"
        return Reshape(self.special_zero or all(size == 0 for size in sources), empty)

    def evaluate(self, xp: Namespace, data: Array, shape: Array) -> Any:
        return arrays.reshape(xp, data, self.shape(view_of(data), host_view_of(shape)))

    def vjp(self, b: Builder, g: Value, y: Value, data: Value, shape: Value) -> Any:
        return [reshape_like(b, g, data), None]

    def windows(self, data: View, shape: View) -> Windows:
        return Windows.whole(data.shape)

    def decompose(self, b: Builder, data: Value, shape: Value) -> Any:
        """Emit explicit sizes, for formats that define -1 with a copied 0 differently; None if ``empty`` is ``refuse``."""
        if self.empty == "refuse":
            return None
        if not self.special_zero:
            # Only nGraph refuses the shape [0]; other formats accept it.
            return b.Reshape(data, shape, special_zero=False)
        sizes, inferred = elements_of(shape), self.shape(data, shape)
        if sizes is not None and all(isinstance(size, int) for size in sizes):
            explicit = [inferred[axis] if size == -1 else size for axis, size in enumerate(sizes)]
            if explicit.count(0) == sizes.count(0) and all(isinstance(size, int) for size in explicit):
                return b.Reshape(data, explicit)
            if all(isinstance(size, int) for size in inferred):
                return b.Reshape(data, list(inferred), special_zero=False)
        return b.Reshape(data, self._sizes_value(b, data, shape), special_zero=False)

    def _sizes_value(self, b: Builder, data: Value, shape: Value) -> Value:
        """Compute the sizes at run time; a shape that must be refused gets REFUSED_SIZE, which every format refuses."""
        zero, one, free, refused = (b.constant(number, dtypes.i64) for number in (0, 1, -1, REFUSED_SIZE))
        target = as_i64(b, shape)
        source, length = b.Shape(data, output_type=dtypes.i64), b.Shape(target, output_type=dtypes.i64)
        rank = b.Shape(source, output_type=dtypes.i64)
        copied = b.Slice(b.Concat(source, b.Expand(refused, length), axis=0), [0], length)
        is_copied = b.Slice(b.Concat(b.Equal(target, zero), b.Expand(b.constant(False), rank), axis=0), [0], rank)
        remaining = b.ReduceProd(b.Where(is_copied, one, source), [0])
        literal = b.ReduceProd(b.Where(b.Greater(target, zero), target, one), [0])
        is_free = b.Equal(target, free)
        count = b.ReduceSum(b.Cast(is_free, to=dtypes.i64), [0])
        # A product that wraps around to 0 must not be a divisor; such a shape is refused below.
        size = b.Divide(remaining, b.Where(b.Equal(literal, zero), one, literal))
        is_exact = b.And(b.Equal(b.Multiply(size, literal), remaining), b.LessEqual(count, one))
        sizes = b.Where(b.Equal(target, zero), copied, b.Where(is_free, b.Where(is_exact, size, refused), target))
        if self.empty == "zero":
            is_empty = b.Equal(b.ReduceProd(b.Where(is_free, one, sizes), [0]), zero)
            sizes = b.Where(b.And(is_free, is_empty), zero, sizes)
        return sizes


class Flatten(
    RowMajorOp,
    sig="input: T -> output: T",
    onnx=("Flatten-1,9(input; axis~front=1)", "Flatten-11,13,21,23,24,25(input; axis=1)"),
):
    """Flatten ``input`` to a matrix: [product of the sizes before ``axis``, product of the other sizes].

    ``axis`` is in [-rank, rank]; the product of no sizes is 1. Source: ONNX Flatten 1 to 25.
    """

    axis: int = 1

    def shape(self, input: View) -> Any:
        if input.shape is None:
            return None, None
        axis = self._axis(len(input.shape))
        return total(input.shape[:axis]), total(input.shape[axis:])

    def _axis(self, rank: int) -> int:
        if not -rank <= self.axis <= rank:
            raise RuleError("axis.range", f"axis must be in [{-rank}, {rank}], got {self.axis}")
        return self.axis + rank if self.axis < 0 else self.axis

    def canonical(self, input: View) -> Op:
        return self if input.shape is None else Flatten(self._axis(len(input.shape)))

    def evaluate(self, xp: Namespace, input: Array) -> Any:
        return arrays.reshape(xp, input, self.shape(view_of(input)))

    def vjp(self, b: Builder, g: Value, y: Value, input: Value) -> Any:
        return [reshape_like(b, g, input)]

    def windows(self, input: View) -> Windows:
        return Windows.whole(input.shape)

    def decompose(self, b: Builder, input: Value) -> Any:
        rows, columns = self.shape(input)
        if isinstance(rows, int) and isinstance(columns, int):
            return b.Reshape(input, [rows, columns], special_zero=False)
        if isinstance(columns, int) and columns:
            return b.Reshape(input, [-1, columns])
        if isinstance(rows, int) and rows:
            return b.Reshape(input, [rows, -1])
        if input.shape is not None and self._axis(len(input.shape)) == 1:
            # The copied size cancels: -1 is the product of the other sizes, also when the copied size is 0.
            return b.Reshape(input, [0, -1], empty="cancel")
        before, after = b.Shape(input, start=0, end=self.axis), b.Shape(input, start=self.axis)
        if self.axis == 0:
            before = b.constant(np.zeros(0, dtype=np.int64))
        sizes = b.Concat(b.ReduceProd(before, [0], keepdims=True), b.ReduceProd(after, [0], keepdims=True), axis=0)
        return b.Reshape(input, sizes, special_zero=False)


class Squeeze(
    RowMajorOp,
    sig="data: T, axes?!: I -> squeezed: T",
    onnx=(
        "Squeeze-1(data; axes~front? | skip=false)",
        "Squeeze-11(data; axes? | skip=false)",
        "Squeeze-13,21,23,24,25(data, axes? | skip=false)",
    ),
    openvino=("Squeeze-1(data, axes? | skip=true)", "Squeeze-15(data, axes?; allow_axis_skip:_ | skip=true)"),
):
    """Squeeze ``data``: remove ``axes``, which have the size 1; without ``axes`` remove every axis of size 1.

    With ``skip`` an axis of another size is kept; otherwise such an axis is an error, also at run time. ``axes`` are distinct.
    Sources: ONNX Squeeze 1 to 25; OpenVINO Squeeze-1, -15 (whose ``allow_axis_skip`` concerns inference only).
    """

    skip: bool = False

    def shape(self, data: View, axes: View | None = None) -> Any:
        if axes is not None:
            count = length_of_vector(axes, "axes", scalar=True)
        if data.shape is None:
            return None
        rank = len(data.shape)
        if axes is None:
            return _remove_axes(data.shape, range(rank), skip=True)
        numbers = integers_of(axes)
        if numbers is None:
            return (None,) * (rank - count) if isinstance(count, int) and count <= rank and not self.skip else None
        return _remove_axes(data.shape, axes_in(numbers, rank), self.skip)

    def usual_rank(self, data: View, axes: View | None = None) -> int | None:
        """Return the rank of the result if unknown sizes differ from 1; None if ``axes`` are unknown or determine the rank."""
        numbers = None if axes is None else integers_of(axes)
        if data.shape is None or (axes is not None and (numbers is None or not self.skip)):
            return None
        chosen = range(len(data.shape)) if numbers is None else axes_in(numbers, len(data.shape))
        return len(data.shape) - sum(symbolic.equal(data.shape[axis], 1) is True for axis in chosen)

    def canonical(self, data: View, axes: View | None = None) -> Op:
        """Drop ``skip`` if every axis in ``axes`` is known to have the size 1."""
        numbers = None if axes is None else integers_of(axes)
        if not self.skip or (axes is not None and (numbers is None or data.shape is None)):
            return self
        ones = numbers is None or all(symbolic.equal(data.dims[axis], 1) is True for axis in axes_in(numbers, len(data.dims)))
        return Squeeze() if ones else self

    def evaluate(self, xp: Namespace, data: Array, axes: Array | None = None) -> Any:
        shape = tuple(data.shape)
        self.shape(view_of(data), host_view_of(axes))
        numbers = range(len(shape)) if axes is None else axes_in(_known_integers(host_view_of(axes)), len(shape))
        removed = tuple(axis for axis in numbers if shape[axis] == 1)
        return xp.squeeze(data, axis=removed) if removed else data

    def vjp(self, b: Builder, g: Value, y: Value, data: Value, axes: Value | None = None) -> Any:
        if axes is None:
            return [reshape_like(b, g, data)]
        return [reshape_like(b, g, data) if self.skip else b.Unsqueeze(g, axes), None]

    def windows(self, data: View, axes: View | None = None) -> Windows:
        return Windows.whole(data.shape)

    def decompose(self, b: Builder, data: Value, axes: Value | None = None) -> Any:
        """Replace negative axes by axes counted from the front; return None if no axis is negative."""
        numbers = None if axes is None else integers_of(axes)
        if numbers is None or data.shape is None or all(axis >= 0 for axis in numbers):
            return None
        return b.apply("Squeeze", data, list(axes_in(numbers, len(data.shape))), skip=self.skip)


def _remove_axes(shape: Shape, axes: Iterable[int], skip: bool) -> Any:
    """Remove axes of size 1 from a shape; return None if an unknown size decides whether an axis is kept."""
    removed = []
    for axis in axes:
        is_one = symbolic.equal(shape[axis], 1)
        if is_one is False and not skip:
            raise RuleError("shape.disagree", f"axis {axis} must have the size 1, got {shape[axis]}")
        if is_one is None and skip:
            return None
        if is_one is not False:
            removed.append(axis)
    return tuple(size for axis, size in enumerate(shape) if axis not in removed)


def _known_integers(x: View) -> list[int]:
    """Return the elements of an integer input. Raises Inexact if they are unknown."""
    integers = integers_of(x)
    if integers is None:
        raise symbolic.Inexact("axes are not known")
    return integers


class Unsqueeze(
    RowMajorOp,
    sig="data: T, axes!: I -> expanded: T",
    onnx=(
        "Unsqueeze-1(data; axes~front)",
        "Unsqueeze-11(data; axes)",
        "Unsqueeze-13,21,23,24,25(data, axes)",
    ),
    openvino="Unsqueeze-1(data, axes)",
):
    """Unsqueeze ``data``: insert an axis of size 1 at each of ``axes``, which are distinct indices in the result.

    Sources: ONNX Unsqueeze 1 to 25; OpenVINO Unsqueeze-1.
    """

    def shape(self, data: View, axes: View) -> Any:
        count = length_of_vector(axes, "axes", scalar=True)
        if data.shape is None or not isinstance(count, int):
            return None
        rank = len(data.shape) + count
        numbers = integers_of(axes)
        if numbers is None:
            return shape_of_rank(rank)
        inserted = axes_in(numbers, rank)
        sizes = iter(data.shape)
        return tuple(1 if axis in inserted else next(sizes) for axis in range(rank))

    def evaluate(self, xp: Namespace, data: Array, axes: Array) -> Any:
        self.shape(view_of(data), host_view_of(axes))
        for axis in sorted(axes_in(_known_integers(host_view_of(axes)), data.ndim + int(np.size(axes)))):
            data = xp.expand_dims(data, axis=axis)
        return data

    def vjp(self, b: Builder, g: Value, y: Value, data: Value, axes: Value) -> Any:
        return [b.Squeeze(g, axes), None]

    def windows(self, data: View, axes: View) -> Windows:
        return Windows.whole(data.shape)

    def decompose(self, b: Builder, data: Value, axes: Value) -> Any:
        """Replace negative axes by axes counted from the front; return None if no axis is negative."""
        numbers = integers_of(axes)
        if numbers is None or data.shape is None or all(axis >= 0 for axis in numbers):
            return None
        return b.Unsqueeze(data, list(axes_in(numbers, len(data.shape) + len(numbers))))

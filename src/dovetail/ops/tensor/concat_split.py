"""Concat and Split along an axis."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import accumulate
from math import prod
from typing import TYPE_CHECKING, Any

from dovetail.errors import RuleError
from dovetail.ir import dtypes, symbolic
from dovetail.ir.arrays import element
from dovetail.ir.graph import Operand
from dovetail.ir.op import Op, Window, Windows
from dovetail.ir.types import INT64_MAX, Bounded, Size, View, agree, axis_in, static
from dovetail.ops.builders import zeros_like
from dovetail.ops.shape_values import as_i64, elements_of, host_view_of, is_size, view_of

if TYPE_CHECKING:
    from dovetail.ir.arrays import Array, Namespace
    from dovetail.ir.builder import Builder
    from dovetail.ir.graph import Value


def _positive_rank(rank: int) -> int:
    if rank == 0:
        raise RuleError("shape.rank", "Concat and Split need a rank of at least 1, got a scalar")
    return rank


class Concat(
    Op,
    sig="*inputs: T -> concat_result: T",
    onnx=("Concat-1(*inputs; axis~front=1)", "Concat-4(*inputs; axis~front)", "Concat-11,13(*inputs; axis)"),
    openvino="Concat-1(*inputs; axis)",
):
    """Concatenate ``inputs`` along ``axis``, which counts from the end when negative; all other dimensions agree.

    There is at least one input, and no input is a scalar. Inputs are neither broadcast nor promoted; sizes of 0 are allowed.
    Sources: ONNX Concat 1, 4, 11, 13; OpenVINO Concat-1; nGraph Concat.
    """

    cache_ports = ((0, 0),)

    axis: int

    def shape(self, *inputs: View) -> Any:
        if not inputs:
            raise RuleError("node.inputs", "Concat needs at least 1 input, got 0")
        known = [x.shape for x in inputs if x.shape is not None]
        if not known:
            return None
        numbers = [number for number, x in enumerate(inputs) if x.shape is not None]
        rank = _positive_rank(len(known[0]))
        axis = axis_in(self.axis, rank)
        sizes: list[Any] = list(known[0])
        for number, shape in zip(numbers[1:], known[1:], strict=True):
            if len(shape) != rank:
                raise RuleError("shape.rank", f"ranks of the inputs must be equal, got {rank} and {len(shape)}")
            for index, size in enumerate(shape):
                if index == axis:
                    sizes[index] = sizes[index] + size
                else:
                    sizes[index] = agree(sizes[index], size, (numbers[0], index), (number, index))
        if isinstance(sizes[axis], int) and sizes[axis] > INT64_MAX:
            raise RuleError("shape.range", f"the size of axis {axis} must be at most 2**63 - 1, got {sizes[axis]}")
        if len(known) < len(inputs):
            sizes[axis] = Bounded(symbolic.bounds(sizes[axis])[0] or 0, None)
        return tuple(sizes)

    def canonical(self, *inputs: View) -> Op:
        rank = next((len(x.shape) for x in inputs if x.shape is not None), None)
        return self if rank is None else Concat(axis_in(self.axis, rank))

    def evaluate(self, xp: Namespace, *inputs: Array) -> Any:
        # Array libraries promote element types, so that this function checks that the element types are equal.
        kinds = list(dict.fromkeys(str(element(x)) for x in inputs))
        if len(kinds) > 1:
            raise RuleError("type.disagree", f"element types must be equal, got {', '.join(kinds)}")
        self.shape(*map(view_of, inputs))
        return xp.concat(list(inputs), axis=self.axis)

    def vjp(self, b: Builder, g: Value, y: Value, *inputs: Value) -> Any:
        axis = axis_in(self.axis, len(y.dims))
        sizes = [x.dims[axis] for x in inputs]
        if all(isinstance(size, int) for size in sizes):
            return b.Split(g, sizes, axis=axis, outputs=len(inputs))
        lengths = b.Concat(*(b.Gather(b.Shape(x), [axis]) for x in inputs), axis=0)
        return b.Split(g, lengths, axis=axis, outputs=len(inputs))

    def windows(self, *inputs: View) -> Windows:
        shapes = [static(x.shape) for x in inputs]
        axis = axis_in(self.axis, len(shapes[0]))
        outer, inner = prod(shapes[0][:axis]), prod(shapes[0][axis + 1 :])
        rows = [shape[axis] * inner for shape in shapes]
        whole = sum(rows)
        return Windows(
            tuple(
                Window(index, 0, (outer, row), 0, (row, 1), start, (whole, 1))
                for index, (row, start) in enumerate(zip(rows, accumulate(rows, initial=0), strict=False))
            )
        )


class Split(
    Op,
    sig="input: T, split?!: I -> *outputs: T",
    onnx=(
        "Split-1,2(input; split?, axis~front=0)",
        "Split-11(input; split?, axis=0)",
        "Split-13(input, split?; axis=0)",
        "Split-18(input, split; axis=0)",
        ">Split-18(input; axis, num_outputs:outputs | ragged=true/false)",
    ),
    openvino=("VariadicSplit-1(input, axis, split | wildcard=true/false)", "Split-1(input, axis~scalar; num_splits:outputs)"),
):
    """Split ``input`` along ``axis`` into parts of the lengths in ``split``, or into ``outputs`` equal parts.

    ``split`` is a vector of lengths >= 0 that add up to the dimension; with ``wildcard`` one length may be -1: the remainder.
    Without ``split`` the dimension is a multiple of ``outputs``, unless ``ragged``: then each part has ceil(dim / outputs)
    elements, and the last part may be smaller. Sources: ONNX Split 1, 2, 11, 13, 18; OpenVINO Split-1, VariadicSplit-1.
    """

    axis: int = 0
    outputs: int = 1
    ragged: bool = False
    wildcard: bool = False

    def validate(self) -> None:
        if self.outputs < 1:
            raise RuleError("split.sizes", f"Split needs at least 1 output, got {self.outputs}")

    def shape(self, input: View, split: View | None = None) -> Any:
        lengths = None if split is None else self._lengths(split)
        shape = input.shape
        if shape is None:
            return [None] * self.outputs
        axis = axis_in(self.axis, _positive_rank(len(shape)))
        pieces = self._equal_parts(shape[axis]) if split is None else self._explicit_parts(shape[axis], lengths)
        return [(*shape[:axis], piece, *shape[axis + 1 :]) for piece in pieces]

    def _check_count(self, split: View) -> None:
        shape = split.shape
        if shape is None:
            return
        if len(shape) != 1:
            raise RuleError("split.sizes", f"the lengths must be a vector, got rank {len(shape)}")
        (count,) = shape
        if symbolic.equal(count, self.outputs) is False:
            raise RuleError("split.sizes", f"the number of lengths ({count}) must equal the number of outputs ({self.outputs})")

    def _equal_parts(self, size: Size) -> list[Any]:
        count = self.outputs
        if not self.ragged:
            if not _may_divide(size, count):
                raise RuleError("shape.multiple", f"the dimension ({size}) must be a multiple of the number of outputs ({count})")
            return [size // count] * count
        piece = -(-size // count)
        last = size - piece * (count - 1)
        if isinstance(last, int) and last < 0:
            raise RuleError("shape.multiple", f"{count} parts of {piece} must not exceed the dimension ({size})")
        return [piece] * (count - 1) + [last]

    def _lengths(self, split: View) -> list[Any] | None:
        """Return the elements of ``split``, which may be -1 or symbolic; None if the elements are unknown."""
        self._check_count(split)
        lengths = elements_of(split)
        if lengths is None:
            return None
        numbers = [length for length in lengths if isinstance(length, int)]
        if any(length < -1 for length in numbers):
            raise RuleError("split.sizes", f"lengths must not be negative, got {_text(lengths)}")
        if -1 in numbers and not self.wildcard:
            raise RuleError("split.sizes", f"a length of -1 needs a split with wildcard, got {_text(lengths)}")
        if numbers.count(-1) > 1:
            raise RuleError("split.sizes", f"at most one length may be -1, got {_text(lengths)}")
        if sum(length for length in numbers if length != -1) > INT64_MAX:
            raise RuleError("split.sizes", f"the sum of the lengths must be at most 2**63 - 1, got {_text(lengths)}")
        return lengths

    def _explicit_parts(self, size: Size, lengths: list[Any] | None) -> list[Any]:
        if lengths is None:
            return [None] * self.outputs
        rest = sum(length for length in lengths if length != -1)
        remainder = size - rest if -1 in lengths else None
        if remainder is None:
            if all(map(is_size, lengths)) and symbolic.equal(rest, size) is False:
                raise RuleError("split.sizes", f"lengths must add up to the dimension ({size}), got {_text(lengths)}")
        elif symbolic.less(remainder, 0):
            raise RuleError(
                "split.sizes", f"lengths other than -1 must add up to at most the dimension ({size}), got {_text(lengths)}"
            )
        # A symbolic length that may be negative may be -1, the remainder.
        return [remainder if length == -1 else length if is_size(length) else None for length in lengths]

    def canonical(self, input: View, split: View | None = None) -> Op:
        axis, ragged, wildcard = self.axis, self.ragged, self.wildcard
        if input.shape is not None:
            axis = axis_in(axis, len(input.shape))
            ragged = ragged and symbolic.exact_quotient(input.shape[axis], self.outputs) is None
        lengths = elements_of(split)
        if lengths is not None:
            wildcard = wildcard and not all(map(is_size, lengths))
        return Split(axis, self.outputs, ragged, wildcard)

    def evaluate(self, xp: Namespace, input: Array, split: Array | None = None) -> Any:
        shapes = self.shape(view_of(input), host_view_of(split))
        axis = axis_in(self.axis, input.ndim)
        pieces = [shape[axis] for shape in shapes]
        front = (slice(None),) * axis
        starts = accumulate(pieces, initial=0)
        return tuple(input[(*front, slice(start, start + piece))] for start, piece in zip(starts, pieces, strict=False))

    def vjp(self, b: Builder, g: Sequence[Value | None], y: Sequence[Value], input: Value, split: Value | None = None) -> Any:
        parts = [zeros_like(b, y[index]) if gradient is None else gradient for index, gradient in enumerate(g)]
        return [b.Concat(*parts, axis=self.axis), None]

    def decompose(self, b: Builder, input: Value, split: Value | None = None) -> Any:
        """Emit explicit lengths, for formats without remainder or ragged parts; return None if the lengths are explicit."""
        if not (self.ragged if split is None else self.wildcard):
            return None
        shapes = self.shape(input, split)
        lengths: Any = [None if shape is None else shape[axis_in(self.axis, len(shape))] for shape in shapes]
        if not all(isinstance(length, int) for length in lengths):
            size = b.Gather(b.Shape(input, output_type=dtypes.i64), [self.axis])
            lengths = self._ragged_lengths(b, size) if split is None else self._lengths_with_remainder(b, size, split)
        return b.Split(input, lengths, axis=self.axis, outputs=self.outputs)

    def _ragged_lengths(self, b: Builder, size: Operand) -> Any:
        last = self.outputs - 1
        piece = b.Divide(b.Add(size, last), self.outputs)
        return b.Concat(*[piece] * last, b.Subtract(size, b.Multiply(piece, last)), axis=0)

    def _lengths_with_remainder(self, b: Builder, size: Operand, split: Value) -> Any:
        """Emit the lengths with the remainder in place of -1; two elements of -1 are kept, so that the format refuses them."""
        lengths = as_i64(b, split)
        free = b.constant(-1, dtypes.i64)
        is_free = b.Equal(lengths, free)
        count = b.ReduceSum(b.Cast(is_free, to=dtypes.i64), [0])
        rest = b.Subtract(size, b.ReduceSum(b.Where(is_free, 0, lengths), [0]))
        return b.Where(is_free, b.Where(b.Greater(count, 1), free, rest), lengths)

    def windows(self, input: View, split: View | None = None) -> Windows:
        shape = static(input.shape)
        axis = axis_in(self.axis, len(shape))
        pieces = [static(piece)[axis] for piece in self.shape(input, split)]
        outer, inner = prod(shape[:axis]), prod(shape[axis + 1 :])
        rows = [piece * inner for piece in pieces]
        whole = sum(rows)
        return Windows(
            tuple(
                Window(0, index, (outer, row), start, (whole, 1), 0, (row, 1))
                for index, (row, start) in enumerate(zip(rows, accumulate(rows, initial=0), strict=False))
            )
        )


def _may_divide(size: Size, count: int) -> bool:
    """Test whether a size may be a multiple of ``count``."""
    if isinstance(size, int):
        return not size % count
    low, high = symbolic.bounds(size)
    if low is not None and high is not None and -(-low // count) * count > high:
        return False
    return symbolic.equal(size % count, 0) is not False


def _text(lengths: list[Any]) -> str:
    return f"[{', '.join(map(str, lengths))}]"

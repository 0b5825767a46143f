"""Sequence operators of ONNX; at run time a sequence is a Python list.

If the elements of a sequence are known values of the graph (:func:`elements_of_sequence`), operators that read the sequence
decompose to operators on tensors.
"""

from __future__ import annotations

from functools import reduce
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from dovetail.errors import RuleError
from dovetail.ir import dtypes, symbolic
from dovetail.ir.arrays import element
from dovetail.ir.dtypes import DType
from dovetail.ir.op import Op, check_inputs
from dovetail.ir.types import Sequence, Size, Tensor, Type, Unknown, View, axis_in, common_type, sequence_of
from dovetail.ops.shape_values import as_i64, elements_of, host_view_of, integers_of, is_size, view_of
from dovetail.ops.tensor.concat_split import Concat, Split

if TYPE_CHECKING:
    from dovetail.ir.arrays import Array, Namespace
    from dovetail.ir.builder import Builder
    from dovetail.ir.graph import Value

MAX_LINKS = 256
"""Largest number of nodes that the search for the elements of a sequence follows."""


class _Change(NamedTuple):
    """_Change is an insertion of ``part`` into a sequence, or a removal if ``part`` is None.

    ``position`` is None for an unknown position, and for a change at the end.
    """

    part: Any
    position: int | None
    is_at_end: bool


def elements_of_sequence(x: View | None) -> list[Any] | None:
    """Return the elements of a sequence as values of the graph; None if the elements are unknown."""
    changes: list[_Change] = []
    for _ in range(MAX_LINKS):
        node = getattr(x, "node", None)
        if node is None:
            return None
        xs = node.inputs
        match node.op:
            case SequenceConstruct():
                return _apply_changes(list(xs), changes)
            case SequenceEmpty():
                return _apply_changes([], changes)
            case SequenceInsert() | SequenceErase():
                part, position = [*xs[1:], None][:2] if isinstance(node.op, SequenceInsert) else [None, *xs[1:], None][:2]
                changes.append(_Change(part, known_position(position), position is None))
            case _ if type(node.op).__name__ not in ("Identity", "Optional", "OptionalGetElement") or not xs:
                return None
        x = xs[0]
    return None


def _apply_changes(parts: list[Any], changes: list[_Change]) -> list[Any] | None:
    """Return the elements after ``changes``, which are listed from last to first; None if a position is unknown or invalid."""
    for part, index, is_at_end in reversed(changes):
        if index is None and not is_at_end:
            return None
        count = len(parts)
        try:
            if part is None:
                del parts[position_in(-1 if index is None else index, count)]
            else:
                parts.insert(count if index is None else position_in(index, count + 1, count), part)
        except RuleError:
            return None
    return parts


def position_in(index: int, count: int, back: int | None = None) -> int:
    """Return ``index`` as a position in [0, count - 1]; ``back``, by default ``count``, is added to a negative ``index``.

    Raises RuleError [index.range].
    """
    back = count if back is None else back
    if not -back <= index < count:
        raise RuleError("index.range", f"position must be in [{-back}, {count - 1}], got {index}")
    return index + back if index < 0 else index


def known_position(position: View | None) -> int | None:
    """Return a position, None if unknown or absent. Raises RuleError [shape.single] for an input of several elements."""
    if position is None:
        return None
    if position.shape is not None and any(isinstance(size, int) and size != 1 for size in position.shape):
        raise RuleError("shape.single", f"position must have one element, got the shape {list(position.shape)}")
    result = integers_of(position)
    return result[0] if result else None


def _position(position: Array) -> int:
    """Return the position in an array at run time. Raises RuleError [shape.single] unless the array has one element."""
    if np.size(position) != 1:
        raise RuleError("shape.single", f"position must have one element, got the shape {list(np.shape(position))}")
    return int(np.reshape(position, ()))


class SequenceOp(Op):
    """SequenceOp is the base of operators on sequences and optional values; with known elements they decompose to tensors."""


class SequenceEmpty(SequenceOp, sig="-> output: any", onnx="SequenceEmpty-11(; dtype?)"):
    """Return an empty sequence of tensors of ``dtype``. Source: ONNX SequenceEmpty 11."""

    dtype: DType = dtypes.f32

    def types(self) -> list[Type]:
        return [Sequence(Tensor(self.dtype, None), 0)]

    def evaluate(self, xp: Namespace) -> Any:
        return []


class SequenceConstruct(SequenceOp, sig="*inputs: T -> output_sequence: any", onnx="SequenceConstruct-11(*inputs)"):
    """Return the sequence of ``inputs``, at least one, all of one element type. Source: ONNX SequenceConstruct 11."""

    def types(self, *inputs: View) -> list[Type]:
        if not inputs:
            raise RuleError("node.inputs", "SequenceConstruct needs at least 1 input, got 0")
        check_inputs(self, inputs)
        return [Sequence(reduce(common_type, (x.type for x in inputs)), len(inputs))]

    def evaluate(self, xp: Namespace, *inputs: Array) -> Any:
        return list(inputs)


class SequenceInsert(
    SequenceOp,
    sig="input_sequence: any, tensor: T, position?!: I -> output_sequence: any",
    onnx="SequenceInsert-11(input_sequence, tensor, position?)",
):
    """Insert ``tensor`` before the element at ``position``, from -n to n for n elements; by default at the end.

    Source: ONNX SequenceInsert 11.
    """

    def types(self, input_sequence: View, tensor: View, position: View | None = None) -> list[Type]:
        check_inputs(self, (input_sequence, tensor, position))
        index, before = known_position(position), sequence_of(input_sequence.type)
        if index is not None and isinstance(before.length, int):
            position_in(index, before.length + 1, before.length)
        after = common_type(before, Sequence(tensor.type, 1))
        assert isinstance(after, Sequence)
        return [Sequence(after.element, None if before.length is None else before.length + 1)]

    def evaluate(self, xp: Namespace, input_sequence: Array, tensor: Array, position: Array | None = None) -> Any:
        count = len(input_sequence)
        index = count if position is None else position_in(_position(position), count + 1, count)
        return [*input_sequence[:index], tensor, *input_sequence[index:]]


class SequenceErase(
    SequenceOp,
    sig="input_sequence: any, position?!: I -> output_sequence: any",
    onnx="SequenceErase-11(input_sequence, position?)",
):
    """Remove the element at ``position``, from -n to n - 1 for n elements; by default the last.

    Source: ONNX SequenceErase 11.
    """

    def types(self, input_sequence: View, position: View | None = None) -> list[Type]:
        check_inputs(self, (input_sequence, position))
        index, before = known_position(position), sequence_of(input_sequence.type)
        if isinstance(before.length, int):
            position_in(-1 if index is None else index, before.length)
        return [Sequence(before.element, None if before.length is None else before.length - 1)]

    def evaluate(self, xp: Namespace, input_sequence: Array, position: Array | None = None) -> Any:
        index = position_in(-1 if position is None else _position(position), len(input_sequence))
        return [*input_sequence[:index], *input_sequence[index + 1 :]]


class SequenceAt(
    SequenceOp, sig="input_sequence: any, position!: I -> tensor: any", onnx="SequenceAt-11(input_sequence, position)"
):
    """Return the element at ``position``, from -n to n - 1 for n elements. Source: ONNX SequenceAt 11."""

    def types(self, input_sequence: View, position: View) -> list[Type]:
        check_inputs(self, (input_sequence, position))
        index, known = known_position(position), sequence_of(input_sequence.type)
        if index is not None and isinstance(known.length, int):
            position_in(index, known.length)
        part = self._part(input_sequence, position)
        return [known.element if part is None else part.type]

    def value(self, input_sequence: View, position: View) -> Any:
        part = self._part(input_sequence, position)
        if part is None:
            raise Unknown
        return part.exact

    def _part(self, input_sequence: View, position: View) -> Any:
        index = known_position(position)
        parts = None if index is None else elements_of_sequence(input_sequence)
        return None if parts is None or index is None else parts[position_in(index, len(parts))]

    def evaluate(self, xp: Namespace, input_sequence: Array, position: Array) -> Any:
        return input_sequence[position_in(_position(position), len(input_sequence))]

    def decompose(self, b: Builder, input_sequence: Value, position: Value) -> Any:
        """Return the element itself if the position is known; otherwise emit a Gather along the axis of the elements.

        The Gather reads the tensor from which the elements were split, or else the elements stacked along a new axis.
        """
        part = self._part(input_sequence, position)
        if part is not None:
            return part
        whole, axis, keeps = _split_by_one(input_sequence) or _stack(b, input_sequence)
        return b.Gather(whole, b.Reshape(as_i64(b, position), [1] if keeps else []), axis=axis)


def _split_by_one(x: Value) -> tuple[Any, int, bool] | None:
    """Return the tensor whose slices of length 1, in order, are the elements of a sequence, with the axis of the slices.

    The third result is whether the slices keep this axis. Returns None if there is no such tensor.
    """
    inputs: list[Any] = [] if x.node is None else x.node.inputs
    if x.node is not None and isinstance(x.node.op, SplitToSequence) and x.node.op.is_by_one(*inputs):
        whole, *sizes = inputs
        return whole, axis_in(x.node.op.axis, len(whole.dims)), x.node.op.keepdims or bool(sizes)
    parts = elements_of_sequence(x)
    if not parts:
        return None
    squeezed = [part.node is not None and type(part.node.op).__name__ == "Squeeze" for part in parts]
    pieces = [part.node.inputs[0] if is_squeezed else part for part, is_squeezed in zip(parts, squeezed, strict=True)]
    split = pieces[0].node
    if split is None or not isinstance(split.op, Split) or pieces != split.outputs or len(set(squeezed)) > 1:
        return None
    axis = axis_in(split.op.axis, len(pieces[0].dims))
    without = (*pieces[0].dims[:axis], *pieces[0].dims[axis + 1 :])
    if any(piece.dims[axis] != 1 for piece in pieces) or (squeezed[0] and any(part.dims != without for part in parts)):
        return None
    return split.inputs[0], axis, not squeezed[0]


def _stack(b: Builder, x: Value) -> tuple[Any, int, bool]:
    """Stack elements of equal shape along a new first axis. Raises Unknown for unknown elements or different shapes.

    Returns the tensor, the axis 0, and False: slices of the tensor do not keep the axis.
    """
    parts = elements_of_sequence(x)
    if not parts or any(part.dims != parts[0].dims for part in parts):
        raise Unknown
    return b.Concat(*(b.Unsqueeze(part, [0]) for part in parts), axis=0), 0, False


class SequenceLength(SequenceOp, sig="input_sequence: any -> length: i64", onnx="SequenceLength-11(input_sequence)"):
    """Return the number of elements of a sequence, a scalar. Source: ONNX SequenceLength 11."""

    def shape(self, input_sequence: View) -> Any:
        sequence_of(input_sequence.type)
        return ()

    def value(self, input_sequence: View) -> Any:
        length = sequence_of(input_sequence.type).length
        if length is None:
            raise Unknown
        return symbolic.xp.asarray(length)

    def evaluate(self, xp: Namespace, input_sequence: Array) -> Any:
        return xp.asarray(len(input_sequence), dtype=xp.int64)

    def decompose(self, b: Builder, input_sequence: Value) -> Any:
        length = sequence_of(input_sequence.type).length
        if isinstance(length, int):
            return b.constant(np.array(length), dtypes.i64)
        if input_sequence.node is None or not isinstance(input_sequence.node.op, SplitToSequence):
            raise Unknown
        inputs: list[Any] = input_sequence.node.inputs
        return input_sequence.node.op.count(b, *inputs)


class SplitToSequence(
    SequenceOp,
    sig="input: T, split?!: I -> output_sequence: any",
    onnx="SplitToSequence-11,24(input, split?; axis=0, keepdims=1)",
):
    """Split ``input`` along ``axis`` into a sequence of parts.

    ``split`` is a vector of lengths that add up to the dimension, or a scalar above 0, which is the length of each part; the last
    part may be smaller. Without ``split`` each part has length 1, and loses the axis unless ``keepdims``. Source: ONNX
    SplitToSequence 11, 24.
    """

    axis: int = 0
    keepdims: bool = True

    def types(self, input: View, split: View | None = None) -> list[Type]:
        check_inputs(self, (input, split))
        count: Any = None
        lengths = None if split is None else split.shape
        is_vector = lengths is not None and len(lengths) == 1
        if lengths is not None and len(lengths) > 1:
            raise RuleError("split.sizes", f"the lengths must be a vector or a scalar, got rank {len(lengths)}")
        if lengths is not None and is_vector:
            count = lengths[0]
        if input.shape is None:
            return [Sequence(Tensor(input.dtype, None), count)]
        if not input.shape:
            raise RuleError("shape.rank", "input must have a rank of at least 1, got a scalar")
        axis = axis_in(self.axis, len(input.shape))
        pieces = self._pieces(input.shape[axis], split)
        if pieces is None:
            count, piece = (count, None) if is_vector else self._equal_parts(input.shape[axis], split)
        else:
            alike = bool(pieces) and is_size(pieces[0]) and all(item == pieces[0] for item in pieces)
            count, piece = len(pieces), pieces[0] if alike else None
        middle = () if split is None and not self.keepdims else (piece,)
        return [Sequence(Tensor(input.dtype, (*input.shape[:axis], *middle, *input.shape[axis + 1 :])), count)]

    def _pieces(self, size: Size, split: View | None) -> list[Any] | None:
        """Return the lengths of the parts; None if the number of parts is unknown."""
        lengths = None if split is None else elements_of(split)
        if split is not None and (lengths is None or split.shape is None):
            return None
        if split is not None and split.shape:
            assert lengths is not None
            if any(isinstance(length, int) and length < 0 for length in lengths):
                raise RuleError("split.sizes", f"lengths must not be negative, got {lengths}")
            if all(map(is_size, lengths)) and symbolic.equal(sum(lengths), size) is False:
                raise RuleError("split.sizes", f"lengths must add up to the dimension ({size}), got {lengths}")
            return lengths
        piece = 1 if lengths is None else lengths[0]
        if isinstance(piece, int) and piece < 1:
            raise RuleError("split.sizes", f"the length of a part must be at least 1, got {piece}")
        if not isinstance(size, int) or not isinstance(piece, int):
            return None
        return [piece] * (size // piece) + ([size % piece] if size % piece else [])

    def _equal_parts(self, size: Size, split: View | None) -> tuple[Any, Any]:
        """Return the number of parts and their common length for a scalar ``split``; a number that is unknown is None."""
        piece = 1 if split is None else (elements_of(split) or [None])[0] if split.shape is not None else None
        if not isinstance(piece, int):
            return None, None
        return -(-size // piece), piece if symbolic.equal(size % piece, 0) is True else None

    def is_by_one(self, input: View, split: View | None = None) -> bool:
        """Test whether every part is known to have length 1."""
        return split is None or (split.shape == () and integers_of(split) == [1])

    def count(self, b: Builder, input: Value, split: Value | None = None) -> Any:
        """Emit the number of parts, a scalar."""
        if split is not None and split.shape is None:
            raise Unknown
        if split is not None and split.shape:
            return b.Squeeze(b.Shape(split), [0])
        size = b.Squeeze(b.Gather(b.Shape(input), [axis_in(self.axis, len(input.dims))]), [0])
        piece = 1 if split is None else (integers_of(split) or [0])[0]
        if piece < 1:
            raise Unknown
        return size if piece == 1 else b.Divide(b.Add(size, piece - 1), piece)

    def evaluate(self, xp: Namespace, input: Array, split: Array | None = None) -> Any:
        self.types(_view_with_type(input), host_view_of(split))
        axis = axis_in(self.axis, input.ndim)
        pieces: Any = self._pieces(input.shape[axis], host_view_of(split))
        front, start, results = (slice(None),) * axis, 0, []
        for piece in pieces:
            results.append(input[(*front, start if split is None and not self.keepdims else slice(start, start + piece))])
            start += piece
        return [np.asarray(item) for item in results] if isinstance(input, np.ndarray) else results

    def decompose(self, b: Builder, input: Value, split: Value | None = None) -> Any:
        axis = axis_in(self.axis, len(input.dims))
        pieces = self._pieces(input.dims[axis], split)
        if not pieces:
            raise Unknown
        lengths = [pieces] if all(isinstance(piece, int) for piece in pieces) else [split]
        parts = b.Split(input, *lengths, axis=axis, outputs=len(pieces))
        if split is None and not self.keepdims:
            parts = [b.Squeeze(part, [axis]) for part in parts]
        return b.SequenceConstruct(*parts)


class ConcatFromSequence(
    SequenceOp, sig="input_sequence: any -> concat_result: any", onnx="ConcatFromSequence-11(input_sequence; axis, new_axis=0)"
):
    """Concatenate the elements of a sequence along ``axis``, or with ``new_axis`` stack the elements along a new ``axis``.

    The sequence has at least one element.
    Source: ONNX ConcatFromSequence 11.
    """

    axis: int
    new_axis: bool = False

    def types(self, input_sequence: View) -> list[Type]:
        known = sequence_of(input_sequence.type)
        if known.length == 0:
            raise RuleError("sequence.empty", "the sequence must have at least 1 element, got 0")
        parts = elements_of_sequence(input_sequence)
        if parts is not None and all(part.shape is not None for part in parts):
            return self._concat_types([part.type for part in parts])
        part = known.element
        if not isinstance(part, Tensor) or part.shape is None:
            return [Tensor(getattr(part, "dtype", None), None)]
        axis = self._axis(len(part.shape))
        sizes: list[Any] = list(part.shape)
        if self.new_axis:
            sizes.insert(axis, known.length)
        else:
            # All elements have equal sizes along the other axes; along `axis` the sizes of all elements add up.
            item = sizes[axis]
            sizes[axis] = None if item is None or known.length is None else item * known.length
        return [Tensor(part.dtype, tuple(sizes))]

    def _axis(self, rank: int) -> int:
        if not rank and not self.new_axis:
            raise RuleError("shape.rank", "new_axis must be true to concatenate scalars, got false")
        return axis_in(self.axis, rank + self.new_axis)

    def _concat_types(self, types: list[Any]) -> list[Type]:
        if self.new_axis:
            axis = self._axis(len(types[0].shape))
            types = [Tensor(type.dtype, (*type.shape[:axis], 1, *type.shape[axis:])) for type in types]
        return Concat(self._axis(len(types[0].shape) - self.new_axis)).types(*map(View, types))

    def evaluate(self, xp: Namespace, input_sequence: Array) -> Any:
        if not input_sequence:
            raise RuleError("sequence.empty", "the sequence must have at least 1 element, got 0")
        self._concat_types([_view_with_type(part).type for part in input_sequence])
        axis = self._axis(input_sequence[0].ndim)
        return xp.stack(list(input_sequence), axis=axis) if self.new_axis else xp.concat(list(input_sequence), axis=axis)

    def decompose(self, b: Builder, input_sequence: Value) -> Any:
        """Return the input of SplitToSequence, transposed if needed; for another sequence concatenate the known elements."""
        split = (
            _split_by_one(input_sequence)
            if input_sequence.node is not None and isinstance(input_sequence.node.op, SplitToSequence)
            else None
        )
        if split is not None and (joined := self._join_split(b, *split)) is not None:
            return joined
        parts = elements_of_sequence(input_sequence)
        if not parts or any(part.shape is None for part in parts):
            raise Unknown
        axis = self._axis(len(parts[0].dims))
        if self.new_axis:
            parts = [b.Unsqueeze(part, [axis]) for part in parts]
        return b.Concat(*parts, axis=axis)

    def _join_split(self, b: Builder, whole: Value, axis: int, keeps: bool) -> Any:
        """Join the slices of length 1 of ``whole`` along ``axis``; None if slices that keep ``axis`` join along another axis.

        ``keeps`` tells whether the slices keep ``axis``.
        """
        rank = len(whole.dims)
        target = self._axis(rank - (not keeps))
        if keeps and not self.new_axis:
            return whole if axis == target else None
        if keeps:
            whole, rank = b.Unsqueeze(whole, [axis + 1]), rank + 1
        order = [index for index in range(rank) if index != axis]
        order.insert(target, axis)
        moved = whole if order == list(range(rank)) else b.Transpose(whole, order)
        if self.new_axis:
            return moved
        # Merge the axis of the parts into the axis of the concatenation.
        sizes = b.Shape(moved)
        pair = b.Multiply(b.Gather(sizes, [target], axis=0), b.Gather(sizes, [target + 1], axis=0))
        before, after = list(range(target)), list(range(target + 2, rank))
        rows = [b.Gather(sizes, indices, axis=0) for indices in (before, after) if indices]
        rows.insert(1 if before else 0, pair)
        return b.Reshape(moved, b.Concat(*rows, axis=0) if len(rows) > 1 else pair, special_zero=False)


def _view_with_type(x: Array) -> Any:
    view = view_of(x)
    view.type = Tensor(element(x), tuple(x.shape))
    return view

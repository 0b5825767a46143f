"""Lists of tensors: made, taken apart, and joined again. In a run they are Python lists.

Where the elements of a list are known as values of the graph (:func:`parts_of`), what reads it is taken apart into operators on
tensors alone, and the list is gone.
"""

from __future__ import annotations

from functools import reduce
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from dovetail import dtypes, symbolic
from dovetail.arrays import element
from dovetail.dtypes import DType
from dovetail.errors import RuleError
from dovetail.ir.op import Op, check_inputs
from dovetail.ir.types import Sequence, Tensor, Type, Unknown, View, axis_in, common_type, sequence_of
from dovetail.ops.sequence.optional import OptionalGetElement, OptionalHasElement
from dovetail.ops.shape_values import as_i64, elements_of, host_view_of, integers_of, is_size, view_of
from dovetail.ops.tensor.concat_split import Concat, Split

if TYPE_CHECKING:
    from dovetail.arrays import Array, Namespace
    from dovetail.ir.builder import Builder
    from dovetail.ir.graph import Value

MOST_LINKS = 256
"""How far back the elements of a list are looked for."""


class _Change(NamedTuple):
    """An element put in, or (None) taken out; ``place`` is None where it is not known, or where it is the end."""

    part: Any
    place: int | None
    is_at_end: bool


def parts_of(x: View | None) -> list[Any] | None:
    """The elements of a sequence as values of its graph, where these are known; else None."""
    changes: list[_Change] = []
    for _ in range(MOST_LINKS):
        node = getattr(x, "node", None)
        if node is None:
            return None
        xs = node.inputs
        match node.op:
            case SequenceConstruct():
                return _changed(list(xs), changes)
            case SequenceEmpty():
                return _changed([], changes)
            case SequenceInsert() | SequenceErase():
                part, position = [*xs[1:], None][:2] if isinstance(node.op, SequenceInsert) else [None, *xs[1:], None][:2]
                changes.append(_Change(part, known_place(position), position is None))
            case _ if type(node.op).__name__ not in ("Identity", "Optional", "OptionalGetElement") or not xs:
                return None
        x = xs[0]
    return None


def _changed(parts: list[Any], changes: list[_Change]) -> list[Any] | None:
    """The elements after these changes, of which the last was made first."""
    for part, place, is_at_end in reversed(changes):
        if place is None and not is_at_end:
            return None
        count = len(parts)
        try:
            if part is None:
                del parts[place_in(-1 if place is None else place, count)]
            else:
                parts.insert(count if place is None else place_in(place, count + 1, count), part)
        except RuleError:
            return None
    return parts


def place_in(place: int, count: int, back: int | None = None) -> int:
    """``place`` counted from the front, of ``count``; a negative one counts back from ``back``.

    Raises RuleError [sequence.position].
    """
    back = count if back is None else back
    if not -back <= place < count:
        raise RuleError("sequence.position", f"position {place} is not in [{-back}, {count - 1}]")
    return place + back if place < 0 else place


def known_place(position: View | None) -> int | None:
    """A position, where it is known. Raises RuleError [sequence.position] where it is more than one number."""
    if position is None:
        return None
    if position.shape is not None and any(isinstance(size, int) and size != 1 for size in position.shape):
        raise RuleError("sequence.position", f"a position should be one number, not of shape {list(position.shape)}")
    found = integers_of(position)
    return found[0] if found else None


def _place(position: Array) -> int:
    """A position in a run."""
    if np.size(position) != 1:
        raise RuleError("sequence.position", f"a position should be one number, not of shape {list(np.shape(position))}")
    return int(np.reshape(position, ()))


class SequenceEmpty(Op, sig="-> output: any", onnx="SequenceEmpty-11(; dtype?)"):
    """A list without elements, of tensors of ``dtype``. Source: ONNX SequenceEmpty 11."""

    dtype: DType = dtypes.f32

    def types(self) -> list[Type]:
        return [Sequence(Tensor(self.dtype, None), 0)]

    def evaluate(self, xp: Namespace) -> Any:
        return []


class SequenceConstruct(Op, sig="*inputs: T -> output_sequence: any", onnx="SequenceConstruct-11(*inputs)"):
    """The list of ``xs``, one at least, all of one element type. Source: ONNX SequenceConstruct 11."""

    def types(self, *inputs: View) -> list[Type]:
        if not inputs:
            raise RuleError("node.inputs", "at least one input is needed")
        check_inputs(self, inputs)
        return [Sequence(reduce(common_type, (x.type for x in inputs)), len(inputs))]

    def evaluate(self, xp: Namespace, *inputs: Array) -> Any:
        return list(inputs)


class SequenceInsert(
    Op,
    sig="input_sequence: any, tensor: T, position?!: I -> output_sequence: any",
    onnx="SequenceInsert-11(input_sequence, tensor, position?)",
):
    """``x`` with ``part`` before the element at ``position``, from -n to n where there are n; at the end where none is given.

    Source: ONNX SequenceInsert 11.
    """

    def types(self, input_sequence: View, tensor: View, position: View | None = None) -> list[Type]:
        check_inputs(self, (input_sequence, tensor, position))
        place, before = known_place(position), sequence_of(input_sequence.type)
        if place is not None and isinstance(before.length, int):
            place_in(place, before.length + 1, before.length)
        after = common_type(before, Sequence(tensor.type, 1))
        assert isinstance(after, Sequence)
        return [Sequence(after.element, None if before.length is None else before.length + 1)]

    def evaluate(self, xp: Namespace, input_sequence: Array, tensor: Array, position: Array | None = None) -> Any:
        count = len(input_sequence)
        place = count if position is None else place_in(_place(position), count + 1, count)
        return [*input_sequence[:place], tensor, *input_sequence[place:]]


class SequenceErase(
    Op, sig="input_sequence: any, position?!: I -> output_sequence: any", onnx="SequenceErase-11(input_sequence, position?)"
):
    """``x`` without the element at ``position``, from -n to n - 1; without the last where none is given.

    Source: ONNX SequenceErase 11.
    """

    def types(self, input_sequence: View, position: View | None = None) -> list[Type]:
        check_inputs(self, (input_sequence, position))
        place, before = known_place(position), sequence_of(input_sequence.type)
        if isinstance(before.length, int):
            place_in(-1 if place is None else place, before.length)
        return [Sequence(before.element, None if before.length is None else before.length - 1)]

    def evaluate(self, xp: Namespace, input_sequence: Array, position: Array | None = None) -> Any:
        place = place_in(-1 if position is None else _place(position), len(input_sequence))
        return [*input_sequence[:place], *input_sequence[place + 1 :]]


class SequenceAt(Op, sig="input_sequence: any, position!: I -> tensor: any", onnx="SequenceAt-11(input_sequence, position)"):
    """The element of ``x`` at ``position``, from -n to n - 1. Source: ONNX SequenceAt 11."""

    def types(self, input_sequence: View, position: View) -> list[Type]:
        check_inputs(self, (input_sequence, position))
        place, known = known_place(position), sequence_of(input_sequence.type)
        if place is not None and isinstance(known.length, int):
            place_in(place, known.length)
        part = self._part(input_sequence, position)
        return [known.element if part is None else part.type]

    def value(self, input_sequence: View, position: View) -> Any:
        part = self._part(input_sequence, position)
        if part is None:
            raise Unknown
        return part.exact

    def _part(self, input_sequence: View, position: View) -> Any:
        place = known_place(position)
        parts = None if place is None else parts_of(input_sequence)
        return None if parts is None or place is None else parts[place_in(place, len(parts))]

    def evaluate(self, xp: Namespace, input_sequence: Array, position: Array) -> Any:
        return input_sequence[place_in(_place(position), len(input_sequence))]

    def decompose(self, b: Builder, input_sequence: Value, position: Value) -> Any:
        """The element itself; where only the run says which one, the slice of the tensor that was cut into pieces of one."""
        part = self._part(input_sequence, position)
        if part is not None:
            return part
        whole, axis, keeps = _cut_by_one(input_sequence) or _stacked(b, input_sequence)
        return b.Gather(whole, b.Reshape(as_i64(b, position), [1] if keeps else []), axis=axis)


def _cut_by_one(x: Value) -> tuple[Any, int, bool] | None:
    """The tensor of which all elements of a list are the pieces of one, in order: along which axis, and whether they keep it."""
    inputs: list[Any] = [] if x.node is None else x.node.inputs
    if x.node is not None and isinstance(x.node.op, SplitToSequence) and x.node.op.is_by_one(*inputs):
        whole, *sizes = inputs
        return whole, axis_in(x.node.op.axis, len(whole.dims)), x.node.op.keepdims or bool(sizes)
    parts = parts_of(x)
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


def _stacked(b: Builder, x: Value) -> tuple[Any, int, bool]:
    """Elements of one shape along a new first axis. Raises Unknown."""
    parts = parts_of(x)
    if not parts or any(part.dims != parts[0].dims for part in parts):
        raise Unknown
    return b.Concat(*(b.Unsqueeze(part, [0]) for part in parts), axis=0), 0, False


class SequenceLength(Op, sig="input_sequence: any -> length: i64", onnx="SequenceLength-11(input_sequence)"):
    """How many elements ``x`` has, a scalar. Source: ONNX SequenceLength 11."""

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
    Op, sig="input: T, split?!: I -> output_sequence: any", onnx="SplitToSequence-11,24(input, split?; axis=0, keepdims=1)"
):
    """Cut ``x`` along ``axis`` into a list of pieces: of ``sizes``, a vector of lengths that add up to the dimension, or each of
    ``sizes``, a scalar above 0 (the last may be smaller), or each of one.

    Without ``sizes`` and ``keepdims`` a piece is without the axis. Source: ONNX SplitToSequence 11, 24.
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
            raise RuleError("shape.scalar", "a scalar has no axis to cut along")
        axis = axis_in(self.axis, len(input.shape))
        pieces = self._pieces(input.shape[axis], split)
        if pieces is None:
            count, piece = (count, None) if is_vector else self._even(input.shape[axis], split)
        else:
            alike = bool(pieces) and is_size(pieces[0]) and all(each == pieces[0] for each in pieces)
            count, piece = len(pieces), pieces[0] if alike else None
        middle = () if split is None and not self.keepdims else (piece,)
        return [Sequence(Tensor(input.dtype, (*input.shape[:axis], *middle, *input.shape[axis + 1 :])), count)]

    def _pieces(self, size: Any, split: View | None) -> list[Any] | None:
        """How long the pieces are, where their number is known."""
        lengths = None if split is None else elements_of(split)
        if split is not None and (lengths is None or split.shape is None):
            return None
        if split is not None and split.shape:
            assert lengths is not None
            if any(isinstance(length, int) and length < 0 for length in lengths):
                raise RuleError("split.sizes", f"lengths {lengths} should not be negative")
            if all(map(is_size, lengths)) and symbolic.equal(sum(lengths), size) is False:
                raise RuleError("split.sizes", f"lengths {lengths} should add up to {size}")
            return lengths
        piece = 1 if lengths is None else lengths[0]
        if isinstance(piece, int) and piece < 1:
            raise RuleError("split.sizes", f"pieces of {piece}")
        if not isinstance(size, int) or not isinstance(piece, int):
            return None
        return [piece] * (size // piece) + ([size % piece] if size % piece else [])

    def _even(self, size: Any, split: View | None) -> tuple[Any, Any]:
        """How many pieces of one length there are, and how long they are."""
        piece = 1 if split is None else (elements_of(split) or [None])[0] if split.shape is not None else None
        if not isinstance(piece, int):
            return None, None
        return -(-size // piece), piece if symbolic.equal(size % piece, 0) is True else None

    def is_by_one(self, input: View, split: View | None = None) -> bool:
        """Whether every piece is known to be of one."""
        return split is None or (split.shape == () and integers_of(split) == [1])

    def count(self, b: Builder, input: Value, split: Value | None = None) -> Any:
        """How many pieces there are, a scalar, written through ``b``."""
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
        self.types(_typed(input), host_view_of(split))
        axis = axis_in(self.axis, input.ndim)
        pieces: Any = self._pieces(input.shape[axis], host_view_of(split))
        front, start, made = (slice(None),) * axis, 0, []
        for piece in pieces:
            made.append(input[(*front, start if split is None and not self.keepdims else slice(start, start + piece))])
            start += piece
        return [np.asarray(each) for each in made] if isinstance(input, np.ndarray) else made

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
    Op, sig="input_sequence: any -> concat_result: any", onnx="ConcatFromSequence-11(input_sequence; axis, new_axis=0)"
):
    """The elements of ``x`` laid end to end along ``axis``, or along a new axis there; one at least.

    Source: ONNX ConcatFromSequence 11.
    """

    axis: int
    new_axis: bool = False

    def types(self, input_sequence: View) -> list[Type]:
        known = sequence_of(input_sequence.type)
        if known.length == 0:
            raise RuleError("sequence.empty", "no elements are laid end to end")
        parts = parts_of(input_sequence)
        if parts is not None and all(part.shape is not None for part in parts):
            return self._joined([part.type for part in parts])
        part = known.element
        if not isinstance(part, Tensor) or part.shape is None:
            return [Tensor(getattr(part, "dtype", None), None)]
        axis = self._axis(len(part.shape))
        sizes: list[Any] = list(part.shape)
        if self.new_axis:
            sizes.insert(axis, known.length)
        else:
            # Sizes off the axis agree, though it is not known to what; along it they add up.
            each = sizes[axis]
            sizes[axis] = None if each is None or known.length is None else each * known.length
        return [Tensor(part.dtype, tuple(sizes))]

    def _axis(self, rank: int) -> int:
        if not rank and not self.new_axis:
            raise RuleError("shape.scalar", "scalars are laid along a new axis only")
        return axis_in(self.axis, rank + self.new_axis)

    def _joined(self, types: list[Any]) -> list[Type]:
        if self.new_axis:
            axis = self._axis(len(types[0].shape))
            types = [Tensor(type.dtype, (*type.shape[:axis], 1, *type.shape[axis:])) for type in types]
        return Concat(self._axis(len(types[0].shape) - self.new_axis)).types(*map(View, types))

    def evaluate(self, xp: Namespace, input_sequence: Array) -> Any:
        if not input_sequence:
            raise RuleError("sequence.empty", "no elements are laid end to end")
        self._joined([_typed(part).type for part in input_sequence])
        axis = self._axis(input_sequence[0].ndim)
        return xp.stack(list(input_sequence), axis=axis) if self.new_axis else xp.concat(list(input_sequence), axis=axis)

    def decompose(self, b: Builder, input_sequence: Value) -> Any:
        """What was cut is laid end to end again as it was; else the elements are."""
        cut = (
            _cut_by_one(input_sequence)
            if input_sequence.node is not None and isinstance(input_sequence.node.op, SplitToSequence)
            else None
        )
        if cut is not None and (uncut := self._uncut(b, *cut)) is not None:
            return uncut
        parts = parts_of(input_sequence)
        if not parts or any(part.shape is None for part in parts):
            raise Unknown
        axis = self._axis(len(parts[0].dims))
        if self.new_axis:
            parts = [b.Unsqueeze(part, [axis]) for part in parts]
        return b.Concat(*parts, axis=axis)

    def _uncut(self, b: Builder, whole: Any, axis: int, keeps: bool) -> Any:
        """Pieces of one of ``whole``, with or without its axis, laid end to end; None where they lie across each other."""
        rank = len(whole.dims)
        target = self._axis(rank - (not keeps))
        if keeps and not self.new_axis:
            return whole if axis == target else None
        if keeps:
            whole, rank = b.Unsqueeze(whole, [axis + 1]), rank + 1
        order = [place for place in range(rank) if place != axis]
        order.insert(target, axis)
        moved = whole if order == list(range(rank)) else b.Transpose(whole, order)
        if self.new_axis:
            return moved
        # The pieces follow each other along an axis of theirs.
        sizes = b.Shape(moved)
        pair = b.Multiply(b.Gather(sizes, [target], axis=0), b.Gather(sizes, [target + 1], axis=0))
        before, after = list(range(target)), list(range(target + 2, rank))
        rows = [b.Gather(sizes, places, axis=0) for places in (before, after) if places]
        rows.insert(1 if before else 0, pair)
        return b.Reshape(moved, b.Concat(*rows, axis=0) if len(rows) > 1 else pair, special_zero=False)


def _typed(x: Array) -> Any:
    view = view_of(x)
    view.type = Tensor(element(x), tuple(x.shape))
    return view


UNLISTED = (SequenceAt, SequenceLength, SplitToSequence, ConcatFromSequence, OptionalHasElement, OptionalGetElement)


def unlisted(b: Builder, node: Any) -> Any:
    """What a node says without lists and optional values, where that is known; else None: a rule for ``edit.rewrite``."""
    if not isinstance(node.op, UNLISTED):
        return None
    try:
        return node.op.decompose(b, *node.inputs)
    except (Unknown, symbolic.Inexact):
        return None


__all__ = [
    "ConcatFromSequence",
    "SequenceAt",
    "SequenceConstruct",
    "SequenceEmpty",
    "SequenceErase",
    "SequenceInsert",
    "SequenceLength",
    "SplitToSequence",
    "parts_of",
    "place_in",
    "unlisted",
]

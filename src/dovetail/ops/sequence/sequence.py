"""Lists of tensors: made, taken apart, and joined again. In a run they are Python lists.

Where the elements of a list are known as values of the graph (:func:`parts_of`), what reads it is taken apart into operators on
tensors alone, and the list is gone.
"""

from __future__ import annotations

from functools import reduce
from typing import Any, NamedTuple

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

MOST_LINKS = 256
"""How far back the elements of a list are looked for."""


class _Change(NamedTuple):
    """An element put in, or (None) taken out; ``place`` is None where it is not known, or where it is the end."""

    part: Any
    place: int | None
    is_at_end: bool


def parts_of(x: Any) -> list[Any] | None:
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


def known_place(position: Any) -> int | None:
    """A position, where it is known. Raises RuleError [sequence.position] where it is more than one number."""
    if position is None:
        return None
    if position.shape is not None and any(isinstance(size, int) and size != 1 for size in position.shape):
        raise RuleError("sequence.position", f"a position should be one number, not of shape {list(position.shape)}")
    found = integers_of(position)
    return found[0] if found else None


def _place(position: Any) -> int:
    """A position in a run."""
    if np.size(position) != 1:
        raise RuleError("sequence.position", f"a position should be one number, not of shape {list(np.shape(position))}")
    return int(np.reshape(position, ()))


class SequenceEmpty(Op, sig="-> y: any", onnx="SequenceEmpty-11(; dtype?)"):
    """A list without elements, of tensors of ``dtype``. Source: ONNX SequenceEmpty 11."""

    dtype: DType = dtypes.f32

    def types(self) -> list[Type]:
        return [Sequence(Tensor(self.dtype, None), 0)]

    def evaluate(self, xp: Any) -> Any:
        return []


class SequenceConstruct(Op, sig="*xs: T -> y: any", onnx="SequenceConstruct-11(*xs)"):
    """The list of ``xs``, one at least, all of one element type. Source: ONNX SequenceConstruct 11."""

    def types(self, *xs: Any) -> list[Type]:
        if not xs:
            raise RuleError("node.inputs", "at least one input is needed")
        check_inputs(self, xs)
        return [Sequence(reduce(common_type, (x.type for x in xs)), len(xs))]

    def evaluate(self, xp: Any, *xs: Any) -> Any:
        return list(xs)


class SequenceInsert(Op, sig="x: any, part: T, position?!: I -> y: any", onnx="SequenceInsert-11(x, part, position?)"):
    """``x`` with ``part`` before the element at ``position``, from -n to n where there are n; at the end where none is given.

    Source: ONNX SequenceInsert 11.
    """

    def types(self, x: Any, part: Any, position: Any = None) -> list[Type]:
        check_inputs(self, (x, part, position))
        place, before = known_place(position), sequence_of(x.type)
        if place is not None and isinstance(before.length, int):
            place_in(place, before.length + 1, before.length)
        after = common_type(before, Sequence(part.type, 1))
        assert isinstance(after, Sequence)
        return [Sequence(after.element, None if before.length is None else before.length + 1)]

    def evaluate(self, xp: Any, x: Any, part: Any, position: Any = None) -> Any:
        count = len(x)
        place = count if position is None else place_in(_place(position), count + 1, count)
        return [*x[:place], part, *x[place:]]


class SequenceErase(Op, sig="x: any, position?!: I -> y: any", onnx="SequenceErase-11(x, position?)"):
    """``x`` without the element at ``position``, from -n to n - 1; without the last where none is given.

    Source: ONNX SequenceErase 11.
    """

    def types(self, x: Any, position: Any = None) -> list[Type]:
        check_inputs(self, (x, position))
        place, before = known_place(position), sequence_of(x.type)
        if isinstance(before.length, int):
            place_in(-1 if place is None else place, before.length)
        return [Sequence(before.element, None if before.length is None else before.length - 1)]

    def evaluate(self, xp: Any, x: Any, position: Any = None) -> Any:
        place = place_in(-1 if position is None else _place(position), len(x))
        return [*x[:place], *x[place + 1 :]]


class SequenceAt(Op, sig="x: any, position!: I -> y: any", onnx="SequenceAt-11(x, position)"):
    """The element of ``x`` at ``position``, from -n to n - 1. Source: ONNX SequenceAt 11."""

    def types(self, x: Any, position: Any) -> list[Type]:
        check_inputs(self, (x, position))
        place, known = known_place(position), sequence_of(x.type)
        if place is not None and isinstance(known.length, int):
            place_in(place, known.length)
        part = self._part(x, position)
        return [known.element if part is None else part.type]

    def value(self, x: Any, position: Any) -> Any:
        part = self._part(x, position)
        if part is None:
            raise Unknown
        return part.exact

    def _part(self, x: Any, position: Any) -> Any:
        place = known_place(position)
        parts = None if place is None else parts_of(x)
        return None if parts is None or place is None else parts[place_in(place, len(parts))]

    def evaluate(self, xp: Any, x: Any, position: Any) -> Any:
        return x[place_in(_place(position), len(x))]

    def decompose(self, b: Any, x: Any, position: Any) -> Any:
        """The element itself; where only the run says which one, the slice of the tensor that was cut into pieces of one."""
        part = self._part(x, position)
        if part is not None:
            return part
        whole, axis, keeps = _cut_by_one(x) or _stacked(b, x)
        return b.Gather(whole, b.Reshape(as_i64(b, position), [1] if keeps else []), axis=axis)


def _cut_by_one(x: Any) -> tuple[Any, int, bool] | None:
    """The tensor of which all elements of a list are the pieces of one, in order: along which axis, and whether they keep it."""
    if x.node is not None and isinstance(x.node.op, SplitToSequence) and x.node.op.is_by_one(*x.node.inputs):
        whole, *sizes = x.node.inputs
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


def _stacked(b: Any, x: Any) -> tuple[Any, int, bool]:
    """Elements of one shape along a new first axis. Raises Unknown."""
    parts = parts_of(x)
    if not parts or any(part.dims != parts[0].dims for part in parts):
        raise Unknown
    return b.Concat(*(b.Unsqueeze(part, [0]) for part in parts), axis=0), 0, False


class SequenceLength(Op, sig="x: any -> y: i64", onnx="SequenceLength-11(x)"):
    """How many elements ``x`` has, a scalar. Source: ONNX SequenceLength 11."""

    def shape(self, x: Any) -> Any:
        sequence_of(x.type)
        return ()

    def value(self, x: Any) -> Any:
        length = sequence_of(x.type).length
        if length is None:
            raise Unknown
        return symbolic.xp.asarray(length)

    def evaluate(self, xp: Any, x: Any) -> Any:
        return xp.asarray(len(x), dtype=xp.int64)

    def decompose(self, b: Any, x: Any) -> Any:
        length = sequence_of(x.type).length
        if isinstance(length, int):
            return b.constant(np.array(length), dtypes.i64)
        cut = None if x.node is None else x.node.op
        if not isinstance(cut, SplitToSequence):
            raise Unknown
        return cut.count(b, *x.node.inputs)


class SplitToSequence(Op, sig="x: T, sizes?!: I -> y: any", onnx="SplitToSequence-11,24(x, sizes?; axis=0, keepdims=1)"):
    """Cut ``x`` along ``axis`` into a list of pieces: of ``sizes``, a vector of lengths that add up to the dimension, or each of
    ``sizes``, a scalar above 0 (the last may be smaller), or each of one.

    Without ``sizes`` and ``keepdims`` a piece is without the axis. Source: ONNX SplitToSequence 11, 24.
    """

    axis: int = 0
    keepdims: bool = True

    def types(self, x: Any, sizes: Any = None) -> list[Type]:
        check_inputs(self, (x, sizes))
        is_vector = sizes is not None and sizes.shape is not None and len(sizes.shape) == 1
        if sizes is not None and sizes.shape is not None and len(sizes.shape) > 1:
            raise RuleError("split.sizes", f"the lengths should be a vector or one number, not of rank {len(sizes.shape)}")
        if x.shape is None:
            return [Sequence(Tensor(x.dtype, None), sizes.shape[0] if is_vector else None)]
        if not x.shape:
            raise RuleError("shape.scalar", "a scalar has no axis to cut along")
        axis = axis_in(self.axis, len(x.shape))
        pieces = self._pieces(x.shape[axis], sizes)
        if pieces is None:
            count, piece = (sizes.shape[0], None) if is_vector else self._even(x.shape[axis], sizes)
        else:
            alike = bool(pieces) and is_size(pieces[0]) and all(each == pieces[0] for each in pieces)
            count, piece = len(pieces), pieces[0] if alike else None
        middle = () if sizes is None and not self.keepdims else (piece,)
        return [Sequence(Tensor(x.dtype, (*x.shape[:axis], *middle, *x.shape[axis + 1 :])), count)]

    def _pieces(self, size: Any, sizes: Any) -> list[Any] | None:
        """How long the pieces are, where their number is known."""
        lengths = None if sizes is None else elements_of(sizes)
        if sizes is not None and (lengths is None or sizes.shape is None):
            return None
        if sizes is not None and sizes.shape:
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

    def _even(self, size: Any, sizes: Any) -> tuple[Any, Any]:
        """How many pieces of one length there are, and how long they are."""
        piece = 1 if sizes is None else (elements_of(sizes) or [None])[0] if sizes.shape is not None else None
        if not isinstance(piece, int):
            return None, None
        return -(-size // piece), piece if symbolic.equal(size % piece, 0) is True else None

    def is_by_one(self, x: Any, sizes: Any = None) -> bool:
        """Whether every piece is known to be of one."""
        return sizes is None or (sizes.shape == () and integers_of(sizes) == [1])

    def count(self, b: Any, x: Any, sizes: Any = None) -> Any:
        """How many pieces there are, a scalar, written through ``b``."""
        if sizes is not None and sizes.shape is None:
            raise Unknown
        if sizes is not None and sizes.shape:
            return b.Squeeze(b.Shape(sizes), [0])
        size = b.Squeeze(b.Gather(b.Shape(x), [axis_in(self.axis, len(x.dims))]), [0])
        piece = 1 if sizes is None else (integers_of(sizes) or [0])[0]
        if piece < 1:
            raise Unknown
        return size if piece == 1 else b.Divide(b.Add(size, piece - 1), piece)

    def evaluate(self, xp: Any, x: Any, sizes: Any = None) -> Any:
        self.types(_typed(x), host_view_of(sizes))
        axis = axis_in(self.axis, x.ndim)
        pieces: Any = self._pieces(x.shape[axis], host_view_of(sizes))
        front, start, made = (slice(None),) * axis, 0, []
        for piece in pieces:
            made.append(x[(*front, start if sizes is None and not self.keepdims else slice(start, start + piece))])
            start += piece
        return [np.asarray(each) for each in made] if isinstance(x, np.ndarray) else made

    def decompose(self, b: Any, x: Any, sizes: Any = None) -> Any:
        axis = axis_in(self.axis, len(x.dims))
        pieces = self._pieces(x.dims[axis], sizes)
        if not pieces:
            raise Unknown
        lengths = [pieces] if all(isinstance(piece, int) for piece in pieces) else [sizes]
        parts = b.Split(x, *lengths, axis=axis, outputs=len(pieces))
        if sizes is None and not self.keepdims:
            parts = [b.Squeeze(part, [axis]) for part in parts]
        return b.SequenceConstruct(*parts)


class ConcatFromSequence(Op, sig="x: any -> y: any", onnx="ConcatFromSequence-11(x; axis, new_axis=0)"):
    """The elements of ``x`` laid end to end along ``axis``, or along a new axis there; one at least.

    Source: ONNX ConcatFromSequence 11.
    """

    axis: int
    new_axis: bool = False

    def types(self, x: Any) -> list[Type]:
        known = sequence_of(x.type)
        if known.length == 0:
            raise RuleError("sequence.empty", "no elements are laid end to end")
        parts = parts_of(x)
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

    def evaluate(self, xp: Any, x: Any) -> Any:
        if not x:
            raise RuleError("sequence.empty", "no elements are laid end to end")
        self._joined([_typed(part).type for part in x])
        axis = self._axis(x[0].ndim)
        return xp.stack(list(x), axis=axis) if self.new_axis else xp.concat(list(x), axis=axis)

    def decompose(self, b: Any, x: Any) -> Any:
        """What was cut is laid end to end again as it was; else the elements are."""
        cut = _cut_by_one(x) if x.node is not None and isinstance(x.node.op, SplitToSequence) else None
        if cut is not None and (uncut := self._uncut(b, *cut)) is not None:
            return uncut
        parts = parts_of(x)
        if not parts or any(part.shape is None for part in parts):
            raise Unknown
        axis = self._axis(len(parts[0].dims))
        if self.new_axis:
            parts = [b.Unsqueeze(part, [axis]) for part in parts]
        return b.Concat(*parts, axis=axis)

    def _uncut(self, b: Any, whole: Any, axis: int, keeps: bool) -> Any:
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
        return b.Reshape(moved, b.Concat(*rows, axis=0) if len(rows) > 1 else pair, copy_zeros=False)


def _typed(x: Any) -> Any:
    view = view_of(x)
    view.type = Tensor(element(x), tuple(x.shape))
    return view


UNLISTED = (SequenceAt, SequenceLength, SplitToSequence, ConcatFromSequence, OptionalHasElement, OptionalGetElement)


def unlisted(b: Any, node: Any) -> Any:
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

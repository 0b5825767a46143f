"""Operators that move data, where OpenVINO and the core differ by more than a slot line."""

from __future__ import annotations

from typing import Any

import numpy as np

from dovetail import dtypes, symbolic
from dovetail.errors import FormatError, RuleError, UnsupportedError
from dovetail.formats.import_context import ImportContext
from dovetail.formats.mapping_selection import constant_or_none
from dovetail.formats.openvino.dialect import OPENVINO
from dovetail.ir.builder import Builder
from dovetail.ir.graph import Node, Value
from dovetail.ir.op import REQUIRED, Op
from dovetail.ir.types import INT64_MAX
from dovetail.ops.shape_values import elements_of, integers_of, length_of_vector
from dovetail.ops.tensor.concat_split import Split
from dovetail.ops.tensor.transpose_expand_tile import Tile

# Pad


class _Pad(
    Op,
    sig="x: T, begin!: I, end!: I, value?: T -> y: T",
    openvino="Pad-12(x, begin, end, value?; pad_mode:mode)",
):
    """Pad as OpenVINO spells it: what comes before and what comes after are two vectors."""

    mode: str

    def shape(self, x: Any, begin: Any, end: Any, value: Any = None) -> Any:
        if x.shape is None:
            return None
        first, last = integers_of(begin), integers_of(end)
        if first is None or last is None:
            return (None,) * len(x.shape)
        return tuple(size + before + after for size, before, after in zip(x.shape, first, last, strict=True))


@OPENVINO.importer("Pad", 1, 12)
def pad(ctx: ImportContext) -> Any:
    """Two vectors become one. Pad-1 does not crop."""
    mode = ctx.attribute("pad_mode", "str")
    if mode not in ("constant", "edge", "reflect", "symmetric"):
        raise FormatError("attribute.value", f"Pad: pad_mode = {mode!r} is none of constant, edge, reflect, symmetric")
    if len(ctx.inputs) > 4:
        raise FormatError("node.inputs", f"Pad takes 4 inputs, not {len(ctx.inputs)}")
    x, begin, end = (ctx.input(index) for index in range(3))
    for vector, name in ((begin, "pads_begin"), (end, "pads_end")):
        length_of_vector(vector, name)
        known = integers_of(vector)
        if ctx.node.version == 1 and known is not None and min(known, default=0) < 0:
            raise RuleError("pad.negative", f"{name} {known} should not be negative")
    return ctx.b.Pad(x, _joined(ctx.b, begin, end), ctx.optional_input(3) if mode == "constant" else None, mode=mode)


def _joined(b: Builder, begin: Value, end: Value) -> Value:
    """The one vector of pads: that which was cut in two, if it was."""
    made, other = begin.node, end.node
    if made is not None and made is other and isinstance(made.op, Split) and [begin.index, end.index] == [0, 1]:
        source, sizes = (*made.inputs, None)[:2]
        if source is not None and sizes is None and len(made.outputs) == 2:
            return source
    if begin.dtype is not end.dtype:
        begin, end = (_cast(b, each) for each in (begin, end))
    result: Value = b.Concat(begin, end, axis=0)
    return result


def _cast(b: Builder, x: Value) -> Value:
    data = x.constant
    if data is not None:
        return b.constant(np.asarray(data).astype(np.int64))
    result: Value = x if x.dtype == "i64" else b.Cast(x, to=dtypes.i64)
    return result


@OPENVINO.legalize("Pad")
def pad_in_two(b: Builder, node: Node) -> Any:
    """What comes before and after in two vectors of all axes; mirrors that are larger than the tensor by gathering."""
    op: Any = node.op
    x, pads, value, axes = (*node.inputs, None, None)[:4]
    assert x is not None and pads is not None
    if x.shape == ():
        return b.Identity(x)
    if axes is not None:
        return op.decompose(b, x, pads, value, axes)
    if op.mode == "wrap" or (op.mode != "constant" and _is_far(op, x, pads)):
        return op.decompose(b, x, pads)
    if op.mode == "constant" and value is not None:
        if constant_or_none(value) is None:
            return _around(b, x, pads, value)
        value = value if value.shape == () else b.Reshape(value, [])
    begin, end = _halves(b, pads)
    return b.add(_Pad(op.mode), x, begin, end, value if op.mode == "constant" else None)[0]


def _around(b: Builder, x: Value, pads: Value, value: Value) -> Value:
    """A value that is computed, put where the padding is: OpenVINO's CPU plugin takes 0 for it."""
    from dovetail.ir.builder import shape_value

    ones = b.Expand(b.constant(np.array(1, np.int32)), shape_value(b, x))
    inside = b.Equal(b.Pad(ones, pads), b.constant(np.array(1, np.int32)))
    result: Value = b.Where(inside, b.Pad(x, pads), value)
    return result


def _is_far(op: Any, x: Value, pads: Value) -> bool:
    """Whether a mirror would have to show more than there is."""
    known = integers_of(pads)
    if op.mode == "edge" or known is None or x.shape is None:
        return False
    room = [size - (op.mode == "reflect") for size in x.shape] * 2
    return any(isinstance(most, int) and count > max(most, 0) for count, most in zip(known, room, strict=True))


def _halves(b: Builder, pads: Value) -> tuple[Value, Value]:
    data = pads.constant
    if data is not None:
        half = data.size // 2
        return b.constant(data[:half], pads.dtype), b.constant(data[half:], pads.dtype)
    node = pads.node
    if node is not None and type(node.op).__name__ == "Concat" and len(node.inputs) == 2:
        begin, end = node.inputs
        if begin is not None and end is not None and begin.shape is not None and begin.shape == end.shape:
            return begin, end
    begin, end = b.Split(pads, axis=0, outputs=2)
    return begin, end


# Slicing


_MASKS = ("begin_mask", "end_mask", "new_axis_mask", "shrink_axis_mask", "ellipsis_mask")


@OPENVINO.importer("StridedSlice", 1)
def strided_slice(ctx: ImportContext) -> Any:
    """Python's indexing as five masks: Slice, then Gather for each axis that shrinks, then Unsqueeze.

    Masks shorter than the bounds go on with 0; longer ones are cut. An ellipsis goes before a new axis, that before one that
    shrinks. In reverse a masked end takes the first element along, as OpenVINO's implementation has it (its text stops short of
    it).
    """
    b = ctx.b
    masks = {name: ctx.attribute(name, "tuple[int, ...]", REQUIRED if name in _MASKS[:2] else ()) for name in _MASKS}
    if any(bit not in (0, 1) for mask in masks.values() for bit in mask):
        raise FormatError("attribute.value", "StridedSlice: a mask holds something else than 0 and 1")
    x, begin, end = (ctx.input(index) for index in range(3))
    strides = ctx.optional_input(3)
    if len(ctx.inputs) > 4:
        raise FormatError("node.inputs", f"StridedSlice takes 4 inputs, not {len(ctx.inputs)}")
    length = _bounds_length(begin, end, strides)
    begin_mask, end_mask, new_axis, shrink, ellipsis = ((*masks[name], *(0,) * length)[:length] for name in _MASKS)
    if sum(ellipsis) > 1:
        raise FormatError("attribute.value", "StridedSlice: more than one ellipsis")
    if x.shape is None:
        raise UnsupportedError("slice.rank", "StridedSlice of a tensor of unknown rank")
    plan = _plan(len(x.shape), new_axis, shrink, ellipsis)
    steps: list[int] | Value = [1] * length if strides is None else _steps(strides)
    y = _cut(
        b, x, begin, end, strides, [(place, axis) for place, axis, how in plan if how == "slice"], begin_mask, end_mask, steps
    )
    return _reshaped(b, y, begin, plan, begin_mask)


def _bounds_length(begin: Value, end: Value, strides: Value | None) -> int:
    found = {
        length_of_vector(each, name) for each, name in ((begin, "begin"), (end, "end"), (strides, "strides")) if each is not None
    }
    lengths = {length for length in found if isinstance(length, int)}
    if len(lengths) > 1:
        raise RuleError("slice.bounds", f"bounds of {sorted(lengths)} elements should be as many")
    if not lengths:
        raise UnsupportedError("constant.needed", "StridedSlice: the number of bounds is not known")
    return lengths.pop()


def _steps(strides: Value) -> list[int] | Value:
    """The steps where they are known; else the input itself."""
    data = constant_or_none(strides)
    return strides if data is None else [int(step) for step in data.reshape(-1).tolist()]


def _plan(rank: int, new_axis: Any, shrink: Any, ellipsis: Any) -> list[tuple[int, int, str]]:
    """For each place in the bounds that does something: the axis of ``x`` it speaks of, and what it does."""
    length = len(new_axis)
    added = sum(1 for place in range(length) if new_axis[place] and not ellipsis[place])
    covered = rank - (length - added - sum(ellipsis))
    if covered < 0:
        raise RuleError("slice.bounds", f"{length - added - sum(ellipsis)} bounds for {rank} axes")
    plan = []
    axis = 0
    for place in range(length):
        if ellipsis[place]:
            plan += [(place, axis + each, "keep") for each in range(covered)]
            axis += covered
        elif new_axis[place]:
            plan.append((place, axis, "add"))
        else:
            plan.append((place, axis, "shrink" if shrink[place] else "slice"))
            axis += 1
    return plan + [(length, each, "keep") for each in range(axis, rank)]


def _cut(
    b: Builder,
    x: Value,
    begin: Value,
    end: Value,
    strides: Value | None,
    cuts: list[tuple[int, int]],
    begin_mask: Any,
    end_mask: Any,
    steps: list[int] | Value,
) -> Value:
    """Slice the axes that are cut; those with both ends masked and a step of 1 are left alone."""
    if isinstance(steps, Value):
        return _cut_by(b, x, begin, end, steps, cuts, begin_mask, end_mask)
    cuts = [(place, axis) for place, axis in cuts if not (begin_mask[place] and end_mask[place] and steps[place] == 1)]
    if not cuts:
        return x
    places = [place for place, _ in cuts]
    whole = [0 if steps[place] > 0 else INT64_MAX for place in places]
    far = [INT64_MAX if steps[place] > 0 else -INT64_MAX for place in places]
    starts = _masked(b, begin, places, [begin_mask[place] for place in places], whole)
    stops = _masked(b, end, places, [end_mask[place] for place in places], far)
    axes = [axis for _, axis in cuts]
    chosen = [steps[place] for place in places]
    result: Value = b.Slice(x, starts, stops, axes, chosen)
    return result


def _cut_by(
    b: Builder, x: Value, begin: Value, end: Value, strides: Value, cuts: list[tuple[int, int]], begin_mask: Any, end_mask: Any
) -> Value:
    """Slice by steps that only run time knows: their signs say at which end a masked bound lies."""
    if not cuts:
        return x
    places = [place for place, _ in cuts]
    steps = b.Gather(_cast(b, strides), places, axis=0)
    ahead = b.Greater(steps, 0)
    bounds = []
    for given, mask, forward, back in ((begin, begin_mask, 0, INT64_MAX), (end, end_mask, INT64_MAX, -INT64_MAX)):
        instead = b.Where(ahead, b.constant(np.array(forward)), b.constant(np.array(back)))
        kept = b.Gather(_cast(b, given), places, axis=0)
        bounds.append(b.Where(b.constant(np.array([bool(mask[place]) for place in places])), instead, kept))
    result: Value = b.Slice(x, bounds[0], bounds[1], [axis for _, axis in cuts], steps)
    return result


def _masked(b: Builder, bounds: Value, places: list[int], mask: list[int], instead: list[int]) -> Value:
    """The bounds at ``places`` as an i64 vector, those that are masked replaced."""
    data = bounds.constant
    if data is not None:
        known = [int(item) for item in data.reshape(-1).tolist()]
        return b.constant(
            np.array([each if bit else known[place] for place, bit, each in zip(places, mask, instead, strict=True)])
        )
    wide = _cast(b, bounds)
    if places != list(range(len(places))) or wide.shape != (len(places),):
        wide = b.Gather(wide, places, axis=0)
    if not any(mask):
        return wide
    result: Value = b.Where(b.constant(np.array(mask, dtype=bool)), b.constant(np.array(instead)), wide)
    return result


def _reshaped(b: Builder, y: Value, begin: Value, plan: list[tuple[int, int, str]], begin_mask: Any) -> Value:
    """Take one element of each axis that shrinks, the last axis first, and put in the new axes."""
    for place, axis, _ in reversed([row for row in plan if row[2] == "shrink"]):
        y = b.Gather(y, b.constant(np.array(0)) if begin_mask[place] else _element(b, begin, place), axis=axis)
    new = []
    kept = 0
    for _, _, how in plan:
        if how == "add":
            new.append(kept)
        kept += how != "shrink"
    return b.Unsqueeze(y, new) if new else y


def _element(b: Builder, vector: Value, place: int) -> Value:
    data = vector.constant
    if data is not None:
        return b.constant(np.array(int(data.reshape(-1)[place])))
    result: Value = b.Gather(vector, b.constant(np.array(place)), axis=0)
    return result


@OPENVINO.importer("Reverse", 1)
def reverse(ctx: ImportContext) -> Any:
    """A Slice with steps of -1 along the axes that are named or marked."""
    mode = ctx.attribute("mode", "str")
    if mode not in ("index", "mask"):
        raise FormatError("attribute.value", f"Reverse: mode = {mode!r} is neither index nor mask")
    x = ctx.input(0)
    known = constant_or_none(ctx.input(1))
    if known is None:
        return _reversed_by(ctx.b, x, ctx.input(1), mode)
    data = known.reshape(-1)
    axes = [int(axis) for axis in (data if mode == "index" else np.flatnonzero(data)).tolist()]
    if mode == "mask" and x.shape is not None and len(data) != len(x.shape):
        raise RuleError("reverse.mask", f"a mask of {len(data)} for {len(x.shape)} axes")
    if not axes:
        return ctx.b.Identity(x)
    count = len(axes)
    return ctx.b.Slice(x, [INT64_MAX] * count, [-INT64_MAX] * count, axes, [-1] * count)


def _reversed_by(b: Builder, x: Value, given: Value, mode: str) -> Value:
    """By axes, or a mark for each axis, that only run time knows: a slice of all axes, as OpenVINO's own wants constant ones."""
    rank = len(x.dims)
    zero, one, far, near = (b.constant(np.array(bound)) for bound in (0, 1, INT64_MAX, -INT64_MAX))
    if mode == "index":
        marks = b.ScatterElements(b.constant(np.zeros(rank, np.int64)), _cast(b, given), b.Expand(one, b.Shape(given)), axis=0)
        given = b.Greater(marks, zero)
    bounds = [b.Where(given, *pair) for pair in ((far, zero), (near, far))]
    result: Value = b.Slice(x, bounds[0], bounds[1], list(range(rank)), b.Where(given, b.constant(np.array(-1)), one))
    return result


@OPENVINO.legalize("Slice")
def slice_with_steps(b: Builder, node: Node) -> Any:
    """OpenVINO's steps are not optional."""
    x, starts, stops, axes, steps = (*node.inputs, None, None)[:5]
    assert x is not None and starts is not None and stops is not None
    if starts.shape == (0,):
        return b.Identity(x)
    if steps is not None:
        return None
    length = None if starts.shape is None else starts.shape[0]
    one = np.ones((), dtype=starts.dtype.numpy)
    if isinstance(length, int):
        ones = b.constant(np.ones(length, dtype=starts.dtype.numpy), starts.dtype)
    else:
        ones = b.Expand(b.constant(one, starts.dtype), b.Shape(starts))
    return b.Slice(x, starts, stops, axes, ones)


# Shapes


@OPENVINO.importer("Broadcast", 1, 3)
def broadcast(ctx: ImportContext) -> Any:
    """``explicit`` says which axis of the result each axis of the data is: Unsqueeze the others, then expand."""
    mode = ctx.attribute("mode", "str", "numpy")
    x, shape = ctx.input(0), ctx.input(1)
    if mode == "numpy" and ctx.node.version == 1:
        # The third input, which older tools leave in place, is for the other mode.
        return ctx.b.apply("Expand", x, shape, both=False)
    if mode == "none" and ctx.node.version == 1:
        # What OpenVINO writes for its ``explicit``.
        mode = "explicit"
    if mode != "explicit":
        return None
    rank = length_of_vector(shape, "target_shape")
    if not isinstance(rank, int) or x.shape is None:
        raise UnsupportedError("broadcast.rank", "Broadcast with explicit axes between unknown ranks")
    known = constant_or_none(ctx.input(2))
    if known is None:
        return ctx.b.apply("Expand", _spread(ctx.b, x, ctx.input(2), rank), shape, both=False)
    mapping = [int(axis) for axis in known.reshape(-1).tolist()]
    if len(mapping) != len(x.shape) or mapping != sorted(set(mapping)) or any(not 0 <= axis < rank for axis in mapping):
        raise RuleError("broadcast.axes", f"axes_mapping {mapping} does not put {len(x.shape)} axes in order into {rank}")
    new = [axis for axis in range(rank) if axis not in mapping]
    return ctx.b.apply("Expand", ctx.b.Unsqueeze(x, new) if new else x, shape, both=False)


def _spread(b: Builder, x: Value, mapping: Value, rank: int) -> Value:
    """``x`` with sizes of 1 between its own, each of which stands at the axis that ``mapping`` says. Axes that do not rise are
    made ones out of range, which ScatterElements refuses."""
    axes = _cast(b, mapping)
    count = len(x.dims)
    if count > 1:
        steps = b.Subtract(b.Slice(axes, [1], [count]), b.Slice(axes, [0], [count - 1]))
        rises = b.Greater(b.ReduceMin(steps, [0], keep_dims=False), 0)
        axes = b.Where(rises, axes, b.constant(np.array(INT64_MAX)))
    sizes = b.ScatterElements(b.constant(np.ones(rank, np.int64)), axes, b.Shape(x), axis=0)
    result: Value = b.Reshape(x, sizes, copy_zeros=False)
    return result


@OPENVINO.importer("Squeeze", 1, 15)
def squeeze(ctx: ImportContext) -> Any:
    """Without axes, or with none of them, every axis of size 1 goes."""
    ctx.ignore("allow_axis_skip", "pytorch_dynamic_rank")
    axes = ctx.optional_input(1)
    if len(ctx.inputs) > 2:
        raise FormatError("node.inputs", f"Squeeze takes 2 inputs, not {len(ctx.inputs)}")
    if axes is not None and length_of_vector(axes, "axes", scalar=True) == 0:
        axes = None
    return ctx.b.apply("Squeeze", ctx.input(0), *([] if axes is None else [axes]), skip=True)


@OPENVINO.legalize("Squeeze")
def squeeze_or_skip(b: Builder, node: Node) -> Any:
    """OpenVINO leaves an axis alone whose size is not 1, where the core may refuse."""
    op: Any = node.op
    x, axes = (*node.inputs, None)[:2]
    if axes is not None and axes.shape == (0,):
        return b.Identity(node.input(0))
    return None if op.skip else b.apply("Squeeze", x, *([] if axes is None else [axes]), skip=True)


@OPENVINO.legalize("Unsqueeze", "Tile")
def nothing(b: Builder, node: Node) -> Any:
    """By no axes, which OpenVINO does not read from an empty constant, nothing happens."""
    axes = (*node.inputs, None)[1]
    if axes is None or axes.shape != (0,) or (isinstance(node.op, Tile) and node.outputs[0].shape != ()):
        return None
    return b.Identity(node.input(0))


@OPENVINO.legalize("Transpose")
def transpose(b: Builder, node: Node) -> Any:
    """One axis has no order, and an empty order is spelled out."""
    x, order = (*node.inputs, None)[:2]
    assert x is not None
    if x.shape is not None and len(x.shape) < 2:
        return b.Identity(x)
    if order is not None and order.shape == (0,) and x.shape is not None:
        return b.Transpose(x, list(reversed(range(len(x.shape)))))
    return None


@OPENVINO.legalize("Expand")
def expand(b: Builder, node: Node) -> Any:
    """To a size of 0 OpenVINO expands in one direction only; to no shape nothing happens."""
    op: Any = node.op
    x, shape = node.inputs
    assert x is not None and shape is not None
    if shape.shape == (0,):
        return b.Identity(x)
    sizes = elements_of(shape)
    if not op.both or sizes is None or x.shape is None or all(symbolic.equal(size, 0) is False for size in sizes):
        return None
    found = node.outputs[0].shape
    same = (
        found is not None
        and len(found) == len(sizes)
        and all(symbolic.equal(*pair) is True for pair in zip(found, sizes, strict=True))
    )
    return b.apply("Expand", x, shape, both=False) if same else None


@OPENVINO.legalize("Range")
def range_of_scalars(b: Builder, node: Node) -> Any:
    """One-element vectors are no scalars."""
    xs = [x for x in node.inputs if x is not None]
    if all(x.shape == () or x.shape is None for x in xs):
        return None
    return b.add(node.op, *(x if x.shape == () else b.Reshape(x, []) for x in xs))[0]

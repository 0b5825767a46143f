"""Converters for Pad, StridedSlice, Broadcast, Squeeze and other tensor operators that no op mapping can express."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from dovetail.errors import FormatError, RuleError, UnsupportedError
from dovetail.formats.import_context import ImportContext
from dovetail.formats.mapping_selection import constant_or_none
from dovetail.formats.openvino.dialect import OPENVINO
from dovetail.ir import dtypes, symbolic
from dovetail.ir.attribute_types import REQUIRED
from dovetail.ir.builder import Builder, shape_value
from dovetail.ir.graph import Node, Value
from dovetail.ir.op import Op
from dovetail.ir.types import INT64_MAX, View
from dovetail.ops.shape_values import elements_of, integers_of, length_of_vector
from dovetail.ops.tensor.concat_split import Split
from dovetail.ops.tensor.pad import Pad
from dovetail.ops.tensor.transpose_expand_tile import Tile

# Pad


class _Pad(
    Op,
    sig="x: T, begin!: I, end!: I, value?: T -> y: T",
    openvino="Pad-12(x, begin, end, value?; pad_mode:mode)",
):
    """_Pad is the Pad of OpenVINO, whose pads_begin and pads_end are separate vectors."""

    mode: str

    def shape(self, x: View, begin: View, end: View, value: View | None = None) -> Any:
        if x.shape is None:
            return None
        first, last = integers_of(begin), integers_of(end)
        if first is None or last is None:
            return (None,) * len(x.shape)
        return tuple(size + before + after for size, before, after in zip(x.shape, first, last, strict=True))


@OPENVINO.importer("Pad", 1, 12)
def import_pad(ctx: ImportContext) -> Any:
    """Import Pad: concatenate pads_begin and pads_end. Pad-1 does not allow negative pads."""
    mode = ctx.attribute("pad_mode", "str")
    if mode not in ("constant", "edge", "reflect", "symmetric"):
        raise FormatError("attribute.value", f"Pad: pad_mode must be constant, edge, reflect or symmetric, got {mode!r}")
    if len(ctx.inputs) > 4:
        raise FormatError("node.inputs", f"Pad must have at most 4 inputs, got {len(ctx.inputs)}")
    x, begin, end = (ctx.input(index) for index in range(3))
    for vector, name in ((begin, "pads_begin"), (end, "pads_end")):
        length_of_vector(vector, name)
        known = integers_of(vector)
        if ctx.node.version == 1 and known is not None and min(known, default=0) < 0:
            raise RuleError("attribute.range", f"{name} must not be negative, got {known}")
    return ctx.b.Pad(x, _join_pads(ctx.b, begin, end), ctx.optional_input(3) if mode == "constant" else None, mode=mode)


def _join_pads(b: Builder, begin: Value, end: Value) -> Value:
    """Concatenate pads_begin and pads_end; if both are the parts of a Split, return the vector that it splits."""
    first, second = begin.node, end.node
    if first is not None and first is second and isinstance(first.op, Split) and [begin.index, end.index] == [0, 1]:
        source, sizes = (*first.inputs, None)[:2]
        if source is not None and sizes is None and len(first.outputs) == 2:
            return source
    if begin.dtype is not end.dtype:
        begin, end = (_cast(b, half) for half in (begin, end))
    result: Value = b.Concat(begin, end, axis=0)
    return result


def _cast(b: Builder, x: Value) -> Value:
    data = x.constant
    if data is not None:
        return b.constant(np.asarray(data).astype(np.int64))
    result: Value = x if x.dtype == "i64" else b.Cast(x, to=dtypes.i64)
    return result


@OPENVINO.legalize("Pad")
def legalize_pad(b: Builder, node: Node) -> Any:
    """Legalize Pad: split the pads into two vectors over all axes; decompose reflections that are larger than the tensor."""
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
    begin, end = _split_pads(b, pads)
    return b.add(_Pad(op.mode), x, begin, end, value if op.mode == "constant" else None)[0]


def _around(b: Builder, x: Value, pads: Value, value: Value) -> Value:
    """Pad by Where with a value that is computed at run time; in a Pad, OpenVINO's CPU plugin uses 0 for such a value."""
    ones = b.Expand(b.constant(np.array(1, np.int32)), shape_value(b, x))
    inside = b.Equal(b.Pad(ones, pads), b.constant(np.array(1, np.int32)))
    result: Value = b.Where(inside, b.Pad(x, pads), value)
    return result


def _is_far(op: Pad, x: Value, pads: Value) -> bool:
    """Return whether the padding of a reflecting Pad is certainly larger than the tensor allows."""
    known = integers_of(pads)
    if op.mode == "edge" or known is None or x.shape is None:
        return False
    limits = [size - (op.mode == "reflect") for size in x.shape] * 2
    return any(isinstance(limit, int) and count > max(limit, 0) for count, limit in zip(known, limits, strict=True))


def _split_pads(b: Builder, pads: Value) -> tuple[Value, Value]:
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
def import_strided_slice(ctx: ImportContext) -> Any:
    """Import StridedSlice, indexing with five masks: Slice, then Gather for each shrunk axis, then Unsqueeze.

    Masks that are shorter than the bounds are padded with 0, and longer masks are truncated. An ellipsis has precedence over a
    new axis, and a new axis over a shrunk axis. For a negative stride, a masked end includes the first element, as in OpenVINO's
    implementation; the specification excludes that element.
    """
    b = ctx.b
    masks = {name: ctx.attribute(name, "tuple[int, ...]", REQUIRED if name in _MASKS[:2] else ()) for name in _MASKS}
    if any(bit not in (0, 1) for mask in masks.values() for bit in mask):
        raise FormatError("attribute.value", "StridedSlice: masks must consist of 0 and 1")
    x, begin, end = (ctx.input(index) for index in range(3))
    strides = ctx.optional_input(3)
    if len(ctx.inputs) > 4:
        raise FormatError("node.inputs", f"StridedSlice must have at most 4 inputs, got {len(ctx.inputs)}")
    length = _bounds_length(begin, end, strides)
    begin_mask, end_mask, new_axis, shrink, ellipsis = ((*masks[name], *(0,) * length)[:length] for name in _MASKS)
    if sum(ellipsis) > 1:
        raise FormatError("attribute.value", "StridedSlice: ellipsis_mask must have at most one 1")
    if x.shape is None:
        raise UnsupportedError("type.unknown", "the input of StridedSlice must have a known rank")
    plan = _plan(len(x.shape), new_axis, shrink, ellipsis)
    steps: list[int] | Value = [1] * length if strides is None else _steps(strides)
    y = _cut(
        b,
        x,
        begin,
        end,
        strides,
        [(position, axis) for position, axis, action in plan if action == "slice"],
        begin_mask,
        end_mask,
        steps,
    )
    return _change_axes(b, y, begin, plan, begin_mask)


def _bounds_length(begin: Value, end: Value, strides: Value | None) -> int:
    lengths_found = {
        length_of_vector(vector, name)
        for vector, name in ((begin, "begin"), (end, "end"), (strides, "strides"))
        if vector is not None
    }
    lengths = {length for length in lengths_found if isinstance(length, int)}
    if len(lengths) > 1:
        raise RuleError("attribute.length", f"begin, end and strides must have equal lengths, got {sorted(lengths)}")
    if not lengths:
        raise UnsupportedError("constant.needed", "the number of bounds of StridedSlice must be static")
    return lengths.pop()


def _steps(strides: Value) -> list[int] | Value:
    """Return the steps as a list if they are constant, otherwise the input."""
    data = constant_or_none(strides)
    return strides if data is None else [int(step) for step in data.reshape(-1).tolist()]


def _plan(rank: int, new_axis: Sequence[int], shrink: Sequence[int], ellipsis: Sequence[int]) -> list[tuple[int, int, str]]:
    """Return for each position in the bounds of a StridedSlice the triple (position, axis of ``x``, action)."""
    length = len(new_axis)
    added = sum(1 for position in range(length) if new_axis[position] and not ellipsis[position])
    covered = rank - (length - added - sum(ellipsis))
    if covered < 0:
        raise RuleError("attribute.length", f"StridedSlice must have at most {rank} bounds, got {length - added - sum(ellipsis)}")
    plan = []
    axis = 0
    for position in range(length):
        if ellipsis[position]:
            plan += [(position, axis + kept_axis, "keep") for kept_axis in range(covered)]
            axis += covered
        elif new_axis[position]:
            plan.append((position, axis, "add"))
        else:
            plan.append((position, axis, "shrink" if shrink[position] else "slice"))
            axis += 1
    return plan + [(length, kept_axis, "keep") for kept_axis in range(axis, rank)]


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
    """Slice ``x`` along the axes in ``cuts``; an axis whose two bounds are masked and whose step is 1 is not sliced."""
    if isinstance(steps, Value):
        return _cut_by(b, x, begin, end, steps, cuts, begin_mask, end_mask)
    cuts = [
        (position, axis) for position, axis in cuts if not (begin_mask[position] and end_mask[position] and steps[position] == 1)
    ]
    if not cuts:
        return x
    positions = [position for position, _ in cuts]
    defaults = [0 if steps[position] > 0 else INT64_MAX for position in positions]
    far = [INT64_MAX if steps[position] > 0 else -INT64_MAX for position in positions]
    starts = _apply_mask(b, begin, positions, [begin_mask[position] for position in positions], defaults)
    stops = _apply_mask(b, end, positions, [end_mask[position] for position in positions], far)
    axes = [axis for _, axis in cuts]
    selected_steps = [steps[position] for position in positions]
    result: Value = b.Slice(x, starts, stops, axes, selected_steps)
    return result


def _cut_by(
    b: Builder, x: Value, begin: Value, end: Value, strides: Value, cuts: list[tuple[int, int]], begin_mask: Any, end_mask: Any
) -> Value:
    """Slice with steps that are computed at run time; the sign of a step determines the masked bounds."""
    if not cuts:
        return x
    positions = [position for position, _ in cuts]
    steps = b.Gather(_cast(b, strides), positions, axis=0)
    is_forward = b.Greater(steps, 0)
    bounds = []
    for bound, mask, forward, back in ((begin, begin_mask, 0, INT64_MAX), (end, end_mask, INT64_MAX, -INT64_MAX)):
        instead = b.Where(is_forward, b.constant(np.array(forward)), b.constant(np.array(back)))
        selected = b.Gather(_cast(b, bound), positions, axis=0)
        bounds.append(b.Where(b.constant(np.array([bool(mask[position]) for position in positions])), instead, selected))
    result: Value = b.Slice(x, bounds[0], bounds[1], [axis for _, axis in cuts], steps)
    return result


def _apply_mask(b: Builder, bounds: Value, positions: list[int], mask: list[int], instead: list[int]) -> Value:
    """Return the bounds at ``positions`` as an i64 vector, with masked bounds replaced by ``instead``."""
    data = bounds.constant
    if data is not None:
        known = [int(item) for item in data.reshape(-1).tolist()]
        return b.constant(
            np.array(
                [
                    replacement if bit else known[position]
                    for position, bit, replacement in zip(positions, mask, instead, strict=True)
                ]
            )
        )
    wide = _cast(b, bounds)
    if positions != list(range(len(positions))) or wide.shape != (len(positions),):
        wide = b.Gather(wide, positions, axis=0)
    if not any(mask):
        return wide
    result: Value = b.Where(b.constant(np.array(mask, dtype=bool)), b.constant(np.array(instead)), wide)
    return result


def _change_axes(b: Builder, y: Value, begin: Value, plan: list[tuple[int, int, str]], begin_mask: Sequence[int]) -> Value:
    """Gather one element of each shrunk axis, in descending order of axes, and insert the new axes."""
    for position, axis, _ in reversed([row for row in plan if row[2] == "shrink"]):
        y = b.Gather(y, b.constant(np.array(0)) if begin_mask[position] else _element(b, begin, position), axis=axis)
    new = []
    removed = 0
    for _, _, action in plan:
        if action == "add":
            new.append(removed)
        removed += action != "shrink"
    return b.Unsqueeze(y, new) if new else y


def _element(b: Builder, vector: Value, position: int) -> Value:
    data = vector.constant
    if data is not None:
        return b.constant(np.array(int(data.reshape(-1)[position])))
    result: Value = b.Gather(vector, b.constant(np.array(position)), axis=0)
    return result


@OPENVINO.importer("Reverse", 1)
def import_reverse(ctx: ImportContext) -> Any:
    """Import Reverse: Slice with steps of -1 along the listed or masked axes."""
    mode = ctx.attribute("mode", "str")
    if mode not in ("index", "mask"):
        raise FormatError("attribute.value", f"Reverse: mode must be index or mask, got {mode!r}")
    x = ctx.input(0)
    known = constant_or_none(ctx.input(1))
    if known is None:
        return _reversed_by(ctx.b, x, ctx.input(1), mode)
    data = known.reshape(-1)
    axes = [int(axis) for axis in (data if mode == "index" else np.flatnonzero(data)).tolist()]
    if mode == "mask" and x.shape is not None and len(data) != len(x.shape):
        raise RuleError("attribute.length", f"Reverse: the mask must have {len(x.shape)} elements, got {len(data)}")
    if not axes:
        return ctx.b.Identity(x)
    count = len(axes)
    return ctx.b.Slice(x, [INT64_MAX] * count, [-INT64_MAX] * count, axes, [-1] * count)


def _reversed_by(b: Builder, x: Value, axes_or_mask: Value, mode: str) -> Value:
    """Reverse along axes or a mask that are computed at run time, by slicing all axes with steps of 1 or -1."""
    rank = len(x.dims)
    zero, one, far, near = (b.constant(np.array(bound)) for bound in (0, 1, INT64_MAX, -INT64_MAX))
    if mode == "index":
        marks = b.ScatterElements(
            b.constant(np.zeros(rank, np.int64)), _cast(b, axes_or_mask), b.Expand(one, b.Shape(axes_or_mask)), axis=0
        )
        axes_or_mask = b.Greater(marks, zero)
    bounds = [b.Where(axes_or_mask, *pair) for pair in ((far, zero), (near, far))]
    result: Value = b.Slice(x, bounds[0], bounds[1], list(range(rank)), b.Where(axes_or_mask, b.constant(np.array(-1)), one))
    return result


@OPENVINO.legalize("Slice")
def legalize_slice(b: Builder, node: Node) -> Any:
    """Legalize Slice: add steps of 1, because OpenVINO requires steps."""
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
def import_broadcast(ctx: ImportContext) -> Any:
    """Import Broadcast: in mode ``explicit``, unsqueeze the axes that are not in ``axes_mapping``, then expand."""
    mode = ctx.attribute("mode", "str", "numpy")
    x, shape = ctx.input(0), ctx.input(1)
    if mode == "numpy" and ctx.node.version == 1:
        # The third input is used only in mode explicit; older tools write it in other modes too.
        return ctx.b.apply("Expand", x, shape, bidirectional=False)
    if mode == "none" and ctx.node.version == 1:
        # OpenVINO writes the mode ``explicit`` of Broadcast-1 as ``none``.
        mode = "explicit"
    if mode != "explicit":
        return None
    rank = length_of_vector(shape, "target_shape")
    if not isinstance(rank, int) or x.shape is None:
        raise UnsupportedError("type.unknown", "Broadcast with explicit axes needs known ranks")
    known = constant_or_none(ctx.input(2))
    if known is None:
        return ctx.b.apply("Expand", _spread(ctx.b, x, ctx.input(2), rank), shape, bidirectional=False)
    mapping = [int(axis) for axis in known.reshape(-1).tolist()]
    if len(mapping) != len(x.shape) or mapping != sorted(set(mapping)) or any(not 0 <= axis < rank for axis in mapping):
        raise RuleError("attribute.length", f"axes_mapping must be {len(x.shape)} ascending axes below {rank}, got {mapping}")
    new = [axis for axis in range(rank) if axis not in mapping]
    return ctx.b.apply("Expand", ctx.b.Unsqueeze(x, new) if new else x, shape, bidirectional=False)


def _spread(b: Builder, x: Value, mapping: Value, rank: int) -> Value:
    """Reshape ``x`` to rank ``rank``, with its axes at the positions ``mapping`` and sizes of 1 elsewhere.

    If the positions are not in ascending order, they are mapped out of range, so that ScatterElements raises an error.
    """
    axes = _cast(b, mapping)
    count = len(x.dims)
    if count > 1:
        steps = b.Subtract(b.Slice(axes, [1], [count]), b.Slice(axes, [0], [count - 1]))
        rises = b.Greater(b.ReduceMin(steps, [0], keepdims=False), 0)
        axes = b.Where(rises, axes, b.constant(np.array(INT64_MAX)))
    sizes = b.ScatterElements(b.constant(np.ones(rank, np.int64)), axes, b.Shape(x), axis=0)
    result: Value = b.Reshape(x, sizes, special_zero=False)
    return result


@OPENVINO.importer("Squeeze", 1, 15)
def import_squeeze(ctx: ImportContext) -> Any:
    """Import Squeeze; without axes, or with an empty list of axes, all axes of size 1 are removed."""
    ctx.ignore("allow_axis_skip", "pytorch_dynamic_rank")
    axes = ctx.optional_input(1)
    if len(ctx.inputs) > 2:
        raise FormatError("node.inputs", f"Squeeze must have at most 2 inputs, got {len(ctx.inputs)}")
    if axes is not None and length_of_vector(axes, "axes", scalar=True) == 0:
        axes = None
    return ctx.b.apply("Squeeze", ctx.input(0), *([] if axes is None else [axes]), skip=True)


@OPENVINO.legalize("Squeeze")
def legalize_squeeze(b: Builder, node: Node) -> Any:
    """Legalize Squeeze: set ``skip``, because OpenVINO ignores an axis whose size is not 1."""
    op: Any = node.op
    x, axes = (*node.inputs, None)[:2]
    if axes is not None and axes.shape == (0,):
        return b.Identity(node.input(0))
    return None if op.skip else b.apply("Squeeze", x, *([] if axes is None else [axes]), skip=True)


@OPENVINO.legalize("Unsqueeze", "Tile")
def legalize_unsqueeze_tile(b: Builder, node: Node) -> Any:
    """Legalize Unsqueeze without axes and Tile of a scalar to Identity, because OpenVINO refuses empty constants."""
    axes = (*node.inputs, None)[1]
    if axes is None or axes.shape != (0,) or (isinstance(node.op, Tile) and node.outputs[0].shape != ()):
        return None
    return b.Identity(node.input(0))


@OPENVINO.legalize("Transpose")
def legalize_transpose(b: Builder, node: Node) -> Any:
    """Legalize Transpose: a Transpose of rank below 2 becomes Identity, and an empty order becomes explicit."""
    x, order = (*node.inputs, None)[:2]
    assert x is not None
    if x.shape is not None and len(x.shape) < 2:
        return b.Identity(x)
    if order is not None and order.shape == (0,) and x.shape is not None:
        return b.Transpose(x, list(reversed(range(len(x.shape)))))
    return None


@OPENVINO.legalize("Expand")
def legalize_expand(b: Builder, node: Node) -> Any:
    """Legalize Expand: an empty shape becomes Identity; OpenVINO expands to a size of 0 only without ``bidirectional``."""
    op: Any = node.op
    x, shape = node.input(0), node.input(1)
    if shape.shape == (0,):
        return b.Identity(x)
    sizes = elements_of(shape)
    if not op.bidirectional or sizes is None or x.shape is None or all(symbolic.equal(size, 0) is False for size in sizes):
        return None
    target_shape = node.outputs[0].shape
    same = (
        target_shape is not None
        and len(target_shape) == len(sizes)
        and all(symbolic.equal(*pair) is True for pair in zip(target_shape, sizes, strict=True))
    )
    return b.apply("Expand", x, shape, bidirectional=False) if same else None


@OPENVINO.legalize("Range")
def legalize_range(b: Builder, node: Node) -> Any:
    """Legalize Range: reshape vectors of size 1 to scalars."""
    xs = [x for x in node.inputs if x is not None]
    if all(x.shape == () or x.shape is None for x in xs):
        return None
    return b.add(node.op, *(x if x.shape == () else b.Reshape(x, []) for x in xs))[0]
